/*
 * gram.c: the same polynomials evaluated on R = X X^T alone. A step multiplies X by
 * h = a I + b R + c R^2, so the product Q of all h is enough, and R follows by
 * R <- h R h. All of these are polynomials in one symmetric matrix: they commute,
 * are symmetric, and every product is one triangle. X is touched only at restarts,
 * where R is taken afresh from X before rounding in it has grown, and at the end.
 */
#include "orthogonalize/plan.h"

/* What the symmetric products, and each visit to X, cost in all. */
static double total(const muonium_plan *plan, double square, double visit)
{
    int steps = plan->options.steps;
    double sum = 0;
    for (int t = 0; t < steps; t++) {
        bool first = t == 0 || plan->restart[t];
        bool last = t == steps - 1 || plan->restart[t + 1];
        bool squared = plan->table[t][2] != 0 || plan->half;
        sum += (squared ? square : 0) + (first ? visit : square) + (last ? 0 : 2 * square);
    }
    return sum;
}

static double flops(const muonium_plan *plan)
{
    return total(plan, mu_symmul_flops(plan->m),
                 mu_gram_flops(plan->m, plan->n) + mu_apply_flops(plan->m, plan->n));
}

static double moved(const muonium_plan *plan)
{
    return total(plan, mu_symmul_moved(plan->m),
                 mu_gram_moved(plan->m, plan->n) + mu_apply_moved(plan->m, plan->n));
}

static int squares(const muonium_plan *plan)
{
    (void)plan;
    return 4;
}

/* One of our squares that is none of the three given. */
static void *unused(const mu_iteration *it, const void *a, const void *b, const void *c)
{
    for (int i = 0; i < 3; i++) {
        void *candidate = it->square[i];
        if (candidate != a && candidate != b && candidate != c) {
            return candidate;
        }
    }
    return it->square[3];
}

/* Make one of our squares the first of them, which is R. */
static void become_gram(mu_iteration *it, void *square)
{
    for (int i = 1; i < 4; i++) {
        if (it->square[i] == square) {
            it->square[i] = it->square[0];
            it->square[0] = square;
        }
    }
}

static void run(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    int steps = plan->options.steps;
    mu_operand q = {0}; /* Q, from the first step after a start on */
    for (int t = 0; t < steps; t++) {
        bool first = t == 0 || plan->restart[t];
        bool last = t == steps - 1 || plan->restart[t + 1];
        if (first) {
            mu_take_gram(it);
        }
        double factor = mu_watch(it, t);
        void *r = it->square[0];
        void *z = unused(it, r, first ? NULL : q.data, NULL);
        void *spare = unused(it, r, first ? NULL : q.data, z);
        mu_operand h = mu_polynomial(it, t, z);
        void *next = h.data == r ? z : r; /* where R goes: the factors must stay whole */
        if (!last) {
            mu_operand before = mu_operand_of(plan->kernel, r, plan->ldr, 1, 0);
            mu_operand half_way = mu_operand_of(plan->kernel, spare, plan->ldr, 1, 0);
            mu_multiply(it, &before, &h, spare);
            mu_multiply(it, &h, &half_way, next);
        }
        if (first) {
            it->x.scale *= factor;
            q = h;
        } else {
            q.scale *= factor;
            q.shift *= factor;
            mu_multiply(it, &q, &h, spare);
            q = mu_operand_of(plan->kernel, spare, plan->ldr, 1, 0);
        }
        if (last) {
            mu_advance(it, &q, t == steps - 1);
        } else {
            become_gram(it, next);
        }
    }
}

const mu_form mu_form_gram = {.id = MUONIUM_FORM_GRAM,
                              .name = "gram",
                              .squares = squares,
                              .flops = flops,
                              .moved = moved,
                              .run = run};
