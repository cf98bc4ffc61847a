/*
 * test_direct.c: the direct form: its sets on single numbers; results on all spectra against
 * singular value decomposition; rounding; bits over threads, batches, strides and scales;
 * certificates; and the choice by `auto`.
 *
 * Rounding. f32 may differ from f64 by twice the figures below, measured on 256 x 1024
 * (docs/direct.md), and by sqrt(256 / m) more for smaller matrices, where single singular values
 * weigh more.
 */
#include "test.h"

#include <math.h>

#include "direct_value.h"
#include "spectra.h"

static muonium_plan_options direct(const char *set)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.form = MUONIUM_FORM_DIRECT;
    options.direct_set = set;
    return options;
}

static muonium_plan_info describe(muonium_shape shape, const muonium_plan_options *options)
{
    muonium_plan *plan;
    muonium_plan_info info;
    assert_ok(muonium_plan_create(shape, options, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    muonium_plan_destroy(plan);
    return info;
}

/* ---- sets ---- */

static void sets_keep_what_their_table_says(void **state)
{
    (void)state;
    enum { POINTS = 200000 };
    const mu_direct_set *set;
    for (size_t s = 0; (set = mu_direct_set_at(s)) != NULL; s++) {
        double worst = 0, below = 0, highest = 0;
        for (int i = 0; i <= POINTS; i++) {
            double value = direct_value(set, pow(1e-3, (double)i / POINTS));
            worst = fmax(worst, fabs(value - 1));
            /* Below the interval, values must stay in the range that certificates assume. */
            double small = direct_value(set, 1e-3 * (double)i / POINTS);
            below = fmin(below, small);
            highest = fmax(highest, small);
        }
        assert_true(worst <= set->deviation * (1 + 1e-6));
        assert_true(worst >= set->deviation * (1 - 1e-3));
        assert_true(below >= 0 && highest <= 1 + set->deviation);
        for (double sigma = 1; sigma <= set->edge; sigma += 1e-5) {
            assert_true(fabs(direct_value(set, sigma) - 1) <= 0.3);
        }
        assert_true(fabs(direct_value(set, set->edge + 2e-4) - 1) > 0.3);
        assert_ptr_equal(mu_direct_set_named(set->name), set);
        assert_string_equal(muonium_direct_set_name((int)s), set->name);
    }
}

/* ---- results ---- */

/* y = U diag(sigma h(sigma^2)) V^T, sigma over the Frobenius norm. */
static void expected_of(const decomposition *whole, const mu_direct_set *set, double *y)
{
    decomposition mapped = *whole;
    mapped.sigma = calloc(whole->count, sizeof *mapped.sigma);
    assert_non_null(mapped.sigma);
    double norm = schatten_norm(whole, 2);
    for (size_t l = 0; l < whole->count; l++) {
        mapped.sigma[l] = norm > 0 ? direct_value(set, whole->sigma[l] / norm) : 0;
    }
    decomposition_map(&mapped, 1, NULL, 0, y);
    free(mapped.sigma);
}

/* Singular values of at least 1e-3 of the norm end within the set's deviation from 1; no other
 * ends above that. Returns by how much one is outside. */
static double beyond_band(const decomposition *whole, const double *y, double band)
{
    size_t count = whole->count, inside = 0;
    double norm = schatten_norm(whole, 2);
    while (inside < count && whole->sigma[inside] >= 1e-3 * norm) {
        inside++;
    }
    decomposition after = decompose(y, whole->rows, whole->cols);
    double above = after.sigma[0] - 1 - band;
    double below = inside > 0 ? 1 - band - after.sigma[inside - 1] : 0;
    decomposition_free(&after);
    return fmax(0, fmax(above, below));
}

enum { F32, FIXED23, FIXED15, NARROW };
static const muonium_dtype narrow_types[NARROW] = {MUONIUM_F32, MUONIUM_FIXED23, MUONIUM_FIXED15};

typedef struct measured {
    double f64, narrow[NARROW]; /* against the decomposition; against f64 */
    double outside[NARROW];     /* of the band */
} measured;

static measured measure(test_rng *rng, const spectrum *kind, const mu_direct_set *set, size_t rows,
                        size_t cols)
{
    size_t count = rows * cols;
    double *x = calloc(4 * count, sizeof *x);
    assert_non_null(x);
    double *wide = x + count, *narrow = wide + count, *expected = narrow + count;
    muonium_plan_options options = direct(set->name);
    spectra_draw(kind, rng, rows, cols, x);
    spectra_round(MUONIUM_F32, x, count);
    decomposition whole = decompose(x, rows, cols);
    muonium_certificate certificate;
    options.precision = MUONIUM_F64;
    spectra_run(&options, MUONIUM_F64, rows, cols, x, wide, &certificate);
    expected_of(&whole, set, expected);
    measured found = {.f64 = relative_error(wide, expected, count)};
    assert_true(beyond_band(&whole, wide, set->deviation) <= 1e-6);
    for (int i = 0; i < NARROW; i++) {
        options.precision = narrow_types[i];
        if (i == FIXED15 && strcmp(set->name, "S12") == 0) {
            continue; /* refused, see below */
        }
        spectra_run(&options, MUONIUM_F32, rows, cols, x, narrow, NULL);
        found.narrow[i] = relative_error(narrow, wide, count);
        found.outside[i] = beyond_band(&whole, narrow, set->deviation);
    }
    double distance = distance_from_orthogonal(wide, rows, cols);
    assert_true(certificate.deviation <= distance + 1e-9);
    assert_true(certificate.bound >= distance - 1e-9);
    decomposition_free(&whole);
    free(x);
    return found;
}

static void every_spectrum_at_every_size(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("direct spectra");
    const size_t shapes[][2] = {
        {8, 8},
        {8, 100},
        {31, 20},
#if !defined(TEST_SANITIZED) /* where they take minutes */
        {64, 64},
        {97, 130},
        {200, 50},
#endif
    };
    /* The worst that f32 does on 256 x 1024, which is the worst of fixed23 too; and the worst that
     * fixed15 does on 256 x 256: P12 on rank 1. */
    const double limits[NARROW] = {2 * 3.6e-3, 2 * 3.6e-3, 2 * 7.8e-2};
    double worst_f64 = 0, worst[NARROW] = {0}, outside[NARROW] = {0};
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        for (size_t c = 0; c < sizeof shapes / sizeof shapes[0]; c++) {
            const mu_direct_set *set;
            for (size_t s = 0; (set = mu_direct_set_at(s)) != NULL; s++) {
                measured found = measure(&rng, kind, set, shapes[c][0], shapes[c][1]);
                size_t m = shapes[c][0] < shapes[c][1] ? shapes[c][0] : shapes[c][1];
                for (int i = 0; i < NARROW; i++) {
                    double limit = limits[i] * sqrt(256 / (double)m);
                    /* In fixed15 single singular values of small matrices lose as much. */
                    double room = i == FIXED15 ? limit : 2 * limits[i];
                    if (!(found.f64 <= 1e-9) || !(found.narrow[i] <= limit) ||
                        !(found.outside[i] <= room)) {
                        print_error("%s, %s, %zu x %zu: f64 off by %.3g, %s by %.3g of %.3g; "
                                    "singular values beyond the band by %.3g of %.3g\n",
                                    kind->name, set->name, shapes[c][0], shapes[c][1], found.f64,
                                    muonium_enum_name("muonium_dtype", (int)narrow_types[i]),
                                    found.narrow[i], limit, found.outside[i], room);
                        fail();
                    }
                    worst[i] = fmax(worst[i], found.narrow[i]);
                    outside[i] = fmax(outside[i], found.outside[i]);
                }
                worst_f64 = fmax(worst_f64, found.f64);
            }
        }
    }
    print_message(
        "direct: f64 within %.2g of the reference; f32 within %.2g of f64, fixed23 within "
        "%.2g, fixed15 within %.2g; beyond the band by %.2g, %.2g, %.2g\n",
        worst_f64, worst[F32], worst[FIXED23], worst[FIXED15], outside[F32], outside[FIXED23],
        outside[FIXED15]);
}

#if !defined(TEST_SANITIZED) /* under which large matrices take minutes and show nothing more */

/* Too large to decompose: rounding only, of the set that `auto` chooses, on the spectra that suffer
 * most from it. */
static void large_matrices_round_no_worse(void **state)
{
    (void)state;
    enum { SIDE = 1024, COUNT = SIDE * SIDE };
    test_rng rng = test_rng_start("direct, large");
    double *x = calloc(3 * (size_t)COUNT, sizeof *x), *wide = x + COUNT, *narrow = wide + COUNT;
    assert_non_null(x);
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        if (!strstr(kind->name, "logspace") && !strstr(kind->name, "rank 2")) {
            continue;
        }
        muonium_plan_options options = direct("P11");
        spectra_draw(kind, &rng, SIDE, SIDE, x);
        spectra_round(MUONIUM_F32, x, COUNT);
        spectra_run(&options, MUONIUM_F32, SIDE, SIDE, x, narrow, NULL);
        options.precision = MUONIUM_F64;
        spectra_run(&options, MUONIUM_F64, SIDE, SIDE, x, wide, NULL);
        double error = relative_error(narrow, wide, COUNT);
        if (!(error <= 2 * 2.0e-3)) { /* the worst of the figures below */
            print_error("%s: f32 off by %.3g\n", kind->name, error);
            fail();
        }
    }
    free(x);
}

