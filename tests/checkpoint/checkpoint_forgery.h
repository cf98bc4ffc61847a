/*
 * checkpoint_forgery.h: states changed by hand, with checksums that are right.
 */
#ifndef MUONIUM_CHECKPOINT_FORGERY_H
#define MUONIUM_CHECKPOINT_FORGERY_H

#include "checkpoint_model.h"

#include "checkpoint/crc32c.h"
#include "checkpoint/safetensors.h"

/* A copy of a state with one metadata value replaced, or left out if it is NULL, and with
 * one tensor changed. */
typedef struct forgery {
    const char *key, *value;
    const char *tensor;
    bool left_out;     /* the tensor goes, with its checksum */
    float element;     /* its element 1 */
    const char *dtype; /* its type, and no element is changed; NULL: as it was */
    size_t ndim;       /* its shape, and its data are zeros; 0: as it was */
    const uint64_t *shape;
    bool foreign; /* without any metadata */
} forgery;

static inline bool is_checksum(const char *key)
{
    return strncmp(key, "muonium.crc32c.", 15) == 0 || strcmp(key, "muonium.header_crc32c") == 0;
}

static inline bytes forge(const bytes *saved, forgery f)
{
    muonium_reader *reader;
    muonium_writer *writer;
    bytes made = {0}, data = {0};
    const char *key, *value;
    assert_ok(muonium_reader_open_memory(saved->data, saved->count, &reader));
    assert_ok(muonium_writer_create(&writer));
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        bool replaced = f.key != NULL && strcmp(key, f.key) == 0;
        if (!f.foreign && !(replaced && f.value == NULL) && !is_checksum(key)) {
            assert_ok(muonium_writer_add_metadata(writer, key, replaced ? f.value : value));
        }
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        bool chosen = f.tensor != NULL && strcmp(entry->name, f.tensor) == 0;
        bool reshaped = chosen && f.ndim > 0;
        size_t at = data.count;
        if (chosen && f.left_out) {
            continue;
        }
        const char *dtype = chosen && f.dtype ? f.dtype : entry->dtype;
        assert_ok(muonium_writer_add(writer, entry->name, dtype, reshaped ? f.ndim : entry->ndim,
                                     reshaped ? f.shape : entry->shape));
        if (reshaped) {
            static const char zeros[4096];
            uint64_t count;
            assert_true(mu_tensor_bytes(mu_dtype_bits(dtype), f.ndim, f.shape, &count));
            assert_true(count <= sizeof zeros);
            assert_true(count == 0 || bytes_append(&data, zeros, (size_t)count));
        } else {
            assert_true(entry->bytes == 0 ||
                        bytes_append(&data, saved->data + entry->offset, (size_t)entry->bytes));
        }
        if (chosen && f.dtype == NULL && !reshaped) {
            memcpy(data.data + at + 4, &f.element, 4);
        }
        char name[128], digits[9];
        snprintf(name, sizeof name, "muonium.crc32c.%s", entry->name);
        snprintf(digits, sizeof digits, "%08x",
                 (unsigned)(data.count == at ? 0 : mu_crc32c(0, data.data + at, data.count - at)));
        bool replaced = f.key != NULL && strcmp(name, f.key) == 0;
        if (!f.foreign && !(replaced && f.value == NULL)) {
            assert_ok(muonium_writer_add_metadata(writer, name, replaced ? f.value : digits));
        }
    }
    if (!f.foreign) {
        assert_ok(mu_writer_seal(writer, "muonium.header_crc32c"));
    }
    assert_ok(muonium_writer_begin_sink(writer, bytes_append, &made));
    assert_ok(muonium_writer_data(writer, data.data, data.count));
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    muonium_reader_close(reader);
    bytes_free(&data);
    return made;
}

#endif
