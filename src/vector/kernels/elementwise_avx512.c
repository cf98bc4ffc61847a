/*
 * elementwise_avx512.c: the element-wise kernels for x86-64 with AVX-512.
 */
#if defined(__x86_64__)

#define ELEMENTWISE mu_elementwise_avx512
#define ISA MU_ISA_AVX512
#include "vector/kernels/elementwise_template.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
