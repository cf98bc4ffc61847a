/*
 * every_int8.c: see every_int8.h.
 */
#include "every_int8.h"

enum { MOST_KERNELS = 16, MOST_TESTS = 128, NAME_LENGTH = 96 };

const mu_int8_kernel *test_int8_at(size_t index)
{
    const mu_int8_kernel *kernel;
    for (size_t i = 0; (kernel = mu_int8_at(i)) != NULL; i++) {
        if (mu_includes(mu_cpu_detect()->has, kernel->needs) && index-- == 0) {
            return kernel;
        }
    }
#if defined(__x86_64__)
    static const mu_int8_kernel *const emulated[] = {
        &mu_int8_emulated_amx, &mu_int8_emulated_avx_vnni, &mu_int8_emulated_avx512_vnni};
    return index < sizeof emulated / sizeof emulated[0] ? emulated[index] : NULL;
#else
    return NULL;
#endif
}

int test_run_with_int8(const struct CMUnitTest *tests, size_t count)
{
    static struct CMUnitTest all[MOST_TESTS];
    static char names[MOST_TESTS][NAME_LENGTH];
    static const mu_int8_kernel *kernels[MOST_KERNELS];
    size_t used = 0;
    for (size_t k = 0; k < MOST_KERNELS && (kernels[k] = test_int8_at(k)) != NULL; k++) {
        for (size_t t = 0; t < count && used < MOST_TESTS; t++, used++) {
            snprintf(names[used], NAME_LENGTH, "%s with %s", tests[t].name, kernels[k]->name);
            all[used] = tests[t];
            all[used].name = names[used];
            all[used].initial_state = &kernels[k];
        }
    }
    assert_true(used >= count && used < MOST_TESTS);
    return _cmocka_run_group_tests("int8 kernels", all, used, NULL, NULL);
}
