/*
 * test_determinism.c: what must not change a bit: threads, batching, strides, the
 * place of the result, powers of two, the caller's floating-point environment; and
 * what may change it a little: the instruction set.
 */
#include "test.h"

#include <fenv.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "spectra.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROUNDINGS = MUONIUM_ROUNDING_FP16 + 1, PRECISIONS = MUONIUM_AUTO + 1 };

static muonium_plan_options defaults(void)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    return options;
}

/* Orthogonalise dense matrices into fresh memory, whatever their type. */
static void *run_dense(muonium_shape shape, const muonium_plan_options *options,
                       muonium_dtype dtype, void *data, muonium_certificate *certificates)
{
    size_t bytes = shape.batch * shape.rows * shape.cols * muonium_dtype_size(dtype);
    void *result = malloc(bytes);
    assert_non_null(result);
    memset(result, 0xff, bytes);
    muonium_view in = muonium_dense(dtype, shape, data), out = muonium_dense(dtype, shape, result);
    assert_ok(muonium_orthogonalize(shape, options, &in, &out, certificates));
    return result;
}

static void *gaussian(test_rng *rng, muonium_dtype dtype, size_t count)
{
    double *x = malloc(count * sizeof *x);
    assert_non_null(x);
    test_fill_normal(rng, x, count);
    void *stored = spectra_store(dtype, x, count);
    free(x);
    return stored;
}

/* ---- threads and batches ---- */

static void threads_change_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("threads");
    /* The last is large enough that all threads share each matrix. */
    const muonium_shape shapes[] = {{1, 131, 210}, {5, 37, 90}, {7, 61, 20}, {2, 64, 16500}};
    const int threads[] = {1, 2, 3, 7, 16, 64, 128, 7, 1};
    for (size_t s = 0; s < 4; s++) {
        muonium_shape shape = shapes[s];
        size_t count = shape.batch * shape.rows * shape.cols;
        void *data = gaussian(&rng, MUONIUM_F32, count);
        for (int c = 0; c < (s == 3 ? 1 : 3 * 4 + ROUNDINGS + 3); c++) {
            bool fixed = c >= 3 * 4 + ROUNDINGS, half = c >= 3 * 4 && !fixed;
            muonium_plan_options options = defaults();
            options.steps = s == 3 ? 2 : 5;
            options.form = half ? MUONIUM_FORM_AUTO : (muonium_form)(c % 3);
            options.normalization =
                half || fixed ? MUONIUM_NORM_FROBENIUS : (muonium_normalization)(c / 3);
            options.precision = half             ? MUONIUM_BF16
                                : fixed && c % 2 ? MUONIUM_FIXED15
                                : fixed          ? MUONIUM_FIXED23
                                                 : MUONIUM_F32;
            options.rounding = half ? (muonium_rounding)(c - 3 * 4) : MUONIUM_ROUNDING_STORED;
            muonium_certificate first[8], certificates[8];
            memset(first, 0, sizeof first);
            memset(certificates, 0, sizeof certificates);
            void *expected = NULL;
            for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
                assert_ok(muonium_set_threads(threads[t]));
                void *result =
                    run_dense(shape, &options, MUONIUM_F32, data, expected ? certificates : first);
                if (expected) {
                    assert_memory_equal(result, expected, count * sizeof(float));
                    for (size_t b = 0; b < shape.batch; b++) {
                        assert_true(certificates[b].deviation == first[b].deviation &&
                                    certificates[b].bound == first[b].bound &&
                                    certificates[b].divisor == first[b].divisor);
                    }
                    free(result);
                } else {
                    expected = result;
                }
            }
            free(expected);
        }
        free(data);
    }
    assert_ok(muonium_set_threads(0));
}

