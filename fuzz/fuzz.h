/*
 * fuzz.h: what the fuzz targets share. A target defines LLVMFuzzerTestOneInput, which must
 * return 0; a demand that is not met ends the program, and so the input is kept.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "muonium.h"

/* Planning 64 steps takes a second under sanitizers on a busy machine, and finds nothing that
 * this many do not. */
enum { FUZZ_STEPS = 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void demand(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Bytes that grow; free the pointer in the end. */
typedef struct buffer {
    uint8_t *bytes;
    size_t count;
} buffer;

/* A sink of the library that appends to a buffer. */
static inline bool append(void *context, const void *data, size_t bytes)
{
    buffer *to = context;
    uint8_t *larger = realloc(to->bytes, to->count + bytes);
    demand(larger != NULL);
    memcpy(larger + to->count, data, bytes);
    to->bytes = larger;
    to->count += bytes;
    return true;
}

/* Write the file that a writer describes to `out`. Its entries are those of a reader of `data`. */
static inline void write_data(muonium_writer *writer, const muonium_reader *reader,
                              const uint8_t *data, buffer *out)
{
    demand(muonium_writer_begin_sink(writer, append, out) == MUONIUM_OK);
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        demand(muonium_writer_data(writer, data + entry->offset, (size_t)entry->bytes) ==
               MUONIUM_OK);
    }
    demand(muonium_writer_finish(writer) == MUONIUM_OK);
    muonium_writer_destroy(writer);
}

/* The rest of an input that is taken from its front. */
typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

/* The next `bytes` bytes into `to`, zeros where the input has ended. */
static inline void take(input *in, void *to, size_t bytes)
{
    size_t count = bytes < in->left ? bytes : in->left;
    memset(to, 0, bytes);
    if (count > 0) {
        memcpy(to, in->at, count);
    }
    in->at += count;
    in->left -= count;
}

/* What is left up to `end`, which is skipped, as a string to be freed; a zero byte ends it
 * too. */
static inline char *take_string(input *in, char end)
{
    size_t length = 0;
    while (length < in->left && in->at[length] != (uint8_t)end && in->at[length] != 0) {
        length++;
    }
    char *text = malloc(length + 1);
    demand(text != NULL);
    take(in, text, length);
    text[length] = '\0';
    if (in->left > 0) {
        in->at++;
        in->left--;
    }
    return text;
}

#endif
