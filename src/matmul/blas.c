/*
 * blas.c: see blas.h. A CBLAS library takes matrices only, so operands that are
 * combinations are formed in scratch memory first.
 */
#ifdef MUONIUM_WITH_BLAS

#include "matmul/blas.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

bool mu_blas_selected(void)
{
    const char *choice = mu_cpu_override();
    return choice && strcmp(choice, "blas") == 0;
}

bool mu_blas_scratch(const mu_kernel *kernel, size_t m, size_t n, size_t *bytes)
{
    /* The distance of rows is an int there too, and mu_leading makes it a little longer. */
    size_t elements, wide = m > n ? m : n;
    return wide <= INT_MAX - 2 * MU_ALIGNMENT && mu_add(m, wide, &elements) &&
           mu_mul(elements, m, &elements) &&
           mu_mul(elements, muonium_dtype_size(kernel->type), bytes);
}

/* The operand as a dense rows x cols matrix of the kernel's type. */
static void *form(const mu_kernel *kernel, const mu_operand *o, size_t rows, size_t cols,
                  void *dense)
{
    mu_block block = {
        (void *)(uintptr_t)o->data, o->dtype, o->row_stride, o->col_stride, rows, cols};
    kernel->rows->load(&block, dense, cols);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            size_t at = i * cols + j;
            ptrdiff_t from = (ptrdiff_t)i * o->row_stride + (ptrdiff_t)j * o->col_stride;
            double shift = i == j ? o->shift : 0;
            if (kernel->type == MUONIUM_F32) {
                float *x = dense;
                const float *other = o->other;
                float sum = x[at] * (float)o->scale;
                sum += other ? other[from] * (float)o->other_scale : 0;
                x[at] = sum + (float)shift;
            } else {
                double *x = dense;
                const double *other = o->other;
                double sum = x[at] * o->scale;
                sum += other ? other[from] * o->other_scale : 0;
                x[at] = sum + shift;
            }
        }
    }
    return dense;
}

/* c = a b with all dense: rows x k, k x cols. */
static void call_gemm(const mu_kernel *kernel, size_t rows, size_t cols, size_t k, const void *a,
                      const void *b, void *c, size_t ldc)
{
    int m = (int)rows, n = (int)cols, depth = (int)k;
    if (kernel->type == MUONIUM_F32) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, depth, 1, a, depth, b, n, 0, c,
                    (int)ldc);
    } else {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, depth, 1, a, depth, b, n, 0, c,
                    (int)ldc);
    }
}

void mu_blas_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c,
                  size_t ldc)
{
    const void *dense = form(with->kernel, x, m, n, with->scratch);
    if (with->kernel->type == MUONIUM_F32) {
        cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)m, (int)n, 1, dense, (int)n, 0, c,
                    (int)ldc);
    } else {
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)m, (int)n, 1, dense, (int)n, 0, c,
                    (int)ldc);
    }
    with->kernel->rows->mirror(c, (ptrdiff_t)ldc, 0, m, 0, m);
}

void mu_blas_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                    void *c, size_t ldc)
{
    mu_blas_apply(with, m, m, a, b, c, ldc, 1);
    with->kernel->rows->mirror(c, (ptrdiff_t)ldc, 0, m, 0, m);
}

void mu_blas_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a,
                   const mu_operand *x, void *y, size_t row_stride, size_t col_stride)
{
    const mu_kernel *kernel = with->kernel;
    char *symmetric = with->scratch;
    char *dense = symmetric + m * m * muonium_dtype_size(kernel->type);
    form(kernel, a, m, m, symmetric);
    if (col_stride == 1) {
        size_t ld = m > 1 ? row_stride : n; /* of a single row, any will do but for the library */
        call_gemm(kernel, m, n, m, symmetric, form(kernel, x, m, n, dense), y, ld);
        return;
    }
    mu_operand transposed = *x;
    transposed.row_stride = x->col_stride;
    transposed.col_stride = x->row_stride;
    call_gemm(kernel, n, m, m, form(kernel, &transposed, n, m, dense), symmetric, y, col_stride);
}

#else

typedef int mu_no_blas_here; /* a translation unit must not be empty */

#endif
