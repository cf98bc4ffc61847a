/*
 * direct.c: the form with the fewest products. The result is h(R) X, and h is evaluated
 * by a program of its own (coefficients/direct.h) instead of composed quintics: every
 * product multiplies two combinations of what there is. All of these are polynomials in
 * R: they commute, are symmetric, and every product is one triangle.
 *
 * In most sets a factor combines the latest product, R and I alone: then R, the latest
 * product, the next one and the sum H are all that is kept. And what is kept of a product
 * Y is Z = Y + r R + d I, its left factor but for a number: which is then read where it
 * lies, and the right one is mostly Z and I alone, which costs less than combining two
 * matrices. In a dense set every product is kept to the end, and factors are formed in
 * memory.
 */
#include <float.h>
#include <math.h>

#include "coefficients/direct.h"
#include "orthogonalize/plan.h"

enum { ROWS_PER_TASK = 16 };

/* Squares of the workspace: R, H, then the products. */
enum { GRAM = 0, SUM = 1, FIRST_PRODUCT = 2 };

/* Does sum_i factors[i] Y_i, i = 0..j, need more than I, R and Y_j? */
static bool is_dense(const double *factors, int j)
{
    for (int i = 2; i < j; i++) {
        if (factors[i] != 0) {
            return true;
        }
    }
    return false;
}

static bool needs_all_products(const mu_direct_set *set)
{
    for (int j = 1; j <= set->products; j++) {
        if (is_dense(mu_direct_left(set, j), j) || is_dense(mu_direct_right(set, j), j)) {
            return true;
        }
    }
    return false;
}

/* Y_1 to Y_(products + 1), H, and the two factors; or R, H and two products. */
static int squares(const muonium_plan *plan)
{
    return needs_all_products(plan->direct) ? plan->direct->products + 4 : 4;
}

static double flops(const muonium_plan *plan)
{
    return mu_gram_flops(plan->m, plan->n) + plan->direct->products * mu_symmul_flops(plan->m) +
           mu_apply_flops(plan->m, plan->n);
}

static double moved(const muonium_plan *plan)
{
    const mu_direct_set *set = plan->direct;
    double square = (double)plan->m * (double)plan->m, more = 0;
    for (int j = 1; j <= set->products; j++) {
        const double *factors[2] = {mu_direct_left(set, j), mu_direct_right(set, j)};
        for (int side = 0; side < 2; side++) {
            bool dense = is_dense(factors[side], j);
            for (int i = 1; i < j; i++) {
                more += factors[side][i] != 0 ? (dense ? 3 : 1) * square : 0;
            }
        }
        more += mu_direct_sum(set)[j + 1] != 0 ? square : 0;
    }
    return mu_gram_moved(plan->m, plan->n) + set->products * mu_symmul_moved(plan->m) +
           mu_apply_moved(plan->m, plan->n) + more;
}

/* ---- factors ---- */

typedef struct program {
    mu_iteration *it;
    const mu_direct_set *set;
    bool keeps_all;
} program;

/* Where Y_i lies, i >= 1. */
static void *product_at(const program *p, int i)
{
    if (i == 1) {
        return p->it->square[GRAM];
    }
    return p->it->square[FIRST_PRODUCT + (p->keeps_all ? i - 2 : i % 2)];
}

/* Factors that are formed in memory lie behind all products. */
static void *factor_at(const program *p, int side)
{
    return p->it->square[FIRST_PRODUCT + p->set->products + side];
}

typedef struct forming {
    const program *p;
    const double *factors;
    int j;
    void *to;
} forming;

static void form_rows(void *context, size_t index, unsigned worker)
{
    const forming *f = context;
    const muonium_plan *plan = f->p->it->plan;
    size_t row_bytes = plan->ldr * muonium_dtype_size(plan->kernel->type);
    (void)worker;
    for (size_t r = index * ROWS_PER_TASK; r < (index + 1) * ROWS_PER_TASK && r < plan->m; r++) {
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

/* How much of I (i = 0) or R (i = 1) is kept with Y_j: what its left factor wants. */
static double kept_with(const program *p, int j, int i)
{
    if (p->keeps_all || j < 2 || j > p->set->products) {
        return 0;
    }
    const double *left = mu_direct_left(p->set, j);
    return left[j] != 0 ? left[i] / left[j] : 0;
}

/* factors[i], i = 0 or 1, less what Z brings along. */
static double beside_kept(const program *p, const double *factors, int j, int i)
{
    double rest = factors[i] - factors[j] * kept_with(p, j, i);
    return fabs(rest) > 4 * DBL_EPSILON * fabs(factors[i]) ? rest : 0;
}

/* The operand sum_i factors[i] Y_i, i = 0..j. */
static mu_operand factor(const program *p, const double *factors, int j, int side)
{
    const muonium_plan *plan = p->it->plan;
    if (is_dense(factors, j)) {
        forming f = {p, factors, j, factor_at(p, side)};
        mu_pool_run(form_rows, &f, (plan->m + ROWS_PER_TASK - 1) / ROWS_PER_TASK,
                    p->it->with.workers);
        return mu_operand_of(plan->kernel, f.to, plan->ldr, 1, factors[0]);
    }
    mu_operand o = mu_operand_of(plan->kernel, product_at(p, j), plan->ldr, factors[j],
                                 beside_kept(p, factors, j, 0));
    double of_gram = j > 1 ? beside_kept(p, factors, j, 1) : 0;
    if (of_gram != 0) {
        o.other = p->it->square[GRAM];
        o.other_scale = of_gram;
    }
    return o;
}

/* ---- the run ---- */

static void run(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    const mu_direct_set *set = plan->direct;
    const double *c = mu_direct_sum(set);
    program p = {it, set, needs_all_products(set)};
    mu_finish finish = {.may_multiply_out = true};
    double rest[2] = {c[0], c[1]}; /* of I and R in H, less what Z has brought into it */
    mu_take_gram(it);
    for (int j = 1; j <= set->products; j++) {
        mu_operand left = factor(&p, mu_direct_left(set, j), j, 0);
        mu_operand right = factor(&p, mu_direct_right(set, j), j, 1);
        /* The last product is not kept, but brings into H what is left of it. */
        finish.last = j == set->products;
        finish.plus_factor = finish.last ? rest[1] / c[j + 1] : kept_with(&p, j + 1, 1);
        finish.plus = finish.plus_factor != 0 ? it->square[GRAM] : NULL;
        finish.plus_identity = finish.last ? rest[0] / c[j + 1] : kept_with(&p, j + 1, 0);
        rest[0] -= c[j + 1] * finish.plus_identity;
        rest[1] -= c[j + 1] * finish.plus_factor;
        finish.sum = c[j + 1] != 0 ? it->square[SUM] : NULL;
        finish.sum_factor = c[j + 1];
        mu_symmul_finish(&it->with, plan->m, &left, &right, product_at(&p, j + 1), plan->ldr,
                         &finish);
        finish.accumulate = finish.accumulate || c[j + 1] != 0;
    }
    mu_operand h = mu_operand_of(plan->kernel, it->square[SUM], plan->ldr, 1, 0);
    mu_advance(it, &h, true);
}

const mu_form mu_form_direct = {.id = MUONIUM_FORM_DIRECT,
                                .name = "direct",
                                .squares = squares,
                                .flops = flops,
                                .moved = moved,
                                .run = run};
