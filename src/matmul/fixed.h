/*
 * fixed.h: the three products of the iteration in fixed point: f32 matrices as sums of two or three
 * 8-bit digits, see int8.h. Three digits are as accurate as f32, and every CPU gives the same bits.
 *
 * The matrices of the iteration are close to multiples of the identity. So a square operand is
 * split first, A = d I + O with d the mean of its diagonal, and only O is split into digits:
 *
 *     A B = O_A O_B + d_A B + d_B A - d_A d_B I
 *
 * X, the operand of gram and the right one of apply, is split into digits as it is.
 */
#ifndef MU_FIXED_H
#define MU_FIXED_H

#include "matmul/int8.h"
#include "matmul/matmul.h"

/* Bytes of scratch that each product of this shape needs on up to `workers` threads; false if that
 * does not fit into a size_t. */
bool mu_fixed_scratch(const mu_int8_kernel *kernel, int digits, size_t m, size_t n,
                      unsigned workers, size_t *bytes);

/* The products of matmul.h, of f32 matrices. X of gram may have any type. */
void mu_fixed_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, float *c,
                   size_t ldc);
void mu_fixed_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                     float *c, size_t ldc, const mu_symmul_epilogue *epilogue);
void mu_fixed_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a,
                    const mu_operand *x, float *y, size_t row_stride, size_t col_stride);

#endif
