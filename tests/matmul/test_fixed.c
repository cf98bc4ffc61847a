/*
 * test_fixed.c: fixed-point products with every int8 kernel that can be run here, AMX and VNNI in
 * emulation where the CPU lacks them. Tiles must give every int32 exactly. gram must equal, bit for
 * bit, a plain computation of digits in double and of sums in 64 bits. symmul and apply must be
 * within the error bound of docs/numerics.md of the product in double, and must have the bits of
 * the portable kernel.
 */
#include "every_int8.h"

#include <math.h>

#include "matmul/fixed.h"

/* ---- a plain computation ---- */

typedef struct line_digits {
    float unit;       /* of the first digit; NaN: an element is not finite */
    int8_t *digit[3]; /* k of each */
} line_digits;

static line_digits digits_of(int digits, const float *x, size_t k)
{
    line_digits line = {.unit = 0};
    double largest = 0;
    for (size_t i = 0; i < k; i++) {
        assert_true(isfinite(x[i]));
        largest = fmax(largest, fabs((double)x[i]));
    }
    int exponent = -100;
    while (largest > 127.0 / 128 * ldexp(1, exponent)) {
        exponent++;
    }
    line.unit = (float)ldexp(1, exponent - 7);
    for (int d = 0; d < 3; d++) {
        line.digit[d] = calloc(k > 0 ? k : 1, 1);
        assert_non_null(line.digit[d]);
    }
    for (size_t i = 0; i < k; i++) {
        double rest = nearbyint(ldexp((double)x[i], 8 * digits - 1 - exponent));
        for (int d = digits - 1; d > 0; d--) {
            double low = rest - 256 * floor((rest + 128) / 256);
            line.digit[d][i] = (int8_t)low;
            rest = (rest - low) / 256;
        }
        assert_true(fabs(rest) <= 127);
        line.digit[0][i] = (int8_t)rest;
    }
    return line;
}

static void free_line(line_digits *line)
{
    for (int d = 0; d < 3; d++) {
        free(line->digit[d]);
    }
}

/* The product of two lines, before the epilogue. */
static float product_of(int digits, const line_digits *a, const line_digits *b, size_t k)
{
    int64_t sum[3] = {0, 0, 0};
    for (int p = 0; p < digits; p++) {
        for (int q = 0; q < digits && p + q < 3; q++) {
            for (size_t i = 0; i < k; i++) {
                sum[p + q] += a->digit[p][i] * b->digit[q][i];
            }
        }
    }
    for (int w = 0; w < 3; w++) {
        assert_true(sum[w] == (int32_t)sum[w]);
    }
    volatile float low = (float)sum[2] / 256;
    low = (float)sum[1] + low;
    volatile float all = (float)sum[0] + low / 256;
    all = all * a->unit;
    return all * b->unit;
}

/* Rows of a and b in k-blocks, added in order. */
static float sum_of_blocks(int digits, const float *a, const float *b, size_t k)
{
    volatile float sum = 0;
    for (size_t first = 0; first < k; first += MU_FIXED_K) {
        size_t here = k - first < MU_FIXED_K ? k - first : MU_FIXED_K;
        line_digits left = digits_of(digits, a + first, here);
        line_digits right = digits_of(digits, b + first, here);
        float part = product_of(digits, &left, &right, here);
        sum = first == 0 ? part : part + sum;
        free_line(&left);
        free_line(&right);
    }
    return sum;
}

/* ---- products ---- */

static mu_matmul matmul_new(const mu_int8_kernel *int8, int digits, size_t m, size_t n,
                            unsigned workers)
{
    mu_matmul with = {.workers = workers, .digits = digits, .int8 = int8};
    size_t bytes;
    assert_ok(mu_kernel_choose(MUONIUM_F32, &with.kernel));
    assert_true(mu_fixed_scratch(int8, digits, m, n, workers, &bytes));
    /* What is written beyond the scratch memory traps. */
    with.scratch = test_guarded_alloc(mu_round_up(bytes, MU_ALIGNMENT), 0);
    return with;
}

static float *floats_new(size_t count)
{
    return test_guarded_alloc((count > 0 ? count : 1) * sizeof(float), 0);
}

