/*
 * direct.c: the direct form, with the fewest products. The result is h(R) X. A program
 * (coefficients/direct.h) evaluates h: each product multiplies two combinations of I, R and
 * earlier products. All of these are polynomials in R: they commute, are symmetric, and each
 * product needs one triangle only.
 *
 * In a sparse set each factor combines only the latest product, R and I. Then four matrices are
 * stored: R, the latest product, the next one and the sum H. Instead of a product Y the form
 * stores Z = Y + r R + d I, its next left factor up to a scalar. That factor is used unpacked,
 * and the right factor is usually a combination of Z and I alone, which costs less than
 * combining two matrices. In a dense set all products are stored to the end, and factors are
 * formed in memory.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "orthogonalize/run.h"

/* Indices of the workspace's squares: R, H, then the products. */
enum { GRAM = 0, SUM = 1, FIRST_PRODUCT = 2 };

/* The largest singular value that rounding can make of 1. */
#define ROUNDED_ONE 1.001

/* Whether sum_i factors[i] Y_i, i = 0..j, has other terms than I, R and Y_j. */
static bool is_dense_factor(const double *factors, int j)
{
    for (int i = 2; i < j; i++) {
        if (factors[i] != 0) {
            return true;
        }
    }
    return false;
}

static bool is_dense_set(const mu_direct_set *set)
{
    for (int j = 1; j <= set->products; j++) {
        if (is_dense_factor(mu_direct_left(set, j), j) ||
            is_dense_factor(mu_direct_right(set, j), j)) {
            return true;
        }
    }
    return false;
}

/* Dense: Y_1 to Y_(products + 1), H and two factors. Sparse: R, H and two products. */
static int direct_squares(const muonium_plan *plan)
{
    return is_dense_set(plan->direct) ? plan->direct->products + 4 : 4;
}

static mu_work direct_work(const muonium_plan *plan)
{
    const mu_direct_set *set = plan->direct;
    double square = (double)plan->m * (double)plan->m, more = 0;
    for (int j = 1; j <= set->products; j++) {
        const double *factors[2] = {mu_direct_left(set, j), mu_direct_right(set, j)};
        for (int side = 0; side < 2; side++) {
            bool dense = is_dense_factor(factors[side], j);
            for (int i = 1; i < j; i++) {
                more += factors[side][i] != 0 ? (dense ? 3 : 1) * square : 0;
            }
        }
        more += mu_direct_sum(set)[j + 1] != 0 ? square : 0;
    }
    return (mu_work){.grams = 1, .symmuls = set->products, .applies = 1, .moved = more};
}

/* ---- factors ---- */

typedef struct program {
    mu_run *run;
    const mu_direct_set *set;
    bool dense;
} program;

/* The memory of Y_i, i >= 1. */
static void *product_at(const program *p, int i)
{
    if (i == 1) {
        return p->run->square[GRAM];
    }
    return p->run->square[FIRST_PRODUCT + (p->dense ? i - 2 : i % 2)];
}

/* The memory of a factor that is formed there: after all products. */
static void *factor_at(const program *p, int side)
{
    return p->run->square[FIRST_PRODUCT + p->set->products + side];
}

typedef struct factor_sum {
    const program *p;
    const double *factors;
    int j;
    void *to;
} factor_sum;

static void form_factor_rows(void *context, size_t index, unsigned worker)
{
    const factor_sum *f = context;
    const muonium_plan *plan = f->p->run->plan;
    size_t row_bytes = plan->ldr * muonium_dtype_size(plan->kernel->type);
    (void)worker;
    for (size_t r = index * MU_ROWS_PER_TASK; r < (index + 1) * MU_ROWS_PER_TASK && r < plan->m;
         r++) {
        bool accumulate = false;
        for (int i = 1; i <= f->j; i++) {
            if (f->factors[i] != 0) {
                const char *from = (const char *)product_at(f->p, i) + r * row_bytes;
                plan->rows->add((char *)f->to + r * row_bytes, from, plan->m, f->factors[i],
                                accumulate);
                accumulate = true;
            }
        }
    }
}

/* The coefficient of I (i = 0) or R (i = 1) in Z_j = Y_j + r R + d I: that of the left factor. */
static double stored_with(const program *p, int j, int i)
{
    if (p->dense || j < 2 || j > p->set->products) {
        return 0;
    }
    const double *left = mu_direct_left(p->set, j);
    return left[j] != 0 ? left[i] / left[j] : 0;
}

/* factors[i], i = 0 or 1, minus the part that Z_j contains. */
static double beside_stored(const program *p, const double *factors, int j, int i)
{
    double rest = factors[i] - factors[j] * stored_with(p, j, i);
    return fabs(rest) > 4 * DBL_EPSILON * fabs(factors[i]) ? rest : 0;
}

