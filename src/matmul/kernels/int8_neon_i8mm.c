/*
 * int8_neon_i8mm.c: fixed-point products with the matrix instructions of Armv8.6. smmla multiplies
 * two lines of A by two lines of B, eight k of each, and adds four sums. So both words of a line
 * that belong to eight k must be adjacent: packing leaves groups of four k apart, and they are
 * interleaved afterwards.
 */
#include "base/base.h"

#if defined(MU_HAVE_NEON_I8MM)

#define TARGET_NEON_I8MM
#include "vector/kernels/target.h"

#define VL 4
#include "vector/kernels/simd_neon.h"

#define MR 4
#define NR 8
#define A_LINES MR
#define B_LINES NR
#define GROUPS 2
#include "matmul/kernels/int8_template.h"

#include "matmul/kernels/tile_neon_int8.h"

/* ---- packing ---- */

/* For every eight k and digit: the words of the first four k of all `width` lines, then those of
 * the other four, become pairs of words, line by line. */
static void interleave(size_t width, size_t digits, size_t groups, void *packed)
{
    uint32_t *words = packed;
    for (size_t n = groups / GROUPS * digits; n > 0; n--, words += 2 * width) {
        uint32x4_t low[NR / 4], high[NR / 4];
        for (size_t j = 0; j < width / 4; j++) {
            low[j] = vld1q_u32(words + 4 * j);
            high[j] = vld1q_u32(words + width + 4 * j);
        }
        for (size_t j = 0; j < width / 4; j++) {
            vst1q_u32(words + 8 * j, vzip1q_u32(low[j], high[j]));
            vst1q_u32(words + 8 * j + 4, vzip2q_u32(low[j], high[j]));
        }
    }
}

static void pack_a_pairs(int digits, const mu_digit_source *s, size_t lines, size_t k,
                         size_t groups, const float *unit, void *packed)
{
    pack_a(digits, s, lines, k, groups, unit, packed);
    interleave(MR, (size_t)digits, (lines + MR - 1) / MR * groups, packed);
}

static void pack_b_pairs(int digits, const mu_digit_source *s, size_t lines, size_t k,
                         size_t groups, const float *unit, void *packed)
{
    pack_columns(digits, s, lines, k, groups, unit, packed);
    interleave(NR, (size_t)digits, (lines + NR - 1) / NR * groups, packed);
}

#undef PACK_A
#undef PACK_B
#define PACK_A pack_a_pairs
#define PACK_B pack_b_pairs

/* ---- the tile ---- */

/* clang-format off */

/* sum[w][i][j] has lines 2 (i % 2) and 2 (i % 2) + 1 of A, and of B lines 4 (i / 2) + 2 j and the
 * next: pairs of lines of A in registers a0 and a1, those of B in v0 to v3. */
#define SMMLA(w, i, j, a, b) "smmla %[s" #w #i #j "].4s, v" #a ".16b, v" #b ".16b\n\t"
#define PRODUCT(w, a0, a1)                                                                         \
    SMMLA(w, 0, 0, a0, 0) SMMLA(w, 1, 0, a1, 0) SMMLA(w, 0, 1, a0, 1) SMMLA(w, 1, 1, a1, 1)        \
    SMMLA(w, 2, 0, a0, 2) SMMLA(w, 3, 0, a1, 2) SMMLA(w, 2, 1, a0, 3) SMMLA(w, 3, 1, a1, 3)

#define LOAD_A(register0, register1, digit)                                                        \
    "ldp q" #register0 ", q" #register1 ", [%[a], #32*" #digit "]\n\t"
#define LOAD_B(digit)                                                                              \
    "ldp q0, q1, [%[b], #64*" #digit "]\n\t" "ldp q2, q3, [%[b], #64*" #digit "+32]\n\t"

/* Products of one weight are not next to each other: they wait for each other. */
#define THREE_DIGITS                                                                               \
    LOAD_A(4, 5, 0) LOAD_B(0) PRODUCT(0, 4, 5)                                                     \
    LOAD_A(6, 7, 2) PRODUCT(2, 6, 7)                                                               \
    LOAD_A(6, 7, 1) PRODUCT(1, 6, 7)                                                               \
    LOAD_B(1) PRODUCT(2, 6, 7) PRODUCT(1, 4, 5)                                                    \
    LOAD_B(2) PRODUCT(2, 4, 5)                                                                     \
    "add %[a], %[a], #96\n\t" "add %[b], %[b], #192\n\t"

#define TWO_DIGITS                                                                                 \
    LOAD_A(4, 5, 0) LOAD_A(6, 7, 1) LOAD_B(0) PRODUCT(1, 6, 7) PRODUCT(0, 4, 5)                    \
    LOAD_B(1) PRODUCT(1, 4, 5) PRODUCT(2, 6, 7)                                                    \
    "add %[a], %[a], #64\n\t" "add %[b], %[b], #128\n\t"

/* clang-format on */

/* The rows of two lines of A by four of B, from two results of smmla. */
static inline void store_rows(int32x4_t left, int32x4_t right, int32_t *c)
{
    int64x2_t x = vreinterpretq_s64_s32(left), y = vreinterpretq_s64_s32(right);
    vst1q_s32(c, vreinterpretq_s32_s64(vzip1q_s64(x, y)));
    vst1q_s32(c + NR, vreinterpretq_s32_s64(vzip2q_s64(x, y)));
}

static void tile(int digits, size_t groups, const void *a, const void *b, const int32_t *start,
                 int32_t *c, const mu_meanwhile *meanwhile)
{
    int32x4_t sum[MU_SUMS][4][2];
    (void)start;
    (void)meanwhile;
    if (digits == 3) {
        MU_NEON_INT8_LOOP(THREE_DIGITS, 3 * 4 * NR * groups);
    } else {
        MU_NEON_INT8_LOOP(TWO_DIGITS, 2 * 4 * NR * groups);
    }
    for (int w = 0; w < MU_SUMS; w++, c += MR * NR) {
        for (int i = 0; i < 4; i++) {
            store_rows(sum[w][i][0], sum[w][i][1], c + i % 2 * 2 * NR + i / 2 * 4);
        }
    }
}

MU_INT8_KERNEL(neon_i8mm_int8_4x8, .start = NULL)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
