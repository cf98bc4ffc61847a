/*
 * kernel_avx2.c: the micro-kernels for x86-64 with AVX2, FMA and F16C. 12 of 16 registers hold
 * sums, two hold a row of the B-panel; elements of A are broadcast from memory.
 */
#if defined(__x86_64__)

#define TARGET_AVX2
#include "vector/kernels/target.h"

#include "matmul/kernels/tile_avx2.h"
#include "matmul/kernels/kernels.h"

#define PAIRS 0
#define BY_HAND 1
#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 8
#define MR 6
#define NV 2
#define UNROLL MU_K_UNROLL
#define CHAINS 10 /* with four operands they fit into 16 registers */
#define NAME(f) f##_f32
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(avx2_f32_6x16, avx2_f32)

#include "matmul/kernels/undefine.h"

#define T double
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 4
#define MR 6
#define NV 2
#define UNROLL MU_K_UNROLL
#define CHAINS 10 /* with four operands they fit into 16 registers */
#define NAME(f) f##_f64
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(avx2_f64_6x8, avx2_f64)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
