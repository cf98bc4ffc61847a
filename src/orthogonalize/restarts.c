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

enum {
    POINTS = 48,
    LEVELS = 3,
    TOPS = 6,
    OTHERS = 16,
    EXHAUSTIVE = 16,
    PARTS = TOPS + 1, /* of the harm: pairs by their largest value, and the shifts */
    SHIFTS = TOPS,
    MOST_CANDIDATES = EXHAUSTIVE * (EXHAUSTIVE - 1) / 2 /* pairs of positions; one: fewer */
};

/* The table, the singular values that are tried, and the errors of the standard form with
 * the ratios to them that are good enough. */
typedef struct trial {
    const double (*table)[3];
    int steps;
    double unit;
    double shift_start[LEVELS][POINTS], shift_exact[LEVELS][POINTS];
    double pair_start[TOPS][OTHERS]; /* the smaller of the two */
    double standard_shifts[LEVELS], standard_pairs[TOPS][OTHERS];
    double enough_shift, enough_join;
} trial;

/* The smallest singular value that is tried, as a part of the largest: far below what
 * rounding leaves of it, for long tables bring up even that. */
static double lowest_for(double unit)
{
    return fmin(1e-8, unit * 1e-3);
}

/* ---- shifted eigenvalues ---- */

/* Singular values on their way: those of X, and the eigenvalues of Q and R. */
typedef struct values {
    double x[POINTS], q[POINTS], r[POINTS];
} values;

static void start_shifts(const trial *y, int level, values *v)
{
    for (int i = 0; i < POINTS; i++) {
        v->x[i] = y->shift_start[level][i];
        v->q[i] = 1;
        v->r[i] = 0;
    }
}

/* Steps from, from + 1, ..., to - 1, each Gram matrix off by `shift`. */
static void run_shifted(const trial *y, const bool *restart, double shift, int from, int to,
                        values *v)
{
    for (int t = from; t < to; t++) {
        if (t == 0 || restart[t]) {
            double largest = 0;
            for (int i = 0; i < POINTS; i++) {
                v->x[i] *= v->q[i];
                double square = v->x[i] * v->x[i];
                largest = square > largest ? square : largest;
            }
            for (int i = 0; i < POINTS; i++) {
                v->r[i] = v->x[i] * v->x[i] + shift * largest;
                v->q[i] = 1;
            }
        }
        const double a = y->table[t][0], b = y->table[t][1], c = y->table[t][2];
        for (int i = 0; i < POINTS; i++) {
            double h = a + v->r[i] * (b + v->r[i] * c);
            v->q[i] *= h;
            v->r[i] *= h * h;
        }
    }
}

/* The largest error after all steps; NaN if any is. */
static double shift_error(const trial *y, int level, const values *v)
{
    double worst = 0;
    for (int i = 0; i < POINTS; i++) {
        double error = fabs(v->q[i] * v->x[i] - y->shift_exact[level][i]);
        worst = error <= worst ? worst : error; /* NaN lasts until the next */
    }
    return worst;
}

/* The larger of two errors; NaN if either is. */
static double worse(double a, double b)
{
    return isnan(a + b) ? NAN : fmax(a, b);
}

/* The errors of each level, shifted up or down. */
static void shift_errors(const trial *y, const bool *restart, double errors[LEVELS])
{
    for (int i = 0; i < LEVELS; i++) {
        values up, down;
        start_shifts(y, i, &up);
        down = up;
        run_shifted(y, restart, y->unit, 0, y->steps, &up);
        run_shifted(y, restart, -y->unit, 0, y->steps, &down);
        errors[i] = worse(shift_error(y, i, &up), shift_error(y, i, &down));
    }
}

/* The harm that such errors do, as a multiple of what is good enough; infinite if unknown. */
static double harm_of_shifts(const trial *y, const double errors[LEVELS])
{
    double logarithm = 0;
    for (int i = 0; i < LEVELS; i++) {
        logarithm += log(errors[i] / y->standard_shifts[i]) / LEVELS;
    }
    double value = exp(logarithm) / y->enough_shift;
    return isnan(value) ? INFINITY : value;
}

/* ---- joined directions ---- */

/* The largest singular values that are tried, as parts of the norm. */
static const double tops[TOPS] = {0.97, 0.85, 0.7, 0.5, 0.25, 0.0625};

static double larger(double a, double b)
{
    return fabs(a) > fabs(b) ? a : b;
}

/* Symmetric 2 x 2 matrices, side by side so that loops over them become vectors: two
 * values, and what joins them. */
typedef struct pairs {
    double first[OTHERS], second[OTHERS], join[OTHERS];
} pairs;

/* a = one triangle of the product a b of matrices that nearly commute: which of the two
 * elements off the diagonal it is depends on the basis, so take the larger. */
static void multiply(pairs *restrict a, const pairs *restrict b, double unit)
{
    for (int i = 0; i < OTHERS; i++) {
        double first = a->first[i] * b->first[i], second = a->second[i] * b->second[i];
        double join = larger(a->first[i] * b->join[i] + a->join[i] * b->second[i],
                             a->second[i] * b->join[i] + a->join[i] * b->first[i]);
        a->join[i] = join + copysign(unit * fabs(larger(first, second)), join);
        a->first[i] = first;
        a->second[i] = second;
    }
}

