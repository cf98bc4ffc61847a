/*
 * plan.h: what a plan holds, and what its parts offer each other.
 *
 * A matrix is oriented so that it has m rows and n columns, m <= n; a tall one is
 * treated as its transpose, by strides. The way of one matrix:
 *
 *     survey     largest element, sum of squares, non-finite elements    survey.c
 *     normalize  a divisor that leaves no singular value above 1         normalize.c
 *     run        the polynomial in one of the forms           standard.c, gram.c, direct.c
 *     check      finite and bounded, or once more with care              execute.c
 *     certify    what can be said of the result           certificate.c, spectrum.c
 *     store      into the caller's type and orientation                  execute.c
 */
#ifndef MU_PLAN_H
#define MU_PLAN_H

#include "coefficients/direct.h"
#include "matmul/matmul.h"
#include "orthogonalize/across.h"

enum { MU_MAX_SQUARES = MU_MAX_PRODUCTS + 4 };

typedef struct mu_iteration mu_iteration;

/* What the standard form rounds to a half type besides the normalised X, R, b R + c R^2 and the
 * new X: a row of the table in plan.c. In f32 and f64 nothing is. */
typedef struct mu_rounding {
    bool input;   /* X before its norm is taken */
    bool divisor; /* the norm, and each number that leads from it to the divisor */
    bool factor;  /* c R, which is then multiplied by R */
    bool square;  /* R^2, or with `factor` (c R) R */
    bool scaled;  /* c R^2; only with `square` */
    bool linear;  /* b R; only with `square` */
    bool sum;     /* a X and Z X */
} mu_rounding;

/* One way to evaluate the polynomials: an entry of the list in forms.c. */
typedef struct mu_form {
    muonium_form id;
    const char *name;
    int (*squares)(const muonium_plan *plan); /* m x m matrices that it keeps */
    double (*flops)(const muonium_plan *plan);
    double (*moved)(const muonium_plan *plan); /* elements read and written around products */
    void (*run)(mu_iteration *it);
} mu_form;

extern const mu_form mu_form_standard, mu_form_gram, mu_form_direct;

struct muonium_plan {
    muonium_shape shape;
    muonium_plan_options options; /* its pointers are not used after creation */
    double table[MUONIUM_MAX_STEPS][3];
    double edge[MUONIUM_MAX_STEPS]; /* singular values beyond it blow up from this step on */
    double limit; /* on the length of a row of the result: longer ones have diverged */
    bool careful; /* rescale before every step unless all singular values are within its edge */
    bool restart[MUONIUM_MAX_STEPS];
    const mu_form *form;
    const mu_direct_set *direct; /* direct form: its set */
    const mu_kernel *kernel;     /* of the type that products are computed in */
    const mu_kernel *multiplier; /* the same, or for what is rounded to a half type its own */
    const mu_rows *rows;         /* row operations of the kernel's type */
    const mu_rows *wide;         /* f64: for inputs and scales beyond f32 */
    bool tall;
    bool half; /* intermediates are rounded to options.precision */
    mu_rounding round;
    bool in_place; /* X is kept in the caller's matrix, which is its own result */
    size_t m, n;
    size_t ldx, ldr;   /* rows of our own m x n and m x m matrices */
    int squares;       /* m x m matrices in the workspace */
    unsigned team;     /* threads that share a matrix */
    unsigned workers;  /* matrices at a time, one thread each; 1: the team takes one by one */
    size_t team_bytes; /* workspace for the team, and for one worker */
    size_t worker_bytes;
    size_t workspace_bytes;
};

/* A matrix in memory, oriented. */
typedef struct mu_oriented {
    char *data;
    muonium_dtype dtype;
    ptrdiff_t row_stride, col_stride;
} mu_oriented;

/* A rectangle of it, from an element on. */
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

/* The operand that such a matrix is, and the matrix that an operand was. */
static inline mu_operand mu_operand_at(const mu_oriented *matrix)
{
    mu_operand operand = {
        matrix->data, matrix->dtype, matrix->row_stride, matrix->col_stride, 1, NULL, 0, 0};
    return operand;
}

