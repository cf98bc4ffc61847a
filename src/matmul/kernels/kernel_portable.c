/*
 * kernel_portable.c: the kernels for any CPU.
 */
#include "vector/kernels/simd_portable.h"
#include "matmul/kernels/kernels.h"

#define PAIRS 0
#define BY_HAND 0
#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 4
#define MR 4
#define NV 2
#define UNROLL MU_K_UNROLL
#define NAME(f) f##_f32
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(portable_f32_4x8, portable_f32)

#include "matmul/kernels/undefine.h"

#define T double
#define T_DTYPE MUONIUM_F64
#define T_BITS 64
#define VEC(op) vd_##op
#define VL 2
#define MR 4
#define NV 2
#define UNROLL MU_K_UNROLL
#define NAME(f) f##_f64
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(portable_f64_4x4, portable_f64)
