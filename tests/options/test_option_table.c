/*
 * test_option_table.c: options by name: every one is listed, described, read and set; what is
 * no value is refused by a message that says what is; enums and their names.
 */
#include "test.h"

#include <math.h>

#include "options/options.h"

enum { ROOM = 64 };

static muonium_options recipe(const char *name)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, name));
    return options;
}

static const char *get(const muonium_options *options, const char *name)
{
    static char text[ROOM];
    assert_ok(muonium_option_get(options, name, text, sizeof text));
    return text;
}

static bool has_text(const muonium_option *o)
{
    return o->type != MUONIUM_OPTION_TABLE && o->type != MUONIUM_OPTION_LIST &&
           o->type != MUONIUM_OPTION_CALLBACK;
}

/* Every byte of the structs but the sizes, padding and second fields belongs to one option. */
static void every_field_is_listed(void **state)
{
    (void)state;
    size_t covered[2] = {0};
    const muonium_option *o;
    for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
        assert_ptr_equal(muonium_option_find(o->name), o);
        assert_true(o->help[0] != 0 && o->help[strlen(o->help) - 1] != '.');
        size_t end = o->offset + (has_text(o) ? o->size : 2 * o->size);
        assert_true(end <= (o->plan ? sizeof(muonium_plan_options) : sizeof(muonium_options)));
        covered[o->plan] += (end - o->offset);
        for (int k = 0; k < i; k++) {
            const muonium_option *p = muonium_option_at(k);
            assert_string_not_equal(p->name, o->name);
            assert_true(p->plan != o->plan || p->offset + p->size <= o->offset || p->offset >= end);
        }
    }
    assert_null(muonium_option_at(-1));
    assert_null(muonium_option_find("no_such_option"));
    assert_null(muonium_option_find(NULL));
    /* Padding is at most seven bytes after each of the small fields. */
    size_t own = sizeof(muonium_options) - sizeof(muonium_plan_options) - sizeof(size_t);
    assert_true(covered[0] > own * 3 / 4 && covered[0] <= own);
    assert_true(covered[1] > sizeof(muonium_plan_options) * 3 / 4);
}

static void defaults_are_those_of_the_default_recipe(void **state)
{
    (void)state;
    muonium_options ours = recipe(NULL);
    muonium_plan_options plan;
    muonium_plan_options_init(&plan);
    assert_memory_equal(&ours.plan, &plan, sizeof plan);
    const muonium_option *o;
    for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
        char initial[ROOM];
        strcpy(initial, get(NULL, o->name));
        assert_string_equal(get(&ours, o->name), initial);
    }
    assert_string_equal(get(NULL, "lr"), "0.02");
    assert_string_equal(get(NULL, "steps"), "5");
    assert_string_equal(get(NULL, "form"), "auto");
    assert_string_equal(get(NULL, "nesterov"), "yes");
    assert_string_equal(get(NULL, "coefficients"), "");
    assert_string_equal(get(NULL, "adam_lr"), "-1");
}

/* The text of every option of every recipe, set over the defaults, gives the recipe. */
static void what_is_read_can_be_set(void **state)
{
    (void)state;
    const char *name;
    for (int r = 0; (name = muonium_recipe_name(r)) != NULL; r++) {
        muonium_options from = recipe(name), to = recipe(NULL);
        from.lr = 0.125; /* optax has none, which is not a value */
        from.max_aspect = INFINITY;
        from.seed = UINT64_MAX;
        const muonium_option *o;
        for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
            if (has_text(o)) {
                assert_ok(muonium_option_set(&to, o->name, get(&from, o->name)));
                assert_string_equal(get(&to, o->name), get(&from, o->name));
            }
        }
        to.plan.table = from.plan.table;
        to.plan.table_rows = from.plan.table_rows;
        if (from.plan.coefficients) { /* the same name may lie in two places */
            assert_string_equal(to.plan.coefficients, from.plan.coefficients);
            to.plan.coefficients = from.plan.coefficients;
        }
        assert_memory_equal(&to, &from, sizeof to);
    }
}

