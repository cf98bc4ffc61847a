/*
 * int8_neon_dotprod.c: fixed-point products with the dot products of Armv8.2. sdot multiplies four
 * lines of B, four k of each, by a word of A.
 */
#include "base/base.h"

#if defined(MU_HAVE_NEON_DOTPROD)

#define TARGET_NEON_DOTPROD
#include "vector/kernels/target.h"

#define VL 4
#include "vector/kernels/simd_neon.h"

#define MR 4
#define NR 8
#include "matmul/kernels/int8_template.h"

#include "matmul/kernels/tile_neon_int8.h"

/* clang-format off */

/* S_w += A B for the digit of A in register a and that of B in registers b0 and b1. */
#define ROW(w, i, a, b0, b1)                                                                       \
    "sdot %[s" #w #i "0].4s, v" #b0 ".16b, v" #a ".4b[" #i "]\n\t"                                 \
    "sdot %[s" #w #i "1].4s, v" #b1 ".16b, v" #a ".4b[" #i "]\n\t"
#define PRODUCT(w, a, b0, b1) ROW(w, 0, a, b0, b1) ROW(w, 1, a, b0, b1) ROW(w, 2, a, b0, b1)       \
    ROW(w, 3, a, b0, b1)

/* Products of one weight are not next to each other: they wait for each other. */
#define THREE_DIGITS                                                                               \
    "ldr q0, [%[a], #32]\n\t" "ldp q2, q3, [%[b]]\n\t"                                             \
    PRODUCT(2, 0, 2, 3)                                                                            \
    "ldp q0, q1, [%[a]]\n\t"                                                                       \
    PRODUCT(1, 1, 2, 3)                                                                            \
    "ldp q4, q5, [%[b], #32]\n\t" "ldp q6, q7, [%[b], #64]\n\t"                                    \
    PRODUCT(2, 1, 4, 5) PRODUCT(0, 0, 2, 3) PRODUCT(2, 0, 6, 7) PRODUCT(1, 0, 4, 5)                \
    "add %[a], %[a], #48\n\t" "add %[b], %[b], #96\n\t"

#define TWO_DIGITS                                                                                 \
    "ldp q0, q1, [%[a]]\n\t" "ldp q2, q3, [%[b]]\n\t" "ldp q4, q5, [%[b], #32]\n\t"                \
    PRODUCT(1, 1, 2, 3) PRODUCT(0, 0, 2, 3) PRODUCT(1, 0, 4, 5) PRODUCT(2, 1, 4, 5)                \
    "add %[a], %[a], #32\n\t" "add %[b], %[b], #64\n\t"

/* clang-format on */

static void tile(int digits, size_t groups, const void *a, const void *b, const int32_t *start,
                 int32_t *c, const mu_meanwhile *meanwhile)
{
    int32x4_t sum[MU_SUMS][MR][NR / 4];
    (void)start;
    (void)meanwhile;
    if (digits == 3) {
        MU_NEON_INT8_LOOP(THREE_DIGITS, 3 * 4 * NR * groups);
    } else {
        MU_NEON_INT8_LOOP(TWO_DIGITS, 2 * 4 * NR * groups);
    }
    for (int w = 0; w < MU_SUMS; w++) {
        for (int i = 0; i < MR; i++, c += NR) {
            vst1q_s32(c, sum[w][i][0]);
            vst1q_s32(c + 4, sum[w][i][1]);
        }
    }
}

MU_INT8_KERNEL(neon_dotprod_int8_4x8, .start = NULL)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