static void fill(test_rng *rng, float *x, size_t count, int kind)
{
    for (size_t i = 0; i < count; i++) {
        double value = test_normal(rng);
        if (kind == 1) { /* graded over the range of f32 */
            value = ldexp(value, -(int)test_below(rng, 60));
        } else if (kind == 2) { /* largest digits of either sign */
            value = test_below(rng, 2) ? 127.0 / 128 : -127.0 / 128;
        } else if (kind == 3) { /* the smallest digits: every lower one is -128 */
            value = -127.0 / 128 + ldexp(0x7f80, -23);
        } else if (kind == 4) {
            value = 0;
        }
        x[i] = (float)value;
    }
}

static void test_tiles_are_exact(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    test_rng rng = test_rng_start("tiles");
    static const size_t lengths[] = {1, 3, 4, 5, 63, 64, 65, 200, MU_FIXED_K};
    for (int digits = 2; digits <= 3; digits++) {
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            for (int kind = 0; kind < 5; kind++) {
                size_t k = lengths[l], mr = kernel->mr, nr = kernel->nr;
                size_t groups = mu_round_up((k + 3) / 4, kernel->groups);
                float *a = floats_new(mr * k), *b = floats_new(nr * k), unit[32];
                fill(&rng, a, mr * k, kind);
                fill(&rng, b, nr * k, kind);
                size_t words = groups * 4 * (size_t)digits;
                void *packed_a = test_guarded_alloc(mr * words, 0);
                void *packed_b = test_guarded_alloc(nr * words, 0);
                int32_t start[3 * 32] = {0}, sums[3 * 32 * 32];
                line_digits left[32], right[32];
                mu_digit_source rows = {a, (ptrdiff_t)k, 1, 1, NULL, 0, 0, 0};
                for (size_t i = 0; i < mr; i++) {
                    left[i] = digits_of(digits, a + i * k, k);
                    unit[i] = (float)ldexp(1, 8 * digits - 8) / left[i].unit;
                }
                kernel->pack_a(digits, &rows, mr, k, groups, unit, packed_a);
                rows.data = b;
                for (size_t j = 0; j < nr; j++) {
                    right[j] = digits_of(digits, b + j * k, k);
                    unit[j] = (float)ldexp(1, 8 * digits - 8) / right[j].unit;
                }
                kernel->pack_b(digits, &rows, nr, k, groups, unit, packed_b);
                if (kernel->start) {
                    kernel->start(digits, groups, packed_a, start);
                }
                if (kernel->enter) {
                    kernel->enter();
                }
                mu_meanwhile nothing = {.end = NULL};
                kernel->tile(digits, groups, packed_a, packed_b, start, sums, &nothing);
                if (kernel->leave) {
                    kernel->leave();
                }
                for (size_t i = 0; i < mr; i++) {
                    for (size_t j = 0; j < nr; j++) {
                        int64_t sum[3] = {0, 0, 0};
                        for (int p = 0; p < digits; p++) {
                            for (int q = 0; q < digits && p + q < 3; q++) {
                                for (size_t e = 0; e < k; e++) {
                                    sum[p + q] += left[i].digit[p][e] * right[j].digit[q][e];
                                }
                            }
                        }
                        for (size_t w = 0; w < 3; w++) {
                            assert_int_equal(sums[(w * mr + i) * nr + j], sum[w]);
                        }
                    }
                }
                for (size_t i = 0; i < mr; i++) {
                    free_line(&left[i]);
                }
                for (size_t j = 0; j < nr; j++) {
                    free_line(&right[j]);
                }
                test_guarded_free(a);
                test_guarded_free(b);
                test_guarded_free(packed_a);
                test_guarded_free(packed_b);
            }
        }
    }
}

