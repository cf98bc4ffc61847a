/*
 * ffi.h: the part of XLA's foreign function interface that a handler uses, declared from the
 * layout that xla/ffi/api/c_api.h documents, so that the build needs no jaxlib. XLA passes a
 * handler one call frame and takes an error or NULL. tests/compare/xla_layout.c compares every
 * struct and number here with the header of an installed jaxlib.
 */
#ifndef MU_XLA_FFI_H
#define MU_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { MU_XLA_MAJOR = 0, MU_XLA_MINOR = 3 }; /* the version of the interface described here */
enum { MU_XLA_FIRST_MINOR = 1 };             /* the first that JAX had */

enum { MU_XLA_METADATA = 1 };                 /* type of an extension */
enum { MU_XLA_EXECUTE = 3 };                  /* stage of a call */
enum { MU_XLA_BUFFER = 1 };                   /* type of an argument or a result */
enum { MU_XLA_ARRAY = 1, MU_XLA_STRING = 4 }; /* types of attributes */

enum { MU_XLA_F16 = 10, MU_XLA_F32 = 11, MU_XLA_F64 = 12, MU_XLA_BF16 = 16 }; /* element types */

enum { /* codes of errors */
       MU_XLA_INVALID_ARGUMENT = 3,
       MU_XLA_RESOURCE_EXHAUSTED = 8,
       MU_XLA_FAILED_PRECONDITION = 9,
       MU_XLA_INTERNAL = 13
};

typedef struct mu_xla_error mu_xla_error;

typedef struct mu_xla_extension {
    size_t struct_size;
    int type;
    struct mu_xla_extension *next;
} mu_xla_extension;

typedef struct mu_xla_version {
    size_t struct_size;
    mu_xla_extension *extension;
    int major;
    int minor;
} mu_xla_version;

typedef struct mu_xla_error_args {
    size_t struct_size;
    mu_xla_extension *extension;
    const char *message; /* copied */
    int code;
} mu_xla_error_args;

/* XLA's functions, of which a handler here needs the first. */
typedef struct mu_xla_api {
    size_t struct_size;
    mu_xla_extension *extension;
    mu_xla_version version;
    const void *internal;
    mu_xla_error *(*error_create)(mu_xla_error_args *args);
} mu_xla_api;

typedef struct mu_xla_span {
    const char *text; /* not terminated */
    size_t length;
} mu_xla_span;

/* A dense row-major array. */
typedef struct mu_xla_buffer {
    size_t struct_size;
    mu_xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} mu_xla_buffer;

/* The value of an attribute of type array. */
typedef struct mu_xla_array {
    int dtype;
    size_t size;
    void *data;
} mu_xla_array;

/* Arguments, and results likewise. */
typedef struct mu_xla_list {
    size_t struct_size;
    mu_xla_extension *extension;
    int64_t size;
    int *types;
    void **items;
} mu_xla_list;

typedef struct mu_xla_attributes {
    size_t struct_size;
    mu_xla_extension *extension;
    int64_t size;
    int *types;
    mu_xla_span **names;
    void **values;
} mu_xla_attributes;

typedef struct mu_xla_frame {
    size_t struct_size;
    mu_xla_extension *extension;
    const mu_xla_api *api;
    void *context;
    int stage;
    mu_xla_list arguments;
    mu_xla_list results;
    mu_xla_attributes attributes;
    void *future;
} mu_xla_frame;

/* What XLA asks of a handler before it uses it, by an extension of the frame. */
typedef struct mu_xla_metadata {
    size_t struct_size;
    mu_xla_version version;
    uint32_t traits;
    int64_t state_type;
} mu_xla_metadata;

typedef struct mu_xla_metadata_extension {
    mu_xla_extension base;
    mu_xla_metadata *metadata;
} mu_xla_metadata_extension;

#endif
