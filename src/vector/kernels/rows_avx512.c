/*
 * rows_avx512.c: the row operations for x86-64 with AVX-512 F, DQ, BW and VL.
 */
#if defined(__x86_64__)

#define TARGET_AVX512
#include "vector/kernels/target.h"

#include "vector/kernels/simd_avx512.h"

#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 16
#define NAME(f) f##_rows_f32
#include "vector/kernels/rows_template.h"
MU_ROWS(avx512_f32)

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
#define VL 8
#define NAME(f) f##_rows_f64
#include "vector/kernels/rows_template.h"
MU_ROWS(avx512_f64)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