/* X in either orientation; every element of the lower triangle, and the upper one mirrored. */
static void check_gram(const mu_int8_kernel *kernel, int digits, size_t m, size_t n, int kind,
                       test_rng *rng)
{
    float *x = floats_new(m * n), *transposed = floats_new(m * n), *c = floats_new(m * m);
    fill(rng, x, m * n, kind);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            transposed[j * m + i] = x[i * n + j];
        }
    }
    double scale = 0.75;
    mu_operand rows = {x, MUONIUM_F32, (ptrdiff_t)n, 1, scale, NULL, 0, 0};
    mu_operand columns = {transposed, MUONIUM_F32, 1, (ptrdiff_t)m, scale, NULL, 0, 0};
    unsigned workers = 1 + (unsigned)test_below(rng, 3);
    mu_matmul with = matmul_new(kernel, digits, m, n, workers);
    for (int orientation = 0; orientation < 2; orientation++) {
        memset(c, 0xff, m * m * sizeof *c); /* NaN: what is there must not be read */
        mu_gram(&with, m, n, orientation ? &columns : &rows, c, m);
        float *scaled = malloc(m * n * sizeof *scaled);
        assert_non_null(scaled);
        for (size_t i = 0; i < m * n; i++) {
            scaled[i] = (float)scale * x[i];
        }
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j <= i; j++) {
                float expected = sum_of_blocks(digits, scaled + i * n, scaled + j * n, n);
                assert_memory_equal(&c[i * m + j], &expected, sizeof expected);
                assert_memory_equal(&c[j * m + i], &expected, sizeof expected);
            }
        }
        free(scaled);
    }
    test_guarded_free(with.scratch);
    test_guarded_free(x);
    test_guarded_free(transposed);
    test_guarded_free(c);
}

static void test_gram_is_exact(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    test_rng rng = test_rng_start("gram");
    for (int digits = 2; digits <= 3; digits++) {
        for (size_t m = 1; m <= 35; m += 1 + m / 4) {
            check_gram(kernel, digits, m, 1 + test_below(&rng, 90), (int)test_below(&rng, 5), &rng);
        }
        check_gram(kernel, digits, 67, 130, 0, &rng);
        check_gram(kernel, digits, 5, 2 * MU_FIXED_K + 3, 1, &rng); /* several k-blocks */
        check_gram(kernel, digits, 2, 70000, 2, &rng);
    }
}

/* ---- symmul and apply ---- */

/* Symmetric, close to a multiple of the identity, and in f32 exactly what it is. */
static float *symmetric_new(test_rng *rng, size_t m, size_t ld, double diagonal)
{
    float *a = floats_new(m * ld);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) {
            float value = (float)(test_normal(rng) / sqrt((double)m) + (i == j ? diagonal : 0));
            a[i * ld + j] = a[j * ld + i] = value;
        }
    }
    return a;
}

/* The error of an element is at most this times k times the largest magnitudes of row and column.
 * A line with the largest magnitude l has 2^e <= 2.016 l, hence 4.07 for two lines. Rounding to
 * digits changes an element by at most 2^(e - 8 D), in either operand. Three digits leave out two
 * products of weight 3, each at most 2^-24 of 2^(e + e'), and a smaller one. The rest are
 * roundings to f32: three of the sums, and those of the epilogue. */
static double digit_error(int digits)
{
    double rounding = 4.07 * ldexp(2, -8 * digits), left_out = 4.07 * ldexp(1.01, -23);
    return rounding + (digits == 3 ? left_out : 0) + ldexp(4, -24);
}

