/*
 * test_certificate.c: certificates of results, and the guard against singular values beyond the
 * stable edge.
 */
#include "test.h"

#include <math.h>

#include "spectra.h"

enum { ROWS = 18, COLS = 40, COUNT = ROWS * COLS, PRECISIONS = MUONIUM_AUTO + 1 };

static muonium_plan_options options_for(const char *preset, int steps)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.coefficients = preset;
    options.steps = steps;
    return options;
}

/* ---- deviation and bound ---- */

/* Run, and compare the deviation with that of the reference before the last iteration, and the
 * bound with ||I - Y Y^T||_F of the result. */
static void check_certificate(const char *name, const double *x, muonium_plan_options options)
{
    double y[COUNT], divided[COUNT], table[MUONIUM_MAX_STEPS][3];
    muonium_certificate certificate;
    spectra_run(&options, options.precision == MUONIUM_F64 ? MUONIUM_F64 : MUONIUM_F32, ROWS, COLS,
                x, y, &certificate);
    spectra_table(&options, table);
    const double(*rows)[3] = (const double(*)[3])table;
    bool by_rows = options.normalization == MUONIUM_NORM_AOL;
    memcpy(divided, x, sizeof divided);
    if (by_rows) {
        divide_rows(divided, ROWS, COLS);
    }
    decomposition d = decompose(divided, ROWS, COLS);
    double divisor = by_rows ? 1 : certificate.divisor, sum = 0;
    for (size_t l = 0; l < d.count; l++) {
        double value = composed(rows, options.steps - 1, d.sigma[l] / divisor);
        sum += (1 - value * value) * (1 - value * value);
    }
    decomposition_free(&d);
    double rounding = 32 * spectra_unit(options.precision) * amplification(rows, options.steps);
    double distance = distance_from_orthogonal(y, ROWS, COLS);
    bool same = certificate.rescued > 0 ||
                fabs(certificate.deviation - sqrt(sum)) <= rounding * (1 + sqrt(sum));
    bool covered = certificate.bound >= distance * (1 - rounding) - rounding;
    if (!same || !covered || certificate.outcome != MUONIUM_ORTHOGONALIZED) {
        print_error("%s, %s, precision %d, form %d, normalization %d, %d steps: deviation %.9g "
                    "(%.9g expected), bound %.9g on a distance of %.9g, rescued %d\n",
                    name, options.coefficients ? options.coefficients : "default",
                    (int)options.precision, (int)options.form, (int)options.normalization,
                    options.steps, certificate.deviation, sqrt(sum), certificate.bound, distance,
                    certificate.rescued);
        fail();
    }
    assert_true(options.normalization == MUONIUM_NORM_NONE || options.table != NULL ||
                certificate.rescued == 0);
}

static void certificates_hold_on_every_spectrum(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("certificates");
    const int steps[] = {1, 2, 5, 8};
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        double x[COUNT];
        spectra_draw(kind, &rng, ROWS, COLS, x);
        spectra_round(MUONIUM_F32, x, COUNT);
        for (int preset = -1; preset < 0 || muonium_preset_name(preset) != NULL; preset++) {
            const char *name = preset < 0 ? NULL : muonium_preset_name(preset);
            bool needs_rows = name && strcmp(name, "aol") == 0;
            for (int c = 0; c < 4 * 2 * 2 * 4; c++) {
                muonium_plan_options options = options_for(name, steps[c / 16]);
                options.normalization = (muonium_normalization)(c % 4);
                options.precision = c / 4 % 2 ? MUONIUM_F64 : MUONIUM_F32;
                options.form = c / 8 % 2 ? MUONIUM_FORM_GRAM : MUONIUM_FORM_STANDARD;
                if (!needs_rows || options.normalization == MUONIUM_NORM_AOL) {
                    check_certificate(kind->name, x, options);
                }
            }
        }
    }
}