/* Bounds are valid and what is beyond them is not, by set as by muonium_create. */
static void bounds_are_where_they_are_said_to_be(void **state)
{
    (void)state;
    const muonium_option *o;
    for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
        if (o->type != MUONIUM_OPTION_NUMBER) {
            continue;
        }
        const double valid[] = {o->least, o->most};
        const double invalid[] = {nextafter(o->least, -INFINITY), nextafter(o->most, INFINITY),
                                  NAN};
        for (size_t k = 0; k < 2; k++) {
            muonium_options options = recipe(NULL);
            char text[MU_NUMBER_BYTES];
            mu_format_number(valid[k], text);
            assert_ok(muonium_option_set(&options, o->name, text));
        }
        for (size_t k = 0; k < 3; k++) {
            muonium_options options = recipe(NULL), before = options;
            char text[MU_NUMBER_BYTES];
            if (k == 1 && isinf(o->most)) {
                continue; /* nothing is beyond infinity */
            }
            mu_format_number(invalid[k], text);
            assert_status_message(muonium_option_set(&options, o->name, text), MUONIUM_INVALID,
                                  o->name);
            assert_memory_equal(&options, &before, sizeof options);
            memcpy((char *)(o->plan ? (void *)&options.plan : (void *)&options) + o->offset,
                   &invalid[k], sizeof(double));
            assert_status_message(mu_check_ranges(&options), MUONIUM_INVALID, o->name);
        }
    }
}

static void every_choice_can_be_set(void **state)
{
    (void)state;
    const muonium_option *o;
    for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
        const char *name;
        int count = 0;
        for (; (name = muonium_option_choice(o, count)) != NULL; count++) {
            muonium_options options = recipe("fp16");
            assert_ok(muonium_option_set(&options, o->name, name));
            assert_string_equal(get(&options, o->name), name);
        }
        bool named = o->type == MUONIUM_OPTION_CHOICE || o->type == MUONIUM_OPTION_NAME;
        assert_int_equal(count > 0, named);
        assert_int_equal(o->enum_type != NULL, o->type == MUONIUM_OPTION_CHOICE);
        assert_null(muonium_option_choice(o, -1));
    }
    assert_null(muonium_option_choice(NULL, 0));
}

static void what_is_no_value_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *message;
    } cases[] = {
        {"no_such", "1", "there is no option \"no_such\""},
        {"lr", "", "lr is \"\": use a finite number of at least 0"},
        {"lr", "fast", "lr is \"fast\": use a finite number of at least 0"},
        {"lr", "0x10", "lr is \"0x10\""},
        {"lr", "0.1 ", "lr is \"0.1 \""},
        {"lr", "0,1", "lr is \"0,1\""},
        {"lr", "-1", "lr is -1: use a finite number of at least 0"},
        {"lr", "nan", "lr is NaN: set the learning rate"},
        {"lr", "inf", "lr is inf"},
        {"momentum", "1", "momentum is 1: use a number from 0 to below 1"},
        {"adam_lr", "inf", "adam_lr is inf: use a finite number; negative means to follow Muon"},
        {"safety_factor", "0", "safety_factor is 0: use a finite number above 0"},
        {"steps", "0", "steps is 0: use 1 to 64"},
        {"steps", "65", "steps is 65: use 1 to 64"},
        {"steps", "-1", "steps is \"-1\": use 1 to 64"},
        {"steps", "5.0", "steps is \"5.0\": use 1 to 64"},
        {"steps", "99999999999999999999", "steps is \"99999999999999999999\""},
        {"min_dim", "0", "min_dim is 0: use at least 1, which excludes nothing"},
        {"seed", "18446744073709551616", "seed is \"18446744073709551616\""},
        {"nesterov", "maybe", "nesterov is \"maybe\": use yes or no"},
        {"form", "grim", "form is \"grim\": use one of auto, standard, gram, direct, quintic"},
        {"layout_3d", "fan", "layout_3d is \"fan\": use one of auto, flatten, experts"},
        {"state_dtype", "f16", "state_dtype is \"f16\": use one of f32, bf16, int8"},
        {"coefficients", "originl", "coefficients is \"originl\": use one of original"},
        {"direct_set", "P99", "direct_set is \"P99\": use one of"},
        {"table", "1,2,3", "table cannot be set from text"},
        {"patterns", "head", "patterns cannot be set from text"},
        {"log", "set", "log cannot be set from text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        muonium_options options = recipe("fp16"), before = options;
        assert_status_message(muonium_option_set(&options, cases[i].name, cases[i].text),
                              MUONIUM_INVALID, cases[i].message);
        assert_memory_equal(&options, &before, sizeof options);
    }
    muonium_options options = recipe(NULL);
    char text[2];
    assert_status_message(muonium_option_set(NULL, "lr", "1"), MUONIUM_INVALID, "options is NULL");
    assert_status_message(muonium_option_set(&options, "lr", NULL), MUONIUM_INVALID,
                          "text is NULL");
    assert_status_message(muonium_option_set(&options, NULL, "1"), MUONIUM_INVALID, "no option");
    assert_status_message(muonium_option_get(&options, "x", text, 2), MUONIUM_INVALID, "\"x\"");
    assert_status_message(muonium_option_get(&options, "lr", text, 2), MUONIUM_INVALID,
                          "lr takes 5 bytes, text has 2");
    assert_status_message(muonium_option_get(&options, "lr", NULL, 9), MUONIUM_INVALID, "5 bytes");
    assert_ok(muonium_option_get(&options, "steps", text, 2));
}