static void batches_change_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("batches");
    const size_t batches[] = {1, 2, 5, 24};
    for (int c = 0; c < PRECISIONS * 4 * ROUNDINGS; c += 3) {
        muonium_plan_options options = defaults();
        options.precision = (muonium_dtype)(c % PRECISIONS);
        options.rounding = (muonium_rounding)(c % ROUNDINGS);
        muonium_dtype dtype = (muonium_dtype)(c / PRECISIONS % 4);
        muonium_shape single = {1, 23, 50};
        size_t count = single.rows * single.cols, bytes = count * muonium_dtype_size(dtype);
        char *data = gaussian(&rng, dtype, 24 * count);
        for (int threads = 1; threads <= 5; threads += 2) {
            assert_ok(muonium_set_threads(threads));
            for (size_t i = 0; i < 4; i++) {
                muonium_shape shape = {batches[i], single.rows, single.cols};
                char *all = run_dense(shape, &options, dtype, data, NULL);
                for (size_t b = 0; b < batches[i]; b++) {
                    void *one = run_dense(single, &options, dtype, data + b * bytes, NULL);
                    assert_memory_equal(all + b * bytes, one, bytes);
                    free(one);
                }
                free(all);
            }
        }
        free(data);
    }
    assert_ok(muonium_set_threads(0));
}

/* ---- places ---- */

typedef struct layout {
    const char *name;
    size_t elements; /* that the array spans */
    size_t origin;   /* index of element (0, 0, 0) */
    ptrdiff_t batch, row, col;
} layout;

enum { BATCH = 3 };

static void layouts_of(muonium_shape shape, layout *layouts)
{
    const ptrdiff_t m = (ptrdiff_t)shape.rows, n = (ptrdiff_t)shape.cols;
    const layout all[] = {
        {"dense", (size_t)(BATCH * m * n), 0, m * n, n, 1},
        {"gaps", (size_t)(BATCH * m * (2 * n + 5)), 3, m * (2 * n + 5), 2 * n + 5, 2},
        {"padded rows", (size_t)(BATCH * m * (n + 3)), 0, m * (n + 3), n + 3, 1},
        {"transposed", (size_t)(BATCH * m * n), 0, m * n, 1, m},
        {"transposed with gaps", (size_t)(BATCH * (m + 1) * n), 1, (m + 1) * n, 1, m + 1},
        {"backwards", (size_t)(BATCH * m * n), (size_t)(BATCH * m * n - 1), -m * n, -n, -1},
        {"rows backwards", (size_t)(BATCH * m * n), (size_t)((m - 1) * n), m * n, -n, 1},
        {"interleaved matrices", (size_t)(BATCH * m * n), 0, 1, BATCH * n, BATCH},
    };
    memcpy(layouts, all, sizeof all);
}

static muonium_view view_of(const layout *where, muonium_dtype dtype, void *data)
{
    char *origin = (char *)data + where->origin * muonium_dtype_size(dtype);
    muonium_view view = {origin, dtype, where->batch, where->row, where->col};
    return view;
}

static char *element(const muonium_view *view, size_t b, size_t i, size_t j)
{
    ptrdiff_t index = (ptrdiff_t)b * view->batch_stride + (ptrdiff_t)i * view->row_stride +
                      (ptrdiff_t)j * view->col_stride;
    return (char *)view->data + index * (ptrdiff_t)muonium_dtype_size(view->dtype);
}

static void copy_view(muonium_shape shape, const muonium_view *from, const muonium_view *to)
{
    for (size_t b = 0; b < shape.batch; b++) {
        for (size_t i = 0; i < shape.rows; i++) {
            for (size_t j = 0; j < shape.cols; j++) {
                memcpy(element(to, b, i, j), element(from, b, i, j),
                       muonium_dtype_size(from->dtype));
            }
        }
    }
}