/* Tables that nobody would choose: the bound must hold all the same. */
static void bounds_hold_for_random_tables(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("random tables");
    size_t count = 0;
    while (spectra[count].fill) {
        count++;
    }
    for (int round = 0; round < 400; round++) {
        double x[COUNT], table[3][3];
        for (int t = 0; t < 3; t++) {
            table[t][0] = test_uniform(&rng, 0.5, 4);
            table[t][1] = test_uniform(&rng, -4, 1);
            table[t][2] = test_uniform(&rng, -1, 2);
        }
        const spectrum *kind = &spectra[test_below(&rng, count)];
        spectra_draw(kind, &rng, ROWS, COLS, x);
        spectra_round(MUONIUM_F32, x, COUNT);
        muonium_plan_options options = options_for(NULL, 1 + (int)test_below(&rng, 3));
        options.table = (const double(*)[3])table;
        options.table_rows = 3;
        options.precision = MUONIUM_F64;
        options.normalization = (muonium_normalization)test_below(&rng, 4);
        check_certificate(kind->name, x, options);
    }
}

/* ---- measurements ---- */

/* The distance that Lanczos may have from the ends of the spectrum, relative to its width: four
 * times the expectation after k iterations from a random vector (Kuczynski and Wozniakowski,
 * 1992). */
static double lanczos_tolerance(size_t m)
{
    const double k = 24;
    double ratio = log((double)m * (k - 1) * (k - 1)) / (k - 1);
    return m <= (size_t)k ? 0 : 4 * 0.103 * ratio * ratio;
}

static void check_measurements(const char *name, size_t rows, size_t cols,
                               muonium_plan_options options, const double *x)
{
    size_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    double *y = malloc(rows * cols * sizeof *y);
    assert_non_null(y);
    bool wide = options.precision == MUONIUM_F64;
    muonium_certificate c;
    spectra_run(&options, wide ? MUONIUM_F64 : MUONIUM_F32, rows, cols, x, y, &c);
    decomposition d = decompose(y, rows, cols);
    double high = d.sigma[0] * d.sigma[0], low = d.sigma[m - 1] * d.sigma[m - 1];
    /* Sums of n products in Y Y^T, whose rows are no longer than the largest value, sums of m
     * products with a vector, and a few more roundings, LAPACK's among them. */
    double unit = wide ? 0x1p-53 : 0x1p-24, distance = distance_from_orthogonal(y, rows, cols);
    double rounding = 4 * (double)(n * m + 8) * unit * (1 + high);
    double inside = rounding + lanczos_tolerance(m) * (high - low);
    double least = c.sigma_min * c.sigma_min, most = c.sigma_max * c.sigma_max;
    bool right = fabs(c.orthogonality_error - distance) <= rounding &&
                 c.bound == c.orthogonality_error && least >= low - rounding &&
                 least <= low + inside && most <= high + rounding && most >= high - inside;
    if (!right) {
        print_error("%s, %zu x %zu, precision %d, form %d: error %.9g (%.9g), singular values "
                    "%.9g to %.9g (%.9g to %.9g)\n",
                    name, rows, cols, (int)options.precision, (int)options.form,
                    c.orthogonality_error, distance, c.sigma_min, c.sigma_max, d.sigma[m - 1],
                    d.sigma[0]);
        fail();
    }
    decomposition_free(&d);
    free(y);
}

static void measurements_agree_with_lapack(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("measurements");
    const size_t sizes[][2] = {{1, 5}, {2, 2}, {24, 30}, {18, 7}, {60, 70}, {90, 50}};
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            double x[90 * 80];
            size_t rows = sizes[s][0], cols = sizes[s][1];
            spectra_draw(kind, &rng, rows, cols, x);
            spectra_round(MUONIUM_F32, x, rows * cols);
            for (int c = 0; c < 3 * PRECISIONS; c++) {
                muonium_plan_options options = options_for(NULL, 5);
                options.precision = (muonium_dtype)(c % PRECISIONS);
                options.form = (muonium_form)(MUONIUM_FORM_STANDARD + c / PRECISIONS);
                options.exact_certificate = true;
                bool half = options.precision == MUONIUM_BF16 || options.precision == MUONIUM_F16;
                if (!half || options.form != MUONIUM_FORM_DIRECT) {
                    check_measurements(kind->name, rows, cols, options, x);
                }
            }
        }
    }
}

