/*
 * matmul.h: the three products of the iteration.
 *
 *     gram    C = X X^T                symmetric: one triangle computed, then mirrored
 *     symmul  C = A B                  A, B symmetric and commuting: one triangle
 *     apply   Y = A X                  A symmetric, or any if Y lies row by row
 *
 * Every operand may be a combination s*M + t*N + d*I formed while it is packed, or
 * multiplied out where nothing is packed. So b*R + c*R^2 is the product (c*R + b*I) R,
 * and a*X + Z X is (Z + a*I) X, without a pass over memory of its own.
 *
 * Parallel over tiles of the result only, so threads never change a bit.
 */
#ifndef MU_MATMUL_H
#define MU_MATMUL_H

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

/* Distance between rows of our own matrices with n columns: whole cache lines, and
 * not a multiple of the page size, which would put a column into a few cache sets. */
size_t mu_leading(const mu_kernel *kernel, size_t n);

/* Sums over k columns are formed in blocks of this many, each onto zero, and the blocks
 * added in order: so the Gram matrices of such blocks, added in order, are bit for bit that
 * of the whole. */
size_t mu_block_columns(const mu_kernel *kernel, size_t k);

/* Bytes of scratch that each product of this shape (m x n, m x m) needs on up to
 * `workers` threads; false if that does not fit into a size_t. */
bool mu_matmul_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned workers,
                       size_t *bytes);

typedef struct mu_matmul {
    const mu_kernel *kernel;
    unsigned workers; /* threads to use at most */
    void *scratch;    /* aligned to MU_ALIGNMENT */
    /* Scales and shifts are applied to products instead of operands, and there is no N. Where
     * matrices hold values of a half type, products of which are exact, every kernel then makes
     * the same bits; one that multiplies such values must be used so. symmul then takes matrices
     * of the kernel's type with unit col_stride, gram and apply an x without shift, apply an a
     * whose scale is not 0. */
    bool separate;
} mu_matmul;

/* c: m x m, rows ldc apart; must not overlap the operands. */
void mu_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c, size_t ldc);
void mu_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b, void *c,
               size_t ldc);

/* What else symmul does with c while it is in cache:
 *
 *     c = A B [+ plus_factor * plus] + plus_identity * I
 *     sum = [sum +] sum_factor * c       if there is a sum
 *
 * Both are matrices with the row distance of c; of sum, only what is on and below the
 * diagonal is added up. */
typedef struct mu_finish {
    const void *plus;
    double plus_factor;
    double plus_identity;
    void *sum;
    double sum_factor;
    bool accumulate;       /* without it, sum is not read */
    bool last;             /* sum is complete: it is mirrored, and c, no longer wanted, is not */
    bool may_multiply_out; /* factors s A + d I may be multiplied out, which rounds a little more
                        where the two cancel */
} mu_finish;

void mu_symmul_finish(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                      void *c, size_t ldc, const mu_finish *finish);

/* y: m x n, one of its strides being 1; may be the memory of x if it has the same strides. */
void mu_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a, const mu_operand *x,
              void *y, size_t row_stride, size_t col_stride);

/* Floating-point operations of each, counting one triangle where that is enough. */
double mu_gram_flops(size_t m, size_t n);
double mu_symmul_flops(size_t m);
double mu_apply_flops(size_t m, size_t n);

/* Elements that each reads and writes outside the tiles at most: operands read and packed,
 * results stored, mirrored ones half as much again. */
double mu_gram_moved(size_t m, size_t n);
double mu_symmul_moved(size_t m);
double mu_apply_moved(size_t m, size_t n);

#endif
