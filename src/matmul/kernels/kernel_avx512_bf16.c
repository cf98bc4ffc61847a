/*
 * kernel_avx512_bf16.c: the micro-kernel that multiplies bf16 with the instructions of AVX512-BF16,
 * two k at a time. It is the f32 kernel of kernel_avx512.c with another multiply-add, and forms the
 * same sums. Its peak is twice that of f32 on some CPUs, half of it on others. Operands are always
 * packed.
 */
#include "base/base.h"

#if defined(MU_HAVE_AVX512_BF16)

#define TARGET_AVX512_BF16
#include "vector/kernels/target.h"

#include "matmul/kernels/simd_avx512_bf16.h"
#include "matmul/kernels/kernels.h"

#define PAIRS 1
#define BY_HAND 0
#define T float
#define MR 8
#define UNROLL 1

#define VEC(op) hf_##op
#define VL 8
#define NAME(f) f##_half_bf16
#include "matmul/kernels/half_tile.h"

#define HALF_TILE tile_half_bf16
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 16
#define NV 2
#define NAME(f) f##_bf16
#include "matmul/kernels/kernel_template.h"
MU_KERNEL(avx512_bf16_8x32, avx512_f32)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
