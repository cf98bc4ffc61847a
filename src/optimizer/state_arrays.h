/*
 * state_arrays.h: the arrays that make up the state of a parameter.
 *
 * state_arrays.c has a table with one entry per array. Allocation, reports, checkpoints and
 * libmuonium_mpi read the table; none of them lists the arrays itself. To add an array: a
 * mu_state_kind, its entry, its pointer in muonium_state, and the step that uses it.
 */
#ifndef MU_STATE_ARRAYS_H
#define MU_STATE_ARRAYS_H

#include "base/base.h"

typedef struct mu_parameter mu_parameter;

typedef enum mu_state_kind {
    MU_STATE_MOMENTUM,
    MU_STATE_EXP_AVG,
    MU_STATE_EXP_AVG_SQ,
    MU_STATE_NORMUON,
    MU_STATE_MASTER,
    MU_STATE_ADAMUON,
    MU_STATE_RADIUS,
    MU_STATE_MOMENTUM_SCALE,
    MU_STATE_EXP_AVG_SCALE,
    MU_STATE_KINDS
} mu_state_kind;

/* An entry of the table. Flags that are left out are false. */
typedef struct mu_state_spec {
    const char *name;                            /* the tensor PARAMETER.name of a checkpoint */
    bool (*kept)(const mu_parameter *parameter); /* whether the parameter has the array */
    size_t field;                                /* offset of its pointer in muonium_state */
    /* Type and length. */
    muonium_dtype (*dtype)(const muonium_options *options); /* NULL: f32 */
    mu_state_kind scale; /* the array of the scales if the type is int8; MU_STATE_MOMENTUM: none */
    bool halves;         /* bf16 is a possible type */
    bool per_row;        /* an element per row of each matrix; else per element of the parameter */
    bool per_matrix;     /* an element per matrix */
    bool per_block;      /* an element per MUONIUM_STATE_BLOCK elements of the parameter */
    /* Values that are accepted. */
    bool non_negative;
    bool may_overflow; /* infinity too */
    /* Start. */
    bool from_parameter; /* copied from the parameter by its first step; else zeros */
    /* Loading. */
    bool optional;         /* a checkpoint without it fits in a partial load */
    bool unlisted;         /* not in positional lists */
    bool scaled_with_form; /* the factor between momentum conventions applies */
} mu_state_spec;

const mu_state_spec *mu_state_spec_of(mu_state_kind kind);

/* One array of a parameter. */
typedef struct mu_state_array {
    mu_state_kind kind;
    const mu_state_spec *spec;
    void *data; /* NULL in a description */
    muonium_dtype dtype;
    size_t ndim;
    uint64_t shape[MUONIUM_MAX_DIMS];
    size_t elements;
} mu_state_array;

/* The arrays that a parameter keeps, in the order of their kinds; returns how many. */
size_t mu_state_arrays(const mu_parameter *parameter, mu_state_array arrays[MU_STATE_KINDS]);

/* The number of arrays of all parameters. */
size_t mu_count_state_arrays(const muonium_optimizer *optimizer);

/* The number of blocks of MUONIUM_STATE_BLOCK of so many elements. */
static inline size_t mu_state_blocks(size_t elements)
{
    return elements / MUONIUM_STATE_BLOCK + (elements % MUONIUM_STATE_BLOCK != 0);
}

/* The number of elements of an array that a parameter keeps. */
size_t mu_state_length(const mu_parameter *parameter, mu_state_kind kind);

size_t mu_state_bytes(const mu_state_array *array);

/* Whether the array holds values: a copy of the parameter does from the first step on. */
bool mu_state_has_values(const mu_parameter *parameter, const mu_state_array *array);

/* Allocate the arrays of a parameter, and free them. False if there is no memory. */
bool mu_allocate_state(mu_parameter *parameter);
void mu_free_state(mu_parameter *parameter);

#endif
