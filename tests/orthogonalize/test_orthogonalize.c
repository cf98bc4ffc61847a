/*
 * test_orthogonalize.c: results against an independent reference: singular value
 * decomposition in double, the composed polynomial applied to each singular value.
 *
 * Tolerances. A relative error u in one iteration grows by at most amplification(table), and a
 * sum of k terms has an error of about sqrt(k) units. `allowed` is an eighth of the product,
 * since no singular value meets the worst case of all iterations. In addition, each form is
 * compared with the standard form.
 */
#include "test.h"

#include <math.h>

#include "spectra.h"

/* The forms that evaluate quintics; test_direct.c tests the direct form. */
static const muonium_form forms[] = {MUONIUM_FORM_QUINTIC, MUONIUM_FORM_STANDARD,
                                     MUONIUM_FORM_GRAM};

static muonium_plan_options options_for(const char *preset, int steps)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.coefficients = preset;
    options.steps = steps;
    options.form = MUONIUM_FORM_QUINTIC;
    return options;
}

/* The type of the input: f32 for the half modes. */
static muonium_dtype storage_of(muonium_dtype precision)
{
    return precision == MUONIUM_F64 ? MUONIUM_F64 : MUONIUM_F32;
}

/* Four roundings of half a unit: of the scaled X, the Gram matrix, the polynomial and the result.
 * Errors within a sum of k terms average out like sqrt(k). */
static double allowed(const double (*table)[3], int steps, muonium_dtype precision, size_t k)
{
    const double reference = 32 * 0x1p-53; /* a decomposition in double is not exact either */
    double rounding = (4 * 0.5 + sqrt((double)k) / 8) * spectra_unit(precision);
    return (rounding + reference) * amplification(table, steps);
}

/* ---- published values ---- */

static void check_published(size_t rows, size_t cols, const double *x, const double *expected)
{
    muonium_plan_options options = options_for("original", 5);
    options.eps_mode = MUONIUM_EPS_ADD;
    options.precision = MUONIUM_F64;
    for (size_t f = 0; f < 3; f++) {
        double y[16];
        options.form = forms[f];
        spectra_run(&options, MUONIUM_F64, rows, cols, x, y, NULL);
        for (size_t i = 0; i < rows * cols; i++) {
            assert_true(fabs(y[i] - expected[i]) <= 5.0001e-5);
        }
    }
}

static void published_values_to_four_digits(void **state)
{
    (void)state;
    const double square[] = {.2450, .1280, .0010, .4861, .3499, .2341, .3737, .9310,
                             .9632, .9400, .5003, .1285, .3585, .4744, .7334, .6123};
    const double square_result[] = {-.0493, .3418, -.5932, .5596,  .3052,  -.4529, .1063, .7101,
                                    .6898,  .5104, .0184,  -.3814, -.4041, .2930,  .7062, .2322};
    check_published(4, 4, square, square_result);
    const double tall[] = {.83079288, .13086341, .34745056, .05995961,
                           .02953721, .58638872, .06437917, .68301915};
    const double tall_result[] = {.8826, .1575, .3692, .0714, .0445, .6226, .0836, .7259};
    check_published(4, 2, tall, tall_result);
    const double small[] = {.2499, .9105, .2655, .8824};
    const double small_result[] = {-.4419, .6456, .7282, .2970};
    check_published(2, 2, small, small_result);
}

/* ---- every spectrum, precision, form, normalisation and preset ---- */

/* A matrix and its reference. */
typedef struct sample {
    const char *name;
    size_t rows, cols;
    double *x, *expected, *y;
    decomposition whole, divided; /* divided: after division by rows */
} sample;

static sample make_sample(const char *name, muonium_dtype dtype, size_t rows, size_t cols,
                          double *x)
{
    sample s = {.name = name, .rows = rows, .cols = cols, .x = x};
    size_t bytes = rows * cols * sizeof(double);
    s.expected = malloc(bytes);
    s.y = malloc(bytes);
    assert_true(s.expected != NULL && s.y != NULL);
    spectra_round(dtype, x, rows * cols);
    s.whole = decompose(x, rows, cols);
    memcpy(s.y, x, bytes);
    divide_rows(s.y, rows, cols);
    s.divided = decompose(s.y, rows, cols);
    return s;
}

