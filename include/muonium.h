/*
 * muonium.h: the whole public interface of Muonium, and its manual.
 *
 * Muonium orthogonalises matrices, fast on CPUs. The Muon optimizer orthogonalises the momentum of
 * every weight matrix. By default the result has the singular vectors of the matrix and singular
 * values between 0.86 and 1.14, which is what Muon needs. muonium_plan_options explains how to get
 * the polar factor itself, the nearest (semi-)orthogonal matrix. A complete program:
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
 * - Errors. A function that can fail returns muonium_status. After an error,
 *   muonium_last_error returns a thread-local message. The message names the wrong object, its
 *   value and the remedy. After an error, nothing that the caller can see has changed. The
 *   library never prints, never exits and never aborts.
 * - Threads. All functions may be called from any thread. The library spreads its work over
 *   one thread pool per process. On the same instruction set, results are bit-identical for
 *   every thread count and for every batching.
 * - Callbacks. The library calls the caller's functions from the thread that called the
 *   library. Only an allocator may be called from any thread. A callback must return. If it
 *   leaves by longjmp or by a C++ exception, memory leaks, and the object of the call stays
 *   marked as in use, so that every later call on that object fails. A callback may use other
 *   optimizers, readers and writers freely. On the optimizer of the current call it may only
 *   call the functions that read: muonium_parameter_count, _find, _report, _count,
 *   _certificates, _state_of and _grad_norm. Every other call on that optimizer fails with
 *   MUONIUM_INVALID and a message that names both calls; nothing has changed, and the current
 *   call goes on. The `loss` of muonium_step_with may do anything but step. An allocator must
 *   not call the library.
 * - Ownership. The caller owns every array that it passes. The library keeps no pointer to an
 *   array after the call, unless the function says so. The library copies strings.
 * - Finite results. A finite matrix gives a finite and bounded result. If an iteration
 *   diverges, the library repeats it in its safest form and counts it as rescued. If that
 *   also fails, the result is zero and its certificate says MUONIUM_DIVERGED. Finite gradients
 *   and weights give finite weights, as long as lr, weight_decay and scale_factor are below 1e6
 *   and the policy is not MUONIUM_NONFINITE_PROPAGATE. If a step takes a weight beyond the
 *   largest number of its type, the weight stops at that number.
 * - Floating-point environment. Every call computes with round-to-nearest and with denormals,
 *   whatever the caller has set. It restores the caller's settings before it returns.
 * - Struct sizes. Structs grow at their end from version to version. A program that was
 *   compiled against an older header keeps working, because the library reads and writes
 *   nothing beyond the program's struct. A function whose name ends in _sized takes the size
 *   of the caller's struct. The inline function without that ending passes the size. A struct
 *   of options starts with its size; fill it with its _init function first. A struct that the
 *   library fills starts with the number of bytes that the library filled; fields beyond
 *   these bytes are 0. In a muonium_tensor or a muonium_qk, a field that is 0 selects the usual
 *   behaviour. The other structs never change: muonium_shape, muonium_view,
 *   muonium_allocator, muonium_source and muonium_buffer.
 */
#ifndef MUONIUM_H
#define MUONIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUONIUM_VERSION_MAJOR 0
#define MUONIUM_VERSION_MINOR 2
#define MUONIUM_VERSION_PATCH 0
#define MUONIUM_VERSION_STRING "0.2.0"

#if defined(_WIN32)
#define MUONIUM_API
#else
#define MUONIUM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the running library, as "major.minor.patch". Compare it with
 * MUONIUM_VERSION_STRING, the version of the header that the program was compiled against. */
MUONIUM_API const char *muonium_version(void);

/* ---------------------------------------------------------------- errors -- */

/* The result of a call. The values are part of the ABI and never change. */
typedef enum muonium_status {
    MUONIUM_OK = 0,            /* the call succeeded */
    MUONIUM_INVALID = 1,       /* an argument, option or environment variable is wrong */
    MUONIUM_NO_MEMORY = 2,     /* an allocation failed */
    MUONIUM_NON_FINITE = 3,    /* NaN or infinity in an input, under MUONIUM_NONFINITE_ERROR */
    MUONIUM_NOT_CONVERGED = 4, /* a search for coefficients did not converge */
    MUONIUM_IO = 5,            /* the operating system refused a read or a write */
    MUONIUM_FORMAT = 6,        /* a file is malformed or does not fit */
    MUONIUM_PEER = 7           /* another process of a distributed step failed or is silent */
} muonium_status;

/* The name of a status, as "MUONIUM_OK". For other values it is "unknown status". */
MUONIUM_API const char *muonium_status_name(muonium_status status);

/* The message of the last call in this thread that failed. It is "" if no call has failed. The
 * pointer stays valid until the next failing call in the same thread. The message is one line of
 * valid UTF-8 and can be shown on a terminal. In names and paths, '?' replaces control characters,
 * line separators, bidirectional controls and bytes that are not UTF-8. */
MUONIUM_API const char *muonium_last_error(void);

/* ---------------------------------------------------------------- memory -- */

/* An allocator, from which the library gets its memory. `allocate` returns `bytes` bytes of memory
 * aligned to `alignment`, a power of two, or NULL if it fails. `release` frees memory that
 * `allocate` returned. Both get `context`. Both may be called from any thread and from several
 * threads at a time. Neither may call the library. */
typedef struct muonium_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment);
    void (*release)(void *context, void *memory);
    void *context;
} muonium_allocator;

/* Replace the allocator of the process. NULL restores the allocator of the C library. Call this
 * before the library holds any memory: the library releases memory through the allocator in force
 * at that time, even if another one allocated it. The call fails if a function of the allocator is
 * NULL. */
MUONIUM_API muonium_status muonium_set_allocator(const muonium_allocator *allocator);

/* --------------------------------------------------------------- threads -- */

/* Set the number of threads. The number includes the calling thread and holds from the next call
 * on. It is at most 1024. With 0 the library returns to the default: the value of the environment
 * variable MUONIUM_NUM_THREADS if it is set, else the number of CPUs that the affinity mask
 * allows, and no more than the CPU quota of the control group, rounded up: a container that may
 * use 2 of 64 CPUs gets 2 threads. If the variable is set to anything but a number from 1 to 1024,
 * `threads` = 0 is refused; every call that computes is refused too, until another number is set
 * here. Threads start when first needed; if some cannot be started, the call goes on with fewer.
 * They survive fork: a child process starts its own threads. If several threads of the program
 * call the library at a time, one of them gets the pool and the others work alone. With the
 * environment variable MUONIUM_PIN=1 each thread that the library starts is bound to a CPU,
 * neighbours to neighbours; otherwise none is bound. */
MUONIUM_API muonium_status muonium_set_threads(int threads);

/* The number of threads that the next call may use. It is at least 1. */
MUONIUM_API int muonium_threads(void);

/* ------------------------------------------------------------- processor -- */

/* The instruction set and the kernels that the library uses. */
typedef struct muonium_cpu_info {
    size_t struct_size;      /* bytes that the library filled */
    const char *isa;         /* the instruction set in use, a value of MUONIUM_CPU below */
    const char *kernel;      /* the name of the f32 kernel in use */
    const char *reason;      /* the reason: "best that this CPU has", "MUONIUM_CPU=avx2", ... */
    const char *features;    /* the features of CPU and operating system, as "avx2 fma f16c" */
    const char *bf16_kernel; /* the name of the kernel in use for precision MUONIUM_BF16 */
    const char *bf16_reason; /* the reason for that kernel, with the measured rates */
} muonium_cpu_info;

/* Describe the kernels that the library chose, and the reasons. The environment variable
 * MUONIUM_CPU selects an instruction set that the CPU has: portable, avx2, avx_vnni, avx512,
 * avx512_vnni, avx512_bf16, amx; on 64-bit Arm portable, neon, neon_dotprod, neon_i8mm, neon_bf16;
 * or blas in builds that have it. An unknown value, or a value that the CPU lacks, is an error here
 * and in every call that computes. The vnni sets, amx, neon_dotprod and neon_i8mm have integer
 * products for MUONIUM_FIXED23 and MUONIUM_FIXED15. avx512_bf16 and amx have bf16 products
 * for precision MUONIUM_BF16. With the Frobenius norm, the results of that precision are the same
 * on all sets but amx, which rounds its sums in an order of its own (docs/numerics.md) and is used
 * wherever the CPU has it. Without amx, and if MUONIUM_CPU does not decide, the library measures
 * bf16 products against f32 and uses bf16 products if they are faster. The measurement takes a
 * millisecond. It happens in this call, or when a plan first needs that precision. The library
 * decides once per process. */
MUONIUM_API muonium_status muonium_cpu_sized(muonium_cpu_info *info, size_t size);
static inline muonium_status muonium_cpu(muonium_cpu_info *info)
{
    return muonium_cpu_sized(info, sizeof *info);
}

/* ---------------------------------------------------------- coefficients -- */

/* One iteration maps every singular value s of a matrix to a*s + b*s^3 + c*s^5. A table of
 * coefficients is an array of rows {a, b, c}, one row per iteration. The argument `steps` is the
 * number of iterations. */

#define MUONIUM_MAX_STEPS 64

/* Compute the Polar Express coefficients (Amsel et al., arXiv 2505.16932). They are `steps`
 * quintics. Each quintic is optimal after the ones before it. Together they bring the singular
 * values in [lower, 1] closest to 1. Every coefficient has a relative error of at most 1e-12.
 *   steps    is the number of iterations, 1 to MUONIUM_MAX_STEPS.
 *   lower    is the lower end of that interval, in [0, 1]. The usual value is 1e-3. If it is 0,
 *            the cushion must be above 0.
 *   safety   is at least 0. Every iteration but the last leaves room for singular values up to
 *            1 + safety. The usual value is 1e-2; plans and the optimizer use 2e-2.
 *   cushion  is in [0, 1). No iteration is optimised for singular values below cushion times the
 *            largest value. This keeps early iterations from amplifying rounding errors. The
 *            usual value is 0.02.
 *   table    gets `steps` rows. */
MUONIUM_API muonium_status muonium_polar_express(int steps, double lower, double safety,
                                                 double cushion, double (*table)[3]);

/* Compute the optimal odd cubics, with c = 0. An iteration costs one product less than a quintic
 * and achieves less. The arguments are those of muonium_polar_express, except that there is no
 * cushion and that `lower` must be above 0. */
MUONIUM_API muonium_status muonium_polar_cubic(int steps, double lower, double safety,
                                               double (*table)[3]);

/* Get the table of a published preset. `table` gets `steps` rows: the first rows of the preset. If
 * the preset has fewer rows, its last row repeats. An unknown name fails with a message that lists
 * the valid names. */
MUONIUM_API muonium_status muonium_coefficients(const char *preset, int steps, double (*table)[3]);

