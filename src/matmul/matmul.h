/*
 * matmul.h: the three products of the iteration.
 *
 *     gram    C = X X^T   one triangle is computed, then mirrored
 *     symmul  C = A B     A, B symmetric and commuting: one triangle is computed, then mirrored
 *     apply   Y = A X     A symmetric, or any A if Y is stored by rows
 *
 * Every operand may be a combination s*M + t*N + d*I, which is formed while it is packed, or
 * multiplied out where nothing is packed. So b*R + c*R^2 is the product (c*R + b*I) R, and
 * a*X + Z X is (Z + a*I) X: neither needs a pass over memory of its own.
 *
 * Parallel over tiles of the result only, so threads never change a bit.
 */
#ifndef MU_MATMUL_H
#define MU_MATMUL_H

#include "matmul/int8.h"
#include "matmul/kernel.h"

typedef struct mu_operand {
    const void *data; /* M */
    muonium_dtype dtype;
    ptrdiff_t row_stride; /* in elements */
    ptrdiff_t col_stride;
    double scale;       /* s */
    const void *other;  /* N: NULL, or like M, both of the kernel's type with unit col_stride */
    double other_scale; /* t */
    double shift;       /* d */
} mu_operand;

/* The operand s*M + d*I for a matrix of the kernel's type in our own layout. */
mu_operand mu_operand_of(const mu_kernel *kernel, const void *data, size_t ld, double scale,
                         double shift);

/* About the side of the blocks of a symmetric product of m rows that workers share. */
size_t mu_shared_block(size_t m);

/* Distance between rows of our own matrices with n columns: whole cache lines, and
 * not a multiple of the page size, which would put a column into a few cache sets. */
size_t mu_leading(const mu_kernel *kernel, size_t n);

/* The length of a k-block of sums over k columns. The Gram matrices of blocks of so many columns,
 * added in order, are bit for bit that of the whole matrix. */
size_t mu_block_columns(const mu_kernel *kernel, size_t k);

/* Bytes of scratch that each product of this shape (m x n, m x m) needs on up to
 * `workers` threads; false if that does not fit into a size_t. */
bool mu_matmul_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned workers,
                       size_t *bytes);

typedef struct mu_matmul {
    const mu_kernel *kernel;
    unsigned workers; /* threads to use at most */
    void *scratch;    /* aligned to MU_ALIGNMENT */
    /* Apply scales and shifts to products instead of operands. If matrices hold values of a half
     * type, whose products are exact, every kernel then gives the same bits. A kernel that
     * multiplies a half type must be used so. There is no N then; symmul takes matrices of the
     * kernel's type with unit col_stride, gram and apply an x without shift, and apply an a whose
     * scale is not 0. */
    bool separate;
    /* MUONIUM_BF16 or MUONIUM_F16: round results to this type, while they are in cache. Else 0. A
     * symmul with a sum rounds nothing. */
    muonium_dtype round;
    /* 2 or 3: products in fixed point with so many digits (fixed.h), by the kernel int8; then the
     * type is f32, `separate` is false, and x of apply is f32. 0: no. */
    int digits;
    const mu_int8_kernel *int8;
} mu_matmul;

/* c: m x m, rows ldc apart; must not overlap the operands. */
void mu_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c, size_t ldc);
void mu_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b, void *c,
               size_t ldc);

/* The epilogue of symmul, applied to blocks of c while they are in cache:
 *
 *     c = A B [+ plus_factor * plus] + plus_identity * I
 *     sum = [sum +] sum_factor * c       if there is a sum
 *
 * plus and sum have the row distance of c. Only the lower triangle of sum is accumulated. */
typedef struct mu_symmul_epilogue {
    const void *plus;
    double plus_factor;
    double plus_identity;
    void *sum;
    double sum_factor;
    bool accumulate; /* without it, sum is not read */
    bool last;       /* sum is complete and is mirrored; c is not needed any more */
    /* NULL, or with the row distance of c: after c is rounded to the half type mu_matmul.round,
     * c = round(own_factor * c + with_factor * with). */
    const void *with;
    double own_factor, with_factor;
    bool may_multiply_out; /* factors s A + d I may be multiplied out, which rounds more where the
                              two cancel */
} mu_symmul_epilogue;

void mu_symmul_fused(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                     void *c, size_t ldc, const mu_symmul_epilogue *epilogue);

/* y: m x n, one of its strides being 1. It may be x itself, with the same strides. */
void mu_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a, const mu_operand *x,
              void *y, size_t row_stride, size_t col_stride);

/* Floating-point operations of each, counting one triangle where that is enough. */
double mu_gram_flops(size_t m, size_t n);
double mu_symmul_flops(size_t m);
double mu_apply_flops(size_t m, size_t n);

/* Upper bounds on the elements that each reads and writes outside the tiles: operands read and
 * packed, results stored, and half as much again where they are mirrored. */
double mu_gram_moved(size_t m, size_t n);
double mu_symmul_moved(size_t m);
double mu_apply_moved(size_t m, size_t n);

#endif
