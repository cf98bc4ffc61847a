/*
 * test_conversions.c: load, store and the row functions of every kernel: conversions
 * between all types and strides, rounded once, and what one pass over a row finds.
 */
#include "every_kernel.h"

#include <math.h>

#include "base/half.h"
#include "matrix.h"

enum { HALVES = 65536 };
static const muonium_dtype half_types[] = {MUONIUM_BF16, MUONIUM_F16};

static size_t size_of(const mu_kernel *kernel)
{
    return muonium_dtype_size(kernel->type);
}

static mu_block block_of(const test_matrix *matrix)
{
    mu_block block = {matrix->data,       matrix->dtype, matrix->row_stride,
                      matrix->col_stride, matrix->rows,  matrix->cols};
    return block;
}

/* ---- load and store: places ---- */

static double draw(test_rng *rng)
{
    return test_normal(rng) * ldexp(1, (int)test_below(rng, 40) - 20);
}

/* Through a rectangle of our own and back: the place of every element, the value
 * that its type rounds it to, nothing beside it. */
static void check_places(const mu_kernel *kernel, muonium_dtype dtype, size_t rows, size_t cols,
                         size_t layout, test_rng *rng)
{
    ptrdiff_t row_stride, col_stride;
    bool at_front = test_below(rng, 2) == 0;
    test_layout(layout, rows, cols, &row_stride, &col_stride);
    test_matrix outer = test_matrix_new(dtype, rows, cols, row_stride, col_stride, at_front);
    test_matrix inner = test_matrix_new(kernel->type, rows, cols, (ptrdiff_t)cols + 2, 1, at_front);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            test_matrix_set(&outer, i, j, draw(rng));
        }
    }
    mu_block block = block_of(&outer);
    kernel->rows->load(&block, inner.data, (size_t)inner.row_stride);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double wanted = test_matrix_get(&outer, i, j);
            wanted = kernel->type == MUONIUM_F32 ? (double)(float)wanted : wanted;
            if (test_matrix_get(&inner, i, j) != wanted) {
                fail_msg("load of %zu x %zu %s, strides %td, %td: (%zu, %zu) is %.17g, not %.17g",
                         rows, cols, test_dtype_name(dtype), row_stride, col_stride, i, j,
                         test_matrix_get(&inner, i, j), wanted);
            }
            test_matrix_set(&inner, i, j, draw(rng));
        }
    }
    assert_true(test_matrix_gaps_intact(&inner));
    memset(outer.memory, 0xa5, outer.bytes);
    kernel->rows->store(inner.data, (size_t)inner.row_stride, &block);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double wanted;
            uint16_t half;
            if (dtype == MUONIUM_BF16 || dtype == MUONIUM_F16) {
                half = test_half_nearest(test_matrix_get(&inner, i, j), dtype);
                wanted = (double)mu_f32_from_half(dtype, half);
            } else {
                wanted = test_matrix_get(&inner, i, j);
                wanted = dtype == MUONIUM_F32 ? (double)(float)wanted : wanted;
            }
            if (test_matrix_get(&outer, i, j) != wanted) {
                fail_msg("store of %zu x %zu %s, strides %td, %td: (%zu, %zu) is %.17g, not %.17g",
                         rows, cols, test_dtype_name(dtype), row_stride, col_stride, i, j,
                         test_matrix_get(&outer, i, j), wanted);
            }
        }
    }
    assert_true(test_matrix_gaps_intact(&outer));
    test_matrix_free(&outer);
    test_matrix_free(&inner);
}

static void test_places(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("places");
    for (int dtype = MUONIUM_F32; dtype <= MUONIUM_F16; dtype++) {
        for (size_t layout = 0; layout < TEST_LAYOUTS; layout++) {
            for (size_t n = 1; n <= 67; n++) {
                check_places(kernel, (muonium_dtype)dtype, 3, n, layout, &rng);
                check_places(kernel, (muonium_dtype)dtype, n, 3, layout, &rng);
            }
            check_places(kernel, (muonium_dtype)dtype, 131, 70, layout, &rng);
        }
    }
}

/* ---- load and store: values ---- */