/* The presets by index, from 0. muonium_preset_name returns the name, and NULL past the last
 * preset. muonium_preset_rows returns the number of published rows, and 0 past the last preset. */
MUONIUM_API const char *muonium_preset_name(int index);
MUONIUM_API int muonium_preset_rows(int index);

/* --------------------------------------------------------------- matrices -- */

/* Types of numbers. Matrices and parameters are stored in the first four types. The next four are
 * precisions of the iteration only. MUONIUM_INT8 is a type of state only. */
typedef enum muonium_dtype {
    MUONIUM_F32 = 0,
    MUONIUM_F64 = 1,
    MUONIUM_BF16 = 2,
    MUONIUM_F16 = 3,
    MUONIUM_FIXED23 = 4, /* f32 matrices; products of integers of 23 bits and sign */
    MUONIUM_FIXED15 = 5, /* f32 matrices; products of integers of 15 bits and sign */
    MUONIUM_AUTO = 6,    /* F32 or FIXED23, whichever is faster for the shape on this CPU */
    MUONIUM_INT8 = 7     /* integers from -127 to 127; each MUONIUM_STATE_BLOCK have an f32 scale */
} muonium_dtype;

/* The number of consecutive elements of MUONIUM_INT8 state with one scale. An element is its
 * integer times the scale of its block. Block i has the elements from i * MUONIUM_STATE_BLOCK on,
 * in the order of the parameter; the last block may be shorter. */
#define MUONIUM_STATE_BLOCK 2048

/* The number of bytes per element. It is 0 for an unknown type and for a type that is not
 * stored. */
MUONIUM_API size_t muonium_dtype_size(muonium_dtype dtype);

/* The shape of a batch: `batch` matrices of `rows` by `cols`. Each number is at least 1. */
typedef struct muonium_shape {
    size_t batch;
    size_t rows;
    size_t cols;
} muonium_shape;

/* The memory layout of a batch of matrices. `data` is the address of element (0, 0, 0). Element
 * (b, i, j) has the index
 *   b*batch_stride + i*row_stride + j*col_stride,
 * counted in elements. Strides may be negative. `data` needs only the alignment of its element
 * type. */
typedef struct muonium_view {
    void *data;
    muonium_dtype dtype;
    ptrdiff_t batch_stride;
    ptrdiff_t row_stride;
    ptrdiff_t col_stride;
} muonium_view;

/* The view of a dense row-major array. The array is `data`; its elements have the type `dtype`. */
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

/* The norm by which a matrix is divided, so that no singular value exceeds 1. */
typedef enum muonium_normalization {
    MUONIUM_NORM_FROBENIUS = 0, /* the Frobenius norm */
    MUONIUM_NORM_SCHATTEN = 1,  /* the Schatten-4 norm: tighter, from the first Gram matrix */
    MUONIUM_NORM_AOL = 2,       /* a bound for each row: saves about one iteration, and changes
                                   the polar factor slightly */
    MUONIUM_NORM_SPECTRAL = 3,  /* the largest singular value, with an upper margin */
    MUONIUM_NORM_NONE = 4       /* nothing: the caller promises singular values of at most 1 */
} muonium_normalization;

/* How eps enters the divisor d = norm * safety_factor. */
typedef enum muonium_eps_mode {
    MUONIUM_EPS_NONE = 0,  /* d: X and 2^k X give the same bits */
    MUONIUM_EPS_CLAMP = 1, /* max(d, eps) */
    MUONIUM_EPS_ADD = 2,   /* d + eps */
    MUONIUM_EPS_OPTAX = 3  /* d + eps; for AOL and Schatten max(d, 1e-4) instead */
} muonium_eps_mode;

/* How the polynomial is evaluated. The standard and the Gram form apply one quintic per
 * iteration. The direct form has polynomials of its own, which need fewer products;
 * muonium_direct_set_name lists them. It does not compute in the half types, and needs a
 * normalisation that leaves no singular value above 1. */
typedef enum muonium_form {
    /* The cheapest for the shape. The direct form is considered only where the options that
     * choose the polynomial (steps, table, coefficients, lower, safety, cushion and
     * generated_rows) are at their defaults, and only with a set whose max |p(s) - 1| over
     * [1e-3, 1] is no larger. */
    MUONIUM_FORM_AUTO = 0,
    MUONIUM_FORM_STANDARD = 1, /* X <- (aI + bR + cR^2) X with R = X X^T, in every iteration */
    MUONIUM_FORM_GRAM = 2,     /* iterates on R alone; applied to X at restarts and at the end */
    /* Evaluates the polynomial of direct_set on R and applies it to X once. Options that choose
     * another polynomial are refused unless they are at their defaults. */
    MUONIUM_FORM_DIRECT = 3,
    MUONIUM_FORM_QUINTIC = 4 /* the cheaper of standard and Gram */
} muonium_form;

/* The names of the polynomials of the direct form by index, from 0. NULL past the last. */
MUONIUM_API const char *muonium_direct_set_name(int index);

/* What happens to a matrix that contains NaN or infinity. */
typedef enum muonium_nonfinite {
    MUONIUM_NONFINITE_ERROR = 0, /* the call fails, names the first bad element, writes nothing */
    MUONIUM_NONFINITE_SKIP = 1,  /* the output of this matrix is left as it is */
    MUONIUM_NONFINITE_PROPAGATE = 2 /* the output of this matrix is filled with NaN */
} muonium_nonfinite;

/* Which intermediates the half types round. Each value names an implementation and reproduces
 * its bits up to the order of sums, which are f32. All round the normalised X, R = X X^T,
 * Z = b R + c R^2 and the new X = a X + Z X. All but the first also round the matrix before its
 * norm is taken. Only the standard form has these choices; the half types run it unless the
 * options ask for the Gram form, which rounds as the first value says. f32 and f64 ignore them. */
typedef enum muonium_rounding {
    MUONIUM_ROUNDING_STORED = 0, /* also R^2 */
    MUONIUM_ROUNDING_TORCH = 1,  /* also the norm: torch.optim.Muon and timm, by addmm */
    MUONIUM_ROUNDING_KELLER = 2, /* also the norm, c R, (c R) R, b R, a X and Z X */
    MUONIUM_ROUNDING_MOTIF = 3,  /* also the norm, R^2 and b R */
    MUONIUM_ROUNDING_FP16 = 4    /* also R^2, c R^2, b R, a X and Z X */
} muonium_rounding;

/* The options of a plan, or of one orthogonalisation. */
typedef struct muonium_plan_options {
    size_t struct_size; /* set by muonium_plan_options_init */

    /* The number of iterations, 1 to MUONIUM_MAX_STEPS; default 5. With the defaults, singular
     * values of at least 1e-3 of the norm end between 0.86 and 1.14, and the result is about
     * 7 % away from the polar factor. 8 iterations give the polar factor, to 1.4e-6 in f32.
     * Singular values below 1e-3 of the norm end below 1; steps = 12 with lower = 1e-5 brings
     * those from 1e-5 on to 1. */
    int steps;

    /* The polynomials, from the first of these that is set:
     *   table          `table_rows` rows {a, b, c}; the last row repeats;
     *   coefficients   the preset of that name;
     *   neither        muonium_polar_express(steps, lower, safety, cushion), the default.
     * A table that takes a singular value in [0, 1] beyond 1e7 (f64: 1e30) is refused. */
    const double (*table)[3];
    size_t table_rows;
    const char *coefficients;
    double lower;   /* 1e-3 */
    double safety;  /* 2e-2 */
    double cushion; /* 0.02 */

    muonium_normalization normalization; /* MUONIUM_NORM_FROBENIUS */
    muonium_eps_mode eps_mode;           /* MUONIUM_EPS_NONE */
    double eps;                          /* at least 0; unused under MUONIUM_EPS_NONE; 1e-7 */
    double safety_factor;                /* multiplies the norm; above 0; 1 */

    /* The precision of the iteration; default MUONIUM_AUTO. That is MUONIUM_F32, except on the
     * instruction set amx, where large matrices get MUONIUM_FIXED23. The choice depends on the
     * instruction set, the shape of one matrix and the options, never on a measurement.
     * muonium_plan_info has it. MUONIUM_BF16 and MUONIUM_F16 round every intermediate matrix to
     * that type and sum in f32, as GPU implementations do. They are less accurate and on most CPUs
     * slower than f32; use them to reproduce other implementations. MUONIUM_FIXED23 and
     * MUONIUM_FIXED15 multiply integers instead of f32 numbers: the first is as accurate as f32,
     * the second about fifty times less. Their results are the same bits on every CPU.
     * docs/numerics.md gives the error bounds. */
    muonium_dtype precision;
    muonium_form form;           /* MUONIUM_FORM_AUTO */
    const char *direct_set;      /* NULL: "P12" under MUONIUM_FORM_DIRECT, the fastest under AUTO */
    muonium_nonfinite nonfinite; /* MUONIUM_NONFINITE_ERROR */

    /* Measure every result Y, by the product Y Y^T and 24 products of it with vectors; default
     * false. The certificate then has orthogonality_error, sigma_min and sigma_max, and its
     * `bound` (in the direct form also `deviation`) equals orthogonality_error. */
    bool exact_certificate;

    muonium_rounding rounding; /* of the half types; MUONIUM_ROUNDING_STORED */

    /* The number of rows for which a table is generated, 0 to MUONIUM_MAX_STEPS. Only the first
     * `steps` are used. 0, the default, generates `steps` rows. The first rows of a longer table
     * are not optimal; use this to reproduce other implementations. */
    int generated_rows;
} muonium_plan_options;

/* Fill the options with the defaults above. `size` is the size of the struct in the caller's
 * version. The library fills the first `size` bytes. */
MUONIUM_API void muonium_plan_options_init_sized(muonium_plan_options *options, size_t size);
static inline void muonium_plan_options_init(muonium_plan_options *options)
{
    muonium_plan_options_init_sized(options, sizeof *options);
}

/* The outcome of the orthogonalisation of one matrix. */
typedef enum muonium_outcome {
    MUONIUM_ORTHOGONALIZED = 0, /* the matrix was orthogonalised */
    MUONIUM_ZERO = 1,           /* the matrix is zero, and so is the result */
    MUONIUM_SKIPPED = 2,        /* the matrix is not finite; the output was not written */
    MUONIUM_PROPAGATED = 3,     /* the matrix is not finite; the output was filled with NaN */
    MUONIUM_DIVERGED = 4        /* the matrix is finite, but the iteration diverged even in its
                                   safest form; the output was filled with zero */
} muonium_outcome;

/* The measured quality of one result. It can be checked without a reference result. Y is the m x n
 * result, with m <= n. */