/* Whether only elements of the view differ from what the array was filled with. */
static void check_gaps(muonium_shape shape, const layout *where, muonium_dtype dtype, void *data)
{
    char *copy = malloc(where->elements * muonium_dtype_size(dtype));
    assert_non_null(copy);
    memcpy(copy, data, where->elements * muonium_dtype_size(dtype));
    muonium_view view = view_of(where, dtype, copy);
    for (size_t b = 0; b < shape.batch; b++) {
        for (size_t i = 0; i < shape.rows; i++) {
            for (size_t j = 0; j < shape.cols; j++) {
                memset(element(&view, b, i, j), 0xa5, muonium_dtype_size(dtype));
            }
        }
    }
    for (size_t i = 0; i < where->elements * muonium_dtype_size(dtype); i++) {
        assert_int_equal((unsigned char)copy[i], 0xa5);
    }
    free(copy);
}

/* One layout in, another out, against the packed result; and in place. How many were rescued. */
static int check_layouts(test_rng *rng, muonium_shape shape, const muonium_plan_options *options,
                         muonium_dtype dtype, int in_kind, int out_kind)
{
    layout layouts[8];
    layouts_of(shape, layouts);
    size_t count = shape.batch * shape.rows * shape.cols, bytes = muonium_dtype_size(dtype);
    void *dense = gaussian(rng, dtype, count);
    muonium_certificate certificates[BATCH];
    void *expected = run_dense(shape, options, dtype, dense, certificates);
    muonium_view packed = muonium_dense(dtype, shape, dense);
    char *from = test_guarded_alloc(layouts[in_kind].elements * bytes, 0);
    char *to = test_guarded_alloc(layouts[out_kind].elements * bytes, 0);
    muonium_view in = view_of(&layouts[in_kind], dtype, from);
    muonium_view out = view_of(&layouts[out_kind], dtype, to);
    copy_view(shape, &packed, &in);
    assert_ok(muonium_orthogonalize(shape, options, &in, &out, NULL));
    check_gaps(shape, &layouts[out_kind], dtype, to);
    copy_view(shape, &out, &packed);
    assert_memory_equal(dense, expected, count * bytes);
    assert_ok(muonium_orthogonalize(shape, options, &in, &in, NULL));
    copy_view(shape, &in, &packed);
    assert_memory_equal(dense, expected, count * bytes);
    test_guarded_free(from);
    test_guarded_free(to);
    free(dense);
    free(expected);
    int rescued = 0;
    for (size_t b = 0; b < shape.batch; b++) {
        rescued += certificates[b].rescued;
    }
    return rescued;
}

static void strides_change_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("strides");
    const muonium_shape shapes[] = {{BATCH, 19, 33}, {BATCH, 33, 19}, {BATCH, 20, 20},
                                    {BATCH, 1, 40},  {BATCH, 40, 1},  {BATCH, 9, 300}};
    for (size_t s = 0; s < 6; s++) {
        for (int pair = 0; pair < 8 * 8; pair++) {
            muonium_plan_options options = defaults();
            options.form = (muonium_form)(pair % 3);
            options.normalization = (muonium_normalization)(pair / 3 % 4);
            options.precision = pair % 7 == 3 ? MUONIUM_F64 : MUONIUM_F32;
            check_layouts(&rng, shapes[s], &options, (muonium_dtype)((pair + (int)s) % 4), pair / 8,
                          pair % 8);
        }
    }
}

/* A divisor that is too small leaves singular values beyond the stable edge, and X is scaled
 * again before the first step. */
static void strides_change_no_rescue(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("strides of what is rescued");
    const muonium_shape shapes[] = {{BATCH, 19, 33}, {BATCH, 33, 19}};
    int rescued = 0;
    for (size_t s = 0; s < 2; s++) {
        for (int pair = 0; pair < 8 * 8; pair++) {
            muonium_plan_options options = defaults();
            options.form = pair % 2 ? MUONIUM_FORM_STANDARD : MUONIUM_FORM_GRAM;
            options.normalization = (muonium_normalization)(pair / 2 % 4);
            options.safety_factor = 0.2;
            rescued +=
                check_layouts(&rng, shapes[s], &options,
                              (muonium_dtype)((pair + pair / 8 + (int)s) % 4), pair / 8, pair % 8);
        }
    }
    assert_true(rescued >= 2 * 64);
}

