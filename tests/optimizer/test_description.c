/*
 * test_description.c: an optimizer without state says what one with state says, and
 * refuses what needs it.
 */
#include "test.h"

static void add_all(muonium_optimizer *optimizer, uint16_t *memory)
{
    const muonium_tensor tensors[] = {
        {.name = "w", .ndim = 2, .shape = {48, 64}, .dtype = MUONIUM_BF16},
        {.name = "experts",
         .ndim = 3,
         .shape = {4, 16, 8},
         .layout = MUONIUM_LAYOUT_EXPERTS,
         .dtype = MUONIUM_BF16},
        {.name = "bias", .ndim = 1, .shape = {48}, .dtype = MUONIUM_BF16},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        muonium_tensor tensor = tensors[i];
        tensor.data = memory + i * 48 * 64;
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
}

static void says_what_one_with_state_says(void **state)
{
    (void)state;
    static uint16_t memory[3 * 48 * 64];
    muonium_options options;
    muonium_optimizer *real, *description;
    assert_ok(muonium_options_init(&options, NULL));
    options.normuon = options.master = true;
    assert_ok(muonium_create(&options, &real));
    assert_ok(muonium_create_description(&options, &description));
    add_all(real, memory);
    add_all(description, memory);
    for (size_t i = 0; i < muonium_parameter_count(real); i++) {
        muonium_parameter_report a, b;
        assert_ok(muonium_report(real, i, &a));
        assert_ok(muonium_report(description, i, &b));
        assert_string_equal(a.reason, b.reason);
        assert_int_equal(a.muon, b.muon);
        assert_int_equal(a.matrices, b.matrices);
        assert_int_equal(a.state_bytes, b.state_bytes);
        assert_true(a.flops == b.flops);
    }
    muonium_destroy(real);
    muonium_destroy(description);
}

static bool write_nothing(void *context, const void *data, size_t bytes)
{
    (void)context, (void)data, (void)bytes;
    return true;
}

static void refuses_what_needs_state(void **state)
{
    (void)state;
    static uint16_t memory[3 * 48 * 64];
    void *grads[3] = {NULL, NULL, NULL};
    muonium_optimizer *description;
    muonium_state of_w;
    assert_ok(muonium_create_description(NULL, &description));
    add_all(description, memory);
    assert_status_message(muonium_step(description), MUONIUM_INVALID, "cannot step");
    assert_status_message(muonium_step_at(description, NULL, grads, 3), MUONIUM_INVALID,
                          "cannot step");
    assert_status_message(muonium_save_to(description, write_nothing, NULL), MUONIUM_INVALID,
                          "cannot save");
    assert_status_message(muonium_load_positional(description, NULL, 0, NULL), MUONIUM_INVALID,
                          "cannot load");
    assert_ok(muonium_state_of(description, 0, &of_w));
    assert_null(of_w.momentum);
    muonium_destroy(description);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_one_with_state_says),
        cmocka_unit_test(refuses_what_needs_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