static void free_sample(sample *s)
{
    decomposition_free(&s->whole);
    decomposition_free(&s->divided);
    free(s->x);
    free(s->expected);
    free(s->y);
}

static sample draw_sample(const spectrum *kind, muonium_dtype dtype, test_rng *rng, size_t rows,
                          size_t cols)
{
    double *x = malloc(rows * cols * sizeof *x);
    assert_non_null(x);
    spectra_draw(kind, rng, rows, cols, x);
    return make_sample(kind->name, dtype, rows, cols, x);
}

/* The divisor of the reference. That of `spectral` is an upper bound: it is taken from the
 * certificate after checking that it is close. */
static double divisor_for(const sample *s, muonium_normalization normalization, double certified,
                          double unit)
{
    switch (normalization) {
    case MUONIUM_NORM_AOL:
    case MUONIUM_NORM_NONE:
        return 1;
    case MUONIUM_NORM_SPECTRAL:
        assert_true(certified >= s->whole.sigma[0] * (1 - 4 * unit));
        assert_true(certified <= s->whole.sigma[0] * 1.03);
        return certified;
    case MUONIUM_NORM_FROBENIUS:
    case MUONIUM_NORM_SCHATTEN:
        break;
    }
    double exact = schatten_norm(&s->whole, normalization == MUONIUM_NORM_SCHATTEN ? 4 : 2);
    assert_true(fabs(certified / exact - 1) <= 16 * unit);
    return exact;
}

/* ||reference||_F over ||normalised X||_F, at most 1. */
static double shrinking(const sample *s, const decomposition *d, double divisor)
{
    double squares = 0;
    for (size_t i = 0; i < s->rows * s->cols; i++) {
        squares += s->expected[i] * s->expected[i];
    }
    double start = schatten_norm(d, 2) / divisor;
    return start > 0 ? fmin(1, sqrt(squares) / start) : 1;
}

/* Run and compare. The error is relative to the larger of ||result||_F and ||normalised X||_F: a
 * polynomial that maps 1 to 0.024, as the first row of "cubic" does, cancels most of a matrix of
 * rank one but keeps all of its rounding error. */
static double error_of(sample *s, const muonium_plan_options *options, const double (*table)[3])
{
    muonium_certificate certificate;
    muonium_dtype dtype = storage_of(options->precision);
    bool coarse = options->precision == MUONIUM_FIXED15; /* so are norms from the Gram matrix */
    double unit = spectra_unit(coarse ? options->precision : dtype);
    spectra_run(options, dtype, s->rows, s->cols, s->x, s->y, &certificate);
    assert_int_equal(certificate.outcome, MUONIUM_ORTHOGONALIZED);
    double divisor = divisor_for(s, options->normalization, certificate.divisor, unit);
    const decomposition *d = options->normalization == MUONIUM_NORM_AOL ? &s->divided : &s->whole;
    decomposition_map(d, divisor, table, options->steps, s->expected);
    return relative_error(s->y, s->expected, s->rows * s->cols) * shrinking(s, d, divisor);
}

static void report(const sample *s, const muonium_plan_options *options, double error, double limit)
{
    print_error(
        "%s, %zu x %zu, %s, %s form, %s, %d steps of %s: error %.3g, allowed %.3g\n", s->name,
        s->rows, s->cols, muonium_enum_name("muonium_dtype", (int)options->precision),
        muonium_enum_name("muonium_form", (int)options->form),
        muonium_enum_name("muonium_normalization", (int)options->normalization), options->steps,
        options->coefficients ? options->coefficients : "the default", error, limit);
}

