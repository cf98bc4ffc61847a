/*
 * test_nonfinite_places.c: a NaN or infinity anywhere in a matrix is found, whatever finite
 * elements come before and after it.
 */
#include "test.h"

#include <math.h>

enum { ROWS = 40, COLS = 1100 };

static void one_bad_element_is_found_anywhere(void **state)
{
    (void)state;
    static float in[ROWS * COLS], out[ROWS * COLS];
    test_rng rng = test_rng_start("places");
    test_fill_normal_f32(&rng, in, ROWS * COLS);
    muonium_shape shape = {1, ROWS, COLS};
    muonium_view from = muonium_dense(MUONIUM_F32, shape, in);
    muonium_view to = muonium_dense(MUONIUM_F32, shape, out);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 60; k++) {
        size_t at = k < 2 ? k * (ROWS * COLS - 1) : test_below(&rng, ROWS * COLS);
        float kept = in[at];
        char place[64];
        in[at] = bad[k % 3];
        snprintf(place, sizeof place, "element (0, %zu, %zu)", at / COLS, at % COLS);
        assert_status_message(muonium_orthogonalize(shape, NULL, &from, &to, NULL),
                              MUONIUM_NON_FINITE, place);
        in[at] = kept;
    }
}

/* The optimizer surveys directions itself. */
static void the_optimizer_propagates_from_anywhere(void **state)
{
    (void)state;
    static float data[ROWS * COLS], grad[ROWS * COLS];
    test_rng rng = test_rng_start("steps");
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.plan.nonfinite = MUONIUM_NONFINITE_PROPAGATE;
    for (size_t k = 0; k < 20; k++) {
        size_t count;
        muonium_certificate certificate;
        muonium_optimizer *optimizer;
        muonium_tensor tensor = {.ndim = 2, .shape = {ROWS, COLS}, .data = data, .grad = grad};
        test_fill_normal_f32(&rng, grad, ROWS * COLS);
        grad[test_below(&rng, ROWS * COLS)] = NAN;
        assert_ok(muonium_create(&options, &optimizer));
        assert_ok(muonium_add(optimizer, &tensor, NULL));
        assert_ok(muonium_step(optimizer));
        assert_ok(muonium_certificates(optimizer, 0, &certificate, 1, &count));
        assert_int_equal(count, 1);
        assert_int_equal(certificate.outcome, MUONIUM_PROPAGATED);
        muonium_destroy(optimizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bad_element_is_found_anywhere),
        cmocka_unit_test(the_optimizer_propagates_from_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
