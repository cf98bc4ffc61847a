/*
 * polar_express.c: the generators of optimal odd polynomials.
 *
 * Each iteration uses the odd polynomial p of degree 5 (or 3) that is closest to 1
 * on the interval [l, u] of the singular values. The textbook way solves
 * p(x) = 1 -+ E at four points of [l, u] for a, b, c, E. These points merge as
 * the iteration converges, and the system becomes singular to working
 * precision. Here the same optimum is found in a form that stays well
 * conditioned down to u = l.
 *
 * Scale. With m = (l + u)/2 and w = (u - l)/(u + l), p(x) = f(x/m), where f is
 * optimal on [1 - w, 1 + w]: one problem with one parameter, w in [0, 1].
 *
 * Shape. The optimum deviates from 1 by E, -E, E, -E at 1 - w, q, r, 1 + w,
 * where q < r are its extrema, so with a constant k
 *     f'(x) = k (q^2 - x^2)(r^2 - x^2).
 * Write x = 1 + w t, q = 1 + w tau0, r = 1 + w tau1. Then
 *     q^2 - x^2 = -w A0(t),   A0(t) = (t - tau0)(2 + w (t + tau0)),
 * likewise A1, and f' dx = k w^3 A0 A1 dt: every power of w stands outside.
 * Equal deviations at 1 - w and r, and at q and 1 + w, say
 *     integral of A0 A1 over [-1, tau1] = 0 = integral of A0 A1 over [tau0, 1],
 * two smooth equations for tau0, tau1 whose Jacobian has a condition number
 * of a few units for all w; at w = 0 the solution is -1/2, 1/2. Newton's method
 * solves them. k follows from f(1 - w) + f(1 + w) = 2, and
 *     E = (k w^3 / 2) * integral of A0 A1 over [-1, 1],
 * which is accurate to rounding however small w is.
 *
 * Recursion. The next interval is [1 - e, 1 + e] with e = 1 - p(l/s). Computed
 * by that formula, e would consist of rounding errors near convergence; instead
 * it is a sum of positive terms, E plus the integral of p' from l/s to l.
 */
#include "coefficients/coefficients.h"

#include <math.h>
#include <string.h>

/* An optimal polynomial on [1 - width, 1 + width]: its derivative is
 * slope * product of (extremum[i]^2 - x^2). */
typedef struct optimum {
    double row[3];
    double width;
    double error; /* largest deviation from 1, taken at 1 - width from below */
    double slope;
    int extrema;
    double extremum[2];
    double gap[2]; /* extremum[i] - (1 - width) */
} optimum;

/* Gauss's rule with three points, exact for the quartics of this file. */
static const double gauss_point[3] = {-0.77459666924148337704, 0.0, 0.77459666924148337704};
static const double gauss_weight[3] = {5.0 / 9.0, 8.0 / 9.0, 5.0 / 9.0};

/* The integrals over [from, to] of A0, A1 and A0 A1 of the head comment. */
static void integrate_factors(double width, const double tau[2], double from, double to,
                              double integral[3])
{
    const double half = 0.5 * (to - from);
    integral[0] = integral[1] = integral[2] = 0.0;
    for (int i = 0; i < 3; i++) {
        const double t = 0.5 * (from + to) + half * gauss_point[i];
        const double first = (t - tau[0]) * (2.0 + width * (t + tau[0]));
        const double second = (t - tau[1]) * (2.0 + width * (t + tau[1]));
        integral[0] += half * gauss_weight[i] * first;
        integral[1] += half * gauss_weight[i] * second;
        integral[2] += half * gauss_weight[i] * (first * second);
    }
}

bool mu_find_extrema(double width, double tau[2])
{
    /* Within 0.03 of the solution for every width; three or four corrections suffice. */
    tau[0] = -0.5 + 0.25 * width;
    tau[1] = 0.5 + 0.15 * width;
    for (int iteration = 0; iteration < 20; iteration++) {
        double left[3];
        double right[3];
        integrate_factors(width, tau, -1.0, tau[1], left);
        integrate_factors(width, tau, tau[0], 1.0, right);

        /* dA0/dtau0 = -2q does not depend on t, and A0 A1 vanishes at the
         * moving end, so the Jacobian needs no integrals but these. */
        const double by_tau0 = -2.0 * (1.0 + width * tau[0]);
        const double by_tau1 = -2.0 * (1.0 + width * tau[1]);
        const double j00 = by_tau0 * left[1];
        const double j01 = by_tau1 * left[0];
        const double j10 = by_tau0 * right[1];
        const double j11 = by_tau1 * right[0];
        const double determinant = j00 * j11 - j01 * j10;
        const double change0 = (j11 * left[2] - j01 * right[2]) / determinant;
        const double change1 = (j00 * right[2] - j10 * left[2]) / determinant;
        tau[0] -= change0;
        tau[1] -= change1;
        if (!(tau[0] > -1.0 && tau[0] < tau[1] && tau[1] < 1.0)) {
            return false;
        }
        /* Convergence is quadratic: what remains after such a change is below rounding. */
        if (fabs(change0) + fabs(change1) < 1e-9) {
            return true;
        }
    }
    return false;
}

