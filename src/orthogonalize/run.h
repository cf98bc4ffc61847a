/*
 * run.h: one matrix while it is orthogonalised, and what the parts of this room offer each other.
 *
 * A matrix goes through
 *
 *     survey       largest element, sum of squares, non-finite elements   survey.c
 *     normalize    divide by a bound on the largest singular value        normalize.c
 *     evaluate     the polynomial, in one of the forms         standard.c, gram.c, direct.c
 *     check        bounded, or once more with the careful plan            execute.c
 *     certify      how far the result is from orthogonal       certificate.c, spectrum.c
 *     store        in the caller's type and orientation                   placement.c
 */
#ifndef MU_RUN_H
#define MU_RUN_H

#include "matmul/matmul.h"
#include "orthogonalize/across.h"
#include "orthogonalize/plan.h"

/* The matrix as an operand with factor 1, and the matrix of an operand. */
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

enum {
    MU_MAX_SQUARES = MU_MAX_PRODUCTS + 4, /* of the direct form */
    MU_GUARD_SQUARES = 3,   /* R and two more: for mu_largest_eigenvalue, for rounded products */
    MU_COLS_PER_BLOCK = 128 /* of X: converted at a time, MU_ROWS_PER_TASK rows by as many */
};

/* Where X is. */
typedef enum mu_x_place {
    MU_X_IN_INPUT,  /* the caller's matrix, unpacked: products apply its factor */
    MU_X_IN_LOCAL,  /* run->local */
    MU_X_IN_OUTPUT, /* the caller's result: nothing is left to store */
} mu_x_place;

/* One matrix while it is orthogonalised. */
struct mu_run {
    const muonium_plan *plan;
    mu_matmul with;
    mu_oriented in, out;
    const mu_across *across; /* NULL, or access to the columns that other processes have */

    /* placement.c alone moves X; others read x, and change x.scale. */
    mu_operand x;       /* the current X, and a factor that products apply to it */
    mu_x_place place;   /* where x is */
    mu_oriented local;  /* m x n of the kernel's type, one stride being 1: in the workspace, or
                           the caller's matrix if the plan works in place */
    bool input_is_kept; /* nothing is written to `in` before the result is stored */

    void *square[MU_MAX_SQUARES]; /* m x m matrices of the workspace, rows ldr apart; [0] is R */
    double *row_sums;             /* 2 m numbers */
    double ceiling;               /* upper bound on the singular values of X; infinity: unknown */
    bool has_gram;                /* R is X X^T already */
    muonium_certificate certificate;
};

/* ---- the tables ---- */

/* What a form computes for one matrix. */
typedef struct mu_work {
    double grams, symmuls, applies; /* numbers of these products */
    double general;                 /* m x m products that are not symmetric */
    double moved;                   /* elements read and written beside the products */
} mu_work;

/* A form: one way to evaluate the polynomials. options.def has its name. */
struct mu_form {
    muonium_form id;
    bool guarded;  /* it calls mu_guard, which may still rescale X */
    bool restarts; /* it computes R again from X where plan->restart says so */
    bool rounds;   /* in the half types it rounds as options.rounding says; others as `stored` */
    int (*squares)(const muonium_plan *plan); /* m x m matrices that it needs */
    mu_work (*work)(const muonium_plan *plan);
    muonium_status (*check)(const muonium_plan_options *options); /* NULL: it admits all options */
    void (*evaluate)(mu_run *run);
    void (*certify)(mu_run *run); /* NULL: mu_guard has made the certificate */
};

extern const mu_form mu_form_standard, mu_form_gram, mu_form_direct;

/* A normalisation: one bound on the largest singular value. options.def has its name. */
struct mu_normalization {
    int squares;        /* m x m matrices that it needs */
    bool trusts_caller; /* it divides by nothing: the caller promises the bound */
    bool optax_clamps;  /* in eps mode `optax`: clamp the square of the divisor to 1e-8 */
    void (*divide)(mu_run *run, const mu_survey *survey, double frobenius);
};

/* direct.c: write into `reason` why a set cannot run under these options; false if it can. */
bool mu_direct_refuses(const muonium_plan_options *options, const mu_direct_set *set, char *reason,
                       size_t size);

/* direct.c: the set that the options name, or the default of MUONIUM_FORM_DIRECT; NULL: unknown. */
const mu_direct_set *mu_direct_set_of(const muonium_plan_options *options);

/* direct.c: the option that asks for other quintics than the default ones; NULL if none does. */
const char *mu_other_polynomial(const muonium_plan_options *options);

/* ---- placement.c: where X is, and where the next X goes ---- */

/* Whether X may stay in dense matrices of this type while the plan runs. */
bool mu_x_may_stay(const muonium_plan *plan, muonium_dtype dtype);

/* Bytes of the workspace for X; false if they overflow. A plan that works in place needs none. */
bool mu_x_bytes(const muonium_plan *plan, size_t *bytes);

/* Set run->local, from the first mu_x_bytes of `memory`. Returns the rest of it. */
char *mu_x_place_local(mu_run *run, char *memory);

/* X is the caller's matrix, with factor 1. */
void mu_x_begin(mu_run *run);

