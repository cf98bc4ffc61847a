/*
 * test_elementwise.c: the element-wise kernels of the optimizer: against their formulas in
 * double precision, against each other bit by bit, and at the edges of their arrays.
 * Kernels for instructions that this CPU lacks are not run.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "base/half.h"
#include "vector/elementwise.h"

/* From 0; NULL past the last that can run here. */
static const mu_elementwise *runnable(size_t index)
{
    const mu_elementwise *kernel = mu_elementwise_at(index);
    return kernel != NULL && mu_includes(mu_cpu_detect()->has, kernel->needs) ? kernel : NULL;
}

static void test_registry(void **state)
{
    (void)state;
    assert_int_equal(mu_elementwise_at(0)->needs, 0);
    size_t count = 0;
    for (const mu_elementwise *kernel; (kernel = mu_elementwise_at(count)) != NULL; count++) {
        assert_ptr_equal(mu_elementwise_for(kernel->needs), kernel);
        assert_true(count == 0 || kernel->needs != 0); /* portable comes first */
        /* test_round_stochastic.c therefore tests this one alone. */
        assert_ptr_equal(kernel->round_stochastic, mu_elementwise_at(0)->round_stochastic);
    }
    assert_ptr_equal(mu_elementwise_for(~(mu_features)0), mu_elementwise_at(count - 1));
    assert_null(mu_elementwise_at(count + 1));
#if defined(__x86_64__)
    assert_int_equal(count, 3);
#endif
}

/* ---- values and steps ---- */

/* Any size from 1e-30 to 1e30, now and then a zero, a denormal or, if wanted, no number. */
static float any_value(test_rng *rng, bool finite)
{
    static const float special[] = {0.0f,    -0.0f,    0x1p-149f, -0x1p-130f,
                                    1.0e30f, INFINITY, -INFINITY, NAN};
    if (test_below(rng, 8) == 0) {
        return special[test_below(rng, finite ? 5 : 8)];
    }
    return (float)(test_normal(rng) * pow(10.0, test_uniform(rng, -30.0, 30.0)));
}

static void fill(test_rng *rng, float *x, size_t n, bool finite)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = any_value(rng, finite);
    }
}

static mu_momentum_step any_momentum_step(test_rng *rng)
{
    return (mu_momentum_step){.decay = (float)test_uniform(rng, 0.0, 1.0),
                              .gain = (float)test_uniform(rng, 0.0, 1.0),
                              .of_g = (float)test_uniform(rng, 0.0, 1.0),
                              .of_m = (float)test_uniform(rng, 0.0, 1.0)};
}

/* The largest number of some type, or none. */
static float any_limit(test_rng *rng)
{
    static const float limits[] = {INFINITY, FLT_MAX, 0x1.fep127f, 65504.0f};
    return limits[test_below(rng, 4)];
}

static mu_update_step any_update_step(test_rng *rng)
{
    return (mu_update_step){.decay = (float)test_uniform(rng, 0.0, 0.1),
                            .rate = (float)test_uniform(rng, 0.0, 0.1),
                            .limit = any_limit(rng),
                            .cautious = test_below(rng, 2) == 0,
                            .at_zero = test_below(rng, 2) == 0};
}

/* As after `steps` steps with bias correction, looking ahead or not. */
static mu_adam_step any_adam_step(test_rng *rng)
{
    double beta1 = test_uniform(rng, 0.0, 0.99), beta2 = test_uniform(rng, 0.9, 0.9999);
    double steps = 1.0 + (double)test_below(rng, 1000), rate = test_uniform(rng, 1e-5, 0.1);
    double of_m = rate / (1.0 - pow(beta1, steps));
    bool look_ahead = test_below(rng, 2) == 0;
    return (mu_adam_step){
        .beta1 = (float)beta1,
        .one_minus_beta1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1.0 - beta2),
        .decay = (float)(rate * test_uniform(rng, 0.0, 0.1)),
        .of_m = (float)(look_ahead ? of_m * beta1 : of_m),
        .of_g = (float)(look_ahead ? of_m * (1.0 - beta1) : 0.0),
        .v_scale = (float)(1.0 / sqrt(1.0 - pow(beta2, steps))),
        .root = test_below(rng, 2) == 0 ? 0.0f : 1e-3f,
        .eps = test_below(rng, 3) == 0 ? 0.0f : 1e-8f,
        .g_limit = test_below(rng, 2) == 0 ? INFINITY : MU_ADAM_G_LIMIT,
        .limit = any_limit(rng),
    };
}

/* ---- the same bits everywhere, and nothing beyond the arrays ---- */

