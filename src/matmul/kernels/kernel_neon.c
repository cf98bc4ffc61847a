/*
 * kernel_neon.c: the micro-kernels for 64-bit Arm. 24 of 32 registers hold sums, which keeps four
 * pipes of latency 4 busy; the others hold a row of the B-panel and elements of A.
 */
#if defined(__aarch64__)

#include "matmul/kernels/tile_neon.h"
#include "matmul/kernels/kernels.h"

#define PAIRS 0
#define BY_HAND 1
#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 4
#define MR 8
#define NV 3
#define UNROLL MU_K_UNROLL
#define CHAINS 16
#define NAME(f) f##_f32
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(neon_f32_8x12, neon_f32)

#include "matmul/kernels/undefine.h"

#define T double
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 2
#define MR 6
#define NV 4
#define UNROLL MU_K_UNROLL
#define CHAINS 16
#define NAME(f) f##_f64
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(neon_f64_6x8, neon_f64)

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