typedef struct muonium_certificate {
    size_t struct_size;      /* bytes that the library filled */
    muonium_outcome outcome; /* the outcome for this matrix */
    int rescued;      /* how often singular values were rescaled and the iteration was repeated */
    double divisor;   /* the number by which the matrix was divided; under MUONIUM_NORM_AOL, the
                         largest divisor of a row */
    double deviation; /* ||I - X X^T||_F before the last iteration. In the direct form, a lower
                         bound on ||I - Y Y^T||_F, computed from the trace of Y Y^T alone. */
    double bound;     /* an upper bound on ||I - Y Y^T||_F, up to rounding, derived from the same
                         measurement */

    /* The next three fields are measured if exact_certificate is set; otherwise they are NaN. They
     * are measured on Y before Y is rounded to the type of `out`. For a zero result they are
     * known without a measurement: sqrt(m), 0 and 0. */
    double orthogonality_error; /* ||I - Y Y^T||_F, up to the rounding of Y Y^T in f32 (in f64 for
                                   precision MUONIUM_F64). Every singular value s of Y satisfies
                                   |s^2 - 1| <= orthogonality_error. This is a proof, but a coarse
                                   one. */

    /* Estimates of the smallest and the largest singular value, by at most 24 Lanczos iterations.
     * They are estimates from within: up to rounding, Y has singular values at least this small
     * and at least this large. If m <= 24, they are the ends of the range. Otherwise the range is
     * usually at most a few per cent wider. A single value far from all others is found. If many
     * values lie close to an end, the last of them may be missed. A sigma_min below 1e-3
     * (f64: 1e-7) is rounding noise. */
    double sigma_min;
    double sigma_max;
} muonium_certificate;

/* A plan for one shape and one set of options. It holds everything that depends on these alone. It
 * is immutable. Any number of threads may execute one plan at a time. */
typedef struct muonium_plan muonium_plan;

/* The description of a plan. */
typedef struct muonium_plan_info {
    size_t struct_size;                 /* bytes that the library filled */
    muonium_form form;                  /* the form that the plan chose */
    int steps;                          /* the number of iterations */
    int restarts;                       /* Gram form: the number of restarts */
    int restart[MUONIUM_MAX_STEPS];     /* the iterations, from 0, that begin with a restart */
    double table[MUONIUM_MAX_STEPS][3]; /* the coefficients; unused in the direct form */
    const char *direct_set;             /* direct form: the name of its polynomial; else NULL */
    double band;                        /* max |p(s) - 1| for singular values s in [1e-3, 1] after
                                           the normalisation, where p is the whole polynomial */
    double flops;                       /* operations per matrix; triangles are counted once */
    size_t workspace;                   /* bytes that an execution needs */
    muonium_dtype precision;            /* that of the options; for MUONIUM_AUTO the chosen one */
} muonium_plan_info;

/* Make a plan for a shape. If `options` is NULL, the plan uses the defaults. *plan gets the plan;
 * the caller destroys it. The workspace is sized for the number of threads in force now. An
 * execution uses no more threads than that. */
MUONIUM_API muonium_status muonium_plan_create(muonium_shape shape,
                                               const muonium_plan_options *options,
                                               muonium_plan **plan);
MUONIUM_API void muonium_plan_destroy(muonium_plan *plan); /* NULL is allowed */

/* Describe a plan. `info` gets the description. */
MUONIUM_API muonium_status muonium_plan_describe_sized(const muonium_plan *plan,
                                                       muonium_plan_info *info, size_t size);
static inline muonium_status muonium_plan_describe(const muonium_plan *plan,
                                                   muonium_plan_info *info)
{
    return muonium_plan_describe_sized(plan, info, sizeof *info);
}

/* Orthogonalise a batch of matrices. Every matrix of `out` gets the corresponding matrix of `in`
 * with its singular values brought close to 1. The options decide how close: 8 iterations give the
 * polar factor, the defaults a result near it.
 *   in            describes the input. It may have any type and any strides.
 *   out           describes the output. It may have any type and any strides, but its elements
 *                 must not overlap each other. It may be the memory of `in` with the same
 *                 strides and type. Otherwise it must not overlap `in`.
 *   workspace     is memory of at least muonium_plan_info.workspace bytes, aligned to 64 bytes.
 *                 Only this call may use it while the call runs. The call then allocates
 *                 nothing. If it is NULL, the call allocates a workspace and frees it.
 *   certificates  gets one certificate per matrix. NULL is allowed.
 *   size          is the distance in bytes from one certificate to the next. */
MUONIUM_API muonium_status muonium_plan_execute_sized(const muonium_plan *plan,
                                                      const muonium_view *in,
                                                      const muonium_view *out, void *workspace,
                                                      muonium_certificate *certificates,
                                                      size_t size);
static inline muonium_status muonium_plan_execute(const muonium_plan *plan, const muonium_view *in,
                                                  const muonium_view *out, void *workspace,
                                                  muonium_certificate *certificates)
{
    return muonium_plan_execute_sized(plan, in, out, workspace, certificates, sizeof *certificates);
}

/* Make a plan, execute it and destroy it. The arguments are those of muonium_plan_create and
 * muonium_plan_execute. */
MUONIUM_API muonium_status muonium_orthogonalize_sized(
    muonium_shape shape, const muonium_plan_options *options, const muonium_view *in,
    const muonium_view *out, muonium_certificate *certificates, size_t size);
static inline muonium_status muonium_orthogonalize(muonium_shape shape,
                                                   const muonium_plan_options *options,
                                                   const muonium_view *in, const muonium_view *out,
                                                   muonium_certificate *certificates)
{
    return muonium_orthogonalize_sized(shape, options, in, out, certificates, sizeof *certificates);
}

/* ------------------------------------------------------------- optimizer -- */

/* Muon for the weight matrices, AdamW (or NAdamW) for all other parameters, in one step call:
 *
 *     muonium_options o;
 *     muonium_options_init(&o, NULL);
 *     o.lr = 0.02;
 *     muonium_optimizer *opt;
 *     muonium_create(&o, &opt);
 *     muonium_tensor w = {.name = "mlp.w", .dtype = MUONIUM_F32, .ndim = 2,
 *                         .shape = {3072, 768}, .data = weights, .grad = gradients};
 *     muonium_add(opt, &w, NULL);
 *     for (;;) {
 *         ... backward fills gradients ...
 *         muonium_step(opt);
 *     }
 *     muonium_destroy(opt);
 *
 * Only one thread at a time may use an optimizer. A call that would change an optimizer is refused
 * with MUONIUM_INVALID while another call changes or saves it. Any number of optimizers can exist
 * side by side. All share the one thread pool. Creating an optimizer takes microseconds and starts
 * no thread. */

/* For a Muon parameter W with gradient G, momentum M and learning rate lr:
 *   M <- momentum of G;  D <- M, or Nesterov's look-ahead;  O <- orthogonalised D;
 *   W <- decay(W) - lr * scale * O. */

/* The formula of the momentum M. G is the gradient and mu is options.momentum. The step t counts
 * from 1. */
typedef enum muonium_momentum_form {
    MUONIUM_MOMENTUM_LERP = 0,         /* M = mu M + (1 - mu) G */
    MUONIUM_MOMENTUM_SUM = 1,          /* M = mu M + G */
    MUONIUM_MOMENTUM_EMA_CORRECTED = 2 /* lerp, divided by 1 - mu^t */
} muonium_momentum_form;

/* The direction D with nesterov on. */
typedef enum muonium_nesterov_form {
    MUONIUM_NESTEROV_AUTO = 0, /* as momentum_form; for ema_corrected
                                  mu M / (1 - mu^(t+1)) + (1 - mu) G / (1 - mu^t) */
    MUONIUM_NESTEROV_LERP = 1, /* (1 - mu) G + mu M */
    MUONIUM_NESTEROV_SUM = 2   /* G + mu M */
} muonium_nesterov_form;

/* The factor on O, for the (out, in) matrix that is orthogonalised: one block of a fused tensor,
 * one expert. */
typedef enum muonium_scale {
    MUONIUM_SCALE_ORIGINAL = 0,        /* sqrt(max(1, out / in)) */
    MUONIUM_SCALE_MATCH_RMS_ADAMW = 1, /* 0.2 sqrt(max(out, in)): steps as large as AdamW's */
    MUONIUM_SCALE_RMS_TO_RMS = 2,      /* sqrt(out / in) */
    MUONIUM_SCALE_NONE = 3,            /* 1 */
    MUONIUM_SCALE_RSQRT_IN = 4         /* 1 / sqrt(in) */
} muonium_scale;

/* The slices that share one mean square of NorMuon. */
typedef enum muonium_normuon_axis {
    MUONIUM_NORMUON_ROWS = 0,    /* a mean for each row */
    MUONIUM_NORMUON_COLUMNS = 1, /* a mean for each column */
    MUONIUM_NORMUON_SHAPE = 2    /* for each row if out >= in, else for each column */
} muonium_normuon_axis;

/* NorMuon's divisor, of a mean square v and eps = options.normuon_eps. */
typedef enum muonium_normuon_form {
    MUONIUM_NORMUON_ADD = 0,  /* sqrt(v) + eps */
    MUONIUM_NORMUON_CLAMP = 1 /* sqrt(max(v, eps)) */
} muonium_normuon_form;

/* The slices of which options.fraction selects some. */
typedef enum muonium_selection {
    MUONIUM_SELECT_SHORTER = 0, /* rows if out <= in, else columns */
    MUONIUM_SELECT_ROWS = 1     /* rows */
} muonium_selection;

/* The effect of weight decay wd on the weights W. */
typedef enum muonium_decay {
    MUONIUM_DECAY_DECOUPLED = 0,      /* W (1 - lr wd), before the update */
    MUONIUM_DECAY_CAUTIOUS = 1,       /* the same, only where O and W have the same sign */
    MUONIUM_DECAY_INDEPENDENT = 2,    /* W (1 - wd) */
    MUONIUM_DECAY_CAUTIOUS_SCALED = 3 /* as CAUTIOUS, with lr times the scale in place of lr */
} muonium_decay;

/* The optimizer of parameters without Muon. */
typedef enum muonium_adam_kind {
    MUONIUM_ADAMW = 0,
    MUONIUM_NADAMW = 1,          /* with Nesterov's look-ahead, see muonium_nadamw_form */
    MUONIUM_ADAM_BY_NESTEROV = 2 /* NAdamW if nesterov is on, else AdamW */
} muonium_adam_kind;

/* The first moment of NAdamW in step t, counted from 1. m already includes the gradient g. */
typedef enum muonium_nadamw_form {
    MUONIUM_NADAMW_LOOKAHEAD = 0, /* (b1 m + (1-b1) g) / (1 - b1^(t+1)) */
    MUONIUM_NADAMW_TIMM = 1,      /* (b1 m + (1-b1) g) / (1 - b1^t) */
    MUONIUM_NADAMW_OPTAX = 2      /* b1 m / (1 - b1^(t+1)) + (1-b1) g / (1 - b1^t) */
} muonium_nadamw_form;

