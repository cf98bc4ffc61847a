/*
 * incoming.h: state that is being loaded. It is collected in separate memory, converted and
 * checked. When all of it is there, it is copied to the optimizer's arrays, which cannot fail.
 * (Arrays are copied rather than exchanged because callers may hold pointers to them.)
 */
#ifndef MU_INCOMING_H
#define MU_INCOMING_H

#include "checkpoint/state.h"

/* One array, from the file or the caller. */
typedef struct mu_incoming_array mu_incoming_array;
struct mu_incoming_array {
    mu_parameter *parameter;
    mu_state_array array;       /* the array of the optimizer that is overwritten in the end */
    void *values;               /* converted to array.dtype */
    muonium_dtype dtype;        /* of the source */
    double factor;              /* values are multiplied by it; 1: they are not */
    const muonium_entry *entry; /* the source in a file; NULL: `from` */
    uint32_t crc;               /* expected checksum of the entry */
    const void *from;           /* the source in memory; NULL: zeros */
    /* Between int8 and other types. */
    const muonium_entry *scale_entry; /* the scales of an int8 source that becomes another type */
    uint32_t scale_crc;               /* expected checksum of these */
    float *scales;                    /* their values, which mu_incoming_read_scales reads */
    mu_incoming_array *computes;      /* the array of scales that the conversion to int8 computes */
    bool computed;                    /* such an array: it has no source */
};

/* What is loaded for one parameter. */
typedef struct mu_incoming_parameter {
    bool matched; /* its steps and arrays are loaded */
    uint64_t steps;
    bool restart_master; /* the next step copies the parameter to the master copy again */
} mu_incoming_parameter;

struct mu_incoming {
    muonium_optimizer *optimizer;
    mu_incoming_array *arrays;
    size_t count;
    mu_incoming_parameter *parameters; /* one for each of the optimizer's */
};

/* Make room for all arrays of an optimizer. mu_incoming_release must always follow. */
muonium_status mu_incoming_begin(mu_incoming *incoming, muonium_optimizer *optimizer);

/* Add an array of a parameter, given by number. The caller sets its source. */
mu_incoming_array *mu_incoming_add(mu_incoming *incoming, size_t parameter,
                                   const mu_state_array *array, muonium_dtype dtype, double factor);

/* Allocate the values of all arrays. */
muonium_status mu_incoming_allocate(mu_incoming *incoming);

/* Add an array of scales that has no source: the conversion of the int8 array that they belong to,
 * which was added before, computes them. */
void mu_incoming_compute(mu_incoming *incoming, size_t parameter, const mu_state_array *array);

/* Read and check the scales of all int8 sources that become another type. `checksums`: they have
 * some. */
muonium_status mu_incoming_read_scales(mu_incoming *incoming, const muonium_reader *reader,
                                       const char *label, bool checksums);

/* Whether the values need no conversion. */
bool mu_incoming_is_plain(const mu_incoming_array *array);

/* Convert `count` elements, to values[first] and following. To int8: whole blocks. They are those
 * from `source` on of the array in the file, in which parts of it may begin later. */
void mu_incoming_convert(mu_incoming_array *array, size_t first, const void *from, size_t source,
                         size_t count);

/* Whether `count` converted values are accepted; and an error that names the first that is not.
 * `label` names the source. */
bool mu_incoming_is_sound(const mu_incoming_array *array, size_t first, size_t count);
muonium_status mu_incoming_fault(const mu_incoming_array *array, const char *label);

/* incoming_read.c: allocate the values of all arrays, read and check them. */
typedef struct mu_reading {
    const muonium_reader *reader; /* for arrays that have an entry; NULL if none has */
    const char *label;            /* names the source */
    bool checksums;               /* the entries have checksums to verify */
    muonium_progress *progress;   /* may be NULL */
    void *progress_context;
} mu_reading;

muonium_status mu_incoming_read(mu_incoming *incoming, const mu_reading *reading);

/* The factor on the momentum between two conventions. */
double mu_momentum_factor(muonium_momentum_form from, double momentum, muonium_momentum_form to);

/* Copy arrays and steps to the optimizer. */
void mu_incoming_adopt(mu_incoming *incoming);

void mu_incoming_release(mu_incoming *incoming);

#endif
