/*
 * test_plan.c: plans, bad input, policies, memory. Every refusal must name what is
 * wrong and leave the output as it was.
 */
#include "test.h"

#include <math.h>
#include <pthread.h>

#include "orthogonalize/run.h"
#include "spectra.h"

static muonium_plan_options defaults(void)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    return options;
}

static const muonium_shape small = {2, 3, 5};
enum { SMALL = 2 * 3 * 5, PRECISIONS = MUONIUM_AUTO + 1 };

/* ---- options ---- */

static void defaults_are_as_documented(void **state)
{
    (void)state;
    muonium_plan_options options;
    memset(&options, 0xff, sizeof options);
    muonium_plan_options_init(&options);
    assert_int_equal(options.struct_size, sizeof options);
    assert_int_equal(options.steps, 5);
    assert_true(options.table == NULL && options.coefficients == NULL && options.table_rows == 0);
    assert_true(options.lower == 1e-3 && options.safety == 2e-2 && options.cushion == 0.02);
    assert_int_equal(options.normalization, MUONIUM_NORM_FROBENIUS);
    assert_int_equal(options.eps_mode, MUONIUM_EPS_NONE);
    assert_true(options.eps == 1e-7 && options.safety_factor == 1);
    assert_int_equal(options.precision, MUONIUM_AUTO);
    assert_int_equal(options.form, MUONIUM_FORM_AUTO);
    assert_int_equal(options.rounding, MUONIUM_ROUNDING_STORED);
    assert_int_equal(options.nonfinite, MUONIUM_NONFINITE_ERROR);
    muonium_plan_options_init(NULL);
}

static void refuse_options(const muonium_plan_options *options, const char *part)
{
    static float x[SMALL], y[SMALL];
    muonium_plan *plan = (muonium_plan *)(void *)x; /* must stay as it is */
    assert_status_message(muonium_plan_create(small, options, &plan), MUONIUM_INVALID, part);
    assert_ptr_equal(plan, x);
    memset(y, 0xa5, sizeof y);
    muonium_view in = muonium_dense(MUONIUM_F32, small, x);
    muonium_view out = muonium_dense(MUONIUM_F32, small, y);
    assert_status_message(muonium_orthogonalize(small, options, &in, &out, NULL), MUONIUM_INVALID,
                          part);
    for (size_t i = 0; i < sizeof y; i++) {
        assert_int_equal(((unsigned char *)y)[i], 0xa5);
    }
}

