/*
 * cblas_peer.h: an installed CBLAS library to compare with, found at run time so
 * that nothing depends on it. MUONIUM_BENCH_BLAS names a library file to take
 * instead of looking for one.
 */
#ifndef BENCH_CBLAS_PEER_H
#define BENCH_CBLAS_PEER_H

#include <stdbool.h>
#include <stddef.h>

/* The file that was found; NULL if there is none. The functions below need one. */
const char *cblas_peer_name(void);

/* Set its number of threads. False if it has no known function for that; it then chooses the
 * number itself. */
bool cblas_peer_set_threads(int threads);

/* Row-major: c (m x n) = a (m x k) b (k x n). */
void cblas_peer_gemm(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                     size_t ldb, float *c, size_t ldc);

/* Row-major: c (m x n) = a (m x k) b^T, b (n x k). */
void cblas_peer_gemm_transposed(size_t m, size_t n, size_t k, const float *a, size_t lda,
                                const float *b, size_t ldb, float *c, size_t ldc);

/* Lower triangle of c (m x m) = x (m x n) x^T. */
void cblas_peer_syrk(size_t m, size_t n, const float *x, size_t ldx, float *c, size_t ldc);

#endif
