/*
 * kernel.h: the micro-kernel: the contract between the products (product.h) and the code that is
 * written once per instruction set (kernels/).
 *
 * A kernel works in one real type T, f32 or f64. A product C = A B is computed in tiles of mr x nr
 * elements of C, which stay in registers. The sum over k is divided into k-blocks of at most kc.
 * Operands are packed into micropanels that a tile reads contiguously:
 *
 *      A-panel, mr rows                     B-panel, nr columns
 *      k = 0: a(0,0) a(1,0) .. a(mr-1,0)    k = 0: b(0,0) b(0,1) .. b(0,nr-1)
 *      k = 1: a(0,1) a(1,1) .. a(mr-1,1)    k = 1: b(1,0) b(1,1) .. b(1,nr-1)
 *      ...                                  ...
 *
 * The two differ in width alone. A row of A or a column of B is called a line: a micropanel is
 * `width` lines by k. Lines beyond the matrix are zeros, so a tile always computes whole vectors
 * and only its store knows the edge. Small operands that need no conversion may stay unpacked.
 *
 * A kernel may multiply bf16 where the CPU has instructions for that. T is then f32, packing rounds
 * to bf16, and two consecutive k share one 32-bit element of a panel. Sums stay f32. Products of
 * bf16 numbers are exact in f32. With AVX512-BF16 sums are in the same order, so the bits are those
 * of the f32 kernel, except for operands and sums below 2^-126, which these instructions treat as
 * zero.
 *
 * A matrix unit (AMX) adds 32 k at a time: the products of even k and those of odd k, each in order
 * by fused multiply-adds onto zero, are two sums; both are added, and the result is added to the
 * sum so far. Numbers below 2^-126 count as zero. So such a kernel has bits of its own. An A-panel
 * holds 16 pairs of each line together, [k / 32][line][16 pairs].
 *
 * Order of summation. Within a k-block, products are added in order of k onto zero, each by one
 * fused multiply-add (portable: a multiplication and an addition). The k-blocks are added in order
 * of k. The position in the tile, the variant of the tile and the threads change nothing: results
 * are bit-identical because of this.
 */
#ifndef MU_KERNEL_H
#define MU_KERNEL_H

#include "vector/rows.h"

#define MU_K_UNROLL 8 /* tiles are fastest if the length of a k-block is a multiple of this */

#define MU_BLOCK 96 /* rows and columns of a block of C; every mr and nr divides it */

/* A packing source: lines by k of scale * data + other_scale * other + shift * I. */
typedef struct mu_pack_source {
    const void *data; /* line 0, k = 0; aligned to its element type */
    muonium_dtype dtype;
    ptrdiff_t line_stride; /* in elements; any sign */
    ptrdiff_t k_stride;
    double scale;
    const void *other;  /* NULL, or of type T with the strides of data, one of them being 1 */
    double other_scale; /* if there is an other, data is of type T too */
    double shift;       /* added where k == line + diagonal */
    ptrdiff_t diagonal;
    bool streaming; /* not in cache: prefetch */
} mu_pack_source;

/* Packs any number of lines by k into micropanels of `width` lines (mr for pack_a, nr for pack_b),
 * which start panel_stride elements, of the type of operands, apart. Writes width * k elements of
 * each panel, k being rounded up to whole k-groups; k beyond the last are zero. Reads nothing
 * outside the source. */
typedef void mu_pack(const mu_pack_source *source, size_t lines, size_t k, void *packed,
                     size_t panel_stride);

typedef struct mu_kernel {
    const char *name;
    mu_features needs;
    muonium_dtype type;     /* T: MUONIUM_F32 or MUONIUM_F64 */
    muonium_dtype operands; /* the type that is multiplied: T, or MUONIUM_BF16 in pairs of k */

    /* Blocksizes: the table is kernels/kernels.def, the measurements are in docs/experiments.md. */
    size_t mr, nr;
    size_t kc;           /* longest k-block; one value for all kernels, on which their bits rest */
    size_t grain;        /* column granularity of the tile; a power of two */
    size_t k_group;      /* packed k-blocks are whole groups of so many k; a power of two */
    size_t unpacked_b;   /* largest m for which B, if symmetric or X of a gram, stays unpacked */
    size_t b_pass_bytes; /* bytes of B packed per pass; chosen to fit L2 */

    bool own_bits; /* it sums in an order of its own, which other kernels do not have */

    /* Before and after a thread multiplies tiles; NULL: nothing to do. */
    void (*enter)(void);
    void (*leave)(void);

    /* c (rows x cols, ldc elements apart, unit column stride) = [c +] sum over k of a * b. If k >
     * kc, the sum is formed in two k-blocks, the first of length kc. rows <= mr and cols <= nr.
     * Without `accumulate` c is not read.
     *
     * a is mr rows, a_row elements apart, by k, a_k apart. b is k rows, b_k apart, of adjacent
     * columns. A packed micropanel has a_row = 1, a_k = mr, b_k = nr; an unpacked matrix any. All
     * mr rows are read, and cols columns rounded up to whole grains. No alignment beyond T's.
     * Pairs: operands are packed. The second k-block starts at a whole k-group. */
    void (*tile)(size_t k, size_t kc, const void *a, ptrdiff_t a_row, ptrdiff_t a_k, const void *b,
                 ptrdiff_t b_k, void *c, ptrdiff_t ldc, size_t rows, size_t cols, bool accumulate);

    mu_pack *pack_a, *pack_b;

    const mu_rows *rows; /* row operations of the same type and instruction set */
} mu_kernel;

/* The kernel in use for products of operands of a type. For a half type: a kernel that multiplies
 * it where there is one and it is faster, else that of f32. Chosen once per process from the CPU
 * and MUONIUM_CPU; for bf16 by a measurement of a millisecond, unless that variable decides. */
muonium_status mu_kernel_choose(muonium_dtype type, const mu_kernel **kernel);

/* Whether to use a kernel that multiplies a half type, by its operations per second and those of
 * f32. It packs every operand, which costs small matrices most (docs/experiments.md). */
bool mu_prefer_native(double native, double f32);

/* All kernels compiled in, from 0; NULL past the last. Only those whose needs the CPU has may be
 * called. */
const mu_kernel *mu_kernel_at(size_t index);

/* Multiply and add in registers alone, `rounds` times, with the instructions of a kernel's tile.
 * Returns the number of floating-point operations: the peak that speed is measured against.
 * 0 for a kernel that is not one of mu_kernel_at's. */
double mu_kernel_burst(const mu_kernel *kernel, size_t rounds);

#endif
