/*
 * restarts.c: where the Gram form must start afresh.
 *
 * Rounding disturbs R in two ways, and both errors grow until R is taken from X
 * again. It shifts eigenvalues by about `unit` times the largest, so that small ones
 * may come out negative, and such an error grows by about a^2 per step. And it joins
 * what should be separate: R, Q and their products get elements that mix the
 * direction of a large singular value into that of a small one, where later steps
 * enlarge them; a few large singular values beside small ones suffer most.
 *
 * The harm is computed, not guessed: the iteration is run on single numbers, each
 * Gram matrix off by that shift in either direction; and on pairs of singular
 * values, as 2 x 2 matrices in the basis of the exact directions. What counts is the
 * ratio to the same error of the standard form, which restarts at every step.
 *
 * How large the first R is depends on how many singular values share the norm: the
 * ratio for shifts is averaged (geometrically) over largest singular values of 1/2,
 * 1/4 and 1/8 of it, that for pairs is the worst of six. Both take every rounding at
 * its worst, while real rounding averages out over the elements: with the limits
 * here, the two forms differ by a factor below 6 on the hard spectra that the tests
 * run.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/plan.h"

enum { POINTS = 48, TOPS = 6, OTHERS = 16, PAIRS = TOPS * OTHERS, EXHAUSTIVE = 16 };

/* The errors of the standard form, and the ratios to them that are good enough. */
typedef struct yardstick {
    double shifts[3];
    double pairs[PAIRS];
    double enough_shift, enough_join;
} yardstick;

/* The smallest singular value that is tried, as a part of the largest: far below what
 * rounding leaves of it, for long tables bring up even that. */
static double lowest_for(double unit)
{
    return fmin(1e-8, fabs(unit) * 1e-3);
}

/* ---- shifted eigenvalues ---- */

/* The largest error at singular values from `top` down. */
static double shift_error(const double (*table)[3], int steps, const bool *restart, double shift,
                          double top)
{
    double x[POINTS], q[POINTS], r[POINTS], exact[POINTS], worst = 0;
    for (int i = 0; i < POINTS; i++) {
        x[i] = top * pow(lowest_for(shift), (double)i / (POINTS - 1));
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

static void shift_errors(const double (*table)[3], int steps, const bool *restart, double unit,
                         double errors[3])
{
    for (int i = 0; i < 3; i++) {
        double top = ldexp(1, -1 - i);
        double up = shift_error(table, steps, restart, unit, top);
        double down = shift_error(table, steps, restart, -unit, top);
        errors[i] = isnan(up + down) ? NAN : fmax(up, down);
    }
}

/* ---- joined directions ---- */

/* The largest singular values that are tried, as parts of the norm. */
static const double tops[TOPS] = {0.97, 0.85, 0.7, 0.5, 0.25, 0.0625};

static double larger(double a, double b)
{
    return fabs(a) > fabs(b) ? a : b;
}

/* A symmetric 2 x 2 matrix: two values, and what joins them. */
typedef struct pair {
    double value[2];
    double join;
} pair;

/* One triangle of the product of two matrices that nearly commute: which of the two
 * elements off the diagonal it is depends on the basis, so take the larger. */
static pair multiply(pair a, pair b, double unit)
{
    pair c = {{a.value[0] * b.value[0], a.value[1] * b.value[1]}, 0};
    c.join = larger(a.value[0] * b.join + a.join * b.value[1],
                    a.value[1] * b.join + a.join * b.value[0]);
    c.join += copysign(unit * fabs(larger(c.value[0], c.value[1])), c.join);
    return c;
}

/* a I + b R + c R^2 */
static pair polynomial(const double abc[3], pair r, double unit)
{
    pair h = {{0, 0}, (abc[1] + abc[2] * (r.value[0] + r.value[1])) * r.join};
    double size = fabs(larger(r.value[0], r.value[1]));
    for (int i = 0; i < 2; i++) {
        h.value[i] = abc[0] + r.value[i] * (abc[1] + r.value[i] * abc[2]);
    }
    h.join += copysign(unit * size * (fabs(abc[1]) + fabs(abc[2]) * size), h.join);
    return h;
}

/* What of the direction of the first singular value, the largest, ends up in that of
 * the second. */
static double join_error(const double (*table)[3], int steps, const bool *restart, double unit,
                         const double start[2])
{
    double x[2] = {start[0], start[1]};
    double leak = 0; /* that part of X */
    pair q = {{1, 1}, 0}, r = q;
    for (int t = 0; t <= steps; t++) {
        bool first = t == 0 || t == steps || restart[t];
        if (first && t > 0) {
            leak = fabs(q.value[1] * leak) + fabs(q.join * x[0]) + unit * fabs(q.value[0] * x[0]);
            x[0] *= q.value[0];
            x[1] *= q.value[1];
        }
        if (t == steps) {
            break;
        }
        if (first) {
            double largest = fmax(x[0] * x[0], x[1] * x[1]);
            r = (pair){{x[0] * x[0], x[1] * x[1]}, leak * fabs(x[0])};
            r.join += unit * largest;
        }
        pair h = polynomial(table[t], r, unit);
        q = first ? h : multiply(q, h, unit);
        r = multiply(h, multiply(r, h, unit), unit);
    }
    return leak;
}

static void join_errors(const double (*table)[3], int steps, const bool *restart, double unit,
                        double errors[PAIRS])
{
    for (int i = 0; i < PAIRS; i++) {
        double top = tops[i / OTHERS];
        const double start[2] = {top, top * pow(10, -8.0 * (i % OTHERS) / (OTHERS - 1))};
        errors[i] = join_error(table, steps, restart, unit, start);
    }
}

/* ---- the choice ---- */

static yardstick measure_standard(const double (*table)[3], int steps, double unit)
{
    /* The half types round Q and all else as well, which the shifts leave out: they
     * must stay closer. */
    bool half = unit > 0x1p-20;
    yardstick y = {.enough_shift = half ? 4 : 32, .enough_join = half ? 4 : 24};
    bool every[MUONIUM_MAX_STEPS];
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        every[t] = true;
    }
    shift_errors(table, steps, every, unit, y.shifts);
    join_errors(table, steps, every, unit, y.pairs);
    for (int i = 0; i < 3; i++) {
        y.shifts[i] = fmax(y.shifts[i], unit);
    }
    for (int i = 0; i < PAIRS; i++) {
        y.pairs[i] = fmax(y.pairs[i], unit);
    }
    return y;
}

/* The harm as a multiple of what is good enough. */
static double harm(const double (*table)[3], int steps, const bool *restart, double unit,
                   const yardstick *y)
{
    double shifts[3], pairs[PAIRS], logarithm = 0, worst = 0;
    shift_errors(table, steps, restart, unit, shifts);
    join_errors(table, steps, restart, unit, pairs);
    for (int i = 0; i < 3; i++) {
        logarithm += log(shifts[i] / y->shifts[i]) / 3;
    }
    for (int i = 0; i < PAIRS; i++) {
        double ratio = pairs[i] / y->pairs[i];
        worst = ratio <= worst ? worst : ratio; /* NaN stays */
    }
    double harm_of_shifts = exp(logarithm) / y->enough_shift,
           harm_of_joins = worst / y->enough_join;
    return isnan(harm_of_shifts + harm_of_joins) ? INFINITY : fmax(harm_of_shifts, harm_of_joins);
}

/* Add to `restart` the one or two positions that help most; the harm that is left. */
static double improve(const double (*table)[3], int steps, double unit, const yardstick *y,
                      int count, bool *restart)
{
    double best = INFINITY;
    int best_first = 0, best_second = 0;
    for (int first = 1; first < steps; first++) {
        for (int second = first; second < (count == 2 ? steps : first + 1); second++) {
            bool trial[MUONIUM_MAX_STEPS];
            if (restart[first] || restart[second]) {
                continue; /* one more each time, even where one alone does not help */
            }
            for (int t = 0; t < steps; t++) {
                trial[t] = restart[t] || t == first || t == second;
            }
            double value = harm(table, steps, trial, unit, y);
            if (best_first == 0 || value < best) {
                best = value;
                best_first = first;
                best_second = second;
            }
        }
    }
    restart[best_first] = restart[best_second] = true;
    return best;
}

static void search(const double (*table)[3], int steps, double unit, bool *restart)
{
    /* Ratios hardly depend on the unit, but whether a negative eigenvalue gets out of
     * hand does, and real shifts are a few units. */
    unit *= unit < 0x1p-20 ? 8 : 1;
    yardstick y = measure_standard(table, steps, unit);
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        restart[t] = false;
    }
    if (steps == 1 || harm(table, steps, restart, unit, &y) <= 1) {
        return;
    }
    /* One; else the best pair (for long tables the one kept and extended, as all
     * pairs take too long); else one more at a time. */
    double left = improve(table, steps, unit, &y, 1, restart);
    if (left > 1 && steps <= EXHAUSTIVE) {
        for (int t = 0; t < steps; t++) {
            restart[t] = false;
        }
        left = improve(table, steps, unit, &y, 2, restart);
    }
    for (int count = 2; left > 1 && count < steps; count++) {
        left = improve(table, steps, unit, &y, 1, restart);
    }
}