/* Figures of docs/direct.md for 256 x 1024, the worst of several matrices. */
static void rounding_is_as_published(void **state)
{
    (void)state;
    enum { ROWS = 256, COLS = 1024, COUNT = ROWS * COLS };
    test_rng rng = test_rng_start("direct rounding");
    const struct {
        const char *spectrum;
        double p11, p12, p13, s12;
    } figures[] = {{"logspace 0 to -3", 1.2e-3, 1.0e-3, 1.0e-3, 9.6e-4},
                   {"logspace 0 to -9", 2.0e-3, 2.6e-3, 2.5e-3, 3.6e-3},
                   {"half zeros", 6.5e-4, 6.7e-4, 5.2e-4, 1.4e-3},
                   {"rank 2", 5.1e-4, 5.6e-4, 3.5e-4, 3.4e-4},
                   {"linspace 0 to 0.5", 8.9e-5, 5.6e-5, 6.0e-5, 1.7e-4}};
    const char *const sets[] = {"P11", "P12", "P13", "S12"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        const spectrum *kind = spectra;
        while (strcmp(kind->name, figures[i].spectrum) != 0) {
            kind++;
        }
        const double published[] = {figures[i].p11, figures[i].p12, figures[i].p13, figures[i].s12};
        double *x = calloc(3 * COUNT, sizeof *x), *wide = x + COUNT, *narrow = wide + COUNT;
        assert_non_null(x);
        spectra_draw(kind, &rng, ROWS, COLS, x);
        spectra_round(MUONIUM_F32, x, COUNT);
        for (int s = 0; s < 4; s++) {
            muonium_plan_options options = direct(sets[s]);
            spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, narrow, NULL);
            options.precision = MUONIUM_F64;
            spectra_run(&options, MUONIUM_F64, ROWS, COLS, x, wide, NULL);
            double error = relative_error(narrow, wide, COUNT);
            if (!(error <= 2 * published[s])) {
                print_error("%s, %s: f32 off by %.3g, published %.3g\n", kind->name, sets[s], error,
                            published[s]);
                fail();
            }
        }
        free(x);
    }
}