static inline mu_oriented mu_matrix_of(const mu_operand *operand)
{
    mu_oriented matrix = {(char *)(uintptr_t)operand->data, operand->dtype, operand->row_stride,
                          operand->col_stride};
    return matrix;
}

/* A matrix with a stride of 1 as what is adjacent in memory: its rows, or its columns. */
typedef struct mu_lines {
    bool columns;
    size_t count, length;
    size_t ld; /* from one to the next */
} mu_lines;

static inline mu_lines mu_lines_of(const muonium_plan *plan, const mu_oriented *matrix)
{
    bool columns = matrix->col_stride != 1;
    mu_lines lines = {columns, columns ? plan->n : plan->m, columns ? plan->m : plan->n,
                      (size_t)(columns ? matrix->col_stride : matrix->row_stride)};
    return lines;
}

/* What survey found: elements are finite if `largest` is. */
typedef struct mu_survey {
    double largest;     /* magnitude */
    int exponent;       /* largest = f * 2^exponent with f in [0.5, 1) */
    double sum_squares; /* of all elements times 2^-exponent */
} mu_survey;

/* One matrix on its way. */
struct mu_iteration {
    const muonium_plan *plan;
    mu_matmul with;
    mu_oriented in, out;
    const mu_across *across; /* NULL, or who has the other columns */
    mu_operand x;     /* the current X: first the caller's matrix and a factor, then `home` */
    mu_oriented home; /* m x n of the kernel's type, one stride being 1 */
    void *square[MU_MAX_SQUARES]; /* m x m, rows ldr apart; [0] is R */
    double *row_sums;             /* 2 m doubles */
    double ceiling;               /* no singular value of X exceeds it; infinity: unknown */
    bool has_gram;                /* R is that of X already */
    bool keeps_input;             /* nothing is written to `in` until the result is stored */
    bool delivered;               /* the result is in `out` already */
    muonium_certificate certificate;
};

/* forms.c: sets form and direct, or fails if what the options ask for cannot be. Reads
 * options, table, restart, kernel, half, m and n. */
muonium_status mu_choose_form(muonium_plan *plan);

/* Fails, with the reason, if the set that the options name does not exist or, where they
 * ask for the direct form, cannot run under them. */
muonium_status mu_check_direct(const muonium_plan_options *options);

/* restarts.c: before which steps the Gram form must start afresh from X so that
 * rounding of relative size `unit` does no more harm than in the standard form. */
void mu_choose_restarts(const double (*table)[3], int steps, double unit, bool *restart);

/* across.c: R = X X^T, all columns counted; and row_sums, those of all columns. */
void mu_gram_of_x(mu_iteration *it);
void mu_add_row_sums(mu_iteration *it);

/* plan.c: the same plan in its safest form, for a matrix on which it has diverged: full
 * precision, standard form, singular values of at most 1 to begin with, and careful. Its
 * result is finite and bounded whatever the matrix. */
muonium_plan mu_careful_plan(const muonium_plan *plan);

/* plan.c: turn a plan for one matrix into one for `columns` of its columns: all that
 * depends on the shape is that of the whole but for sizes in memory. */
MU_SHARED muonium_status mu_plan_narrow(muonium_plan *plan, size_t columns);

/* plan.c: turn a plan into one for mu_plan_run alone, whose matrices, dense and f32, can hold
 * X on its way: its workspace then has no place for that, unless it computes in f64. */
muonium_status mu_plan_keep_in_place(muonium_plan *plan);

/* survey.c */
mu_survey mu_survey_matrix(const mu_iteration *it);

/* The sums of squares of each row of X, which is of the kernel's type, into row_sums; those
 * of all columns, wherever they lie. */
void mu_square_rows(mu_iteration *it);

/* normalize.c: choose the divisor of a matrix that is finite and not zero: sets x
 * and, where the norm needed it, R. */
void mu_normalize(mu_iteration *it, const mu_survey *survey);

