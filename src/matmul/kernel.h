/*
 * kernel.h: the contract between the products (product.h) and the code that is
 * written once per instruction set (kernels/).
 *
 * A kernel works in one real type T, f32 or f64. A product C = A B is cut into
 * tiles of mr x nr elements of C, and the sum over k into blocks of at most kc. A tile is
 * given two, with which a panel of A fits into the nearest cache.
 * Operands are packed so that a tile reads memory straight ahead, or, small and plain,
 * read where they lie:
 *
 *      A, panel of mr rows                 B, panel of nr columns
 *      step 0: a(0,0) a(1,0) .. a(mr-1,0)  step 0: b(0,0) b(0,1) .. b(0,nr-1)
 *      step 1: a(0,1) a(1,1) .. a(mr-1,1)  step 1: b(1,0) b(1,1) .. b(1,nr-1)
 *      ...                                 ...
 *
 * Seen so, the two differ only in width: both are `width` lanes by k steps, a
 * lane being a row of A or a column of B. Lanes beyond the matrix hold zeros,
 * so a tile always computes whole and only its store heeds the edge.
 *
 * A kernel may multiply bf16 instead, where the CPU has instructions for that: T is f32, what it
 * packs is rounded to bf16, and two steps make one element of a panel, half as long then. Sums
 * stay f32 and in the same order, so that of operands that bf16 holds, whose products are exact,
 * it makes the same bits (but for operands and sums below 2^-126, which such instructions take for
 * zero).
 *
 * Summation order, on which bit-identical results rest: within a block the
 * products are added in order of k onto zero, each by one fused multiply-add
 * (portable: a multiplication and an addition); blocks are added in order of k.
 * Neither the place of an element in its tile, nor the tile variant, nor
 * threads change that.
 */
#ifndef MU_KERNEL_H
#define MU_KERNEL_H

#include "vector/rows.h"

#define MU_STEPS 8 /* tiles take whole numbers of so many steps fastest */

#define MU_BLOCK 96 /* every kernel's mr and nr divide it: diagonal tiles end with their block */

/* Lanes by steps of scale * data + other_scale * other + shift * I, to be packed. */
typedef struct mu_lanes {
    const void *data; /* lane 0, step 0; any element alignment that dtype has */
    muonium_dtype dtype;
    ptrdiff_t lane_stride; /* in elements; any sign */
    ptrdiff_t step_stride;
    double scale;
    const void *other;  /* NULL, or of type T with the strides of data, one of them being 1 */
    double other_scale; /* then data is of type T too */
    double shift;       /* added where step == lane + diagonal */
    ptrdiff_t diagonal;
    bool distant; /* not in a near cache: fetch ahead */
} mu_lanes;

typedef struct mu_kernel {
    const char *name;
    mu_features needs;
    muonium_dtype type;     /* T: MUONIUM_F32 or MUONIUM_F64 */
    muonium_dtype operands; /* what it multiplies: T, or MUONIUM_BF16 in pairs of steps */
    size_t mr, nr, kc;
    size_t grain; /* columns of a tile are read and computed so many at a time, 2^i */
    /* What was measured to be fastest (docs/performance.md): */
    size_t unpacked_b;   /* right operands that are plain symmetric matrices, or X of a gram matrix,
                           are read where they lie up to this m, and factors multiplied out; */
    size_t b_pass_bytes; /* above they are packed so much at a time: a core's own cache keeps it.
                           A matrix of no more is near */

    /* c (rows x cols, ldc elements apart, unit column stride) = [c +] sum over k of
     * a * b: if k is longer than `block`, in two blocks, the first that long. rows <= mr and
     * cols <= nr. Without `accumulate` c is not read. a is mr rows by k steps at any strides,
     * b is k steps by adjacent columns: packed panels, with steps mr and nr apart, or
     * matrices where they lie. All mr rows are read, and cols columns rounded up to whole
     * grains. No alignment beyond T's. Of pairs, `block` is even if k is
     * longer, and panels are packed. */
    void (*tile)(size_t k, size_t block, const void *a, ptrdiff_t a_row, ptrdiff_t a_step,
                 const void *b, ptrdiff_t b_step, void *c, ptrdiff_t ldc, size_t rows, size_t cols,
                 bool accumulate);

    /* Pack any number of lanes by `steps` steps into panels of `width` lanes (mr for _a,
     * nr for _b) that start panel_stride elements, of the type of operands, apart. Writes
     * width * steps elements of each panel, of pairs a whole number of them, the step beyond the
     * last being zero; reads nothing outside the source. */
    void (*pack_a)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                   size_t panel_stride);
    void (*pack_b)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                   size_t panel_stride);

    const mu_rows *rows; /* row operations of the same type and instruction set */
} mu_kernel;

/* The kernel in use for products of operands of a type: of a half type, one that multiplies it
 * where there is one and it is faster, else that of f32. Chosen once per process from the CPU and
 * MUONIUM_CPU, for bf16 by a millisecond of measuring unless that variable decides. */
muonium_status mu_kernel_choose(muonium_dtype type, const mu_kernel **kernel);

/* Whether a kernel that multiplies a half type is to be used, by its operations per second and
 * those of f32. It packs every operand, which costs small matrices most: at 1.2 times the rate
 * the two break even between 128 and 256 rows. */
bool mu_prefer_native(double native, double f32);

/* All kernels compiled in, from 0; NULL past the last. Those above the CPU's
 * instruction set must not be called. */
const mu_kernel *mu_kernel_at(size_t index);

/* Multiply and add in registers alone, `rounds` times, with the instructions of a kernel's tile.
 * Returns how many floating-point operations that were: the peak that speed is measured against.
 * 0 for a kernel that is not one of mu_kernel_at's. */
double mu_kernel_burst(const mu_kernel *kernel, size_t rounds);

#endif