#endif

/* On Gaussian matrices: small rounding errors, and nearer to the polar factor than five
 * quintics. */
static void gaussian_matrices_come_out_closer(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("direct Gaussian");
    const struct {
        const char *set;
        double rounding; /* f32, 256 x 1024 */
    } figures[] = {{"P11", 5.3e-6}, {"P12", 1.4e-5}, {"P13", 9.5e-6}, {"S12", 2.6e-4}};
    const size_t shapes[][2] = {{256, 1024}, {300, 300}, {40, 90}};
    for (size_t c = 0; c < 3; c++) {
        size_t rows = shapes[c][0], cols = shapes[c][1], count = rows * cols;
        double *x = calloc(4 * count, sizeof *x);
        assert_non_null(x);
        double *polar = x + count, *y = polar + count, *narrow = y + count;
        test_fill_normal(&rng, x, count);
        spectra_round(MUONIUM_F32, x, count);
        decomposition whole = decompose(x, rows, cols);
        for (size_t l = 0; l < whole.count; l++) {
            whole.sigma[l] = 1;
        }
        decomposition_map(&whole, 1, NULL, 0, polar);
        decomposition_free(&whole);
        muonium_plan_options options = direct(NULL);
        options.precision = MUONIUM_F64;
        options.form = MUONIUM_FORM_QUINTIC;
        spectra_run(&options, MUONIUM_F64, rows, cols, x, y, NULL);
        double quintics = relative_error(y, polar, count);
        for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
            options = direct(figures[i].set);
            spectra_run(&options, MUONIUM_F32, rows, cols, x, narrow, NULL);
            options.precision = MUONIUM_F64;
            spectra_run(&options, MUONIUM_F64, rows, cols, x, y, NULL);
            double distance = relative_error(y, polar, count);
            double rounding = relative_error(narrow, y, count);
            /* A square Gaussian matrix has singular values near 0, as logspace has. */
            double limit = rows == cols ? 2 * 1.2e-3 : 2 * figures[i].rounding;
            limit *= sqrt(256 / (double)rows);
            if (!(distance < quintics) || !(rounding <= limit)) {
                print_error("%s, %zu x %zu: %.4f from the polar factor (quintics %.4f), f32 off by "
                            "%.3g of %.3g\n",
                            figures[i].set, rows, cols, distance, quintics, rounding, limit);
                fail();
            }
        }
        free(x);
    }
}

