/*
 * test_helpers.c: the helpers of test.h themselves, since every other test
 * leans on them: the traps trap, the deadline kills, the variable arrives.
 */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

static void numbers_have_their_distribution(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("numbers");
    enum { count = 100000 };
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) {
        double unit = test_uniform(&rng, -1.0, 3.0);
        assert_true(unit >= -1.0 && unit < 3.0);
        assert_true(test_below(&rng, 7) < 7);
        double normal = test_normal(&rng);
        sum += normal;
        squares += normal * normal;
    }
    /* Six standard deviations of the mean, and of the mean square: 1/sqrt(n), sqrt(2/n). */
    assert_true(fabs(sum / count) < 6.0 / sqrt(count));
    assert_true(fabs(squares / count - 1.0) < 6.0 * sqrt(2.0 / count));
}

static void streams_depend_on_the_label_alone(void **state)
{
    (void)state;
    test_rng first = test_rng_start("one"), second = test_rng_start("one");
    test_rng other = test_rng_start("two");
    uint64_t bits = test_bits(&first);
    assert_true(bits == test_bits(&second));
    assert_true(bits != test_bits(&other));
}

static int touch(void *address)
{
    signal(SIGSEGV, SIG_DFL); /* whatever a sanitizer or cmocka has installed */
    *(volatile unsigned char *)address = 1;
    return 0;
}

static void guarded_memory_traps_on_both_sides(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 63, 4096, 10000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *back = test_guarded_alloc(sizes[i], 0);
        unsigned char *front = test_guarded_alloc_front(sizes[i], 0);
        assert_child_ok(test_fork(touch, back, NULL, NULL, 10));
        assert_child_ok(test_fork(touch, back + sizes[i] - 1, NULL, NULL, 10));
        assert_int_equal(test_fork(touch, back + sizes[i], NULL, NULL, 10).signal, SIGSEGV);
        assert_child_ok(test_fork(touch, front, NULL, NULL, 10));
        assert_int_equal(test_fork(touch, front - 1, NULL, NULL, 10).signal, SIGSEGV);
        test_guarded_free(front);
        test_guarded_free(back);
    }
    unsigned char *shifted = test_guarded_alloc(64, 4);
    assert_int_equal((uintptr_t)shifted % 64, 60);
    assert_int_equal(shifted[0], 0xa5);
    test_guarded_free(shifted);
    test_guarded_free(NULL);
}

static int sleep_long(void *unused)
{
    (void)unused;
    sleep(60);
    return 0;
}

static int exit_with(void *code)
{
    return *(int *)code;
}

static void children_report_how_they_ended(void **state)
{
    (void)state;
    int code = 3;
    assert_int_equal(test_fork(exit_with, &code, NULL, NULL, 10).exit_code, 3);
    test_child late = test_fork(sleep_long, NULL, NULL, NULL, 0.05);
    assert_true(late.timed_out);
    assert_int_equal(late.signal, SIGKILL);
}

static void a_program_started_again_sees_the_variable_and_the_seed(void **state)
{
    (void)state;
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)test_seed());
    assert_child_ok(test_run_again("MUONIUM_TEST_PROBE", seed, 10));
    assert_int_equal(test_run_again("MUONIUM_TEST_PROBE", NULL, 10).exit_code, 4);
}

static int second_run(void)
{
    const char *probe = getenv("MUONIUM_TEST_PROBE");
    if (probe == NULL) {
        return 4;
    }
    return strtoull(probe, NULL, 10) == test_seed() ? 0 : 5;
}

int main(void)
{
    if (test_is_again()) {
        return second_run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_their_distribution),
        cmocka_unit_test(streams_depend_on_the_label_alone),
        cmocka_unit_test(guarded_memory_traps_on_both_sides),
        cmocka_unit_test(children_report_how_they_ended),
        cmocka_unit_test(a_program_started_again_sees_the_variable_and_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
