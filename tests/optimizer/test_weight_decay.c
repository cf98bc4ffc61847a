/*
 * test_weight_decay.c: a decay too small to change a weight by itself still counts. 1 - lr wd
 * rounds to 1 in f32 where lr wd is below 3e-8, but the same decay subtracted together with
 * the update moves the sum, and so the average weight.
 */
#include "test.h"

#include <math.h>

#include "optimizer/optimizer.h"

enum { ROWS = 32, COLS = 64, ELEMENTS = ROWS * COLS, STEPS = 600 };

/* The mean of the weights after training on random gradients. */
static void train(muonium_route route, double weight_decay, float *w)
{
    test_rng rng = test_rng_start("weight decay");
    static float g[ELEMENTS];
    muonium_options options;
    muonium_optimizer *optimizer;
    assert_ok(muonium_options_init(&options, NULL));
    options.lr = 1e-5;
    options.weight_decay = weight_decay;
    options.route = route;
    muonium_tensor tensor = {.name = "w", .ndim = 2, .shape = {ROWS, COLS}, .data = w, .grad = g};
    for (size_t i = 0; i < ELEMENTS; i++) {
        w[i] = (float)test_uniform(&rng, 1, 2);
    }
    assert_ok(muonium_create(&options, &optimizer));
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    for (int step = 0; step < STEPS; step++) {
        test_fill_normal_f32(&rng, g, ELEMENTS);
        assert_ok(muonium_step(optimizer));
    }
    muonium_destroy(optimizer);
}

/* The two runs differ in the decay alone: the sum of their differences is STEPS lr wd times
 * that of the weights. Each step rounds each weight by up to half a unit of 1.2e-7, at random,
 * which averages to less than 2 % of that sum. */
static void small_decay_has_its_effect(void **state)
{
    static float with[ELEMENTS], without[ELEMENTS];
    const muonium_route routes[] = {MUONIUM_ROUTE_MUON, MUONIUM_ROUTE_ADAM};
    (void)state;
    for (size_t r = 0; r < 2; r++) {
        train(routes[r], 2e-3, with); /* lr wd = 2e-8 */
        train(routes[r], 0, without);
        double lost = 0, weights = 0;
        for (size_t i = 0; i < ELEMENTS; i++) {
            lost += (double)without[i] - (double)with[i];
            weights += (double)without[i];
        }
        double expected = STEPS * 2e-8 * weights;
        if (!(fabs(lost / expected - 1) < 0.1)) {
            fail_msg("route %d: weights lost %g in all, expected %g", (int)routes[r], lost,
                     expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_decay_has_its_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
