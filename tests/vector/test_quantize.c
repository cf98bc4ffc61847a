/*
 * test_quantize.c: the kernels of int8 state: against scalar code that follows elementwise.h, on
 * every instruction set, at the edges of their arrays. Kernels for instructions that this CPU
 * lacks are not run.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "base/random.h"
#include "vector/elementwise.h"

/* ---- what elementwise.h says ---- */

static float expected_largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        most = isnan(x[i]) || fabsf(x[i]) > most ? fabsf(x[i]) : most;
        if (isnan(most)) {
            break;
        }
    }
    return most;
}

static int8_t expected_at_random(float x, float inverse, uint64_t key, uint64_t stream,
                                 uint64_t counter, size_t i)
{
    uint32_t words[4];
    uint64_t number = (uint64_t)(i % MU_RANDOM_STRIDE);
    mu_random(key, counter, stream + (number << 54), words);
    double unit = ldexp((double)(words[i / MU_RANDOM_STRIDE] >> 9), -23);
    /* Multiples of 2^-23, cut towards 0. */
    double product = (double)(x * inverse), cut = trunc(ldexp(product, 23));
    double rounded = floor(ldexp(cut, -23) + unit);
    return (int8_t)fmin(fmax(rounded, -127), 127);
}

/* ---- all kernels ---- */

typedef struct arrays {
    float *x, *back;
    int8_t *q;
    size_t n;
} arrays;

/* Alone in their pages: a byte beyond either end traps. */
static arrays make(size_t n, bool at_front)
{
    size_t floats = n * sizeof(float);
    if (at_front) {
        return (arrays){test_guarded_alloc_front(floats, 0), test_guarded_alloc_front(floats, 0),
                        test_guarded_alloc_front(n, 0), n};
    }
    return (arrays){test_guarded_alloc(floats, 0), test_guarded_alloc(floats, 0),
                    test_guarded_alloc(n, 0), n};
}

static void release(arrays *a)
{
    test_guarded_free(a->x);
    test_guarded_free(a->back);
    test_guarded_free(a->q);
}

static void check_kernel(const mu_elementwise *kernel, test_rng *rng, size_t n, bool at_front)
{
    arrays a = make(n, at_front);
    for (size_t i = 0; i < n; i++) {
        a.x[i] = (float)test_uniform(rng, -4, 4);
    }
    if (n > 3) {
        a.x[n / 2] = (float)(127 / 30.0);
        a.x[n / 3] = (float)(-127 / 30.0);
        a.x[0] = 0x1p-149f;
    }
    assert_true(kernel->largest(a.x, n) == expected_largest(a.x, n));
    kernel->quantize(a.x, n, 30, a.q);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a.q[i], (int)rintf(a.x[i] * 30));
    }
    kernel->dequantize(a.q, n, 0.3f, a.back);
    for (size_t i = 0; i < n; i++) {
        assert_true(a.back[i] == 0.3f * (float)a.q[i]);
    }
    uint64_t key = 0x123456789abcdefu * n, stream = n * 77777777777u % ((uint64_t)1 << 53);
    uint64_t counter = 0xfedcba9876543210u + n;
    kernel->quantize_stochastic(a.x, n, 30, key, stream, counter, a.q);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a.q[i], expected_at_random(a.x[i], 30, key, stream, counter, i));
    }
    release(&a);
}

static void kernels_follow_their_definition(void **state)
{
    (void)state;
    const size_t counts[] = {100, 511, 512, 513, 530, 1023, 1024, 1500, 2047, MUONIUM_STATE_BLOCK};
    test_rng rng = test_rng_start("quantize");
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = mu_elementwise_at(k)) != NULL; k++) {
        if (!mu_includes(mu_cpu_detect()->has, kernel->needs)) {
            continue;
        }
        for (size_t n = 0; n <= 70; n++) {
            check_kernel(kernel, &rng, n, n % 2 == 0);
        }
        for (size_t c = 0; c < MU_COUNT(counts); c++) {
            check_kernel(kernel, &rng, counts[c], c % 2 == 0);
        }
    }
}

/* The two fused kernels give what the plain ones give one after the other. */
static void fused_kernels_are_the_plain_ones(void **state)
{
    (void)state;
    enum { MOST = 300 };
    test_rng rng = test_rng_start("fused");
    const mu_momentum_step step = {0.95f, 0.05f, 0.3f, 0.7f};
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = mu_elementwise_at(k)) != NULL; k++) {
        if (!mu_includes(mu_cpu_detect()->has, kernel->needs)) {
            continue;
        }
        for (size_t n = 0; n <= MOST; n++) {
            int8_t q[MOST], rounded[MOST];
            float g[MOST], plain[MOST], d[MOST];
            arrays a = make(n, n % 2 == 0);
            for (size_t i = 0; i < n; i++) {
                q[i] = (int8_t)((int)test_below(&rng, 255) - 127);
                g[i] = (float)test_normal(&rng);
            }
            kernel->dequantize(q, n, 0.01f, plain);
            kernel->momentum(&step, g, plain, d, n);
            float largest = kernel->momentum_int8(&step, q, 0.01f, g, a.x, n);
            assert_memory_equal(a.x, plain, n * sizeof *plain);
            assert_true(largest == kernel->largest(plain, n));

            float scale = largest > 0 ? largest / 127 : 1, inverse = 1 / scale;
            kernel->quantize(plain, n, inverse, rounded);
            kernel->direction_int8(&step, g, plain, inverse, scale, a.q, a.back, n);
            assert_memory_equal(a.q, rounded, n);
            kernel->dequantize(rounded, n, scale, plain);
            kernel->direction(&step, g, plain, d, n);
            for (size_t i = 0; i < n; i++) { /* a zero may have either sign */
                assert_true(a.back[i] == d[i]);
            }
            release(&a);
        }
    }
}

static void largest_of_what_is_not_finite(void **state)
{
    (void)state;
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = mu_elementwise_at(k)) != NULL; k++) {
        if (!mu_includes(mu_cpu_detect()->has, kernel->needs)) {
            continue;
        }
        for (size_t at = 0; at < 40; at++) {
            float x[40];
            for (size_t i = 0; i < 40; i++) {
                x[i] = i % 2 == 0 ? -FLT_MAX : 0x1p-149f;
            }
            assert_true(kernel->largest(x, 40) == FLT_MAX);
            x[at] = -INFINITY;
            assert_true(isinf(kernel->largest(x, 40)));
            x[39 - at] = -NAN;
            assert_true(isnan(kernel->largest(x, 40)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_follow_their_definition),
        cmocka_unit_test(fused_kernels_are_the_plain_ones),
        cmocka_unit_test(largest_of_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
