/*
 * fuzz_checkpoint.c: a libFuzzer target for loading an optimizer's state. Checksums would
 * stop every mutation at the door, so the file that the bytes make is written again with
 * the right ones first: what the loader then sees is any file that someone made by hand.
 *
 * Whatever it holds, loading fails with a message and changes nothing, or succeeds and
 * leaves a state that can be saved, loaded and stepped from.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <string.h>

#include "fuzz.h"

/* ---- the file ---- */

static const char crc_prefix[] = "muonium.crc32c.", seal[] = "muonium.header_crc32c";

static bool is_checksum(const char *key)
{
    return strncmp(key, crc_prefix, strlen(crc_prefix)) == 0 || strcmp(key, seal) == 0;
}

static void add_checksum(muonium_writer *writer, const muonium_entry *entry, const uint8_t *data)
{
    char digits[9], *key = malloc(sizeof crc_prefix + strlen(entry->name));
    demand(key != NULL);
    strcpy(key, crc_prefix);
    strcat(key, entry->name);
    snprintf(digits, sizeof digits, "%08x",
             (unsigned)mu_crc32c(0, data + entry->offset, (size_t)entry->bytes));
    demand(muonium_writer_add_metadata(writer, key, digits) == MUONIUM_OK);
    free(key);
}

/* The same file with checksums that are right. */
static void seal_again(const muonium_reader *reader, const uint8_t *data, buffer *out)
{
    muonium_writer *writer;
    const char *key, *value;
    demand(muonium_writer_create(&writer) == MUONIUM_OK);
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        if (!is_checksum(key)) {
            demand(muonium_writer_add_metadata(writer, key, value) == MUONIUM_OK);
        }
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        add_checksum(writer, entry, data);
        demand(muonium_writer_add(writer, entry->name, entry->dtype, entry->ndim, entry->shape) ==
               MUONIUM_OK);
    }
    demand(mu_writer_seal(writer, seal) == MUONIUM_OK);
    write_data(writer, reader, data, out);
}

/* ---- the optimizer ---- */

static float weights[2][16], gradients[2][16];

/* The state of an optimizer that reads the file. */
typedef enum kind { PLAIN, RICH, INT8, KINDS } kind;

static muonium_optimizer *make_optimizer(kind as)
{
    bool rich = as == RICH;
    static const char *const names[2] = {"w", "b"};
    muonium_optimizer *optimizer;
    muonium_options options;
    demand(muonium_options_init(&options, rich ? "moonlight" : NULL) == MUONIUM_OK);
    options.normuon = options.master = rich;
    options.state_dtype = rich ? MUONIUM_BF16 : as == INT8 ? MUONIUM_INT8 : MUONIUM_F32;
    options.adam_state_dtype = as == INT8 ? MUONIUM_INT8 : MUONIUM_F32;
    demand(muonium_create(&options, &optimizer) == MUONIUM_OK);
    for (size_t i = 0; i < 2; i++) {
        muonium_tensor tensor = {.name = names[i],
                                 .dtype = rich ? MUONIUM_BF16 : MUONIUM_F32,
                                 .ndim = 2 - i,
                                 .shape = {4, 4},
                                 .data = weights[i],
                                 .grad = gradients[i]};
        demand(muonium_add(optimizer, &tensor, NULL) == MUONIUM_OK);
    }
    return optimizer;
}

static buffer save(const muonium_optimizer *optimizer)
{
    buffer saved = {0};
    demand(muonium_save_to(optimizer, append, &saved) == MUONIUM_OK);
    return saved;
}

static muonium_status load(muonium_optimizer *optimizer, const buffer *from, bool partial)
{
    muonium_reader *reader;
    muonium_load_options options;
    muonium_load_options_init(&options);
    options.partial = partial;
    demand(muonium_reader_open_memory(from->bytes, from->count, &reader) == MUONIUM_OK);
    muonium_status status = muonium_load_reader(optimizer, reader, &options, NULL);
    muonium_reader_close(reader);
    return status;
}

static void try_file(const buffer *file, kind as, bool partial)
{
    muonium_optimizer *optimizer = make_optimizer(as);
    buffer before = save(optimizer);
    muonium_status status = load(optimizer, file, partial);
    buffer after = save(optimizer);
    if (status == MUONIUM_OK) {
        demand(load(optimizer, &after, false) == MUONIUM_OK);
        demand(muonium_step(optimizer) == MUONIUM_OK);
    } else {
        demand(status == MUONIUM_FORMAT || status == MUONIUM_NON_FINITE);
        demand(muonium_last_error()[0] != '\0');
        demand(before.count == after.count && memcmp(before.bytes, after.bytes, before.count) == 0);
    }
    free(before.bytes);
    free(after.bytes);
    muonium_destroy(optimizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    muonium_reader *reader;
    if (muonium_reader_open_memory(data, size, &reader) != MUONIUM_OK) {
        return 0;
    }
    buffer file = {0};
    seal_again(reader, data, &file);
    muonium_reader_close(reader);
    for (kind as = PLAIN; as < KINDS; as++) {
        try_file(&file, as, false);
        try_file(&file, as, true);
    }
    free(file.bytes);
    return 0;
}
