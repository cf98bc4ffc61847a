/*
 * npy.h: arrays in the .npy format, versions 1.0, 2.0 and 3.0, of little-endian
 * half, single and double floats in either order of storage.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stdbool.h>
#include <stddef.h>

#include <muonium.h>

#include "message.h"

enum { NPY_MAX_DIMS = 64, NPY_HEADER_ROOM = 2048 };

typedef struct npy_array {
    muonium_dtype dtype; /* MUONIUM_F16, MUONIUM_F32 or MUONIUM_F64 */
    bool fortran_order;  /* the first index varies fastest, not the last */
    size_t dims;
    size_t shape[NPY_MAX_DIMS];
    size_t count;       /* elements: the product of the shape, 1 without dimensions */
    size_t data_offset; /* where the data starts in the file */
} npy_array;

/* Understand the `size` bytes of a file. Never reads beyond them, allocates
 * nothing, and succeeds only if the data after the header has exactly the size
 * that the header promises. On failure says what is wrong and what to do. */
bool npy_parse(const unsigned char *bytes, size_t size, npy_array *array, problem *what);

/* Write the header, version 1.0, of dtype, fortran_order, dims and shape, and
 * return its length, a multiple of 64. */
size_t npy_format_header(const npy_array *array, unsigned char header[NPY_HEADER_ROOM]);

/* "float16", "float32" or "float64". */
const char *npy_dtype_name(muonium_dtype dtype);

/* The shape as Python writes it, "(3, 4)", into `text`, shortened if need be. */
void npy_format_shape(const npy_array *array, char *text, size_t size);

#endif
