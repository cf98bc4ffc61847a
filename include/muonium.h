/*
 * muonium.h: the whole public interface of Muonium, and its manual.
 *
 * Muonium turns the momentum of a weight matrix into its nearest (semi-)
 * orthogonal matrix, the step that the Muon optimizer takes, fast and exactly
 * on CPUs. A complete program:
 *
 *     #include <muonium.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         float g[2][3] = {{3, 1, 2}, {1, 4, 1}}, o[2][3];
 *         muonium_shape shape = {.batch = 1, .rows = 2, .cols = 3};
 *         muonium_view in = muonium_dense(MUONIUM_F32, shape, g);
 *         muonium_view out = muonium_dense(MUONIUM_F32, shape, o);
 *         if (muonium_orthogonalize(shape, NULL, &in, &out, NULL) != MUONIUM_OK) {
 *             fprintf(stderr, "%s\n", muonium_last_error());
 *             return 1;
 *         }
 *         printf("%.3f %.3f %.3f\n", o[0][0], o[0][1], o[0][2]);
 *         return 0;
 *     }
 *
 * Rules that hold for every function:
 *
 * - Errors. A function that can fail returns muonium_status; a thread-local
 *   message (muonium_last_error) then names the thing, its value and the way
 *   out. After an error nothing that the caller can see has changed. The
 *   library never prints, never exits and never aborts.
 * - Threads. All functions may be called from any thread. Work is spread over
 *   one pool per process; results are bit-identical for every thread count and
 *   for every batching on the same instruction set.
 * - Ownership. The caller owns every array passed in; the library keeps no
 *   pointer to it beyond the call unless the function says so. Strings are
 *   copied.
 * - Floating-point environment. Calls compute with round-to-nearest and
 *   denormals whatever the caller has set, and restore what they found.
 * - Option structs start with their own size, set by their _init function, so
 *   that a program compiled against an older header keeps working.
 */
#ifndef MUONIUM_H
#define MUONIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUONIUM_VERSION_MAJOR 0
#define MUONIUM_VERSION_MINOR 1
#define MUONIUM_VERSION_PATCH 0
#define MUONIUM_VERSION_STRING "0.1.0"

#if defined(_WIN32)
#define MUONIUM_API
#else
#define MUONIUM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is running, as "major.minor.patch"; compare
 * with MUONIUM_VERSION_STRING, which is that of the header compiled against. */
MUONIUM_API const char *muonium_version(void);

/* ---------------------------------------------------------------- errors -- */

/* The values are part of the ABI and never change. */
typedef enum muonium_status {
    MUONIUM_OK = 0,
    MUONIUM_INVALID = 1,       /* an argument, option or environment variable is wrong */
    MUONIUM_NO_MEMORY = 2,     /* an allocation failed */
    MUONIUM_NON_FINITE = 3,    /* NaN or infinity in an input, under MUONIUM_NONFINITE_ERROR */
    MUONIUM_NOT_CONVERGED = 4, /* a search for coefficients did not converge */
    MUONIUM_IO = 5,            /* the operating system refused a read or a write */
    MUONIUM_FORMAT = 6         /* a file is malformed or does not fit */
} muonium_status;

/* The name of a status, as "MUONIUM_OK"; "unknown status" for other values. */
MUONIUM_API const char *muonium_status_name(muonium_status status);

/* The message of the last call in this thread that failed; "" if none has. It
 * stays valid until the next failing call in the same thread. */
MUONIUM_API const char *muonium_last_error(void);

/* ---------------------------------------------------------------- memory -- */

/* Where the library gets its memory. `allocate` returns memory aligned to
 * `alignment` (a power of two) or NULL; `release` takes what it returned. Both
 * may be called from any thread, several at a time. */
typedef struct muonium_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment);
    void (*release)(void *context, void *memory);
    void *context;
} muonium_allocator;

/* Replace the allocator of the process; NULL restores the C library's. Call it
 * before the library holds any memory: what one allocator gave is released
 * through the one then in force. Fails on a NULL function. */
MUONIUM_API muonium_status muonium_set_allocator(const muonium_allocator *allocator);

/* --------------------------------------------------------------- threads -- */

/* Use `threads` threads from the next call on, the caller's included; 0 goes
 * back to the default: MUONIUM_NUM_THREADS if set, else the CPUs that the
 * affinity mask allows. At most 1024. Threads start when first needed and
 * survive fork (a child starts its own). When several threads of the program
 * call at a time, one gets the pool and the others work alone. */
MUONIUM_API muonium_status muonium_set_threads(int threads);

/* The number of threads that the next call may use, at least 1. */
MUONIUM_API int muonium_threads(void);

/* ------------------------------------------------------------- processor -- */

typedef struct muonium_cpu_info {
    const char *isa;      /* instruction set in use: "portable", "avx2" or "avx512" */
    const char *kernel;   /* name of the f32 kernel in use */
    const char *reason;   /* why: "best that this CPU has", "MUONIUM_CPU=avx2", ... */
    const char *features; /* what CPUID and the system offer, as "avx2 fma f16c" */
} muonium_cpu_info;

