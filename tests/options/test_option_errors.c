/*
 * test_option_errors.c: every field of the options is checked, and every message names
 * the field and its value.
 */
#include "test.h"

#include <math.h>

#include "optimizer/optimizer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static muonium_options recipe(const char *name)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, name));
    return options;
}

/* Fails unless the options are refused with both parts in the message, and nothing is
 * written. */
static void assert_refused(const muonium_options *o, const char *field, const char *value)
{
    muonium_options read = recipe("torch"), before = read;
    char part[64];
    snprintf(part, sizeof part, "%s is %s", field, value);
    assert_status_message(mu_check_options(o), MUONIUM_INVALID, part);
    assert_status_message(mu_read_options(o, &read), MUONIUM_INVALID, part);
    assert_memory_equal(&read, &before, sizeof read);
}

#define FIELD(field) #field, offsetof(muonium_options, field)
#define PLAN_FIELD(field) #field, offsetof(muonium_options, plan.field)

static void test_numbers(void **state)
{
    (void)state;
    enum { ALL = 5 };
    static const struct {
        const char *field;
        size_t offset;
        double bad[ALL]; /* 0 ends a list; what becomes of 0 itself comes after */
        double good[ALL];
    } fields[] = {
        {FIELD(lr), {-1e-9, INFINITY, -INFINITY}, {1e-9, 3}},
        {FIELD(weight_decay), {-1, NAN, INFINITY}, {0.1, 2}},
        {FIELD(momentum), {1, -0.5, 1.5, NAN, -INFINITY}, {0.5, 0.999999}},
        {FIELD(scale_factor), {-1, NAN, INFINITY}, {2}},
        {FIELD(normuon_beta2), {1, -0.5, 2, NAN}, {0.9}},
        {FIELD(normuon_eps), {-1, NAN, INFINITY}, {1e-3}},
        {PLAN_FIELD(lower), {-1, 1.5, NAN}, {1, 1e-6}},
        {PLAN_FIELD(safety), {-1, NAN, INFINITY}, {0.1}},
        {PLAN_FIELD(cushion), {-1, 1, NAN}, {0.5}},
        {PLAN_FIELD(eps), {-1e-9, NAN, INFINITY}, {1e-3}},
        {PLAN_FIELD(safety_factor), {-1, NAN, INFINITY}, {1.01, 0.5}},
        {FIELD(adam_lr), {NAN, INFINITY, -INFINITY}, {-2, 1e-3}},
        {FIELD(adam_lr_scale), {-1, NAN, INFINITY}, {0.5}},
        {FIELD(adam_beta1), {1, -0.5, NAN}, {0.5}},
        {FIELD(adam_beta2), {1, -0.5, NAN}, {0.999}},
        {FIELD(adam_eps), {NAN, INFINITY}, {-2, 1e-3}},
        {FIELD(adam_eps_root), {-1e-9, NAN, INFINITY}, {0, 1e-3}},
        {FIELD(adam_weight_decay), {NAN, INFINITY}, {-2, 1e-3}},
        {FIELD(max_aspect), {0.5, -1, NAN, -INFINITY}, {1, 1e6, INFINITY}},
    };
    for (size_t i = 0; i < COUNT(fields); i++) {
        for (size_t k = 0; k < ALL && fields[i].bad[k] != 0; k++) {
            muonium_options o = recipe(NULL);
            memcpy((char *)&o + fields[i].offset, &fields[i].bad[k], sizeof(double));
            char value[32];
            snprintf(value, sizeof value, "%g", fields[i].bad[k]);
            assert_refused(&o, fields[i].field, value);
        }
        for (size_t k = 0; k < ALL && fields[i].good[k] != 0; k++) {
            muonium_options o = recipe(NULL), read;
            memcpy((char *)&o + fields[i].offset, &fields[i].good[k], sizeof(double));
            assert_ok(mu_read_options(&o, &read));
            assert_memory_equal(&read, &o, sizeof read);
        }
    }
    muonium_options o = recipe(NULL);
    o.lr = o.weight_decay = o.momentum = o.scale_factor = o.plan.eps = o.adam_beta1 = o.adam_beta2 =
        0;
    o.normuon_beta2 = o.normuon_eps = o.adam_lr = o.adam_lr_scale = o.adam_eps = 0;
    assert_ok(mu_check_options(&o));
    o.plan.safety_factor = 0;
    assert_refused(&o, "safety_factor", "0");
    o = recipe(NULL);
    o.max_aspect = 0;
    assert_refused(&o, "max_aspect", "0");
    o = recipe(NULL);
    o.min_dim = 0;
    assert_refused(&o, "min_dim", "0");
}