static double check_sample(sample *s, const muonium_plan_options *options)
{
    double table[MUONIUM_MAX_STEPS][3];
    spectra_table(options, table);
    const double(*rows)[3] = (const double(*)[3])table;
    size_t longest = s->rows > s->cols ? s->rows : s->cols;
    double error = error_of(s, options, rows);
    double limit = allowed(rows, options->steps, options->precision, longest);
    if (options->precision == MUONIUM_F64) {
        limit = fmin(limit, 1e-10);
    }
    if (!(error <= limit)) {
        report(s, options, error, limit);
        fail();
    }
    return error / limit;
}

static const char *preset_at(int index)
{
    return index < 0 ? NULL : muonium_preset_name(index);
}

static double check_presets(sample *s, muonium_plan_options options)
{
    double worst = 0;
    int normalizations = s->whole.sigma[0] <= 1 ? 5 : 4;
    for (int preset = -1; preset < 0 || preset_at(preset) != NULL; preset++) {
        options.coefficients = preset_at(preset);
        bool needs_rows = options.coefficients && strcmp(options.coefficients, "aol") == 0;
        for (int norm = 0; norm < normalizations; norm++) {
            if (needs_rows && norm != MUONIUM_NORM_AOL) {
                continue;
            }
            options.normalization = (muonium_normalization)norm;
            worst = fmax(worst, check_sample(s, &options));
        }
    }
    return worst;
}

static void check_every_spectrum(const char *label, muonium_dtype precision)
{
    test_rng rng = test_rng_start(label);
    const size_t shapes[][2] = {{20, 45}, {45, 20}, {24, 24}};
    double worst = 0;
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        for (size_t i = 0; i < 3; i++) {
            muonium_dtype dtype = storage_of(precision);
            sample s = draw_sample(kind, dtype, &rng, shapes[i][0], shapes[i][1]);
            muonium_plan_options options = options_for(NULL, 5);
            options.precision = precision;
            for (size_t f = 0; f < 3; f++) {
                options.form = forms[f];
                worst = fmax(worst, check_presets(&s, options));
            }
            free_sample(&s);
        }
    }
    print_message("%s: at most %.2f of what is allowed\n", label, worst);
    assert_true(worst > 0);
}

static void every_spectrum_in_f32(void **state)
{
    (void)state;
    check_every_spectrum("every spectrum in f32", MUONIUM_F32);
}

static void every_spectrum_in_fixed23(void **state)
{
    (void)state;
    check_every_spectrum("every spectrum in fixed23", MUONIUM_FIXED23);
}

static void every_spectrum_in_fixed15(void **state)
{
    (void)state;
    check_every_spectrum("every spectrum in fixed15", MUONIUM_FIXED15);
}

static void every_spectrum_in_f64(void **state)
{
    (void)state;
    check_every_spectrum("every spectrum in f64", MUONIUM_F64);
}

/* Half types cannot resolve small singular values, so there is no reference for them. But nothing
 * may diverge, and the trace of X^T Y stays positive. */
static void every_spectrum_stays_bounded_in_half_types(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("every spectrum in half types");
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        sample s = draw_sample(kind, MUONIUM_F32, &rng, 20, 45);
        for (int c = 0; c < 3 * 2 * 4; c++) {
            muonium_plan_options options = options_for(c % 2 ? "original" : NULL, 5);
            options.precision = c / 2 % 2 ? MUONIUM_F16 : MUONIUM_BF16;
            options.form = forms[c / 4 % 3];
            for (int norm = 0; norm < 4; norm++) {
                options.normalization = (muonium_normalization)norm;
                spectra_run(&options, MUONIUM_F32, s.rows, s.cols, s.x, s.y, NULL);
                decomposition d = decompose(s.y, s.rows, s.cols);
                double inner = 0;
                for (size_t i = 0; i < s.rows * s.cols; i++) {
                    inner += s.x[i] * s.y[i];
                }
                if (!(d.sigma[0] < 1.5) || !(inner > 0)) {
                    report(&s, &options, d.sigma[0], 1.5);
                    fail();
                }
                decomposition_free(&d);
            }
        }
        free_sample(&s);
    }
}