/* Which kernels were chosen, and why. The environment variable MUONIUM_CPU
 * (portable, avx2, avx512, or blas in builds that have it) chooses among what
 * the CPU has; an unknown value, or one that the CPU lacks, is an error here
 * and in every call that computes. Decided once per process. */
MUONIUM_API muonium_status muonium_cpu(muonium_cpu_info *info);

/* ---------------------------------------------------------- coefficients -- */

/* One step of the iteration maps every singular value s of a matrix to
 * a*s + b*s^3 + c*s^5. A table of steps is an array of {a, b, c}. */

#define MUONIUM_MAX_STEPS 64

/* Polar Express (Amsel et al., arXiv 2505.16932): the `steps` quintics, each
 * optimal after the ones before, that bring [lower, 1] closest to 1.
 *   lower    in [0, 1]; 1e-3 is usual. 0 needs a cushion above 0.
 *   safety   >= 0; every step but the last leaves room for singular values up
 *            to 1 + safety. 1e-2 is usual.
 *   cushion  in [0, 1); a step never optimises below cushion times the largest
 *            value, which keeps early steps from amplifying rounding. 0.02.
 * Every coefficient is right to 1e-12 relative. */
MUONIUM_API muonium_status muonium_polar_express(int steps, double lower, double safety,
                                                 double cushion, double (*table)[3]);

/* The same with the optimal odd cubics (c = 0): a step costs one product less
 * and does less. It has no cushion. `lower` must be above 0. */
MUONIUM_API muonium_status muonium_polar_cubic(int steps, double lower, double safety,
                                               double (*table)[3]);

/* The table of a published preset for `steps` steps: its first rows, the last
 * row repeated where it has fewer. An unknown name fails with the valid ones. */
MUONIUM_API muonium_status muonium_coefficients(const char *preset, int steps, double (*table)[3]);

/* The presets by index, from 0: name, NULL past the last; and the number of
 * rows published, 0 past the last. */
MUONIUM_API const char *muonium_preset_name(int index);
MUONIUM_API int muonium_preset_rows(int index);

/* --------------------------------------------------------------- matrices -- */

typedef enum muonium_dtype {
    MUONIUM_F32 = 0,
    MUONIUM_F64 = 1,
    MUONIUM_BF16 = 2,
    MUONIUM_F16 = 3
} muonium_dtype;

/* Bytes per element; 0 for an unknown type. */
MUONIUM_API size_t muonium_dtype_size(muonium_dtype dtype);

/* `batch` matrices of `rows` by `cols`, each at least 1. */
typedef struct muonium_shape {
    size_t batch;
    size_t rows;
    size_t cols;
} muonium_shape;

/* Where a batch of matrices lies: element (b, i, j) is at index
 * b*batch_stride + i*row_stride + j*col_stride, counted in elements; strides
 * may be negative. Data needs only the alignment of its element type. */
typedef struct muonium_view {
    void *data;
    muonium_dtype dtype;
    ptrdiff_t batch_stride;
    ptrdiff_t row_stride;
    ptrdiff_t col_stride;
} muonium_view;

/* The view of a dense row-major array. */
static inline muonium_view muonium_dense(muonium_dtype dtype, muonium_shape shape, void *data)
{
    muonium_view view;
    view.data = data;
    view.dtype = dtype;
    view.batch_stride = (ptrdiff_t)(shape.rows * shape.cols);
    view.row_stride = (ptrdiff_t)shape.cols;
    view.col_stride = 1;
    return view;
}

/* ------------------------------------------------------- orthogonalisation -- */

/* What a matrix is divided by, so that no singular value exceeds 1. */
typedef enum muonium_normalization {
    MUONIUM_NORM_FROBENIUS = 0, /* the Frobenius norm */
    MUONIUM_NORM_SCHATTEN = 1,  /* the Schatten-4 norm, free with the first Gram matrix, tighter */
    MUONIUM_NORM_AOL = 2,       /* each row by its own bound: saves about a step and changes the
                                   polar factor slightly */
    MUONIUM_NORM_SPECTRAL = 3,  /* the largest singular value, with an upper margin */
    MUONIUM_NORM_NONE = 4       /* nothing: the caller promises singular values of at most 1 */
} muonium_normalization;

/* How eps enters the divisor d = norm * safety_factor. */
typedef enum muonium_eps_mode {
    MUONIUM_EPS_NONE = 0,  /* d: the result for 2^k X is bit for bit that for X */
    MUONIUM_EPS_CLAMP = 1, /* max(d, eps) */
    MUONIUM_EPS_ADD = 2    /* d + eps */
} muonium_eps_mode;

/* How the same polynomial is evaluated. */
typedef enum muonium_form {
    MUONIUM_FORM_AUTO = 0,     /* whichever costs least for the shape */
    MUONIUM_FORM_STANDARD = 1, /* X <- (aI + bR + cR^2) X with R = X X^T, every step */
    MUONIUM_FORM_GRAM = 2      /* iterate on R alone, apply to X only at restarts and at the end */
} muonium_form;

