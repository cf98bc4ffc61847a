/*
 * reader.c: reads safetensors files from a path, a callback or memory. The header
 * is read and checked at once; data is read by position on demand. Files are not
 * mapped: if another process truncates a mapped file, access raises a signal,
 * while a read returns an error.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/file.h"
#include "checkpoint/header.h"
#include "checkpoint/text.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct muonium_reader {
    mu_header header;
    muonium_source source;
    int file;            /* -1 unless opened by path; then source.read is unused */
    uint32_t header_crc; /* of length and JSON as they are in the file */
    atomic_uint holders; /* calls in progress that use the reader after a callback */
    mu_quoted label;
};

/* The count may change in a const reader. */
static atomic_uint *holders_of(const muonium_reader *reader)
{
    return &((muonium_reader *)(uintptr_t)reader)->holders;
}

void mu_reader_hold(const muonium_reader *reader)
{
    atomic_fetch_add(holders_of(reader), 1);
}

void mu_reader_release(const muonium_reader *reader)
{
    atomic_fetch_sub(holders_of(reader), 1);
}

static bool read_source(const muonium_reader *reader, uint64_t offset, void *buffer, size_t bytes)
{
    const char *outer = mu_callback_begin("read");
    mu_reader_hold(reader);
    bool read = reader->source.read(reader->source.context, offset, buffer, bytes);
    mu_reader_release(reader);
    mu_callback_end(outer);
    return read;
}

static muonium_status fetch_bytes(const muonium_reader *reader, uint64_t offset, void *buffer,
                                  size_t bytes)
{
    if (reader->file >= 0) {
        return mu_file_read(reader->file, offset, buffer, bytes, reader->label.text);
    }
    if (bytes > 0 && !read_source(reader, offset, buffer, bytes)) {
        return mu_fail(MUONIUM_IO, "%s: cannot read %zu bytes at byte %" PRIu64, reader->label.text,
                       bytes, offset);
    }
    return MUONIUM_OK;
}

static muonium_status read_header(muonium_reader *reader)
{
    const char *label = reader->label.text;
    mu_header *header = &reader->header;
    uint64_t size = reader->source.size;
    unsigned char prefix[MU_HEADER_PREFIX];
    if (size < MU_HEADER_PREFIX) {
        return mu_fail(MUONIUM_FORMAT, "%s: %" PRIu64 " bytes are too few for a safetensors file",
                       label, size);
    }
    muonium_status status = fetch_bytes(reader, 0, prefix, sizeof prefix);
    if (status != MUONIUM_OK) {
        return status;
    }
    uint64_t length = 0;
    for (size_t i = 0; i < MU_HEADER_PREFIX; i++) {
        length |= (uint64_t)prefix[i] << (8 * i);
    }
    if (length > MU_HEADER_LIMIT) {
        return mu_fail(MUONIUM_FORMAT,
                       "%s: a header of %" PRIu64 " bytes, but the format allows %u: "
                       "is it a safetensors file?",
                       label, length, MU_HEADER_LIMIT);
    }
    if (length > size - MU_HEADER_PREFIX) {
        return mu_fail(MUONIUM_FORMAT,
                       "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64
                       ": it was cut short or is no safetensors file",
                       label, length, size);
    }
    header->bytes = (size_t)length;
    header->text = mu_alloc(header->bytes + 1);
    if (header->text == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "%s: no memory for its header of %zu bytes", label,
                       header->bytes);
    }
    status = fetch_bytes(reader, MU_HEADER_PREFIX, header->text, header->bytes);
    if (status != MUONIUM_OK) {
        return status;
    }
    reader->header_crc =
        mu_crc32c(mu_crc32c(0, prefix, sizeof prefix), header->text, header->bytes);
    return mu_header_parse(header, size - MU_HEADER_PREFIX - length, label);
}

/* Takes over `file`, also on failure. */
static muonium_status open_reader(const char *label, int file, const muonium_source *source,
                                  muonium_reader **reader)
{
    muonium_reader *opened = mu_alloc_zeroed(sizeof *opened);
    if (opened == NULL) {
        if (file >= 0) {
            mu_file_close(file);
        }
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a reader of %s", label);
    }
    opened->source = *source;
    opened->file = file;
    snprintf(opened->label.text, sizeof opened->label.text, "%s", label);
    muonium_status status = read_header(opened);
    if (status != MUONIUM_OK) {
        muonium_reader_close(opened);
        return status;
    }
    *reader = opened;
    return MUONIUM_OK;
}

muonium_status muonium_reader_open(const char *path, muonium_reader **reader)
{
    if (path == NULL || reader == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_reader_open: %s is NULL",
                       path == NULL ? "path" : "reader");
    }
    int file;
    muonium_source source = {0};
    muonium_status status = mu_file_open(path, &file, &source.size);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_quoted label = mu_quote(path);
    return open_reader(label.text, file, &source, reader);
}

muonium_status muonium_reader_open_source(const muonium_source *source, muonium_reader **reader)
{
    if (source == NULL || source->read == NULL || reader == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_reader_open_source: %s is NULL",
                       source == NULL         ? "source"
                       : source->read == NULL ? "source->read"
                                              : "reader");
    }
    return open_reader("safetensors source", -1, source, reader);
}

static bool read_memory(void *context, uint64_t offset, void *buffer, size_t bytes)
{
    memcpy(buffer, (const char *)context + offset, bytes);
    return true;
}