/* The optimizer of a parameter: chosen by rules (see muonium_add), or given. */
typedef enum muonium_route {
    MUONIUM_ROUTE_AUTO = 0,
    MUONIUM_ROUTE_MUON = 1,
    MUONIUM_ROUTE_ADAM = 2
} muonium_route;

/* The rule by which names and shapes choose the optimizer. Each recipe has the rule of the
 * implementation that it reproduces; any recipe can be combined with any rule. Tensors of fewer
 * than two dimensions always get AdamW. docs/recipes.md has the names of each rule. */
typedef enum muonium_routing {
    MUONIUM_ROUTING_MUONIUM = 0,   /* AdamW for the patterns of muonium_default_pattern; Muon for
                                    other tensors within min_dim and max_aspect */
    MUONIUM_ROUTING_TIMM = 1,      /* Muon for tensors within min_dim and max_aspect */
    MUONIUM_ROUTING_TORCH = 2,     /* Muon for every 2-D tensor and for no other; also of optax */
    MUONIUM_ROUTING_WRAPPER = 3,   /* of fp16 and fp32: Muon for 2-D tensors except routers,
                                    embeddings, norms and smear */
    MUONIUM_ROUTING_KELLER = 4,    /* Muon for every tensor of two dimensions or more */
    MUONIUM_ROUTING_MOONLIGHT = 5, /* as KELLER, except embed_tokens and lm_head */
    MUONIUM_ROUTING_MOTIF = 6      /* as MOONLIGHT, except also tok_embeddings and output */
} muonium_routing;

/* The matrices in a tensor. */
typedef enum muonium_layout {
    MUONIUM_LAYOUT_AUTO = 0,    /* 2-D: (out, in), or (in, out) under options.kernels_in_out; 3-D:
                                as options.layout_3d says; more dimensions: flatten */
    MUONIUM_LAYOUT_FLATTEN = 1, /* (out, in * all the rest) */
    MUONIUM_LAYOUT_SPATIAL = 2, /* (out, in, positions...): a matrix (out, in) per position */
    MUONIUM_LAYOUT_EXPERTS = 3, /* (batch..., out, in): a matrix per leading index */
    MUONIUM_LAYOUT_FAN = 4      /* out_axes and in_axes name the axes; all others are a batch */
} muonium_layout;

/* A function that receives one line of text without a newline. The library calls it from the
 * thread that called the library. The line can be shown on a terminal, like a message of
 * muonium_last_error. */
typedef void muonium_log(void *context, const char *line);

/* The options of an optimizer, or of one of its groups. */
typedef struct muonium_options {
    size_t struct_size; /* set by muonium_options_init */

    /* The orthogonalisation. It begins with its own size, so that it can grow. plan.nonfinite
     * also applies to the gradients of AdamW parameters. */
    muonium_plan_options plan;

    /* Muon */
    double lr;                           /* the learning rate; at least 0 */
    double weight_decay;                 /* at least 0 */
    double momentum;                     /* mu, from 0 to below 1 */
    muonium_momentum_form momentum_form; /* how M takes up a gradient */
    bool nesterov;                       /* orthogonalise the look-ahead instead of M */
    muonium_nesterov_form nesterov_form; /* the formula of the look-ahead */
    muonium_scale scale;                 /* the factor on O */
    double scale_factor;                 /* multiplies that factor; at least 0 */
    muonium_decay decay;                 /* how weight_decay acts */
    bool spatial_normalize; /* divide O of the spatial layout by sqrt(number of positions) */
    bool maximize;          /* step along the gradients; also of AdamW parameters */

    /* NorMuon divides each row of O by the root of a running mean of its squares, and restores
     * the norm of O. */
    bool normuon;
    double normuon_beta2; /* the decay of that mean, from 0 to below 1 */
    double normuon_eps;   /* added to the divisor; at least 0 */

    /* AdamW, for parameters without Muon. Its weight decay is always decoupled. A negative value
     * of adam_lr, adam_eps or adam_weight_decay follows Muon. */
    muonium_adam_kind adam;
    muonium_nadamw_form nadamw_form;
    double adam_lr;           /* negative: adam_lr_scale * lr */
    double adam_lr_scale;     /* at least 0 */
    double adam_beta1;        /* from 0 to below 1 */
    double adam_beta2;        /* from 0 to below 1 */
    double adam_eps;          /* negative: plan.eps */
    double adam_eps_root;     /* added to the second moment under the root; at least 0 */
    double adam_weight_decay; /* negative: weight_decay */

    /* Routing. A pattern may hold * and ?. It is compared, without regard to case, with each
     * part of a parameter's name between dots and slashes; parameters that match get AdamW.
     * These patterns come before those of the rule. */
    muonium_route route;         /* AUTO, or one optimizer for all parameters of the group */
    muonium_routing routing;     /* the rule for parameters without a route */
    const char *const *patterns; /* NULL: none */
    size_t pattern_count;
    bool only_patterns;  /* `patterns` replace the names of the rule */
    bool split_fused;    /* split what muonium_fused recognises, unless the tensor has a layout or
                            splits of its own */
    size_t min_dim;      /* under the rules MUONIUM and TIMM, matrices with a shorter side get
                            AdamW; at least 1 */
    double max_aspect;   /* under these rules, so do matrices whose sides have a larger ratio; at
                            least 1, may be infinite */
    bool only_2d;        /* under every rule, tensors that are not 2-D and have no layout get
                            AdamW */
    bool kernels_in_out; /* 2-D tensors without a layout are (in, out), as in JAX */
    muonium_layout layout_3d; /* the layout of 3-D tensors that have none: FLATTEN, EXPERTS or
                                 AUTO, which is EXPERTS for names of experts ("experts", "moe",
                                 "w13", "gate_up_proj", ...) and FLATTEN for others */

    /* Storage */
    muonium_dtype state_dtype; /* the type of the momentum: MUONIUM_F32, MUONIUM_BF16 or
                                  MUONIUM_INT8 */
    bool master;               /* keep f32 copies of half-precision parameters and step those */
    bool stochastic_rounding;  /* round half-precision parameters up or down at random, without
                                  bias; the result does not depend on the number of threads */
    uint64_t seed;             /* of stochastic_rounding and state_stochastic */

    /* These are taken from the options of muonium_create, not from those of groups. */
    size_t scratch_bytes; /* scratch memory beyond what one matrix needs. With more, more teams of
                             threads have a matrix each at the same time. 0: as much as pays, and
                             at most the larger of half of the parameters' own bytes and 2 MB */
    muonium_log *log;     /* NULL: silent. Gets the routes of all parameters before the first
                             step, the lines of muonium_warnings after "warning: ", and notes about
                             problems that are not errors */
    void *log_context;    /* passed to log */

    bool adaptive; /* multiply the update of a Muon parameter by the dual norm of its direction,
                      the sum of the products of the elements of D and O. Steps then grow with
                      the gradients. A parameter must be one matrix. */

    /* Rules of newer members of the family. docs/recipes.md explains them. They act in this order:
     * equilibrate before the orthogonalisation; renormalize, adamuon, normuon and hyperball after
     * it. */

    /* Scale each row of D to the root mean square of the norms of all rows. A row whose norm is
     * below equilibrate_eps, at least 0, is scaled as if it had that norm. */
    bool equilibrate;
    double equilibrate_eps;

    /* Scale O to the Frobenius norm sqrt(min(out, in)). A norm below renormalize_eps, at least 0,
     * counts as renormalize_eps. */
    bool renormalize;
    double renormalize_eps;

    muonium_normuon_axis normuon_axis; /* the slices with a mean square of their own */
    muonium_normuon_form normuon_form; /* the divisor of a slice */

    /* AdaMuon divides O by the root of the running mean v of its squares, element by element:
     * O / (sqrt(v) + eps). Under MUONIUM_SCALE_MATCH_RMS_ADAMW it then scales the whole parameter
     * to the root mean square 0.2. Under other scales v is divided by 1 - beta2^t first, in step
     * t. */
    bool adamuon;
    double adamuon_beta2; /* the decay of v, from 0 to below 1 */
    double adamuon_eps;   /* negative: plan.eps */

    /* MuonH: W moves on the sphere of its first norm R. The step before the return to the sphere
     * is lr * scale * R * O / ||O||. Weight decay has no effect there and must be 0. A matrix that
     * is zero stays zero. */
    bool hyperball;

    /* Dion2: M <- M + G. Only the ceil(fraction * slices) slices of M with the largest sums of
     * magnitudes are orthogonalised, as a matrix of their own. W moves only there, by the scale of
     * the whole matrix, and these slices of M are multiplied by ef_decay afterwards. 1: all of M,
     * by `momentum`. A fraction below 1 needs momentum_form sum without nesterov. */
    double fraction;             /* above 0, at most 1 */
    double ef_decay;             /* from 0 to below 1 */
    muonium_selection selection; /* which slices */

    /* More of storage */
    muonium_dtype adam_state_dtype; /* the type of AdamW's first moment: MUONIUM_F32 or
                                       MUONIUM_INT8. The second moment is f32. */
    bool state_stochastic; /* round state of MUONIUM_INT8 up or down at random, without bias; to
                              nearest, an element below a few hundredths of the largest of its block
                              may stay where it is. The result does not depend on the number of
                              threads. */
} muonium_options;

/* Fill the options with a recipe. NULL or "muonium" selects the defaults of this library. "motif",
 * "fp16", "fp32", "timm", "optax", "torch", "keller", "moonlight", "nanochat", "dion2", "nordion2"
 * and "adamuon" select the behaviour of the implementation of that name; "muonh" keeps the norm of
 * every weight matrix. docs/recipes.md compares the recipes in a table. An unknown name
 * fails with a message that lists the valid names. optax has no default learning rate: lr is then
 * NaN, and the caller must set it.
 *
 * `size` and `plan_size` are the sizes of muonium_options and of the muonium_plan_options in it,
 * in the caller's version. The library writes and reads no byte beyond either size. It finds the
 * fields after the plan by the caller's plan_size. Both structs can therefore grow at their
 * end. */
MUONIUM_API muonium_status muonium_options_init_sized(muonium_options *options, size_t size,
                                                      size_t plan_size, const char *recipe);
static inline muonium_status muonium_options_init(muonium_options *options, const char *recipe)
{
    return muonium_options_init_sized(options, sizeof *options, sizeof options->plan, recipe);
}

/* The names of the recipes by index, from 0. NULL past the last. */
MUONIUM_API const char *muonium_recipe_name(int index);

/* ---------------------------------------------------------- options by name -- */

