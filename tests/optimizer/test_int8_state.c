/*
 * test_int8_state.c: int8 state against scalar code that follows its definition; the bound of its
 * error over thousands of steps; rounding at random; what is refused.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "optimizer/blocks.h"

enum { BLOCK = MUONIUM_STATE_BLOCK };

/* ---- one block ---- */

static const mu_dither nearest;

static const mu_elementwise *usable(void)
{
    return mu_elementwise_for(mu_cpu_usable());
}

static void assert_rounded(const float *x, size_t n, const mu_dither *dither, double units)
{
    int8_t q[BLOCK];
    float scale = mu_quantize(usable(), x, n, dither, q), largest = 0;
    bool reached = n == 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
    }
    /* In the denormal range a scale has few digits, so it is rounded up. */
    assert_true(127 * (double)scale >= (double)largest * (1 - 0x1p-20));
    assert_true(127 * (double)scale <= (double)largest * (1 + 0x1p-20) + 127 * 0x1p-149);
    for (size_t i = 0; i < n; i++) {
        double error = (double)scale * q[i] - (double)x[i];
        assert_in_range(q[i] + 127, 0, 254);
        assert_true(fabs(error) <= units * (double)scale * (1 + 0x1p-14));
        assert_true(isfinite(scale * (float)q[i]));
        reached = reached || abs(q[i]) >= 126 || scale < 0x1p-140f;
    }
    assert_true(reached || largest == 0);
}

static void blocks_are_within_half_a_unit(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("blocks");
    const size_t counts[] = {1, 2, 15, 16, 17, 100, 511, 513, BLOCK - 1, BLOCK};
    const int exponents[] = {0, 60, 126, -60, -100, -107, -110, -120, -126, -135, -146, -149};
    float x[BLOCK];
    for (size_t e = 0; e < MU_COUNT(exponents); e++) {
        for (size_t c = 0; c < MU_COUNT(counts); c++) {
            for (size_t i = 0; i < counts[c]; i++) {
                x[i] = (float)ldexp(test_uniform(&rng, -1, 1), exponents[e]);
            }
            assert_rounded(x, counts[c], &nearest, 0.5);
            mu_dither random = {true, 7, 3, c};
            assert_rounded(x, counts[c], &random, 1);
        }
    }
    x[0] = FLT_MAX;
    x[1] = -FLT_MAX;
    x[2] = 0x1p-149f;
    assert_rounded(x, 3, &nearest, 0.51); /* the largest scale is rounded down */
    assert_rounded(x + 2, 1, &nearest, 0.5);
}

static void blocks_without_a_scale(void **state)
{
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (size_t n = 0; n <= BLOCK; n += 512) {
        float x[BLOCK] = {0};
        int8_t q[BLOCK];
        memset(q, 5, sizeof q);
        assert_true(mu_quantize(usable(), x, n, &nearest, q) == 0);
        for (size_t b = 0; n > 0 && b < MU_COUNT(bad); b++) {
            x[n - 1] = bad[b];
            assert_true(isnan(mu_quantize(usable(), x, n, &nearest, q)));
            assert_int_equal(q[n - 1], 0);
        }
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(q[i], 0);
        }
    }
}

static void ties_go_to_even(void **state)
{
    (void)state;
    const float x[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, -126.5f};
    const int8_t expected[] = {127, 0, 2, 2, 0, -2, 126, -126};
    int8_t q[8];
    assert_true(mu_quantize(usable(), x, 8, &nearest, q) == 1);
    assert_memory_equal(q, expected, sizeof q);
}

/* The mean of many roundings of a number is the number: a sum of independent errors of less than a
 * unit has a standard deviation below half a unit times the root of their count. */
static void random_rounding_is_right_on_average(void **state)
{
    (void)state;
    enum { ROUNDS = 400 };
    float x[BLOCK];
    double sums[BLOCK] = {0}, all = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        x[i] = 127 * sinf((float)i);
    }
    x[5] = 127;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        mu_dither dither = {true, 1, round, 0};
        int8_t q[BLOCK];
        assert_true(mu_quantize(usable(), x, BLOCK, &dither, q) == 1);
        for (size_t i = 0; i < BLOCK; i++) {
            sums[i] += q[i] - (double)x[i];
            all += q[i] - (double)x[i];
        }
    }
    for (size_t i = 0; i < BLOCK; i++) {
        assert_true(fabs(sums[i]) <= 6 * 0.5 * sqrt(ROUNDS));
    }
    assert_true(fabs(all) <= 5 * 0.5 * sqrt((double)ROUNDS * BLOCK));
}

