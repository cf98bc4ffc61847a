/*
 * tile_avx2.h: the loop of a 6 x 16 (f32) or 6 x 8 (f64) tile in assembly. 12 of 16 registers hold
 * sums, two a row of the B-panel, one an element of A. As soon as the loop is unrolled, gcc 12
 * moves or spills sums, and on a core that two threads share every additional instruction costs
 * time. This loop takes nearly all of the time of the products; nothing else is assembly.
 *
 * The loop is unrolled by 8, so that its end is predicted (docs/experiments.md).
 */
#ifndef MU_TILE_AVX2_H
#define MU_TILE_AVX2_H

#include "vector/kernels/simd_avx2.h"

/* clang-format off: assembly is read line by line */

/* Row i for one k: its element of A times both vectors of B. `type` is "s" or "d". */
#define MU_TILE_ROW(type, i, element)                                                              \
    "vbroadcasts" type " " element ", %%ymm2\n\t"                                                  \
    "vfmadd231p" type " %%ymm0, %%ymm2, %[s" #i "0]\n\t"                                           \
    "vfmadd231p" type " %%ymm1, %%ymm2, %[s" #i "1]\n\t"

#define MU_TILE_ROW_OF_B(u)                                                                        \
    "vmovups 64*" #u "(%[b]), %%ymm0\n\t"                                                          \
    "vmovups 64*" #u "+32(%[b]), %%ymm1\n\t"

/* k = u of an unpacked A: unit stride along k, rows r bytes apart. */
#define MU_TILE_UNPACKED(type, size, u)                                                            \
    MU_TILE_ROW_OF_B(u)                                                                            \
    MU_TILE_ROW(type, 0, size "*" #u "(%[a])")                                                     \
    MU_TILE_ROW(type, 1, size "*" #u "(%[a],%[r])")                                                \
    MU_TILE_ROW(type, 2, size "*" #u "(%[a],%[r],2)")                                              \
    MU_TILE_ROW(type, 3, size "*" #u "(%[a],%[r3])")                                               \
    MU_TILE_ROW(type, 4, size "*" #u "(%[a],%[r],4)")                                              \
    MU_TILE_ROW(type, 5, size "*" #u "(%[a],%[r5])")

/* k = u of a packed A. */
#define MU_TILE_PACKED(type, size, u)                                                              \
    MU_TILE_ROW_OF_B(u)                                                                            \
    MU_TILE_ROW(type, 0, size "*(6*" #u ")(%[a])")                                                 \
    MU_TILE_ROW(type, 1, size "*(6*" #u "+1)(%[a])")                                               \
    MU_TILE_ROW(type, 2, size "*(6*" #u "+2)(%[a])")                                               \
    MU_TILE_ROW(type, 3, size "*(6*" #u "+3)(%[a])")                                               \
    MU_TILE_ROW(type, 4, size "*(6*" #u "+4)(%[a])")                                               \
    MU_TILE_ROW(type, 5, size "*(6*" #u "+5)(%[a])")

#define MU_TILE_ZERO(i)                                                                            \
    "vxorps %[s" #i "0], %[s" #i "0], %[s" #i "0]\n\t"                                             \
    "vxorps %[s" #i "1], %[s" #i "1], %[s" #i "1]\n\t"

#define MU_TILE_SUM(i) [s##i##0] "=&x"(sum[i][0]), [s##i##1] "=&x"(sum[i][1])

/* n times eight k; A advances by `width` elements for each. */
#define MU_TILE_LOOP(one_k, type, size, width)                                                     \
    __asm__ volatile(                                                                              \
        MU_TILE_ZERO(0) MU_TILE_ZERO(1) MU_TILE_ZERO(2) MU_TILE_ZERO(3) MU_TILE_ZERO(4)            \
            MU_TILE_ZERO(5) ".p2align 5\n"                                                         \
                            "1:\n\t" one_k(type, size, 0) one_k(type, size, 1)                     \
                                one_k(type, size, 2) one_k(type, size, 3) one_k(type, size, 4)     \
                                    one_k(type, size, 5) one_k(type, size, 6)                      \
                                        one_k(type, size, 7) "add $8*" size "*" width ", %[a]\n\t" \
                                                             "add $8*64, %[b]\n\t"                 \
                                                             "dec %[n]\n\t"                        \
                                                             "jnz 1b"                              \
        : MU_TILE_SUM(0), MU_TILE_SUM(1), MU_TILE_SUM(2), MU_TILE_SUM(3), MU_TILE_SUM(4),          \
          MU_TILE_SUM(5), [a] "+r"(from_a), [b] "+r"(from_b), [n] "+r"(n)                          \
        : [r] "r"(r), [r3] "r"(3 * r), [r5] "r"(5 * r)                                             \
        : "xmm0", "xmm1", "xmm2", "cc", "memory")

/* clang-format on */

/* Compilers that know __asm__ know longer strings than ISO C asks for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* sum = the products of 8 n terms, n >= 1; a and b advance. `unpacked`, a constant: a has unit
 * stride along k and rows a_row apart; else it is packed. b is packed. */
#define MU_TILE_EIGHTS(name, T, V, type, size)                                                     \
    static inline __attribute__((always_inline)) void name(                                        \
        const bool unpacked, size_t n, const T **a, ptrdiff_t a_row, const T **b, V sum[6][2])     \
    {                                                                                              \
        const T *from_a = *a, *from_b = *b;                                                        \
        ptrdiff_t r = a_row * (ptrdiff_t)sizeof(T);                                                \
        if (unpacked) {                                                                            \
            MU_TILE_LOOP(MU_TILE_UNPACKED, type, size, "1");                                       \
        } else {                                                                                   \
            MU_TILE_LOOP(MU_TILE_PACKED, type, size, "6");                                         \
        }                                                                                          \
        *a = from_a;                                                                               \
        *b = from_b;                                                                               \
    }

MU_TILE_EIGHTS(vf_eights, float, vf_t, "s", "4")
MU_TILE_EIGHTS(vd_eights, double, vd_t, "d", "8")

#pragma GCC diagnostic pop

#endif