/* A certificate measures the result, so it does not have the error of few digits: that of fixed15
 * is as exact as that of fixed23. */
static void measurements_do_not_depend_on_digits(void **state)
{
    (void)state;
    enum { SIDE = 96, WIDE = 200 };
    test_rng rng = test_rng_start("digits");
    static double x[SIDE * WIDE], y[SIDE * WIDE];
    for (int c = 0; c < 2 * 3; c++) {
        test_fill_normal(&rng, x, SIDE * WIDE);
        spectra_round(MUONIUM_F32, x, SIDE * WIDE);
        muonium_plan_options options = options_for(NULL, 8);
        options.precision = c % 2 ? MUONIUM_FIXED15 : MUONIUM_FIXED23;
        options.form = (muonium_form)(MUONIUM_FORM_STANDARD + c / 2);
        options.steps = options.form == MUONIUM_FORM_DIRECT ? 5 : 8;
        options.exact_certificate = true;
        muonium_certificate found;
        spectra_run(&options, MUONIUM_F32, SIDE, WIDE, x, y, &found);
        /* Sums of 200 products of numbers of some 0.07, rounded to 23 bits, in 96^2 elements. */
        double error = fabs(found.orthogonality_error - distance_from_orthogonal(y, SIDE, WIDE));
        if (!(error < 2e-5)) {
            print_error("precision %d, form %d: off by %.3g\n", (int)options.precision,
                        (int)options.form, error);
            fail();
        }
    }
}

/* Figures that were not asked for are NaN, so that nobody mistakes them for a perfect result. */
static void nothing_is_measured_unasked(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("unasked");
    double x[COUNT], y[COUNT];
    spectra_draw(&spectra[0], &rng, ROWS, COLS, x);
    muonium_plan_options options = options_for(NULL, 5);
    muonium_certificate c;
    spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, y, &c);
    assert_true(isnan(c.orthogonality_error) && isnan(c.sigma_min) && isnan(c.sigma_max));
}

/* ---- the guard ---- */

typedef struct promise_breaker {
    const char *name;
    double most; /* of the singular values above 1 */
    size_t many; /* how many of them */
    double rest; /* the others */
} promise_breaker;

static const promise_breaker breakers[] = {
    {"all far above", 30, ROWS, 0},          {"all a little above", 1.2, ROWS, 0},
    {"one far above, rest small", 9, 1, .1}, {"one above, rest at 1", 1.5, 1, 1},
    {"one above, rest at 0.9", 1.3, 1, .9},  {"one barely above, rest at 1", 1.05, 1, 1},
    {"half above", 1.1, ROWS / 2, 1},
};

static void break_promise(const promise_breaker *breaker, test_rng *rng, double *x)
{
    double sigma[ROWS];
    for (size_t l = 0; l < ROWS; l++) {
        sigma[l] = l < breaker->many ? breaker->most : breaker->rest;
    }
    spectra_matrix(rng, sigma, ROWS, COLS, x);
    spectra_round(MUONIUM_F32, x, COUNT);
}

static void broken_promises_are_rescued(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("guard");
    for (size_t i = 0; i < sizeof breakers / sizeof breakers[0]; i++) {
        for (int c = 0; c < 3 * 2 * 3; c++) {
            double x[COUNT], y[COUNT], polar[COUNT];
            break_promise(&breakers[i], &rng, x);
            muonium_plan_options options = options_for(c % 3 ? NULL : "polar_express", 8);
            options.normalization = MUONIUM_NORM_NONE;
            options.precision = c / 3 % 2 ? MUONIUM_F64 : MUONIUM_F32;
            options.form = (muonium_form)(c / 6);
            muonium_certificate certificate;
            spectra_run(&options, options.precision, ROWS, COLS, x, y, &certificate);
            /* The polar factor U V^T, as the limit of sigma / sigma. */
            decomposition d = decompose(x, ROWS, COLS);
            for (size_t l = 0; l < d.count; l++) {
                d.sigma[l] = 1;
            }
            decomposition_map(&d, 1, NULL, 0, polar);
            decomposition_free(&d);
            double error = relative_error(y, polar, COUNT);
            double distance = distance_from_orthogonal(y, ROWS, COLS);
            if (!(error < 0.1) || certificate.rescued < 1 ||
                !(certificate.bound >= distance - 1e-5)) {
                print_error("%s, form %d, precision %d: rescued %d, error %.3g, bound %.3g on a "
                            "distance of %.3g\n",
                            breakers[i].name, (int)options.form, (int)options.precision,
                            certificate.rescued, error, certificate.bound, distance);
                fail();
            }
        }
    }
}