/* ---- the momentum of a matrix ---- */

typedef struct matrix {
    muonium_optimizer *optimizer;
    float *w, *g;
    size_t rows, cols, elements;
    muonium_state state;
} matrix;

static void create(matrix *m, const muonium_options *options, size_t rows, size_t cols,
                   size_t heads)
{
    *m = (matrix){.rows = rows, .cols = cols, .elements = rows * cols};
    m->w = calloc(2 * m->elements, sizeof *m->w);
    assert_non_null(m->w);
    m->g = m->w + m->elements;
    muonium_tensor tensor = {
        .name = "w", .ndim = 2, .shape = {rows, cols}, .data = m->w, .grad = m->g, .heads = heads};
    assert_ok(muonium_create(options, &m->optimizer));
    assert_ok(muonium_add(m->optimizer, &tensor, NULL));
    assert_ok(muonium_state_of(m->optimizer, 0, &m->state));
}

static void destroy(matrix *m)
{
    muonium_destroy(m->optimizer);
    free(m->w);
}

static float stored(const muonium_state *s, size_t i)
{
    return s->momentum_scale[i / BLOCK] * (float)((const int8_t *)s->momentum)[i];
}

/* As the definition says it, one element at a time. */
static void expect_block(const float *m, size_t n, int8_t *q, float *scale)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(m[i]));
    }
    *scale = largest / 127;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)(largest > 0 ? rintf(m[i] * (1 / *scale)) : 0);
    }
}

static muonium_options int8_options(void)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.state_dtype = MUONIUM_INT8;
    options.plan.coefficients = "original";
    options.plan.steps = 1;
    options.lr = 0.001;
    return options;
}

/* Shapes: one matrix; blocks that end with heads; heads that cut blocks; many tasks with rows that
 * they cut. */
static void momentum_follows_the_definition(void **state)
{
    (void)state;
    const struct {
        size_t rows, cols, heads;
        bool in_out;
    } shapes[] = {{12, 30, 0, false},  {50, 83, 0, false}, {96, 128, 3, false},
                  {60, 100, 5, false}, {50, 83, 0, true},  {90, 1500, 0, false}};
    test_rng rng = test_rng_start("momentum");
    for (size_t k = 0; k < MU_COUNT(shapes); k++) {
        muonium_options options = int8_options();
        options.kernels_in_out = shapes[k].in_out;
        matrix m;
        create(&m, &options, shapes[k].rows, shapes[k].cols, shapes[k].heads);
        float *expected = calloc(m.elements, sizeof *expected);
        assert_non_null(expected);
        assert_int_equal(m.state.blocks, (m.elements + BLOCK - 1) / BLOCK);
        assert_int_equal(m.state.momentum_dtype, MUONIUM_INT8);
        const float mu = (float)options.momentum, gain = (float)(1 - options.momentum);
        for (size_t step = 0; step < 20; step++) {
            for (size_t i = 0; i < m.elements; i++) {
                m.g[i] = (float)test_normal(&rng);
            }
            assert_ok(muonium_step(m.optimizer));
            for (size_t i = 0; i < m.elements; i++) {
                float kept = mu * expected[i], added = gain * m.g[i];
                expected[i] = kept + added;
            }
            for (size_t b = 0; b < m.state.blocks; b++) {
                int8_t q[BLOCK];
                float scale;
                size_t first = b * BLOCK, left = m.elements - first;
                size_t n = left < BLOCK ? left : BLOCK;
                expect_block(expected + first, n, q, &scale);
                assert_true(scale == m.state.momentum_scale[b]);
                assert_memory_equal(q, (int8_t *)m.state.momentum + first, n);
                for (size_t i = 0; i < n; i++) {
                    expected[first + i] = scale * (float)q[i];
                }
            }
        }
        free(expected);
        destroy(&m);
    }
}

