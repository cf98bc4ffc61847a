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

#include "base/base.h"

#define MU_STEPS 8 /* tiles take whole numbers of so many steps fastest */

/* The loop that follows has a constant number of turns, at most 16, and is to become as many
 * copies of its body: an array that it goes through may then be registers. */
#if defined(__clang__)
#define MU_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define MU_UNROLLED _Pragma("GCC unroll 16")
#endif

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

/* A rectangle of a matrix in memory. */
typedef struct mu_block {
    void *data; /* its element (0, 0) */
    muonium_dtype dtype;
    ptrdiff_t row_stride;
    ptrdiff_t col_stride;
    size_t rows;
    size_t cols;
} mu_block;

/* c = scale * c + sum of factor * data + shift * I;  sum = [sum +] sum_factor * c. All point to
 * the first element of the rectangle in question. */
typedef struct mu_epilogue {
    double scale;
    struct {
        const void *data;
        ptrdiff_t ld;
        double factor;
    } terms[3];
    size_t term_count;
    double shift; /* if it lies on the diagonal */
    void *sum;    /* NULL: none */
    ptrdiff_t sum_ld;
    double sum_factor;
    bool accumulate; /* without it, sum is not read */
} mu_epilogue;

/* Whether memory runs down the columns of a matrix rather than along its rows. */
static inline bool mu_runs_down(ptrdiff_t row_stride, ptrdiff_t col_stride)
{
    ptrdiff_t down = row_stride < 0 ? -row_stride : row_stride;
    return down < (col_stride < 0 ? -col_stride : col_stride);
}

/* What one pass over a row finds. */
typedef struct mu_row_stats {
    double sum_squares; /* of all elements times `scale`, in double */
    double largest;     /* magnitude, unscaled; NaN or infinity if the row has any */
} mu_row_stats;

/* The larger of two magnitudes; NaN if either is. */
static inline double mu_larger(double a, double b)
{
    return a >= b || a != a ? a : b;
}

typedef struct mu_kernel {
    const char *name;
    mu_isa isa;
    muonium_dtype type;     /* T: MUONIUM_F32 or MUONIUM_F64 */
    muonium_dtype operands; /* what it multiplies: T, or MUONIUM_BF16 in pairs of steps */
    size_t mr, nr, kc;
    size_t grain; /* columns of a tile are read and computed so many at a time, 2^i */
    /* What was measured to be fastest (docs/performance.md): */
    size_t plain_right; /* right operands that are plain symmetric matrices, or X of a gram matrix,
                           are read where they lie up to this m, and factors multiplied out; */
    size_t strip_bytes; /* above they are packed so much at a time: a core's own cache keeps it.
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

    /* Copy the part of c below the diagonal that lies in rows [i0, i1) and columns
     * [j0, j1) to the mirrored place above. */
    void (*mirror)(void *c, ptrdiff_t ldc, size_t i0, size_t i1, size_t j0, size_t j1);

    /* c (rows x cols, ldc apart), a product that is complete, becomes what `f` says. With
     * `lower` it lies on the diagonal and only what is on and below that counts: beyond it
     * rows may change up to the next multiple of nr columns. */
    void (*finish)(void *c, ptrdiff_t ldc, size_t rows, size_t cols, bool lower,
                   const mu_epilogue *f);

    /* Convert a rectangle to T (dense rows, ld apart), or T to it: rounded once, to
     * nearest even. */
    void (*load)(const mu_block *from, void *to, size_t ld);
    void (*store)(const void *from, size_t ld, const mu_block *to);

    /* One row of n elements of type T, consecutive. */
    mu_row_stats (*row_stats)(const void *row, size_t n, double scale);
    double (*row_squares)(const void *row, size_t n, double scale); /* its first half alone */
    double (*row_abs_sum)(const void *row, size_t n);
    void (*row_scale)(void *row, size_t n, double factor);
    /* to = [to +] factor * from. Without `accumulate` to is not read. */
    void (*row_add)(void *to, const void *from, size_t n, double factor, bool accumulate);
    /* row = round(row) to a half type (T = f32), as storing and loading it would. */
    void (*row_round)(void *row, size_t n, muonium_dtype half);
    /* to = round(alpha * round(to) + beta * from): see the half modes. */
    void (*row_combine)(void *to, double alpha, const void *from, double beta, size_t n,
                        muonium_dtype half);

    /* Multiply and add in registers only, `rounds` times, and return how many floating-
     * point operations that were: the peak against which speed is measured. */
    double (*burst)(size_t rounds);
} mu_kernel;

/* The kernel in use for products of operands of a type: of a half type, one that multiplies it
 * where there is one and it is faster, else that of f32. Chosen once per process from the CPU and
 * MUONIUM_CPU, for bf16 by a millisecond of measuring unless that variable decides. */
MU_SHARED muonium_status mu_kernel_choose(muonium_dtype type, const mu_kernel **kernel);

/* Whether a kernel that multiplies a half type is to be used, by its operations per second and
 * those of f32. It packs every operand, which costs small matrices most: at 1.2 times the rate
 * the two break even between 128 and 256 rows. */
bool mu_prefer_native(double native, double f32);

/* All kernels compiled in, from 0; NULL past the last. Those above the CPU's
 * instruction set must not be called. */
const mu_kernel *mu_kernel_at(size_t index);

#endif