/* normalize.c: a number that no eigenvalue of R exceeds, and the largest of them is within
 * 1 % of it where seven squarings of R are enough for that. Uses square[1] and square[2]. */
double mu_largest_eigenvalue(mu_iteration *it);

/* steps.c: what all forms share. */

/* R = X X^T unless it is there, rounded in half modes. */
void mu_take_gram(mu_iteration *it);

/* What one look at R tells. */
typedef struct mu_look {
    double off, diagonal, trace; /* sums of squares off and on the diagonal; the trace */
    double strayed;              /* of squares of the diagonal's distance from 1 */
    double largest;              /* on the diagonal */
} mu_look;

mu_look mu_look_at_gram(mu_iteration *it);

/* Whether, by what is known of X, a singular value may be beyond the stable edge of step t. */
bool mu_may_stray(const mu_iteration *it, int t);

/* Before step t: rescue singular values beyond the stable edge, by the returned
 * factor on X, which R already reflects (1: nothing to do); before the last step
 * take the certificate. R is looked at only if what is known of X leaves a doubt. */
double mu_watch(mu_iteration *it, int t);

/* The factor h = a I + b R + c R^2 of step t. Its matrix is z, or R itself where c is
 * 0; rounded in half modes. */
mu_operand mu_polynomial(mu_iteration *it, int t, void *z);

/* to = a b, symmetric, rounded in half modes. */
void mu_multiply(mu_iteration *it, const mu_operand *a, const mu_operand *b, void *to);

/* X = q X; `last`: into the caller's memory where that is possible. */
void mu_advance(mu_iteration *it, const mu_operand *q, bool last);

/* certificate.c */

/* The result of the last step, bounded by ||I - X X^T||_F before it. */
double mu_bound_after_step(const mu_iteration *it, double deviation);

/* The certificate of the direct form, from the trace of the result's Gram matrix, which is
 * the sum of row_sums. */
void mu_certify_by_trace(mu_iteration *it);

/* The certificate of any form, from the result's Gram matrix itself. */
void mu_certify_exactly(mu_iteration *it);

/* A certificate to begin with: nothing is measured. */
muonium_certificate mu_unmeasured(int rescued);

/* The certificate of a result that is zero. */
void mu_certify_zero(mu_iteration *it, muonium_outcome outcome);

/* spectrum.c: the range of the singular values of X, from R = X X^T, as Lanczos iterations
 * find it: never wider than the true one but for rounding. Uses square[1] and square[2]. */
void mu_singular_range(const mu_iteration *it, double *lowest, double *highest);

/* Multiply rows [0, rows) of our own matrix, `n` long and `ld` apart, by a factor. */
void mu_scale_rows(mu_iteration *it, void *matrix, size_t rows, size_t n, size_t ld, double factor);

/* execute.c: orthogonalise `count` <= shape.batch surveyed matrices in place. Each may
 * lie with rows and columns as in the plan's shape or exchanged, oriented by the
 * caller. Neither fails nor allocates; matrices that are not finite are left alone or
 * filled, by options.nonfinite. One on which the iteration diverged has the outcome
 * MUONIUM_DIVERGED and is zero: fill it again and let mu_plan_run_carefully have it. */
void mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                 const mu_survey *surveys, void *workspace, muonium_certificate *certificates);

/* The same for one matrix, of whose columns others may lie elsewhere. */
MU_SHARED void mu_plan_run_across(const muonium_plan *plan, const mu_oriented *matrix,
                                  const mu_survey *survey, const mu_across *across, void *workspace,
                                  muonium_certificate *certificate);

/* The same in its safest form, mu_careful_plan, with `across` or NULL. */
void mu_plan_run_carefully(const muonium_plan *plan, const mu_oriented *matrix,
                           const mu_survey *survey, const mu_across *across, void *workspace,
                           muonium_certificate *certificate);

/* A survey from its parts: the largest magnitude, NaN or infinite if any element is, and
 * the sum of squares of f32 elements. */
MU_SHARED mu_survey mu_survey_of(double largest, double sum_squares);

#endif
