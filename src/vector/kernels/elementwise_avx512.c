/*
 * elementwise_avx512.c: the element-wise kernels for x86-64 with AVX-512.
 */
#if defined(__x86_64__)

#define TARGET_AVX512
#include "vector/kernels/target.h"

#define NAME avx512
#include "vector/kernels/elementwise_template.h"
#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
