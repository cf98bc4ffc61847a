/*
 * test_checkpoint_changes.c: what loading tells of options that have changed since a state
 * was saved, group by group.
 */
#include "checkpoint_forgery.h"

#include "checkpoint/state.h"

static char told[8192];

static void tell(void *context, const char *line)
{
    size_t used = strlen(told);
    (void)context;
    snprintf(told + used, sizeof told - used, "%s\n", line);
}

static muonium_options telling_options(void)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.log = tell;
    return options;
}

static void add_parameter(model *m, size_t index, muonium_group *group)
{
    muonium_tensor tensor = model_tensor(m, index);
    assert_ok(muonium_add(m->optimizer, &tensor, group));
}

static const double table[6][3] = {
    {3.4445, -4.775, 2.0315},
    {1.0 / 3, 2.0 / 3, 0.1},
    {1e-300, -1e300, 0.12345678901234567},
    {3.4445, -4.775, 2.0315000001},
    {3.4445, -4.775, 2.0315000002},
    {3.4445, -4.775, 2.0315000003},
};

/* What was unset and is set, and texts too long to be shown whole. */
static void test_values_of_every_length(void **state)
{
    static const char *const patterns[] = {"a,b", "c d", "e"};
    muonium_options options = telling_options();
    model plain, rich, other;
    (void)state;
    assert_ok(model_create(&plain, &options, 0, 2));
    bytes saved = model_state(&plain);
    options.plan.table = table;
    options.plan.table_rows = 6;
    options.patterns = patterns;
    options.pattern_count = 3;
    assert_ok(model_create(&rich, &options, 0, 2));
    told[0] = '\0';
    assert_ok(model_load(&rich, &saved));
    assert_non_null(strstr(told, "patterns of the group of \"h.0.w\" was unset when its state was "
                                 "saved, is a%2cb,c%20d,e\n"));
    assert_non_null(strstr(told, "table of the group of \"h.0.w\" was unset when its state was "
                                 "saved, is 3.4445,-4.775,2.0315;0.333333333333333"));
    bytes with_table = model_state(&rich);
    options.plan.table_rows = 5;
    assert_ok(model_create(&other, &options, 0, 2));
    told[0] = '\0';
    assert_ok(model_load(&other, &with_table));
    assert_non_null(strstr(told, "table of the group of \"h.0.w\" was 3.4445,-4.775,2.0315;"));
    for (char *line = strtok(told, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) < 400);
    }
    bytes_free(&saved);
    bytes_free(&with_table);
    model_destroy(&plain);
    model_destroy(&rich);
    model_destroy(&other);
}

/* Each group once, by a parameter that the file has; groups without one are passed over. */
static void test_groups(void **state)
{
    muonium_options options = telling_options();
    muonium_load_options partial;
    muonium_group *empty, *second, *third;
    model saved_from, m;
    (void)state;
    assert_ok(model_create(&saved_from, &options, 0, 3));
    bytes saved = model_state(&saved_from);
    assert_ok(model_create(&m, &options, 0, 1));
    options.lr = 0.25;
    assert_ok(muonium_add_group(m.optimizer, &options, &empty));
    options.lr = 0.5;
    assert_ok(muonium_add_group(m.optimizer, &options, &second));
    options.lr = 0.75;
    assert_ok(muonium_add_group(m.optimizer, &options, &third));
    add_parameter(&m, 6, third);  /* not in the file */
    add_parameter(&m, 2, second); /* the first of its group that is */
    add_parameter(&m, 1, second);
    muonium_load_options_init(&partial);
    partial.partial = true;
    told[0] = '\0';
    assert_ok(model_load_with(&m, &saved, &partial, NULL));
    assert_string_equal(told, "lr of the group of \"experts.w\" was 0.02 when its state was saved, "
                              "is 0.5\n");
    bytes_free(&saved);
    model_destroy(&saved_from);
    model_destroy(&m);
}

/* Words that this version does not know, as a later one might write. */
static void test_unknown_words(void **state)
{
    static const char group[] = "momentum_form=lerp momentum=0.95 word "
                                "a_key_that_is_longer_than_any_that_this_library_has_ever_written_"
                                "to_a_file=1 later=yes";
    muonium_options options = telling_options();
    model m;
    (void)state;
    assert_ok(model_create(&m, &options, 0, 1));
    bytes saved = model_state(&m);
    bytes forged = forge(&saved, (forgery){.key = "muonium.group.0", .value = group});
    told[0] = '\0';
    assert_ok(model_load(&m, &forged));
    assert_non_null(strstr(told, "later of the group of \"h.0.w\" was yes when its state was "
                                 "saved, is unset\n"));
    assert_null(strstr(told, "word of"));
    assert_null(strstr(told, "a_key"));
    assert_null(strstr(told, "momentum of"));
    bytes_free(&saved);
    bytes_free(&forged);
    model_destroy(&m);
}

static void keep_key(void *context, const char *key, const char *saved, size_t saved_length,
                     const char *current, size_t current_length)
{
    (void)context;
    size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s %.*s %.*s\n", key, (int)saved_length, saved,
             (int)current_length, current);
}

/* Files of versions without an option mean what those versions did. */
static void test_options_that_older_files_lack(void **state)
{
    (void)state;
    told[0] = '\0';
    mu_compare_options("lr=1", "lr=1 routing=muonium only_patterns=no split_fused=no", keep_key,
                       NULL);
    assert_string_equal(told, "");
    mu_compare_options("lr=1 patterns=a", "lr=1 routing=timm patterns=a only_patterns=no", keep_key,
                       NULL);
    assert_string_equal(told, "routing muonium timm\nonly_patterns yes no\n");
    told[0] = '\0';
    mu_compare_options("lr=1", "lr=1 precision=f32", keep_key, NULL);
    assert_string_equal(told, "");
    mu_compare_options("lr=1", "lr=1 precision=auto", keep_key, NULL);
    mu_compare_options("precision=f32", "precision=auto", keep_key, NULL);
    mu_compare_options("precision=f32", "precision=fixed23", keep_key, NULL);
    assert_string_equal(told, "precision f32 auto\nprecision f32 auto\nprecision f32 fixed23\n");
    told[0] = '\0';
    mu_compare_options("lr=1", "lr=1 new=3", keep_key, NULL);
    assert_string_equal(told, "new  3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_every_length),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_unknown_words),
        cmocka_unit_test(test_options_that_older_files_lack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