/* ---- sizes ---- */

static sample gaussian(test_rng *rng, muonium_dtype dtype, size_t rows, size_t cols)
{
    double *x = malloc(rows * cols * sizeof *x);
    assert_non_null(x);
    test_fill_normal(rng, x, rows * cols);
    return make_sample("Gaussian", dtype, rows, cols, x);
}

static void every_size_up_to_67(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("every size up to 67");
    muonium_plan_options options = options_for(NULL, 5);
    size_t count = 0;
    for (size_t rows = 1; rows <= 67; rows++) {
        for (size_t cols = 1; cols <= 67; cols++) {
            /* The decomposition takes most of the time: all sizes up to 34, then about
             * one in eight. */
            if ((rows > 34 || cols > 34) && test_below(&rng, 8) != 0) {
                continue;
            }
            sample s = gaussian(&rng, MUONIUM_F32, rows, cols);
            options.form = forms[(rows + cols) % 3];
            check_sample(&s, &options);
            free_sample(&s);
            count++;
        }
    }
    assert_true(count > 34 * 34);
}

static void random_sizes_and_options(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("random sizes and options");
    int presets = 0;
    while (preset_at(presets) != NULL) {
        presets++;
    }
    for (int round = 0; round < 60; round++) {
        size_t rows = 1 + test_below(&rng, 200), cols = 1 + test_below(&rng, 200);
        muonium_plan_options options = options_for(NULL, 1 + (int)test_below(&rng, 8));
        options.precision = round % 2 ? MUONIUM_F64 : MUONIUM_F32;
        sample s = gaussian(&rng, options.precision, rows, cols);
        for (int i = 0; i < 3; i++) {
            options.coefficients = preset_at((int)test_below(&rng, (size_t)presets + 1) - 1);
            options.normalization = (muonium_normalization)test_below(&rng, 4);
            if (options.coefficients && strcmp(options.coefficients, "aol") == 0) {
                options.normalization = MUONIUM_NORM_AOL;
            }
            options.form = forms[i];
            check_sample(&s, &options);
        }
        free_sample(&s);
    }
    const size_t extremes[][2] = {{1, 1}, {8192, 1}, {1, 8192}, {2, 5000}, {3000, 3}};
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
        sample s = gaussian(&rng, MUONIUM_F32, extremes[i][0], extremes[i][1]);
        muonium_plan_options options = options_for(NULL, 5);
        check_sample(&s, &options);
        free_sample(&s);
    }
}

/* ---- eps and safety ---- */

static void divisors_with_eps_and_safety(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("eps and safety");
    const double scales[] = {1, 1e-7, 1e-12, 1e-30};
    for (int c = 0; c < 4 * 3 * 2; c++) {
        double scale = scales[c % 4], eps = 3e-8, factor = c / 12 ? 1.25 : 1;
        muonium_plan_options options = options_for("original", 5);
        options.precision = MUONIUM_F64;
        options.eps_mode = (muonium_eps_mode)(c / 4 % 3);
        options.eps = eps;
        options.safety_factor = factor;
        sample s = gaussian(&rng, MUONIUM_F64, 12, 30);
        for (size_t i = 0; i < 12 * 30; i++) {
            s.x[i] *= scale;
        }
        double norm = schatten_norm(&s.whole, 2) * scale * factor, divisor = norm;
        divisor = options.eps_mode == MUONIUM_EPS_ADD ? norm + eps : divisor;
        divisor = options.eps_mode == MUONIUM_EPS_CLAMP ? fmax(norm, eps) : divisor;
        double table[5][3];
        spectra_table(&options, table);
        muonium_certificate certificate;
        spectra_run(&options, MUONIUM_F64, 12, 30, s.x, s.y, &certificate);
        assert_true(fabs(certificate.divisor / divisor - 1) < 1e-12);
        decomposition_map(&s.whole, divisor / scale, (const double(*)[3])table, 5, s.expected);
        assert_true(relative_error(s.y, s.expected, 12 * 30) < 1e-10);
        free_sample(&s);
    }
}

