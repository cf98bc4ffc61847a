/*
 * normalize.c: divide by a bound on the largest singular value.
 *
 * The division costs no pass over memory: it becomes the factor with which X is
 * packed. The factor is s * 2^-e, where 2^e is the binade of the largest element
 * and s, of the working type, depends on the matrix only through X * 2^-e. So the
 * packed elements, rounded once from x * s * 2^-e, are bit for bit the same for
 * 2^k X as for X. Where the factor itself would leave the range of the type, X is
 * first copied with half of the exponent taken off, which is exact for every
 * element that survives the rest. f64 inputs of an f32 computation are copied with
 * all of it taken off, since where f32 has no small numbers left depends on it.
 */
#include <math.h>

#include "orthogonalize/plan.h"

enum { ROWS_PER_TASK = 16, MOST_SQUARINGS = 7 };

/* ---- taking X home ---- */

typedef struct taking {
    mu_iteration *it;
    double factor;         /* of all elements */
    const double *divisor; /* of each row, or NULL */
    int shift;             /* if not 0: take this power of two off instead, through f64 */
} taking;

enum { PIECE = 128 }; /* columns, taken at a time with ROWS_PER_TASK rows */

/* A piece with 2^shift taken off, as rows of the kernel's type. */
static void load_shifted(const mu_iteration *it, const mu_block *from, int shift, void *to,
                         size_t ld)
{
    const mu_rows *wide = it->plan->wide;
    int half = shift / 2, rest = shift - half; /* 2^shift may not be a double */
    double buffer[ROWS_PER_TASK * PIECE];
    wide->load(from, buffer, PIECE);
    for (size_t i = 0; i < from->rows; i++) {
        wide->scale(buffer + i * PIECE, from->cols, ldexp(1, -half));
        wide->scale(buffer + i * PIECE, from->cols, ldexp(1, -rest));
    }
    mu_block rows = {to, it->plan->kernel->type, (ptrdiff_t)ld, 1, from->rows, from->cols};
    wide->store(buffer, PIECE, &rows);
}

/* X may be at home already: every piece is read before it is written. Rows at home are converted
 * straight into their place. */
static void take_rows(void *context, size_t index, unsigned worker)
{
    const taking *t = context;
    const mu_iteration *it = t->it;
    const muonium_plan *plan = it->plan;
    const mu_rows *ops = plan->rows;
    mu_oriented x = mu_matrix_of(&it->x);
    (void)worker;
    double buffer[ROWS_PER_TASK * PIECE]; /* of the kernel's type */
    size_t first = index * ROWS_PER_TASK;
    size_t rows = plan->m - first < ROWS_PER_TASK ? plan->m - first : ROWS_PER_TASK;
    for (size_t j = 0; j < plan->n; j += PIECE) {
        size_t cols = plan->n - j < PIECE ? plan->n - j : PIECE;
        mu_block from = mu_block_at(&x, first, j, rows, cols);
        mu_block to = mu_block_at(&it->home, first, j, rows, cols);
        bool straight = to.col_stride == 1 && to.dtype == ops->type && to.data != from.data;
        void *place = straight ? to.data : buffer;
        size_t ld = straight ? (size_t)to.row_stride : PIECE;
        if (t->shift != 0) {
            load_shifted(it, &from, t->shift, place, ld);
        } else {
            ops->load(&from, place, ld);
        }
        for (size_t i = 0; i < rows; i++) {
            char *row = (char *)place + i * ld * muonium_dtype_size(ops->type);
            if (t->shift == 0) {
                ops->scale(row, cols, t->factor);
            }
            if (t->divisor) {
                ops->scale(row, cols, 1 / t->divisor[first + i]);
            }
            if (plan->half && t->shift == 0) {
                ops->round(row, cols, plan->options.precision);
            }
        }
        if (!straight) {
            ops->store(buffer, PIECE, &to);
        }
    }
}