/* Every half value, NaNs with their payloads included, by vectors and one by one. */
static void test_load_all_halves(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    uint16_t *halves = test_guarded_alloc(2 * HALVES * sizeof *halves, 0);
    void *loaded = test_guarded_alloc(HALVES * size_of(kernel), 0);
    for (size_t t = 0; t < 2; t++) {
        for (size_t stride = 1; stride <= 2; stride++) {
            for (size_t h = 0; h < HALVES; h++) {
                halves[h * stride] = (uint16_t)h;
            }
            mu_block block = {halves, half_types[t], HALVES, (ptrdiff_t)stride, 1, HALVES};
            kernel->rows->load(&block, loaded, HALVES);
            for (size_t h = 0; h < HALVES; h++) {
                float single = mu_f32_from_half(half_types[t], (uint16_t)h);
                double real = (double)single;
                const void *wanted =
                    kernel->type == MUONIUM_F32 ? (const void *)&single : (const void *)&real;
                const char *got = (const char *)loaded + h * size_of(kernel);
                if (memcmp(got, wanted, size_of(kernel)) != 0) {
                    fail_msg("%s 0x%04zx is loaded as %g, not %g", test_dtype_name(half_types[t]),
                             h, test_element(got, kernel->type, 0), real);
                }
            }
        }
    }
    test_guarded_free(halves);
    test_guarded_free(loaded);
}

/* Store `count` values consecutively and with a gap between them, compare bits. */
static void check_store(const mu_kernel *kernel, const void *values, size_t count,
                        muonium_dtype half, const uint16_t *wanted)
{
    uint16_t *stored = test_guarded_alloc(2 * count * sizeof *stored, 0);
    for (size_t stride = 1; stride <= 2; stride++) {
        mu_block block = {stored, half, (ptrdiff_t)(2 * count), (ptrdiff_t)stride, 1, count};
        kernel->rows->store(values, count, &block);
        for (size_t i = 0; i < count; i++) {
            if (stored[i * stride] != wanted[i]) {
                fail_msg("%.20g as %s, stride %zu, is 0x%04x, not 0x%04x",
                         test_element(values, kernel->type, (ptrdiff_t)i), test_dtype_name(half),
                         stride, stored[i * stride], wanted[i]);
            }
        }
    }
    test_guarded_free(stored);
}

/* Every number of a half type, the middle between it and the next, and what lies
 * just beside both; then any bit pattern. For f64 "just beside" is nearer than an
 * f32 could tell: rounding to f32 first would go wrong. */
static void test_store_rounds_once(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("store");
    enum { NEIGHBOURS = 6, COUNT = HALVES * (NEIGHBOURS + 1) };
    bool single = kernel->type == MUONIUM_F32;
    void *values = malloc(COUNT * sizeof(double));
    uint16_t *wanted = malloc(COUNT * sizeof *wanted);
    assert_true(values != NULL && wanted != NULL);
    for (size_t t = 0; t < 2; t++) {
        size_t count = 0;
        uint16_t infinity = t == 0 ? 0x7f80 : 0x7c00;
        for (size_t h = 0; h < HALVES; h++) {
            uint16_t next = (uint16_t)(h + 1), sign = h & 0x8000;
            if ((h & 0x7fff) >= infinity) {
                continue;
            }
            double value = (double)mu_f32_from_half(half_types[t], (uint16_t)h);
            double end = (double)mu_f32_from_half(half_types[t], next);
            if ((next & 0x7fff) == infinity) {
                end = (sign ? -1 : 1) * (t == 0 ? 0x1p128 : 0x1p16);
            }
            double middle = value / 2 + end / 2;
            for (int side = 0; side < NEIGHBOURS; side++) {
                double towards = side % 3 == 1 ? -INFINITY : (double)INFINITY;
                double x = side < 3 ? value : middle;
                if (single) {
                    x = side % 3 == 0 ? x : (double)nextafterf((float)x, (float)towards);
                } else {
                    x = side % 3 == 0 ? x : nextafter(x, towards);
                }
                test_set_element(values, kernel->type, (ptrdiff_t)count, x);
                wanted[count++] = test_half_nearest(x, half_types[t]);
            }
        }
        check_store(kernel, values, count, half_types[t], wanted);
        for (count = 0; count < HALVES; count++) {
            uint64_t bits = test_bits(&rng);
            memcpy((char *)values + count * size_of(kernel), &bits, size_of(kernel));
            double x = test_element(values, kernel->type, (ptrdiff_t)count);
            /* What remains of the payload of a NaN is half.h's to define. */
            wanted[count] = isnan(x) ? mu_half_from_f32(half_types[t], (float)x)
                                     : test_half_nearest(x, half_types[t]);
            if (single && !isnan(x)) {
                assert_int_equal(mu_half_from_f32(half_types[t], (float)x), wanted[count]);
            }
        }
        check_store(kernel, values, count, half_types[t], wanted);
    }
    free(values);
    free(wanted);
}

