/*
 * safetensors_sample.h: what the tests of safetensors files share: a buffer that
 * takes what is written, and a small file that has a bit of everything.
 */
#ifndef MUONIUM_SAFETENSORS_SAMPLE_H
#define MUONIUM_SAFETENSORS_SAMPLE_H

#include "test.h"

#include "checkpoint/safetensors.h"

#define SEAL "test.header_crc32c"

/* ---- bytes in memory ---- */

typedef struct buffer {
    unsigned char bytes[65536];
    size_t count;
    size_t limit; /* of bytes accepted; 0: all */
} buffer;

static inline bool append(void *context, const void *data, size_t bytes)
{
    buffer *to = context;
    if (to->count + bytes > (to->limit > 0 ? to->limit : sizeof to->bytes)) {
        return false;
    }
    memcpy(to->bytes + to->count, data, bytes);
    to->count += bytes;
    return true;
}

/* ---- a small file that has a bit of everything ---- */

static const struct {
    const char *name;
    const char *dtype;
    size_t ndim;
    uint64_t shape[3];
    size_t bytes;
} sample[] = {
    {"h.0.weight", "F32", 2, {3, 2}, 24},
    {"empty", "BF16", 3, {2, 0, 7}, 0},
    {"scalar", "F64", 0, {0}, 8},
    {"caf\xc3\xa9 \"\\\x01\n\xf0\x9f\x98\x80", "U8", 1, {3}, 3},
    {"", "BF16", 1, {1}, 2},
    {"packed", "F4", 1, {6}, 3},
    {"end", "I64", 1, {0}, 0},
};

enum { SAMPLES = sizeof sample / sizeof sample[0], SAMPLE_BYTES = 40 };

static inline void describe_sample(muonium_writer *writer, bool seal)
{
    assert_ok(muonium_writer_add_metadata(writer, "format", "pt"));
    assert_ok(muonium_writer_add_metadata(writer, "quo\"te", "\t\xe2\x82\xac"));
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_ok(muonium_writer_add(writer, sample[i].name, sample[i].dtype, sample[i].ndim,
                                     sample[i].shape));
    }
    if (seal) {
        assert_ok(mu_writer_seal(writer, SEAL));
    }
}

static inline unsigned char sample_byte(size_t i)
{
    return (unsigned char)(17 * i + 3);
}

/* Data comes in pieces of `piece` bytes, across tensors. */
static inline void write_sample(buffer *out, bool seal, size_t piece)
{
    muonium_writer *writer;
    unsigned char data[SAMPLE_BYTES];
    out->count = 0;
    for (size_t i = 0; i < SAMPLE_BYTES; i++) {
        data[i] = sample_byte(i);
    }
    assert_ok(muonium_writer_create(&writer));
    describe_sample(writer, seal);
    assert_ok(muonium_writer_begin_sink(writer, append, out));
    for (size_t i = 0; i < SAMPLE_BYTES; i += piece) {
        size_t bytes = SAMPLE_BYTES - i < piece ? SAMPLE_BYTES - i : piece;
        assert_ok(muonium_writer_data(writer, data + i, bytes));
    }
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
}

static inline void check_sample(const muonium_reader *reader)
{
    size_t position = 0;
    const char *value;
    assert_int_equal(muonium_reader_count(reader), SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        assert_string_equal(entry->name, sample[i].name);
        assert_string_equal(entry->dtype, sample[i].dtype);
        assert_int_equal(entry->ndim, sample[i].ndim);
        for (size_t d = 0; d < entry->ndim; d++) {
            assert_int_equal(entry->shape[d], sample[i].shape[d]);
        }
        assert_int_equal(entry->bytes, sample[i].bytes);
        assert_ptr_equal(muonium_reader_find(reader, sample[i].name), entry);
        unsigned char data[SAMPLE_BYTES];
        assert_ok(muonium_reader_read(reader, entry, 0, data, sample[i].bytes));
        for (size_t b = 0; b < sample[i].bytes; b++, position++) {
            assert_int_equal(data[b], sample_byte(position));
        }
    }
    assert_null(muonium_reader_entry(reader, SAMPLES));
    assert_null(muonium_reader_find(reader, "nowhere"));
    assert_string_equal(muonium_reader_metadata(reader, "format"), "pt");
    assert_string_equal(muonium_reader_metadata_key(reader, 1, &value), "quo\"te");
    assert_string_equal(value, "\t\xe2\x82\xac");
    assert_null(muonium_reader_metadata(reader, "nowhere"));
}

#endif