static void tall_is_the_transpose_of_wide(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("tall");
    muonium_shape wide = {1, 30, 77}, tall = {1, 77, 30};
    for (int c = 0; c < PRECISIONS * 4 * 3; c++) {
        muonium_plan_options options = defaults();
        options.precision = (muonium_dtype)(c % PRECISIONS);
        options.rounding = (muonium_rounding)(c % ROUNDINGS);
        options.normalization = (muonium_normalization)(c / PRECISIONS % 4);
        options.form = (muonium_form)(c / PRECISIONS / 4);
        float *x = gaussian(&rng, MUONIUM_F32, 30 * 77), turned[77 * 30];
        for (size_t i = 0; i < 30; i++) {
            for (size_t j = 0; j < 77; j++) {
                turned[j * 30 + i] = x[i * 77 + j];
            }
        }
        float *y = run_dense(wide, &options, MUONIUM_F32, x, NULL);
        float *z = run_dense(tall, &options, MUONIUM_F32, turned, NULL);
        for (size_t i = 0; i < 30; i++) {
            for (size_t j = 0; j < 77; j++) {
                assert_memory_equal(&z[j * 30 + i], &y[i * 77 + j], sizeof(float));
            }
        }
        free(x);
        free(y);
        free(z);
    }
}

static void supplied_workspace_changes_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("workspace");
    muonium_shape shape = {4, 40, 70};
    muonium_plan_options options = defaults();
    float *x = gaussian(&rng, MUONIUM_F32, 4 * 40 * 70), *y = malloc(4 * 40 * 70 * sizeof *y);
    float *expected = run_dense(shape, &options, MUONIUM_F32, x, NULL);
    muonium_plan *plan;
    muonium_plan_info info;
    assert_ok(muonium_plan_create(shape, &options, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    void *workspace = aligned_alloc(64, (info.workspace + 63) / 64 * 64);
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, y);
    assert_true(workspace != NULL && y != NULL);
    for (int fill = 0; fill < 256; fill += 51) { /* what was in it must not matter */
        memset(workspace, fill, info.workspace);
        assert_ok(muonium_plan_execute(plan, &in, &out, workspace, NULL));
        assert_memory_equal(y, expected, 4 * 40 * 70 * sizeof *y);
    }
    muonium_plan_destroy(plan);
    free(workspace);
    free(expected);
    free(x);
    free(y);
}

/* ---- powers of two ---- */

enum { SCALED_ROWS = 6, SCALED_COLS = 11, SCALED = SCALED_ROWS * SCALED_COLS };

/* Small odd integers, so that even among denormals they are exact, each times a power
 * of two down to 2^-spread; one whole column is that small. */
static void few_bits(test_rng *rng, int spread, double *x)
{
    for (size_t i = 0; i < SCALED; i++) {
        int down = i % SCALED_COLS == 4 ? spread : (int)test_below(rng, (size_t)spread + 1);
        x[i] = ldexp((double)(2 * (int)test_below(rng, 4) - 3), i == 0 ? 0 : -down);
    }
}