/* Copy X times its factor to run->local, in the half types rounded; row i is also divided by
 * row_divisor[i] unless that is NULL. The factor is then 1. */
void mu_x_copy(mu_run *run, const double *row_divisor);

/* Copy X * 2^-exponent to run->local, without regard to its factor. Not rounded to a half type. */
void mu_x_copy_shifted(mu_run *run, int exponent);

/* Copy X, converted, if products cannot read its type. */
void mu_x_make_readable(mu_run *run);

/* Copy X if the iterations need that, or are faster with it. */
void mu_x_settle(mu_run *run);

/* X = q X, rounded in the half types. `last`: this is the result. */
void mu_x_multiply(mu_run *run, const mu_operand *q, bool last);

/* Store the result in run->out unless it is there. */
void mu_x_store(mu_run *run);

/* Set all elements of run->out to a value. */
void mu_x_fill(mu_run *run, double value);

/* ---- squares.c: passes over the m x m matrices of the workspace ---- */

/* Multiply by a factor. */
void mu_scale_square(mu_run *run, void *square, double factor);

/* Round to a half precision; nothing to do in the others. */
void mu_round_square(mu_run *run, void *square);

/* to = round(factor * from); both may be the same matrix. */
void mu_round_multiple(mu_run *run, double factor, const void *from, void *to);

/* to = round(alpha * round(to) + beta * from), where products do not do it */
void mu_round_sum(mu_run *run, double alpha, void *to, double beta, const void *from);

/* Into row_sums: the squares of R's elements left of the diagonal, the magnitudes of all. */
void mu_sum_lower_squares(mu_run *run);
void mu_sum_magnitudes(mu_run *run);

/* ---- iteration.c: the products of an iteration ---- */

/* R = X X^T unless has_gram says that it is; rounded in the half types. */
void mu_update_gram(mu_run *run);

/* The factor h = a I + b R + c R^2 of iteration t. Its matrix is z, or R itself where c is 0;
 * rounded in the half types. */
mu_operand mu_polynomial(mu_run *run, int t, void *z);

/* to = a b, symmetric; rounded in the half types. */
void mu_multiply(mu_run *run, const mu_operand *a, const mu_operand *b, void *to);

/* ---- normalize.c ---- */

/* The table's entry for a value of the enum; NULL: unknown. */
const mu_normalization *mu_normalization_of(muonium_normalization id);

/* Fail if the value is unknown, or if the coefficients need another normalisation. */
muonium_status mu_check_normalization(const muonium_plan_options *options);

/* Divide X, which is finite and not zero, as the plan's normalisation says. Sets x, ceiling and,
 * where the norm needed it, R. */
void mu_normalize(mu_run *run, const mu_survey *survey);

/* ---- guard.c ---- */

/* Sums over R. */
typedef struct mu_gram_sums {
    double off, diagonal; /* sums of squares off and on the diagonal */
    double trace;
    double deviation; /* sum of (R_ii - 1)^2 */
    double largest;   /* on the diagonal */
} mu_gram_sums;

mu_gram_sums mu_sum_gram(mu_run *run);

/* Whether run->ceiling allows a singular value beyond the stable edge of iteration t. */
bool mu_may_exceed_edge(const mu_run *run, int t);

/* Guard iteration t. If a singular value is beyond the stable edge, R is scaled, and so X must be
 * by the returned factor; otherwise that is 1. R is inspected only if run->ceiling is
 * inconclusive. Before the last iteration it also makes the certificate. */
double mu_guard(mu_run *run, int t);

/* ---- certificate.c ---- */

/* A bound on ||I - Y Y^T||_F of the result Y, from ||I - X X^T||_F before the last iteration. */
double mu_bound_last_iteration(const mu_run *run, double deviation);

/* Certify the result of the direct form by the trace of its Gram matrix, the sum of row_sums. */
void mu_certify_by_trace(mu_run *run);

/* Certify the result of any form by its Gram matrix. */
void mu_certify_exactly(mu_run *run);

/* A certificate before anything is measured. */
muonium_certificate mu_unmeasured(int rescued);

/* Certify a result that is zero. */
void mu_certify_zero(mu_run *run, muonium_outcome outcome);

/* ---- spectrum.c: eigenvalues of R ---- */

/* The Frobenius norm of an m x m matrix of the workspace. */
double mu_frobenius_norm(const mu_run *run, const void *square);

/* If `bounded`, an upper bound on the largest eigenvalue of R, which exceeds it by at most 1 %
 * unless seven squarings of R are too few for that. Else the eigenvalue up to rounding, in at most
 * twenty squarings. Uses square[1] and square[2]. */
double mu_largest_eigenvalue(mu_run *run, bool bounded);

/* The range of the singular values of X, by Lanczos iterations on R: never wider than the true
 * range but for rounding. Uses square[1] and square[2]. */
void mu_singular_range(const mu_run *run, double *lowest, double *highest);

/* ---- survey.c ---- */

mu_survey mu_survey_matrix(const mu_run *run);

/* The sums of squares of each row of X, which is of the kernel's type, into row_sums. With
 * `across` they cover the columns of all processes. */
void mu_square_rows(mu_run *run);

/* ---- across.c: R = X X^T, over the columns of all processes ---- */

void mu_gram_of_x(mu_run *run);

#endif