/* Every option can be listed, described, read and set by name, so that a command line, a
 * configuration file or a binding to another language needs no list of its own. The names are
 * those of the fields of muonium_options and of its member plan: "lr", "steps", ...
 *
 *     const muonium_option *o;
 *     for (int i = 0; (o = muonium_option_at(i)) != NULL; i++) {
 *         printf("%s: %s\n", o->name, o->help);
 *     }
 *     muonium_option_set(&options, "steps", "8");
 */

/* The types of options and their text forms. */
typedef enum muonium_option_type {
    MUONIUM_OPTION_NUMBER = 0,  /* double; text as "0.02", "inf" */
    MUONIUM_OPTION_INTEGER = 1, /* a whole number of `size` bytes; text as "5" */
    MUONIUM_OPTION_SWITCH = 2,  /* bool; text "yes" or "no" (set also takes on, off, true, false) */
    MUONIUM_OPTION_CHOICE = 3,  /* the enum `enum_type`; the text is the name of a value */
    MUONIUM_OPTION_NAME = 4,    /* a string, one of muonium_option_choice; "" for NULL */
    MUONIUM_OPTION_TABLE = 5,   /* a table of coefficients and its rows; text "a,b,c;a,b,c" */
    MUONIUM_OPTION_LIST = 6,    /* strings and their count; text "one,two", separators in a
                                   string as %xx */
    MUONIUM_OPTION_CALLBACK = 7 /* a function and its context; text "set" or "" */
} muonium_option_type;

/* The description of an option. It belongs to the library and lives as long as the library. */
typedef struct muonium_option {
    const char *name;         /* the name of the field */
    const char *help;         /* a sentence without capital and full stop */
    muonium_option_type type; /* the type of the value */
    bool plan;                /* it is a field of muonium_plan_options, in muonium_options.plan */
    bool saved;            /* checkpoints contain it; options that are not saved change no result */
    const char *enum_type; /* of a choice: the name of its enum, as "muonium_form"; else NULL */
    const char *range;     /* of a number: the valid range in words; else NULL */
    double least, most;    /* of a number: the bounds of that range, which are valid values */
    size_t offset, size;   /* of the field in its struct, in this version of the library. In a
                              type of two fields, the second follows the first, and `size` is the
                              size of the first. */
} muonium_option;

/* The options by index, from 0, and by name. muonium_option_at returns NULL past the last option.
 * muonium_option_find returns NULL if no option has that name. */
MUONIUM_API const muonium_option *muonium_option_at(int index);
MUONIUM_API const muonium_option *muonium_option_find(const char *name);

/* The names of the values of an option by index, from 0. Options of the types
 * MUONIUM_OPTION_CHOICE and MUONIUM_OPTION_NAME have such names. NULL past the last, and for
 * options of other types. */
MUONIUM_API const char *muonium_option_choice(const muonium_option *option, int index);

/* Write the value of an option as text. `text` gets the text; it has room for `size` bytes. If
 * `options` is NULL, the text is the default value. 64 bytes are enough for all options but tables
 * and lists. If `size` is too small, the call fails. */
MUONIUM_API muonium_status muonium_option_get(const muonium_options *options, const char *name,
                                              char *text, size_t size);

/* Set an option from text. The call fails for an unknown name, for a text that is no value, and
 * for a value out of range. The message then says what is valid, and nothing has changed. The
 * library stores names as pointers to its own strings, so the caller may free `text`. Tables,
 * lists and callbacks point to memory of the caller. This call can only clear them, by "". Setting
 * "coefficients" clears the table, because a table takes precedence. */
MUONIUM_API muonium_status muonium_option_set(muonium_options *options, const char *name,
                                              const char *text);

/* The name of a value of a public enum. muonium_enum_name("muonium_form", MUONIUM_FORM_GRAM) is
 * "gram". Values count from 0. The result is NULL past the last value and for an unknown enum. */
MUONIUM_API const char *muonium_enum_name(const char *type, int value);

/* ------------------------------------------------------------ parameters -- */

/* The rules of muonium_routing by index, from 0: "muonium", "timm", ... NULL past the last. */
MUONIUM_API const char *muonium_routing_name(int index);

/* The patterns of MUONIUM_ROUTING_MUONIUM by index, from 0. NULL past the last. *place gets one of
 * the words below, which tells what the pattern is compared with; `place` may be NULL.
 *   part     is each part of a name between dots and slashes.
 *   word     is each word of a part between underscores and digits.
 *   module   is the last part, ignoring "weight" and similar endings.
 *   outside  is each part before the first part that is a number. It excludes the names inside
 *            numbered blocks.
 *   top      is the module, if no part before it is a number.
 *   router   is each part of the name of a 2-D tensor that has fewer rows than columns and is
 *            outside of experts. */
MUONIUM_API const char *muonium_default_pattern(int index, const char **place);

#define MUONIUM_MAX_DIMS 8

/* A parameter, as the caller describes it to muonium_add. A field that is 0 selects the usual
 * behaviour.
 *
 * Tools that keep optimizer state on the host train a bf16 model on another device. They keep f32
 * parameters on the host, get bf16 gradients and send bf16 parameters back. One call of
 * muonium_step does all of it, without another pass over memory, if dtype is MUONIUM_F32,
 * half_grad and copy_dtype are MUONIUM_BF16, and `copy` is the memory to send:
 *
 *     muonium_tensor w = {.name = "w", .dtype = MUONIUM_F32, .ndim = 2, .shape = {768, 768},
 *                         .data = weights, .half_grad = MUONIUM_BF16, .grad = gradients,
 *                         .copy_dtype = MUONIUM_BF16, .copy = outgoing};
 *     muonium_add(optimizer, &w, NULL);
 *     muonium_set_grad_scale(optimizer, 1.0 / loss_scale);
 *     muonium_step(optimizer);
 */
typedef struct muonium_tensor {
    const char *name; /* unique in the optimizer, valid UTF-8; copied. NULL: "parameter <index>" */
    muonium_dtype dtype;            /* MUONIUM_F32, MUONIUM_BF16 or MUONIUM_F16 */
    size_t ndim;                    /* the number of dimensions; 0 for a scalar */
    size_t shape[MUONIUM_MAX_DIMS]; /* if one is 0, the parameter has no elements: see
                                       muonium_add */
    void *data;                     /* read and written by every step, so it must stay valid */
    void *grad;                     /* read by every step; NULL: no gradient in this step */
    bool f32_grad;                  /* the gradient is f32, whatever dtype is */
    /* The ndim strides of data and of grad, in elements. The library copies them. NULL: dense and
     * row-major. Elements of data must not share memory. Elements of grad may: a stride of 0
     * repeats an element along its dimension. */
    const ptrdiff_t *strides;
    const ptrdiff_t *grad_strides;
    muonium_layout layout;      /* the matrices in the tensor */
    uint32_t out_axes, in_axes; /* MUONIUM_LAYOUT_FAN: bit d stands for dimension d */
    const size_t *row_splits;   /* block sizes that split the rows of each matrix (fused QKV, gate
                                   and up). Each block becomes a matrix of its own. Copied. */
    size_t row_split_count;     /* the number of row_splits */
    size_t heads;               /* alternative to row_splits: the number of equal blocks. 0: no
                                   split */
    muonium_route route;        /* takes precedence over the route of the group */
    muonium_dtype half_grad;    /* MUONIUM_BF16 or MUONIUM_F16: the gradient has this type. 0: it is
                                   f32 if f32_grad is set, else it has the type of data */
    void *copy;                 /* a copy of the parameter in another type, dense and row-major.
                                   Whatever writes data writes the same elements of the copy in
                                   the same pass, rounded to nearest. Elements that do not
                                   change are not written. NULL: no copy. */
    muonium_dtype copy_dtype;   /* MUONIUM_F32, MUONIUM_BF16 or MUONIUM_F16 */
} muonium_tensor;

/* An optimizer. It holds groups of parameters, their options and their state. */
typedef struct muonium_optimizer muonium_optimizer;

/* A group of parameters with its own options. It belongs to its optimizer. */
typedef struct muonium_group muonium_group;

/* Make an optimizer. If `options` is NULL, it uses the default recipe. *optimizer gets it. */
MUONIUM_API muonium_status muonium_create(const muonium_options *options,
                                          muonium_optimizer **optimizer);

/* Destroy an optimizer. NULL is allowed. The call does nothing while another call uses the
 * optimizer, which includes the callbacks of that call. It also does nothing to a description
 * while a muonium_mpi that was made from it exists. In both cases muonium_last_error gives the
 * reason, and the caller must destroy the optimizer later. */
MUONIUM_API void muonium_destroy(muonium_optimizer *optimizer);

/* Make an optimizer without state. It accepts groups and parameters, routes and reports them. It
 * holds no momentum and no moments, and it cannot step, save or load. Use it to ask what a model
 * would cost, and for libmuonium_mpi, which distributes the state over processes. */
MUONIUM_API muonium_status muonium_create_description(const muonium_options *options,
                                                      muonium_optimizer **optimizer);

/* Add a group with its own options. *group gets the group. */
MUONIUM_API muonium_status muonium_add_group(muonium_optimizer *optimizer,
                                             const muonium_options *options, muonium_group **group);

/* Add a parameter to a group. If `group` is NULL, the parameter joins the default group. Its state
 * starts at zero. Parameters are numbered from 0 in the order in which they are added. It is an
 * error if the memory of the parameter overlaps the memory of another one, or if its name is
 * taken.
 *
 * This call decides the route, once. tensor.route comes first, then the route of the group, then
 * options.routing. A routing rule looks at the name first and at the shape second. These shapes
 * get AdamW, with the reason in parentheses:
 *   fewer than two dimensions above 1 ("insufficient_dims");
 *   dimension 0 or 1 of size 1 ("leading_unit_dims");
 *   a side below min_dim ("min_dim_too_small:K");
 *   a ratio of the sides above max_aspect ("extreme_aspect_ratio:R").
 * Every other parameter gets Muon ("ok"). A parameter without elements gets AdamW before any of
 * these rules ("empty"). Its data may be NULL, and steps do not change it. */
MUONIUM_API muonium_status muonium_add_sized(muonium_optimizer *optimizer,
                                             const muonium_tensor *tensor, size_t size,
                                             muonium_group *group);
static inline muonium_status muonium_add(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                                         muonium_group *group)
{
    return muonium_add_sized(optimizer, tensor, sizeof *tensor, group);
}

/* The matrices that are fused into one tensor, as recognised by its name. */
typedef struct muonium_fusion {
    size_t struct_size; /* bytes that the library filled */
    const char *kind;   /* "QKV", "QKV by heads", "K and V" or "gate and up"; NULL: none */
    size_t count;       /* the number of matrices; 0: name and shape do not determine it */
    size_t rows[3];     /* the number of outputs of each matrix, as for row_splits */
    bool columns;       /* the tensor is (in, out), like the Conv1D of Hugging Face. To split it,
                           use MUONIUM_LAYOUT_FAN with out_axes 2 and in_axes 1. */
} muonium_fusion;