enum { MOMENTUM, DIRECTION, UPDATE, ADAM, OPERATIONS, ARRAYS = 4 };

typedef struct operation {
    mu_momentum_step momentum;
    mu_update_step update;
    mu_adam_step adam;
} operation;

static void apply(const mu_elementwise *kernel, int kind, const operation *with, float **x,
                  size_t n)
{
    switch (kind) {
    case MOMENTUM:
        kernel->momentum(&with->momentum, x[0], x[1], x[2], n);
        break;
    case DIRECTION:
        kernel->direction(&with->momentum, x[0], x[1], x[2], n);
        break;
    case UPDATE:
        kernel->update(&with->update, x[0], x[1], n);
        break;
    default:
        kernel->adam(&with->adam, x[0], x[1], x[2], x[3], n);
    }
}

static void assert_same_floats(const float *x, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(isnan(x[i]) && isnan(expected[i])) &&
            mu_bits_of_f32(x[i]) != mu_bits_of_f32(expected[i])) {
            fail_msg("element %zu of %zu is %a, expected %a", i, n, (double)x[i],
                     (double)expected[i]);
        }
    }
}

/* An array in guarded memory with `gap` bytes of filling on one side of it. */
typedef struct guarded_array {
    void *data;
    unsigned char *filling;
    size_t gap;
} guarded_array;

static guarded_array guard(size_t bytes, size_t gap, bool at_front)
{
    unsigned char *data =
        at_front ? test_guarded_alloc_front(bytes, gap) : test_guarded_alloc(bytes, gap);
    return (guarded_array){data, at_front ? data - gap : data + bytes, gap};
}

static void unguard(guarded_array *array)
{
    for (size_t i = 0; i < array->gap; i++) {
        assert_int_equal(array->filling[i], 0xa5);
    }
    test_guarded_free(array->data);
}

/* Every array at a random alignment against a page that traps. */
static void compare_kernels(test_rng *rng, int kind, size_t n)
{
    operation with = {any_momentum_step(rng), any_update_step(rng), any_adam_step(rng)};
    float *input = calloc(ARRAYS * n + 1, sizeof *input);
    float *expected = calloc(ARRAYS * n + 1, sizeof *expected);
    assert_non_null(input);
    assert_non_null(expected);
    fill(rng, input, ARRAYS * n, false);
    memcpy(expected, input, ARRAYS * n * sizeof *input);
    float *x[ARRAYS];
    for (size_t a = 0; a < ARRAYS; a++) {
        x[a] = expected + a * n;
    }
    apply(mu_elementwise_at(0), kind, &with, x, n);

    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = runnable(k)) != NULL; k++) {
        guarded_array arrays[ARRAYS];
        for (size_t a = 0; a < ARRAYS; a++) {
            size_t gap = sizeof(float) * test_below(rng, 17);
            arrays[a] = guard(n * sizeof(float), gap, test_below(rng, 2) == 0);
            x[a] = arrays[a].data;
            memcpy(x[a], input + a * n, n * sizeof(float));
        }
        apply(kernel, kind, &with, x, n);
        for (size_t a = 0; a < ARRAYS; a++) {
            assert_same_floats(x[a], expected + a * n, n);
            unguard(&arrays[a]);
        }
    }
    free(input);
    free(expected);
}

static void test_same_bits(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("same bits");
    for (int kind = 0; kind < OPERATIONS; kind++) {
        for (size_t n = 0; n <= 67; n++) {
            compare_kernels(&rng, kind, n);
            compare_kernels(&rng, kind, n);
        }
        compare_kernels(&rng, kind, 1000);
        compare_kernels(&rng, kind, 10007);
    }
}

/* ---- the formulas, in double precision ---- */

enum { MANY = 20000 };

static const double eps32 = 0x1p-24;
static const double underflow = 4 * 0x1p-149; /* a few operations that lose denormals */

/* `got` is within `tolerance` of `exact`, infinite where that leaves f32. */
static void assert_within(const char *what, float got, double exact, double tolerance)
{
    bool must = fabs(exact) - tolerance > FLT_MAX, may = fabs(exact) + tolerance > FLT_MAX;
    bool overflowed = isinf(got) && (got > 0) == (exact > 0);
    if (!(must ? overflowed : (may && overflowed) || fabs(got - exact) <= tolerance)) {
        fail_msg("%s is %.9g, expected %.17g within %.3g", what, (double)got, exact, tolerance);
    }
}

