/*
 * normalize.c: divide X by a bound on its largest singular value: the table of normalisations.
 *
 * The division needs no pass over memory: it becomes the factor of X, which products apply. The
 * factor is s * 2^-e. 2^e is the binade of the largest element, and s, of the working type,
 * depends on X * 2^-e alone. So packed elements, rounded once from x * s * 2^-e, are the same
 * bits for 2^k X as for X.
 *
 * Two cases need a copy of X first. If the factor itself would leave the range of the type, half
 * of the exponent is removed; that is exact for every element that survives the rest. If an f32
 * computation has f64 input, the whole exponent is removed, because it decides which elements
 * are too small for f32.
 *
 * To add a normalisation: its value in muonium.h, its name in options.def, a function and a line
 * of the table here, its formula in the tests (tests/reference/orthogonalize.py and divisor_for in
 * tests/orthogonalize/test_orthogonalize.c) and in docs/numerics.md.
 */
#include <math.h>
#include <string.h>

#include "orthogonalize/run.h"

/* ---- the divisor ---- */

/* Round a number between norm and divisor as plan->round says: to f32, and to the significant
 * bits of the half type. The exponent is not limited. */
static double rounded(const muonium_plan *plan, double value)
{
    if (!plan->round.divisor) {
        return value;
    }
    int exponent, bits = plan->precision->type == MUONIUM_BF16 ? 8 : 11;
    float fraction = (float)frexp(value, &exponent);
    return ldexp(nearbyint(ldexp((double)fraction, bits)), exponent - bits);
}

/* optax clamps the squares of some divisors to 1e-8, whatever its eps is. */
static bool clamps_square(const muonium_plan *plan)
{
    return plan->options.eps_mode == MUONIUM_EPS_OPTAX && plan->normalization->optax_clamps;
}

/* The divisor for a norm of X * 2^-exponent: safety factor and eps applied. */
static double divisor_of(const muonium_plan *plan, double norm, int exponent)
{
    double divisor = rounded(plan, rounded(plan, norm) * plan->options.safety_factor);
    double eps = ldexp(clamps_square(plan) ? 1e-4 : plan->options.eps, -exponent);
    switch (plan->options.eps_mode) {
    case MUONIUM_EPS_NONE:
        break;
    case MUONIUM_EPS_OPTAX:
        if (clamps_square(plan)) {
            return divisor > eps ? divisor : eps;
        }
        return rounded(plan, divisor + eps);
    case MUONIUM_EPS_CLAMP:
        eps = rounded(plan, eps);
        return divisor > eps ? divisor : eps;
    case MUONIUM_EPS_ADD:
        return rounded(plan, divisor + eps);
    }
    return divisor;
}

/* Divide X by one number, by changing its factor. */
static void divide_by(mu_run *run, const mu_survey *survey, double norm)
{
    const muonium_plan *plan = run->plan;
    /* X times the rounded reciprocal, rounded, is X divided, rounded: a quotient of two numbers
     * of a half type is never so close to a tie that f32 could miss its side
     * (tests/orthogonalize/test_rounding.py tries all). */
    double divisor = divisor_of(plan, norm, survey->exponent);
    double factor = plan->kernel->type == MUONIUM_F32 ? (double)(float)(1 / divisor) : 1 / divisor;
    run->certificate.divisor = ldexp(divisor, survey->exponent);
    run->x.scale *= factor;
    if (run->has_gram) {
        mu_scale_square(run, run->square[0], factor * factor);
        mu_round_square(run, run->square[0]);
    }
    mu_x_settle(run);
}

/* ---- the normalisations ---- */

static void compute_gram(mu_run *run)
{
    mu_gram_of_x(run);
    run->has_gram = true;
}

static void divide_by_frobenius(mu_run *run, const mu_survey *survey, double frobenius)
{
    divide_by(run, survey, frobenius);
}

static void divide_by_schatten(mu_run *run, const mu_survey *survey, double frobenius)
{
    (void)frobenius;
    compute_gram(run);
    divide_by(run, survey, sqrt(mu_frobenius_norm(run, run->square[0])));
}

static void divide_by_spectral(mu_run *run, const mu_survey *survey, double frobenius)
{
    (void)frobenius;
    compute_gram(run);
    /* optax divides by the norm itself. */
    bool bounded = run->plan->options.eps_mode != MUONIUM_EPS_OPTAX;
    divide_by(run, survey, sqrt(mu_largest_eigenvalue(run, bounded)));
}

/* R_ij / (d_i d_j) */
static void divide_gram(mu_run *run, const double *divisor)
{
    const muonium_plan *plan = run->plan;
    for (size_t i = 0; i < plan->m; i++) {
        for (size_t j = 0; j < plan->m; j++) {
            double by = divisor[i] * divisor[j];
            size_t at = i * plan->ldr + j;
            if (plan->kernel->type == MUONIUM_F32) {
                float *r = run->square[0];
                r[at] = (float)((double)r[at] / by);
            } else {
                double *r = run->square[0];
                r[at] /= by;
            }
        }
    }
}

