/*
 * certificate.c: how far the result Y is from orthogonal: ||I - Y Y^T||_F, by bounds that cost
 * nothing, or measured.
 */
#include <math.h>

#include "orthogonalize/run.h"

/* With g(x) = 1 - x (a + b x + c x^2)^2, the last iteration gives I - Y Y^T = g(X X^T). Since
 * g(x) = g(1) + (x - 1) q(x), the norm is at most |g(1)| sqrt(m) + max|q| * deviation. The
 * maximum is over the possible eigenvalues of X X^T: within `deviation` of 1, not negative, and
 * at most ceiling^2. */
double mu_bound_last_iteration(const mu_run *run, double deviation)
{
    enum { BOUND_POINTS = 128 };
    const muonium_plan *plan = run->plan;
    int last = plan->options.steps - 1;
    const double *abc = plan->table[last];
    double ceiling = run->ceiling * run->ceiling;
    double low = deviation < 1 ? 1 - deviation : 0;
    double high = 1 + deviation < ceiling ? 1 + deviation : ceiling;
    double at_one = abc[0] + abc[1] + abc[2], g_one = 1 - at_one * at_one;
    double steepest = 0, previous = 0, change = 0;
    for (int i = 0; i <= BOUND_POINTS; i++) {
        double x = low + (high - low) * i / BOUND_POINTS;
        double h = abc[0] + x * (abc[1] + x * abc[2]);
        /* (g(x) - g(1)) / (x - 1), with the division carried out: h - h(1) is
         * (x - 1) (b + c (x + 1)). */
        double slope = abc[1] + abc[2] * (x + 1);
        double q = -(at_one * at_one + x * slope * (h + at_one));
        if (i > 0 && fabs(q - previous) > change) {
            change = fabs(q - previous);
        }
        previous = q;
        steepest = fabs(q) > steepest ? fabs(q) : steepest;
    }
    /* Between two points q changes by no more than from one to the next. */
    return fabs(g_one) * sqrt((double)plan->m) + (steepest + change) * deviation;
}

/* The singular values s of Y lie in [0, 1 + d], d the deviation of the set, and the sum of their
 * squares is ||Y||_F^2. Let t = 1 - s^2, which lies in [-e, 1] with e = (1 + d)^2 - 1. The sum of
 * t is known, and ||I - Y Y^T||_F^2 is the sum of t^2. That is at least (sum of t)^2 / m. By the
 * chord t^2 <= (1 - e) t + e it is at most (1 - e) (sum of t) + e m. */
void mu_certify_by_trace(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    double m = (double)plan->m, trace = 0;
    double high = 1 + plan->direct->deviation, e = high * high - 1;
    for (size_t i = 0; i < plan->m; i++) {
        trace += run->row_sums[i];
    }
    run->certificate.deviation = fabs(m - trace) / sqrt(m);
    run->certificate.bound = sqrt(fmax((1 - e) * (m - trace) + e * m, 0));
    run->certificate.bound = fmax(run->certificate.bound, run->certificate.deviation);
}

void mu_certify_exactly(mu_run *run)
{
    muonium_certificate *c = &run->certificate;
    /* Not rounded to a half type or to few digits: this measures the result. */
    run->with.kernel = run->plan->kernel;
    run->with.separate = false;
    run->with.round = MUONIUM_F32;
    if (run->with.digits > 0) {
        run->with.digits = MU_MAX_DIGITS;
    }
    mu_gram_of_x(run);
    mu_gram_sums sums = mu_sum_gram(run);
    c->orthogonality_error = c->bound = sqrt(sums.off + sums.deviation);
    if (run->plan->direct) {
        c->deviation = c->bound;
    }
    mu_singular_range(run, &c->sigma_min, &c->sigma_max);
}

muonium_certificate mu_unmeasured(int rescued)
{
    return (muonium_certificate){
        .rescued = rescued, .orthogonality_error = NAN, .sigma_min = NAN, .sigma_max = NAN};
}

void mu_certify_zero(mu_run *run, muonium_outcome outcome)
{
    muonium_certificate *c = &run->certificate;
    c->outcome = outcome;
    c->deviation = c->bound = c->orthogonality_error = sqrt((double)run->plan->m);
    c->sigma_min = c->sigma_max = 0;
}