static void check_symmul(const mu_int8_kernel *kernel, int digits, size_t m, bool with_other,
                         test_rng *rng)
{
    size_t ld = m + test_below(rng, 5);
    float *a = symmetric_new(rng, m, ld, 1.5), *b = symmetric_new(rng, m, ld, -0.5);
    float *other = symmetric_new(rng, m, ld, 0.25), *plus = symmetric_new(rng, m, ld, 0);
    float *c = floats_new(m * ld), *sum = floats_new(m * ld), *last = floats_new(m * ld);
    mu_operand left = {a, MUONIUM_F32, (ptrdiff_t)ld, 1, 0.5, with_other ? other : NULL, 0.75, 2};
    mu_operand right = {b, MUONIUM_F32, (ptrdiff_t)ld, 1, 1, NULL, 0, -1};
    mu_matmul with = matmul_new(kernel, digits, m, m, 1 + (unsigned)test_below(rng, 3));
    mu_symmul_epilogue after = {.plus = plus, .plus_factor = -2, .plus_identity = 0.5};
    memset(c, 0xff, m * ld * sizeof *c);
    memset(sum, 0xff, m * ld * sizeof *sum);
    after.sum = sum;
    after.sum_factor = 3;
    mu_symmul_fused(&with, m, &left, &right, c, ld, &after);
    memcpy(last, sum, m * ld * sizeof *last);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) {
            double exact = 0, row = 0, column = 0;
            for (size_t k = 0; k < m; k++) {
                double x = 0.5 * (double)a[i * ld + k] +
                           (with_other ? 0.75 * (double)other[i * ld + k] : 0) + (i == k ? 2 : 0);
                double y = (double)b[k * ld + j] - (k == j ? 1 : 0);
                exact += x * y;
                row = fmax(row, fabs(x));
                column = fmax(column, fabs(y));
            }
            exact += -2 * (double)plus[i * ld + j] + (i == j ? 0.5 : 0);
            double bound = digit_error(digits) * row * column * (double)(m + 8);
            assert_true(fabs((double)c[i * ld + j] - exact) <= bound);
            assert_memory_equal(&c[i * ld + j], &c[j * ld + i], sizeof *c);
            assert_true(sum[i * ld + j] == 3 * c[i * ld + j]);
        }
    }
    /* The last one: the sum is complete and mirrored. */
    after.accumulate = after.last = true;
    mu_symmul_fused(&with, m, &left, &right, c, ld, &after);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) {
            volatile float term = 3 * c[i * ld + j];
            volatile float expected = last[i * ld + j] + term;
            assert_true(sum[i * ld + j] == expected && sum[j * ld + i] == expected);
        }
    }
    test_guarded_free(with.scratch);
    float *all[] = {a, b, other, plus, c, sum, last};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_guarded_free(all[i]);
    }
}

static void test_symmul(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    test_rng rng = test_rng_start("symmul");
    for (int digits = 2; digits <= 3; digits++) {
        for (size_t m = 1; m <= 70; m += 1 + m / 3) {
            check_symmul(kernel, digits, m, m % 2, &rng);
        }
        check_symmul(kernel, digits, 131, true, &rng);
    }
}

/* In place, by rows and by columns, which must give the same bits. */
static void check_apply(const mu_int8_kernel *kernel, int digits, size_t m, size_t n, test_rng *rng)
{
    float *a = symmetric_new(rng, m, m, 1.25), *x = floats_new(m * n), *y = floats_new(m * n);
    float *transposed = floats_new(m * n);
    fill(rng, x, m * n, 0);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            y[i * n + j] = transposed[j * m + i] = x[i * n + j];
        }
    }
    mu_operand factor = {a, MUONIUM_F32, (ptrdiff_t)m, 1, 1, NULL, 0, 0.5};
    mu_operand rows = {y, MUONIUM_F32, (ptrdiff_t)n, 1, 0.5, NULL, 0, 0};
    mu_operand columns = {transposed, MUONIUM_F32, 1, (ptrdiff_t)m, 0.5, NULL, 0, 0};
    mu_matmul with = matmul_new(kernel, digits, m, n, 1 + (unsigned)test_below(rng, 3));
    mu_apply(&with, m, n, &factor, &rows, y, n, 1);
    mu_apply(&with, m, n, &factor, &columns, transposed, 1, m);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double exact = 0, row = 0, column = 0;
            for (size_t k = 0; k < m; k++) {
                double h = (double)a[i * m + k] + (i == k ? 0.5 : 0), v = (double)x[k * n + j] / 2;
                exact += h * v;
                row = fmax(row, fabs(h));
                column = fmax(column, fabs(v));
            }
            double bound = digit_error(digits) * row * column * (double)(m + 8);
            assert_true(fabs((double)y[i * n + j] - exact) <= bound);
            assert_memory_equal(&y[i * n + j], &transposed[j * m + i], sizeof *y);
        }
    }
    test_guarded_free(with.scratch);
    float *all[] = {a, x, y, transposed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_guarded_free(all[i]);
    }
}