/* The same held to [-limit, limit]. */
static void assert_held(const char *what, float got, double exact, double tolerance, float limit)
{
    if (isinf(limit)) {
        assert_within(what, got, exact, tolerance);
        return;
    }
    double held = fmin(fmax(exact, -(double)limit), (double)limit);
    if (!(fabsf(got) <= limit && fabs(got - held) <= tolerance)) {
        fail_msg("%s is %.9g, expected %.17g within %.3g, at most %g", what, (double)got, held,
                 tolerance, (double)limit);
    }
}

static void test_momentum_formula(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("momentum formula");
    static float g[MANY], m[MANY], before[MANY], d[MANY], again[MANY];
    mu_momentum_step s = any_momentum_step(&rng);
    fill(&rng, g, MANY, true);
    fill(&rng, m, MANY, true);
    memcpy(before, m, sizeof m);
    mu_elementwise_at(0)->momentum(&s, g, m, d, MANY);
    for (size_t i = 0; i < MANY; i++) {
        double old = (double)s.decay * before[i], new = (double)s.gain *g[i];
        double of_g = (double)s.of_g * g[i];
        double spread = fabs(old) + fabs(new);
        assert_within("m", m[i], old + new, 2 * eps32 * spread + underflow);
        assert_within("d", d[i], of_g + (double)s.of_m * (old + new),
                      4 * eps32 * (fabs(of_g) + (double)s.of_m * spread) + underflow);
    }
    mu_elementwise_at(0)->direction(&s, g, m, again, MANY);
    assert_same_floats(again, d, MANY);
}

static void test_update_formula(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("update formula");
    static float o[MANY], w[MANY], before[MANY];
    for (int cautious = 0; cautious <= 1; cautious++) {
        mu_update_step s = any_update_step(&rng);
        s.cautious = cautious != 0;
        fill(&rng, o, MANY, true);
        fill(&rng, w, MANY, true);
        memcpy(before, w, sizeof w);
        mu_elementwise_at(0)->update(&s, o, w, MANY);
        size_t decayed = 0;
        for (size_t i = 0; i < MANY; i++) {
            bool decays =
                !s.cautious || (double)o[i] * (double)before[i] > 0.0 || (s.at_zero && o[i] == 0);
            double decay = decays ? (double)s.decay * before[i] : 0.0;
            double step = (double)s.rate * o[i];
            double spread = fabs(before[i]) + 3 * fabs(decay) + 3 * fabs(step);
            assert_held("w", w[i], before[i] - decay - step, eps32 * spread + underflow, s.limit);
            decayed += decays;
        }
        assert_true(s.cautious ? decayed > MANY / 4 && decayed < MANY / 4 * 3 : decayed == MANY);
    }
}

/* Signs count however small the product, and where o is 0 nothing is decayed but with at_zero. */
static void test_cautious_edges(void **state)
{
    (void)state;
    mu_update_step s = {.decay = 0.5f, .rate = 1.0f, .limit = FLT_MAX, .cautious = true};
    const float o[] = {1e-30f, -1e-30f, 1e-30f, -1e-30f, 0.0f, -0.0f, 3.0f};
    const float w[] = {2e-25f, -2e-25f, -2e-25f, 2e-25f, 4.0f, -4.0f, 0.0f};
    const float kept[] = {1e-25f, -1e-25f, -2e-25f, 2e-25f, 4.0f, -4.0f, 0.0f};
    enum { COUNT = sizeof o / sizeof o[0] };
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = runnable(k)) != NULL; k++) {
        float got[COUNT], expected[COUNT];
        memcpy(got, w, sizeof got);
        kernel->update(&s, o, got, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            expected[i] = w[i] - ((w[i] - kept[i]) + o[i]);
        }
        assert_same_floats(got, expected, COUNT);

        s.at_zero = true;
        memcpy(got, w, sizeof got);
        kernel->update(&s, o, got, COUNT);
        expected[4] = 2.0f;
        expected[5] = -2.0f;
        assert_same_floats(got, expected, COUNT);
        s.at_zero = false;
    }
}

static const double adam_tolerance = 1e-6; /* of the terms of each sum */