static void take_by(taking t)
{
    mu_iteration *it = t.it;
    size_t tasks = (it->plan->m + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    mu_pool_run(take_rows, &t, tasks, it->with.workers);
    it->x = mu_operand_at(&it->home);
}

/* X times the factor, its rows divided, is at home from here on. */
static void take(mu_iteration *it, double factor, const double *divisor)
{
    take_by((taking){it, factor, divisor, 0});
}

/* The same with X * 2^-shift. */
static void take_shifted(mu_iteration *it, int shift)
{
    take_by((taking){it, 1, NULL, shift});
}

/* ---- norms of the Gram matrix ---- */

static double frobenius_of(const mu_iteration *it, const void *square)
{
    const muonium_plan *plan = it->plan;
    size_t bytes = muonium_dtype_size(plan->kernel->type);
    double sum = 0;
    for (size_t i = 0; i < plan->m; i++) {
        const char *row = (const char *)square + i * plan->ldr * bytes;
        sum += plan->rows->squares(row, plan->m, 1);
    }
    return sqrt(sum);
}

/* ||R^p||_F^(1/p) for growing p = 2^j is above the largest eigenvalue by a factor of at most
 * m^(1/2p), without luck in a starting vector. Squaring stops when
 * (||R^2p||_F / ||R^p||_F)^(1/p), which is below it, is close. */
double mu_largest_eigenvalue(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    const mu_kernel *kernel = plan->kernel;
    const void *power = it->square[0];
    double norm = frobenius_of(it, power);
    double log_norm = log(norm); /* of the true power, its scaling undone */
    double bound = norm, p = 1;
    for (int j = 0; j < MOST_SQUARINGS; j++) {
        void *next = power == it->square[1] ? it->square[2] : it->square[1];
        mu_operand factor = mu_operand_of(kernel, power, plan->ldr, 1 / norm, 0);
        mu_symmul(&it->with, plan->m, &factor, &factor, next, plan->ldr);
        double previous = log_norm;
        norm = frobenius_of(it, next);
        log_norm = 2 * previous + log(norm);
        double below = exp((log_norm - previous) / p);
        p *= 2;
        bound = exp(log_norm / p);
        power = next;
        if (bound <= below * 1.01) {
            break;
        }
    }
    /* Room for rounding in f32, and the same in f64 so that both divide alike. */
    return bound * (1 + 0x1p-21 * (sqrt((double)plan->m) + 8));
}

/* R_ij / (d_i d_j) */
static void divide_both_sides(mu_iteration *it, const double *divisor)
{
    const muonium_plan *plan = it->plan;
    for (size_t i = 0; i < plan->m; i++) {
        for (size_t j = 0; j < plan->m; j++) {
            double by = divisor[i] * divisor[j];
            size_t at = i * plan->ldr + j;
            if (plan->kernel->type == MUONIUM_F32) {
                float *r = it->square[0];
                r[at] = (float)((double)r[at] / by);
            } else {
                double *r = it->square[0];
                r[at] /= by;
            }
        }
    }
}

/* ---- the divisor ---- */

/* A number as the plan keeps those that lead to the divisor: rounded to f32 and to as many bits
 * as the half type has, where its rounding does that. The exponent is free. */
static double kept(const muonium_plan *plan, double value)
{
    if (!plan->round.divisor) {
        return value;
    }
    int exponent, bits = plan->options.precision == MUONIUM_BF16 ? 8 : 11;
    float fraction = (float)frexp(value, &exponent);
    return ldexp(nearbyint(ldexp((double)fraction, bits)), exponent - bits);
}

/* optax holds the squares of these divisors to 1e-8 or more, whatever its eps is. */
static bool clamps_square(const muonium_plan_options *options)
{
    return options->eps_mode == MUONIUM_EPS_OPTAX &&
           (options->normalization == MUONIUM_NORM_AOL ||
            options->normalization == MUONIUM_NORM_SCHATTEN);
}

static double guarded(const muonium_plan *plan, double norm, double eps)
{
    double divisor = kept(plan, kept(plan, norm) * plan->options.safety_factor);
    switch (plan->options.eps_mode) {
    case MUONIUM_EPS_OPTAX:
        return !clamps_square(&plan->options) ? kept(plan, divisor + eps)
               : divisor > eps                ? divisor
                                              : eps;
    case MUONIUM_EPS_CLAMP:
        eps = kept(plan, eps);
        return divisor > eps ? divisor : eps;
    case MUONIUM_EPS_ADD:
        return kept(plan, divisor + eps);
    default:
        return divisor;
    }
}

/* Rounds X into the workspace. Returns the Frobenius norm of the rounded matrix. */
static double round_input(mu_iteration *it)
{
    double sum = 0;
    take(it, it->x.scale, NULL);
    mu_square_rows(it);
    for (size_t i = 0; i < it->plan->m; i++) {
        sum += it->row_sums[i];
    }
    return sqrt(sum);
}

static void round_gram(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    size_t bytes = muonium_dtype_size(plan->kernel->type);
    for (size_t i = 0; plan->half && i < plan->m; i++) {
        plan->rows->round((char *)it->square[0] + i * plan->ldr * bytes, plan->m,
                          plan->options.precision);
    }
}

static void normalize_rows(mu_iteration *it, double eps, int exponent)
{
    const muonium_plan *plan = it->plan;
    size_t bytes = muonium_dtype_size(plan->kernel->type);
    double *divisor = it->row_sums, largest = 0;
    for (size_t i = 0; i < plan->m; i++) {
        const char *row = (const char *)it->square[0] + i * plan->ldr * bytes;
        double bound = guarded(plan, sqrt(plan->rows->abs_sum(row, plan->m)), eps);
        divisor[i] = bound > 0 ? bound : 1; /* a zero row stays zero */
        largest = bound > largest ? bound : largest;
    }
    take(it, it->x.scale, divisor);
    divide_both_sides(it, divisor);
    round_gram(it);
    it->certificate.divisor = ldexp(largest, exponent);
}

void mu_normalize(mu_iteration *it, const mu_survey *survey)
{
    const muonium_plan *plan = it->plan;
    const muonium_plan_options *options = &plan->options;
    muonium_normalization normalization = options->normalization;
    bool is_f32 = plan->kernel->type == MUONIUM_F32;
    int exponent = survey->exponent, reach = is_f32 ? 100 : 900;

    it->x = mu_operand_at(&it->in);
    it->ceiling = fmax(1, 1 / options->safety_factor);
    if (normalization == MUONIUM_NORM_NONE) {
        if (survey->largest <= plan->edge[0]) {
            it->certificate.divisor = 1;
            it->ceiling = INFINITY;
            if (plan->half) {
                take(it, 1, NULL);
            }
            return;
        }
        /* No element exceeds the largest singular value: the promise is broken. */
        normalization = MUONIUM_NORM_FROBENIUS;
        it->certificate.rescued++;
    }
    bool narrowed = is_f32 && it->in.dtype == MUONIUM_F64;
    if (narrowed ? exponent != 0 : exponent > reach || exponent < -reach) {
        int half = is_f32 ? 64 : 512, shift = exponent > 0 ? half : -half;
        shift = narrowed ? exponent : shift;
        take_shifted(it, shift);
        exponent -= shift;
    }
    it->x.scale = ldexp(1, -exponent);
    double eps = ldexp(clamps_square(options) ? 1e-4 : options->eps, -survey->exponent);
    double norm = plan->round.input ? round_input(it) : sqrt(survey->sum_squares);
    if (normalization != MUONIUM_NORM_FROBENIUS) {
        mu_gram_of_x(it);
        it->has_gram = true;
        if (normalization == MUONIUM_NORM_AOL) {
            normalize_rows(it, eps, survey->exponent);
            return;
        }
        double eigenvalue = normalization == MUONIUM_NORM_SCHATTEN ? frobenius_of(it, it->square[0])
                                                                   : mu_largest_eigenvalue(it);
        norm = sqrt(eigenvalue);
    }
    /* X times the reciprocal, rounded, is X divided by it, rounded: a quotient of two numbers of
     * a half type is never so near the middle between two others that f32 could mistake it
     * (tests/orthogonalize/test_rounding.py tries all). */
    double divisor = guarded(plan, norm, eps);
    double factor = is_f32 ? (double)(float)(1 / divisor) : 1 / divisor;
    it->certificate.divisor = ldexp(divisor, survey->exponent);
    it->x.scale *= factor;
    if (it->has_gram) {
        mu_scale_rows(it, it->square[0], plan->m, plan->m, plan->ldr, factor * factor);
        round_gram(it);
    }
    /* Rows that would be converted three times, while packed, are converted once if they are
     * near; columns, which must be transposed, gain nothing by that. Not if the scale that they
     * would be rounded with may still change: what is stored otherwise is rounded once. */
    size_t bytes = plan->m * plan->n * muonium_dtype_size(plan->kernel->type);
    bool settled = plan->form == &mu_form_direct || !mu_may_stray(it, 0);
    bool converted = it->x.dtype != plan->kernel->type && it->x.col_stride == 1 && settled &&
                     bytes <= plan->kernel->b_pass_bytes;
    if (plan->half || converted) {
        take(it, it->x.scale, NULL);
    }
}
