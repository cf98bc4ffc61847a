/*
 * standard.c: the standard form. Each iteration updates X:
 * R = X X^T, X <- (a I + b R + c R^2) X.
 */
#include "orthogonalize/run.h"

static mu_work standard_work(const muonium_plan *plan)
{
    mu_work work = {0};
    for (int t = 0; t < plan->options.steps; t++) {
        double squared = plan->table[t][2] != 0 || plan->half;
        work.grams++;
        work.applies++;
        work.symmuls += plan->round.factor ? 0 : squared;
        work.general += plan->round.factor ? squared : 0; /* the product is not symmetric */
    }
    return work;
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
                                  .work = standard_work,
                                  .evaluate = evaluate_standard};
