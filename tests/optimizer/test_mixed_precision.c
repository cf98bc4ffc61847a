/*
 * test_mixed_precision.c: f32 parameters with half gradients, half copies and a gradient scale, as
 * tools that offload state to the host use them. Every combination must give the bits of the same
 * step in f32 throughout: conversions and the product with the scale are rounded once.
 */
#include "test.h"

#include <math.h>

#include "base/half.h"
#include "optimizer_model.h"
#include "vector/rows.h"

enum { ROWS = 37, COLS = 1061, COUNT = ROWS * COLS, STEPS = 3 };

/* A parameter of ROWS by COLS that gets Muon, or of COUNT elements that gets AdamW. */
static muonium_tensor tensor_of(bool muon, float *w)
{
    muonium_tensor t = {.name = "w", .dtype = MUONIUM_F32, .ndim = 1, .shape = {COUNT}, .data = w};
    if (muon) {
        t.ndim = 2;
        t.shape[0] = ROWS;
        t.shape[1] = COLS;
    }
    return t;
}

static muonium_optimizer *optimizer_of(const muonium_tensor *tensor)
{
    muonium_options options = model_options();
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(&options, &optimizer));
    assert_ok(muonium_add(optimizer, tensor, NULL));
    return optimizer;
}

static float mixed[COUNT], plain[COUNT], scaled[COUNT];
static uint16_t g[COUNT], copy[COUNT + 1];

/* Step both ways and compare bits: weights, and the copy with the rounded weights. */
static void check(bool muon, bool in_columns, muonium_dtype half, muonium_dtype copy_half,
                  double scale)
{
    test_rng rng = test_rng_start("mixed precision");
    test_fill_normal_f32(&rng, plain, COUNT);
    memcpy(mixed, plain, sizeof plain);
    muonium_tensor t = tensor_of(muon, mixed);
    t.half_grad = half;
    t.grad = g;
    t.copy = copy;
    t.copy_dtype = copy_half;
    muonium_tensor f32 = tensor_of(muon, plain);
    f32.grad = scaled;
    ptrdiff_t columns[2] = {1, ROWS}; /* of the parameter; copies are row-major */
    t.strides = f32.strides = muon && in_columns ? columns : NULL;
    muonium_optimizer *one = optimizer_of(&t), *other = optimizer_of(&f32);
    assert_ok(muonium_set_grad_scale(one, scale));
    copy[COUNT] = 0x1234;
    for (int step = 0; step < STEPS; step++) {
        double squares = 0, norm;
        for (size_t i = 0; i < COUNT; i++) {
            g[i] = mu_half_from_f32(half, (float)test_normal(&rng));
            scaled[i] = mu_f32_from_half(half, g[i]) * (float)scale;
            squares += (double)mu_f32_from_half(half, g[i]) * (double)mu_f32_from_half(half, g[i]);
        }
        assert_ok(muonium_grad_norm(one, false, &norm));
        /* Sums of COUNT squares in two orders, in double. */
        assert_true(fabs(norm / scale - sqrt(squares)) <= COUNT * 0x1p-53 * sqrt(squares));
        assert_ok(muonium_step(one));
        assert_ok(muonium_step(other));
        assert_memory_equal(mixed, plain, sizeof plain);
        for (size_t i = 0; i < COUNT; i++) {
            size_t at = t.strides ? i / COLS + i % COLS * ROWS : i;
            assert_int_equal(copy[i], mu_half_from_f32(copy_half, mixed[at]));
        }
    }
    assert_int_equal(copy[COUNT], 0x1234);
    muonium_destroy(one);
    muonium_destroy(other);
}

static void steps_are_those_of_f32(void **state)
{
    (void)state;
    static const muonium_dtype halves[] = {MUONIUM_BF16, MUONIUM_F16};
    static const double scales[] = {1, 1.0 / 3, 0x1p-16, 5};
    for (size_t i = 0; i < 2 * 2 * 4 * 2; i++) {
        check(i % 2, i / 16 % 2, halves[i / 2 % 2], halves[(i / 2 + i / 8) % 2], scales[i / 4 % 4]);
    }
}

/* A gradient that overflows only when it is scaled is found before the step, and one that is
 * finite only when it is scaled is taken. */
