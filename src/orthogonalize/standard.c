/*
 * standard.c: the standard form. Each iteration updates X:
 * R = X X^T, X <- (a I + b R + c R^2) X.
 */
#include "orthogonalize/run.h"

static double standard_flops(const muonium_plan *plan)
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

static double standard_moved(const muonium_plan *plan)
{
    double iteration = mu_gram_moved(plan->m, plan->n) + mu_symmul_moved(plan->m) +
                       mu_apply_moved(plan->m, plan->n);
    return plan->options.steps * iteration;
}

static int standard_squares(const muonium_plan *plan)
{
    (void)plan;
    return 2;
}

static void evaluate_standard(mu_run *run)
{
    int steps = run->plan->options.steps;
    for (int t = 0; t < steps; t++) {
        mu_update_gram(run);
        run->x.scale *= mu_guard(run, t);
        mu_operand h = mu_polynomial(run, t, run->square[1]);
        mu_x_multiply(run, &h, t == steps - 1);
    }
}

const mu_form mu_form_standard = {.id = MUONIUM_FORM_STANDARD,
                                  .guarded = true,
                                  .rounds = true,
                                  .squares = standard_squares,
                                  .flops = standard_flops,
                                  .moved = standard_moved,
                                  .evaluate = evaluate_standard};
