/*
 * writer.c: writes safetensors files to a path or a callback. Descriptions of
 * tensors become JSON as they are added. When writing begins, the header is
 * assembled and parsed by the parser of the reader: this finds repeated names,
 * and proves that the reader accepts the header. Data is then counted against it.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/file.h"
#include "checkpoint/header.h"
#include "checkpoint/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DATA_ALIGNMENT 64u /* of the first byte of data in the file */

/* SINKING: the `write` of the caller is running. It must not use the writer. */
typedef enum stage { DESCRIBING, STREAMING, SINKING, PREPARED, FINISHED, FAILED } stage;

struct muonium_writer {
    stage stage;
    mu_text metadata; /* "key":"value", ... */
    mu_text tensors;  /* "name":{...}, ... */
    char *seal;       /* key of the seal, NULL without one */
    uint64_t data_bytes;
    uint64_t written;
    mu_header header;                                             /* from the beginning on */
    bool (*write)(void *context, const void *data, size_t bytes); /* NULL: to `file` */
    void *context;
    mu_atomic_file file;
};

muonium_status muonium_writer_create(muonium_writer **writer)
{
    if (writer == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_writer_create: writer is NULL");
    }
    muonium_writer *created = mu_alloc_zeroed(sizeof *created);
    if (created == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a writer");
    }
    *writer = created;
    return MUONIUM_OK;
}

/* ---- describing ---- */

static muonium_status check_stage(const muonium_writer *writer, stage wanted, const char *call)
{
    static const char *const states[] = {
        [DESCRIBING] = "has not begun",
        [STREAMING] = "has begun",
        [SINKING] = "is in its callback `write`",
        [PREPARED] = "is prepared to finish",
        [FINISHED] = "is finished",
        [FAILED] = "has failed",
    };
    if (writer == NULL) {
        return mu_fail(MUONIUM_INVALID, "%s: writer is NULL", call);
    }
    if (writer->stage != wanted) {
        return mu_fail(MUONIUM_INVALID, "%s: the writing %s", call, states[writer->stage]);
    }
    return MUONIUM_OK;
}

static muonium_status no_memory(void)
{
    return mu_fail(MUONIUM_NO_MEMORY, "no memory for the header of a safetensors file");
}

/* Most bytes that a string takes in JSON: quotes, and every byte as \u00xx. */
static size_t quoted_limit(const char *string)
{
    return 6 * strlen(string) + 2;
}

static void add_quoted(mu_text *text, const char *string)
{
    static const char hexadecimal[] = "0123456789abcdef";
    mu_text_add(text, "\"", 1);
    for (; *string != '\0'; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '"' || c == '\\') {
            mu_text_add(text, "\\", 1);
        }
        if (c < 0x20) {
            char escape[6] = {'\\', 'u', '0', '0', hexadecimal[c >> 4], hexadecimal[c & 15]};
            mu_text_add(text, escape, sizeof escape);
        } else {
            mu_text_add(text, string, 1);
        }
    }
    mu_text_add(text, "\"", 1);
}

static muonium_status check_string(const char *call, const char *what, const char *string)
{
    if (string == NULL) {
        return mu_fail(MUONIUM_INVALID, "%s: %s is NULL", call, what);
    }
    /* No string may be longer than the header may be. Then no sum of limits
     * overflows. */
    if (strlen(string) > MU_HEADER_LIMIT) {
        return mu_fail(MUONIUM_INVALID, "%s: %s has %zu bytes, more than a header may have", call,
                       what, strlen(string));
    }
    if (!mu_utf8_valid(string)) {
        mu_quoted quoted = mu_quote(string);
        return mu_fail(MUONIUM_INVALID, "%s: %s %s is not UTF-8", call, what, quoted.text);
    }
    return MUONIUM_OK;
}

