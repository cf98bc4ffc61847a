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
    assert_ok(muonium_options_init_sized((muonium_options *)(void *)memory, OLDER, NULL));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_caller_has_is_written),
        cmocka_unit_test(only_what_the_caller_has_is_read),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(every_public_struct_has_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
