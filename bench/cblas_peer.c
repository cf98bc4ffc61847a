/*
 * cblas_peer.c: see cblas_peer.h.
 */
#include "cblas_peer.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

/* Values of the CBLAS interface. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, LOWER = 122 };

typedef void sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                   int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void ssyrk(int order, int uplo, int trans, int n, int k, float alpha, const float *a,
                   int lda, float beta, float *c, int ldc);

typedef void set_threads(int64_t threads); /* or int: the same register */

static sgemm *gemm;
static ssyrk *syrk;
static set_threads *limit;

static const char *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        /* ISO C has no conversion from object to function pointers; POSIX does. */
        *(void **)&gemm = dlsym(library, "cblas_sgemm");
        *(void **)&syrk = dlsym(library, "cblas_ssyrk");
        if (gemm && syrk) {
            static const char *const setters[] = {"openblas_set_num_threads", "MKL_Set_Num_Threads",
                                                  "bli_thread_set_num_threads"};
            for (size_t i = 0; !limit && i < sizeof setters / sizeof setters[0]; i++) {
                *(void **)&limit = dlsym(library, setters[i]);
            }
            return name;
        }
        dlclose(library);
    }
    return NULL;
}

const char *cblas_peer_name(void)
{
    static const char *const candidates[] = {"libopenblas.so.0", "libmkl_rt.so", "libblis.so.4",
                                             "libcblas.so.3", "libblas.so.3"};
    static const char *found;
    static int looked;
    if (!looked) {
        const char *wanted = getenv("MUONIUM_BENCH_BLAS");
        looked = 1;
        if (wanted && *wanted) {
            found = open_library(wanted);
            return found;
        }
        for (size_t i = 0; !found && i < sizeof candidates / sizeof candidates[0]; i++) {
            found = open_library(candidates[i]);
        }
    }
    return found;
}

bool cblas_peer_set_threads(int threads)
{
    if (limit) {
        limit(threads);
    }
    return limit != NULL;
}

void cblas_peer_gemm(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                     size_t ldb, float *c, size_t ldc)
{
    gemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb,
         0, c, (int)ldc);
}

void cblas_peer_gemm_transposed(size_t m, size_t n, size_t k, const float *a, size_t lda,
                                const float *b, size_t ldb, float *c, size_t ldc)
{
    gemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, 0,
         c, (int)ldc);
}

void cblas_peer_syrk(size_t m, size_t n, const float *x, size_t ldx, float *c, size_t ldc)
{
    syrk(ROW_MAJOR, LOWER, NO_TRANSPOSE, (int)m, (int)n, 1, x, (int)ldx, 0, c, (int)ldc);
}
