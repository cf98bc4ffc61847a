/*
 * plan.h: pieces of parameters, and who owns them.
 *
 *     pieces.c  cutting parameters
 *     cost.c    what a piece takes
 *     plan.c    packing, and the public functions of muonium_mpi_plan.h
 *
 * None of it needs MPI.
 */
#ifndef MU_MPI_PLAN_H
#define MU_MPI_PLAN_H

#include "muonium_mpi_plan.h"

#include "optimizer/optimizer.h"

/* How a piece lies in its parameter. */
typedef enum mu_cut {
    MU_CUT_WHOLE,   /* all of it */
    MU_CUT_LEADING, /* some indices of dimension 0, whose layout stays */
    MU_CUT_BLOCK,   /* one block of rows, which is one matrix */
    MU_CUT_SLICE,   /* elements of a dense AdamW parameter */
    MU_CUT_COLUMNS  /* some columns of one oriented matrix */
} mu_cut;

typedef struct mu_part {
    muonium_mpi_piece piece;
    mu_cut cut;
    size_t elements;
    /* A piece that is exactly one matrix, of rows by cols, or some columns of it; 0 if it is
     * not. Sums over its columns are formed by blocks of `block`. */
    size_t rows, cols, block;
    /* The columns of the oriented matrix; for MU_CUT_COLUMNS the pieces of that matrix, which
     * are neighbours, of which this is number `turn`. */
    size_t first_col, col_count;
    size_t siblings, turn;
    uint64_t triangles; /* elements of sums that pass through its owner */
} mu_part;

struct muonium_mpi_plan {
    int ranks;
    mu_part *parts; /* by parameter, then by place in it */
    size_t count;
    muonium_mpi_share *loads; /* one per rank */
    muonium_mpi_plan_info info;
};

/* ---- pieces.c ---- */

/* Cut all parameters as the shapes say. */
muonium_status mu_cut_parameters(const muonium_optimizer *description, mu_part **parts,
                                 size_t *count);

/* The tensor that a part is, for an optimizer that holds the parts of one rank: the type,
 * shape, layout and strides of it, its data where the whole parameter's are, and dense f32
 * gradients. The tensor's name and strides point into the struct, or to the parameter's. */
typedef struct mu_part_tensor {
    muonium_tensor tensor;
    ptrdiff_t strides[2];
    char name[64];
} mu_part_tensor;

void mu_tensor_of_part(const mu_parameter *p, const mu_part *part, mu_part_tensor *made);

/* Sums of squares are formed by units, which do not depend on who has which columns: blocks
 * of columns of the oriented matrix, or all of another part. */
size_t mu_units_of_part(const mu_part *part);

/* ---- cost.c ---- */

/* Seconds that all parts take. */
muonium_status mu_price_parts(const muonium_optimizer *description,
                              const muonium_mpi_plan_options *options, mu_part *parts,
                              size_t count);

/* What cutting an m x n matrix, m <= n, by columns would mean. */
typedef struct mu_split_price {
    double fixed; /* seconds that do not shrink with the columns */
    size_t grams; /* Gram matrices that are summed per step */
} mu_split_price;

muonium_status mu_price_split(const muonium_group *group, const muonium_mpi_plan_options *options,
                              size_t m, size_t n, mu_split_price *price);

#endif
