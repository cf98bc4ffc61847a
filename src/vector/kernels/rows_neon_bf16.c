/*
 * rows_neon_bf16.c: the row operations for 64-bit Arm that rounds to bf16 by an instruction.
 */
#include "base/base.h"

#if defined(MU_HAVE_NEON_I8MM)

#define TARGET_NEON_BF16
#include "vector/kernels/target.h"

#define MU_NEON_BF16
#include "vector/kernels/simd_neon.h"

#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define VL 4
#define NAME(f) f##_rows_f32
#include "vector/kernels/rows_template.h"
MU_ROWS(neon_bf16_f32)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
