/*
 * iteration.c: the products of one iteration, shared by the forms: the Gram matrix, the
 * polynomial, and products of polynomials. The half types round each result as storing it would,
 * and parts of it as plan->round says.
 */
#include "orthogonalize/run.h"

void mu_update_gram(mu_run *run)
{
    if (!run->has_gram) {
        mu_gram_of_x(run);
        if (run->across) { /* else the product has rounded it */
            mu_round_square(run, run->square[0]);
        }
    }
    run->has_gram = false;
}

/* z = round(b R + c round(R^2)), with more roundings as plan->round says. */
static void combine_rounded(mu_run *run, double b, double c, void *z)
{
    const muonium_plan *plan = run->plan;
    mu_operand r = mu_operand_of(plan->kernel, run->square[0], plan->ldr, 1, 0);
    const void *term = r.data;
    void *spare = run->square[2];
    if (!plan->round.factor && !plan->round.scaled && !plan->round.linear) {
        mu_symmul_epilogue sum = {.with = term, .own_factor = c, .with_factor = b};
        mu_symmul_fused(&run->with, plan->m, &r, &r, z, plan->ldr, &sum);
        return;
    }
    if (plan->round.factor) {
        /* A rounded c R does not commute with R: both triangles are needed. */
        mu_round_multiple(run, c, r.data, spare);
        mu_operand left = mu_operand_of(plan->kernel, spare, plan->ldr, 1, 0);
        mu_apply(&run->with, plan->m, plan->m, &left, &r, z, plan->ldr, 1);
        c = 1;
    } else {
        mu_symmul(&run->with, plan->m, &r, &r, z, plan->ldr);
    }
    if (plan->round.scaled) {
        mu_round_multiple(run, c, z, z);
        c = 1;
    }
    if (plan->round.linear) {
        mu_round_multiple(run, b, r.data, spare);
        term = spare;
        b = 1;
    }
    mu_round_sum(run, c, z, b, term);
}

mu_operand mu_polynomial(mu_run *run, int t, void *z)
{
    const muonium_plan *plan = run->plan;
    const double *abc = plan->table[t];
    const void *r = run->square[0];
    if (plan->round.square) {
        combine_rounded(run, abc[1], abc[2], z);
    } else if (abc[2] == 0 && !plan->half) {
        return mu_operand_of(plan->kernel, r, plan->ldr, abc[1], abc[0]);
    } else {
        mu_operand left = mu_operand_of(plan->kernel, r, plan->ldr, abc[2], abc[1]);
        mu_operand right = mu_operand_of(plan->kernel, r, plan->ldr, 1, 0);
        mu_multiply(run, &left, &right, z);
    }
    return mu_operand_of(plan->kernel, z, plan->ldr, 1, abc[0]);
}

void mu_multiply(mu_run *run, const mu_operand *a, const mu_operand *b, void *to)
{
    mu_symmul(&run->with, run->plan->m, a, b, to, run->plan->ldr);
}
