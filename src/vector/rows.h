/*
 * rows.h: operations on rows and small blocks of matrices, in f32 or f64: convert, reduce, scale,
 * combine, mirror, and the epilogue of a product. Written once (kernels/rows_template.h) and
 * compiled once per instruction set.
 *
 * Sums are formed in double, in an order that is the same on every instruction set. All other
 * operations round once per multiplication and addition. So results are the same bits everywhere.
 */
#ifndef MU_ROWS_H
#define MU_ROWS_H

#include "base/base.h"

/* A block of a matrix in memory. */
typedef struct mu_block {
    void *data; /* its element (0, 0) */
    muonium_dtype dtype;
    ptrdiff_t row_stride; /* in elements */
    ptrdiff_t col_stride;
    size_t rows;
    size_t cols;
} mu_block;

/* Whether memory runs down the columns of a matrix rather than along its rows. */
static inline bool mu_runs_down(ptrdiff_t row_stride, ptrdiff_t col_stride)
{
    ptrdiff_t down = row_stride < 0 ? -row_stride : row_stride;
    return down < (col_stride < 0 ? -col_stride : col_stride);
}

/* c = scale * c + sum of factor * data + shift * I;  sum = [sum +] sum_factor * c. All pointers
 * are to the first element of the block in question. */
typedef struct mu_epilogue {
    double scale;
    struct {
        const void *data;
        ptrdiff_t ld;
        double factor;
    } terms[3];
    size_t term_count;
    double shift; /* applied to blocks on the diagonal */
    void *sum;    /* NULL: none */
    ptrdiff_t sum_ld;
    double sum_factor;
    bool accumulate; /* without it, sum is not read */
} mu_epilogue;

/* The result of one pass over a row. */
typedef struct mu_row_stats {
    double sum_squares; /* of all elements times `scale`, in double */
    double largest;     /* magnitude, unscaled; NaN or infinity if the row has any */
} mu_row_stats;

/* The larger of two magnitudes; NaN if either is. */
static inline double mu_larger(double a, double b)
{
    return a >= b || a != a ? a : b;
}

typedef struct mu_rows {
    mu_features needs;
    muonium_dtype type; /* T: MUONIUM_F32 or MUONIUM_F64 */

    /* Convert a block to T (rows ld elements apart, unit column stride), or T to a block: rounded
     * once, to nearest even. */
    void (*load)(const mu_block *from, void *to, size_t ld);
    void (*store)(const void *from, size_t ld, const mu_block *to);

    /* One row of n elements of type T, consecutive. */
    mu_row_stats (*stats)(const void *row, size_t n, double scale);
    double (*squares)(const void *row, size_t n, double scale); /* sum_squares of stats alone */
    double (*abs_sum)(const void *row, size_t n);
    void (*scale)(void *row, size_t n, double factor);
    /* to = [to +] factor * from. Without `accumulate` to is not read. */
    void (*add)(void *to, const void *from, size_t n, double factor, bool accumulate);
    /* row = round(row) to a half type (T = f32), as storing and loading it would. */
    void (*round)(void *row, size_t n, muonium_dtype half);
    /* to = round(alpha * round(to) + beta * from): see the half modes. */
    void (*combine)(void *to, double alpha, const void *from, double beta, size_t n,
                    muonium_dtype half);

    /* Copy the part of c below the diagonal in rows [i0, i1) and columns [j0, j1) to the mirrored
     * place above. */
    void (*mirror)(void *c, ptrdiff_t ldc, size_t i0, size_t i1, size_t j0, size_t j1);

    /* Apply an epilogue to c (rows x cols, ldc apart), a complete product. With `lower` the block
     * lies on the diagonal and only its lower triangle counts: beyond the diagonal a row may
     * change up to the next multiple of 16 columns. */
    void (*epilogue)(void *c, ptrdiff_t ldc, size_t rows, size_t cols, bool lower,
                     const mu_epilogue *e);
} mu_rows;

/* The row operations in use: MUONIUM_F64, or f32 for all other types. */
muonium_status mu_rows_choose(muonium_dtype type, const mu_rows **rows);

#endif