/* ---- well-conditioned matrices ---- */

static void gaussian_matrices_come_out_close(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("Gaussian matrices");
    const struct {
        muonium_dtype precision;
        double limit;
    } modes[] = {
        {MUONIUM_F32, 1e-5}, {MUONIUM_F64, 1e-10}, {MUONIUM_BF16, 2e-2}, {MUONIUM_F16, 5e-3}};
    for (size_t i = 0; i < 4; i++) {
        sample s = gaussian(&rng, storage_of(modes[i].precision), 128, 512);
        for (int c = 0; c < 3 * 2; c++) {
            muonium_plan_options options = options_for(c % 2 ? "original" : NULL, 5);
            options.precision = modes[i].precision;
            options.form = forms[c / 2];
            double table[5][3];
            spectra_table(&options, table);
            double error = error_of(&s, &options, (const double(*)[3])table);
            /* In bf16 the default table, steeper than `original`, ends near 0.02 however
             * it is computed; and the Gram form, if asked for, rounds Q as well. */
            bool half = i >= 2;
            double limit = modes[i].limit * (half && c % 2 == 0 ? 1.25 : 1);
            limit *= half && options.form == MUONIUM_FORM_GRAM ? 1.5 : 1;
            if (!(error <= limit)) {
                report(&s, &options, error, limit);
                fail();
            }
        }
        free_sample(&s);
    }
}

/* Half-type inputs to an f32 computation are exact; only the result is rounded. */
static void half_inputs_lose_nothing_but_the_last_rounding(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("half inputs");
    for (int i = 0; i < 2; i++) {
        muonium_dtype dtype = i ? MUONIUM_F16 : MUONIUM_BF16;
        sample s = gaussian(&rng, dtype, 40, 90);
        muonium_plan_options options = options_for(NULL, 5);
        double exact[40 * 90];
        spectra_run(&options, MUONIUM_F32, 40, 90, s.x, exact, NULL);
        spectra_run(&options, dtype, 40, 90, s.x, s.y, NULL);
        spectra_round(dtype, exact, 40 * 90);
        assert_memory_equal(exact, s.y, sizeof exact);
        free_sample(&s);
    }
}

static void singular_values_end_in_the_published_bands(void **state)
{
    (void)state;
    const struct {
        const char *preset;
        double low, high;
    } bands[] = {{"original", .471, 1.202},
                 {"quintic", .475, 1.145},
                 {"polar_express_5", .859, 1.141},
                 {"cans", .884, 1.120},
                 {"cubic", .119, 1.300}};
    test_rng rng = test_rng_start("bands");
    double sigma[64], x[64 * 100], y[64 * 100];
    for (size_t i = 0; i < sizeof bands / sizeof bands[0]; i++) {
        for (int c = 0; c < 2 * 3; c++) {
            muonium_plan_options options = options_for(bands[i].preset, 5);
            options.normalization = MUONIUM_NORM_SPECTRAL;
            options.precision = c % 2 ? MUONIUM_F64 : MUONIUM_F32;
            options.form = forms[c / 2];
            for (size_t l = 0; l < 64; l++) { /* spectral divides by up to 1.03 of the largest */
                sigma[l] = pow(10, -log10(1000 / 1.04) * (double)l / 63);
            }
            spectra_matrix(&rng, sigma, 64, 100, x);
            spectra_run(&options, storage_of(options.precision), 64, 100, x, y, NULL);
            decomposition d = decompose(y, 64, 100);
            double slack = 5e-4 + (c % 2 ? 0 : 1e-3); /* printed digits; rounding */
            if (d.sigma[0] > bands[i].high + slack || d.sigma[63] < bands[i].low - slack) {
                print_error("%s, %s form: %.4f to %.4f\n", bands[i].preset,
                            muonium_enum_name("muonium_form", (int)options.form), d.sigma[63],
                            d.sigma[0]);
                fail();
            }
            decomposition_free(&d);
        }
    }
}

