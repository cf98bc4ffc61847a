/*
 * matrix.h: matrices of any type and strides against inaccessible pages, and the
 * conversions between their elements and double that tests compare with.
 */
#ifndef MUONIUM_TEST_MATRIX_H
#define MUONIUM_TEST_MATRIX_H

#include "test.h"

/* Exact: every element of every type is a double. */
double test_element(const void *data, muonium_dtype dtype, ptrdiff_t index);

/* Rounded once, to nearest even: halves by way of an exact comparison of distances,
 * independently of base/half.h. */
void test_set_element(void *data, muonium_dtype dtype, ptrdiff_t index, double value);
uint16_t test_half_nearest(double value, muonium_dtype half);

const char *test_dtype_name(muonium_dtype dtype);

/* Element (i, j) is at index i*row_stride + j*col_stride from `data`. */
typedef struct test_matrix {
    void *memory; /* the lowest address, in guarded memory */
    void *data;
    muonium_dtype dtype;
    size_t rows, cols;
    ptrdiff_t row_stride, col_stride;
    size_t bytes; /* from `memory` on */
} test_matrix;

/* Filled with 0xa5. The bytes end at an inaccessible page or, `at_front`, begin at
 * one; either way they have the alignment of their element only. */
test_matrix test_matrix_new(muonium_dtype dtype, size_t rows, size_t cols, ptrdiff_t row_stride,
                            ptrdiff_t col_stride, bool at_front);
void test_matrix_free(test_matrix *matrix);

double test_matrix_get(const test_matrix *matrix, size_t i, size_t j);
void test_matrix_set(const test_matrix *matrix, size_t i, size_t j, double value);

/* What lies between the elements is still 0xa5. */
bool test_matrix_gaps_intact(const test_matrix *matrix);

/* Some strides for which the elements of a rows x cols matrix do not overlap, by
 * number: dense and with gaps, along rows and along columns, forwards and
 * backwards. */
enum { TEST_LAYOUTS = 8 };
void test_layout(size_t number, size_t rows, size_t cols, ptrdiff_t *row_stride,
                 ptrdiff_t *col_stride);

#endif