/* Each line: a field, a bad value, and what the message must contain. */
#define REFUSE(field, value, part)                                                                 \
    do {                                                                                           \
        muonium_plan_options bad = defaults();                                                     \
        bad.field = (value);                                                                       \
        refuse_options(&bad, #field);                                                              \
        refuse_options(&bad, part);                                                                \
    } while (0)

static void bad_options_are_refused_by_name(void **state)
{
    (void)state;
    REFUSE(steps, 0, "0");
    REFUSE(steps, -1, "-1");
    REFUSE(steps, 65, "65");
    REFUSE(steps, INT32_MAX, "2147483647");
    REFUSE(coefficients, "quartic", "quartic");
    REFUSE(coefficients, "", "polar_express");
    REFUSE(coefficients, "aol", "frobenius");
    REFUSE(lower, -1.0, "-1");
    REFUSE(lower, 1.5, "1.5");
    REFUSE(lower, (double)NAN, "nan");
    REFUSE(safety, -0.25, "-0.25");
    REFUSE(safety, (double)INFINITY, "inf");
    REFUSE(cushion, 1.0, "1");
    REFUSE(normalization, (muonium_normalization)5, "5");
    REFUSE(normalization, (muonium_normalization)-1, "-1");
    REFUSE(eps_mode, (muonium_eps_mode)4, "4");
    REFUSE(precision, (muonium_dtype)7, "7");
    REFUSE(precision, (muonium_dtype)-1, "-1");
    REFUSE(form, (muonium_form)77, "77");
    REFUSE(rounding, (muonium_rounding)5, "5");
    REFUSE(rounding, (muonium_rounding)-1, "-1");
    REFUSE(nonfinite, (muonium_nonfinite)3, "3");
    REFUSE(eps, -1e-3, "-0.001");
    REFUSE(eps, (double)NAN, "nan");
    REFUSE(eps, (double)INFINITY, "inf");
    REFUSE(safety_factor, 0.0, "0");
    REFUSE(safety_factor, -2.0, "-2");
    REFUSE(safety_factor, (double)NAN, "nan");
    REFUSE(safety_factor, (double)INFINITY, "inf");
    REFUSE(struct_size, 0, "muonium_plan_options_init");
    REFUSE(struct_size, 1, "1");
    REFUSE(struct_size, sizeof(muonium_plan_options) + 8, "muonium_plan_options_init");
    REFUSE(struct_size, SIZE_MAX, "muonium_plan_options_init");
    REFUSE(struct_size, (size_t)0xa5a5a5a5, "muonium_plan_options_init");
}

/* Each value of the enums is an entry of the tables, and nothing else is. */
static void tables_have_every_value(void **state)
{
    (void)state;
    for (int id = 0; id < 16; id++) {
        bool named = muonium_enum_name("muonium_normalization", id) != NULL;
        muonium_plan_options options = defaults();
        options.normalization = (muonium_normalization)id;
        assert_int_equal(mu_normalization_of(options.normalization) != NULL, named);
        assert_int_equal(mu_check_methods(&options) == MUONIUM_OK, named);
        options = defaults();
        options.form = (muonium_form)id;
        named = muonium_enum_name("muonium_form", id) != NULL;
        assert_int_equal(mu_check_methods(&options) == MUONIUM_OK, named);
    }
}

static void aol_coefficients_need_their_normalization(void **state)
{
    (void)state;
    const char *name;
    for (int id = 0; (name = muonium_enum_name("muonium_normalization", id)) != NULL; id++) {
        muonium_plan_options options = defaults();
        options.coefficients = "aol";
        options.normalization = (muonium_normalization)id;
        if (id != MUONIUM_NORM_AOL) {
            refuse_options(&options, "\"aol\"");
            refuse_options(&options, name);
        } else {
            muonium_plan *plan = NULL;
            assert_ok(muonium_plan_create(small, &options, &plan));
            muonium_plan_destroy(plan);
        }
    }
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    double table[3][3] = {{1.5, -.5, 0}, {1.5, -.5, 0}, {1.5, -.5, 0}};
    muonium_plan_options options = defaults();
    options.table = (const double(*)[3])table;
    refuse_options(&options, "table_rows");
    options.table_rows = 3;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 9; i++) {
        double kept = table[i / 3][i % 3];
        table[i / 3][i % 3] = bad[i % 3];
        options.steps = 1 + i % 3; /* also where the row is beyond the steps */
        refuse_options(&options, "table");
        table[i / 3][i % 3] = kept;
    }
}

