/*
 * elementwise_kernels.h: the element-wise kernels as objects, and the part of them that
 * is the same code for every instruction set.
 */
#ifndef MU_ELEMENTWISE_KERNELS_H
#define MU_ELEMENTWISE_KERNELS_H

#include "vector/elementwise.h"

extern const mu_elementwise mu_elementwise_portable;
#if defined(__x86_64__)
extern const mu_elementwise mu_elementwise_avx2;
extern const mu_elementwise mu_elementwise_avx512;
#endif

/* See mu_elementwise; in round_stochastic.c. */
void mu_round_stochastic(const float *x, size_t n, muonium_dtype half, uint64_t key,
                         uint64_t stream, uint64_t first, uint16_t *to);

#endif