/* The four measures of a polar factor U of A, with H the symmetric part of U^T A. */
static void check_polar_factor(const decomposition *a, const double *x, const double *u, size_t m,
                               size_t n, double limit)
{
    double inner = 0, residual = 0, size = 0;
    double *h = calloc(m * m, sizeof *h);
    assert_non_null(h);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            for (size_t l = 0; l < n; l++) {
                h[i * m + j] += 0.5 * (x[i * n + l] * u[j * n + l] + u[i * n + l] * x[j * n + l]);
            }
        }
        inner += h[i * m + i];
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t l = 0; l < n; l++) {
            double product = 0;
            for (size_t j = 0; j < m; j++) {
                product += h[i * m + j] * u[j * n + l];
            }
            residual += (product - x[i * n + l]) * (product - x[i * n + l]);
            size += x[i * n + l] * x[i * n + l];
        }
    }
    free(h);
    decomposition d = decompose(u, m, n);
    double nuclear = schatten_norm(a, 1);
    assert_true(distance_from_orthogonal(u, m, n) <= limit * sqrt((double)m));
    assert_true(sqrt(residual / size) <= limit);
    assert_true(fabs(nuclear - inner) / nuclear <= limit);
    assert_true(fmax(d.sigma[0] - 1, 0) <= limit);
    decomposition_free(&d);
}

static void ten_iterations_give_the_polar_factor(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("polar factor");
    for (size_t i = 0; i < 3; i++) { /* singular values from 0.2 to 1 of any scale */
        for (int c = 0; c < 2 * 3; c++) {
            muonium_plan_options options = options_for(NULL, 10);
            options.precision = c % 2 ? MUONIUM_F64 : MUONIUM_F32;
            options.form = forms[c / 2];
            sample s = draw_sample(&spectra[i], storage_of(options.precision), &rng, 48, 120);
            spectra_run(&options, storage_of(options.precision), 48, 120, s.x, s.y, NULL);
            check_polar_factor(&s.whole, s.x, s.y, 48, 120, c % 2 ? 1e-9 : 1e-5);
            free_sample(&s);
        }
    }
}

/* ---- forms against each other ---- */

/* The error of a form over that of the standard form, both at least the rounding of the result. */
static double times_standard(sample *s, muonium_plan_options options)
{
    double table[MUONIUM_MAX_STEPS][3];
    muonium_form form = options.form;
    spectra_table(&options, table);
    options.form = MUONIUM_FORM_STANDARD;
    double standard = error_of(s, &options, (const double(*)[3])table);
    options.form = form;
    double error = error_of(s, &options, (const double(*)[3])table);
    double ratio = error / fmax(standard, 4 * spectra_unit(options.precision));
    if (!(ratio <= 6)) {
        report(s, &options, error, 6 * standard);
    }
    return ratio;
}

static void cheapest_is_as_good_as_the_standard_form(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("cheapest against standard");
    const int steps[] = {5, 8, 10};
    const size_t shapes[][2] = {{48, 192}, {24, 400}};
    double worst = 0;
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        for (size_t c = 0; c < 3 * 2 * 2; c++) {
            muonium_plan_options options = options_for(NULL, steps[c / 4]);
            options.precision = c % 2 ? MUONIUM_F64 : MUONIUM_F32;
            const size_t *shape = shapes[c / 2 % 2];
            sample s = draw_sample(kind, options.precision, &rng, shape[0], shape[1]);
            double ratio = times_standard(&s, options);
            assert_true(ratio <= 6);
            worst = fmax(worst, ratio);
            free_sample(&s);
        }
    }
    print_message("quintic: at most %.2f times the error of the standard form\n", worst);
}

/* Many iterations raise even the rounding error of small singular values to 1, so there is no
 * reference. But nothing may diverge. */
