/*
 * restarts.c: choose where the Gram form must compute R = X X^T again.
 *
 * Rounding disturbs R in two ways, and both errors grow until R is computed again:
 *
 *     shifts   Eigenvalues move by about `unit` times the largest. Small ones may turn negative,
 *              and such an error grows by about a^2 per iteration.
 *     joins    Elements of R, Q and their products couple the direction of a large singular value
 *              with that of a small one, and later iterations enlarge them. A few large singular
 *              values beside small ones suffer most.
 *
 * The harm is computed: shifts by running the iteration on single numbers, each Gram matrix off
 * by that shift in either direction; joins by running it on pairs of singular values, as 2 x 2
 * matrices in the basis of the exact directions. Harm is the ratio of the error to that of the
 * standard form, which restarts before each iteration.
 *
 * The size of the first R depends on how many singular values share the norm. So the ratio for
 * shifts is a geometric mean over largest singular values of 1/2, 1/4 and 1/8 of the norm, and
 * the ratio for joins is the worst of six. Both assume the worst case of each rounding, while
 * real rounding averages out over the elements. With the limits here, the two forms differ by a
 * factor below 6 on the hard spectra of the tests.
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
    PARTS = TOPS + 1, /* of the harm: joins by their largest value, then shifts */
    SHIFTS = TOPS,
    MOST_CANDIDATES = EXHAUSTIVE * (EXHAUSTIVE - 1) / 2 /* pairs of positions */
};

/* The table, the singular values to try, the errors of the standard form, and the ratios to them
 * that are acceptable. */
typedef struct trial {
    const double (*table)[3];
    int steps;
    double unit;
    double shift_start[LEVELS][POINTS], shift_exact[LEVELS][POINTS];
    double pair_start[TOPS][OTHERS]; /* the smaller of the two */
    double standard_shifts[LEVELS], standard_pairs[TOPS][OTHERS];
    double limit_shift, limit_join;
} trial;

/* The smallest singular value to try, relative to the largest. It is far below the rounding
 * error, because long tables raise even such values to 1. */
static double lowest_for(double unit)
{
    return fmin(1e-8, unit * 1e-3);
}

/* ---- shifted eigenvalues ---- */

/* Singular values of X, and the eigenvalues of Q and R. */
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

/* Iterations from, ..., to - 1, each Gram matrix off by `shift`. */
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

/* The largest error after all iterations, or NaN. */
static double shift_error(const trial *y, int level, const values *v)
{
    double worst = 0;
    for (int i = 0; i < POINTS; i++) {
        double error = fabs(v->q[i] * v->x[i] - y->shift_exact[level][i]);
        worst = error <= worst ? worst : error; /* the next error replaces a NaN */
    }
    return worst;
}

/* The larger of two errors; NaN if either is. */
static double worse(double a, double b)
{
    return isnan(a + b) ? NAN : fmax(a, b);
}

/* The error of each level, the worse of a shift up and a shift down. */
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

/* The harm of such errors, as a multiple of the limit; infinite if unknown. */
static double harm_of_shifts(const trial *y, const double errors[LEVELS])
{
    double logarithm = 0;
    for (int i = 0; i < LEVELS; i++) {
        logarithm += log(errors[i] / y->standard_shifts[i]) / LEVELS;
    }
    double value = exp(logarithm) / y->limit_shift;
    return isnan(value) ? INFINITY : value;
}

/* ---- joined directions ---- */

/* The largest singular values to try, relative to the norm. */
static const double tops[TOPS] = {0.97, 0.85, 0.7, 0.5, 0.25, 0.0625};

static double larger_in_magnitude(double a, double b)
{
    return fabs(a) > fabs(b) ? a : b;
}

/* Symmetric 2 x 2 matrices, as arrays so that loops vectorise: the diagonal, and the element off
 * the diagonal. */
typedef struct pairs {
    double first[OTHERS], second[OTHERS], join[OTHERS];
} pairs;

/* a = a b for matrices that nearly commute, one triangle. Which of the two elements off the
 * diagonal that is depends on the basis, so take the larger. */