/* h = a I + b R + c R^2 */
static void polynomial(pairs *restrict h, const double abc[3], const pairs *restrict r, double unit)
{
    double a = abc[0], b = abc[1], c = abc[2];
    for (int i = 0; i < OTHERS; i++) {
        double first = r->first[i], second = r->second[i], size = fabs(larger(first, second));
        double join = (b + c * (first + second)) * r->join[i];
        h->first[i] = a + first * (b + first * c);
        h->second[i] = a + second * (b + second * c);
        h->join[i] = join + copysign(unit * size * (fabs(b) + fabs(c) * size), join);
    }
}

/* What of the direction of the first singular value, the largest, ends up in that of
 * the second. */
static void join_errors(const trial *y, const bool *restart, int top, double leak[OTHERS])
{
    double large[OTHERS], small[OTHERS], unit = y->unit;
    pairs q, r, h;
    for (int i = 0; i < OTHERS; i++) {
        large[i] = tops[top];
        small[i] = y->pair_start[top][i];
        leak[i] = 0; /* that part of X */
    }
    for (int t = 0; t <= y->steps; t++) {
        bool first = t == 0 || t == y->steps || restart[t];
        for (int i = 0; first && t > 0 && i < OTHERS; i++) {
            leak[i] = fabs(q.second[i] * leak[i]) + fabs(q.join[i] * large[i]) +
                      unit * fabs(q.first[i] * large[i]);
            large[i] *= q.first[i];
            small[i] *= q.second[i];
        }
        if (t == y->steps) {
            break;
        }
        for (int i = 0; first && i < OTHERS; i++) {
            r.first[i] = large[i] * large[i];
            r.second[i] = small[i] * small[i];
            r.join[i] = leak[i] * fabs(large[i]) + unit * fmax(r.first[i], r.second[i]);
        }
        polynomial(&h, y->table[t], &r, unit);
        if (first) {
            q = h;
        } else {
            multiply(&q, &h, unit);
        }
        multiply(&r, &h, unit);
        multiply(&r, &h, unit);
    }
}

/* ---- the choice ---- */

/* What the trial of a table needs: the standard form restarts at every step. */
static void measure_standard(trial *y)
{
    /* The half types round Q and all else as well, which the shifts leave out: they
     * must stay closer. */
    bool half = y->unit > 0x1p-20, every[MUONIUM_MAX_STEPS];
    y->enough_shift = half ? 4 : 32;
    y->enough_join = half ? 4 : 24;
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        every[t] = true;
    }
    for (int i = 0; i < LEVELS * POINTS; i++) {
        int level = i / POINTS, point = i % POINTS;
        double x = ldexp(1, -1 - level) * pow(lowest_for(y->unit), (double)point / (POINTS - 1));
        y->shift_start[level][point] = x;
        y->shift_exact[level][point] = mu_compose(y->table, 0, y->steps, x);
    }
    shift_errors(y, every, y->standard_shifts);
    for (int i = 0; i < LEVELS; i++) {
        y->standard_shifts[i] = fmax(y->standard_shifts[i], y->unit);
    }
    for (int top = 0; top < TOPS; top++) {
        for (int i = 0; i < OTHERS; i++) {
            y->pair_start[top][i] = tops[top] * pow(10, -8.0 * i / (OTHERS - 1));
        }
        join_errors(y, every, top, y->standard_pairs[top]);
        for (int i = 0; i < OTHERS; i++) {
            y->standard_pairs[top][i] = fmax(y->standard_pairs[top][i], y->unit);
        }
    }
}

/* The same of the pairs with one largest value. */
static double harm_of_joins(const trial *y, const bool *restart, int top)
{
    double leak[OTHERS], worst = 0;
    join_errors(y, restart, top, leak);
    for (int i = 0; i < OTHERS; i++) {
        double ratio = leak[i] / y->standard_pairs[top][i];
        worst = ratio <= worst ? worst : ratio; /* NaN lasts until the next */
    }
    return isnan(worst) ? INFINITY : worst / y->enough_join;
}

static double harm(const trial *y, const bool *restart, int part)
{
    double errors[LEVELS];
    if (part != SHIFTS) {
        return harm_of_joins(y, restart, part);
    }
    shift_errors(y, restart, errors);
    return harm_of_shifts(y, errors);
}

/* One or two more positions, and one part of the harm that is left. */
typedef struct candidate {
    int first, second;
    double bound;
    bool done;
} candidate;

static void set(bool *restart, const candidate *c, bool value)
{
    restart[c->first] = restart[c->second] = value;
}

/* The harm that shifts do with each candidate. They are in order of their first position: up
 * to there all go the same way. */