static void normalizations_all_work(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("direct normalisations");
    double x[40 * 60], y[40 * 60];
    for (int c = 0; c < 4 * 3; c++) {
        muonium_plan_options options = direct("P12");
        options.normalization = (muonium_normalization)(c % 4);
        options.eps_mode = (muonium_eps_mode)(c / 4);
        options.precision = MUONIUM_F64;
        spectra_draw(&spectra[0], &rng, 40, 60, x);
        spectra_run(&options, MUONIUM_F64, 40, 60, x, y, NULL);
        decomposition d = decompose(y, 40, 60);
        assert_true(d.sigma[0] <= 1.0474 && d.sigma[39] >= 1 - 0.0474);
        decomposition_free(&d);
    }
}

static void extremes_do_not_blow_up(void **state)
{
    (void)state;
    enum { ROWS = 24, COLS = 40, COUNT = ROWS * COLS };
    const double scales[] = {1, 1e-30, 1e30, 0x1p-149, 0x1p100};
    test_rng rng = test_rng_start("direct extremes");
    double sigma[ROWS] = {1}, x[COUNT], y[COUNT];
    const mu_direct_set *set;
    for (size_t s = 0; (set = mu_direct_set_at(s)) != NULL; s++) {
        muonium_plan_options options = direct(set->name);
        muonium_certificate certificate;
        for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
            spectra_matrix(&rng, sigma, ROWS, COLS, x); /* rank 1 */
            for (size_t j = 0; j < COUNT; j++) {
                x[j] = scales[i] == 0x1p-149 ? ldexp(rint(x[j] * 64), -149) : x[j] * scales[i];
            }
            spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, y, &certificate);
            decomposition d = decompose(y, ROWS, COLS);
            assert_int_equal(certificate.outcome, MUONIUM_ORTHOGONALIZED);
            assert_true(d.sigma[0] <= 1 + set->deviation + 1e-3 && d.sigma[0] > 0.8);
            decomposition_free(&d);
        }
        memset(x, 0, sizeof x);
        spectra_run(&options, MUONIUM_F32, ROWS, COLS, x, y, &certificate);
        assert_int_equal(certificate.outcome, MUONIUM_ZERO);
        assert_memory_equal(x, y, sizeof x);
    }
}

/* ---- certificates ---- */

static void exact_certificates_are_exact(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("exact certificates");
    const muonium_form forms[] = {MUONIUM_FORM_DIRECT, MUONIUM_FORM_STANDARD, MUONIUM_FORM_GRAM};
    double x[30 * 50], y[30 * 50];
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        for (int f = 0; f < 3; f++) {
            muonium_plan_options options = direct(NULL);
            muonium_certificate certificate, plain;
            options.form = forms[f];
            options.precision = MUONIUM_F64;
            spectra_draw(kind, &rng, 30, 50, x);
            spectra_run(&options, MUONIUM_F64, 30, 50, x, y, &plain);
            options.exact_certificate = true;
            spectra_run(&options, MUONIUM_F64, 30, 50, x, y, &certificate);
            double distance = distance_from_orthogonal(y, 30, 50);
            assert_true(fabs(certificate.bound - distance) <= 1e-9 * (1 + distance));
            assert_true(certificate.deviation ==
                        (forms[f] == MUONIUM_FORM_DIRECT ? certificate.bound : plain.deviation));
            assert_true(plain.bound >= distance - 1e-9);
        }
    }
}

