/*
 * certificate.c: what can be said of a result Y without knowing the exact one: how far
 * Y Y^T is from I, by bounds that cost nothing or by measurement.
 */
#include <math.h>

#include "orthogonalize/plan.h"

/* With g(x) = 1 - x (a + b x + c x^2)^2, the result Y of the last step has
 * I - YY^T = g(XX^T), and g(x) = g(1) + (x - 1) q(x), so that its norm is at most
 * |g(1)| sqrt(m) + max|q| * deviation, the maximum being over the eigenvalues of
 * XX^T: within `deviation` of 1, not negative, and no larger than what steps
 * before the last make of all that X may have been. */
double mu_bound_after_step(const mu_iteration *it, double deviation)
{
    enum { POINTS = 128 };
    const muonium_plan *plan = it->plan;
    int last = plan->options.steps - 1;
    const double *abc = plan->table[last];
    double ceiling = it->ceiling * it->ceiling;
    double low = deviation < 1 ? 1 - deviation : 0;
    double high = 1 + deviation < ceiling ? 1 + deviation : ceiling;
    double at_one = abc[0] + abc[1] + abc[2], g_one = 1 - at_one * at_one;
    double steepest = 0, previous = 0, change = 0;
    for (int i = 0; i <= POINTS; i++) {
        double x = low + (high - low) * i / POINTS;
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
    /* Between two points q strays no further than from one to the next. */
    return fabs(g_one) * sqrt((double)plan->m) + (steepest + change) * deviation;
}

/* The singular values s of Y lie in [0, 1 + d], d the band of the set, and their squares
 * add up to ||Y||_F^2. For t = 1 - s^2, in [-e, 1] with e = (1 + d)^2 - 1, the sum of t is
 * known, and ||I - Y Y^T||_F^2 is that of t^2: at least its square over m, and at most what
 * the chord t^2 <= (1 - e) t + e allows. */
void mu_certify_by_trace(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    double m = (double)plan->m, trace = 0;
    double high = 1 + plan->direct->deviation, e = high * high - 1;
    for (size_t i = 0; i < plan->m; i++) {
        trace += it->row_sums[i];
    }
    it->certificate.deviation = fabs(m - trace) / sqrt(m);
    it->certificate.bound = sqrt(fmax((1 - e) * (m - trace) + e * m, 0));
    it->certificate.bound = fmax(it->certificate.bound, it->certificate.deviation);
}

void mu_certify_exactly(mu_iteration *it)
{
    muonium_certificate *c = &it->certificate;
    /* In the half modes, too, R is not rounded here: the result is measured, not iterated. */
    it->with.kernel = it->plan->kernel;
    it->with.separate = false;
    mu_gram_of_x(it);
    mu_look seen = mu_look_at_gram(it);
    c->orthogonality_error = c->bound = sqrt(seen.off + seen.strayed);
    if (it->plan->direct) {
        c->deviation = c->bound;
    }
    mu_singular_range(it, &c->sigma_min, &c->sigma_max);
}

muonium_certificate mu_unmeasured(int rescued)
{
    return (muonium_certificate){
        .rescued = rescued, .orthogonality_error = NAN, .sigma_min = NAN, .sigma_max = NAN};
}

void mu_certify_zero(mu_iteration *it, muonium_outcome outcome)
{
    muonium_certificate *c = &it->certificate;
    c->outcome = outcome;
    c->deviation = c->bound = c->orthogonality_error = sqrt((double)it->plan->m);
    c->sigma_min = c->sigma_max = 0;
}