muonium_status muonium_writer_add_metadata(muonium_writer *writer, const char *key,
                                           const char *value)
{
    static const char call[] = "muonium_writer_add_metadata";
    muonium_status status = check_stage(writer, DESCRIBING, call);
    if (status == MUONIUM_OK) {
        status = check_string(call, "key", key);
    }
    if (status == MUONIUM_OK) {
        status = check_string(call, "value", value);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_text *text = &writer->metadata;
    if (!mu_text_reserve(text, quoted_limit(key) + quoted_limit(value) + 2)) {
        return no_memory();
    }
    if (text->count > 0) {
        mu_text_add(text, ",", 1);
    }
    add_quoted(text, key);
    mu_text_add(text, ":", 1);
    add_quoted(text, value);
    return MUONIUM_OK;
}

static void add_tensor(mu_text *text, const char *name, const char *dtype, size_t ndim,
                       const uint64_t *shape, const uint64_t range[2])
{
    if (text->count > 0) {
        mu_text_add(text, ",", 1);
    }
    add_quoted(text, name);
    mu_text_add_string(text, ":{\"dtype\":");
    add_quoted(text, dtype);
    mu_text_add_string(text, ",\"shape\":[");
    for (size_t i = 0; i < ndim; i++) {
        mu_text_add(text, ",", i > 0 ? 1 : 0);
        mu_text_add_integer(text, shape[i]);
    }
    mu_text_add_string(text, "],\"data_offsets\":[");
    mu_text_add_integer(text, range[0]);
    mu_text_add(text, ",", 1);
    mu_text_add_integer(text, range[1]);
    mu_text_add_string(text, "]}");
}

muonium_status muonium_writer_add(muonium_writer *writer, const char *name, const char *dtype,
                                  size_t ndim, const uint64_t *shape)
{
    static const char call[] = "muonium_writer_add";
    muonium_status status = check_stage(writer, DESCRIBING, call);
    if (status == MUONIUM_OK) {
        status = check_string(call, "name", name);
    }
    if (status == MUONIUM_OK) {
        status = check_string(call, "dtype", dtype);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_quoted quoted = mu_quote(name);
    if (strcmp(name, "__metadata__") == 0) {
        return mu_fail(MUONIUM_INVALID, "%s: the name %s is reserved by the format", call,
                       quoted.text);
    }
    unsigned bits = mu_dtype_bits(dtype);
    if (bits == 0) {
        mu_quoted unknown = mu_quote(dtype);
        return mu_fail(MUONIUM_INVALID, "%s: tensor %s: unknown dtype %s", call, quoted.text,
                       unknown.text);
    }
    if (ndim > MU_HEADER_LIMIT || (shape == NULL && ndim > 0)) {
        return mu_fail(MUONIUM_INVALID, "%s: tensor %s: shape is %s", call, quoted.text,
                       shape == NULL ? "NULL" : "longer than a header may be");
    }
    uint64_t bytes;
    uint64_t range[2] = {writer->data_bytes, 0};
    if (!mu_tensor_bytes(bits, ndim, shape, &bytes) ||
        bytes > (uint64_t)INT64_MAX - writer->data_bytes) {
        return mu_fail(MUONIUM_INVALID,
                       "%s: tensor %s: its extents of %s overflow or do not fill whole bytes", call,
                       quoted.text, dtype);
    }
    range[1] = writer->data_bytes + bytes;
    /* 100 bytes for punctuation, field names, dtype and offsets; 21 per extent. */
    if (!mu_text_reserve(&writer->tensors,
                         quoted_limit(name) + quoted_limit(dtype) + 21 * ndim + 100)) {
        return no_memory();
    }
    add_tensor(&writer->tensors, name, dtype, ndim, shape, range);
    writer->data_bytes = range[1];
    return MUONIUM_OK;
}

muonium_status mu_writer_seal(muonium_writer *writer, const char *key)
{
    static const char call[] = "mu_writer_seal";
    muonium_status status = check_stage(writer, DESCRIBING, call);
    if (status == MUONIUM_OK) {
        status = check_string(call, "key", key);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    char *copy = mu_alloc(strlen(key) + 1);
    if (copy == NULL) {
        return no_memory();
    }
    memcpy(copy, key, strlen(key) + 1);
    mu_free(writer->seal);
    writer->seal = copy;
    return MUONIUM_OK;
}

/* ---- beginning ---- */

/* The bytes of the file before its data: length, JSON, padding, seal. */
static muonium_status assemble(const muonium_writer *writer, mu_text *front)
{
    size_t seal = writer->seal == NULL ? 0 : quoted_limit(writer->seal) + 16;
    if (!mu_text_reserve(front, MU_HEADER_PREFIX + writer->metadata.count + seal +
                                    writer->tensors.count + 64 + DATA_ALIGNMENT)) {
        return no_memory();
    }
    size_t digits = 0;
    mu_text_add(front, "\0\0\0\0\0\0\0\0{", MU_HEADER_PREFIX + 1);
    if (writer->metadata.count > 0 || writer->seal != NULL) {
        mu_text_add_string(front, "\"__metadata__\":{");
        mu_text_add(front, writer->metadata.bytes, writer->metadata.count);
        if (writer->seal != NULL) {
            mu_text_add(front, ",", writer->metadata.count > 0 ? 1 : 0);
            add_quoted(front, writer->seal);
            mu_text_add_string(front, ":\"");
            digits = front->count;
            mu_text_add_string(front, "00000000\"");
        }
        mu_text_add_string(front, writer->tensors.count > 0 ? "}," : "}");
    }
    mu_text_add(front, writer->tensors.bytes, writer->tensors.count);
    mu_text_add_string(front, "}");
    while (front->count % DATA_ALIGNMENT != 0) {
        mu_text_add(front, " ", 1);
    }
    size_t length = front->count - MU_HEADER_PREFIX;
    if (length > MU_HEADER_LIMIT) {
        return mu_fail(MUONIUM_INVALID,
                       "the header would have %zu bytes, but the format allows %u: use fewer "
                       "tensors or shorter names",
                       length, MU_HEADER_LIMIT);
    }
    for (size_t i = 0; i < MU_HEADER_PREFIX; i++) {
        front->bytes[i] = (char)(unsigned char)((uint64_t)length >> (8 * i) & 0xff);
    }
    if (writer->seal != NULL) {
        char value[9];
        snprintf(value, sizeof value, "%08" PRIx32, mu_crc32c(0, front->bytes, front->count));
        memcpy(front->bytes + digits, value, 8);
    }
    return MUONIUM_OK;
}

static muonium_status parse_copy(const mu_text *front, uint64_t data_bytes, mu_header *header)
{
    header->bytes = front->count - MU_HEADER_PREFIX;
    header->text = mu_alloc(header->bytes);
    if (header->text == NULL) {
        return no_memory();
    }
    memcpy(header->text, front->bytes + MU_HEADER_PREFIX, header->bytes);
    muonium_status status = mu_header_parse(header, data_bytes, "the file to be written");
    /* An error in the header is an error in the arguments. */
    return status == MUONIUM_FORMAT ? MUONIUM_INVALID : status;
}

/* Give bytes to the caller's function. */
static bool sink(muonium_writer *writer, const void *data, size_t bytes)
{
    const char *outer = mu_callback_begin("write");
    writer->stage = SINKING;
    bool taken = writer->write(writer->context, data, bytes);
    writer->stage = STREAMING;
    mu_callback_end(outer);
    return taken;
}

static muonium_status put_bytes(muonium_writer *writer, const void *data, size_t bytes)
{
    muonium_status status = MUONIUM_OK;
    if (writer->write == NULL) {
        status = mu_atomic_write(&writer->file, data, bytes);
        if (status != MUONIUM_OK) {
            mu_atomic_abandon(&writer->file);
        }
    } else if (bytes > 0 && !sink(writer, data, bytes)) {
        status = mu_fail(MUONIUM_IO, "the sink refused %zu bytes", bytes);
    }
    if (status != MUONIUM_OK) {
        writer->stage = FAILED;
    }
    return status;
}

/* Begin to write to the sink of `writer`, or to `path` if it has none. A failure
 * before the first byte leaves the writer unchanged. */
static muonium_status begin(muonium_writer *writer, const char *path)
{
    mu_text front = {0};
    mu_header header = {0};
    muonium_status status = assemble(writer, &front);
    if (status == MUONIUM_OK) {
        status = parse_copy(&front, writer->data_bytes, &header);
    }
    if (status == MUONIUM_OK && path != NULL) {
        status = mu_atomic_open(&writer->file, path);
    }
    if (status == MUONIUM_OK) {
        writer->stage = STREAMING;
        writer->header = header;
        header = (mu_header){0};
        status = put_bytes(writer, front.bytes, front.count);
    }
    mu_header_release(&header);
    mu_text_release(&front);
    return status;
}

muonium_status muonium_writer_begin(muonium_writer *writer, const char *path)
{
    muonium_status status = check_stage(writer, DESCRIBING, "muonium_writer_begin");
    if (status != MUONIUM_OK) {
        return status;
    }
    if (path == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_writer_begin: path is NULL");
    }
    writer->write = NULL;
    return begin(writer, path);
}

muonium_status muonium_writer_begin_sink(muonium_writer *writer,
                                         bool (*write)(void *context, const void *data,
                                                       size_t bytes),
                                         void *context)
{
    muonium_status status = check_stage(writer, DESCRIBING, "muonium_writer_begin_sink");
    if (status != MUONIUM_OK) {
        return status;
    }
    if (write == NULL) {
        return mu_fail(MUONIUM_INVALID, "muonium_writer_begin_sink: write is NULL");
    }
    writer->write = write;
    writer->context = context;
    return begin(writer, NULL);
}

/* ---- streaming ---- */

muonium_status muonium_writer_data(muonium_writer *writer, const void *data, size_t bytes)
{
    static const char call[] = "muonium_writer_data";
    muonium_status status = check_stage(writer, STREAMING, call);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (data == NULL && bytes > 0) {
        return mu_fail(MUONIUM_INVALID, "%s: data is NULL", call);
    }
    uint64_t left = writer->data_bytes - writer->written;
    if (bytes > left) {
        return mu_fail(MUONIUM_INVALID,
                       "%s: %zu bytes, but only %" PRIu64 " of the described %" PRIu64
                       " are left to write",
                       call, bytes, left, writer->data_bytes);
    }
    status = put_bytes(writer, data, bytes);
    if (status == MUONIUM_OK) {
        writer->written += bytes;
    }
    return status;
}

/* The tensor to which the next byte belongs. */
static const muonium_entry *unfinished_entry(const muonium_writer *writer)
{
    const mu_header *header = &writer->header;
    uint64_t position = MU_HEADER_PREFIX + header->bytes + writer->written;
    size_t i = 0;
    while (header->entries[i].offset + header->entries[i].bytes <= position) {
        i++;
    }
    return &header->entries[i];
}

/* Fail, naming `call`, unless all data was written. */
static muonium_status check_complete(const muonium_writer *writer, const char *call)
{
    muonium_status status = check_stage(writer, STREAMING, call);
    if (status == MUONIUM_OK && writer->written < writer->data_bytes) {
        mu_quoted name = mu_quote(unfinished_entry(writer)->name);
        status = mu_fail(MUONIUM_INVALID, "%s: %" PRIu64 " bytes are missing, from tensor %s on",
                         call, writer->data_bytes - writer->written, name.text);
    }
    return status;
}

muonium_status muonium_writer_prepare(muonium_writer *writer)
{
    muonium_status status = check_complete(writer, "muonium_writer_prepare");
    if (status != MUONIUM_OK) {
        return status;
    }
    if (writer->write == NULL) {
        status = mu_atomic_prepare(&writer->file);
    }
    writer->stage = status == MUONIUM_OK ? PREPARED : FAILED;
    return status;
}

muonium_status muonium_writer_finish(muonium_writer *writer)
{
    muonium_status status = MUONIUM_OK;
    if (writer == NULL || writer->stage != PREPARED) {
        status = check_complete(writer, "muonium_writer_finish");
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (writer->write == NULL) {
        status = mu_atomic_commit(&writer->file);
    }
    writer->stage = status == MUONIUM_OK ? FINISHED : FAILED;
    return status;
}

void muonium_writer_destroy(muonium_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->stage == SINKING) {
        check_stage(writer, FAILED, "muonium_writer_destroy"); /* leaves the message */
        return;
    }
    if ((writer->stage == STREAMING || writer->stage == PREPARED) && writer->write == NULL) {
        mu_atomic_abandon(&writer->file);
    }
    mu_text_release(&writer->metadata);
    mu_text_release(&writer->tensors);
    mu_free(writer->seal);
    mu_header_release(&writer->header);
    mu_free(writer);
}