/* Recognise a fused tensor by its name, ndim and shape. Known names are c_attn, qkv, qkv_proj,
 * to_qkv, wqkv, in_proj_weight; query_key_value, linear_qkv; kv_proj, to_kv; gate_up_proj, w13 and
 * similar names. For QKV, the number of queries is taken to be the number of inputs. To split
 * matrices that are interleaved by heads, set `heads` of the tensor to three times the number of
 * attention heads. `fusion` gets the result. `tensor_size` is the size of the caller's
 * muonium_tensor. */
MUONIUM_API muonium_status muonium_fused_sized(const muonium_tensor *tensor, size_t tensor_size,
                                               muonium_fusion *fusion, size_t size);
static inline muonium_status muonium_fused(const muonium_tensor *tensor, muonium_fusion *fusion)
{
    return muonium_fused_sized(tensor, sizeof *tensor, fusion, sizeof *fusion);
}

/* Report every warning about the routes of the parameters so far. The call passes `context` and
 * one warning at a time to `line`. Warnings concern matrices under Muon that look like a
 * vocabulary, parameters without names under a rule that needs names, optimizers without any
 * parameter under Muon, and fused matrices that are orthogonalised as one. The log gets the same
 * warnings before the first step. */
MUONIUM_API muonium_status muonium_warnings(const muonium_optimizer *optimizer, muonium_log *line,
                                            void *context);

/* The number of parameters that were added. */
MUONIUM_API size_t muonium_parameter_count(const muonium_optimizer *optimizer);

/* Find a parameter by name. *parameter gets its number. If no parameter has that name, the call
 * fails with a message that gives the name. */
MUONIUM_API muonium_status muonium_find(const muonium_optimizer *optimizer, const char *name,
                                        size_t *parameter);

/* Move a parameter or its gradient to another address. `data` and `grad` are the new addresses.
 * Type, shape and strides stay the same. */
MUONIUM_API muonium_status muonium_set_data(muonium_optimizer *optimizer, size_t parameter,
                                            void *data);
MUONIUM_API muonium_status muonium_set_grad(muonium_optimizer *optimizer, size_t parameter,
                                            void *grad);

/* Change an option between steps. The change applies to `group`, or to all groups if it is NULL.
 * muonium_set_lr also scales the learning rate of AdamW by the same factor. If adam_lr is given,
 * muonium_set_lr is refused while lr is 0, because no factor then exists. */
MUONIUM_API muonium_status muonium_set_lr(muonium_optimizer *optimizer, muonium_group *group,
                                          double lr);
MUONIUM_API muonium_status muonium_set_weight_decay(muonium_optimizer *optimizer,
                                                    muonium_group *group, double weight_decay);
MUONIUM_API muonium_status muonium_set_momentum(muonium_optimizer *optimizer, muonium_group *group,
                                                double momentum);

/* Take one step on all parameters that have a gradient. The other parameters are skipped and
 * counted. Gradients are not modified. options.plan.nonfinite decides about a gradient that
 * contains NaN or infinity, or that would make the momentum overflow. By default the step then
 * fails, names parameter and index, and has not changed one byte of any parameter or state. A
 * matrix that could not be orthogonalised stays as it is; it is counted as skipped and named in
 * the log. If the gradient of a Muon parameter is zero, the momentum still moves the parameter, as
 * in every recipe. The first step after a change of parameters or groups allocates memory. Later
 * steps do not. */
MUONIUM_API muonium_status muonium_step(muonium_optimizer *optimizer);

/* Take one step with parameters and gradients at new addresses. Use it if the addresses change
 * with every step. It does the same as muonium_set_data and muonium_set_grad for each parameter
 * and a muonium_step, without the cost of these calls.
 *   data   is an array of addresses, or NULL if the parameters have not moved.
 *   grads  is an array of addresses. A NULL entry means no gradient in this step.
 *   count  is the length of the arrays. It must be the number of all parameters.
 * data[i] and grads[i] are those of parameter i. If an address is refused, nothing has changed. If
 * the step itself fails, the new addresses remain. */
MUONIUM_API muonium_status muonium_step_at(muonium_optimizer *optimizer, void *const *data,
                                           void *const *grads, size_t count);

/* Compute the loss and the gradients, then step. The call runs `loss` with `context`. `loss`
 * computes the gradients and returns the loss. *value gets the loss; `value` may be NULL. The step
 * has not begun while `loss` runs. `loss` may therefore clip gradients, set rates and addresses,
 * add parameters, save or load. It cannot step or destroy the optimizer. */
MUONIUM_API muonium_status muonium_step_with(muonium_optimizer *optimizer,
                                             double (*loss)(void *context), void *context,
                                             double *value);

/* ---- gradients ---- */

/* Set the factor by which every later step multiplies the gradients. The step converts an element
 * to f32 and multiplies it by `scale`, which is rounded to f32 too, without changing the
 * gradient in memory. Use it to undo a loss scale, to average over micro-batches and to clip: see
 * muonium_grad_norm. The default is 1. The factor must be from 2^-126 to 2^126. Checkpoints do not
 * contain it. */
MUONIUM_API muonium_status muonium_set_grad_scale(muonium_optimizer *optimizer, double scale);

/* Compute the norm of all gradients together, in double, times the factor of
 * muonium_set_grad_scale. *norm gets it. With a factor s, setting the factor to
 * s * max_norm / norm clips the gradients to max_norm without a pass over them. If `adam_only` is
 * true, the gradients of Muon parameters do not count, because their scale does not matter. */
MUONIUM_API muonium_status muonium_grad_norm(const muonium_optimizer *optimizer, bool adam_only,
                                             double *norm);

/* Clip the gradients to a norm, in place. If their norm is larger than `max_norm`, the call
 * multiplies them by max_norm / norm. If `adam_only` is true, the gradients of Muon parameters
 * neither count nor change. *norm gets the norm before clipping. *factor gets the factor, which is
 * 1 if nothing changed. The call fails, with nothing changed, if the norm is not finite or if
 * elements of a gradient share memory (a stride of 0). */
MUONIUM_API muonium_status muonium_clip_grads(muonium_optimizer *optimizer, double max_norm,
                                              bool adam_only, double *norm, double *factor);

/* Set all gradients to zero. The call fails, with nothing changed, if elements of a gradient share
 * memory (a stride of 0). */
MUONIUM_API muonium_status muonium_zero_grads(muonium_optimizer *optimizer);

/* The heads of an attention layer, for QK-clip (MuonClip). QK-clip scales the query and key rows
 * of every head whose largest attention logit S exceeds `threshold`, so that S becomes the
 * threshold. Head h owns `head_dim` rows of the parameter `query`, from row
 * query_row + h * head_dim on. The keys follow the same rule. Several query heads may share a key
 * head; key_heads must divide heads. The queries and the keys of a head are each scaled by
 * sqrt(threshold / S). A shared key head is scaled for the largest S of its query heads, and each
 * of these query heads gets the remaining factor. `query` and `key` may be the same fused
 * parameter. */
typedef struct muonium_qk {
    size_t query, key;         /* the numbers of the parameters */
    size_t query_row, key_row; /* the first rows of queries and keys */
    size_t heads, key_heads;   /* the numbers of heads; key_heads 0: as many as heads */
    size_t head_dim;           /* the number of rows per head */
    const float *max_logits;   /* the largest logit of each head; one number per head */
    double threshold;          /* the largest logit allowed; 100 is usual */
} muonium_qk;

/* Scale the heads whose logits exceed the threshold. *clipped gets the number of these heads;
 * `clipped` may be NULL. */
MUONIUM_API muonium_status muonium_qk_clip_sized(muonium_optimizer *optimizer,
                                                 const muonium_qk *heads, size_t size,
                                                 size_t *clipped);
static inline muonium_status muonium_qk_clip(muonium_optimizer *optimizer, const muonium_qk *heads,
                                             size_t *clipped)
{
    return muonium_qk_clip_sized(optimizer, heads, sizeof *heads, clipped);
}

/* ---- report ---- */

/* A report on one parameter. It is available before and after any step. Its strings live as long
 * as the parameter. */
typedef struct muonium_parameter_report {
    size_t struct_size;      /* bytes that the library filled */
    const char *name;        /* the name of the parameter */
    bool muon;               /* true for Muon, false for AdamW */
    const char *reason;      /* the reason: "ok", "insufficient_dims", "name_pattern:*norm*", ... */
    size_t matrices;         /* matrices orthogonalised per step; 0 for AdamW */
    size_t rows, cols;       /* the shape (out, in) of the first matrix */
    muonium_form form;       /* the form of the first matrix */
    int restarts;            /* the number of restarts of the first matrix */
    const char *direct_set;  /* direct form: the polynomial of the first matrix; else NULL */
    double flops;            /* operations per step, for all matrices */
    size_t state_bytes;      /* bytes of momentum, moments and master copy */
    double step_rms;         /* root mean square of a step. Muon: lr * scale * the root mean
                                square of an orthogonal matrix of this shape. With fraction: over
                                the whole matrix. Hyperball: lr * scale * that of the first matrix;
                                NaN before the first step. AdamW: its learning rate. */
    double lr;               /* the learning rate in force */
    uint64_t steps;          /* the number of steps that this parameter has taken */
    muonium_dtype precision; /* the precision of the first matrix; never MUONIUM_AUTO */
} muonium_parameter_report;

/* Report on a parameter. `parameter` is its number. `report` gets the report. */
MUONIUM_API muonium_status muonium_report_sized(const muonium_optimizer *optimizer,
                                                size_t parameter, muonium_parameter_report *report,
                                                size_t size);
static inline muonium_status muonium_report(const muonium_optimizer *optimizer, size_t parameter,
                                            muonium_parameter_report *report)
{
    return muonium_report_sized(optimizer, parameter, report, sizeof *report);
}

/* Counters of an optimizer. */
typedef struct muonium_counters {
    size_t struct_size;   /* bytes that the library filled */
    uint64_t steps;       /* step calls that succeeded */
    uint64_t matrices;    /* matrices orthogonalised */
    uint64_t skipped;     /* parameters without a gradient, parameters whose gradient was not
                             finite under MUONIUM_NONFINITE_SKIP, and matrices that could not be
                             orthogonalised */
    uint64_t rescued;     /* the sum of `rescued` of all certificates */
    uint64_t zero;        /* matrices that were zero */
    size_t muon, adam;    /* parameters under Muon and under AdamW */
    size_t state_bytes;   /* bytes of state */
    size_t scratch_bytes; /* bytes of scratch memory of a step. Before the first step: what it would
                             take with the present number of threads */
    double flops;         /* operations of all orthogonalisations of one step */
    size_t teams;      /* matrices, or batches of small ones, at the same time: each has a team of
                             threads. 0 without parameters */
    size_t team_width; /* threads of a team, at most */
} muonium_counters;

