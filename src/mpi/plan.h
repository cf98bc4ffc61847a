/*
 * plan.h: the parts of parameters, and their owners.
 *
 *     pieces.c  cuts parameters
 *     cost.c    estimates the time of a part
 *     version.c finds the private functions of libmuonium
 *     plan.c    assigns parts to ranks; the public functions of muonium_mpi_plan.h
 *
 * None of it needs MPI.
 */
#ifndef MU_MPI_PLAN_H
#define MU_MPI_PLAN_H

#include "muonium_mpi_plan.h"

#include "private/private.h"

/* Fails unless libmuonium has the version of this library. Public functions that take no object
 * of this library call it first. */
muonium_status mu_check_version(void);

/* How a part lies in its parameter. */
typedef enum mu_cut {
    MU_CUT_WHOLE,   /* all of it */
    MU_CUT_LEADING, /* some indices of dimension 0, under the same layout */
    MU_CUT_BLOCK,   /* one block of rows, which is one matrix */
    MU_CUT_SLICE,   /* elements of a dense AdamW parameter */
    MU_CUT_COLUMNS  /* some columns of one oriented matrix */
} mu_cut;

typedef struct mu_part {
    muonium_mpi_piece piece;
    mu_cut cut;
    size_t elements;
    /* The matrix of which the part is all or some columns; 0 if the part is not of one matrix.
     * Sums over its columns are formed in blocks of `block` columns. */
    size_t rows, cols, block;
    /* Columns of the oriented matrix. For MU_CUT_COLUMNS: the part is number `sibling` of the
     * `siblings` consecutive parts of one matrix. */
    size_t first_col, col_count;
    size_t siblings, sibling;
    uint64_t triangles; /* elements of sums that its owner sends */
} mu_part;

struct muonium_mpi_plan {
    int ranks;
    mu_part *parts; /* ordered by parameter, then by position */
    size_t count;
    muonium_mpi_share *loads; /* one per rank */
    muonium_mpi_plan_info info;
};

/* ---- pieces.c ---- */

/* Cut all parameters by their shapes and layouts. */
muonium_status mu_cut_parameters(const muonium_optimizer *description, mu_part **parts,
                                 size_t *count);

/* A part as a tensor, for the optimizer that holds the parts of one rank. Its data are in the
 * memory of the whole parameter; its gradients are dense f32. Name and strides of the tensor
 * point into the struct or to the parameter. */
typedef struct mu_part_tensor {
    muonium_tensor tensor;
    ptrdiff_t strides[2];
    char name[64];
} mu_part_tensor;

void mu_tensor_of_part(const mu_parameter *p, const mu_part *part, mu_part_tensor *made);

/* Sums of squares are formed by units, which do not depend on the owners of columns: a block of
 * columns of the oriented matrix, or the whole of another part. */
size_t mu_units_of_part(const mu_part *part);

/* ---- cost.c ---- */

/* Estimate the seconds of all parts. */
muonium_status mu_price_parts(const muonium_optimizer *description,
                              const muonium_mpi_plan_options *options, mu_part *parts,
                              size_t count);

/* The cost of cutting an m x n matrix, m <= n, by columns. */
typedef struct mu_split_price {
    double fixed; /* seconds that do not depend on the number of columns */
    size_t grams; /* Gram matrices that are summed per step */
} mu_split_price;

muonium_status mu_price_split(const muonium_group *group, const muonium_mpi_plan_options *options,
                              size_t m, size_t n, mu_split_price *price);

#endif