static void test_enums(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        size_t offset;
        int last;
    } fields[] = {
        {FIELD(momentum_form), 2},
        {FIELD(nesterov_form), 2},
        {FIELD(scale), MUONIUM_SCALE_RSQRT_IN},
        {FIELD(decay), MUONIUM_DECAY_CAUTIOUS_SCALED},
        {PLAN_FIELD(normalization), 4},
        {PLAN_FIELD(eps_mode), 3},
        {PLAN_FIELD(precision), MUONIUM_AUTO},
        {PLAN_FIELD(form), 4},
        {PLAN_FIELD(nonfinite), 2},
        {FIELD(adam), 2},
        {FIELD(route), 2},
        {FIELD(nadamw_form), 2},
        {PLAN_FIELD(rounding), 4},
    };
    for (size_t i = 0; i < COUNT(fields); i++) {
        for (int value = -1; value <= fields[i].last + 1; value++) {
            char text[16];
            snprintf(text, sizeof text, "%d", value);
            muonium_options o = recipe(NULL);
            memcpy((char *)&o + fields[i].offset, &value, sizeof value);
            if (value >= 0 && value <= fields[i].last) {
                assert_ok(mu_check_options(&o));
            } else {
                assert_refused(&o, fields[i].field, text);
            }
        }
    }
    for (int value = -1; value <= MUONIUM_INT8 + 1; value++) {
        char text[16];
        snprintf(text, sizeof text, "%d", value);
        muonium_options o = recipe(NULL);
        memcpy(&o.layout_3d, &value, sizeof value);
        if (value == MUONIUM_LAYOUT_AUTO || value == MUONIUM_LAYOUT_FLATTEN ||
            value == MUONIUM_LAYOUT_EXPERTS) {
            assert_ok(mu_check_options(&o));
        } else {
            assert_refused(&o, "layout_3d", text);
        }
        o = recipe(NULL);
        memcpy(&o.state_dtype, &value, sizeof value);
        if (value == MUONIUM_F32 || value == MUONIUM_BF16 || value == MUONIUM_INT8) {
            assert_ok(mu_check_options(&o));
        } else {
            assert_refused(&o, "state_dtype", text);
        }
    }
}

static void test_coefficient_errors(void **state)
{
    (void)state;
    static const double bad_row[1][3] = {{1, NAN, 0}};
    muonium_options o = recipe(NULL);
    o.plan.steps = 0;
    assert_refused(&o, "steps", "0");
    o.plan.steps = MUONIUM_MAX_STEPS + 1;
    assert_refused(&o, "steps", "65");
    o.plan.steps = MUONIUM_MAX_STEPS;
    assert_ok(mu_check_options(&o));

    o = recipe("motif");
    o.plan.generated_rows = -1;
    assert_refused(&o, "generated_rows", "-1");
    o.plan.generated_rows = MUONIUM_MAX_STEPS + 1;
    assert_refused(&o, "generated_rows", "65");
    o.plan.generated_rows = MUONIUM_MAX_STEPS;
    assert_ok(mu_check_options(&o));
    o.plan.generated_rows = 1; /* fewer than steps: the last repeats */
    assert_ok(mu_check_options(&o));
    o.plan.steps = 0;
    assert_refused(&o, "steps", "0");
    o = recipe("motif");
    o.plan.lower = 2;
    assert_refused(&o, "lower", "2");

    o = recipe(NULL);
    o.plan.coefficients = "orignal";
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "orignal");
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "quintic");
    o.plan.coefficients = "aol";
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "normalization");
    o.plan.normalization = MUONIUM_NORM_AOL;
    assert_ok(mu_check_options(&o));
    o.plan.table = bad_row;
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "table has 0 rows");
    o.plan.table_rows = 1;
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "table row 0, column 1 (b)");
}

static void test_pattern_errors(void **state)
{
    (void)state;
    char longest[90];
    memset(longest, 'a', sizeof longest);
    longest[82] = '\0';
    const char *patterns[] = {"*.weight", "head", NULL, "a/b", longest};
    muonium_options o = recipe(NULL);
    o.pattern_count = 2;
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID,
                          "pattern_count is 2, but patterns is NULL");
    o.patterns = patterns + 1;
    o.pattern_count = 0;
    assert_ok(mu_check_options(&o));
    o.pattern_count = 1;
    assert_ok(mu_check_options(&o));
    o.pattern_count = 2;
    assert_refused(&o, "patterns[1]", "NULL");
    o.patterns = patterns;
    o.pattern_count = 1;
    assert_refused(&o, "patterns[0]", "\"*.weight\"");
    o.patterns = patterns + 3;
    assert_refused(&o, "patterns[0]", "\"a/b\"");
    o.patterns = patterns + 4;
    assert_ok(mu_check_options(&o));
    longest[82] = 'a';
    longest[83] = '\0';
    assert_refused(&o, "patterns[0]", "\"aaa");
    assert_status_message(mu_check_options(&o), MUONIUM_INVALID, "at most 82 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_enums),
        cmocka_unit_test(test_coefficient_errors),
        cmocka_unit_test(test_pattern_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