/* What happens to a matrix that contains NaN or infinity. */
typedef enum muonium_nonfinite {
    MUONIUM_NONFINITE_ERROR = 0, /* the call fails, names the first bad element, writes nothing */
    MUONIUM_NONFINITE_SKIP = 1,  /* this matrix' output is left as it is */
    MUONIUM_NONFINITE_PROPAGATE = 2 /* this matrix' output is filled with NaN */
} muonium_nonfinite;

typedef struct muonium_plan_options {
    size_t struct_size; /* set by muonium_plan_options_init */
    int steps;          /* 1 to MUONIUM_MAX_STEPS; default 5 */

    /* The polynomials: `table` with `table_rows` rows if not NULL (the last
     * row repeats), else the preset named `coefficients` if not NULL, else
     * muonium_polar_express(steps, lower, safety, cushion), the default. */
    const double (*table)[3];
    size_t table_rows;
    const char *coefficients;
    double lower;   /* 1e-3 */
    double safety;  /* 2e-2 */
    double cushion; /* 0.02 */

    muonium_normalization normalization; /* MUONIUM_NORM_FROBENIUS */
    muonium_eps_mode eps_mode;           /* MUONIUM_EPS_NONE */
    double eps;                          /* >= 0; 1e-7; ignored under MUONIUM_EPS_NONE */
    double safety_factor;                /* > 0; 1 */

    /* What intermediates are rounded to: MUONIUM_F32 (default), MUONIUM_F64,
     * or MUONIUM_BF16 / MUONIUM_F16, which store every intermediate in that
     * type with f32 sums, as GPU implementations do. On CPUs the half types
     * are slower than f32 and less exact: they are for reproducing others. */
    muonium_dtype precision;
    muonium_form form;           /* MUONIUM_FORM_AUTO */
    muonium_nonfinite nonfinite; /* MUONIUM_NONFINITE_ERROR */
} muonium_plan_options;

/* Fill with the defaults above. */
MUONIUM_API void muonium_plan_options_init(muonium_plan_options *options);

/* What became of one matrix. */
typedef enum muonium_outcome {
    MUONIUM_ORTHOGONALIZED = 0,
    MUONIUM_ZERO = 1,      /* a zero matrix, which orthogonalises to zero */
    MUONIUM_SKIPPED = 2,   /* non-finite, left alone */
    MUONIUM_PROPAGATED = 3 /* non-finite, filled with NaN */
} muonium_outcome;

/* A statement about one result that needs no reference to check. */
typedef struct muonium_certificate {
    muonium_outcome outcome;
    int rescued;      /* how often the blow-up guard rescaled */
    double divisor;   /* what the matrix was divided by (aol: the largest of the rows' divisors) */
    double deviation; /* ||I - X X^T||_F before the last step */
    double bound;     /* what follows for the result: an upper bound on ||I - Y Y^T||_F, up to
                         rounding, for the m x n result Y, m <= n */
} muonium_certificate;

/* A plan holds all that depends on shape and options alone. It is immutable:
 * any number of threads may execute one plan at a time. */
typedef struct muonium_plan muonium_plan;

typedef struct muonium_plan_info {
    muonium_form form;                  /* as chosen */
    int steps;                          /* T */
    int restarts;                       /* Gram form: how many */
    int restart[MUONIUM_MAX_STEPS];     /* before which steps, counted from 0 */
    double table[MUONIUM_MAX_STEPS][3]; /* the polynomials */
    double flops;                       /* per matrix, triangles counted once */
    size_t workspace;                   /* bytes that an execution needs */
} muonium_plan_info;

/* Make a plan. NULL options mean the defaults. The workspace is sized for the
 * threads in force now; an execution uses no more. */
MUONIUM_API muonium_status muonium_plan_create(muonium_shape shape,
                                               const muonium_plan_options *options,
                                               muonium_plan **plan);
MUONIUM_API void muonium_plan_destroy(muonium_plan *plan); /* NULL is allowed */
MUONIUM_API muonium_status muonium_plan_describe(const muonium_plan *plan, muonium_plan_info *info);

/* Orthogonalise a batch: `out` gets the polar factor of every matrix of `in`.
 * `in` and `out` may be of any type and strides; they may be the same memory
 * with the same strides and type, but must not overlap otherwise, and elements
 * of `out` must not overlap each other. `workspace` is memory of at least
 * muonium_plan_info.workspace bytes aligned to 64, used by this call alone, and
 * then the call allocates nothing; with NULL the call allocates and frees it.
 * `certificates` is NULL or gets one entry per matrix. */
MUONIUM_API muonium_status muonium_plan_execute(const muonium_plan *plan, const muonium_view *in,
                                                const muonium_view *out, void *workspace,
                                                muonium_certificate *certificates);

/* Plan, execute, destroy. */
MUONIUM_API muonium_status muonium_orthogonalize(muonium_shape shape,
                                                 const muonium_plan_options *options,
                                                 const muonium_view *in, const muonium_view *out,
                                                 muonium_certificate *certificates);

#ifdef __cplusplus
}
#endif

#endif
