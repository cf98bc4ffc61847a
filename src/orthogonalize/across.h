/*
 * across.h: a matrix whose columns lie with several processes. Only sums over columns need
 * the others: the Gram matrix, and norms. Everything else happens on m x m matrices, which
 * all compute alike, or on columns, each by whoever has it.
 *
 * Sums are formed as for the whole matrix, block of columns by block of columns in order, so
 * that the result is the same bits.
 */
#ifndef MU_ACROSS_H
#define MU_ACROSS_H

#include "base/base.h"

typedef enum mu_across_operation { MU_ACROSS_SUM, MU_ACROSS_LARGEST } mu_across_operation;

/* A parameter's share of the columns of one matrix, and the way to the others. */
typedef struct mu_across {
    size_t rows, cols; /* of the whole matrix, as the parameter has it */
    bool first;        /* our columns are the first of it */
    size_t block;      /* of columns: ours are whole blocks, but for the last */
    void *memory;      /* mu_across_bytes of it */

    /* Combine arrays of `count` numbers of f32 or f64: `parts` of ours, one after the other
     * in memory, onto what those before us have, in order; all get the result, which may be
     * where the first part is. What cannot be had leaves the result undefined: whoever
     * provides this knows. */
    void (*combine)(void *context, mu_across_operation operation, muonium_dtype type,
                    const void *parts, size_t part_count, size_t count, void *result);
    void *context;
} mu_across;

/* Bytes of memory that a share of `columns` columns needs, with one part more than blocks. */
size_t mu_across_bytes(size_t m, size_t columns, size_t block, muonium_dtype precision);

#endif
