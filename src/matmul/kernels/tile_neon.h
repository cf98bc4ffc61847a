/*
 * tile_neon.h: the loops of an 8 x 12 (f32) and a 6 x 8 (f64) tile in assembly: the 24 sums leave 8
 * registers for operands, and compilers spill sums as soon as they hoist loads. tools/tile-rates
 * counts what the loops need.
 *
 * An fmla multiplies a vector of B by one element of a vector of A. A packed A comes in whole
 * vectors; of an unpacked A every element is loaded by itself, which takes no arithmetic pipe, as
 * a broadcasting load does on many cores.
 */
#ifndef MU_TILE_NEON_H
#define MU_TILE_NEON_H

#include "vector/kernels/simd_neon.h"

/* clang-format off */

#define MU_NEON_ZERO(i, j) "movi %[s" #i #j "].4s, #0\n\t"
#define MU_NEON_SUM(i, j) [s##i##j] "=&w"(sum[i][j])

/* ---- f32: B in v0 to v2, A in v3 and v4 if packed, else in v3 to v7 in turn ---- */

/* Row i, whose element of A is lane `lane` of register a. */
#define MU_F32_ROW(i, a, lane)                                                                     \
    "fmla %[s" #i "0].4s, v0.4s, v" #a ".s[" #lane "]\n\t"                                         \
    "fmla %[s" #i "1].4s, v1.4s, v" #a ".s[" #lane "]\n\t"                                         \
    "fmla %[s" #i "2].4s, v2.4s, v" #a ".s[" #lane "]\n\t"

#define MU_F32_ROW_OF_B(u)                                                                         \
    "ldp q0, q1, [%[b], #48*" #u "]\n\t"                                                           \
    "ldr q2, [%[b], #48*" #u "+32]\n\t"

#define MU_F32_PACKED(u)                                                                           \
    MU_F32_ROW_OF_B(u)                                                                             \
    "ldp q3, q4, [%[a], #32*" #u "]\n\t"                                                           \
    MU_F32_ROW(0, 3, 0) MU_F32_ROW(1, 3, 1) MU_F32_ROW(2, 3, 2) MU_F32_ROW(3, 3, 3)                \
    MU_F32_ROW(4, 4, 0) MU_F32_ROW(5, 4, 1) MU_F32_ROW(6, 4, 2) MU_F32_ROW(7, 4, 3)

#define MU_F32_UNPACKED(u)                                                                         \
    MU_F32_ROW_OF_B(u)                                                                             \
    "ldr s3, [%[a], #4*" #u "]\n\t" "ldr s4, [x9, #4*" #u "]\n\t"                                  \
    "ldr s5, [x10, #4*" #u "]\n\t" "ldr s6, [x11, #4*" #u "]\n\t"                                  \
    "ldr s7, [x12, #4*" #u "]\n\t"                                                                 \
    MU_F32_ROW(0, 3, 0) "ldr s3, [x13, #4*" #u "]\n\t"                                             \
    MU_F32_ROW(1, 4, 0) "ldr s4, [x14, #4*" #u "]\n\t"                                             \
    MU_F32_ROW(2, 5, 0) "ldr s5, [x15, #4*" #u "]\n\t"                                             \
    MU_F32_ROW(3, 6, 0) MU_F32_ROW(4, 7, 0) MU_F32_ROW(5, 3, 0) MU_F32_ROW(6, 4, 0)                \
    MU_F32_ROW(7, 5, 0)

#define MU_F32_EACH(f)                                                                             \
    f(0, 0) f(0, 1) f(0, 2) f(1, 0) f(1, 1) f(1, 2) f(2, 0) f(2, 1)                                \
    f(2, 2) f(3, 0) f(3, 1) f(3, 2) f(4, 0) f(4, 1) f(4, 2) f(5, 0)                                \
    f(5, 1) f(5, 2) f(6, 0) f(6, 1) f(6, 2) f(7, 0) f(7, 1) f(7, 2)