/* Get the counters of an optimizer. They count its contents and the work of its steps. */
MUONIUM_API muonium_status muonium_count_sized(const muonium_optimizer *optimizer,
                                               muonium_counters *counters, size_t size);
static inline muonium_status muonium_count(const muonium_optimizer *optimizer,
                                           muonium_counters *counters)
{
    return muonium_count_sized(optimizer, counters, sizeof *counters);
}

/* Get the certificates of the matrices of a Muon parameter in its last step.
 *   parameter     is the number of the parameter.
 *   certificates  gets up to `capacity` certificates.
 *   size          is the distance in bytes from one certificate to the next.
 *   capacity      is the number of certificates that fit.
 *   count         gets the number of certificates that exist. It is 0 for AdamW and before the
 *                 first step. */
MUONIUM_API muonium_status muonium_certificates_sized(const muonium_optimizer *optimizer,
                                                      size_t parameter,
                                                      muonium_certificate *certificates,
                                                      size_t size, size_t capacity, size_t *count);
static inline muonium_status muonium_certificates(const muonium_optimizer *optimizer,
                                                  size_t parameter,
                                                  muonium_certificate *certificates,
                                                  size_t capacity, size_t *count)
{
    return muonium_certificates_sized(optimizer, parameter, certificates, sizeof *certificates,
                                      capacity, count);
}

/* ---- state in memory ---- */

/* The state of one parameter. Arrays are dense and row-major, in the order of the elements of the
 * parameter. An array that the parameter does not have is NULL. */
typedef struct muonium_state {
    size_t struct_size;           /* bytes that the library filled */
    uint64_t steps;               /* the number of steps that this parameter has taken */
    size_t elements;              /* the number of elements of the parameter */
    void *momentum;               /* Muon: the momentum */
    muonium_dtype momentum_dtype; /* the type of the momentum, options.state_dtype */
    void *exp_avg;                /* AdamW: the first moment */
    float *exp_avg_sq;            /* AdamW: the second moment */
    float *normuon;               /* NorMuon: the mean squares, `rows` numbers */
    size_t rows;                  /* NorMuon: the number of rows, or of columns if these have the
                                     means, of all matrices */
    float *master;                /* the master copy under options.master, from the first step on */
    float *adamuon;               /* AdaMuon: the mean square of each element */
    float *radius;                /* hyperball: the norms of `matrices` matrices; 0 before the first
                                     step */
    size_t matrices;              /* hyperball: the number of matrices */
    float *momentum_scale;        /* momentum of MUONIUM_INT8: the scales of its `blocks` blocks */
    muonium_dtype exp_avg_dtype;  /* the type of the first moment, options.adam_state_dtype */
    float *exp_avg_scale;         /* a first moment of MUONIUM_INT8: the scales of its blocks */
    size_t blocks;                /* the number of blocks of MUONIUM_STATE_BLOCK elements */
} muonium_state;

/* Get pointers to the state of a parameter. The caller may read and write the arrays between
 * steps, until the optimizer is destroyed. */
MUONIUM_API muonium_status muonium_state_of_sized(const muonium_optimizer *optimizer,
                                                  size_t parameter, muonium_state *state,
                                                  size_t size);
static inline muonium_status muonium_state_of(const muonium_optimizer *optimizer, size_t parameter,
                                              muonium_state *state)
{
    return muonium_state_of_sized(optimizer, parameter, state, sizeof *state);
}

/* Set the state of a parameter from copies. `state` points to the copies. An array that is NULL
 * resets that part of the state: to zero, or, for a master copy, to a copy that the next step
 * makes of the parameter. An array that the parameter does not have, or of another size or type,
 * is an error. A state that muonium_load would refuse is an error too: more than 2^53 steps; NaN
 * or infinity, unless the policy of the parameter is to propagate them (MUONIUM_NON_FINITE; an
 * infinite exp_avg_sq is allowed); a negative mean of squares. */
MUONIUM_API muonium_status muonium_set_state_sized(muonium_optimizer *optimizer, size_t parameter,
                                                   const muonium_state *state, size_t size);
static inline muonium_status muonium_set_state(muonium_optimizer *optimizer, size_t parameter,
                                               const muonium_state *state)
{
    return muonium_set_state_sized(optimizer, parameter, state, sizeof *state);
}

/* ------------------------------------------------------ safetensors files -- */

/* A safetensors file holds named tensors and a map of strings. The data is little-endian and
 * row-major. Element types have the names of the format ("F32", "BF16", "I64", ...). Files with
 * types that this library cannot compute with can therefore be listed and copied. */

/* Convert between a type and its name in the format. muonium_dtype_name returns NULL for an
 * unknown type. muonium_dtype_named sets *dtype, to a type of matrices and parameters, and returns
 * true. For any other name, "I8" among them, it returns false and leaves *dtype unchanged. */
MUONIUM_API const char *muonium_dtype_name(muonium_dtype dtype);
MUONIUM_API bool muonium_dtype_named(const char *name, muonium_dtype *dtype);

/* One tensor of a file. */
typedef struct muonium_entry {
    const char *name;      /* the name; UTF-8, unescaped */
    const char *dtype;     /* the element type, as "F32" */
    unsigned bits;         /* bits per element: 32 for "F32", 4 for "F4" */
    size_t ndim;           /* the number of dimensions; 0 for a scalar */
    const uint64_t *shape; /* ndim extents; the product of those above 0 fits in size_t */
    uint64_t bytes;        /* the number of bytes of data; 0 if an extent is 0 */
    uint64_t offset;       /* the position of the first byte of data in the file */
} muonium_entry;

/* An open file. Opening a file checks everything but the values. The header must be strict JSON.
 * No name may occur twice. Every size must fit its shape and type. The tensors must cover the data
 * without hole or overlap, and the file must end with the last tensor. Any other file fails with
 * MUONIUM_FORMAT and a message that names the entry. An element type that the format does not
 * define is refused too, since its size cannot be checked.
 *
 * A reader holds only the header in memory. It reads data on request, directly into the caller's
 * buffer. It never maps the file. If another process truncates the file, a read therefore fails
 * with MUONIUM_IO and raises no signal. Any number of threads may use one reader at a time. */
typedef struct muonium_reader muonium_reader;

/* A source of bytes that is not a path. `size` is the size of the file in bytes. `read` fills
 * `buffer` with the `bytes` bytes at position `offset`, or returns false. It gets `context`. */
typedef struct muonium_source {
    bool (*read)(void *context, uint64_t offset, void *buffer, size_t bytes);
    void *context;
    uint64_t size;
} muonium_source;

/* Open a regular file, a source, or a block of memory. *reader gets the reader. The library copies
 * the muonium_source. The `bytes` bytes at `data` must not change until the reader is closed. */
MUONIUM_API muonium_status muonium_reader_open(const char *path, muonium_reader **reader);
MUONIUM_API muonium_status muonium_reader_open_source(const muonium_source *source,
                                                      muonium_reader **reader);
MUONIUM_API muonium_status muonium_reader_open_memory(const void *data, size_t bytes,
                                                      muonium_reader **reader);

/* Close a reader. NULL is allowed. The call does nothing in a callback of a call that is reading
 * from this reader. */
MUONIUM_API void muonium_reader_close(muonium_reader *reader);

/* The tensors of a file by index, from 0, and by name. The order is that of their data. The result
 * is NULL if there is no such tensor. Entries and their strings live until the reader is
 * closed. */
MUONIUM_API size_t muonium_reader_count(const muonium_reader *reader);
MUONIUM_API const muonium_entry *muonium_reader_entry(const muonium_reader *reader, size_t index);
MUONIUM_API const muonium_entry *muonium_reader_find(const muonium_reader *reader,
                                                     const char *name);

/* The metadata of a file by index, from 0, and by key. The order is that of the file.
 * muonium_reader_metadata_key returns the key and sets *value to its value; `value` may be NULL.
 * muonium_reader_metadata returns the value of a key. Both return NULL if there is no such
 * pair. */
MUONIUM_API size_t muonium_reader_metadata_count(const muonium_reader *reader);
MUONIUM_API const char *muonium_reader_metadata_key(const muonium_reader *reader, size_t index,
                                                    const char **value);
MUONIUM_API const char *muonium_reader_metadata(const muonium_reader *reader, const char *key);

/* Copy data of a tensor into a buffer, unchanged. A range beyond the tensor fails with
 * MUONIUM_INVALID. After MUONIUM_IO the content of the buffer is undefined.
 *   entry   is a tensor of this reader.
 *   first   is the position of the first byte to copy, relative to the data of the tensor.
 *   buffer  gets the bytes.
 *   bytes   is the number of bytes to copy. */
MUONIUM_API muonium_status muonium_reader_read(const muonium_reader *reader,
                                               const muonium_entry *entry, uint64_t first,
                                               void *buffer, size_t bytes);

/* A file being written. Writing has three stages: describe all tensors, begin, stream the data.
 *
 *     muonium_writer_create(&w);
 *     muonium_writer_add(w, "weight", "F32", 2, (uint64_t[]){3, 4});
 *     muonium_writer_begin(w, "model.safetensors");
 *     muonium_writer_data(w, weights, 48);
 *     muonium_writer_finish(w);
 *     muonium_writer_destroy(w);
 *
 * The same calls give the same bytes. The data starts on a multiple of 64 bytes. Only one thread
 * at a time may use a writer. */
typedef struct muonium_writer muonium_writer;

/* Make a writer. It describes nothing yet. *writer gets the writer. */
MUONIUM_API muonium_status muonium_writer_create(muonium_writer **writer);

/* Add a metadata pair or a tensor. These calls are valid only before writing begins. Names, keys
 * and values are UTF-8. No two names and no two keys may be equal; this is checked when writing
 * begins. The file holds the tensors in the order in which they are added. `dtype` is the name of
 * the element type in the format. `shape` has `ndim` extents. */
MUONIUM_API muonium_status muonium_writer_add_metadata(muonium_writer *writer, const char *key,
                                                       const char *value);
MUONIUM_API muonium_status muonium_writer_add(muonium_writer *writer, const char *name,
                                              const char *dtype, size_t ndim,
                                              const uint64_t *shape);

/* Begin writing to a path. The writer writes a temporary file in the same directory, named
 * <path>.tmp-<process>-<number>. muonium_writer_finish renames it when all of it is on the disk.
 * At every instant the path holds the whole old file or the whole new file. An existing path must
 * be a regular file. The new file keeps its permissions, with two exceptions. setuid and setgid
 * are dropped. If the group of the new file differs from that of the old file, the group gets no
 * permission that everyone does not have. If the path is a symbolic link, the link stays and its
 * target is replaced. */
MUONIUM_API muonium_status muonium_writer_begin(muonium_writer *writer, const char *path);