/* ---- rows ---- */

/* The kernel of the same type that all others are compared with. */
static const mu_kernel *portable_like(const mu_kernel *kernel)
{
    for (size_t i = 0; mu_kernel_at(i) != NULL; i++) {
        if (mu_kernel_at(i)->type == kernel->type) {
            return mu_kernel_at(i);
        }
    }
    return NULL;
}

static void *new_row(const mu_kernel *kernel, size_t n, test_rng *rng)
{
    void *row = test_guarded_alloc(n * size_of(kernel), 0);
    for (size_t i = 0; i < n; i++) {
        test_set_element(row, kernel->type, (ptrdiff_t)i, draw(rng));
    }
    return row;
}

static void check_row_sums(const mu_kernel *kernel, size_t n, double scale, test_rng *rng)
{
    void *row = new_row(kernel, n, rng);
    double squares = 0, sum = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double x = test_element(row, kernel->type, (ptrdiff_t)i);
        squares += x * scale * (x * scale);
        sum += fabs(x);
        largest = fmax(largest, fabs(x));
    }
    mu_row_stats stats = kernel->rows->stats(row, n, scale);
    double abs_sum = kernel->rows->abs_sum(row, n);
    double tolerance = 2 * (double)(n + 4) * 0x1p-53;
    assert_true(fabs(stats.sum_squares - squares) <= tolerance * squares);
    assert_true(fabs(abs_sum - sum) <= tolerance * sum);
    assert_true(stats.largest == largest);
    assert_true(kernel->rows->squares(row, n, scale) == stats.sum_squares);

    const mu_kernel *portable = portable_like(kernel);
    mu_row_stats same = portable->rows->stats(row, n, scale);
    double same_sum = portable->rows->abs_sum(row, n);
    assert_memory_equal(&stats, &same, sizeof stats);
    assert_memory_equal(&abs_sum, &same_sum, sizeof abs_sum);
    test_guarded_free(row);
}

static void test_row_sums(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("row sums");
    for (size_t n = 0; n <= 67; n++) {
        check_row_sums(kernel, n, 1, &rng);
        check_row_sums(kernel, n, ldexp(1, (int)test_below(&rng, 200) - 100), &rng);
    }
    check_row_sums(kernel, 10007, 0.1, &rng);
}

static void test_row_stats_find_what_is_not_finite(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("not finite");
    const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t n = 1; n <= 67; n++) {
        void *row = new_row(kernel, n, &rng);
        assert_true(isfinite(kernel->rows->stats(row, n, 1).largest));
        for (size_t i = 0; i < n; i++) {
            double kept = test_element(row, kernel->type, (ptrdiff_t)i);
            test_set_element(row, kernel->type, (ptrdiff_t)i, bad[(n + i) % 4]);
            assert_true(!isfinite(kernel->rows->stats(row, n, 1).largest));
            test_set_element(row, kernel->type, (ptrdiff_t)i, kept);
        }
        test_guarded_free(row);
    }
}