/* The weights of int8 momentum are those of an f32 optimizer that is given the same momentum. */
static void direction_follows_the_stored_momentum(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("direction");
    for (size_t heads = 0; heads <= 5; heads += 5) {
        muonium_options options = int8_options();
        options.nesterov = false; /* the direction is the momentum */
        matrix m, wide;
        create(&m, &options, 60, 1300, heads); /* tasks cut rows */
        options.state_dtype = MUONIUM_F32;
        options.momentum = 0; /* the direction is the gradient */
        create(&wide, &options, 60, 1300, heads);
        for (size_t step = 0; step < 5; step++) {
            for (size_t i = 0; i < m.elements; i++) {
                m.g[i] = (float)test_normal(&rng);
            }
            assert_ok(muonium_step(m.optimizer));
            for (size_t i = 0; i < m.elements; i++) {
                wide.g[i] = stored(&m.state, i);
            }
            assert_ok(muonium_step(wide.optimizer));
            assert_memory_equal(m.w, wide.w, m.elements * sizeof *m.w);
        }
        destroy(&m);
        destroy(&wide);
    }
}

/* ---- thousands of steps ---- */

enum { LONG = 5000 };

typedef struct drift {
    double largest; /* error, in units of the largest scale so far */
    double bias;    /* mean error of the second half in the direction of the constant part */
} drift;

/* Gradients with a constant part; those of every third element are small, without noise, and 0 in
 * the second half. Errors of a step, at most `units` scales, add up to at most
 * units / (1 - mu) scales, however many steps there are. */
static drift long_run(bool random, muonium_momentum_form form)
{
    muonium_options options = int8_options();
    options.momentum_form = form;
    options.lr = 0;
    options.state_stochastic = random;
    test_rng rng = test_rng_start("long");
    matrix m;
    create(&m, &options, 32, 96, 0);
    double *exact = calloc(m.elements, sizeof *exact), sum = 0;
    float *mean = calloc(m.elements, sizeof *mean), scale = 0;
    assert_true(exact && mean);
    for (size_t i = 0; i < m.elements; i++) {
        mean[i] = (float)test_normal(&rng) * (i % 3 == 0 ? 0.1f : 0.3f);
    }
    drift d = {0};
    size_t judged = 0;
    const double mu = (double)(float)options.momentum;
    const double gain = form == MUONIUM_MOMENTUM_SUM ? 1 : (double)(float)(1 - options.momentum);
    for (size_t step = 1; step <= LONG; step++) {
        for (size_t i = 0; i < m.elements; i++) {
            float noise = (float)test_uniform(&rng, -1, 1);
            m.g[i] = i % 3 > 0 ? mean[i] + noise : step <= LONG / 2 ? mean[i] : 0;
            exact[i] = mu * exact[i] + gain * (double)m.g[i];
        }
        assert_ok(muonium_step(m.optimizer));
        for (size_t b = 0; b < m.state.blocks; b++) {
            scale = fmaxf(scale, m.state.momentum_scale[b]);
        }
        for (size_t i = 0; step % 50 == 0 && i < m.elements; i++) {
            double error = ((double)stored(&m.state, i) - exact[i]) / (double)scale;
            d.largest = fmax(d.largest, fabs(error));
            if (step > LONG / 2) {
                sum += (double)mean[i] > 0 ? error : -error;
                judged++;
            }
        }
    }
    d.bias = sum / (double)judged;
    free(exact);
    free(mean);
    destroy(&m);
    return d;
}

static void error_does_not_drift(void **state)
{
    (void)state;
    const muonium_momentum_form forms[] = {MUONIUM_MOMENTUM_LERP, MUONIUM_MOMENTUM_SUM};
    for (size_t f = 0; f < MU_COUNT(forms); f++) {
        drift to_nearest = long_run(false, forms[f]), at_random = long_run(true, forms[f]);
        print_message("form %d: nearest: error %.2f, bias %+.4f units; random: %.2f, %+.4f\n",
                      (int)forms[f], to_nearest.largest, to_nearest.bias, at_random.largest,
                      at_random.bias);
        assert_true(to_nearest.largest <= 0.5 / (1 - 0.95) * 1.001);
        assert_true(to_nearest.bias > 0.3); /* small elements stick, within that bound */
        assert_true(at_random.largest <= 1 / (1 - 0.95) * 1.001);
        assert_true(fabs(at_random.bias) < 0.05);
    }
}