/* ---- bits ---- */

static void *run_batch(const muonium_plan_options *options, muonium_shape shape, const float *x)
{
    size_t bytes = shape.batch * shape.rows * shape.cols * sizeof(float);
    float *y = malloc(bytes);
    assert_non_null(y);
    muonium_view in = muonium_dense(MUONIUM_F32, shape, (void *)(uintptr_t)x);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
    assert_ok(muonium_orthogonalize(shape, options, &in, &out, NULL));
    return y;
}

static void bits_do_not_depend_on_the_way(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("direct bits");
    const muonium_shape shape = {3, 130, 211}, turned = {3, 211, 130};
    size_t each = shape.rows * shape.cols, count = shape.batch * each;
    float *x = malloc(count * sizeof *x), *transposed = malloc(count * sizeof *x);
    assert_true(x != NULL && transposed != NULL);
    test_fill_normal_f32(&rng, x, count);
    for (size_t i = 0; i < count; i++) {
        size_t at = i % each;
        transposed[i / each * each + at % shape.cols * shape.rows + at / shape.cols] = x[i];
    }
    const mu_direct_set *set;
    for (size_t s = 0; (set = mu_direct_set_at(s)) != NULL; s++) {
        muonium_plan_options options = direct(set->name);
        assert_ok(muonium_set_threads(1));
        float *expected = run_batch(&options, shape, x);
        for (int threads = 1; threads <= 5; threads++) {
            assert_ok(muonium_set_threads(threads));
            float *all = run_batch(&options, shape, x);
            assert_memory_equal(all, expected, count * sizeof *x);
            free(all);
            for (size_t b = 0; b < shape.batch; b++) {
                muonium_shape one = {1, shape.rows, shape.cols};
                float *single = run_batch(&options, one, x + b * each);
                assert_memory_equal(single, expected + b * each, each * sizeof *x);
                free(single);
            }
            float *tall = run_batch(&options, turned, transposed);
            for (size_t i = 0; i < count; i++) {
                size_t at = i % each;
                size_t there = i / each * each + at % shape.cols * shape.rows + at / shape.cols;
                assert_memory_equal(&tall[there], &expected[i], sizeof *x);
            }
            free(tall);
        }
        for (size_t i = 0; i < count; i++) {
            x[i] *= 0x1p-40F;
        }
        float *scaled = run_batch(&options, shape, x);
        assert_memory_equal(scaled, expected, count * sizeof *x);
        for (size_t i = 0; i < count; i++) {
            x[i] *= 0x1p40F;
        }
        free(scaled);
        free(expected);
    }
    assert_ok(muonium_set_threads(0));
    free(x);
    free(transposed);
}

/* ---- plans ---- */

static void plans_tell_what_they_do(void **state)
{
    (void)state;
    const muonium_shape shape = {1, 256, 1024};
    assert_ok(muonium_set_threads(1));
    muonium_plan_options options = direct(NULL);
    muonium_plan_info info = describe(shape, &options);
    assert_int_equal(info.form, MUONIUM_FORM_DIRECT);
    assert_string_equal(info.direct_set, "P12");
    assert_int_equal(info.restarts, 0);
    double triangle = 256.0 * 257, m = 256, n = 1024;
    assert_true(info.flops == triangle * n + 12 * triangle * m + 2 * m * m * n);
    assert_true(fabs(info.band - 0.0473) < 1e-4);
    /* Four squares, the copy of X, and the packing buffers of products. */
    size_t sparse = info.workspace;
    options.form = MUONIUM_FORM_GRAM;
    assert_int_equal(describe(shape, &options).workspace, sparse);
    options = direct("S12");
    size_t dense = describe(shape, &options).workspace;
    assert_in_range(dense - sparse, 12 * 256 * 256 * sizeof(float), 12 * 256 * 300 * sizeof(float));
    options.form = MUONIUM_FORM_QUINTIC;
    info = describe(shape, &options);
    assert_null(info.direct_set);
    assert_true(fabs(info.band - 0.141) < 1e-3);
    assert_ok(muonium_set_threads(0));
}

