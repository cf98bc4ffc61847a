/*
 * plan.h: what a plan holds, and what this room offers to the rooms above it. run.h has what its
 * parts offer each other.
 *
 * A matrix is oriented: it has m rows and n columns with m <= n. A tall one is handled as its
 * transpose, by exchanging its strides.
 */
#ifndef MU_PLAN_H
#define MU_PLAN_H

#include "coefficients/direct.h"
#include "orthogonalize/survey.h"

enum { MU_ROWS_PER_TASK = 16 }; /* of a pass over a matrix that workers share */

typedef struct mu_kernel mu_kernel;
typedef struct mu_int8_kernel mu_int8_kernel;
typedef struct mu_run mu_run;
typedef struct mu_form mu_form;
typedef struct mu_normalization mu_normalization;

/* What products compute in: a row of the table in precision.c. */
typedef struct mu_precision {
    muonium_dtype real; /* type of X and R: f32 or f64 */
    muonium_dtype type; /* what intermediates are rounded to */
    bool half;          /* that is a half type */
    int digits;         /* of fixed-point products, see fixed.h; 0: none */
    double unit;        /* relative error of rounding */
} mu_precision;

/* The row for a value of the enum; NULL: unknown. That of MUONIUM_AUTO is what
 * f32 and fixed23 have in common. */
const mu_precision *mu_precision_of(muonium_dtype id);

/* Columns of the blocks by which sums over k columns are formed at a precision: the Gram matrices
 * of such blocks, added in order, are bit for bit that of the whole. */
muonium_status mu_block_of_precision(muonium_dtype precision, size_t k, size_t *block);

/* What the standard form rounds to a half type besides the normalised X, R, b R + c R^2 and the
 * new X: a row of the table in plan.c. In f32 and f64 nothing is rounded. */
typedef struct mu_rounding {
    bool input;   /* X before its norm is taken */
    bool divisor; /* the norm, and each number between it and the divisor */
    bool factor;  /* c R, which is then multiplied by R */
    bool square;  /* R^2, or with `factor` (c R) R */
    bool scaled;  /* c R^2; only with `square` */
    bool linear;  /* b R; only with `square` */
    bool sum;     /* a X and Z X */
} mu_rounding;

struct muonium_plan {
    muonium_shape shape;
    muonium_plan_options options; /* its pointers are not used after creation */
    double table[MUONIUM_MAX_STEPS][3];
    double edge[MUONIUM_MAX_STEPS]; /* stable edge of the iterations from this one on */
    double limit; /* longest possible row of the result; a longer one has diverged */
    bool careful; /* find the largest singular value before each iteration */
    bool restart[MUONIUM_MAX_STEPS]; /* Gram form: compute R again before this iteration */
    const mu_normalization *normalization;
    const mu_form *form;
    const mu_direct_set *direct; /* set of the direct form; NULL: another form */
    const mu_kernel *kernel;     /* f32 or f64: the type of X and R */
    const mu_kernel *multiplier; /* for products of the iterations: the same, or bf16 */
    const mu_int8_kernel *int8;  /* for fixed-point products; NULL: there are none */
    const mu_precision *precision;
    const mu_rows *rows; /* row operations of the kernel's type */
    const mu_rows *wide; /* row operations of f64, for values beyond f32 */
    bool tall;
    bool half; /* the precision is a half type: round to it */
    mu_rounding round;
    bool in_place; /* X stays in the caller's matrix, which is also the result */
    size_t m, n;
    size_t ldx, ldr;   /* row strides of our own m x n and m x m matrices */
    int squares;       /* m x m matrices in the workspace */
    unsigned team;     /* workers that share one matrix */
    unsigned workers;  /* workers with a matrix each; 1: the team handles one after the other */
    size_t team_bytes; /* workspace of the team, and of one worker */
    size_t worker_bytes;
    size_t workspace_bytes;
};

/* A matrix in memory, oriented. Strides are in elements. */
typedef struct mu_oriented {
    char *data;
    muonium_dtype dtype;
    ptrdiff_t row_stride, col_stride;
} mu_oriented;