/* ---- AdamW ---- */

static void first_moment_of_adam(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    test_rng rng = test_rng_start("adam");
    float w[COUNT] = {0}, same[COUNT] = {0}, g[COUNT];
    muonium_options options;
    muonium_optimizer *small, *wide;
    muonium_state s, t;
    assert_ok(muonium_options_init(&options, NULL));
    assert_ok(muonium_create(&options, &wide));
    options.adam_state_dtype = MUONIUM_INT8;
    assert_ok(muonium_create(&options, &small));
    muonium_tensor tensor = {.name = "b", .ndim = 1, .shape = {COUNT}, .data = w, .grad = g};
    assert_ok(muonium_add(small, &tensor, NULL));
    tensor.data = same;
    assert_ok(muonium_add(wide, &tensor, NULL));
    for (int step = 0; step < 30; step++) {
        for (size_t i = 0; i < COUNT; i++) {
            g[i] = (float)test_normal(&rng);
        }
        if (step > 0) { /* the same start in f32: the step is that of f32 */
            static float m[COUNT];
            assert_ok(muonium_state_of(small, 0, &s));
            assert_ok(muonium_state_of(wide, 0, &t));
            for (size_t i = 0; i < COUNT; i++) {
                m[i] = s.exp_avg_scale[i / BLOCK] * (float)((int8_t *)s.exp_avg)[i];
            }
            memcpy(t.exp_avg, m, sizeof m);
        }
        assert_ok(muonium_step(small));
        assert_ok(muonium_step(wide));
        assert_memory_equal(w, same, sizeof w);
        assert_ok(muonium_state_of(small, 0, &s));
        assert_ok(muonium_state_of(wide, 0, &t));
        assert_int_equal(s.exp_avg_dtype, MUONIUM_INT8);
        assert_int_equal(s.blocks, 3);
        for (size_t b = 0; b < 3; b++) {
            int8_t q[BLOCK];
            float scale;
            size_t n = b < 2 ? BLOCK : COUNT - 2 * BLOCK;
            expect_block((float *)t.exp_avg + b * BLOCK, n, q, &scale);
            assert_true(scale == s.exp_avg_scale[b]);
            assert_memory_equal(q, (int8_t *)s.exp_avg + b * BLOCK, n);
        }
    }
    muonium_destroy(small);
    muonium_destroy(wide);
}

/* ---- Dion2 ---- */

/* Integers of selected slices decay, all others stay; scales are those before. */
static void selected_integers_decay(void **state)
{
    (void)state;
    const struct {
        size_t rows, cols, heads;
    } shapes[] = {{40, 110, 0}, {110, 40, 0}, {60, 50, 5}};
    for (size_t k = 0; k < MU_COUNT(shapes); k++) {
        muonium_options options;
        assert_ok(muonium_options_init(&options, "dion2"));
        options.state_dtype = MUONIUM_INT8;
        test_rng rng = test_rng_start("dion2");
        matrix m;
        create(&m, &options, shapes[k].rows, shapes[k].cols, shapes[k].heads);
        float *expected = calloc(m.elements, sizeof *expected);
        assert_non_null(expected);
        for (int step = 0; step < 6; step++) {
            for (size_t i = 0; i < m.elements; i++) {
                m.g[i] = (float)test_normal(&rng);
                expected[i] = stored(&m.state, i) + m.g[i];
            }
            assert_ok(muonium_step(m.optimizer));
            size_t decayed = 0, kept = 0;
            for (size_t first = 0; first < m.elements; first += BLOCK) {
                int8_t q[BLOCK];
                float scale;
                size_t left = m.elements - first, n = left < BLOCK ? left : BLOCK;
                expect_block(expected + first, n, q, &scale);
                assert_true(scale == m.state.momentum_scale[first / BLOCK]);
                for (size_t i = 0; i < n; i++) {
                    int found = ((int8_t *)m.state.momentum)[first + i];
                    int less = (int)rintf((float)options.ef_decay * (float)q[i]);
                    assert_true(found == q[i] || found == less);
                    decayed += found != q[i];
                    kept += found != less;
                }
            }
            /* A quarter of the elements, of which those below ten units stay as they are. */
            double share = (double)decayed / (double)(decayed + kept);
            assert_true(share > 0.15 && share < 0.35);
        }
        free(expected);
        destroy(&m);
    }
}