static void short_structs_get_the_defaults_for_the_rest(void **state)
{
    (void)state;
    muonium_plan_options options = defaults();
    options.steps = 7;
    options.normalization = (muonium_normalization)99;
    options.struct_size = offsetof(muonium_plan_options, normalization);
    muonium_plan *plan;
    muonium_plan_info info;
    assert_ok(muonium_plan_create(small, &options, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    assert_int_equal(info.steps, 7);
    muonium_plan_destroy(plan);
}

static void plans_describe_their_table(void **state)
{
    (void)state;
    double expected[64][3];
    const double own[2][3] = {{2, -1.5, .5}, {1.5, -.5, 0}};
    muonium_plan_options options = defaults();
    muonium_plan_info info;
    for (int c = 0; c < 3; c++) {
        muonium_plan *plan;
        options.steps = c == 0 ? 64 : 6;
        options.coefficients = c == 1 ? "cubic" : NULL;
        options.table = c == 2 ? own : NULL;
        options.table_rows = 2;
        assert_ok(muonium_plan_create(small, &options, &plan));
        assert_ok(muonium_plan_describe(plan, &info));
        muonium_plan_destroy(plan);
        if (c == 0) {
            assert_ok(muonium_polar_express(64, 1e-3, 2e-2, 0.02, expected));
        } else if (c == 1) {
            assert_ok(muonium_coefficients("cubic", 6, expected));
        } else {
            for (int t = 0; t < 6; t++) {
                memcpy(expected[t], own[t < 2 ? t : 1], sizeof expected[t]);
            }
        }
        assert_int_equal(info.steps, options.steps);
        assert_memory_equal(info.table, expected, (size_t)info.steps * sizeof expected[0]);
        assert_true(info.flops > 0 && info.workspace > 0);
    }
}

/* ---- shapes and pointers ---- */

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    const size_t huge = (size_t)1 << 32;
    const struct {
        muonium_shape shape;
        const char *part;
    } cases[] = {
        {{0, 3, 5}, "0 x 3 x 5"},
        {{2, 0, 5}, "2 x 0 x 5"},
        {{2, 3, 0}, "2 x 3 x 0"},
        {{1, huge, huge}, "4294967296"},
        {{huge, huge, 1}, "4294967296"},
        {{1, SIZE_MAX, 1}, "18446744073709551615"},
        {{SIZE_MAX, SIZE_MAX, SIZE_MAX}, "18446744073709551615"},
        {{3, (size_t)1 << 31, (size_t)1 << 30}, "2147483648"},
        {{1, (size_t)1 << 30, (size_t)1 << 30}, "1073741824"}, /* 2^60: R alone is too large */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        muonium_plan *plan = NULL;
        assert_status_message(muonium_plan_create(cases[i].shape, NULL, &plan), MUONIUM_INVALID,
                              cases[i].part);
        assert_null(plan);
    }
    muonium_shape large = {1, 1, (size_t)1 << 40}; /* possible, if not here */
    muonium_plan *plan;
    muonium_plan_info info;
    assert_ok(muonium_plan_create(large, NULL, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    assert_true(info.workspace > (size_t)1 << 42);
    muonium_plan_destroy(plan);
}

static void null_pointers_are_refused(void **state)
{
    (void)state;
    float x[SMALL] = {1}, y[SMALL];
    muonium_view in = muonium_dense(MUONIUM_F32, small, x);
    muonium_view out = muonium_dense(MUONIUM_F32, small, y), none = out;
    none.data = NULL;
    muonium_plan *plan;
    muonium_plan_info info;
    assert_status_message(muonium_plan_create(small, NULL, NULL), MUONIUM_INVALID, "plan");
    assert_ok(muonium_plan_create(small, NULL, &plan));
    assert_status_message(muonium_plan_describe(plan, NULL), MUONIUM_INVALID, "info");
    assert_status_message(muonium_plan_describe(NULL, &info), MUONIUM_INVALID, "plan");
    assert_status_message(muonium_plan_execute(NULL, &in, &out, NULL, NULL), MUONIUM_INVALID,
                          "plan");
    assert_status_message(muonium_plan_execute(plan, NULL, &out, NULL, NULL), MUONIUM_INVALID,
                          "in is NULL");
    assert_status_message(muonium_plan_execute(plan, &in, NULL, NULL, NULL), MUONIUM_INVALID,
                          "out is NULL");
    assert_status_message(muonium_plan_execute(plan, &none, &out, NULL, NULL), MUONIUM_INVALID,
                          "in.data");
    assert_status_message(muonium_plan_execute(plan, &in, &none, NULL, NULL), MUONIUM_INVALID,
                          "out.data");
    muonium_plan_destroy(plan);
    muonium_plan_destroy(NULL);
}

/* Two arrays in one piece of memory, and whether their bytes change. */
typedef struct arena {
    _Alignas(64) double memory[256];
} arena;

static void refuse_views(const muonium_view *in, const muonium_view *out, void *workspace,
                         const char *part, const arena *a)
{
    arena before = *a;
    muonium_plan *plan;
    muonium_certificate certificates[2];
    memset(certificates, 0x5a, sizeof certificates);
    assert_ok(muonium_plan_create(small, NULL, &plan));
    muonium_status status = muonium_plan_execute(plan, in, out, workspace, certificates);
    muonium_plan_destroy(plan);
    assert_status_message(status, MUONIUM_INVALID, part);
    assert_memory_equal(&before, a, sizeof before);
    for (size_t i = 0; i < sizeof certificates; i++) {
        assert_int_equal(((unsigned char *)certificates)[i], 0x5a);
    }
}

static void bad_views_are_refused(void **state)
{
    (void)state;
    static arena a;
    for (size_t i = 0; i < 256; i++) {
        a.memory[i] = 1 + (double)i;
    }
    char *base = (char *)a.memory;
    const muonium_view in = muonium_dense(MUONIUM_F32, small, base);
    const muonium_view out = muonium_dense(MUONIUM_F32, small, base + 1024);
    muonium_view bad;

    bad = in, bad.dtype = (muonium_dtype)4;
    refuse_views(&bad, &out, NULL, "in.dtype is 4", &a);
    bad = out, bad.dtype = (muonium_dtype)-1;
    refuse_views(&in, &bad, NULL, "out.dtype is -1", &a);

    for (int offset = 1; offset < 8; offset++) { /* misaligned for the type */
        const muonium_dtype dtypes[] = {MUONIUM_F32, MUONIUM_F64, MUONIUM_BF16, MUONIUM_F16};
        for (int d = 0; d < 4; d++) {
            if ((size_t)offset % muonium_dtype_size(dtypes[d]) != 0) {
                bad = muonium_dense(dtypes[d], small, base + offset);
                refuse_views(&bad, &out, NULL, "in.data", &a);
                bad.data = base + 1024 + offset;
                refuse_views(&in, &bad, NULL, "out.data", &a);
            }
        }
    }
    for (int offset = 1; offset < 64; offset++) {
        refuse_views(&in, &out, base + 1024 + offset, "workspace", &a);
    }

    for (int shift = 1; shift < SMALL; shift++) { /* overlapping by all but `shift` elements */
        bad = in, bad.data = base + 4 * shift;
        refuse_views(&in, &bad, NULL, "overlap", &a);
        refuse_views(&bad, &in, NULL, "overlap", &a);
    }
    bad = in, bad.row_stride = 6, bad.batch_stride = 18; /* the same address, other strides */
    refuse_views(&in, &bad, NULL, "overlap", &a);
    bad = in, bad.dtype = MUONIUM_BF16; /* the same address, another type */
    refuse_views(&in, &bad, NULL, "overlap", &a);
    bad = in, bad.data = base + 4 * (SMALL - 1); /* backwards over the same memory */
    bad.batch_stride = -15, bad.row_stride = -5, bad.col_stride = -1;
    refuse_views(&in, &bad, NULL, "overlap", &a);

    const ptrdiff_t overlapping[][3] = {{0, 5, 1},   {15, 0, 1}, {15, 5, 0}, {15, 4, 1}, {14, 5, 1},
                                        {15, -4, 1}, {15, 1, 1}, {5, 5, 1},  {-14, 5, 1}};
    for (size_t i = 0; i < sizeof overlapping / sizeof overlapping[0]; i++) {
        bad = out, bad.data = base + 1536;
        bad.batch_stride = overlapping[i][0];
        bad.row_stride = overlapping[i][1];
        bad.col_stride = overlapping[i][2];
        refuse_views(&in, &bad, NULL, "out", &a);
    }

    const ptrdiff_t leaving[][3] = {{PTRDIFF_MAX, 5, 1},      {PTRDIFF_MIN, 5, 1},
                                    {15, PTRDIFF_MAX, 1},     {15, PTRDIFF_MIN, 1},
                                    {15, 5, PTRDIFF_MAX},     {15, 5, PTRDIFF_MIN},
                                    {15, 5, PTRDIFF_MAX / 4}, {-PTRDIFF_MAX / 4, 5, 1}};
    for (size_t i = 0; i < sizeof leaving / sizeof leaving[0]; i++) {
        bad = in;
        bad.batch_stride = leaving[i][0];
        bad.row_stride = leaving[i][1];
        bad.col_stride = leaving[i][2];
        refuse_views(&bad, &out, NULL, "strides of in", &a);
        bad.data = base + 1024;
        refuse_views(&in, &bad, NULL, "strides of out", &a);
    }
}

/* Strides that are never taken do not matter, whatever they are. */
static void unused_strides_are_ignored(void **state)
{
    (void)state;
    const muonium_shape shapes[] = {{1, 1, 7}, {1, 7, 1}, {1, 1, 1}};
    for (size_t s = 0; s < 3; s++) {
        float x[7] = {1, 2, 3, 4, 5, 6, 7}, y[7] = {0}, z[7] = {0};
        muonium_view in = muonium_dense(MUONIUM_F32, shapes[s], x);
        muonium_view out = muonium_dense(MUONIUM_F32, shapes[s], y);
        assert_ok(muonium_orthogonalize(shapes[s], NULL, &in, &out, NULL));
        out.data = z;
        in.batch_stride = out.batch_stride = PTRDIFF_MIN;
        if (shapes[s].rows == 1) {
            in.row_stride = PTRDIFF_MIN, out.row_stride = PTRDIFF_MAX;
        }
        if (shapes[s].cols == 1) {
            in.col_stride = PTRDIFF_MAX, out.col_stride = PTRDIFF_MIN;
        }
        assert_ok(muonium_orthogonalize(shapes[s], NULL, &in, &out, NULL));
        assert_memory_equal(y, z, sizeof y);
        out = in;
        assert_ok(muonium_orthogonalize(shapes[s], NULL, &in, &out, NULL)); /* in place */
        assert_memory_equal(x, z, shapes[s].rows * shapes[s].cols * sizeof(float));
    }
}

/* ---- NaN, infinity, zero ---- */

enum { BATCH = 4, ROWS = 5, COLS = 9, EACH = ROWS * COLS, ALL = BATCH * EACH };

/* The batch with one bad element, in the given type. */
static void *spoiled_batch(test_rng *rng, muonium_dtype dtype, size_t where, double value)
{
    double x[ALL];
    test_fill_normal(rng, x, ALL);
    x[where] = value;
    return spectra_store(dtype, x, ALL);
}

static void check_policies(test_rng *rng, muonium_dtype dtype, size_t where, double value)
{
    const muonium_shape shape = {BATCH, ROWS, COLS};
    size_t bytes = muonium_dtype_size(dtype), bad = where / EACH;
    char *x = spoiled_batch(rng, dtype, where, value), *y = malloc(ALL * bytes);
    char *untouched = malloc(ALL * bytes);
    assert_true(y != NULL && untouched != NULL);
    memset(untouched, 0xa5, ALL * bytes);
    muonium_view in = muonium_dense(dtype, shape, x), out = muonium_dense(dtype, shape, y);
    muonium_certificate certificates[BATCH];
    char part[64];
    snprintf(part, sizeof part, "(%zu, %zu, %zu)", bad, where % EACH / COLS, where % COLS);
    for (int policy = 0; policy < 3; policy++) {
        muonium_plan_options options = defaults();
        options.nonfinite = (muonium_nonfinite)policy;
        memcpy(y, untouched, ALL * bytes);
        muonium_status status = muonium_orthogonalize(shape, &options, &in, &out, certificates);
        if (policy == MUONIUM_NONFINITE_ERROR) {
            assert_status_message(status, MUONIUM_NON_FINITE, part);
            assert_memory_equal(y, untouched, ALL * bytes);
            continue;
        }
        assert_ok(status);
        double result[ALL];
        spectra_load(dtype, y, result, ALL);
        for (size_t b = 0; b < BATCH; b++) {
            if (b != bad) {
                assert_int_equal(certificates[b].outcome, MUONIUM_ORTHOGONALIZED);
                assert_true(distance_from_orthogonal(result + b * EACH, ROWS, COLS) < 1);
            } else if (policy == MUONIUM_NONFINITE_SKIP) {
                assert_int_equal(certificates[b].outcome, MUONIUM_SKIPPED);
                assert_memory_equal(y + b * EACH * bytes, untouched, EACH * bytes);
            } else {
                assert_int_equal(certificates[b].outcome, MUONIUM_PROPAGATED);
                for (size_t i = 0; i < EACH; i++) {
                    assert_true(isnan(result[b * EACH + i]));
                }
            }
        }
    }
    free(x);
    free(y);
    free(untouched);
}

static void policies_are_obeyed(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("policies");
    const double values[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < BATCH; b++) {
        const size_t places[] = {0, EACH / 2, EACH - 1};
        for (int c = 0; c < 3 * 3 * 4; c++) {
            check_policies(&rng, (muonium_dtype)(c / 9), b * EACH + places[c % 3],
                           values[c / 3 % 3]);
        }
    }
}

/* Of several bad elements the first in order of batch, row and column is named, also
 * where the matrix is tall and read the other way round. */
static void the_first_bad_element_is_named(void **state)
{
    (void)state;
    const muonium_shape shape = {2, 4, 2};
    float x[16] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, NAN, INFINITY, 6, 7, 8}, y[16];
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
    assert_status_message(muonium_orthogonalize(shape, NULL, &in, &out, NULL), MUONIUM_NON_FINITE,
                          "(1, 1, 1)");
}

static void zero_among_others_stays_alone(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("zero in a batch");
    const muonium_shape shape = {BATCH, ROWS, COLS};
    float x[ALL], y[ALL];
    test_fill_normal_f32(&rng, x, ALL);
    memset(x + 2 * EACH, 0, EACH * sizeof *x);
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
    muonium_certificate certificates[BATCH];
    memset(y, 0xff, sizeof y);
    assert_ok(muonium_orthogonalize(shape, NULL, &in, &out, certificates));
    for (size_t i = 0; i < ALL; i++) {
        bool zero = i / EACH == 2;
        assert_true(isfinite(y[i]) && (y[i] == 0) == zero);
        assert_int_equal(certificates[i / EACH].outcome,
                         zero ? MUONIUM_ZERO : MUONIUM_ORTHOGONALIZED);
    }
}

/* ---- memory ---- */

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    test_count_memory();
    float x[SMALL] = {3, 1, 4, 1, 5, 9, 2, 6}, y[SMALL];
    muonium_view in = muonium_dense(MUONIUM_F32, small, x);
    muonium_view out = muonium_dense(MUONIUM_F32, small, y);
    int failures = 0;
    for (int at = 1;; at++) {
        memset(y, 0xa5, sizeof y);
        test_fail_allocation(at, false);
        muonium_status status = muonium_orthogonalize(small, NULL, &in, &out, NULL);
        assert_int_equal(test_memory.alive, 0);
        if (status == MUONIUM_OK) {
            break;
        }
        failures++;
        assert_status_message(status, MUONIUM_NO_MEMORY, "no memory");
        for (size_t i = 0; i < sizeof y; i++) {
            assert_int_equal(((unsigned char *)y)[i], 0xa5);
        }
        test_fail_allocation(0, false);
        assert_ok(muonium_orthogonalize(small, NULL, &in, &out, NULL));
    }
    assert_int_equal(failures, 2); /* the plan, and the workspace */
    assert_ok(muonium_set_allocator(NULL));
}

static void supplied_workspace_is_enough(void **state)
{
    (void)state;
    const muonium_shape shapes[] = {{1, 1, 1}, {3, 7, 5}, {1, 97, 31}, {9, 20, 33}, {2, 33, 130}};
    test_count_memory();
    for (int c = 0; c < 5 * PRECISIONS * 5 * 3; c++) {
        muonium_shape shape = shapes[c % 5];
        size_t bytes = shape.batch * shape.rows * shape.cols * sizeof(float);
        muonium_plan_options options = defaults();
        options.precision = (muonium_dtype)(c / 5 % PRECISIONS);
        options.normalization = (muonium_normalization)(c / 5 / PRECISIONS % 5);
        options.form = (muonium_form)(c / 25 / PRECISIONS);
        options.rounding = (muonium_rounding)((c + c / 5) % 5);
        assert_ok(muonium_set_threads(1 + c % 4));
        muonium_plan *plan;
        muonium_plan_info info;
        assert_ok(muonium_plan_create(shape, &options, &plan));
        assert_ok(muonium_plan_describe(plan, &info));
        assert_ok(muonium_set_threads(1 + (c + 3) % 5)); /* others than it was sized for */
        float *x = test_guarded_alloc(bytes, 0), *y = test_guarded_alloc_front(bytes, 0);
        size_t gap = (64 - info.workspace % 64) % 64; /* the end as near as alignment allows */
        void *workspace = c % 2 ? test_guarded_alloc_front(info.workspace, 0)
                                : test_guarded_alloc(info.workspace, gap);
        test_rng rng = test_rng_start("workspace");
        test_fill_normal_f32(&rng, x, bytes / sizeof(float));
        muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
        muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
        test_memory.calls = 0;
        assert_ok(muonium_plan_execute(plan, &in, &out, workspace, NULL));
        assert_int_equal(test_memory.calls, 0);
        for (size_t i = 0; gap > 0 && c % 2 == 0 && i < gap; i++) {
            assert_int_equal(((unsigned char *)workspace)[info.workspace + i], 0xa5);
        }
        for (size_t i = 0; i < bytes / sizeof(float); i++) {
            assert_true(fabsf(y[i]) < 1.5f);
        }
        muonium_plan_destroy(plan);
        test_guarded_free(x);
        test_guarded_free(y);
        test_guarded_free(workspace);
    }
    assert_int_equal(test_memory.alive, 0);
    assert_ok(muonium_set_allocator(NULL));
    assert_ok(muonium_set_threads(0));
}

/* Every small size with the ends of both arrays against inaccessible memory. */
static void small_sizes_stay_within_their_arrays(void **state)
{
    (void)state;
    for (size_t rows = 1; rows <= 35; rows++) {
        for (size_t cols = 1; cols <= 67; cols++) {
            muonium_shape shape = {1, rows, cols};
            size_t count = rows * cols, bytes = count * sizeof(float);
            float *x = test_guarded_alloc(bytes, 0), *y = test_guarded_alloc(bytes, 0);
            for (size_t i = 0; i < count; i++) {
                x[i] = (float)(i % 7) - 2.5f;
            }
            muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
            muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
            assert_ok(muonium_orthogonalize(shape, NULL, &in, &out, NULL));
            for (size_t i = 0; i < count; i++) {
                assert_true(fabsf(y[i]) < 1.5f);
            }
            test_guarded_free(x);
            test_guarded_free(y);
        }
    }
}

/* ---- many callers ---- */

enum { CALLERS = 8, ROUNDS = 20 };

typedef struct caller {
    const muonium_plan *plan;
    const float *x, *expected;
    bool same;
} caller;

static void *call_often(void *context)
{
    caller *c = context;
    const muonium_shape shape = {BATCH, ROWS, COLS};
    float x[ALL], y[ALL];
    c->same = true;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(x, c->x, sizeof x);
        muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
        muonium_view out = muonium_dense(MUONIUM_F32, shape, round % 2 ? x : y);
        if (muonium_plan_execute(c->plan, &in, &out, NULL, NULL) != MUONIUM_OK ||
            memcmp(round % 2 ? x : y, c->expected, sizeof y) != 0) {
            c->same = false;
        }
    }
    return NULL;
}

