/*
 * restarts.c: where the Gram form must start afresh.
 *
 * Rounding shifts the eigenvalues of R by about `unit` times its largest one, so
 * that small ones may come out negative; from then on such an error grows by about
 * a^2 per step until R is taken from X again. The harm is computed, not guessed:
 * the iteration is run on single numbers, each Gram matrix off by that shift in
 * either direction, and the result compared with the exact composition. What
 * counts is the ratio to the same error of the standard form, which restarts at
 * every step.
 *
 * How large the first R is depends on how many singular values share the norm; the
 * ratio is averaged (geometrically) over largest singular values of 1/2, 1/4 and
 * 1/8 of it. A shift of a whole unit in one direction is more than real rounding
 * does, which averages out over the elements: at a ratio of 32 here, the two forms
 * differ by a factor below 6 on the hard spectra that the tests run.
 */
#include <math.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/plan.h"

enum { POINTS = 48, EXHAUSTIVE = 16 };

/* The ratio that is good enough. The half types round Q and all else as well, which
 * the model leaves out: they must stay closer. */
static double enough_for(double unit)
{
    return unit < 0x1p-20 ? 32 : 4;
}

/* The largest error at singular values from `top` down. */
static double error_of(const double (*table)[3], int steps, const bool *restart, double shift,
                       double top)
{
    double x[POINTS], q[POINTS], r[POINTS], exact[POINTS], worst = 0;
    for (int i = 0; i < POINTS; i++) {
        x[i] = top * pow(10, -8.0 * i / (POINTS - 1));
        exact[i] = mu_compose(table, 0, steps, x[i]);
        q[i] = 1;
        r[i] = 0;
    }
    for (int t = 0; t < steps; t++) {
        if (t == 0 || restart[t]) {
            double largest = 0;
            for (int i = 0; i < POINTS; i++) {
                x[i] *= q[i];
                largest = fmax(largest, x[i] * x[i]);
            }
            for (int i = 0; i < POINTS; i++) {
                r[i] = x[i] * x[i] + shift * largest;
                q[i] = 1;
            }
        }
        for (int i = 0; i < POINTS; i++) {
            double h = table[t][0] + r[i] * (table[t][1] + r[i] * table[t][2]);
            q[i] *= h;
            r[i] *= h * h;
        }
    }
    for (int i = 0; i < POINTS; i++) {
        double error = fabs(q[i] * x[i] - exact[i]);
        worst = error <= worst ? worst : error; /* NaN stays */
    }
    return worst;
}

/* The logarithm of the mean ratio, or of the mean error itself without `reference`. */
static double harm(const double (*table)[3], int steps, const bool *restart, double unit,
                   const double *reference, double *errors)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double top = ldexp(1, -1 - i);
        double error = fmax(error_of(table, steps, restart, unit, top),
                            error_of(table, steps, restart, -unit, top));
        if (errors) {
            errors[i] = error;
        }
        sum += log(error / (reference ? reference[i] : 1));
    }
    return isnan(sum) ? INFINITY : sum / 3;
}

/* Add to `restart` the one or two positions that help most; the harm that is left. */
static double improve(const double (*table)[3], int steps, double unit, const double *reference,
                      int count, bool *restart)
{
    double best = INFINITY;
    int best_first = 1, best_second = 1;
    for (int first = 1; first < steps; first++) {
        for (int second = first; second < (count == 2 ? steps : first + 1); second++) {
            bool trial[MUONIUM_MAX_STEPS];
            for (int t = 0; t < steps; t++) {
                trial[t] = restart[t] || t == first || t == second;
            }
            double value = harm(table, steps, trial, unit, reference, NULL);
            if (value < best) {
                best = value;
                best_first = first;
                best_second = second;
            }
        }
    }
    restart[best_first] = restart[best_second] = true;
    return best;
}

void mu_choose_restarts(const double (*table)[3], int steps, double unit, bool *restart)
{
    bool every[MUONIUM_MAX_STEPS];
    double reference[3], enough = log(enough_for(unit));
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        every[t] = true;
        restart[t] = false;
    }
    harm(table, steps, every, unit, NULL, reference);
    for (int i = 0; i < 3; i++) {
        reference[i] = fmax(reference[i], unit);
    }
    if (steps == 1 || harm(table, steps, restart, unit, reference, NULL) <= enough) {
        return;
    }
    /* One; else the best pair (for long tables the one kept and extended, as all
     * pairs take too long); else one more at a time. */
    double left = improve(table, steps, unit, reference, 1, restart);
    if (left > enough && steps <= EXHAUSTIVE) {
        for (int t = 0; t < steps; t++) {
            restart[t] = false;
        }
        left = improve(table, steps, unit, reference, 2, restart);
    }
    for (int count = 2; left > enough && count < steps; count++) {
        left = improve(table, steps, unit, reference, 1, restart);
    }
}
