/*
 * spectra.h: matrices with given singular values, and reference results computed without
 * iterating: by singular value decomposition, with the composed polynomial applied to each
 * singular value in double.
 */
#ifndef MUONIUM_TEST_SPECTRA_H
#define MUONIUM_TEST_SPECTRA_H

#include "test.h"

/* ---- spectra that break implementations ---- */

typedef struct spectrum {
    const char *name;
    void (*fill)(test_rng *rng, double *sigma, size_t count); /* NULL ends the list */
    double scale;
} spectrum;

extern const spectrum spectra[];

/* x (dense rows x cols) = U diag(sigma) V^T with random orthonormal U and V; sigma
 * holds min(rows, cols) values. */
void spectra_matrix(test_rng *rng, const double *sigma, size_t rows, size_t cols, double *x);

/* A matrix with a spectrum of the list. */
void spectra_draw(const spectrum *kind, test_rng *rng, size_t rows, size_t cols, double *x);

/* ---- element types ---- */

/* An array of `count` elements of a type, freshly allocated, from doubles; and back. */
void *spectra_store(muonium_dtype dtype, const double *x, size_t count);
void spectra_load(muonium_dtype dtype, const void *from, double *x, size_t count);

/* Round every element to a type. */
void spectra_round(muonium_dtype dtype, double *x, size_t count);

/* The rounding unit: half the distance of 1 to the next number. */
double spectra_unit(muonium_dtype dtype);

/* ---- the reference ---- */

typedef struct decomposition {
    size_t rows, cols, count;
    double *u;     /* rows x count */
    double *sigma; /* count, descending */
    double *vt;    /* count x cols */
} decomposition;

decomposition decompose(const double *x, size_t rows, size_t cols);
void decomposition_free(decomposition *d);

/* y = U diag(p(sigma / divisor)) V^T for the composed polynomial p. */
void decomposition_map(const decomposition *d, double divisor, const double (*table)[3], int steps,
                       double *y);

/* The composed polynomial itself. */
double composed(const double (*table)[3], int steps, double x);

/* (sum of sigma^p)^(1/p): 2 gives the Frobenius norm, 4 that of Schatten; 1 the
 * nuclear norm. */
double schatten_norm(const decomposition *d, double p);

/* Divide each row (each column of a tall matrix) by sqrt(sum_j |(X X^T)_ij|). */
void divide_rows(double *x, size_t rows, size_t cols);

/* ||a - b||_F / ||b||_F, or ||a||_F where b is zero. */
double relative_error(const double *a, const double *b, size_t count);

/* ||I - Y Y^T||_F, of the smaller side. */
double distance_from_orthogonal(const double *y, size_t rows, size_t cols);

/* A bound on the growth of relative errors: for each iteration, the growth of an error within it
 * times the steepest slopes of the iterations that follow on the image of [0, 1]; the sum over
 * iterations. */
double amplification(const double (*table)[3], int steps);

/* ---- running the library ---- */

/* The table of coefficients that a plan with these options uses. */
void spectra_table(const muonium_plan_options *options, double (*table)[3]);

/* Orthogonalise one dense matrix, held as `dtype` on both sides. */
void spectra_run(const muonium_plan_options *options, muonium_dtype dtype, size_t rows, size_t cols,
                 const double *x, double *y, muonium_certificate *certificate);

#endif