static void auto_takes_direct_for_the_default_polynomial_only(void **state)
{
    (void)state;
    const muonium_shape shape = {1, 256, 1024};
    const double table[1][3] = {{3, -3, 1}};
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    muonium_plan_info quintics, info = describe(shape, &options);
    assert_int_equal(info.form, MUONIUM_FORM_DIRECT);
    options.form = MUONIUM_FORM_QUINTIC;
    quintics = describe(shape, &options);
    assert_true(info.band <= quintics.band && info.flops < quintics.flops);
    for (int c = 0; c < 10; c++) {
        muonium_plan_options_init(&options);
        options.steps = c == 0 ? 6 : 5;
        options.lower = c == 1 ? 1e-2 : options.lower;
        options.safety = c == 2 ? 0 : options.safety;
        options.cushion = c == 3 ? 0.1 : options.cushion;
        options.coefficients = c == 4 ? "polar_express" : NULL;
        options.table = c == 5 ? table : NULL;
        options.table_rows = c == 5;
        options.precision = c == 6 ? MUONIUM_BF16 : MUONIUM_F32;
        options.normalization = c == 7 ? MUONIUM_NORM_NONE : MUONIUM_NORM_FROBENIUS;
        options.safety_factor = c == 8 ? 0.9 : 1;
        options.form = c == 9 ? MUONIUM_FORM_QUINTIC : MUONIUM_FORM_AUTO;
        assert_int_not_equal(describe(shape, &options).form, MUONIUM_FORM_DIRECT);
    }
    muonium_plan_options_init(&options);
    options.direct_set = "P13";
    assert_string_equal(describe(shape, &options).direct_set, "P13");
}

static void recipes_of_others_never_take_direct(void **state)
{
    (void)state;
    float weights[64 * 256] = {0}, gradients[64 * 256];
    test_rng rng = test_rng_start("recipes");
    test_fill_normal_f32(&rng, gradients, 64 * 256);
    for (int i = 0; muonium_recipe_name(i); i++) {
        muonium_options options;
        muonium_optimizer *optimizer;
        muonium_parameter_report report;
        muonium_tensor tensor = {.name = "w",
                                 .dtype = MUONIUM_F32,
                                 .ndim = 2,
                                 .shape = {64, 256},
                                 .data = weights,
                                 .grad = gradients};
        assert_ok(muonium_options_init(&options, muonium_recipe_name(i)));
        options.lr = 0.01;
        assert_ok(muonium_create(&options, &optimizer));
        assert_ok(muonium_add(optimizer, &tensor, NULL));
        assert_ok(muonium_report(optimizer, 0, &report));
        const char *name = muonium_recipe_name(i);
        /* The original of muonh leaves the polynomials open. */
        bool ours = strcmp(name, "muonium") == 0 || strcmp(name, "muonh") == 0;
        assert_int_equal(report.form == MUONIUM_FORM_DIRECT, ours);
        assert_int_equal(report.direct_set != NULL, ours);
        muonium_destroy(optimizer);
    }
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    const muonium_shape shape = {1, 8, 8};
    muonium_plan *plan = NULL;
    muonium_plan_options options = direct("P14");
    assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                          "direct_set is \"P14\": use one of P11, P11w, P12");
    options = direct("P12");
    options.precision = MUONIUM_F16;
    assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                          "change precision");
    options = direct("S12");
    options.precision = MUONIUM_FIXED15;
    assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                          "S12 loses small singular values in fixed15");
    options = direct("P12");
    options.normalization = MUONIUM_NORM_NONE;
    assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                          "without a normalization");
    options = direct("P12");
    options.safety_factor = 0.98;
    assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                          "safety_factor 0.98");
    assert_null(plan);
    options.direct_set = "P11w"; /* its edge is higher */
    assert_ok(muonium_plan_create(shape, &options, &plan));
    muonium_plan_destroy(plan);

    muonium_options whole;
    muonium_optimizer *optimizer = NULL;
    assert_ok(muonium_options_init(&whole, NULL));
    whole.plan.form = MUONIUM_FORM_DIRECT;
    whole.plan.normalization = MUONIUM_NORM_NONE;
    assert_status_message(muonium_create(&whole, &optimizer), MUONIUM_INVALID, "form is direct");
    whole.plan.normalization = MUONIUM_NORM_FROBENIUS;
    whole.plan.direct_set = "?";
    assert_status_message(muonium_create(&whole, &optimizer), MUONIUM_INVALID, "direct_set is");
    assert_null(optimizer);
}

