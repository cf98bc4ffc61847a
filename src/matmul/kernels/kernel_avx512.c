/*
 * kernel_avx512.c: the micro-kernels for x86-64 with AVX-512 F, DQ, BW and VL. Tiles of 8 rows of
 * two vectors hold sums in 16 of 32 registers: with 24 their stores would stall the next tile
 * (docs/experiments.md). The loop is long enough not to be unrolled.
 */
#if defined(__x86_64__)

#define TARGET_AVX512
#include "vector/kernels/target.h"

#include "vector/kernels/simd_avx512.h"
#include "matmul/kernels/kernels.h"

#define PAIRS 0
#define BY_HAND 0
#define T float
#define MR 8
#define UNROLL 1

#define VEC(op) hf_##op
#define VL 8
#define NAME(f) f##_half_f32
#include "matmul/kernels/half_tile.h"

#define HALF_TILE tile_half_f32
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 16
#define NV 2
#define NAME(f) f##_f32
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(avx512_f32_8x32, avx512_f32)

#include "matmul/kernels/undefine.h"

#define T double
#define MR 8
#define UNROLL 1

#define VEC(op) hd_##op
#define VL 4
#define NAME(f) f##_half_f64
#include "matmul/kernels/half_tile.h"

#define HALF_TILE tile_half_f64
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 8
#define NV 2
#define NAME(f) f##_f64
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(avx512_f64_8x16, avx512_f64)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
