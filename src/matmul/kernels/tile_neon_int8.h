/*
 * tile_neon_int8.h: the frame of the loops of fixed-point tiles on Arm. 24 registers hold the sums,
 * eight of each weight: sum[w][i][j], with four i and two j. The loops are assembly for the reason
 * that tile_neon.h gives.
 */
#ifndef MU_TILE_NEON_INT8_H
#define MU_TILE_NEON_INT8_H

/* clang-format off */

#define MU_INT8_ZERO(w, i, j) "movi %[s" #w #i #j "].4s, #0\n\t"
#define MU_INT8_SUM(w, i, j) [s##w##i##j] "=&w"(sum[w][i][j])
#define MU_INT8_EIGHT(f, w)                                                                        \
    f(w, 0, 0) f(w, 0, 1) f(w, 1, 0) f(w, 1, 1) f(w, 2, 0) f(w, 2, 1) f(w, 3, 0) f(w, 3, 1)
#define MU_INT8_SUMS(w)                                                                            \
    MU_INT8_SUM(w, 0, 0), MU_INT8_SUM(w, 0, 1), MU_INT8_SUM(w, 1, 0), MU_INT8_SUM(w, 1, 1),        \
    MU_INT8_SUM(w, 2, 0), MU_INT8_SUM(w, 2, 1), MU_INT8_SUM(w, 3, 0), MU_INT8_SUM(w, 3, 1)

/* Zero the sums, then `body` until %[b] has advanced by `bytes`. */
#define MU_NEON_INT8_LOOP(body, bytes)                                                             \
    do {                                                                                           \
        const char *from_a = a, *from_b = b, *end = from_b + (bytes);                              \
        __asm__ volatile(                                                                          \
            MU_INT8_EIGHT(MU_INT8_ZERO, 0) MU_INT8_EIGHT(MU_INT8_ZERO, 1)                          \
            MU_INT8_EIGHT(MU_INT8_ZERO, 2)                                                         \
            "cmp %[b], %[end]\n\t"                                                                 \
            "b.eq 2f\n"                                                                            \
            ".p2align 4\n"                                                                         \
            "1:\n\t" body                                                                          \
            "cmp %[b], %[end]\n\t"                                                                 \
            "b.ne 1b\n"                                                                            \
            "2:"                                                                                   \
            : MU_INT8_SUMS(0), MU_INT8_SUMS(1), MU_INT8_SUMS(2), [a] "+&r"(from_a),                \
              [b] "+&r"(from_b)                                                                    \
            : [end] "r"(end)                                                                       \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "cc", "memory");                     \
    } while (0)

/* clang-format on */

/* Compilers that know __asm__ know longer strings than ISO C asks for. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

#endif
