/*
 * product.h: general matrix products for the model, made of the library's kernels.
 *
 * A matrix is a pointer and two strides, so that transposes and slices of larger arrays
 * cost nothing: element (i, j) is data[i * row + j * col].
 */
#ifndef GPT_PRODUCT_H
#define GPT_PRODUCT_H

#include <muonium.h>

typedef struct gpt_matrix {
    const float *data;
    ptrdiff_t row, col;
} gpt_matrix;

/* The matrix stored row by row with `cols` columns, and its transpose. */
gpt_matrix gpt_rows(const float *data, size_t cols);
gpt_matrix gpt_transposed(const float *data, size_t cols);

/* c = scale * a b, or c += scale * a b: c is m x n, its rows c_row apart. */
typedef struct gpt_product {
    size_t m, n, k;
    gpt_matrix a, b;
    float *c;
    size_t c_row;
    float scale;
    bool accumulate;
} gpt_product;

/* The kernel in use and scratch memory for every thread. */
typedef struct gpt_machine gpt_machine;

/* Sized for the threads in force now. */
muonium_status gpt_machine_create(gpt_machine **machine);
void gpt_machine_destroy(gpt_machine *machine); /* NULL is allowed */
unsigned gpt_machine_workers(const gpt_machine *machine);

/* Compute on all threads; the result does not depend on how many. */
void gpt_multiply(const gpt_machine *machine, const gpt_product *product);

/* Compute in the calling thread, which runs as `worker` of a task on the pool. */
void gpt_multiply_alone(const gpt_machine *machine, unsigned worker, const gpt_product *product);

#endif