static void one_plan_serves_many_threads(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("many threads");
    const muonium_shape shape = {BATCH, ROWS, COLS};
    float x[ALL], y[ALL];
    test_fill_normal_f32(&rng, x, ALL);
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
    assert_ok(muonium_set_threads(3));
    muonium_plan *plan;
    assert_ok(muonium_plan_create(shape, NULL, &plan));
    assert_ok(muonium_plan_execute(plan, &in, &out, NULL, NULL));
    pthread_t threads[CALLERS];
    caller callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){plan, x, y, false};
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(callers[i].same);
    }
    muonium_plan_destroy(plan);
    assert_ok(muonium_set_threads(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(bad_options_are_refused_by_name),
        cmocka_unit_test(tables_have_every_value),
        cmocka_unit_test(aol_coefficients_need_their_normalization),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(short_structs_get_the_defaults_for_the_rest),
        cmocka_unit_test(plans_describe_their_table),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(null_pointers_are_refused),
        cmocka_unit_test(bad_views_are_refused),
        cmocka_unit_test(unused_strides_are_ignored),
        cmocka_unit_test(policies_are_obeyed),
        cmocka_unit_test(the_first_bad_element_is_named),
        cmocka_unit_test(zero_among_others_stays_alone),
        cmocka_unit_test(failing_allocations_are_errors),
        cmocka_unit_test(supplied_workspace_is_enough),
        cmocka_unit_test(small_sizes_stay_within_their_arrays),
        cmocka_unit_test(one_plan_serves_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
