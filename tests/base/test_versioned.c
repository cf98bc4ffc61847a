/*
 * test_versioned.c: structs of options from callers that were compiled with another version
 * of the header: nothing beyond their size is written or read.
 */
#include "test.h"

#include "base/base.h"

typedef struct sample {
    size_t struct_size;
    double first, second;
} sample;

static const sample defaults = {.struct_size = sizeof defaults, .first = 1, .second = 2};

static void only_what_the_caller_has_is_written(void **state)
{
    (void)state;
    for (size_t size = sizeof(size_t); size <= sizeof(sample); size += sizeof(size_t)) {
        char *memory = test_guarded_alloc(size, 0); /* a byte more would trap */
        mu_versioned_init(memory, size, &defaults, sizeof defaults);
        sample filled = {0};
        memcpy(&filled, memory, size);
        assert_int_equal(filled.struct_size, size);
        assert_true(filled.first == (size > offsetof(sample, first) ? 1 : 0));
        assert_true(filled.second == (size > offsetof(sample, second) ? 2 : 0));
        test_guarded_free(memory);
    }
    sample later[2] = {{0}}; /* a caller that knows more than this library */
    mu_versioned_init(later, sizeof later, &defaults, sizeof defaults);
    assert_int_equal(later[0].struct_size, sizeof(sample));
    assert_int_equal(later[1].struct_size, 0);
    mu_versioned_init(NULL, sizeof(sample), &defaults, sizeof defaults);
}

static void only_what_the_caller_has_is_read(void **state)
{
    (void)state;
    const size_t size = offsetof(sample, second);
    const sample older = {.struct_size = size, .first = 7};
    char *memory = test_guarded_alloc(size, 0);
    memcpy(memory, &older, size);
    sample read = defaults;
    assert_ok(mu_versioned_read("sample", memory, &read, sizeof read));
    assert_int_equal(read.struct_size, sizeof read);
    assert_true(read.first == 7 && read.second == 2);
    test_guarded_free(memory);
    read = defaults;
    assert_ok(mu_versioned_read("sample", NULL, &read, sizeof read));
    assert_memory_equal(&read, &defaults, sizeof read);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(size_t), sizeof(sample) - 1, sizeof(sample) + 8, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sample given = defaults, read = defaults;
        char part[64];
        given.struct_size = sizes[i];
        given.first = 5;
        snprintf(part, sizeof part, "struct_size of sample is %zu: fill", sizes[i]);
        assert_status_message(mu_versioned_read("sample", &given, &read, sizeof read),
                              MUONIUM_INVALID, part);
        assert_status_message(mu_versioned_check("sample", sizes[i], sizeof read), MUONIUM_INVALID,
                              "sample_init");
        assert_memory_equal(&read, &defaults, sizeof read);
    }
}

/* The public structs, at the size of their first two members. */
static void every_public_struct_has_versions(void **state)
{
    (void)state;
    enum { OLDER = 2 * sizeof(size_t) };
    char *memory = test_guarded_alloc(OLDER, 0);
    size_t size = 0;
    muonium_plan_options_init_sized((muonium_plan_options *)(void *)memory, OLDER);
    memcpy(&size, memory, sizeof size);
    assert_int_equal(size, OLDER);
    memset(memory, 0, OLDER);
    muonium_load_options_init_sized((muonium_load_options *)(void *)memory, OLDER);
    memcpy(&size, memory, sizeof size);
    assert_int_equal(size, OLDER);
    memset(memory, 0, OLDER);
    muonium_positional_options_init_sized((muonium_positional_options *)(void *)memory, OLDER);
    memcpy(&size, memory, sizeof size);
    assert_int_equal(size, OLDER);
    test_guarded_free(memory);
}

/* ---- a struct within a struct: a program compiled with an older header ---- */

/* muonium_plan_options and muonium_options as they might have been: fields at the end of either
 * are missing. */
typedef struct older_plan {
    size_t struct_size;
    int steps;
    const double (*table)[3];
    size_t table_rows;
    const char *coefficients;
} older_plan;

typedef struct older_options {
    size_t struct_size;
    older_plan plan;
    double lr, weight_decay, momentum;
} older_options;

