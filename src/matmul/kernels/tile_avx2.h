/*
 * tile_avx2.h: the loop of a 6 x 16 (f32) or 6 x 8 (f64) tile, by hand. 12 of 16 registers hold
 * sums, two a step of B, one an element of A: none is left for a compiler to be clever with,
 * and gcc 12 spills sums or moves them about as soon as steps are unrolled. That costs a tenth
 * of the speed; this is all of the loop that matters, and nothing else is written so.
 *
 * EIGHT steps lie between branches: a loop of 256 branches ends with a misprediction, one of 32
 * does not, which is 1 % of a tile.
 */
#ifndef MU_TILE_AVX2_H
#define MU_TILE_AVX2_H

#include "matmul/kernels/vector_avx2.h"

/* A step: two vectors of B, and each of six rows of A times both. `type` is "s" or "d", `size`
 * its bytes, u the number of the step, `row` a macro that says where a row's element is. */
#define MU_TILE_ROW(type, i, address)                                                              \
    "vbroadcasts" type " " address ", %%ymm2\n\t"                                                  \
    "vfmadd231p" type " %%ymm0, %%ymm2, %[s" #i "0]\n\t"                                           \
    "vfmadd231p" type " %%ymm1, %%ymm2, %[s" #i "1]\n\t"

#define MU_TILE_STEP(type, fetch, u, row0, row1, row2, row3, row4, row5)                           \
    "vmovups 64*" #u "(%[b]), %%ymm0\n\t"                                                          \
    "vmovups 64*" #u "+32(%[b]), %%ymm1\n\t" fetch(u) MU_TILE_ROW(type, 0, row0)                   \
        MU_TILE_ROW(type, 1, row1) MU_TILE_ROW(type, 2, row2) MU_TILE_ROW(type, 3, row3)           \
            MU_TILE_ROW(type, 4, row4) MU_TILE_ROW(type, 5, row5)

/* Steps of a row adjacent, rows r bytes apart; or packed, rows adjacent. */
#define MU_TILE_PLAIN(type, size, fetch, u)                                                        \
    MU_TILE_STEP(type, fetch, u, size "*" #u "(%[a])", size "*" #u "(%[a],%[r])",                  \
                 size "*" #u "(%[a],%[r],2)", size "*" #u "(%[a],%[r3])",                          \
                 size "*" #u "(%[a],%[r],4)", size "*" #u "(%[a],%[r5])")
#define MU_TILE_PACKED(type, size, fetch, u)                                                       \
    MU_TILE_STEP(type, fetch, u, size "*(6*" #u ")(%[a])", size "*(6*" #u "+1)(%[a])",             \
                 size "*(6*" #u "+2)(%[a])", size "*(6*" #u "+3)(%[a])",                           \
                 size "*(6*" #u "+4)(%[a])", size "*(6*" #u "+5)(%[a])")

/* B is in the nearest cache, or comes from the next one: fetched 16 steps ahead. */
#define MU_TILE_NEAR(u)
#define MU_TILE_FAR(u) "prefetcht0 64*(" #u "+16)(%[b])\n\t"

#define MU_TILE_EIGHT(steps, type, size, fetch)                                                    \
    steps(type, size, fetch, 0) steps(type, size, fetch, 1) steps(type, size, fetch, 2)            \
        steps(type, size, fetch, 3) steps(type, size, fetch, 4) steps(type, size, fetch, 5)        \
            steps(type, size, fetch, 6) steps(type, size, fetch, 7)

#define MU_TILE_ZERO(i) "vxorps %[s" #i "], %[s" #i "], %[s" #i "]\n\t"

#define MU_TILE_LOOP(steps, type, size, fetch, a_bytes)                                            \
    __asm__ volatile(MU_TILE_ZERO(00) MU_TILE_ZERO(01) MU_TILE_ZERO(10) MU_TILE_ZERO(11)           \
                         MU_TILE_ZERO(20) MU_TILE_ZERO(21) MU_TILE_ZERO(30) MU_TILE_ZERO(31)       \
                             MU_TILE_ZERO(40) MU_TILE_ZERO(41) MU_TILE_ZERO(50) MU_TILE_ZERO(      \
                                 51) ".p2align 5\n\t"                                              \
                                     "1:\n\t" MU_TILE_EIGHT(steps, type, size,                     \
                                                            fetch) "add $8*" a_bytes ", %[a]\n\t"  \
                                                                   "add $8*64, %[b]\n\t"           \
                                                                   "dec %[n]\n\t"                  \
                                                                   "jnz 1b"                        \
                     : [s00] "=&x"(sum[0][0]), [s01] "=&x"(sum[0][1]), [s10] "=&x"(sum[1][0]),     \
                       [s11] "=&x"(sum[1][1]), [s20] "=&x"(sum[2][0]), [s21] "=&x"(sum[2][1]),     \
                       [s30] "=&x"(sum[3][0]), [s31] "=&x"(sum[3][1]), [s40] "=&x"(sum[4][0]),     \
                       [s41] "=&x"(sum[4][1]), [s50] "=&x"(sum[5][0]), [s51] "=&x"(sum[5][1]),     \
                       [a] "+r"(at_a), [b] "+r"(at_b), [n] "+r"(n)                                 \
                     : [r] "r"(r), [r3] "r"(3 * r), [r5] "r"(5 * r)                                \
                     : "xmm0", "xmm1", "xmm2", "cc", "memory")

/* Compilers that know __asm__ know longer strings than ISO C asks for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* sum = n >= 1 times eight steps of a times b, which move on. `plain` and `far` are constants. */
static inline __attribute__((always_inline)) void vf_eights(const bool plain, const bool far,
                                                            size_t n, const float **a,
                                                            ptrdiff_t a_row, const float **b,
                                                            vf_t sum[6][2])
{
    const float *at_a = *a, *at_b = *b;
    ptrdiff_t r = a_row * (ptrdiff_t)sizeof **a;
    if (plain && far) {
        MU_TILE_LOOP(MU_TILE_PLAIN, "s", "4", MU_TILE_FAR, "4");
    } else if (plain) {
        MU_TILE_LOOP(MU_TILE_PLAIN, "s", "4", MU_TILE_NEAR, "4");
    } else if (far) {
        MU_TILE_LOOP(MU_TILE_PACKED, "s", "4", MU_TILE_FAR, "24");
    } else {
        MU_TILE_LOOP(MU_TILE_PACKED, "s", "4", MU_TILE_NEAR, "24");
    }
    *a = at_a;
    *b = at_b;
}

static inline __attribute__((always_inline)) void vd_eights(const bool plain, const bool far,
                                                            size_t n, const double **a,
                                                            ptrdiff_t a_row, const double **b,
                                                            vd_t sum[6][2])
{
    const double *at_a = *a, *at_b = *b;
    ptrdiff_t r = a_row * (ptrdiff_t)sizeof **a;
    if (plain && far) {
        MU_TILE_LOOP(MU_TILE_PLAIN, "d", "8", MU_TILE_FAR, "8");
    } else if (plain) {
        MU_TILE_LOOP(MU_TILE_PLAIN, "d", "8", MU_TILE_NEAR, "8");
    } else if (far) {
        MU_TILE_LOOP(MU_TILE_PACKED, "d", "8", MU_TILE_FAR, "48");
    } else {
        MU_TILE_LOOP(MU_TILE_PACKED, "d", "8", MU_TILE_NEAR, "48");
    }
    *a = at_a;
    *b = at_b;
}

#pragma GCC diagnostic pop

#endif
