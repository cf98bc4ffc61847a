/*
 * tensors.c: names, shapes and data of tensors in safetensors files.
 */
#include "tensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

tensor_text tensor_name(const char *name)
{
    tensor_text result;
    size_t used = 0;
    while (*name != 0) {
        const char *start = name;
        uint32_t code = text_next(&name);
        size_t length = (size_t)(name - start);
        if (used + length + sizeof "..." > sizeof result.text) {
            memcpy(result.text + used, "...", sizeof "...");
            return result;
        }
        if (text_is_shown(code)) {
            memcpy(result.text + used, start, length);
            used += length;
        } else {
            result.text[used++] = '?';
        }
    }
    result.text[used] = 0;
    return result;
}

tensor_text tensor_shape(const muonium_entry *entry)
{
    tensor_text result = {"scalar"};
    size_t used = 0;
    for (size_t d = 0; d < entry->ndim; d++) {
        if (used + 32 > sizeof result.text) {
            memcpy(result.text + used, "...", sizeof "...");
            break;
        }
        used += (size_t)snprintf(result.text + used, sizeof result.text - used, "%s%llu",
                                 d > 0 ? " x " : "", (unsigned long long)entry->shape[d]);
    }
    return result;
}

size_t tensor_elements(const muonium_entry *entry)
{
    return (size_t)(entry->bytes * 8 / entry->bits);
}

bool tensor_same_shape(const muonium_entry *a, const muonium_entry *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0);
}

bool tensor_is_parameter(const muonium_entry *entry, muonium_dtype *dtype)
{
    return muonium_dtype_named(entry->dtype, dtype) && *dtype != MUONIUM_F64 && entry->bytes > 0;
}

bool tensor_describe(const muonium_entry *entry, muonium_tensor *tensor)
{
    *tensor = (muonium_tensor){.name = entry->name, .ndim = entry->ndim};
    if (!tensor_is_parameter(entry, &tensor->dtype) || entry->ndim > MUONIUM_MAX_DIMS) {
        return false;
    }
    for (size_t d = 0; d < entry->ndim; d++) {
        tensor->shape[d] = (size_t)entry->shape[d];
    }
    return true;
}

muonium_status tensors_add(const muonium_reader *reader, muonium_optimizer *description)
{
    uintptr_t next = 1 << 16; /* where the next tensor pretends to lie: never read */
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        muonium_tensor tensor;
        if (tensor_describe(entry, &tensor)) {
            tensor.data = (void *)next;
            next += (uintptr_t)((entry->bytes + 63) / 64 * 64);
            status = muonium_add(description, &tensor, NULL);
        }
    }
    return status;
}

void *tensor_read(const muonium_reader *reader, const muonium_entry *entry, problem *what)
{
    void *data = entry->bytes < SIZE_MAX ? malloc((size_t)entry->bytes + 1) : NULL;
    if (data == NULL) {
        tensor_text name = tensor_name(entry->name);
        problem_set(what, "no memory for the %llu bytes of tensor '%s'",
                    (unsigned long long)entry->bytes, name.text);
        return NULL;
    }
    if (muonium_reader_read(reader, entry, 0, data, (size_t)entry->bytes) != MUONIUM_OK) {
        problem_set(what, "%s", muonium_last_error());
        free(data);
        return NULL;
    }
    return data;
}

muonium_status tensors_describe(const muonium_reader *reader, const char *without,
                                muonium_writer *writer)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < muonium_reader_metadata_count(reader); i++) {
        const char *value;
        const char *key = muonium_reader_metadata_key(reader, i, &value);
        if (strcmp(key, without) != 0) {
            status = muonium_writer_add_metadata(writer, key, value);
        }
    }
    for (size_t i = 0; status == MUONIUM_OK && i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        status = muonium_writer_add(writer, entry->name, entry->dtype, entry->ndim, entry->shape);
    }
    return status;
}

muonium_status tensor_copy(const muonium_reader *reader, const muonium_entry *entry,
                           muonium_writer *writer)
{
    static unsigned char buffer[1 << 20];
    muonium_status status = MUONIUM_OK;
    for (uint64_t done = 0; status == MUONIUM_OK && done < entry->bytes;) {
        uint64_t left = entry->bytes - done;
        size_t piece = left < sizeof buffer ? (size_t)left : sizeof buffer;
        status = muonium_reader_read(reader, entry, done, buffer, piece);
        if (status == MUONIUM_OK) {
            status = muonium_writer_data(writer, buffer, piece);
        }
        done += piece;
    }
    return status;
}

bool tensors_path(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcmp(dot, ".safetensors") == 0;
}
