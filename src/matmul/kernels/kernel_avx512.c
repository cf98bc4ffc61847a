/*
 * kernel_avx512.c: the kernels for x86-64 with AVX-512 F, DQ, BW and VL. Of 32 registers
 * 24 hold sums; 14 rows would fit too, but 12 divide MU_BLOCK.
 */
#if defined(__x86_64__)

#include "matmul/kernels/vector_avx512.h"
#include "matmul/kernels/kernels.h"

#define BY_HAND 0
#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 16
#define MR 12
#define KC 256
#define NAME(f) f##_f32
#include "matmul/kernels/kernel_template.h"
const mu_kernel mu_kernel_avx512_f32_12x32 = MU_KERNEL(MU_ISA_AVX512, "avx512_f32_12x32");

#undef T
#undef T_DTYPE
#undef T_BITS
#undef VEC
#undef VL
#undef MR
#undef KC
#undef NAME

#define T double
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 8
#define MR 12
#define KC 256
#define NAME(f) f##_f64
#include "matmul/kernels/kernel_template.h"
const mu_kernel mu_kernel_avx512_f64_12x16 = MU_KERNEL(MU_ISA_AVX512, "avx512_f64_12x16");

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
