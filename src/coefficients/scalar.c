/*
 * scalar.c: the effect of a table of coefficients on a single singular value, and its stable edge.
 */
#include "coefficients/coefficients.h"

#include <math.h>

double mu_quintic(const double abc[3], double x)
{
    const double y = x * x;
    return x * (abc[0] + y * (abc[1] + y * abc[2]));
}

double mu_compose(const double (*table)[3], int first, int count, double x)
{
    for (int t = first; t < count; t++) {
        x = mu_quintic(table[t], x);
    }
    return x;
}

typedef struct range {
    double low;
    double high;
} range;

static void widen(range *values, double value)
{
    if (isnan(value)) { /* infinity minus infinity: no bound */
        *values = (range){-INFINITY, INFINITY};
    }
    values->low = fmin(values->low, value);
    values->high = fmax(values->high, value);
}

/* Include the value at the turning point x if `from` contains it. */
static void widen_at(range *values, const double abc[3], range from, double x)
{
    if (x > from.low && x < from.high) {
        widen(values, mu_quintic(abc, x));
    }
}

/* The range of one iteration on `from`: its values at the ends and at the turning points, where
 * a + 3b y + 5c y^2 = 0 with y = x^2. */
static range image(const double abc[3], range from)
{
    range values = {INFINITY, -INFINITY};
    widen(&values, mu_quintic(abc, from.low));
    widen(&values, mu_quintic(abc, from.high));

    /* The roots as h / (5c) and a / h: neither form cancels, and a cubic
     * (c = 0) keeps its one root. A quotient 0/0 fails every comparison. */
    const double half = 1.5 * abc[1];
    const double discriminant = half * half - 5.0 * abc[2] * abc[0];
    if (!isfinite(discriminant)) {
        return (range){-INFINITY, INFINITY};
    }
    const double h = -(half + copysign(sqrt(fmax(discriminant, 0.0)), half));
    const double roots[2] = {h / (5.0 * abc[2]), abc[0] / h};
    for (int i = 0; i < 2; i++) {
        if (discriminant >= 0.0 && roots[i] > 0.0) {
            widen_at(&values, abc, from, sqrt(roots[i]));
            widen_at(&values, abc, from, -sqrt(roots[i]));
        }
    }
    return values;
}

/* The range of the composition on `from`.
 *
 * The image of an interval under a continuous function is an interval, so the
 * image of the image is the exact range of the composition: nothing is
 * overestimated, and no peak is missed between sample points. Beyond the range of
 * double both ends are infinite. */
static range composed(const double (*table)[3], int first, int count, range from)
{
    for (int t = first; t < count; t++) {
        from = image(table[t], from);
        if (!isfinite(from.low) || !isfinite(from.high)) {
            return (range){-INFINITY, INFINITY};
        }
    }
    return from;
}

double mu_reach(const double (*table)[3], int first, int count, double x)
{
    range values = composed(table, first, count, (range){0.0, x});
    return fmax(-values.low, values.high);
}

double mu_greatest_reach(const double (*table)[3], int count)
{
    double greatest = 1.0;
    for (int first = 0; first < count; first++) {
        range values = {0.0, 1.0};
        for (int t = first; t < count && isfinite(greatest); t++) {
            values = composed(table, t, t + 1, values);
            greatest = fmax(greatest, fmax(-values.low, values.high));
        }
    }
    return greatest;
}

/* Whether the composition stays below 2 in magnitude on all of [1, x]. */
static bool stable_up_to(const double (*table)[3], int first, int count, double x)
{
    range values = composed(table, first, count, (range){1.0, x});
    return values.low > -2.0 && values.high < 2.0;
}

double mu_stable_edge(const double (*table)[3], int first, int count)
{
    double stable = 1.0;
    double unstable = MU_STABLE_EDGE_MAX;
    if (!stable_up_to(table, first, count, stable)) {
        return stable;
    }
    if (stable_up_to(table, first, count, unstable)) {
        return unstable;
    }
    for (;;) {
        const double middle = 0.5 * (stable + unstable);
        if (middle <= stable || middle >= unstable) {
            return unstable;
        }
        if (stable_up_to(table, first, count, middle)) {
            stable = middle;
        } else {
            unstable = middle;
        }
    }
}