static void long_tables_stay_bounded(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("long tables");
    const muonium_shape shape = {1, 20, 60};
    const int steps[] = {20, 32, 64};
    for (int c = 0; c < 3 * 2; c++) {
        muonium_plan_options options = options_for(NULL, steps[c / 2]);
        options.precision = c % 2 ? MUONIUM_F64 : MUONIUM_F32;
        double limit = 1 + 1e3 * spectra_unit(options.precision);
        muonium_plan *plan;
        assert_ok(muonium_plan_create(shape, &options, &plan));
        for (const spectrum *kind = spectra; kind->fill; kind++) {
            sample s = draw_sample(kind, options.precision, &rng, shape.rows, shape.cols);
            void *data = spectra_store(options.precision, s.x, shape.rows * shape.cols);
            muonium_view view = muonium_dense(options.precision, shape, data);
            assert_ok(muonium_plan_execute(plan, &view, &view, NULL, NULL));
            spectra_load(options.precision, data, s.y, shape.rows * shape.cols);
            decomposition d = decompose(s.y, shape.rows, shape.cols);
            if (!(d.sigma[0] <= limit)) {
                report(&s, &options, d.sigma[0], limit);
                fail();
            }
            decomposition_free(&d);
            free_sample(&s);
            free(data);
        }
        muonium_plan_destroy(plan);
    }
}

static void quintic_takes_the_cheapest_form(void **state)
{
    (void)state;
    const struct {
        muonium_shape shape;
        muonium_dtype precision;
        muonium_form form;
    } cases[] = {
        {{1, 64, 64}, MUONIUM_F32, MUONIUM_FORM_STANDARD},
        {{1, 64, 512}, MUONIUM_F32, MUONIUM_FORM_GRAM},
        {{1, 512, 64}, MUONIUM_F32, MUONIUM_FORM_GRAM},
        {{1, 64, 512}, MUONIUM_F64, MUONIUM_FORM_GRAM},
        {{1, 64, 512}, MUONIUM_BF16, MUONIUM_FORM_STANDARD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        muonium_plan_options options = options_for(NULL, 5);
        options.precision = cases[i].precision;
        double flops[3];
        for (int f = 0; f < 3; f++) {
            muonium_plan *plan;
            muonium_plan_info info;
            options.form = forms[f];
            assert_ok(muonium_plan_create(cases[i].shape, &options, &plan));
            assert_ok(muonium_plan_describe(plan, &info));
            muonium_plan_destroy(plan);
            flops[f] = info.flops;
            assert_int_equal(info.form, f == 0 ? cases[i].form : forms[f]);
            for (int r = 0; r < info.restarts; r++) {
                assert_in_range(info.restart[r], 1, 4);
            }
        }
        assert_true(flops[0] == flops[cases[i].form]);
        assert_true(cases[i].precision == MUONIUM_BF16 || flops[0] <= fmin(flops[1], flops[2]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values_to_four_digits),
        cmocka_unit_test(every_spectrum_in_f32),
        cmocka_unit_test(every_spectrum_in_f64),
        cmocka_unit_test(every_spectrum_in_fixed23),
        cmocka_unit_test(every_spectrum_in_fixed15),
        cmocka_unit_test(every_spectrum_stays_bounded_in_half_types),
        cmocka_unit_test(every_size_up_to_67),
        cmocka_unit_test(random_sizes_and_options),
        cmocka_unit_test(divisors_with_eps_and_safety),
        cmocka_unit_test(gaussian_matrices_come_out_close),
        cmocka_unit_test(half_inputs_lose_nothing_but_the_last_rounding),
        cmocka_unit_test(singular_values_end_in_the_published_bands),
        cmocka_unit_test(ten_iterations_give_the_polar_factor),
        cmocka_unit_test(cheapest_is_as_good_as_the_standard_form),
        cmocka_unit_test(long_tables_stay_bounded),
        cmocka_unit_test(quintic_takes_the_cheapest_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