/* ---- errors ---- */

static void overflow_is_found_before_the_step(void **state)
{
    (void)state;
    muonium_options options = int8_options();
    options.momentum_form = MUONIUM_MOMENTUM_SUM;
    matrix m;
    create(&m, &options, 40, 60, 0);
    for (size_t i = 0; i < m.elements; i++) {
        m.g[i] = 1;
    }
    m.g[2100] = 3e38f;
    assert_status_message(muonium_step(m.optimizer), MUONIUM_NON_FINITE,
                          "direction of w would become inf at (35, 0): nothing was changed");
    assert_true(m.state.momentum_scale[0] == 0 && m.state.momentum_scale[1] == 0);
    m.g[2100] = NAN;
    assert_status_message(muonium_step(m.optimizer), MUONIUM_NON_FINITE,
                          "grad of w is nan at (35, 0)");
    m.g[2100] = 1e38f;
    assert_ok(muonium_step(m.optimizer));
    assert_true(m.state.momentum_scale[1] > 1e35f);
    destroy(&m);
    options.plan.nonfinite = MUONIUM_NONFINITE_PROPAGATE;
    create(&m, &options, 40, 60, 0);
    m.g[7] = NAN;
    assert_ok(muonium_step(m.optimizer));
    assert_true(isnan(m.state.momentum_scale[0]));
    destroy(&m);
}

static void states_that_are_refused(void **state)
{
    (void)state;
    muonium_options options = int8_options();
    matrix m;
    create(&m, &options, 40, 60, 0);
    int8_t q[2400] = {1, -127};
    float scales[2] = {1, 2};
    muonium_state given = m.state;
    given.momentum = q;
    given.momentum_scale = NULL;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "w has momentum without momentum_scale: int8 state needs both");
    given.momentum = NULL;
    given.momentum_scale = scales;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "w has momentum_scale without momentum: int8 state needs both");
    given.momentum = q;
    given.blocks = 1;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "w has 1 blocks: it needs 2, one for each 2048 elements");
    given.blocks = 2;
    q[2399] = -128;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "momentum of \"w\" is -128 at element 2399");
    q[2399] = 3;
    scales[1] = -2;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "momentum_scale of \"w\" is -2 at element 1: a scale is not negative");
    scales[1] = INFINITY;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_NON_FINITE,
                          "momentum_scale of \"w\" is inf at element 1");
    scales[1] = 2;
    given.momentum_dtype = MUONIUM_F32;
    assert_status_message(muonium_set_state(m.optimizer, 0, &given), MUONIUM_INVALID,
                          "momentum_dtype of the state given for w is 0: its group keeps 7");
    given.momentum_dtype = MUONIUM_INT8;
    assert_true(stored(&m.state, 2399) == 0);
    assert_ok(muonium_set_state(m.optimizer, 0, &given));
    assert_true(stored(&m.state, 2399) == 6 && stored(&m.state, 1) == -127);
    given.momentum = given.momentum_scale = NULL;
    assert_ok(muonium_set_state(m.optimizer, 0, &given));
    assert_true(stored(&m.state, 2399) == 0);
    destroy(&m);

    options.state_dtype = MUONIUM_BF16;
    options.state_stochastic = true;
    muonium_optimizer *optimizer;
    assert_status_message(muonium_create(&options, &optimizer), MUONIUM_INVALID,
                          "state_stochastic rounds int8 state, and there is none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_within_half_a_unit),
        cmocka_unit_test(blocks_without_a_scale),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(random_rounding_is_right_on_average),
        cmocka_unit_test(momentum_follows_the_definition),
        cmocka_unit_test(direction_follows_the_stored_momentum),
        cmocka_unit_test(error_does_not_drift),
        cmocka_unit_test(first_moment_of_adam),
        cmocka_unit_test(selected_integers_decay),
        cmocka_unit_test(overflow_is_found_before_the_step),
        cmocka_unit_test(states_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
