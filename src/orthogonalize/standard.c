/*
 * standard.c: the iteration as it is usually written, every step on X itself:
 * R = X X^T, X <- (a I + b R + c R^2) X.
 */
#include "orthogonalize/plan.h"

static double flops(const muonium_plan *plan)
{
    double sum = 0, square = mu_symmul_flops(plan->m);
    if (plan->round.factor) {
        square = mu_apply_flops(plan->m, plan->m); /* the product is not symmetric */
    }
    for (int t = 0; t < plan->options.steps; t++) {
        sum += mu_gram_flops(plan->m, plan->n) + mu_apply_flops(plan->m, plan->n);
        sum += plan->table[t][2] != 0 || plan->half ? square : 0;
    }
    return sum;
}

static double moved(const muonium_plan *plan)
{
    double step = mu_gram_moved(plan->m, plan->n) + mu_symmul_moved(plan->m) +
                  mu_apply_moved(plan->m, plan->n);
    return plan->options.steps * step;
}

static int squares(const muonium_plan *plan)
{
    (void)plan;
    return 2;
}

static void run(mu_iteration *it)
{
    int steps = it->plan->options.steps;
    for (int t = 0; t < steps; t++) {
        mu_take_gram(it);
        it->x.scale *= mu_watch(it, t);
        mu_operand h = mu_polynomial(it, t, it->square[1]);
        mu_advance(it, &h, t == steps - 1);
    }
}

const mu_form mu_form_standard = {.id = MUONIUM_FORM_STANDARD,
                                  .name = "standard",
                                  .squares = squares,
                                  .flops = flops,
                                  .moved = moved,
                                  .run = run};