/* ---- what was found before ---- */

/* A search takes a fraction of a millisecond and more, and every plan of a model asks for
 * the same: the last few answers are kept. Nobody waits for them: who finds them in use,
 * which in a forked child may be forever, searches. */
enum { KEPT = 8 };

typedef struct answer {
    int steps; /* 0: empty */
    double unit;
    double table[MUONIUM_MAX_STEPS][3];
    bool restart[MUONIUM_MAX_STEPS];
} answer;

static answer kept[KEPT];
static unsigned next_kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static bool recall(const double (*table)[3], int steps, double unit, bool *restart)
{
    bool found = false;
    if (pthread_mutex_trylock(&kept_lock) != 0) {
        return false;
    }
    for (int i = 0; i < KEPT && !found; i++) {
        size_t bytes = (size_t)steps * sizeof table[0];
        found = kept[i].steps == steps && kept[i].unit == unit &&
                memcmp(kept[i].table, table, bytes) == 0;
        if (found) {
            memcpy(restart, kept[i].restart, sizeof kept[i].restart);
        }
    }
    pthread_mutex_unlock(&kept_lock);
    return found;
}

static void keep(const double (*table)[3], int steps, double unit, const bool *restart)
{
    if (pthread_mutex_trylock(&kept_lock) != 0) {
        return;
    }
    answer *place = &kept[next_kept++ % KEPT];
    place->steps = steps;
    place->unit = unit;
    memcpy(place->table, table, (size_t)steps * sizeof table[0]);
    memcpy(place->restart, restart, sizeof place->restart);
    pthread_mutex_unlock(&kept_lock);
}

void mu_choose_restarts(const double (*table)[3], int steps, double unit, bool *restart)
{
    if (!recall(table, steps, unit, restart)) {
        search(table, steps, unit, restart);
        keep(table, steps, unit, restart);
    }
}
