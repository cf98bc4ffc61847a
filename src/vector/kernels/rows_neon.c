/*
 * rows_neon.c: the row operations for 64-bit Arm.
 */
#if defined(__aarch64__)

#include "vector/kernels/simd_neon.h"

#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 4
#define NAME(f) f##_rows_f32
#include "vector/kernels/rows_template.h"
MU_ROWS(neon_f32)

#undef T
#undef T_DTYPE
#undef T_BITS
#undef VEC
#undef VL
#undef NAME

#define T double
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 2
#define NAME(f) f##_rows_f64
#include "vector/kernels/rows_template.h"
MU_ROWS(neon_f64)

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