#define MU_F32_SUMS                                                                                \
    MU_NEON_SUM(0, 0), MU_NEON_SUM(0, 1), MU_NEON_SUM(0, 2), MU_NEON_SUM(1, 0), MU_NEON_SUM(1, 1), \
    MU_NEON_SUM(1, 2), MU_NEON_SUM(2, 0), MU_NEON_SUM(2, 1), MU_NEON_SUM(2, 2), MU_NEON_SUM(3, 0), \
    MU_NEON_SUM(3, 1), MU_NEON_SUM(3, 2), MU_NEON_SUM(4, 0), MU_NEON_SUM(4, 1), MU_NEON_SUM(4, 2), \
    MU_NEON_SUM(5, 0), MU_NEON_SUM(5, 1), MU_NEON_SUM(5, 2), MU_NEON_SUM(6, 0), MU_NEON_SUM(6, 1), \
    MU_NEON_SUM(6, 2), MU_NEON_SUM(7, 0), MU_NEON_SUM(7, 1), MU_NEON_SUM(7, 2)

/* ---- f64: B in v0 to v3, A in v4 to v6 if packed, else in v4 to v7 in turn ---- */

#define MU_F64_ROW(i, a, lane)                                                                     \
    "fmla %[s" #i "0].2d, v0.2d, v" #a ".d[" #lane "]\n\t"                                         \
    "fmla %[s" #i "1].2d, v1.2d, v" #a ".d[" #lane "]\n\t"                                         \
    "fmla %[s" #i "2].2d, v2.2d, v" #a ".d[" #lane "]\n\t"                                         \
    "fmla %[s" #i "3].2d, v3.2d, v" #a ".d[" #lane "]\n\t"

#define MU_F64_ROW_OF_B(u)                                                                         \
    "ldp q0, q1, [%[b], #64*" #u "]\n\t"                                                           \
    "ldp q2, q3, [%[b], #64*" #u "+32]\n\t"

#define MU_F64_PACKED(u)                                                                           \
    MU_F64_ROW_OF_B(u)                                                                             \
    "ldp q4, q5, [%[a], #48*" #u "]\n\t"                                                           \
    "ldr q6, [%[a], #48*" #u "+32]\n\t"                                                            \
    MU_F64_ROW(0, 4, 0) MU_F64_ROW(1, 4, 1) MU_F64_ROW(2, 5, 0) MU_F64_ROW(3, 5, 1)                \
    MU_F64_ROW(4, 6, 0) MU_F64_ROW(5, 6, 1)

#define MU_F64_UNPACKED(u)                                                                         \
    MU_F64_ROW_OF_B(u)                                                                             \
    "ldr d4, [%[a], #8*" #u "]\n\t" "ldr d5, [x9, #8*" #u "]\n\t"                                  \
    "ldr d6, [x10, #8*" #u "]\n\t" "ldr d7, [x11, #8*" #u "]\n\t"                                  \
    MU_F64_ROW(0, 4, 0) "ldr d4, [x12, #8*" #u "]\n\t"                                             \
    MU_F64_ROW(1, 5, 0) "ldr d5, [x13, #8*" #u "]\n\t"                                             \
    MU_F64_ROW(2, 6, 0) MU_F64_ROW(3, 7, 0) MU_F64_ROW(4, 4, 0) MU_F64_ROW(5, 5, 0)

#define MU_F64_EACH(f)                                                                             \
    f(0, 0) f(0, 1) f(0, 2) f(0, 3) f(1, 0) f(1, 1) f(1, 2) f(1, 3)                                \
    f(2, 0) f(2, 1) f(2, 2) f(2, 3) f(3, 0) f(3, 1) f(3, 2) f(3, 3)                                \
    f(4, 0) f(4, 1) f(4, 2) f(4, 3) f(5, 0) f(5, 1) f(5, 2) f(5, 3)

#define MU_F64_SUMS                                                                                \
    MU_NEON_SUM(0, 0), MU_NEON_SUM(0, 1), MU_NEON_SUM(0, 2), MU_NEON_SUM(0, 3), MU_NEON_SUM(1, 0), \
    MU_NEON_SUM(1, 1), MU_NEON_SUM(1, 2), MU_NEON_SUM(1, 3), MU_NEON_SUM(2, 0), MU_NEON_SUM(2, 1), \
    MU_NEON_SUM(2, 2), MU_NEON_SUM(2, 3), MU_NEON_SUM(3, 0), MU_NEON_SUM(3, 1), MU_NEON_SUM(3, 2), \
    MU_NEON_SUM(3, 3), MU_NEON_SUM(4, 0), MU_NEON_SUM(4, 1), MU_NEON_SUM(4, 2), MU_NEON_SUM(4, 3), \
    MU_NEON_SUM(5, 0), MU_NEON_SUM(5, 1), MU_NEON_SUM(5, 2), MU_NEON_SUM(5, 3)

/* ---- both ---- */