static void pointers_are_read_and_cleared(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a,b", "c d"};
    muonium_options options = recipe("fp16");
    char text[256];
    assert_ok(muonium_option_get(&options, "table", text, sizeof text));
    assert_non_null(strchr(text, ','));
    assert_ok(muonium_option_set(&options, "table", ""));
    assert_true(options.plan.table == NULL && options.plan.table_rows == 0);
    options.patterns = patterns;
    options.pattern_count = 2;
    assert_string_equal(get(&options, "patterns"), "a%2cb,c%20d");
    assert_ok(muonium_option_set(&options, "patterns", ""));
    assert_true(options.patterns == NULL && options.pattern_count == 0);
    assert_string_equal(get(&options, "log"), "");

    /* A name is the library's own string, and goes before the table of the recipe. */
    char name[] = "original";
    options = recipe("fp16");
    assert_ok(muonium_option_set(&options, "coefficients", name));
    name[0] = 'x';
    assert_string_equal(options.plan.coefficients, "original");
    assert_null(options.plan.table);
    assert_ok(muonium_option_set(&options, "coefficients", ""));
    assert_null(options.plan.coefficients);
}

/* A program that was compiled with fewer fields: it can set those that it has. */
static void older_programs_are_not_overrun(void **state)
{
    (void)state;
    const size_t inner = offsetof(muonium_plan_options, lower);
    const size_t tail = offsetof(muonium_options, momentum) - offsetof(muonium_options, lr);
    const size_t size = sizeof(size_t) + inner + tail;
    muonium_options *older = test_guarded_alloc(size, 0);
    assert_ok(muonium_options_init_sized(older, size, inner, "torch"));
    assert_string_equal(get(older, "steps"), "5");
    assert_string_equal(get(older, "weight_decay"), "0.1");
    assert_string_equal(get(older, "momentum"), "0.95");
    assert_ok(muonium_option_set(older, "steps", "8"));
    assert_ok(muonium_option_set(older, "weight_decay", "0.25"));
    assert_string_equal(get(older, "steps"), "8");
    assert_string_equal(get(older, "weight_decay"), "0.25");
    assert_string_equal(get(older, "coefficients"), "original");
    assert_status_message(muonium_option_set(older, "momentum", "0.5"), MUONIUM_INVALID,
                          "momentum is not in the struct of this program");
    assert_status_message(muonium_option_set(older, "lower", "0.5"), MUONIUM_INVALID,
                          "lower is not in the struct of this program");
    older->struct_size = 3;
    assert_status_message(muonium_option_set(older, "lr", "0.5"), MUONIUM_INVALID, "struct_size");
    test_guarded_free(older);
}

static void unknown_enums_have_no_names(void **state)
{
    (void)state;
    assert_string_equal(muonium_enum_name("muonium_form", MUONIUM_FORM_GRAM), "gram");
    assert_string_equal(muonium_enum_name("muonium_outcome", MUONIUM_DIVERGED), "diverged");
    assert_null(muonium_enum_name("muonium_form", -1));
    assert_null(muonium_enum_name("muonium_form", 5));
    assert_null(muonium_enum_name("muonium_form", 1 << 30));
    assert_null(muonium_enum_name("muonium_shape", 0));
    assert_null(muonium_enum_name(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_listed),
        cmocka_unit_test(defaults_are_those_of_the_default_recipe),
        cmocka_unit_test(what_is_read_can_be_set),
        cmocka_unit_test(bounds_are_where_they_are_said_to_be),
        cmocka_unit_test(every_choice_can_be_set),
        cmocka_unit_test(what_is_no_value_is_refused),
        cmocka_unit_test(pointers_are_read_and_cleared),
        cmocka_unit_test(older_programs_are_not_overrun),
        cmocka_unit_test(unknown_enums_have_no_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