static bool optimal_quintic(double width, optimum *best)
{
    double tau[2];
    if (!mu_find_extrema(width, tau)) {
        return false;
    }
    const double q = 1.0 + width * tau[0];
    const double r = 1.0 + width * tau[1];
    const double sum = q * q + r * r;
    const double product = (q * r) * (q * r);
    const double w2 = width * width;

    /* f = k (x^5/5 - sum x^3/3 + product x), averaged over 1 - width and 1 + width. */
    const double average =
        (1.0 + w2 * (10.0 + 5.0 * w2)) / 5.0 - sum * (1.0 + 3.0 * w2) / 3.0 + product;
    double whole[3];
    integrate_factors(width, tau, -1.0, 1.0, whole);

    best->width = width;
    best->slope = 1.0 / average;
    best->error = 0.5 * best->slope * (w2 * width) * whole[2];
    best->row[0] = best->slope * product;
    best->row[1] = -best->slope * sum / 3.0;
    best->row[2] = best->slope / 5.0;
    best->extrema = 2;
    best->extremum[0] = q;
    best->extremum[1] = r;
    best->gap[0] = width * (1.0 + tau[0]);
    best->gap[1] = width * (1.0 + tau[1]);
    return true;
}

/* The cubic is explicit: one extremum q, q^2 = 1 + w^2/3, the mean of x^2. */
static bool optimal_cubic(double width, optimum *best)
{
    const double w2 = width * width;
    const double q2 = 1.0 + w2 / 3.0;
    const double q = sqrt(q2);
    const double gap = width + w2 / 3.0 / (1.0 + q);

    best->width = width;
    best->slope = 3.0 / (q2 * q + (1.0 - w2));
    best->error = 0.5 * best->slope * (gap * gap) * (2.0 * q + (1.0 - width)) / 3.0;
    best->row[0] = best->slope * q2;
    best->row[1] = -best->slope / 3.0;
    best->row[2] = 0.0;
    best->extrema = 1;
    best->extremum[0] = q;
    best->gap[0] = gap;
    return true;
}

/* f(1 - width - from) - f(1 - width - to) for 0 <= from <= to <= 1 - width, as
 * the integral of f', in which every factor is positive there. */
static double drop(const optimum *best, double from, double to)
{
    const double half = 0.5 * (to - from);
    double integral = 0.0;
    for (int i = 0; i < 3; i++) {
        const double y = 0.5 * (from + to) + half * gauss_point[i];
        double derivative = best->slope;
        for (int j = 0; j < best->extrema; j++) {
            derivative *= (best->gap[j] + y) * (best->extremum[j] + (1.0 - best->width) - y);
        }
        integral += half * gauss_weight[i] * derivative;
    }
    return integral;
}

/* The interval of the singular values. Its width is stored too: near convergence upper - lower
 * would lose its digits. */
typedef struct interval {
    double lower;
    double upper;
    double width; /* upper - lower */
} interval;

typedef bool optimal_polynomial(double width, optimum *best);

/* The row for the interval `values`, which becomes the interval after it. False if no row is
 * found. */