muonium_status muonium_reader_open_memory(const void *data, size_t bytes, muonium_reader **reader)
{
    if ((data == NULL && bytes > 0) || reader == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_reader_open_memory: %s is NULL",
                       reader == NULL ? "reader" : "data");
    }
    /* The context is not const since other sources have state; ours only reads. */
    union {
        const void *in;
        void *out;
    } memory = {.in = data};
    muonium_source source = {.read = read_memory, .context = memory.out, .size = bytes};
    return open_reader("safetensors memory", -1, &source, reader);
}

void muonium_reader_close(muonium_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (atomic_load(&reader->holders) > 0) {
        mu_fail(MUONIUM_INVALID,
                "muonium_reader_close: a call that uses the reader is in progress");
        return;
    }
    if (reader->file >= 0) {
        mu_file_close(reader->file);
    }
    mu_header_release(&reader->header);
    mu_free(reader);
}

bool mu_reader_is_concurrent(const muonium_reader *reader)
{
    return reader->file >= 0 || reader->source.read == read_memory;
}

void mu_reader_expect(const muonium_reader *reader, uint64_t offset, size_t bytes)
{
    if (reader->file >= 0 && offset < reader->source.size) {
        mu_file_expect(reader->file, offset, bytes);
    }
}

const char *mu_reader_label(const muonium_reader *reader)
{
    return reader->label.text;
}

size_t muonium_reader_count(const muonium_reader *reader)
{
    return reader == NULL ? 0 : reader->header.count;
}

const muonium_entry *muonium_reader_entry(const muonium_reader *reader, size_t index)
{
    return index < muonium_reader_count(reader) ? &reader->header.entries[index] : NULL;
}

const muonium_entry *muonium_reader_find(const muonium_reader *reader, const char *name)
{
    return reader == NULL || name == NULL ? NULL : mu_header_find(&reader->header, name);
}

size_t muonium_reader_metadata_count(const muonium_reader *reader)
{
    return reader == NULL ? 0 : reader->header.metadata_count;
}

const char *muonium_reader_metadata_key(const muonium_reader *reader, size_t index,
                                        const char **value)
{
    if (index >= muonium_reader_metadata_count(reader)) {
        return NULL;
    }
    if (value != NULL) {
        *value = reader->header.metadata[index].value;
    }
    return reader->header.metadata[index].key;
}

const char *muonium_reader_metadata(const muonium_reader *reader, const char *key)
{
    const mu_pair *pair = NULL;
    if (reader != NULL && key != NULL) {
        pair = mu_header_find_metadata(&reader->header, key);
    }
    return pair == NULL ? NULL : pair->value;
}

muonium_status muonium_reader_read(const muonium_reader *reader, const muonium_entry *entry,
                                   uint64_t first, void *buffer, size_t bytes)
{
    if (reader == NULL || entry == NULL || (buffer == NULL && bytes > 0)) {
        return mu_fail(MUONIUM_INVALID, "muonium_reader_read: %s is NULL",
                       reader == NULL  ? "reader"
                       : entry == NULL ? "entry"
                                       : "buffer");
    }
    if (entry->offset > reader->source.size || entry->bytes > reader->source.size - entry->offset) {
        return mu_fail(MUONIUM_INVALID, "%s: the entry is of another reader", reader->label.text);
    }
    if (first > entry->bytes || bytes > entry->bytes - first) {
        mu_quoted name = mu_quote(entry->name);
        return mu_fail(MUONIUM_INVALID,
                       "%s: tensor %s: bytes %" PRIu64 " to %" PRIu64 " of its %" PRIu64
                       " were asked for",
                       reader->label.text, name.text, first, first + bytes, entry->bytes);
    }
    return fetch_bytes(reader, entry->offset + first, buffer, bytes);
}

/* The change of the checksum of a header when `digits` at `position` of its JSON
 * become zeros. A CRC without inversions is linear, so this is the CRC of the
 * difference, followed by as many zero bytes as bytes follow the digits. (The
 * text cannot be used any more: parsing has changed it.) */
static uint32_t effect_of_digits(const char digits[8], size_t position, size_t header_bytes)
{
    char difference[8];
    for (size_t i = 0; i < sizeof difference; i++) {
        difference[i] = (char)(digits[i] ^ '0');
    }
    uint32_t crc = ~mu_crc32c(0xffffffffu, difference, sizeof difference);
    return mu_crc32c_join(crc, 0, header_bytes - position - sizeof difference);
}

muonium_status mu_reader_check_seal(const muonium_reader *reader, const char *key)
{
    const mu_header *header = &reader->header;
    const char *seal = muonium_reader_metadata(reader, key);
    mu_quoted quoted = mu_quote(key);
    if (seal == NULL || strlen(seal) != 8) {
        return mu_fail(MUONIUM_FORMAT, "%s: __metadata__ key %s: %s", reader->label.text,
                       quoted.text,
                       seal == NULL ? "the checksum of the header is missing"
                                    : "the checksum of the header has not 8 digits");
    }
    uint32_t crc =
        reader->header_crc ^ effect_of_digits(seal, (size_t)(seal - header->text), header->bytes);
    char expected[9];
    snprintf(expected, sizeof expected, "%08" PRIx32, crc);
    if (strcmp(seal, expected) != 0) {
        mu_quoted found = mu_quote(seal);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: __metadata__ key %s: the header has checksum %s but should have %s: "
                       "the file is damaged",
                       reader->label.text, quoted.text, expected, found.text);
    }
    return MUONIUM_OK;
}