/* Large values do not overflow, and a kept promise changes nothing. */
static void guard_at_the_extremes(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("guard at the extremes");
    double x[COUNT], y[COUNT], large[COUNT];
    spectra_draw(&spectra[0], &rng, ROWS, COLS, x);
    muonium_plan_options options = options_for(NULL, 8);
    options.normalization = MUONIUM_NORM_NONE;
    muonium_certificate certificate;
    for (int power = 10; power <= 125; power += 23) {
        for (size_t i = 0; i < COUNT; i++) {
            large[i] = ldexp(x[i], power);
        }
        spectra_run(&options, MUONIUM_F32, ROWS, COLS, large, y, &certificate);
        assert_true(certificate.rescued >= 1);
        assert_true(distance_from_orthogonal(y, ROWS, COLS) < 0.1);
    }
    spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, y, &certificate);
    assert_int_equal(certificate.rescued, 0);
    assert_true(certificate.divisor == 1);
}

/* ---- outcomes ---- */

static void divisor_of_rows_is_the_largest_in_use(void **state)
{
    (void)state;
    /* A zero row stays zero and divides nothing. */
    const double x[2 * 3] = {.3, .2, .1, 0, 0, 0};
    double y[2 * 3];
    muonium_plan_options options = options_for("aol", 4);
    options.normalization = MUONIUM_NORM_AOL;
    options.precision = MUONIUM_F64;
    muonium_certificate certificate;
    spectra_run(&options, MUONIUM_F64, 2, 3, x, y, &certificate);
    assert_true(fabs(certificate.divisor - sqrt(.14)) < 1e-12);
    for (int j = 0; j < 3; j++) {
        assert_true(y[3 + j] == 0);
    }
}

static void zero_orthogonalizes_to_zero(void **state)
{
    (void)state;
    for (int c = 0; c < PRECISIONS * 5 * 3; c++) {
        muonium_plan_options options = options_for(NULL, 5);
        options.precision = (muonium_dtype)(c % PRECISIONS);
        options.normalization = (muonium_normalization)(c / PRECISIONS % 5);
        options.form = (muonium_form)(c / PRECISIONS / 5);
        double x[COUNT] = {0}, y[COUNT];
        x[7] = -0.0;
        muonium_certificate certificate;
        spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, y, &certificate);
        assert_int_equal(certificate.outcome, MUONIUM_ZERO);
        assert_true(certificate.deviation == sqrt(ROWS) && certificate.bound == sqrt(ROWS));
        assert_true(certificate.orthogonality_error == sqrt(ROWS));
        assert_true(certificate.sigma_min == 0 && certificate.sigma_max == 0);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(y[i] == 0 && !signbit(y[i]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_hold_on_every_spectrum),
        cmocka_unit_test(bounds_hold_for_random_tables),
        cmocka_unit_test(measurements_agree_with_lapack),
        cmocka_unit_test(measurements_do_not_depend_on_digits),
        cmocka_unit_test(nothing_is_measured_unasked),
        cmocka_unit_test(broken_promises_are_rescued),
        cmocka_unit_test(guard_at_the_extremes),
        cmocka_unit_test(divisor_of_rows_is_the_largest_in_use),
        cmocka_unit_test(zero_orthogonalizes_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