static void divide_by_aol(mu_run *run, const mu_survey *survey, double frobenius)
{
    const muonium_plan *plan = run->plan;
    double *divisor = run->row_sums, largest = 0;
    (void)frobenius;
    compute_gram(run);
    mu_sum_magnitudes(run);
    for (size_t i = 0; i < plan->m; i++) {
        double bound = divisor_of(plan, sqrt(run->row_sums[i]), survey->exponent);
        divisor[i] = bound > 0 ? bound : 1; /* a zero row stays zero */
        largest = bound > largest ? bound : largest;
    }
    mu_x_copy(run, divisor);
    divide_gram(run, divisor);
    mu_round_square(run, run->square[0]);
    run->certificate.divisor = ldexp(largest, survey->exponent);
}

static const mu_normalization normalizations[] = {
    [MUONIUM_NORM_FROBENIUS] = {.divide = divide_by_frobenius},
    [MUONIUM_NORM_SCHATTEN] = {.squares = 1, .optax_clamps = true, .divide = divide_by_schatten},
    [MUONIUM_NORM_AOL] = {.squares = 1, .optax_clamps = true, .divide = divide_by_aol},
    [MUONIUM_NORM_SPECTRAL] = {.squares = 3, .divide = divide_by_spectral},
    /* Divides by nothing; by the Frobenius norm if the promise is broken. */
    [MUONIUM_NORM_NONE] = {.trusts_caller = true, .divide = divide_by_frobenius},
};

const mu_normalization *mu_normalization_of(muonium_normalization id)
{
    size_t index = (size_t)id, count = sizeof normalizations / sizeof normalizations[0];
    return index < count && normalizations[index].divide ? &normalizations[index] : NULL;
}

muonium_status mu_check_normalization(const muonium_plan_options *o)
{
    const mu_normalization *n = mu_normalization_of(o->normalization);
    if (!n) {
        return mu_fail(MUONIUM_INVALID,
                       "normalization is %d: use one of the values of muonium_normalization",
                       (int)o->normalization);
    }
    /* The preset `aol` starts from a scaling that no other normalisation gives. */
    if (!o->table && o->coefficients && strcmp(o->coefficients, "aol") == 0 &&
        o->normalization != MUONIUM_NORM_AOL) {
        return mu_fail(MUONIUM_INVALID,
                       "coefficients \"aol\" with normalization %s (%d): they fit normalization "
                       "aol (%d) alone; change one of the two",
                       muonium_enum_name("muonium_normalization", (int)o->normalization),
                       (int)o->normalization, (int)MUONIUM_NORM_AOL);
    }
    return MUONIUM_OK;
}

/* ---- a matrix ---- */

/* Copy X with part of its exponent removed where the head comment says so. Returns the exponent
 * that is left. */
static int reduce_exponent(mu_run *run, int exponent)
{
    bool is_f32 = run->plan->kernel->type == MUONIUM_F32;
    bool narrowed = is_f32 && run->in.dtype == MUONIUM_F64;
    int reach = is_f32 ? 100 : 900, half = is_f32 ? 64 : 512;
    if (narrowed ? exponent == 0 : exponent <= reach && exponent >= -reach) {
        return exponent;
    }
    int removed = narrowed ? exponent : exponent > 0 ? half : -half;
    mu_x_copy_shifted(run, removed);
    return exponent - removed;
}

/* Round X to the half type, in a copy. Returns the Frobenius norm of the rounded matrix. */
static double round_input(mu_run *run)
{
    double sum = 0;
    mu_x_copy(run, NULL);
    mu_square_rows(run);
    for (size_t i = 0; i < run->plan->m; i++) {
        sum += run->row_sums[i];
    }
    return sqrt(sum);
}

void mu_normalize(mu_run *run, const mu_survey *survey)
{
    const muonium_plan *plan = run->plan;
    mu_x_begin(run);
    run->ceiling = fmax(1, 1 / plan->options.safety_factor);
    if (plan->normalization->trusts_caller) {
        /* No element exceeds the largest singular value: one beyond the edge disproves the
         * promise. */
        if (survey->largest <= plan->edge[0]) {
            run->certificate.divisor = 1;
            run->ceiling = INFINITY;
            mu_x_make_readable(run);
            if (plan->half) {
                mu_x_copy(run, NULL);
            }
            return;
        }
        run->certificate.rescued++;
    }
    int exponent = reduce_exponent(run, survey->exponent);
    mu_x_make_readable(run);
    run->x.scale = ldexp(1, -exponent);
    double frobenius = plan->round.input ? round_input(run) : sqrt(survey->sum_squares);
    plan->normalization->divide(run, survey, frobenius);
}