/* No element is too large or too small to be finite and found. */
static void test_row_stats_of_extremes(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    bool single = kernel->type == MUONIUM_F32;
    double large = single ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    double small = single ? 0x1p-149 : 0x1p-1074;
    double values[20] = {0};
    for (size_t at = 0; at < 20; at++) {
        void *row = test_guarded_alloc(20 * size_of(kernel), 0);
        for (size_t i = 0; i < 20; i++) {
            test_set_element(row, kernel->type, (ptrdiff_t)i, values[i]);
        }
        test_set_element(row, kernel->type, (ptrdiff_t)at, -large);
        mu_row_stats stats = kernel->rows->stats(row, 20, 1 / large);
        assert_true(stats.largest == large && fabs(stats.sum_squares - 1) < 1e-15);
        test_set_element(row, kernel->type, (ptrdiff_t)at, -small);
        stats = kernel->rows->stats(row, 20, single ? 0x1p149 : 0x1p1000);
        assert_true(stats.largest == small);
        assert_true(stats.sum_squares == (single ? 1 : 0x1p-148));
        test_guarded_free(row);
    }
}

/* What T makes of alpha * x + beta * y: three roundings. */
static double combined(const mu_kernel *kernel, double alpha, double x, double beta, double y)
{
    if (kernel->type == MUONIUM_F32) {
        return (double)((float)alpha * (float)x + (float)beta * (float)y);
    }
    return alpha * x + beta * y;
}

static void check_row_changes(const mu_kernel *kernel, size_t n, muonium_dtype half, test_rng *rng)
{
    size_t bytes = n * size_of(kernel);
    void *original = new_row(kernel, n, rng), *from = new_row(kernel, n, rng);
    void *scaled = new_row(kernel, n, rng), *rounded = new_row(kernel, n, rng);
    void *mixed = new_row(kernel, n, rng), *added = new_row(kernel, n, rng);
    void *written = new_row(kernel, n, rng);
    double alpha = draw(rng), beta = draw(rng);
    memcpy(scaled, original, bytes);
    memcpy(rounded, original, bytes);
    memcpy(mixed, original, bytes);
    memcpy(added, original, bytes);
    memset(written, 0xff, bytes); /* NaN: what must not be read */
    kernel->rows->add(added, from, n, beta, true);
    kernel->rows->add(written, from, n, beta, false);
    kernel->rows->scale(scaled, n, alpha);
    kernel->rows->round(rounded, n, half);
    kernel->rows->combine(mixed, alpha, from, beta, n, half);
    for (size_t i = 0; i < n; i++) {
        double x = test_element(original, kernel->type, (ptrdiff_t)i);
        double y = test_element(from, kernel->type, (ptrdiff_t)i);
        double round = (double)mu_f32_from_half(half, test_half_nearest(x, half));
        double mix = combined(kernel, alpha, round, beta, y);
        mix = (double)mu_f32_from_half(half, test_half_nearest(mix, half));
        assert_true(test_element(scaled, kernel->type, (ptrdiff_t)i) ==
                    combined(kernel, alpha, x, 0, 0));
        assert_true(test_element(added, kernel->type, (ptrdiff_t)i) ==
                    combined(kernel, 1, x, beta, y));
        assert_true(test_element(written, kernel->type, (ptrdiff_t)i) ==
                    combined(kernel, beta, y, 0, 0));
        assert_true(test_element(rounded, kernel->type, (ptrdiff_t)i) == round);
        assert_true(test_element(mixed, kernel->type, (ptrdiff_t)i) == mix);
    }
    test_guarded_free(original);
    test_guarded_free(from);
    test_guarded_free(scaled);
    test_guarded_free(rounded);
    test_guarded_free(mixed);
    test_guarded_free(added);
    test_guarded_free(written);
}

static void test_row_changes(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("row changes");
    for (size_t n = 0; n <= 140; n++) {
        check_row_changes(kernel, n, MUONIUM_BF16, &rng);
        check_row_changes(kernel, n, MUONIUM_F16, &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_load_all_halves),
        cmocka_unit_test(test_store_rounds_once),
        cmocka_unit_test(test_row_sums),
        cmocka_unit_test(test_row_stats_find_what_is_not_finite),
        cmocka_unit_test(test_row_stats_of_extremes),
        cmocka_unit_test(test_row_changes),
    };
    return test_with_every_kernel(tests);
}
