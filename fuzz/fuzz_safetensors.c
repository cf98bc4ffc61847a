/*
 * fuzz_safetensors.c: a libFuzzer target for the safetensors reader. Whatever
 * the bytes, the reader refuses them or gives entries that cover the data
 * exactly, in order, with distinct names that can be found; and what it accepts
 * comes back from the writer equal.
 *
 *     clang -g -fsanitize=fuzzer,address,undefined ... && ./fuzz_safetensors corpus/safetensors
 */
#include "checkpoint/safetensors.h"

#include <string.h>

#include "fuzz.h"

static void check_structure(const muonium_reader *reader, size_t size)
{
    uint64_t end = 0;
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        uint64_t bytes;
        demand(i == 0 || entry->offset == end);
        end = entry->offset + entry->bytes;
        demand(entry->offset <= size && end <= size);
        demand(mu_tensor_bytes(entry->bits, entry->ndim, entry->shape, &bytes));
        demand(bytes == entry->bytes);
        demand(muonium_reader_find(reader, entry->name) == entry);
    }
    demand(muonium_reader_count(reader) == 0 || end == size);
    for (size_t i = 0; i < muonium_reader_metadata_count(reader); i++) {
        const char *value;
        const char *key = muonium_reader_metadata_key(reader, i, &value);
        demand(muonium_reader_metadata(reader, key) == value);
    }
}

static void write_again(const muonium_reader *reader, const uint8_t *data, buffer *out)
{
    muonium_writer *writer;
    demand(muonium_writer_create(&writer) == MUONIUM_OK);
    for (size_t i = 0; i < muonium_reader_metadata_count(reader); i++) {
        const char *value;
        const char *key = muonium_reader_metadata_key(reader, i, &value);
        demand(muonium_writer_add_metadata(writer, key, value) == MUONIUM_OK);
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        demand(muonium_writer_add(writer, entry->name, entry->dtype, entry->ndim, entry->shape) ==
               MUONIUM_OK);
    }
    write_data(writer, reader, data, out);
}

static void check_equal(const muonium_reader *a, const muonium_reader *b, const uint8_t *a_data,
                        const uint8_t *b_data)
{
    demand(muonium_reader_count(a) == muonium_reader_count(b));
    demand(muonium_reader_metadata_count(a) == muonium_reader_metadata_count(b));
    for (size_t i = 0; i < muonium_reader_count(a); i++) {
        const muonium_entry *x = muonium_reader_entry(a, i);
        const muonium_entry *y = muonium_reader_entry(b, i);
        demand(strcmp(x->name, y->name) == 0 && strcmp(x->dtype, y->dtype) == 0);
        demand(x->ndim == y->ndim && x->bytes == y->bytes);
        demand(x->ndim == 0 || memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) == 0);
        demand(memcmp(a_data + x->offset, b_data + y->offset, (size_t)x->bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    muonium_reader *reader;
    muonium_status status = muonium_reader_open_memory(data, size, &reader);
    if (status != MUONIUM_OK) {
        demand(status == MUONIUM_FORMAT && muonium_last_error()[0] != '\0');
        return 0;
    }
    buffer again = {0};
    check_structure(reader, size);
    write_again(reader, data, &again);
    muonium_reader *second;
    demand(muonium_reader_open_memory(again.bytes, again.count, &second) == MUONIUM_OK);
    check_structure(second, again.count);
    check_equal(reader, second, data, again.bytes);
    muonium_reader_close(second);
    muonium_reader_close(reader);
    free(again.bytes);
    return 0;
}