/* The block of rows x cols elements at (row, col). */
static inline mu_block mu_block_at(const mu_oriented *matrix, size_t row, size_t col, size_t rows,
                                   size_t cols)
{
    ptrdiff_t at = (ptrdiff_t)row * matrix->row_stride + (ptrdiff_t)col * matrix->col_stride;
    mu_block block = {matrix->data + at * (ptrdiff_t)muonium_dtype_size(matrix->dtype),
                      matrix->dtype,
                      matrix->row_stride,
                      matrix->col_stride,
                      rows,
                      cols};
    return block;
}

/* forms.c: fail, with the reason, if normalisation, coefficients and form do not go together, or
 * if one of them is unknown. */
muonium_status mu_check_methods(const muonium_plan_options *options);

/* forms.c: set precision, half, form, direct and restart, from options, table, m and n. If
 * options.precision is MUONIUM_AUTO, it becomes the one that takes less time on the instruction
 * set. The options have passed mu_check_methods. */
void mu_choose_form(muonium_plan *plan, const char *instruction_set);

/* forms.c: floating-point operations of the plan; each triangle counts once. */
double mu_plan_flops(const muonium_plan *plan);

/* restarts.c: choose the iterations before which the Gram form must compute R again, so that
 * rounding with relative error `unit` does no more harm than in the standard form. */
void mu_choose_restarts(const double (*table)[3], int steps, double unit, bool *restart);

/* plan.c: the plan that muonium_plan_create would make on another instruction set, with the kernels
 * of this one. NULL: on this one. */
muonium_status mu_plan_create_for(const char *instruction_set, muonium_shape shape,
                                  const muonium_plan_options *options, muonium_plan **plan);

/* plan.c: rows and columns of the blocks into which several workers divide an m x m product. */
size_t mu_plan_shared_block(size_t m);

/* plan.c: the same plan in its safest form, for a matrix on which it has diverged: full
 * precision, standard form, singular values of at most 1 to begin with, and careful. Its
 * result is finite and bounded for every matrix. */
muonium_plan mu_careful_plan(const muonium_plan *plan);

/* plan.c: turn a plan for one matrix into one for `columns` of its columns. Only sizes in memory
 * change: form, coefficients and restarts stay those of the whole matrix. */
muonium_status mu_plan_narrow(muonium_plan *plan, size_t columns);

/* plan.c: turn a plan into one for mu_plan_run alone whose matrices are dense and f32. X then
 * stays in them, and the workspace has no room for it; a plan in f64 still copies X. */
muonium_status mu_plan_keep_in_place(muonium_plan *plan);

/* plan.c: turn a plan into one for up to `batch` matrices and for up to `team` workers, in place of
 * all of the pool. Only sizes in memory change. */
muonium_status mu_plan_for_team(muonium_plan *plan, size_t batch, unsigned team);

/* execute.c: orthogonalise `count` <= shape.batch surveyed matrices in place. The caller has
 * oriented them; each may have the rows and columns of the plan's shape or exchanged. Neither
 * fails nor allocates. Matrices that are not finite are left alone or filled, by
 * options.nonfinite. A matrix on which the iteration diverged gets the outcome MUONIUM_DIVERGED
 * and is zero: fill it again and call mu_plan_run_carefully. */
void mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                 const mu_survey *surveys, void *workspace, muonium_certificate *certificates);

/* The same for one matrix whose columns may be spread over several processes. */
void mu_plan_run_across(const muonium_plan *plan, const mu_oriented *matrix,
                        const mu_survey *survey, const mu_across *across, void *workspace,
                        muonium_certificate *certificate);

/* The same with mu_careful_plan; `across` may be NULL. */
void mu_plan_run_carefully(const muonium_plan *plan, const mu_oriented *matrix,
                           const mu_survey *survey, const mu_across *across, void *workspace,
                           muonium_certificate *certificate);

#endif
