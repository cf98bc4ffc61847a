/*
 * every_kernel.c: see every_kernel.h.
 */
#include "every_kernel.h"

enum { MOST_KERNELS = 32, MOST_TESTS = 256, NAME_LENGTH = 96 };

const mu_kernel *test_kernel_at(size_t index)
{
    mu_features has = mu_cpu_detect()->has;
    const mu_kernel *kernel;
    for (size_t i = 0; (kernel = mu_kernel_at(i)) != NULL; i++) {
        if (mu_includes(has, kernel->needs) && index-- == 0) {
            return kernel;
        }
    }
#if defined(__x86_64__)
    static const mu_kernel *const emulated[] = {&mu_kernel_emulated_f32, &mu_kernel_emulated_f64,
                                                &mu_kernel_emulated_bf16, &mu_kernel_emulated_amx};
    for (size_t i = 0; i < sizeof emulated / sizeof emulated[0]; i++) {
        if (!mu_includes(has, emulated[i]->needs) && index-- == 0) {
            return emulated[i];
        }
    }
#endif
    return NULL;
}

double test_kernel_burst(const mu_kernel *kernel, size_t rounds)
{
#if defined(__x86_64__)
    if (test_kernel_emulated(kernel)) {
        return kernel == &mu_kernel_emulated_f32   ? mu_burst_emulated_f32(rounds)
               : kernel == &mu_kernel_emulated_f64 ? mu_burst_emulated_f64(rounds)
               : kernel == &mu_kernel_emulated_amx ? mu_burst_emulated_amx(rounds)
                                                   : mu_burst_emulated_bf16(rounds);
    }
#endif
    return mu_kernel_burst(kernel, rounds);
}

bool test_kernel_emulated(const mu_kernel *kernel)
{
    return !mu_includes(mu_cpu_detect()->has, kernel->needs);
}

double test_kernel_eps(const mu_kernel *kernel)
{
    return kernel->type == MUONIUM_F32 ? 0x1p-24 : 0x1p-53;
}

int test_run_with_kernels(const struct CMUnitTest *tests, size_t count)
{
    static struct CMUnitTest all[MOST_TESTS];
    static char names[MOST_TESTS][NAME_LENGTH];
    static const mu_kernel *kernels[MOST_KERNELS]; /* cmocka wants states that are not const */
    size_t used = 0;
    for (size_t k = 0; k < MOST_KERNELS && (kernels[k] = test_kernel_at(k)) != NULL; k++) {
        for (size_t t = 0; t < count && used < MOST_TESTS; t++, used++) {
            const char *how = test_kernel_emulated(kernels[k]) ? " (emulated)" : "";
            snprintf(names[used], NAME_LENGTH, "%s with %s%s", tests[t].name, kernels[k]->name,
                     how);
            all[used] = tests[t];
            all[used].name = names[used];
            all[used].initial_state = &kernels[k];
        }
    }
    if (used < 2 * count || used == MOST_TESTS) { /* at least the portable f32 and f64 */
        fprintf(stderr, "%zu tests with every kernel: too few or too many\n", used);
        return 1;
    }
    return _cmocka_run_group_tests("kernels", all, used, NULL, NULL);
}