/* The whole step from the same inputs, with values as training has them. */
static void test_adam_formula(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("adam formula");
    static float g[MANY], m[MANY], v[MANY], w[MANY], m0[MANY], v0[MANY], w0[MANY];
    for (int round = 0; round < 10; round++) {
        mu_adam_step s = any_adam_step(&rng);
        for (size_t i = 0; i < MANY; i++) {
            double size = pow(10.0, test_uniform(&rng, -15.0, 15.0));
            g[i] = (float)(size * test_normal(&rng));
            m0[i] = m[i] = (float)(size * test_normal(&rng));
            v0[i] = v[i] = (float)(size * size * fabs(test_normal(&rng)));
            w0[i] = w[i] = (float)test_normal(&rng);
        }
        mu_elementwise_at(0)->adam(&s, g, m, v, w, MANY);
        for (size_t i = 0; i < MANY; i++) {
            double old = (double)s.beta1 * m0[i], new = (double)s.one_minus_beta1 *g[i];
            double square = (double)s.beta2 * v0[i] + (double)s.one_minus_beta2 * g[i] * g[i];
            double divisor = sqrt(square + (double)s.root) * (double)s.v_scale + (double)s.eps;
            double of_g = (double)s.of_g * g[i], kept = w0[i] - (double)s.decay * w0[i];
            double step = ((double)s.of_m * (old + new) + of_g) / divisor;
            double spread =
                ((double)s.of_m * (fabs(old) + fabs(new)) + fabs(of_g)) / divisor + fabs(kept);
            assert_within("m", m[i], old + new, adam_tolerance * (fabs(old) + fabs(new)));
            assert_within("v", v[i], square, adam_tolerance * square);
            assert_within("w", w[i], kept - step, adam_tolerance * spread);
        }
    }
}

/* With values of all sizes f32 cannot hold every v, so w is checked against the m and v
 * that were stored. */
static void test_adam_extremes(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("adam extremes");
    static float g[MANY], m[MANY], v[MANY], w[MANY], m0[MANY], v0[MANY], w0[MANY];
    size_t unmoved = 0, overflows = 0, held_back = 0;
    for (int round = 0; round < 10; round++) {
        mu_adam_step s = any_adam_step(&rng);
        s.eps = round % 2 == 0 ? 0.0f : 1e-8f;
        s.root = 0.0f;
        fill(&rng, g, MANY, true);
        fill(&rng, m0, MANY, true);
        fill(&rng, w0, MANY, true);
        for (size_t i = 0; i < MANY; i++) {
            v0[i] = test_below(&rng, 2) == 0 ? 0.0f : fabsf(any_value(&rng, true));
            m0[i] = test_below(&rng, 2) == 0 ? 0.0f : m0[i];
        }
        memcpy(m, m0, sizeof m);
        memcpy(v, v0, sizeof v);
        memcpy(w, w0, sizeof w);
        mu_elementwise_at(0)->adam(&s, g, m, v, w, MANY);
        for (size_t i = 0; i < MANY; i++) {
            double held = fmin(fmax(g[i], -(double)s.g_limit), (double)s.g_limit);
            double old = (double)s.beta1 * m0[i], new = (double)s.one_minus_beta1 *held;
            double square = (double)s.beta2 * v0[i] + (double)s.one_minus_beta2 * held * held;
            assert_within("m", m[i], old + new,
                          adam_tolerance * (fabs(old) + fabs(new)) + underflow);
            assert_within("v", v[i], square, adam_tolerance * square + underflow);

            double divisor = sqrt((double)v[i]) * (double)s.v_scale + (double)s.eps;
            double of_m = (double)s.of_m * m[i], of_g = (double)s.of_g * held;
            double kept = w0[i] - (double)s.decay * w0[i];
            double per_unit = divisor == 0.0 ? 0.0 : 1.0 / divisor;
            assert_held("w", w[i], kept - (of_m + of_g) * per_unit,
                        adam_tolerance * ((fabs(of_m) + fabs(of_g)) * per_unit + fabs(w0[i])) +
                            underflow * (1.0 + per_unit),
                        s.limit);
            unmoved += divisor == 0.0;
            overflows += isinf(v[i]) != 0;
            held_back += held != (double)g[i];
        }
    }
    assert_true(unmoved > 0 && overflows > 0 && held_back > 0);
}

/* Without eps, an element that never had a gradient only decays. */
static void test_adam_zero_by_zero(void **state)
{
    (void)state;
    enum { COUNT = 67 };
    test_rng rng = test_rng_start("adam zero by zero");
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = runnable(k)) != NULL; k++) {
        const float g[COUNT] = {0};
        float m[COUNT] = {0}, v[COUNT] = {0}, w[COUNT], expected[COUNT];
        mu_adam_step s = any_adam_step(&rng);
        s.eps = 0.0f;
        test_fill_normal_f32(&rng, w, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            expected[i] = fminf(fmaxf(w[i] - s.decay * w[i], -s.limit), s.limit);
        }
        kernel->adam(&s, g, m, v, w, COUNT);
        assert_same_floats(w, expected, COUNT);
        assert_same_floats(m, g, COUNT);
        assert_same_floats(v, g, COUNT);
    }
}