static bool next_row(optimal_polynomial *optimal, interval *values, double safety, double cushion,
                     double row[3])
{
    /* cushion * upper - lower, from differences that do not cancel. */
    const double excess = values->width - (1.0 - cushion) * values->upper;
    const bool cushioned = excess > 0.0;
    const double width = cushioned ? (1.0 - cushion) * values->upper : values->width;
    const double lower = cushioned ? cushion * values->upper : values->lower;
    const double centre = 0.5 * (lower + values->upper);
    const double skipped = cushioned ? excess / centre : 0.0;

    optimum best;
    if (!optimal(width / (lower + values->upper), &best)) {
        return false;
    }

    /* With p(l) = 1 - E - D and p(u) = 1 + E, centring them about 1 multiplies
     * by 2/(p(l) + p(u)) = 1/(1 - D/2). */
    const double below = drop(&best, 0.0, skipped);
    const double rescale = 1.0 / (1.0 - 0.5 * below);
    const double divisor = centre * (1.0 + safety);
    row[0] = rescale * best.row[0] / divisor;
    row[1] = rescale * best.row[1] / divisor / divisor / divisor;
    row[2] = rescale * best.row[2] / divisor / divisor / divisor / divisor / divisor;

    const double shift = values->lower * (safety / (1.0 + safety)) / centre;
    double deviation = rescale * (best.error + 0.5 * below + drop(&best, skipped, skipped + shift));
    if (deviation > 0.5) { /* here the lower end must keep its digits */
        values->lower = mu_quintic(row, values->lower);
        deviation = 1.0 - values->lower;
    } else {
        values->lower = 1.0 - deviation;
    }
    values->upper = 1.0 + deviation;
    values->width = 2.0 * deviation;
    return isfinite(row[0]) && isfinite(row[1]) && isfinite(row[2]) && isfinite(deviation);
}

muonium_status mu_check_steps(int steps)
{
    if (steps < 1 || steps > MUONIUM_MAX_STEPS) {
        return mu_fail(MUONIUM_INVALID, "steps is %d: it must be between 1 and %d", steps,
                       MUONIUM_MAX_STEPS);
    }
    return MUONIUM_OK;
}

/* The checks that both generators share. */
static muonium_status check_generator(int steps, double lower, double safety, double (*table)[3])
{
    if (mu_check_steps(steps) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (!(lower >= 0.0 && lower <= 1.0)) {
        return mu_fail(MUONIUM_INVALID,
                       "lower is %.15g: the smallest singular value must be between 0 and 1",
                       lower);
    }
    if (!(safety >= 0.0) || !isfinite(safety)) {
        return mu_fail(MUONIUM_INVALID, "safety is %.15g: it must be finite and at least 0",
                       safety);
    }
    if (table == NULL) {
        return mu_fail(MUONIUM_INVALID, "table is NULL: pass room for %d rows of 3 numbers", steps);
    }
    return MUONIUM_OK;
}

static muonium_status generate(optimal_polynomial *optimal, int steps, double lower, double safety,
                               double cushion, double (*table)[3])
{
    double rows[MUONIUM_MAX_STEPS][3];
    interval values = {lower, 1.0, 1.0 - lower};
    for (int t = 0; t < steps; t++) {
        /* The last iteration needs no margin. */
        const double margin = t + 1 < steps ? safety : 0.0;
        if (!next_row(optimal, &values, margin, cushion, rows[t])) {
            return mu_fail(
                MUONIUM_NOT_CONVERGED,
                "no optimal polynomial found for iteration %d of %d (lower %.15g, safety "
                "%.15g, cushion %.15g): use fewer steps or a smaller safety",
                t + 1, steps, lower, safety, cushion);
        }
    }
    memcpy(table, rows, (size_t)steps * sizeof rows[0]);
    return MUONIUM_OK;
}

muonium_status muonium_polar_express(int steps, double lower, double safety, double cushion,
                                     double (*table)[3])
{
    if (check_generator(steps, lower, safety, table) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (!(cushion >= 0.0 && cushion < 1.0)) {
        return mu_fail(MUONIUM_INVALID, "cushion is %.15g: it must be at least 0 and below 1",
                       cushion);
    }
    if (lower == 0.0 && cushion == 0.0) {
        return mu_fail(MUONIUM_INVALID,
                       "lower is 0 and cushion is 0: one of them must be above 0, since no "
                       "polynomial lifts a singular value of 0");
    }
    const mu_fenv environment = mu_fenv_enter();
    const muonium_status status = generate(optimal_quintic, steps, lower, safety, cushion, table);
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_polar_cubic(int steps, double lower, double safety, double (*table)[3])
{
    if (check_generator(steps, lower, safety, table) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (lower == 0.0) {
        return mu_fail(MUONIUM_INVALID,
                       "lower is 0: it must be above 0, since no polynomial lifts a singular "
                       "value of 0");
    }
    const mu_fenv environment = mu_fenv_enter();
    const muonium_status status = generate(optimal_cubic, steps, lower, safety, 0.0, table);
    mu_fenv_leave(environment);
    return status;
}