/* Begin writing to a function instead of a path. `write` gets `context` and the bytes in order. It
 * returns false if it cannot write them. It cannot use the writer itself: calls on the writer
 * fail, and muonium_writer_destroy does nothing. */
MUONIUM_API muonium_status muonium_writer_begin_sink(muonium_writer *writer,
                                                     bool (*write)(void *context, const void *data,
                                                                   size_t bytes),
                                                     void *context);

/* Write the next bytes of data. They may come in pieces of any size. After MUONIUM_IO the
 * temporary file is gone, and the writer can only be destroyed. */
MUONIUM_API muonium_status muonium_writer_data(muonium_writer *writer, const void *data,
                                               size_t bytes);

/* Finish the file except for the renaming. Use this call to replace several files together:
 * prepare all of them, then finish all of them. After it the temporary file and its name are on
 * the disk, so that the file can be found after a crash. The path has not changed yet. Almost
 * nothing can fail afterwards. If the renaming fails, the temporary file stays, and the message
 * names it. If data is missing, the call fails with MUONIUM_INVALID, and the caller may still
 * write the rest. */
MUONIUM_API muonium_status muonium_writer_prepare(muonium_writer *writer);

/* Complete the file. If data is missing, the call fails with MUONIUM_INVALID, and the caller may
 * still write the rest. The last action flushes the new name to the disk. If it fails, the error
 * says so: the path then holds the new file, but after a power failure it may hold the old one. */
MUONIUM_API muonium_status muonium_writer_finish(muonium_writer *writer);

/* Destroy a writer. An unfinished file leaves no trace. NULL is allowed. */
MUONIUM_API void muonium_writer_destroy(muonium_writer *writer);

/* ------------------------------------------------------------ checkpoints -- */

/* A checkpoint is a safetensors file with the state of an optimizer. Any tool can read it. For a
 * Muon parameter w it contains the tensor "w.momentum" and, under NorMuon, "w.normuon", under
 * AdaMuon "w.adamuon", under hyperball "w.radius". For an
 * AdamW parameter w it contains "w.exp_avg" and "w.exp_avg_sq". For either it contains "w.master"
 * if the parameter has a master copy. All have the shape of the parameter, except normuon, which
 * has one number per matrix row (or column, as options.normuon_axis says), and radius, which has
 * one per matrix. The parameters themselves are not in the file. The metadata
 * contains the versions of format and library, the number of steps, the options of every group,
 * the route and the steps of every parameter, and CRC-32C checksums of every tensor and of the
 * header. The checksums together cover every byte. Equal states give equal files.
 *
 * Resuming is bit-exact. 50 steps, a save, a load in another process with any number of threads,
 * and 50 more steps give the same result as 100 steps. The caller's configuration takes
 * precedence. Loading restores the state and the step counts, never options. If the options differ
 * from the saved options, the log says so. */

/* A function that receives the progress of a call. `done` is the number of bytes done, from 0 to
 * `total`. The calling thread calls it every few megabytes. */
typedef void muonium_progress(void *context, uint64_t done, uint64_t total);

/* Save the state to a path. At every instant the path holds the whole old file or the whole new
 * file: see muonium_writer_begin. The call needs no memory except for the header.
 *
 * Every saved state can be loaded. If muonium_load would refuse the state under the same options,
 * the call fails, names the parameter and the element, and keeps the old file. No step leaves such
 * a state. It can come from a caller that writes to the arrays of muonium_state_of, or from
 * weights that were not finite. */
MUONIUM_API muonium_status muonium_save(const muonium_optimizer *optimizer, const char *path);

/* Save the state to a function. `write` gets `context` and the bytes in order. It returns false if
 * it cannot write them. The state can thus be part of another file or stay in memory. */
MUONIUM_API muonium_status muonium_save_to(const muonium_optimizer *optimizer,
                                           bool (*write)(void *context, const void *data,
                                                         size_t bytes),
                                           void *context);

/* Save the state except for the last action, which changes the path. That action is
 * muonium_writer_finish on *writer. The caller destroys the writer in every case. Use this call to
 * report progress, and to replace several files together. `progress` gets `progress_context` and
 * the progress; it may be NULL. */
MUONIUM_API muonium_status muonium_save_prepare(const muonium_optimizer *optimizer,
                                                const char *path, muonium_progress *progress,
                                                void *progress_context, muonium_writer **writer);

/* Load a saved state from a path or from a source. The file must contain the state of exactly the
 * parameters of the optimizer, by name, in any order. A file of another model fails with a message
 * that gives the first differences. The call reads and checks everything before it changes the
 * first byte of the optimizer. Any failure therefore leaves the optimizer as it was. This takes
 * memory for a second copy of the state.
 *
 * The call checks all checksums, shapes, routes, step counts (at most 2^53) and values. NaN and
 * infinity fail with MUONIUM_NON_FINITE, unless the policy of the parameter is
 * MUONIUM_NONFINITE_PROPAGATE. An infinite second moment is allowed, because version 0.1 could
 * leave one. A mean of squares must not be negative. The call converts momentum between
 * MUONIUM_MOMENTUM_SUM and the other forms, by the factor 1 - mu of the save. It also converts
 * momentum between f32 and bf16. */
MUONIUM_API muonium_status muonium_load(muonium_optimizer *optimizer, const char *path);
MUONIUM_API muonium_status muonium_load_from(muonium_optimizer *optimizer,
                                             const muonium_source *source);

/* The options of muonium_load_reader. */
typedef struct muonium_load_options {
    size_t struct_size;         /* set by muonium_load_options_init */
    bool partial;               /* accept a file whose names differ; default false. The call loads
                                   the parameters that file and optimizer share. Parameters that
                                   the file lacks stay as they are. Shapes and routes must still
                                   fit, and at least one parameter must match. */
    muonium_progress *progress; /* receives the progress; default NULL */
    void *progress_context;     /* passed to progress */
} muonium_load_options;

/* Fill the options with the defaults above. `size` is the size of the caller's struct. */
MUONIUM_API void muonium_load_options_init_sized(muonium_load_options *options, size_t size);
static inline void muonium_load_options_init(muonium_load_options *options)
{
    muonium_load_options_init_sized(options, sizeof *options);
}

/* The result of muonium_load_reader. */
typedef struct muonium_load_report {
    size_t struct_size;        /* bytes that the library filled */
    size_t matched;            /* parameters whose state was loaded */
    size_t missing;            /* tensors that the file should contain and does not */
    size_t left_over;          /* tensors of the file that belong to no parameter */
    size_t converted;          /* tensors that were converted */
    char missing_names[256];   /* the first missing tensors, separated by commas; "" if none */
    char left_over_names[256]; /* the first left-over tensors, separated by commas; "" if none */
} muonium_load_report;

/* Load a saved state from an open file. If `options` is NULL, the call uses the defaults. *report
 * is filled on success; `report` may be NULL. */
MUONIUM_API muonium_status muonium_load_reader_sized(muonium_optimizer *optimizer,
                                                     const muonium_reader *reader,
                                                     const muonium_load_options *options,
                                                     muonium_load_report *report, size_t size);
static inline muonium_status muonium_load_reader(muonium_optimizer *optimizer,
                                                 const muonium_reader *reader,
                                                 const muonium_load_options *options,
                                                 muonium_load_report *report)
{
    return muonium_load_reader_sized(optimizer, reader, options, report, sizeof *report);
}

/* One array of a state without names. Other implementations keep such a state as a list in the
 * order of the parameters. The list has one array for each Muon parameter, its momentum, and two
 * for each AdamW parameter, its first and second moment. */
typedef struct muonium_buffer {
    const void *data;               /* the elements, dense and row-major */
    muonium_dtype dtype;            /* the element type */
    size_t ndim;                    /* the number of dimensions */
    size_t shape[MUONIUM_MAX_DIMS]; /* the shape of the parameter, or one dimension with all
                                       elements */
} muonium_buffer;

/* The options of muonium_load_positional. */
typedef struct muonium_positional_options {
    size_t struct_size; /* set by muonium_positional_options_init */
    uint64_t steps;     /* the number of steps that led to this state, for bias corrections; default
                           0 */
    bool convert;       /* the momentum has the form of the next two fields, not the form of the
                           group; default false */
    muonium_momentum_form momentum_form; /* the form of the momentum; default
                                            MUONIUM_MOMENTUM_LERP */
    double momentum;                     /* mu, in [0, 1); default 0.95 */
} muonium_positional_options;

/* Fill the options with the defaults above. `size` is the size of the caller's struct. */
MUONIUM_API void muonium_positional_options_init_sized(muonium_positional_options *options,
                                                       size_t size);
static inline void muonium_positional_options_init(muonium_positional_options *options)
{
    muonium_positional_options_init_sized(options, sizeof *options);
}

/* Load a state without names. `buffers` is the list; it has `count` arrays. If `options` is NULL,
 * the call uses the defaults. Counts and shapes must be those of the optimizer. The call checks
 * these and the values before it changes anything. The means of NorMuon restart at zero. Master
 * copies restart from the parameters. */
MUONIUM_API muonium_status muonium_load_positional(muonium_optimizer *optimizer,
                                                   const muonium_buffer *buffers, size_t count,
                                                   const muonium_positional_options *options);

/* Load a state without names from a file. The name of each tensor ends with its index in the list,
 * from 0. All names may share a prefix: "0", "1", ... or "momentum_buffer.0", ... The order in the
 * file does not matter, because many tools sort by name and put 10 before 2. */
MUONIUM_API muonium_status
muonium_load_positional_reader(muonium_optimizer *optimizer, const muonium_reader *reader,
                               const muonium_positional_options *options);

/* The description of a checkpoint. */
typedef struct muonium_checkpoint_info {
    size_t struct_size;  /* bytes that the library filled */
    unsigned format;     /* the version of the format */
    const char *version; /* the version of the library that saved it; lives as long as the reader */
    uint64_t steps;      /* the number of steps that the optimizer has taken */
    size_t muon, adam;   /* parameters under Muon and under AdamW */
    size_t groups;       /* the number of groups; see the metadata "muonium.group.0" and on */
    size_t tensors;      /* the number of tensors */
    uint64_t bytes;      /* the bytes of these tensors */
} muonium_checkpoint_info;

/* True if a file contains the state of an optimizer. False for a model, for example. */
MUONIUM_API bool muonium_is_checkpoint(const muonium_reader *reader);

/* Read a whole checkpoint and verify its checksums. *info is filled on success; `info` may be
 * NULL. */
MUONIUM_API muonium_status muonium_verify_sized(const muonium_reader *reader,
                                                muonium_checkpoint_info *info, size_t size);
static inline muonium_status muonium_verify(const muonium_reader *reader,
                                            muonium_checkpoint_info *info)
{
    return muonium_verify_sized(reader, info, sizeof *info);
}

#ifdef __cplusplus
}
#endif

#endif
