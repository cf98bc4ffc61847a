/*
 * tensors.h: what the commands on safetensors files share.
 */
#ifndef CLI_TENSORS_H
#define CLI_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include <muonium.h>

#include "message.h"

/* A short text, by value, so that several fit into one printf. */
typedef struct tensor_text {
    char text[160];
} tensor_text;

/* A name with what may not be shown as '?', cut with dots if it is long. */
tensor_text tensor_name(const char *name);

/* A shape as "3 x 4"; "scalar" without dimensions. */
tensor_text tensor_shape(const muonium_entry *entry);

/* The number of elements. */
size_t tensor_elements(const muonium_entry *entry);

bool tensor_same_shape(const muonium_entry *a, const muonium_entry *b);

/* Whether a tensor can be a parameter, and of which type. */
bool tensor_is_parameter(const muonium_entry *entry, muonium_dtype *dtype);

/* Describe a tensor for an optimizer, without its address; false if it cannot be a
 * parameter. */
bool tensor_describe(const muonium_entry *entry, muonium_tensor *tensor);

/* Add all tensors of a file that can be parameters to a description. Their addresses mean
 * nothing. */
muonium_status tensors_add(const muonium_reader *reader, muonium_optimizer *description);

/* The data of a tensor in memory that the caller frees; NULL, and what went wrong, on
 * failure. The memory is aligned for every type. */
void *tensor_read(const muonium_reader *reader, const muonium_entry *entry, problem *what);

/* Describe a copy of all tensors of a file, and of its metadata but for the key `without`. */
muonium_status tensors_describe(const muonium_reader *reader, const char *without,
                                muonium_writer *writer);

/* Pass the data of one tensor on. */
muonium_status tensor_copy(const muonium_reader *reader, const muonium_entry *entry,
                           muonium_writer *writer);

/* Whether a path ends in .safetensors. */
bool tensors_path(const char *path);

#endif