#define MU_NEON_CLOBBERS "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "cc", "memory"

/* Four k per iteration until b reaches its end; %[a] and the pointers in `more` advance too. */
#define MU_NEON_LOOP(one_k, a_bytes, b_bytes, more)                                                \
    ".p2align 4\n"                                                                                 \
    "1:\n\t" one_k(0) one_k(1) one_k(2) one_k(3)                                                   \
    "add %[b], %[b], #4*" #b_bytes "\n\t"                                                          \
    "add %[a], %[a], #4*" #a_bytes "\n\t" more                                                     \
    "cmp %[b], %[end]\n\t"                                                                         \
    "b.ne 1b"

#define MU_NEON_ROWS_TO_13                                                                         \
    "add x9, %[a], %[r]\n\t" "add x10, x9, %[r]\n\t" "add x11, x10, %[r]\n\t"                      \
    "add x12, x11, %[r]\n\t" "add x13, x12, %[r]\n\t"
#define MU_NEON_ADVANCE_TO_13(bytes)                                                               \
    "add x9, x9, #4*" #bytes "\n\t" "add x10, x10, #4*" #bytes "\n\t"                              \
    "add x11, x11, #4*" #bytes "\n\t" "add x12, x12, #4*" #bytes "\n\t"                            \
    "add x13, x13, #4*" #bytes "\n\t"

/* clang-format on */

/* Compilers that know __asm__ know longer strings than ISO C asks for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* sum = the products of 8 n terms, n >= 1; a and b advance. `unpacked`, a constant: a has unit
 * stride along k and rows a_row apart; else it is packed. b is packed. */
static inline __attribute__((always_inline)) void vf_eights(const bool unpacked, size_t n,
                                                            const float **a, ptrdiff_t a_row,
                                                            const float **b, vf_t sum[8][3])
{
    const float *from_a = *a, *from_b = *b, *end = from_b + 8 * 12 * n;
    if (unpacked) {
        __asm__ volatile(
            MU_F32_EACH(MU_NEON_ZERO) MU_NEON_ROWS_TO_13
            "add x14, x13, %[r]\n\t"
            "add x15, x14, %[r]\n\t" MU_NEON_LOOP(MU_F32_UNPACKED, 4, 48,
                                                  MU_NEON_ADVANCE_TO_13(4) "add x14, x14, #16\n\t"
                                                                           "add x15, x15, #16\n\t")
            : MU_F32_SUMS, [a] "+&r"(from_a), [b] "+&r"(from_b)
            : [end] "r"(end), [r] "r"(a_row * (ptrdiff_t)sizeof **a)
            : "x9", "x10", "x11", "x12", "x13", "x14", "x15", MU_NEON_CLOBBERS);
    } else {
        __asm__ volatile(MU_F32_EACH(MU_NEON_ZERO) MU_NEON_LOOP(MU_F32_PACKED, 32, 48, "")
                         : MU_F32_SUMS, [a] "+&r"(from_a), [b] "+&r"(from_b)
                         : [end] "r"(end)
                         : MU_NEON_CLOBBERS);
    }
    *a = from_a;
    *b = from_b;
}

static inline __attribute__((always_inline)) void vd_eights(const bool unpacked, size_t n,
                                                            const double **a, ptrdiff_t a_row,
                                                            const double **b, vd_t sum[6][4])
{
    const double *from_a = *a, *from_b = *b, *end = from_b + 8 * 8 * n;
    if (unpacked) {
        __asm__ volatile(MU_F64_EACH(MU_NEON_ZERO) MU_NEON_ROWS_TO_13 MU_NEON_LOOP(
                             MU_F64_UNPACKED, 8, 64, MU_NEON_ADVANCE_TO_13(8))
                         : MU_F64_SUMS, [a] "+&r"(from_a), [b] "+&r"(from_b)
                         : [end] "r"(end), [r] "r"(a_row * (ptrdiff_t)sizeof **a)
                         : "x9", "x10", "x11", "x12", "x13", MU_NEON_CLOBBERS);
    } else {
        __asm__ volatile(MU_F64_EACH(MU_NEON_ZERO) MU_NEON_LOOP(MU_F64_PACKED, 48, 64, "")
                         : MU_F64_SUMS, [a] "+&r"(from_a), [b] "+&r"(from_b)
                         : [end] "r"(end)
                         : MU_NEON_CLOBBERS);
    }
    *a = from_a;
    *b = from_b;
}

#pragma GCC diagnostic pop

#endif