/* Filled by the library, of which nothing may touch what follows it. */
static older_options *older(const char *recipe)
{
    older_options *o = test_guarded_alloc(sizeof *o, 0);
    assert_ok(muonium_options_init_sized((muonium_options *)(void *)o, sizeof *o, sizeof o->plan,
                                         recipe));
    return o;
}

static void older_programs_find_their_fields(void **state)
{
    (void)state;
    older_options *o = older("torch");
    assert_int_equal(o->struct_size, sizeof *o);
    assert_int_equal(o->plan.struct_size, sizeof o->plan);
    assert_int_equal(o->plan.steps, 5);
    assert_string_equal(o->plan.coefficients, "original");
    assert_true(o->lr == 1e-3 && o->weight_decay == 0.1 && o->momentum == 0.95);
    test_guarded_free(o);
}

/* The step of a 2 x 2 matrix under such options and under ours is the same. What the older
 * program does not know is at the default of the recipe "muonium". */
static void older_programs_step_as_newer_ones(void **state)
{
    (void)state;
    float data[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}}, grad[4] = {1, -2, 0.5f, 3};
    older_options *o = older(NULL);
    muonium_options ours;
    assert_ok(muonium_options_init(&ours, NULL));
    o->plan.steps = ours.plan.steps = 7;
    o->plan.coefficients = ours.plan.coefficients = "original";
    o->lr = ours.lr = 0.125;
    o->weight_decay = ours.weight_decay = 0.5;
    o->momentum = ours.momentum = 0.75;
    const muonium_options *given[] = {(const muonium_options *)(const void *)o, &ours};
    for (int i = 0; i < 2; i++) {
        muonium_optimizer *optimizer;
        muonium_tensor w = {.name = "w", .ndim = 2, .shape = {2, 2}, .data = data[i], .grad = grad};
        w.route = MUONIUM_ROUTE_MUON;
        assert_ok(muonium_create(given[i], &optimizer));
        assert_ok(muonium_add(optimizer, &w, NULL));
        assert_ok(muonium_step(optimizer));
        muonium_destroy(optimizer);
    }
    assert_true(data[0][0] != 1);
    assert_memory_equal(data[0], data[1], sizeof data[0]);
    test_guarded_free(o);
}

/* Each of the two sizes, with the other at that of this header. */
static void impossible_nested_sizes_are_refused(void **state)
{
    (void)state;
    const size_t outer = sizeof(muonium_options), inner = sizeof(muonium_plan_options);
    const size_t impossible[][2] = {
        {0, inner},
        {1, inner},
        {8, inner},
        {outer - 1, inner},
        {outer + 8, inner},
        {SIZE_MAX, inner},
        {inner, inner},
        {inner + 8, inner},
        {outer, 0},
        {outer, 1},
        {outer, 8},
        {outer, inner - 1},
        {outer, inner + 8},
        {outer, SIZE_MAX},
        {outer, outer},
        {outer, inner - 8},
        {outer - 8, inner - 16},
        {SIZE_MAX - 7, SIZE_MAX - 7},
    };
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        muonium_options o, before;
        muonium_optimizer *none = NULL;
        assert_ok(muonium_options_init(&o, NULL));
        o.struct_size = impossible[i][0];
        o.plan.struct_size = impossible[i][1];
        before = o;
        assert_status_message(muonium_create(&o, &none), MUONIUM_INVALID, "muonium_options_init");
        assert_status_message(
            muonium_options_init_sized(&o, impossible[i][0], impossible[i][1], NULL),
            MUONIUM_INVALID, "struct_size of muonium_options");
        assert_memory_equal(&o, &before, sizeof o);
        assert_null(none);
    }
    /* A program of version 0.1 has its learning rate where the size of the plan is now. */
    muonium_options o;
    muonium_optimizer *none = NULL;
    assert_ok(muonium_options_init(&o, NULL));
    memcpy(&o.plan, &o.lr, sizeof o.lr);
    assert_status_message(muonium_create(&o, &none), MUONIUM_INVALID, "muonium_options.plan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_caller_has_is_written),
        cmocka_unit_test(only_what_the_caller_has_is_read),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(every_public_struct_has_versions),
        cmocka_unit_test(older_programs_find_their_fields),
        cmocka_unit_test(older_programs_step_as_newer_ones),
        cmocka_unit_test(impossible_nested_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