static void multiply_pairs(pairs *restrict a, const pairs *restrict b, double unit)
{
    for (int i = 0; i < OTHERS; i++) {
        double first = a->first[i] * b->first[i], second = a->second[i] * b->second[i];
        double join = larger_in_magnitude(a->first[i] * b->join[i] + a->join[i] * b->second[i],
                                          a->second[i] * b->join[i] + a->join[i] * b->first[i]);
        a->join[i] = join + copysign(unit * fabs(larger_in_magnitude(first, second)), join);
        a->first[i] = first;
        a->second[i] = second;
    }
}

/* h = a I + b R + c R^2 */
static void polynomial_of_pairs(pairs *restrict h, const double abc[3], const pairs *restrict r,
                                double unit)
{
    double a = abc[0], b = abc[1], c = abc[2];
    for (int i = 0; i < OTHERS; i++) {
        double first = r->first[i], second = r->second[i],
               size = fabs(larger_in_magnitude(first, second));
        double join = (b + c * (first + second)) * r->join[i];
        h->first[i] = a + first * (b + first * c);
        h->second[i] = a + second * (b + second * c);
        h->join[i] = join + copysign(unit * size * (fabs(b) + fabs(c) * size), join);
    }
}

/* The component of the result in the direction of the large singular value that ends up in that
 * of the small one. */
static void join_errors(const trial *y, const bool *restart, int top, double leak[OTHERS])
{
    double large[OTHERS], small[OTHERS], unit = y->unit;
    pairs q, r, h;
    for (int i = 0; i < OTHERS; i++) {
        large[i] = tops[top];
        small[i] = y->pair_start[top][i];
        leak[i] = 0; /* that component of X */
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
        polynomial_of_pairs(&h, y->table[t], &r, unit);
        if (first) {
            q = h;
        } else {
            multiply_pairs(&q, &h, unit);
        }
        multiply_pairs(&r, &h, unit);
        multiply_pairs(&r, &h, unit);
    }
}

/* ---- the choice ---- */

/* Set the singular values to try, the limits and the errors of the standard form, which restarts
 * before each iteration. */
static void measure_standard(trial *y)
{
    /* The half types round Q and all else as well. The shifts ignore that, so the limits are
     * tighter. */
    bool half = y->unit > 0x1p-20, every[MUONIUM_MAX_STEPS];
    y->limit_shift = half ? 4 : 32;
    y->limit_join = half ? 4 : 24;
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

/* The harm of the joins with one largest value, as a multiple of the limit. */
static double harm_of_joins(const trial *y, const bool *restart, int top)
{
    double leak[OTHERS], worst = 0;
    join_errors(y, restart, top, leak);
    for (int i = 0; i < OTHERS; i++) {
        double ratio = leak[i] / y->standard_pairs[top][i];
        worst = ratio <= worst ? worst : ratio; /* the next error replaces a NaN */
    }
    return isnan(worst) ? INFINITY : worst / y->limit_join;
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

/* One or two additional positions, and one part of the harm with them. */
typedef struct candidate {
    int first, second;
    double bound;
    bool done;
} candidate;

static void set_candidate(bool *restart, const candidate *c, bool value)
{
    restart[c->first] = restart[c->second] = value;
}

/* The harm of shifts with each candidate. Candidates are ordered by their first position, so the
 * iterations before it are shared. */
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
            set_candidate(restart, &candidates[i], true);
            run_shifted(y, restart, shift, at, y->steps, &v);
            set_candidate(restart, &candidates[i], false);
            double error = shift_error(y, level, &v);
            errors[i][level] = run % 2 == 0 ? error : worse(errors[i][level], error);
        }
    }
    for (int i = 0; i < count; i++) {
        candidates[i].bound = harm_of_shifts(y, errors[i]);
    }
}

/* All candidates for `restart`, with bounds from one part of the harm. */
static int list_candidates(const trial *y, int positions, bool *restart, int part,
                           candidate *candidates)
{
    int count = 0;
    for (int first = 1; first < y->steps; first++) {
        for (int second = first; second < (positions == 2 ? y->steps : first + 1); second++) {
            if (!restart[first] && !restart[second]) { /* new positions only */
                candidates[count++] = (candidate){first, second, 0, false};
            }
        }
    }
    if (part == SHIFTS) {
        bound_by_shifts(y, restart, candidates, count);
    } else {
        for (int i = 0; i < count; i++) {
            set_candidate(restart, &candidates[i], true);
            candidates[i].bound = harm(y, restart, part);
            set_candidate(restart, &candidates[i], false);
        }
    }
    return count;
}

