/*
 * blas.h: the products by a CBLAS library, as referee and as backend for machines
 * whose vendor library is better than our kernels. Compiled in with
 * -DMUONIUM_BLAS=ON, in force with MUONIUM_CPU=blas. Results then follow that
 * library's order of summation, and its promises about threads, not ours.
 */
#ifndef MU_BLAS_H
#define MU_BLAS_H

#include "matmul/matmul.h"

/* MUONIUM_CPU=blas, in a build that has it. A constant elsewhere: calls of the functions
 * below, which do not exist then, are dropped even without optimisation if they stand in
 * `if (mu_blas_selected())` itself, and not behind a variable. */
#ifdef MUONIUM_WITH_BLAS
bool mu_blas_selected(void);
#else
#define mu_blas_selected() false
#endif

/* As their namesakes in matmul.h; only while mu_blas_selected(). */
void mu_blas_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c,
                  size_t ldc);
void mu_blas_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                    void *c, size_t ldc);
void mu_blas_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a,
                   const mu_operand *x, void *y, size_t row_stride, size_t col_stride);
bool mu_blas_scratch(const mu_kernel *kernel, size_t m, size_t n, size_t *bytes);

#endif
