/*
 * survey.h: statistics of a matrix before it is orthogonalised: its largest element and the sum
 * of its squares.
 *
 * mu_survey_matrix makes a survey of a matrix in memory. The optimizer and libmuonium_mpi make
 * theirs while they fill a matrix, in a mu_row_survey. Both sum squares within a row first, then
 * over rows in order, in double; so the number of threads does not change a bit. If other
 * processes have columns of the matrix, mu_across reduces the sums over all of them in the order
 * of columns.
 */
#ifndef MU_SURVEY_H
#define MU_SURVEY_H

#include "orthogonalize/across.h"
#include "vector/rows.h"

/* All elements are finite if `largest` is. */
typedef struct mu_survey {
    double largest;     /* magnitude */
    int exponent;       /* largest = f * 2^exponent with f in [0.5, 1) */
    double sum_squares; /* of all elements times 2^-exponent */
} mu_survey;

/* A survey from the largest magnitude, NaN or infinite if any element is, and the sum of squares
 * of f32 elements. */
mu_survey mu_survey_of(double largest, double sum_squares);

/* A survey of a matrix that is filled row by row, each row piece by piece. Several workers may
 * fill rows at a time. */
typedef struct mu_row_survey {
    size_t rows;
    double *sums;            /* of squares: piece k of row r adds to sums[k * stride + r] */
    double *largest;         /* magnitude, per row */
    size_t pieces;           /* sums per row: 1 unless other processes have parts of the row */
    size_t stride;           /* from one piece to the next: 0, or `rows` */
    bool tall;               /* other processes have further rows instead */
    const mu_across *across; /* NULL if no other process has columns of the oriented matrix */
} mu_row_survey;

static inline void mu_survey_start_row(const mu_row_survey *s, size_t row)
{
    for (size_t k = 0; k < s->pieces; k++) {
        s->sums[k * s->stride + row] = 0;
    }
    s->largest[row] = 0;
}

static inline void mu_survey_add(const mu_row_survey *s, size_t row, size_t piece,
                                 mu_row_stats stats)
{
    s->sums[piece * s->stride + row] += stats.sum_squares;
    s->largest[row] = mu_larger(s->largest[row], stats.largest);
}

/* The survey when all rows are filled. */
mu_survey mu_survey_of_rows(const mu_row_survey *s);

#endif
