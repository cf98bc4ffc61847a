/*
 * guard.c: keep singular values within the range where the polynomials converge.
 *
 * run->ceiling bounds the singular values of X, and mu_reach carries that bound from one
 * iteration to the next. Only where it is inconclusive is R inspected: if a lower bound on its
 * largest eigenvalue is beyond the stable edge, X and R are rescaled, which counts as a rescue.
 */
#include <math.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/run.h"

static double diagonal_at(const mu_run *run, size_t i)
{
    size_t at = i * run->plan->ldr + i;
    return run->plan->kernel->type == MUONIUM_F32 ? (double)((const float *)run->square[0])[at]
                                                  : ((const double *)run->square[0])[at];
}

mu_gram_sums mu_sum_gram(mu_run *run)
{
    mu_gram_sums sums = {0, 0, 0, 0, 0};
    mu_sum_lower_squares(run);
    for (size_t i = 0; i < run->plan->m; i++) {
        double value = diagonal_at(run, i);
        sums.off += 2 * run->row_sums[i];
        sums.diagonal += value * value;
        sums.deviation += (value - 1) * (value - 1);
        sums.trace += value;
        sums.largest = value > sums.largest ? value : sums.largest;
    }
    return sums;
}

/* An upper bound on the largest eigenvalue that costs one pass over R: the smaller of the
 * Frobenius norm and the largest row sum of magnitudes. */
static double cheap_upper_bound(mu_run *run, const mu_gram_sums *sums)
{
    double widest = 0, frobenius = sqrt(sums->off + sums->diagonal);
    mu_sum_magnitudes(run);
    for (size_t i = 0; i < run->plan->m; i++) {
        widest = run->row_sums[i] > widest ? run->row_sums[i] : widest;
    }
    return widest < frobenius ? widest : frobenius;
}

/* Divide R by `bound`, so that its eigenvalues are at most 1. Returns the factor for X. */
static double rescale(mu_run *run, mu_gram_sums *sums, double bound)
{
    mu_scale_square(run, run->square[0], 1 / bound);
    mu_round_square(run, run->square[0]);
    run->certificate.rescued++;
    run->ceiling = 1;
    sums->off /= bound * bound;
    sums->deviation =
        sums->diagonal / (bound * bound) - 2 * sums->trace / bound + (double)run->plan->m;
    return 1 / sqrt(bound);
}

bool mu_may_exceed_edge(const mu_run *run, int t)
{
    double room = run->plan->half ? 1.02 : 1.001; /* for rounding */
    return !(run->ceiling * room < run->plan->edge[t]);
}

double mu_guard(mu_run *run, int t)
{
    const muonium_plan *plan = run->plan;
    double factor = 1;
    bool last = t == plan->options.steps - 1;
    if (last || plan->careful || mu_may_exceed_edge(run, t)) {
        mu_gram_sums sums = mu_sum_gram(run);
        /* tr(R^2) / tr(R), an average of the eigenvalues, and the largest diagonal element are
         * lower bounds on the largest eigenvalue: X is never rescaled without need. */
        double average = sums.trace > 0 ? (sums.off + sums.diagonal) / sums.trace : 0;
        double largest =
            plan->careful ? mu_largest_eigenvalue(run, true) : fmax(average, sums.largest);
        if (largest > plan->edge[t] * plan->edge[t]) {
            factor = rescale(run, &sums, plan->careful ? largest : cheap_upper_bound(run, &sums));
        }
        if (last) {
            run->certificate.deviation = sqrt(sums.off + sums.deviation);
            run->certificate.bound = mu_bound_last_iteration(run, run->certificate.deviation);
        }
    }
    run->ceiling = mu_reach((const double(*)[3])plan->table, t, t + 1, run->ceiling);
    return factor;
}