static void check_powers(test_rng *rng, muonium_dtype dtype, muonium_plan_options options,
                         int spread, int from, int to, int step)
{
    muonium_shape shape = {1, SCALED_ROWS, SCALED_COLS};
    double x[SCALED], scaled[SCALED];
    few_bits(rng, spread, x);
    size_t bytes = SCALED * muonium_dtype_size(dtype);
    void *plain = spectra_store(dtype, x, SCALED);
    muonium_certificate first, certificate;
    void *expected = run_dense(shape, &options, dtype, plain, &first);
    for (int power = from; power <= to; power += step) {
        for (size_t i = 0; i < SCALED; i++) {
            scaled[i] = ldexp(x[i], power);
        }
        void *data = spectra_store(dtype, scaled, SCALED);
        void *result = run_dense(shape, &options, dtype, data, &certificate);
        if (memcmp(result, expected, bytes) != 0 || certificate.deviation != first.deviation ||
            certificate.bound != first.bound || certificate.rescued != first.rescued) {
            print_error("2^%d, elements down to 2^-%d of it, type %d, precision %d, form %d, "
                        "normalization %d: another result\n",
                        power, spread, (int)dtype, (int)options.precision, (int)options.form,
                        (int)options.normalization);
            fail();
        }
        free(data);
        free(result);
    }
    free(plain);
    free(expected);
}

static void powers_of_two_change_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("powers of two");
    for (int c = 0; c < PRECISIONS * 4 * 3; c++) {
        muonium_plan_options options = defaults();
        options.precision = (muonium_dtype)(c % PRECISIONS);
        options.rounding = (muonium_rounding)(c % ROUNDINGS);
        options.normalization = (muonium_normalization)(c / PRECISIONS % 4);
        options.form = (muonium_form)(c / PRECISIONS / 4);
        check_powers(&rng, MUONIUM_F32, options, 0, -149, 126, 5);
        check_powers(&rng, MUONIUM_F32, options, 30, -119, 126, 7);
        check_powers(&rng, MUONIUM_F32, options, 120, -29, 126, 11);
        check_powers(&rng, MUONIUM_BF16, options, 8, -125, 126, 13);
        check_powers(&rng, MUONIUM_F16, options, 4, -20, 13, 3);
        check_powers(&rng, MUONIUM_F64, options, 0, -1074, 1022, 61);
        check_powers(&rng, MUONIUM_F64, options, 60, -1014, 1022, 67);
        check_powers(&rng, MUONIUM_F64, options, 120, -200, 200, 9);
        check_powers(&rng, MUONIUM_F64, options, 140, -934, 1022, 73);
        check_powers(&rng, MUONIUM_F64, options, 700, -374, 1022, 71);
    }
}

/* ---- the floating-point environment ---- */

static void callers_environment_changes_nothing(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("environment");
    muonium_shape shape = {3, 17, 29};
    size_t count = 3 * 17 * 29;
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) { /* the second matrix is all denormal */
        x[i] = (float)ldexp(test_normal(&rng), i / (17 * 29) == 1 ? -140 : (int)(i % 40) - 140);
    }
    for (int c = 0; c < 4; c++) {
        muonium_plan_options options = defaults();
        options.normalization = (muonium_normalization)c;
        float *expected = run_dense(shape, &options, MUONIUM_F32, x, NULL);
        const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
        for (int i = 0; i < 4; i++) {
            fesetround(modes[i]);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
            unsigned before = _mm_getcsr();
#endif
            float *result = run_dense(shape, &options, MUONIUM_F32, x, NULL);
#if defined(__x86_64__)
            unsigned after = _mm_getcsr();
            _mm_setcsr(after & ~0x8040u);
            assert_int_equal(after, before);
#endif
            assert_int_equal(fegetround(), modes[i]);
            fesetround(FE_TONEAREST);
            assert_memory_equal(result, expected, count * sizeof *x);
            free(result);
        }
        free(expected);
    }
    free(x);
}

/* ---- other processes: instruction sets and the default number of threads ---- */

/* What a child computes. In the half modes products are exact, so every instruction set makes
 * the same bits; in f32 some fuse them with the addition that follows. */
