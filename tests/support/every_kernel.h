/*
 * every_kernel.h: run tests once for every kernel that can be run here: those that
 * the CPU offers, and those for AVX-512 and AMX in emulation where it lacks that.
 */
#ifndef MUONIUM_EVERY_KERNEL_H
#define MUONIUM_EVERY_KERNEL_H

#include "test.h"

#include "matmul/kernel.h"

/* From 0; NULL past the last. */
const mu_kernel *test_kernel_at(size_t index);

/* The kernel is emulated: hundreds of times slower than it would be. */
bool test_kernel_emulated(const mu_kernel *kernel);

/* mu_kernel_burst, of emulated kernels too. */
double test_kernel_burst(const mu_kernel *kernel, size_t rounds);

/* The unit roundoff of the kernel's type. */
double test_kernel_eps(const mu_kernel *kernel);

/* Run each of the tests with each kernel as *state. What cmocka_run_group_tests
 * returns. */
#define test_with_every_kernel(tests) test_run_with_kernels(tests, sizeof(tests) / sizeof(tests)[0])
int test_run_with_kernels(const struct CMUnitTest *tests, size_t count);

/* The kernels of emulated_avx512.c. */
#if defined(__x86_64__)
extern const mu_kernel mu_kernel_emulated_f32;
extern const mu_kernel mu_kernel_emulated_f64;
extern const mu_kernel mu_kernel_emulated_bf16;
extern const mu_kernel mu_kernel_emulated_amx;
double mu_burst_emulated_f32(size_t rounds);
double mu_burst_emulated_f64(size_t rounds);
double mu_burst_emulated_bf16(size_t rounds);
double mu_burst_emulated_amx(size_t rounds);
#endif

#endif
