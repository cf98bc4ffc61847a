/*
 * elementwise_avx2.c: the element-wise kernels for x86-64 with AVX2.
 */
#if defined(__x86_64__)

#define ELEMENTWISE mu_elementwise_avx2
#define ISA MU_ISA_AVX2
#include "vector/kernels/elementwise_template.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