static const struct child_case {
    muonium_dtype precision;
    muonium_form form;
    muonium_shape shape;
    muonium_rounding rounding;
} child_cases[] = {
    {MUONIUM_F32, MUONIUM_FORM_AUTO, {1, 50, 121}, MUONIUM_ROUNDING_STORED},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {1, 50, 121}, MUONIUM_ROUNDING_STORED},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {1, 333, 65}, MUONIUM_ROUNDING_STORED},
    /* sums of more than two blocks */
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {2, 97, 601}, MUONIUM_ROUNDING_STORED},
    {MUONIUM_BF16, MUONIUM_FORM_GRAM, {1, 37, 150}, MUONIUM_ROUNDING_STORED},
    {MUONIUM_F16, MUONIUM_FORM_STANDARD, {1, 70, 90}, MUONIUM_ROUNDING_STORED},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {2, 97, 601}, MUONIUM_ROUNDING_TORCH},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {2, 97, 601}, MUONIUM_ROUNDING_KELLER},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {1, 333, 65}, MUONIUM_ROUNDING_KELLER},
    {MUONIUM_BF16, MUONIUM_FORM_STANDARD, {1, 70, 90}, MUONIUM_ROUNDING_MOTIF},
    {MUONIUM_F16, MUONIUM_FORM_STANDARD, {1, 70, 90}, MUONIUM_ROUNDING_FP16},
};

enum {
    CHILD_CASES = sizeof child_cases / sizeof child_cases[0],
    CHILD_FIRST = 50 * 121, /* elements of the first */
    CHILD_COUNT = 2 * 50 * 121 + 2 * 333 * 65 + 3 * 2 * 97 * 601 + 37 * 150 + 3 * 70 * 90
};

static const char path_variable[] = "MUONIUM_TEST_RESULT";

static void child_result(float *y)
{
    test_rng rng = test_rng_start("child");
    float *x = malloc(CHILD_COUNT * sizeof *x);
    size_t done = 0;
    if (!x) {
        exit(2);
    }
    test_fill_normal_f32(&rng, x, CHILD_COUNT);
    memset(y, 0xff, CHILD_COUNT * sizeof *y);
    for (size_t i = 0; i < CHILD_CASES; i++) {
        muonium_shape shape = child_cases[i].shape;
        muonium_plan_options options = defaults();
        options.precision = child_cases[i].precision;
        options.form = child_cases[i].form;
        options.rounding = child_cases[i].rounding;
        muonium_view in = muonium_dense(MUONIUM_F32, shape, x + done);
        muonium_view out = muonium_dense(MUONIUM_F32, shape, y + done);
        if (muonium_orthogonalize(shape, &options, &in, &out, NULL) != MUONIUM_OK) {
            fprintf(stderr, "%s\n", muonium_last_error());
            exit(3);
        }
        done += shape.batch * shape.rows * shape.cols;
    }
    free(x);
    if (done != CHILD_COUNT) {
        exit(8);
    }
}

/* What the second process does: write its result, or meet the error it should. */
static int child_main(void)
{
    const char *path = getenv(path_variable), *cpu = getenv("MUONIUM_CPU");
    const char *threads = getenv("MUONIUM_NUM_THREADS");
    static float y[CHILD_COUNT];
    if (cpu && strcmp(cpu, "6502") == 0) {
        muonium_plan *plan = NULL;
        muonium_cpu_info info;
        muonium_shape shape = {1, 2, 2};
        bool refused = muonium_plan_create(shape, NULL, &plan) == MUONIUM_INVALID && !plan &&
                       strstr(muonium_last_error(), "6502") != NULL;
        refused = refused && muonium_cpu(&info) == MUONIUM_INVALID &&
                  strstr(muonium_last_error(), "6502") != NULL;
        return refused ? 0 : 4;
    }
    if (cpu) {
        muonium_cpu_info info;
        if (muonium_cpu(&info) != MUONIUM_OK || strcmp(info.isa, cpu) != 0) {
            return 5;
        }
    }
    if (threads && atoi(threads) != muonium_threads()) {
        return 6;
    }
    child_result(y);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(y, sizeof y, 1, file) != 1) {
        return 7;
    }
    return fclose(file);
}