/* The operand sum_i factors[i] Y_i, i = 0..j. */
static mu_operand factor(const program *p, const double *factors, int j, int side)
{
    const muonium_plan *plan = p->run->plan;
    if (is_dense_factor(factors, j)) {
        factor_sum f = {p, factors, j, factor_at(p, side)};
        mu_pool_run(form_factor_rows, &f, (plan->m + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK,
                    p->run->with.workers);
        return mu_operand_of(plan->kernel, f.to, plan->ldr, 1, factors[0]);
    }
    mu_operand o = mu_operand_of(plan->kernel, product_at(p, j), plan->ldr, factors[j],
                                 beside_stored(p, factors, j, 0));
    double of_gram = j > 1 ? beside_stored(p, factors, j, 1) : 0;
    if (of_gram != 0) {
        o.other = p->run->square[GRAM];
        o.other_scale = of_gram;
    }
    return o;
}

/* ---- evaluation ---- */

static void evaluate_direct(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    const mu_direct_set *set = plan->direct;
    const double *c = mu_direct_sum(set);
    program p = {run, set, is_dense_set(set)};
    mu_symmul_epilogue epilogue = {.may_multiply_out = true};
    double rest[2] = {c[0], c[1]}; /* coefficients of I and R in H, minus the parts added with Z */
    mu_update_gram(run);
    for (int j = 1; j <= set->products; j++) {
        mu_operand left = factor(&p, mu_direct_left(set, j), j, 0);
        mu_operand right = factor(&p, mu_direct_right(set, j), j, 1);
        /* The last product is not stored: it adds the rest of I and R to H. */
        epilogue.last = j == set->products;
        epilogue.plus_factor = epilogue.last ? rest[1] / c[j + 1] : stored_with(&p, j + 1, 1);
        epilogue.plus = epilogue.plus_factor != 0 ? run->square[GRAM] : NULL;
        epilogue.plus_identity = epilogue.last ? rest[0] / c[j + 1] : stored_with(&p, j + 1, 0);
        rest[0] -= c[j + 1] * epilogue.plus_identity;
        rest[1] -= c[j + 1] * epilogue.plus_factor;
        epilogue.sum = c[j + 1] != 0 ? run->square[SUM] : NULL;
        epilogue.sum_factor = c[j + 1];
        mu_symmul_fused(&run->with, plan->m, &left, &right, product_at(&p, j + 1), plan->ldr,
                        &epilogue);
        epilogue.accumulate = epilogue.accumulate || c[j + 1] != 0;
    }
    mu_operand h = mu_operand_of(plan->kernel, run->square[SUM], plan->ldr, 1, 0);
    mu_x_multiply(run, &h, true);
}

/* ---- what it admits ---- */

bool mu_direct_refuses(const muonium_plan_options *o, const mu_direct_set *set, char *reason,
                       size_t size)
{
    if (mu_precision_of(o->precision)->half) {
        return snprintf(reason, size, "it does not compute in the half types; change precision") >
               0;
    }
    if (o->precision == MUONIUM_FIXED15 && strcmp(set->name, "S12") == 0) {
        /* Measured on small matrices: errors of the size of the result. */
        return snprintf(reason, size,
                        "its set S12 loses small singular values in fixed15; choose another set, "
                        "or precision fixed23") > 0;
    }
    if (mu_normalization_of(o->normalization)->trusts_caller) {
        return snprintf(reason, size,
                        "without a normalization nothing keeps singular values below %g, where "
                        "its polynomial explodes; choose one, such as frobenius",
                        set->edge) > 0;
    }
    if (!(ROUNDED_ONE / o->safety_factor < set->edge)) {
        return snprintf(reason, size,
                        "safety_factor %g lets singular values grow to %g, and its polynomial "
                        "explodes above %g; use a factor of at least 1",
                        o->safety_factor, 1 / o->safety_factor, set->edge) > 0;
    }
    return false;
}

const mu_direct_set *mu_direct_set_of(const muonium_plan_options *o)
{
    return mu_direct_set_named(o->direct_set ? o->direct_set : "P12");
}

const char *mu_other_polynomial(const muonium_plan_options *o)
{
    muonium_plan_options defaults;
    muonium_plan_options_init(&defaults);
    return o->table                         ? "table"
           : o->coefficients                ? "coefficients"
           : o->steps != defaults.steps     ? "steps"
           : o->lower != defaults.lower     ? "lower"
           : o->safety != defaults.safety   ? "safety"
           : o->cushion != defaults.cushion ? "cushion"
           : o->generated_rows != 0         ? "generated_rows"
                                            : NULL;
}

static muonium_status check_direct(const muonium_plan_options *o)
{
    char reason[256];
    if (mu_direct_refuses(o, mu_direct_set_of(o), reason, sizeof reason)) {
        return mu_fail(MUONIUM_INVALID, "form is direct: %s", reason);
    }
    const char *ignored = mu_other_polynomial(o);
    return ignored ? mu_fail(MUONIUM_INVALID,
                             "form is direct: its polynomials are those of direct_set, and %s "
                             "would be ignored; leave %s at its default, or choose the form "
                             "auto, standard or gram",
                             ignored, ignored)
                   : MUONIUM_OK;
}

const mu_form mu_form_direct = {.id = MUONIUM_FORM_DIRECT,
                                .squares = direct_squares,
                                .work = direct_work,
                                .check = check_direct,
                                .evaluate = evaluate_direct,
                                .certify = mu_certify_by_trace};