static void test_apply(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    test_rng rng = test_rng_start("apply");
    for (int digits = 2; digits <= 3; digits++) {
        for (size_t m = 1; m <= 70; m += 1 + m / 3) {
            check_apply(kernel, digits, m, 1 + test_below(&rng, 150), &rng);
        }
    }
}

/* ---- every kernel beside the portable one ---- */

enum product_kind { GRAM, SYMMUL, APPLY };

typedef struct operands {
    enum product_kind kind;
    size_t m, n;
    float *a, *b, *other, *plus; /* m x m */
    float *x;                    /* m x n */
} operands;

static operands operands_new(enum product_kind kind, size_t m, size_t n, test_rng *rng)
{
    operands all = {.kind = kind, .m = m, .n = n, .x = floats_new(m * n)};
    float **square[] = {&all.a, &all.b, &all.other, &all.plus};
    for (size_t i = 0; i < sizeof square / sizeof square[0]; i++) {
        *square[i] = symmetric_new(rng, m, m, 1.5 - (double)i);
    }
    fill(rng, all.x, m * n, 0);
    return all;
}

static void operands_free(operands *all)
{
    float *memory[] = {all->a, all->b, all->other, all->plus, all->x};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        test_guarded_free(memory[i]);
    }
}

/* Elements of all results: of gram C; of symmul C and the sum; of apply Y by rows and columns. */
static size_t result_count(const operands *all)
{
    return all->kind == GRAM     ? all->m * all->m
           : all->kind == SYMMUL ? 2 * all->m * all->m
                                 : 2 * all->m * all->n;
}

static void multiply_operands(const operands *all, const mu_int8_kernel *kernel, int digits,
                              unsigned workers, float *result)
{
    size_t m = all->m, n = all->n;
    mu_matmul with = matmul_new(kernel, digits, m, n, workers);
    mu_operand rows = {all->x, MUONIUM_F32, (ptrdiff_t)n, 1, 0.75, NULL, 0, 0};
    memset(result, 0xff, result_count(all) * sizeof *result);
    if (all->kind == GRAM) {
        mu_gram(&with, m, n, &rows, result, m);
    } else if (all->kind == SYMMUL) {
        float *sum = result + m * m;
        mu_operand a = {all->a, MUONIUM_F32, (ptrdiff_t)m, 1, 0.7, all->other, 0.3, 2};
        mu_operand b = {all->b, MUONIUM_F32, (ptrdiff_t)m, 1, 1.1, NULL, 0, -1};
        mu_symmul_epilogue after = {.plus = all->plus,
                                    .plus_factor = -2,
                                    .plus_identity = 0.5,
                                    .sum = sum,
                                    .sum_factor = 3,
                                    .accumulate = true,
                                    .last = true};
        memcpy(sum, all->plus, m * m * sizeof *sum);
        mu_symmul_fused(&with, m, &a, &b, result, m, &after);
        for (size_t i = 0; i < m; i++) { /* of C only the lower triangle is complete */
            memset(result + i * m + i + 1, 0, (m - i - 1) * sizeof *result);
        }
    } else {
        float *by_columns = result + m * n;
        mu_operand a = {all->a, MUONIUM_F32, (ptrdiff_t)m, 1, 1.1, NULL, 0, 0.5};
        mu_operand columns = {by_columns, MUONIUM_F32, 1, (ptrdiff_t)m, 0.75, NULL, 0, 0};
        for (size_t i = 0; i < m * n; i++) {
            by_columns[i % n * m + i / n] = all->x[i];
        }
        mu_apply(&with, m, n, &a, &rows, result, n, 1);
        mu_apply(&with, m, n, &a, &columns, by_columns, 1, m);
    }
    test_guarded_free(with.scratch);
}

