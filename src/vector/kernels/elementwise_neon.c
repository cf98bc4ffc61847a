/*
 * elementwise_neon.c: the element-wise kernels for 64-bit Arm. Its compilers use NEON without being
 * asked, so this is the code of elementwise_portable.c under the name that MUONIUM_CPU has for it.
 */
#if defined(__aarch64__)

#define NAME neon
#include "vector/kernels/elementwise_template.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
