/*
 * int8.h: the contract between the fixed-point products (fixed.c) and the code that is written
 * once per instruction set (kernels/int8_*.c).
 *
 * A fixed-point product multiplies digits. A line (a row of A, or a column of B) is divided by a
 * power of two, rounded to an integer of 8 D - 1 bits, and split into D signed 8-bit digits:
 *
 *     x = 2^e (q0 / 2^7 + q1 / 2^15 + q2 / 2^23),      D = 2 or 3
 *
 * A tile adds up the products of digits by their weight, exactly, in int32:
 *
 *     S_w = sum over k and over p + q = w of A_p B_q,      w = 0, 1, 2
 *
 * With D = 3 the products of weight 3 and 4 are left out: they are below the rounding of the
 * digits. Integer sums do not depend on their order, and every other operation is rounded by
 * itself. So all kernels give the same bits.
 *
 * Packed digits: a word holds four digits of one line, those of k = 4g to 4g + 3. A micropanel has
 * mr lines of A or nr lines of B, and its words are ordered
 *
 *     [g / G] [digit] [line / L] [g % G] [line % L]
 *
 * where the kernel chooses G and L. G = 1 and L = all lines suit instructions that multiply a
 * vector of lines by a broadcast word; tiles of a matrix unit take G = 16.
 */
#ifndef MU_INT8_H
#define MU_INT8_H

#include "base/base.h"

enum {
    MU_MAX_DIGITS = 3,
    MU_SUMS = 3,       /* S_0, S_1 and S_2 */
    MU_FIXED_K = 2048, /* terms of an integer sum at most: longer sums are cut into such k-blocks */
    MU_LINE_GROUP = 64 /* lines packed at a time: whole micropanels of every kernel */
};

/* Numbers to be split into digits. Element (line, k) is scale * data + other_scale * other, less
 * `diagonal` where k == line + offset. */
typedef struct mu_digit_source {
    const float *data;               /* element (0, 0) */
    ptrdiff_t line_stride, k_stride; /* in elements; one of them is 1 */
    float scale;
    const float *other; /* NULL, or a second matrix with the same strides */
    float other_scale;
    float diagonal;
    ptrdiff_t offset;
} mu_digit_source;

/* What becomes of the sums of a tile. Of element (i, j)
 *
 *     v = (S_0 + (S_1 + S_2 / 256) / 256) row_unit[i] col_unit[j] + before
 *     c = v + sum of factor * term + shift if j == i + offset
 *     sum = [sum +] sum_factor * c
 *
 * in this order, every operation rounded to f32. */
typedef struct mu_fixed_epilogue {
    struct {
        const float *data; /* element (0, 0); may be c itself */
        ptrdiff_t row_stride, col_stride;
        float factor;
    } terms[6];
    size_t term_count;
    float shift;
    ptrdiff_t offset;
    const float *before; /* NULL, or sums of earlier k-blocks; may be c itself */
    ptrdiff_t before_ld;
    float *sum; /* NULL, or where sum = [sum +] sum_factor * c goes */
    ptrdiff_t sum_ld;
    float sum_factor;
    bool accumulate;
    float *mirror; /* NULL, or where the transpose of c, or of sum, of a whole tile goes */
    ptrdiff_t mirror_ld;
    bool mirror_sum;
} mu_fixed_epilogue;

/* The end of a tile: the epilogue of its sums [S_w][row][column], of which rows x cols elements of
 * C exist. */
typedef struct mu_tile_end {
    const int32_t *sums;
    size_t rows, cols;
    const float *row_unit, *col_unit;
    mu_fixed_epilogue f;
    float *c;
    ptrdiff_t ldc;
} mu_tile_end;

/* What else a tile of an interleaved kernel does. */
typedef struct mu_meanwhile {
    const mu_tile_end *end; /* NULL, or the end of an earlier tile to be applied */
    const char *ahead;      /* memory to be brought into the cache */
    size_t bytes;           /* of that */
} mu_meanwhile;

/* Split `lines` lines, times their units, into digits, in micropanels one after the other. Lines up
 * to whole micropanels, and k up to 4 * groups, become zero. */
typedef void mu_pack_digits(int digits, const mu_digit_source *source, size_t lines, size_t k,
                            size_t groups, const float *unit, void *packed);

typedef struct mu_int8_kernel {
    const char *name;
    mu_features needs;
    size_t mr, nr;
    size_t groups; /* G: micropanels hold a multiple of so many words per line */
    bool by_rows;  /* lines are packed fastest if k is adjacent in memory, and A only so */

    /* `tile` applies the end of an earlier tile while it multiplies, because the matrix unit works
     * beside the vector units; and ends write mirror images. */
    bool interleaved;

    /* Before and after a thread multiplies tiles; NULL: nothing to do. */
    void (*enter)(void);
    void (*leave)(void);

    /* c[w][i][j] = start[w][i] + S_w, for D digits and `groups` words per line. If
     * `interleaved`, the end is of other sums; otherwise `meanwhile` is not read. */
    void (*tile)(int digits, size_t groups, const void *a, const void *b, const int32_t *start,
                 int32_t *c, const mu_meanwhile *meanwhile);

    /* start[w][i] of a micropanel of A. NULL: `start` is not read. */
    void (*start)(int digits, size_t groups, const void *a, int32_t *start);

    /* The largest magnitude of each of `lines` lines over k elements, as the bits of an f32. A
     * larger number has larger bits, and NaN the largest of all. */
    void (*largest)(const mu_digit_source *source, size_t lines, size_t k, uint32_t *bits);

    mu_pack_digits *pack_a, *pack_b;

    /* NULL, or the micropanel of B with the lines of this one of A. */
    void (*transpose)(int digits, size_t groups, const void *a, void *b);

    /* The end of a tile. */
    void (*combine)(const mu_tile_end *end);
} mu_int8_kernel;

/* All kernels compiled in, from 0; NULL past the last. Those that need features which the CPU lacks
 * must not be called. */
const mu_int8_kernel *mu_int8_at(size_t index);

/* The kernel in use: the most capable that the CPU and MUONIUM_CPU allow. Fails as
 * mu_kernel_choose does. */
muonium_status mu_int8_choose(const mu_int8_kernel **kernel);

#endif