/* `slow`: kernels that are emulated, and the portable one, would take too long. */
static void check_same_bits(int digits, enum product_kind kind, size_t m, size_t n, bool slow,
                            test_rng *rng)
{
    operands all = operands_new(kind, m, n, rng);
    size_t bytes = result_count(&all) * sizeof(float), compared = 0;
    float *expected = NULL;
    const mu_int8_kernel *kernel;
    for (size_t i = slow; (kernel = slow ? mu_int8_at(i) : test_int8_at(i)) != NULL; i++) {
        if (slow && !mu_includes(mu_cpu_detect()->has, kernel->needs)) {
            continue;
        }
        float *result = floats_new(result_count(&all));
        multiply_operands(&all, kernel, digits, 1 + (unsigned)test_below(rng, 3), result);
        if (!expected) {
            expected = result;
            continue;
        }
        if (memcmp(result, expected, bytes) != 0) {
            fail_msg("product %d of %zu x %zu with %d digits differs with %s", (int)kind, m, n,
                     digits, kernel->name);
        }
        compared++;
        test_guarded_free(result);
    }
    assert_true(slow || compared > 0);
    test_guarded_free(expected);
    operands_free(&all);
}

/* Sizes of several blocks, of tiles cut off at the edge, and of sums in several k-blocks. */
static void test_every_kernel_has_the_bits_of_the_portable_one(void **state)
{
    (void)state;
    assert_string_equal(test_int8_at(0)->name, "portable_int8_4x8");
    if (test_int8_at(1) == NULL) {
        print_message("this CPU runs the portable kernel alone\n");
        skip();
    }
    test_rng rng = test_rng_start("bits");
    for (int digits = 2; digits <= 3; digits++) {
        for (size_t m = 1; m <= 70; m += 1 + m / 2) {
            for (int kind = GRAM; kind <= APPLY; kind++) {
                check_same_bits(digits, (enum product_kind)kind, m, 1 + test_below(&rng, 150),
                                false, &rng);
            }
        }
        check_same_bits(digits, GRAM, 300, 200, false, &rng);
        check_same_bits(digits, GRAM, 130, MU_FIXED_K + 52, false, &rng);
        check_same_bits(digits, SYMMUL, 300, 1, false, &rng);
        check_same_bits(digits, APPLY, 200, 70, false, &rng);
        check_same_bits(digits, APPLY, 130, 300, false, &rng);
        check_same_bits(digits, APPLY, MU_FIXED_K + 52, 40, false, &rng);
    }
#if defined(__x86_64__) /* where Arm is emulated, this takes minutes */
    check_same_bits(3, SYMMUL, MU_FIXED_K + 52, 1, true, &rng);
#endif
}

/* ---- what is not finite ---- */

static void test_what_is_not_finite_stays_so(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    enum { M = 9, N = 20 };
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        float x[M * N], c[M * M];
        for (size_t i = 0; i < M * N; i++) {
            x[i] = (float)i / 100;
        }
        x[4 * N + 7] = bad[b];
        mu_operand rows = {x, MUONIUM_F32, N, 1, 1, NULL, 0, 0};
        mu_matmul with = matmul_new(kernel, 3, M, N, 1);
        mu_gram(&with, M, N, &rows, c, M);
        for (size_t i = 0; i < M; i++) {
            for (size_t j = 0; j < M; j++) {
                assert_int_equal(isfinite(c[i * M + j]), i != 4 && j != 4);
            }
        }
        test_guarded_free(with.scratch);
    }
}

/* ---- sizes ---- */

static void test_sizes_beyond_memory_are_refused(void **state)
{
    const mu_int8_kernel *kernel = *(const mu_int8_kernel *const *)*state;
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 40};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        size_t bytes;
        assert_false(mu_fixed_scratch(kernel, 3, huge[i], huge[i], 1, &bytes));
        assert_false(mu_fixed_scratch(kernel, 3, huge[i], 1, 1024, &bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_are_exact),
        cmocka_unit_test(test_gram_is_exact),
        cmocka_unit_test(test_symmul),
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_what_is_not_finite_stays_so),
        cmocka_unit_test(test_sizes_beyond_memory_are_refused),
    };
    const struct CMUnitTest of_all[] = {
        cmocka_unit_test(test_every_kernel_has_the_bits_of_the_portable_one),
    };
    int failed = test_with_every_int8(tests);
    return failed + cmocka_run_group_tests_name("all kernels", of_all, NULL, NULL);
}