static void bound_by_shifts(const trial *y, bool *restart, candidate *candidates, int count)
{
    double errors[MOST_CANDIDATES][LEVELS];
    for (int run = 0; run < 2 * LEVELS; run++) {
        double shift = run % 2 != 0 ? -y->unit : y->unit;
        int level = run / 2, at = 0;
        values shared, v;
        start_shifts(y, level, &shared);
        for (int i = 0; i < count; i++) {
            run_shifted(y, restart, shift, at, candidates[i].first, &shared);
            at = candidates[i].first;
            v = shared;
            set(restart, &candidates[i], true);
            run_shifted(y, restart, shift, at, y->steps, &v);
            set(restart, &candidates[i], false);
            double error = shift_error(y, level, &v);
            errors[i][level] = run % 2 == 0 ? error : worse(errors[i][level], error);
        }
    }
    for (int i = 0; i < count; i++) {
        candidates[i].bound = harm_of_shifts(y, errors[i]);
    }
}

/* All that may be added to `restart`, with bounds from one part of the harm. */
static int list_candidates(const trial *y, int positions, bool *restart, int part,
                           candidate *candidates)
{
    int count = 0;
    for (int first = 1; first < y->steps; first++) {
        for (int second = first; second < (positions == 2 ? y->steps : first + 1); second++) {
            if (!restart[first] && !restart[second]) { /* one more, even if it does not help */
                candidates[count++] = (candidate){first, second, 0, false};
            }
        }
    }
    if (part == SHIFTS) {
        bound_by_shifts(y, restart, candidates, count);
    } else {
        for (int i = 0; i < count; i++) {
            set(restart, &candidates[i], true);
            candidates[i].bound = harm(y, restart, part);
            set(restart, &candidates[i], false);
        }
    }
    return count;
}

/* The candidate with the lowest bound that is not done, the first of equal ones; -1: none. */
static int next_candidate(const candidate *candidates, int count)
{
    int next = -1;
    for (int i = 0; i < count; i++) {
        if (!candidates[i].done && (next < 0 || candidates[i].bound < candidates[next].bound)) {
            next = i;
        }
    }
    return next;
}

/* Add to `restart` the one or two positions that help most, of equal ones the first; the harm
 * that is left. `*part` is the part in which there was most harm, then that in which there is:
 * as the harm is the largest of its parts, this one rules out most candidates. */
static double improve(const trial *y, int positions, bool *restart, int *part)
{
    candidate candidates[MOST_CANDIDATES];
    int first = *part, best = -1, next;
    int count = list_candidates(y, positions, restart, first, candidates);
    double least = INFINITY;
    while ((next = next_candidate(candidates, count)) >= 0 && candidates[next].bound <= least) {
        candidate *c = &candidates[next];
        double value = c->bound;
        int worst = first;
        c->done = true;
        set(restart, c, true);
        for (int i = 0; i < PARTS && (value < least || next < best || best < 0); i++) {
            double other = i == first ? 0 : harm(y, restart, i);
            if (other > value) {
                value = other;
                worst = i;
            }
        }
        set(restart, c, false);
        if (value < least || (!(value > least) && next < best) || best < 0) {
            least = value;
            best = next;
            *part = worst;
        }
    }
    if (best >= 0) {
        set(restart, &candidates[best], true);
    }
    return least;
}

/* A direction in which X is exactly zero, as most are in a matrix of ones, never leaves zero,
 * while rounding may make its eigenvalue of R negative, and that grows by a^2 every step. The
 * trials above know only singular values that long tables bring up to 1. The half types round
 * so coarsely that no choice would do, but restarting before every step. */
static void bound_growth(const trial *y, bool *restart)
{
    const double limit = sqrt(0.1 / y->unit); /* then the eigenvalue stays above -0.1 */
    double growth = 1;
    for (int t = 0; t < y->steps && y->unit < 0x1p-20; t++) {
        double a = fabs(y->table[t][0]);
        restart[t] = restart[t] || (t > 0 && growth * a > limit);
        growth = restart[t] ? a : growth * a;
    }
}

static void search(const double (*table)[3], int steps, double unit, bool *restart)
{
    /* Ratios hardly depend on the unit, but whether a negative eigenvalue gets out of
     * hand does, and real shifts are a few units. */
    trial y = {.table = table, .steps = steps, .unit = unit * (unit < 0x1p-20 ? 8 : 1)};
    double left = 0;
    int part = 0;
    measure_standard(&y);
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        restart[t] = false;
    }
    for (int i = 0; steps > 1 && i < PARTS; i++) {
        double value = harm(&y, restart, i);
        part = value > left ? i : part;
        left = fmax(left, value);
    }
    /* One; else the best pair (for long tables the one kept and extended, as all
     * pairs take too long); else one more at a time. */
    if (left > 1) {
        left = improve(&y, 1, restart, &part);
    }
    if (left > 1 && steps <= EXHAUSTIVE) {
        for (int t = 0; t < steps; t++) {
            restart[t] = false;
        }
        left = improve(&y, 2, restart, &part);
    }
    for (int count = 2; left > 1 && count < steps; count++) {
        left = improve(&y, 1, restart, &part);
    }
    bound_growth(&y, restart);
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