static void ignores_no_coefficients(void **state)
{
    (void)state;
    static const double table[1][3] = {{1.5, -0.5, 0}};
    static const char *const fields[] = {"table", "coefficients", "steps",
                                         "lower", "safety",       "cushion"};
    muonium_shape shape = {1, 8, 8};
    muonium_plan *plan = NULL;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        muonium_plan_options options = direct(NULL);
        options.table = i == 0 ? table : NULL;
        options.table_rows = i == 0;
        options.coefficients = i == 1 ? "original" : NULL;
        options.steps += i == 2;
        options.lower *= i == 3 ? 2 : 1;
        options.safety *= i == 4 ? 2 : 1;
        options.cushion *= i == 5 ? 2 : 1;
        char message[64];
        snprintf(message, sizeof message, "and %s would be ignored", fields[i]);
        assert_status_message(muonium_plan_create(shape, &options, &plan), MUONIUM_INVALID,
                              message);
        options.form = MUONIUM_FORM_AUTO;
        assert_ok(muonium_plan_create(shape, &options, &plan));
        muonium_plan_destroy(plan);
        plan = NULL;
    }
    muonium_options whole;
    muonium_optimizer *optimizer = NULL;
    assert_ok(muonium_options_init(&whole, "keller"));
    whole.plan.form = MUONIUM_FORM_DIRECT;
    whole.plan.precision = MUONIUM_F32;
    assert_status_message(muonium_create(&whole, &optimizer), MUONIUM_INVALID,
                          "form is direct: its");
    assert_ok(muonium_options_init(&whole, NULL));
    whole.plan.form = MUONIUM_FORM_DIRECT;
    whole.plan.generated_rows = 10;
    assert_status_message(muonium_create(&whole, &optimizer), MUONIUM_INVALID, "generated_rows");
    assert_null(optimizer);
}

static void older_callers_are_not_overrun(void **state)
{
    (void)state;
    size_t size = offsetof(muonium_plan_options, direct_set); /* aligned as the struct */
    char *memory = test_guarded_alloc(size, 0);
    muonium_plan_options_init_sized((muonium_plan_options *)(void *)memory, size);
    assert_int_equal(((muonium_plan_options *)(void *)memory)->struct_size, size);
    muonium_plan *plan;
    assert_ok(muonium_plan_create((muonium_shape){1, 3, 3}, (muonium_plan_options *)(void *)memory,
                                  &plan));
    muonium_plan_destroy(plan);
    test_guarded_free(memory);
    size = offsetof(muonium_options, adam_eps);
    memory = test_guarded_alloc(size, 0);
    assert_ok(muonium_options_init_sized((muonium_options *)(void *)memory, size,
                                         sizeof(muonium_plan_options), "timm"));
    muonium_optimizer *optimizer;
    assert_ok(muonium_create((muonium_options *)(void *)memory, &optimizer));
    muonium_destroy(optimizer);
    assert_status_message(muonium_options_init_sized((muonium_options *)(void *)memory, 4,
                                                     sizeof(muonium_plan_options), NULL),
                          MUONIUM_INVALID, "struct_size");
    test_guarded_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_keep_what_their_table_says),
        cmocka_unit_test(every_spectrum_at_every_size),
#if !defined(TEST_SANITIZED)
        cmocka_unit_test(large_matrices_round_no_worse),
        cmocka_unit_test(rounding_is_as_published),
#endif
        cmocka_unit_test(gaussian_matrices_come_out_closer),
        cmocka_unit_test(normalizations_all_work),
        cmocka_unit_test(extremes_do_not_blow_up),
        cmocka_unit_test(exact_certificates_are_exact),
        cmocka_unit_test(bits_do_not_depend_on_the_way),
        cmocka_unit_test(plans_tell_what_they_do),
        cmocka_unit_test(auto_takes_direct_for_the_default_polynomial_only),
        cmocka_unit_test(recipes_of_others_never_take_direct),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(ignores_no_coefficients),
        cmocka_unit_test(older_callers_are_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