static void overflow_is_of_the_scaled_gradient(void **state)
{
    (void)state;
    memset(g, 0, sizeof g);
    memset(mixed, 0, sizeof mixed);
    muonium_tensor t = tensor_of(true, mixed);
    t.half_grad = MUONIUM_BF16;
    t.grad = g;
    muonium_optimizer *optimizer = optimizer_of(&t);
    g[COLS] = mu_bf16_from_f32(0x1p100f);
    assert_ok(muonium_set_grad_scale(optimizer, 0x1p40));
    assert_status_message(muonium_step(optimizer), MUONIUM_NON_FINITE,
                          "grad of w is inf at (1, 0)");
    assert_ok(muonium_set_grad_scale(optimizer, 0x1p-90));
    assert_ok(muonium_step(optimizer));
    assert_true(mixed[COLS] != 0 && isfinite(mixed[COLS]));
    muonium_destroy(optimizer);
}

/* No weight leaves the range of its copy. */
static void weights_stay_in_the_range_of_the_copy(void **state)
{
    (void)state;
    float w[2] = {65000, 1}, gradient[2] = {-1, 1};
    uint16_t narrow[2] = {0, 0};
    muonium_tensor t = {.name = "w",
                        .ndim = 1,
                        .shape = {2},
                        .data = w,
                        .grad = gradient,
                        .copy = narrow,
                        .copy_dtype = MUONIUM_F16};
    muonium_options options = model_options();
    options.lr = options.adam_lr = 1e5;
    options.weight_decay = options.adam_weight_decay = 0;
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(&options, &optimizer));
    assert_ok(muonium_add(optimizer, &t, NULL));
    assert_ok(muonium_step(optimizer));
    assert_true(w[0] == 65504 && mu_f32_from_f16(narrow[0]) == 65504);
    muonium_destroy(optimizer);
}

/* What muonium_qk_clip scales, it scales in the copy too. */
static void qk_clip_writes_the_copy(void **state)
{
    (void)state;
    float w[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}}, largest[1] = {8};
    uint16_t half[4][3] = {{0}};
    muonium_tensor t = {.name = "qk",
                        .ndim = 2,
                        .shape = {4, 3},
                        .data = w,
                        .copy = half,
                        .copy_dtype = MUONIUM_BF16};
    muonium_optimizer *optimizer = optimizer_of(&t);
    muonium_qk heads = {
        .key_row = 2, .heads = 1, .head_dim = 2, .max_logits = largest, .threshold = 2};
    assert_ok(muonium_qk_clip(optimizer, &heads, NULL));
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(half[i / 3][i % 3], mu_bf16_from_f32(w[i / 3][i % 3]));
    }
    assert_true(w[0][0] == 0.5f);
    muonium_destroy(optimizer);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    muonium_tensor good = tensor_of(true, mixed), t = good;
    muonium_optimizer *optimizer = optimizer_of(&good), *description;
    t.name = "other";
    t.data = plain;
    muonium_tensor bad = t;
    bad.half_grad = MUONIUM_F64;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "half_grad of other is 1");
    bad = t;
    bad.half_grad = MUONIUM_F16;
    bad.f32_grad = true;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "both f32_grad and half_grad");
    bad = t;
    bad.copy = copy;
    bad.copy_dtype = MUONIUM_FIXED15;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "copy_dtype of other is 5");
    bad.copy_dtype = MUONIUM_BF16;
    bad.copy = (char *)copy + 1;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "copy of other is at");
    bad.copy = plain;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "copy of other overlaps its data");
    bad.copy = mixed;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "overlaps data of w");
    bad.copy = bad.grad = scaled;
    assert_status_message(muonium_add(optimizer, &bad, NULL), MUONIUM_INVALID,
                          "copy of other overlaps its grad");
    bad.grad = NULL;
    assert_ok(muonium_add(optimizer, &bad, NULL));
    void *grads[2] = {scaled, NULL}; /* the copy of the other parameter */
    assert_status_message(muonium_step_at(optimizer, NULL, grads, 2), MUONIUM_INVALID,
                          "grad of w overlaps data of other");
    static const double scales[] = {0, -1, 0x1p127, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        assert_status_message(muonium_set_grad_scale(optimizer, scales[i]), MUONIUM_INVALID,
                              "use a number from 2^-126 to 2^126");
    }
    assert_int_equal(muonium_set_grad_scale(NULL, 1), MUONIUM_INVALID);
    muonium_destroy(optimizer);
    assert_ok(muonium_create_description(NULL, &description));
    assert_status_message(muonium_add(description, &bad, NULL), MUONIUM_INVALID,
                          "libmuonium_mpi writes no copies");
    assert_int_equal(muonium_set_grad_scale(description, 1), MUONIUM_INVALID);
    muonium_destroy(description);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_f32),
        cmocka_unit_test(overflow_is_of_the_scaled_gradient),
        cmocka_unit_test(weights_stay_in_the_range_of_the_copy),
        cmocka_unit_test(qk_clip_writes_the_copy),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