static void run_child(const char *name, const char *value, float *y)
{
    char path[] = "/tmp/muonium-test-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    setenv(path_variable, path, 1);
    test_child child = test_run_again(name, value, 60);
    FILE *file = fopen(path, "rb");
    size_t read = file ? fread(y, CHILD_COUNT * sizeof *y, 1, file) : 0;
    if (file) {
        fclose(file);
    }
    remove(path);
    assert_child_ok(child);
    assert_int_equal(read, 1);
}

/* The bf16 products of AMX add even and odd k apart, so they make bits of their own: these agree
 * with others within the rounding of bf16, as measured by the norm of all elements. */
static void assert_agreement(const float *mine, const float *theirs, bool same_bf16)
{
    size_t done = CHILD_FIRST;
    for (size_t i = 1; i < CHILD_CASES; i++) {
        muonium_shape shape = child_cases[i].shape;
        size_t count = shape.batch * shape.rows * shape.cols;
        if (!same_bf16 && child_cases[i].precision == MUONIUM_BF16) {
            double difference = 0, all = 0;
            for (size_t j = done; j < done + count; j++) {
                difference += pow((double)mine[j] - (double)theirs[j], 2);
                all += pow((double)theirs[j], 2);
            }
            assert_true(sqrt(difference / all) < 2e-2);
        } else {
            assert_memory_equal(mine + done, theirs + done, count * sizeof *mine);
        }
        done += count;
    }
    assert_int_equal(done, CHILD_COUNT);
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    muonium_cpu_info info;
    assert_ok(muonium_cpu(&info));
    bool own_bf16 = strstr(info.bf16_kernel, "amx") != NULL, met = false;
    float *mine = malloc(CHILD_COUNT * sizeof *mine), *theirs = malloc(CHILD_COUNT * sizeof *mine);
    assert_true(mine != NULL && theirs != NULL);
    child_result(mine);
    const mu_instruction_set *set;
    for (size_t i = 0; (set = mu_instruction_set_at(i)) != NULL; i++) {
        if (!mu_includes(mu_cpu_detect()->has, set->needs)) {
            continue;
        }
        run_child("MUONIUM_CPU", set->name, theirs);
        for (size_t j = 0; j < CHILD_FIRST; j++) {
            assert_true(fabs((double)mine[j] - (double)theirs[j]) < 2e-6);
        }
        bool same = strcmp(set->name, info.isa) == 0;
        assert_agreement(mine, theirs, own_bf16 == (strcmp(set->name, "amx") == 0));
        if (same) {
            assert_memory_equal(mine, theirs, CHILD_COUNT * sizeof *mine);
            met = true;
        }
    }
    assert_true(met || strcmp(info.isa, "blas") == 0);
    free(mine);
    free(theirs);
}

static void unknown_instruction_set_is_an_error(void **state)
{
    (void)state;
    assert_child_ok(test_run_again("MUONIUM_CPU", "6502", 60));
}

static void default_threads_come_from_the_environment(void **state)
{
    (void)state;
    float *mine = malloc(CHILD_COUNT * sizeof *mine), *theirs = malloc(CHILD_COUNT * sizeof *mine);
    assert_true(mine != NULL && theirs != NULL);
    child_result(mine);
    run_child("MUONIUM_NUM_THREADS", "5", theirs);
    assert_memory_equal(mine, theirs, CHILD_COUNT * sizeof *mine);
    free(mine);
    free(theirs);
}

int main(void)
{
    if (test_is_again()) {
        return child_main();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(strides_change_nothing),
        cmocka_unit_test(strides_change_no_rescue),
        cmocka_unit_test(tall_is_the_transpose_of_wide),
        cmocka_unit_test(supplied_workspace_changes_nothing),
        cmocka_unit_test(powers_of_two_change_nothing),
        cmocka_unit_test(callers_environment_changes_nothing),
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(unknown_instruction_set_is_an_error),
        cmocka_unit_test(default_threads_come_from_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