/* The first candidate with the lowest bound that is not done; -1: none. */
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

/* Add to `restart` the one or two positions that reduce the harm most; the first of equal ones.
 * Returns the harm with them. `*part` is the largest part of the harm, before and after. The harm
 * is the maximum of its parts, so the largest part rules out most candidates early. */
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
        set_candidate(restart, c, true);
        for (int i = 0; i < PARTS && (value < least || next < best || best < 0); i++) {
            double other = i == first ? 0 : harm(y, restart, i);
            if (other > value) {
                value = other;
                worst = i;
            }
        }
        set_candidate(restart, c, false);
        if (value < least || (!(value > least) && next < best) || best < 0) {
            least = value;
            best = next;
            *part = worst;
        }
    }
    if (best >= 0) {
        set_candidate(restart, &candidates[best], true);
    }
    return least;
}

/* X may be exactly zero in some directions, as in a matrix of ones. They stay zero, but rounding
 * may make their eigenvalue of R negative, and that grows by a^2 per iteration. The trials above
 * miss this case: they try only values that long tables raise to 1. The half types are left out,
 * since only a restart before each iteration would bound their growth. */
static void bound_growth(const trial *y, bool *restart)
{
    const double limit = sqrt(0.1 / y->unit); /* keeps the eigenvalue above -0.1 */
    double growth = 1;
    for (int t = 0; t < y->steps && y->unit < 0x1p-20; t++) {
        double a = fabs(y->table[t][0]);
        restart[t] = restart[t] || (t > 0 && growth * a > limit);
        growth = restart[t] ? a : growth * a;
    }
}

static void search(const double (*table)[3], int steps, double unit, bool *restart)
{
    /* Real shifts are a few units. Ratios hardly depend on the unit, but the growth of a negative
     * eigenvalue does. */
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
    /* First one position, then the best pair, then one more at a time. Long tables have too many
     * pairs: they keep the first position and add to it. */
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

/* ---- cache ---- */

/* A search takes a fraction of a millisecond or more, and all plans of a model need the same one:
 * so the last few results are cached. A caller that finds the lock taken searches instead of
 * waiting, since in a forked child the lock may never be released. */
enum { CACHED = 8 };

typedef struct answer {
    int steps; /* 0: empty */
    double unit;
    double table[MUONIUM_MAX_STEPS][3];
    bool restart[MUONIUM_MAX_STEPS];
} answer;

static answer cache[CACHED];
static unsigned next_cached;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static bool find_cached(const double (*table)[3], int steps, double unit, bool *restart)
{
    bool found = false;
    if (pthread_mutex_trylock(&cache_lock) != 0) {
        return false;
    }
    for (int i = 0; i < CACHED && !found; i++) {
        size_t bytes = (size_t)steps * sizeof table[0];
        found = cache[i].steps == steps && cache[i].unit == unit &&
                memcmp(cache[i].table, table, bytes) == 0;
        if (found) {
            memcpy(restart, cache[i].restart, sizeof cache[i].restart);
        }
    }
    pthread_mutex_unlock(&cache_lock);
    return found;
}

static void add_cached(const double (*table)[3], int steps, double unit, const bool *restart)
{
    if (pthread_mutex_trylock(&cache_lock) != 0) {
        return;
    }
    answer *place = &cache[next_cached++ % CACHED];
    place->steps = steps;
    place->unit = unit;
    memcpy(place->table, table, (size_t)steps * sizeof table[0]);
    memcpy(place->restart, restart, sizeof place->restart);
    pthread_mutex_unlock(&cache_lock);
}

void mu_choose_restarts(const double (*table)[3], int steps, double unit, bool *restart)
{
    if (!find_cached(table, steps, unit, restart)) {
        search(table, steps, unit, restart);
        add_cached(table, steps, unit, restart);
    }
}
