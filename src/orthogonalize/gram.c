/*
 * gram.c: the Gram form. It evaluates the polynomials of the standard form on R = X X^T.
 *
 * An iteration multiplies X by h = a I + b R + c R^2. So it suffices to form Q, the product of
 * all h, and to update R <- h R h. All of these are polynomials in one symmetric matrix: they
 * commute, are symmetric, and each product needs one triangle only. X <- Q X is computed at the
 * end and at restarts, where R = X X^T is computed again before its rounding error has grown.
 */
#include "orthogonalize/run.h"

static mu_work gram_work(const muonium_plan *plan)
{
    int steps = plan->options.steps;
    mu_work work = {0};
    for (int t = 0; t < steps; t++) {
        bool first = t == 0 || plan->restart[t];
        bool last = t == steps - 1 || plan->restart[t + 1];
        bool squared = plan->table[t][2] != 0 || plan->half;
        work.grams += first;
        work.applies += first; /* X <- Q X, once per start */
        work.symmuls += squared + !first + 2 * !last;
    }
    return work;
}

static int gram_squares(const muonium_plan *plan)
{
    (void)plan;
    return 4;
}

/* One of the four squares that is none of the three given. */
static void *unused_square(const mu_run *run, const void *a, const void *b, const void *c)
{
    for (int i = 0; i < 3; i++) {
        void *candidate = run->square[i];
        if (candidate != a && candidate != b && candidate != c) {
            return candidate;
        }
    }
    return run->square[3];
}

/* Exchange square[0], which is R, for the given one. */
static void set_gram(mu_run *run, void *square)
{
    for (int i = 1; i < 4; i++) {
        if (run->square[i] == square) {
            run->square[i] = run->square[0];
            run->square[0] = square;
        }
    }
}

static void evaluate_gram(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    int steps = plan->options.steps;
    mu_operand q = {0}; /* Q; defined from the first iteration after a start on */
    for (int t = 0; t < steps; t++) {
        bool first = t == 0 || plan->restart[t];
        bool last = t == steps - 1 || plan->restart[t + 1];
        if (first) {
            mu_update_gram(run);
        }
        double factor = mu_guard(run, t);
        void *r = run->square[0];
        void *z = unused_square(run, r, first ? NULL : q.data, NULL);
        void *spare = unused_square(run, r, first ? NULL : q.data, z);
        mu_operand h = mu_polynomial(run, t, z);
        void *next = h.data == r ? z : r; /* the next R; must not overwrite a factor */
        if (!last) {
            mu_operand before = mu_operand_of(plan->kernel, r, plan->ldr, 1, 0);
            mu_operand half_way = mu_operand_of(plan->kernel, spare, plan->ldr, 1, 0);
            mu_multiply(run, &before, &h, spare);
            mu_multiply(run, &h, &half_way, next);
        }
        if (first) {
            run->x.scale *= factor;
            q = h;
        } else {
            q.scale *= factor;
            q.shift *= factor;
            mu_multiply(run, &q, &h, spare);
            q = mu_operand_of(plan->kernel, spare, plan->ldr, 1, 0);
        }
        if (last) {
            mu_x_multiply(run, &q, t == steps - 1);
        } else {
            set_gram(run, next);
        }
    }
}

const mu_form mu_form_gram = {.id = MUONIUM_FORM_GRAM,
                              .guarded = true,
                              .restarts = true,
                              .squares = gram_squares,
                              .work = gram_work,
                              .evaluate = evaluate_gram};
