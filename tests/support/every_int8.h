/*
 * every_int8.h: run tests once for every int8 kernel: those that the CPU has, and all others in
 * emulation.
 */
#ifndef MUONIUM_EVERY_INT8_H
#define MUONIUM_EVERY_INT8_H

#include "test.h"

#include "matmul/int8.h"

/* From 0; NULL past the last. */
const mu_int8_kernel *test_int8_at(size_t index);

/* Run each of the tests with each kernel as *state. What cmocka_run_group_tests returns. */
#define test_with_every_int8(tests) test_run_with_int8(tests, sizeof(tests) / sizeof(tests)[0])
int test_run_with_int8(const struct CMUnitTest *tests, size_t count);

/* The kernels of emulated_int8_*.c. */
#if defined(__x86_64__)
extern const mu_int8_kernel mu_int8_emulated_amx, mu_int8_emulated_avx_vnni,
    mu_int8_emulated_avx512_vnni;
#endif

#endif
