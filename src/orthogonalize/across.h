/*
 * across.h: a matrix whose columns are distributed over several processes. Only sums over columns
 * need communication: the Gram matrix, and norms. All other work is on m x m matrices, which
 * every process computes, or on columns, which their process computes.
 *
 * Sums are formed in the order of one process, block of columns by block of columns, so that the
 * result has the same bits.
 */
#ifndef MU_ACROSS_H
#define MU_ACROSS_H

#include "base/base.h"

typedef enum mu_across_operation { MU_ACROSS_SUM, MU_ACROSS_LARGEST } mu_across_operation;

/* The columns of a matrix that this process has, and the reduction over all processes. */
typedef struct mu_across {
    size_t rows, cols; /* of the whole matrix, not oriented */
    bool first;        /* this process has the first columns */
    size_t block;      /* columns per block; processes share whole blocks */
    void *memory;      /* scratch of mu_across_bytes */

    /* The reduction. `parts` holds part_count arrays of `count` numbers of f32 or f64. The arrays
     * of all processes are combined in the order of columns; every process gets the result,
     * which may overwrite the first part. After a failed communication the result is undefined:
     * the provider of the function reports it. */
    void (*combine)(void *context, mu_across_operation operation, muonium_dtype type,
                    const void *parts, size_t part_count, size_t count, void *result);
    void *context;
} mu_across;

/* Bytes of scratch memory for `columns` columns. */
size_t mu_across_bytes(size_t m, size_t columns, size_t block, muonium_dtype precision);

/* Call across->combine; if `across` is NULL, combine the parts of this process alone. */
void mu_combine(const mu_across *across, mu_across_operation operation, muonium_dtype type,
                const void *parts, size_t part_count, size_t count, void *result);

/* to = to combined with from: `count` sums of f32 or f64, or magnitudes of f64, where NaN stays.
 * For providers of mu_across. */
void mu_combine_into(mu_across_operation operation, muonium_dtype type, void *to, const void *from,
                     size_t count);

#endif