/* ---- finite ---- */

typedef struct float_type {
    muonium_dtype dtype;
    size_t bytes;
    uint32_t finite[4], not_finite[6];
} float_type;

static const float_type float_types[] = {
    {MUONIUM_F32,
     4,
     {0x7f7fffffu, 0xff7fffffu, 0x00000001u, 0x80000000u},
     {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0x7fffffffu, 0xffffffffu}},
    {MUONIUM_BF16,
     2,
     {0x7f7fu, 0xff7fu, 0x0001u, 0x8000u},
     {0x7f80u, 0xff80u, 0x7f81u, 0xffc0u, 0x7fffu, 0xffffu}},
    {MUONIUM_F16,
     2,
     {0x7bffu, 0xfbffu, 0x0001u, 0x8000u},
     {0x7c00u, 0xfc00u, 0x7c01u, 0xfe00u, 0x7fffu, 0xffffu}},
};

static void put(const float_type *type, void *x, size_t i, uint32_t pattern)
{
    if (type->bytes == 4) {
        ((float *)x)[i] = mu_f32_of_bits(pattern);
    } else {
        ((uint16_t *)x)[i] = (uint16_t)pattern;
    }
}

static void check_finite(test_rng *rng, const mu_elementwise *kernel, const float_type *type,
                         size_t n)
{
    size_t gap = type->bytes * test_below(rng, 33);
    guarded_array array = guard(n * type->bytes, gap, test_below(rng, 2) == 0);
    for (size_t i = 0; i < n; i++) {
        put(type, array.data, i, type->finite[test_below(rng, 4)]);
    }
    assert_true(kernel->all_below(array.data, type->dtype, MU_FINITE, n));
    for (size_t trial = 0; trial < (n < 100 ? n : 100); trial++) {
        size_t i = n < 100 ? trial : test_below(rng, n);
        for (size_t which = 0; which < 6; which++) {
            put(type, array.data, i, type->not_finite[which]);
            assert_false(kernel->all_below(array.data, type->dtype, MU_FINITE, n));
        }
        put(type, array.data, i, type->finite[test_below(rng, 4)]);
    }
    assert_true(kernel->all_below(array.data, type->dtype, MU_FINITE, n));
    unguard(&array);
}

static void test_finite(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("finite");
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = runnable(k)) != NULL; k++) {
        for (size_t t = 0; t < 3; t++) {
            for (size_t n = 0; n <= 140; n++) {
                check_finite(&rng, kernel, &float_types[t], n);
            }
            check_finite(&rng, kernel, &float_types[t], 10007);
        }
    }
}

/* All patterns of 16 bits, and f32 ones with these as upper half, among zeros, against
 * every exponent. */
static void test_below_patterns(void **state)
{
    (void)state;
    const mu_elementwise *kernel;
    for (size_t k = 0; (kernel = runnable(k)) != NULL; k++) {
        uint16_t half[33] = {0};
        float single[33] = {0};
        for (uint32_t pattern = 0; pattern <= 0xffffu; pattern++) {
            int exponent = 1 + (int)(pattern * 2654435761u >> 16) % MU_FINITE;
            float as_bf16 = mu_f32_of_bits(pattern << 16),
                  as_f16 = mu_f32_from_f16((uint16_t)pattern);
            float above = mu_f32_of_bits(pattern << 16 | 0xffffu);
            size_t at = pattern % 33;
            half[at] = (uint16_t)pattern;
            single[at] = above;
            for (int last = 0; last <= 1; last++, exponent = MU_FINITE) {
                double bound = ldexp(1.0, exponent);
                assert_int_equal(kernel->all_below(half, MUONIUM_BF16, exponent, 33),
                                 isfinite(as_bf16) && fabs((double)as_bf16) < bound);
                assert_int_equal(kernel->all_below(half, MUONIUM_F16, exponent, 33),
                                 isfinite(as_f16) && fabs((double)as_f16) < bound);
                assert_int_equal(kernel->all_below(single, MUONIUM_F32, exponent, 33),
                                 isfinite(above) && fabs((double)above) < bound);
            }
            half[at] = 0;
            single[at] = 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),         cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_momentum_formula), cmocka_unit_test(test_update_formula),
        cmocka_unit_test(test_cautious_edges),   cmocka_unit_test(test_adam_formula),
        cmocka_unit_test(test_adam_extremes),    cmocka_unit_test(test_adam_zero_by_zero),
        cmocka_unit_test(test_finite),           cmocka_unit_test(test_below_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
