/*
 * muonium.h: the whole public interface of Muonium, and its manual.
 *
 * Muonium orthogonalises the momentum of weight matrices, as the Muon optimizer
 * does, fast on CPUs. By default the result has the singular vectors of the
 * matrix and singular values between 0.86 and 1.14, which is what Muon needs;
 * muonium_plan_options tells how to get the polar factor, the nearest (semi-)
 * orthogonal matrix, itself. A complete program:
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
 * - Callbacks. The library calls functions of the caller from the thread that
 *   called it (the allocator's: from any). A callback must return: longjmp or
 *   a C++ exception out of it leaves memory behind and what it was called for
 *   marked as in use, so that every later call on that fails. A callback may use
 *   other optimizers, readers and writers freely. On the optimizer that it was
 *   called for it may call what only looks (muonium_parameter_count, _find,
 *   _report, _count, _certificates, _state_of, _grad_norm); all else fails with
 *   MUONIUM_INVALID and a message that names both calls, nothing has changed,
 *   and the call under way goes on. The `loss` of muonium_step_with may do
 *   anything but step. An allocator must not call the library.
 * - Ownership. The caller owns every array passed in; the library keeps no
 *   pointer to it beyond the call unless the function says so. Strings are
 *   copied.
 * - Finite results. A finite matrix gives a finite and bounded result: an iteration
 *   that diverges is repeated in its safest form, and counted as rescued; if that
 *   were not enough the result is zero and its certificate says MUONIUM_DIVERGED.
 *   Finite gradients and weights give finite weights, as long as lr, weight_decay
 *   and scale_factor are below 1e6 and the policy is not to propagate what is not
 *   finite: a weight that a step takes beyond the largest number of its type stops
 *   there.
 * - Floating-point environment. Calls compute with round-to-nearest and
 *   denormals whatever the caller has set, and restore what they found.
 * - Structs grow at their end from version to version, and a program compiled against
 *   an older header keeps working: nothing beyond its struct is read or written. The
 *   functions whose names end in _sized take the size of the caller's struct, and the
 *   inline function of the same name without the ending passes it. Structs of options
 *   are filled by their _init function first, and start with their size. Structs that
 *   the library fills start with the number of bytes that it filled; a field beyond
 *   it is 0. In a muonium_tensor or muonium_qk, a field that is left 0 means the
 *   usual. The other structs never change: muonium_shape, muonium_view,
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
    MUONIUM_FORMAT = 6,        /* a file is malformed or does not fit */
    MUONIUM_PEER = 7           /* another process of a distributed step failed or is silent */
} muonium_status;

/* The name of a status, as "MUONIUM_OK"; "unknown status" for other values. */
MUONIUM_API const char *muonium_status_name(muonium_status status);

/* The message of the last call in this thread that failed; "" if none has. It
 * stays valid until the next failing call in the same thread. It is one line of
 * valid UTF-8 that can be shown on a terminal: of names and paths in it, control
 * characters, line separators, bidirectional controls and bytes that are not
 * UTF-8 are replaced by '?'. */
MUONIUM_API const char *muonium_last_error(void);

/* ---------------------------------------------------------------- memory -- */

/* Where the library gets its memory. `allocate` returns memory aligned to
 * `alignment` (a power of two) or NULL; `release` takes what it returned. Both
 * may be called from any thread, several at a time, and must not call the
 * library. */
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
 * affinity mask allows. At most 1024. If the variable is set to anything but a
 * number from 1 to 1024, threads = 0 is refused, and so is every call that
 * computes until another number is set here. Threads start when first needed and
 * survive fork (a child starts its own). When several threads of the program
 * call at a time, one gets the pool and the others work alone. */
MUONIUM_API muonium_status muonium_set_threads(int threads);

/* The number of threads that the next call may use, at least 1. */
MUONIUM_API int muonium_threads(void);

/* ------------------------------------------------------------- processor -- */

typedef struct muonium_cpu_info {
    size_t struct_size;      /* bytes that the library filled */
    const char *isa;         /* in use: "portable", "avx2", "avx512" or "avx512_bf16" */
    const char *kernel;      /* name of the f32 kernel in use */
    const char *reason;      /* why: "best that this CPU has", "MUONIUM_CPU=avx2", ... */
    const char *features;    /* what CPUID and the system offer, as "avx2 fma f16c" */
    const char *bf16_kernel; /* name of the kernel in use for precision MUONIUM_BF16 */
    const char *bf16_reason; /* why, with the rates that were measured */
} muonium_cpu_info;

/* Which kernels were chosen, and why. The environment variable MUONIUM_CPU
 * (portable, avx2, avx512, avx512_bf16, or blas in builds that have it) chooses
 * among what the CPU has; avx512_bf16 is avx512 with bf16 products for
 * precision MUONIUM_BF16, whose results with the Frobenius norm are the same on
 * all of them (docs/numerics.md). Where the variable does not decide, bf16
 * products are used if a measurement of a millisecond, here or when a plan first
 * asks for that precision, shows them to be faster than f32. An unknown value,
 * or one that the CPU lacks, is an error here and in every call that computes.
 * Decided once per process. */
MUONIUM_API muonium_status muonium_cpu_sized(muonium_cpu_info *info, size_t size);
static inline muonium_status muonium_cpu(muonium_cpu_info *info)
{
    return muonium_cpu_sized(info, sizeof *info);
}

/* ---------------------------------------------------------- coefficients -- */

/* One step of the iteration maps every singular value s of a matrix to
 * a*s + b*s^3 + c*s^5. A table of steps is an array of {a, b, c}. */

#define MUONIUM_MAX_STEPS 64

/* Polar Express (Amsel et al., arXiv 2505.16932): the `steps` quintics, each
 * optimal after the ones before, that bring [lower, 1] closest to 1.
 *   lower    in [0, 1]; 1e-3 is usual. 0 needs a cushion above 0.
 *   safety   >= 0; every step but the last leaves room for singular values up
 *            to 1 + safety. 1e-2 is usual; plans and the optimizer use 2e-2.
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
 * muonium_direct_set_name lists them. It computes in f32 or f64, and needs a normalisation that
 * leaves no singular value above 1. */
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

/* The names of the direct form's sets by index, from 0; NULL past the last. */
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

    /* The type to which intermediate matrices are rounded; default MUONIUM_F32. MUONIUM_BF16
     * and MUONIUM_F16 store every intermediate in that type and sum in f32, as GPU
     * implementations do. They are less accurate and on most CPUs slower than f32; use them to
     * reproduce other implementations. */
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

/* Fill with the defaults above: the first `size` bytes, those that the caller's version of
 * the struct has. */
MUONIUM_API void muonium_plan_options_init_sized(muonium_plan_options *options, size_t size);
static inline void muonium_plan_options_init(muonium_plan_options *options)
{
    muonium_plan_options_init_sized(options, sizeof *options);
}

/* What became of one matrix. */
typedef enum muonium_outcome {
    MUONIUM_ORTHOGONALIZED = 0,
    MUONIUM_ZERO = 1,       /* a zero matrix, which orthogonalises to zero */
    MUONIUM_SKIPPED = 2,    /* non-finite, left alone */
    MUONIUM_PROPAGATED = 3, /* non-finite, filled with NaN */
    MUONIUM_DIVERGED = 4    /* finite, but the iteration diverged even when repeated with care:
                               filled with zero */
} muonium_outcome;

/* A statement about one result that needs no reference to check. */
typedef struct muonium_certificate {
    size_t struct_size; /* bytes that the library filled */
    muonium_outcome outcome;
    int rescued;      /* how often singular values were rescaled, and the iteration repeated */
    double divisor;   /* what the matrix was divided by (aol: the largest of the rows' divisors) */
    double deviation; /* ||I - X X^T||_F before the last step; direct form: at least this is
                         ||I - Y Y^T||_F, from the trace of Y Y^T alone */
    double bound;     /* what follows for the result: an upper bound on ||I - Y Y^T||_F, up to
                         rounding, for the m x n result Y, m <= n */

    /* Measured on Y, before it is rounded to the type of `out`, if exact_certificate is set;
     * else NaN. Of a zero result they are known: sqrt(m), 0 and 0.
     *   orthogonality_error   ||I - Y Y^T||_F, up to the rounding of Y Y^T in f32 (f64 for
     *                         precision MUONIUM_F64). Every singular value s of Y has
     *                         |s^2 - 1| <= this: a proof, though a coarse one.
     *   sigma_min, sigma_max  the range of the singular values, by at most 24 Lanczos
     *                         iterations: an estimate from within. Y has singular values at
     *                         least this small and this large, up to rounding. With m <= 24
     *                         they are the ends of the range; otherwise the range is a few
     *                         per cent wider at most, as a rule: one value far from all
     *                         others is found, many close to an end hide the last of them.
     *                         Below 1e-3 (f64: 1e-7) sigma_min is rounding. */
    double orthogonality_error;
    double sigma_min;
    double sigma_max;
} muonium_certificate;

/* A plan holds all that depends on shape and options alone. It is immutable:
 * any number of threads may execute one plan at a time. */
typedef struct muonium_plan muonium_plan;

typedef struct muonium_plan_info {
    size_t struct_size;                 /* bytes that the library filled */
    muonium_form form;                  /* as chosen */
    int steps;                          /* T */
    int restarts;                       /* Gram form: how many */
    int restart[MUONIUM_MAX_STEPS];     /* before which steps, counted from 0 */
    double table[MUONIUM_MAX_STEPS][3]; /* the polynomials; direct form: not used */
    const char *direct_set;             /* direct form: its set; else NULL */
    double band;      /* what the polynomial makes of a singular value in [1e-3, 1], after the
                        normalisation, is within this of 1 */
    double flops;     /* per matrix, triangles counted once */
    size_t workspace; /* bytes that an execution needs */
} muonium_plan_info;

/* Make a plan. NULL options mean the defaults. The workspace is sized for the
 * threads in force now; an execution uses no more. */
MUONIUM_API muonium_status muonium_plan_create(muonium_shape shape,
                                               const muonium_plan_options *options,
                                               muonium_plan **plan);
MUONIUM_API void muonium_plan_destroy(muonium_plan *plan); /* NULL is allowed */

/* Describe a plan. */
MUONIUM_API muonium_status muonium_plan_describe_sized(const muonium_plan *plan,
                                                       muonium_plan_info *info, size_t size);
static inline muonium_status muonium_plan_describe(const muonium_plan *plan,
                                                   muonium_plan_info *info)
{
    return muonium_plan_describe_sized(plan, info, sizeof *info);
}

/* Orthogonalise a batch: `out` gets every matrix of `in`, its singular values brought close
 * to 1, as close as the options say: the polar factor with 8 steps, near it by default.
 * `in` and `out` may be of any type and strides; they may be the same memory
 * with the same strides and type, but must not overlap otherwise, and elements
 * of `out` must not overlap each other. `workspace` is memory of at least
 * muonium_plan_info.workspace bytes aligned to 64, used by this call alone, and
 * then the call allocates nothing; with NULL the call allocates and frees it.
 * `certificates` is NULL or gets one entry per matrix, `size` bytes after the one before. */
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

/* Plan, execute, destroy. */
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

/* Muon for the weight matrices, AdamW (or NAdamW) for everything else, in one step
 * call:
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
 * One optimizer is used by one thread at a time: a call that would change it while
 * another is changing or saving it is refused with MUONIUM_INVALID. Any number live
 * side by side on the one pool, and making one costs microseconds and no thread. */

/* For a Muon parameter W with gradient G, momentum M, learning rate lr:
 *   M <- momentum of G;  D <- M, or Nesterov's look ahead;  O <- orthogonalised D;
 *   W <- decay(W) - lr * scale * O. */

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
    MUONIUM_SCALE_NONE = 3             /* 1 */
} muonium_scale;

/* What weight decay wd makes of the weights W. */
typedef enum muonium_decay {
    MUONIUM_DECAY_DECOUPLED = 0,  /* W (1 - lr wd), before the update */
    MUONIUM_DECAY_CAUTIOUS = 1,   /* the same, only where O and W have the same sign */
    MUONIUM_DECAY_INDEPENDENT = 2 /* W (1 - wd) */
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

/* Called with one line of text, without a newline, from the thread that calls the
 * library. It can be shown on a terminal, as a message of muonium_last_error can. */
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
    muonium_dtype state_dtype; /* the type of the momentum, MUONIUM_F32 or MUONIUM_BF16 */
    bool master;               /* keep f32 copies of half-precision parameters and step those */
    bool stochastic_rounding;  /* round half-precision parameters up or down at random, without
                                  bias; the result does not depend on the number of threads */
    uint64_t seed;             /* of stochastic_rounding */

    /* These are taken from the options of muonium_create, not from those of groups. */
    size_t scratch_bytes; /* scratch memory beyond the workspace of one matrix. 0: in all, the
                             largest of that workspace, three times the largest matrix, half of
                             it for each thread, and 2 MB */
    muonium_log *log;     /* NULL: silent. Gets the routes of all parameters before the first
                             step, the lines of muonium_warnings after "warning: ", and notes about
                             problems that are not errors */
    void *log_context;    /* passed to log */

    bool adaptive; /* multiply the update of a Muon parameter by the dual norm of its direction,
                      the sum of the products of the elements of D and O. Steps then grow with
                      the gradients. A parameter must be one matrix. */
} muonium_options;

/* Fill with a recipe: NULL or "muonium" for our own defaults; "motif", "fp16", "fp32",
 * "timm", "optax", "torch", "keller", "moonlight" for what the implementation of that
 * name does. An unknown name fails with the valid ones. optax has no default learning
 * rate: lr is then NaN and must be set. docs/recipes.md has the table.
 *
 * `size` and `plan_size` are the sizes of the caller's versions of muonium_options and of the
 * muonium_plan_options in it. The library writes and reads no byte beyond either; what follows
 * the plan is found by the caller's plan_size. Either struct may so grow at its end. */
MUONIUM_API muonium_status muonium_options_init_sized(muonium_options *options, size_t size,
                                                      size_t plan_size, const char *recipe);
static inline muonium_status muonium_options_init(muonium_options *options, const char *recipe)
{
    return muonium_options_init_sized(options, sizeof *options, sizeof options->plan, recipe);
}

/* The recipes by index, from 0; NULL past the last. */
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

/* The types of options, and their text. */
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

/* What is known of an option. Belongs to the library and lives as long as it. */
typedef struct muonium_option {
    const char *name;
    const char *help; /* a sentence without capital and full stop */
    muonium_option_type type;
    bool plan;             /* a field of muonium_plan_options, in muonium_options.plan */
    bool saved;            /* in checkpoints; the others change no result */
    const char *enum_type; /* of a choice: its enum, as "muonium_form"; else NULL */
    const char *range;     /* of a number: what is valid, in words; else NULL */
    double least, most;    /* of a number: the same as bounds, which are included */
    size_t offset, size;   /* of the field in its struct, as this library knows it. Types of two
                              fields have them one after the other; `size` is that of the first */
} muonium_option;

/* The options by index, from 0, NULL past the last; and by name, NULL if there is none. */
MUONIUM_API const muonium_option *muonium_option_at(int index);
MUONIUM_API const muonium_option *muonium_option_find(const char *name);

/* The names that a choice or a name may have, by index, from 0; NULL past the last, and for
 * options of other types. */
MUONIUM_API const char *muonium_option_choice(const muonium_option *option, int index);

/* Write the value of an option as text to `text`, of `size` bytes. NULL options: the default.
 * 64 bytes are enough for all but tables and lists; too few are an error. */
MUONIUM_API muonium_status muonium_option_get(const muonium_options *options, const char *name,
                                              char *text, size_t size);

/* Set an option from text. An unknown name, a text that is no value, and a value out of range
 * are errors that say what is valid; nothing has then changed. Names are stored as pointers to
 * the library's own strings, so `text` need not live on. Tables, lists and callbacks point to
 * memory of the caller: they can only be cleared here, by "". Setting "coefficients" clears
 * the table, which would go before it. */
MUONIUM_API muonium_status muonium_option_set(muonium_options *options, const char *name,
                                              const char *text);

/* The name of a value of a public enum: muonium_enum_name("muonium_form", MUONIUM_FORM_GRAM) is
 * "gram". Values count from 0; NULL past the last, and for an unknown enum. */
MUONIUM_API const char *muonium_enum_name(const char *type, int value);

/* ------------------------------------------------------------ parameters -- */

/* The rules of muonium_routing by index, from 0: "muonium", "timm", ... NULL past the last. */
MUONIUM_API const char *muonium_routing_name(int index);

/* The patterns of MUONIUM_ROUTING_MUONIUM by index, from 0; NULL past the last. *place, unless
 * `place` is NULL, gets what the pattern is compared with: "part", each part of a name between
 * dots and slashes; "word", each word of a part between underscores and digits; "module", the
 * last part but for "weight" and the like; "outside", each part before the first that is a
 * number, so not within numbered blocks; "top", the module, if no part before it is a number;
 * "router", each part, of 2-D tensors with fewer rows than columns outside of experts. */
MUONIUM_API const char *muonium_default_pattern(int index, const char **place);

#define MUONIUM_MAX_DIMS 8

/* A parameter: what a caller fills in to add one. Fields left 0 mean the usual. */
typedef struct muonium_tensor {
    const char *name; /* unique in the optimizer, valid UTF-8; copied. NULL: "parameter <index>" */
    muonium_dtype dtype;            /* MUONIUM_F32, MUONIUM_BF16 or MUONIUM_F16 */
    size_t ndim;                    /* 0 for a scalar */
    size_t shape[MUONIUM_MAX_DIMS]; /* with a 0 the parameter has no elements: see muonium_add */
    void *data;                     /* read and written by every step, so it must stay valid */
    void *grad;                     /* read by every step; NULL: none in this step */
    bool f32_grad;                  /* gradients are f32 whatever dtype is */
    /* The ndim strides of data and of grad, in elements; copied. NULL: dense, row-major.
     * Elements of data must not share memory. Those of grad may: a stride of 0 repeats an
     * element along its dimension. */
    const ptrdiff_t *strides;
    const ptrdiff_t *grad_strides;
    muonium_layout layout;
    uint32_t out_axes, in_axes; /* MUONIUM_LAYOUT_FAN: bit d stands for dimension d */
    const size_t *row_splits;   /* split the rows of each matrix into blocks of these sizes (fused
                                   QKV, gate and up), each a matrix of its own; copied */
    size_t row_split_count;
    size_t heads;        /* or into as many equal blocks; 0: no split */
    muonium_route route; /* goes before the group's */
} muonium_tensor;

/* An optimizer: parameters in groups, their options and their state. */
typedef struct muonium_optimizer muonium_optimizer;

/* A group of parameters with their own options; belongs to its optimizer. */
typedef struct muonium_group muonium_group;

/* Make an optimizer; NULL options mean the default recipe. */
MUONIUM_API muonium_status muonium_create(const muonium_options *options,
                                          muonium_optimizer **optimizer);

/* NULL is allowed. Does nothing while another call is using the optimizer, which is so in
 * its callbacks, nor to a description that a muonium_mpi was made of and that lives still:
 * muonium_last_error tells, and the optimizer must be destroyed later. */
MUONIUM_API void muonium_destroy(muonium_optimizer *optimizer);

/* The same without state: it takes groups and parameters, routes and reports them, but
 * holds no momentum or moments and cannot step, save or load. For asking what a model
 * would cost, and for libmuonium_mpi, which keeps the state spread over processes. */
MUONIUM_API muonium_status muonium_create_description(const muonium_options *options,
                                                      muonium_optimizer **optimizer);

/* Add a group with options of its own. */
MUONIUM_API muonium_status muonium_add_group(muonium_optimizer *optimizer,
                                             const muonium_options *options, muonium_group **group);

/* Add a parameter to a group (NULL: the default one). Its state starts at zero. The
 * route is decided here, once: by tensor.route, else the group's route, else by options.routing:
 * name patterns, else shape: AdamW with fewer than two dimensions above 1
 * ("insufficient_dims"), with dimension 0 or 1 of size 1 ("leading_unit_dims"), with a
 * side below min_dim ("min_dim_too_small:K") or longer than max_aspect
 * ("extreme_aspect_ratio:R"); else Muon ("ok"). Memory that overlaps another
 * parameter's, or a name that is taken, is an error. A parameter without elements goes to
 * AdamW before all else ("empty"); its data may be NULL, and steps change nothing of it.
 * Parameters are numbered from 0 in the order in which they are added. */
MUONIUM_API muonium_status muonium_add_sized(muonium_optimizer *optimizer,
                                             const muonium_tensor *tensor, size_t size,
                                             muonium_group *group);
static inline muonium_status muonium_add(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                                         muonium_group *group)
{
    return muonium_add_sized(optimizer, tensor, sizeof *tensor, group);
}

/* Several matrices in one tensor, by the usual names of such tensors. */
typedef struct muonium_fusion {
    size_t struct_size; /* bytes that the library filled */
    const char *kind;   /* "QKV", "QKV by heads", "K and V" or "gate and up"; NULL: none */
    size_t count;       /* how many matrices; 0: name and shape do not tell */
    size_t rows[3];     /* the outputs of each, as for row_splits */
    bool columns;       /* the tensor is (in, out), as the Conv1D of Hugging Face has it: the split
                         takes MUONIUM_LAYOUT_FAN with out_axes 2 and in_axes 1 */
} muonium_fusion;

/* What a tensor is by its name, ndim and shape: c_attn, qkv, qkv_proj, to_qkv, wqkv,
 * in_proj_weight; query_key_value, linear_qkv; kv_proj, to_kv; gate_up_proj, w13, ... Of QKV
 * the queries are taken to be as many as the inputs. Matrices that are interleaved by heads
 * take `heads` of the tensor, three times the number of attention heads. */
MUONIUM_API muonium_status muonium_fused_sized(const muonium_tensor *tensor, size_t tensor_size,
                                               muonium_fusion *fusion, size_t size);
static inline muonium_status muonium_fused(const muonium_tensor *tensor, muonium_fusion *fusion)
{
    return muonium_fused_sized(tensor, sizeof *tensor, fusion, sizeof *fusion);
}

/* Call `line` with each warning about the routes of the parameters so far, and with `context`:
 * matrices under Muon that look like a vocabulary, parameters without names under a rule
 * that needs them, no parameter at all under Muon, fused matrices orthogonalised as one. The log
 * gets the same before the first step. */
MUONIUM_API muonium_status muonium_warnings(const muonium_optimizer *optimizer, muonium_log *line,
                                            void *context);

/* How many parameters were added. */
MUONIUM_API size_t muonium_parameter_count(const muonium_optimizer *optimizer);

/* The number of a parameter by name; fails, naming it, if there is none. */
MUONIUM_API muonium_status muonium_find(const muonium_optimizer *optimizer, const char *name,
                                        size_t *parameter);

/* New places of a parameter and of its gradient, of the same type, shape and strides. */
MUONIUM_API muonium_status muonium_set_data(muonium_optimizer *optimizer, size_t parameter,
                                            void *data);
MUONIUM_API muonium_status muonium_set_grad(muonium_optimizer *optimizer, size_t parameter,
                                            void *grad);

/* Change options between steps, of one group or, with NULL, of all. set_lr moves
 * AdamW's rate along: where adam_lr is given, by the same factor, which is refused
 * while lr is 0. */
MUONIUM_API muonium_status muonium_set_lr(muonium_optimizer *optimizer, muonium_group *group,
                                          double lr);
MUONIUM_API muonium_status muonium_set_weight_decay(muonium_optimizer *optimizer,
                                                    muonium_group *group, double weight_decay);
MUONIUM_API muonium_status muonium_set_momentum(muonium_optimizer *optimizer, muonium_group *group,
                                                double momentum);

/* One step on all parameters that have a gradient; the others are skipped and counted.
 * Gradients are not modified. A NaN or infinity in a gradient, or a gradient that would
 * make the momentum overflow, follows options.nonfinite: by default the step fails, names
 * parameter and index, and not one byte of any parameter or state has changed. A matrix
 * that could not be orthogonalised is left as it is, counted as skipped and named in the
 * log. A Muon gradient of zero moves the
 * parameter on by its momentum, as in every recipe. The first step after a change of
 * parameters or groups allocates; later ones do not. */
MUONIUM_API muonium_status muonium_step(muonium_optimizer *optimizer);

/* The same with parameters and gradients at new places, for callers that get them anew
 * for every step: data[i] and grads[i] are those of parameter i, of `count`, which must
 * be all. NULL for `data`: where they are; NULL for a gradient: none in this step. As
 * muonium_set_data and muonium_set_grad for each, without their cost; if a place is
 * refused nothing has changed, and if the step itself fails the places stay. */
MUONIUM_API muonium_status muonium_step_at(muonium_optimizer *optimizer, void *const *data,
                                           void *const *grads, size_t count);

/* Call `loss`, which computes gradients and returns the loss, then step; the loss goes
 * to *value if that is not NULL. The step has not begun while `loss` runs, so that it may
 * clip gradients, set rates and places, add parameters, save or load; but it cannot step or
 * destroy the optimizer. */
MUONIUM_API muonium_status muonium_step_with(muonium_optimizer *optimizer,
                                             double (*loss)(void *context), void *context,
                                             double *value);

/* ---- gradients ---- */

/* The norm of all gradients together, in double; without those of Muon parameters, for
 * which scale does not matter, if `adam_only`. */
MUONIUM_API muonium_status muonium_grad_norm(const muonium_optimizer *optimizer, bool adam_only,
                                             double *norm);

/* Multiply gradients, in place, by max_norm / norm where norm is larger. Says what it
 * did: the norm found, and the factor (1: nothing). Fails on a norm that is not finite, and
 * on a gradient whose elements share memory (a stride of 0), with nothing changed. */
MUONIUM_API muonium_status muonium_clip_grads(muonium_optimizer *optimizer, double max_norm,
                                              bool adam_only, double *norm, double *factor);

/* Set all gradients to zero. Fails, with nothing changed, on a gradient whose elements share
 * memory (a stride of 0). */
MUONIUM_API muonium_status muonium_zero_grads(muonium_optimizer *optimizer);

/* QK-clip (MuonClip): rows of the query and key projections of each head whose largest
 * attention logit exceeds `threshold`. Head h owns rows query_row + h * head_dim and on
 * of parameter `query`; keys likewise, where several query heads may share a key head
 * (key_heads divides heads). Queries and keys are scaled so that the logit S becomes the
 * threshold: by sqrt(threshold / S) each; a shared key by that of its largest logit,
 * the queries taking the rest. query and key may be one fused parameter. */
typedef struct muonium_qk {
    size_t query, key;         /* parameter numbers */
    size_t query_row, key_row; /* first rows */
    size_t heads, key_heads;   /* key_heads 0: as many as heads */
    size_t head_dim;
    const float *max_logits; /* one per head */
    double threshold;        /* 100 is usual */
} muonium_qk;

/* Scale the heads that need it; *clipped, if not NULL, gets how many did. */
MUONIUM_API muonium_status muonium_qk_clip_sized(muonium_optimizer *optimizer,
                                                 const muonium_qk *heads, size_t size,
                                                 size_t *clipped);
static inline muonium_status muonium_qk_clip(muonium_optimizer *optimizer, const muonium_qk *heads,
                                             size_t *clipped)
{
    return muonium_qk_clip_sized(optimizer, heads, sizeof *heads, clipped);
}

/* ---- report ---- */

/* What a parameter gets, before or after any step. Strings live as long as the
 * parameter. */
typedef struct muonium_parameter_report {
    size_t struct_size; /* bytes that the library filled */
    const char *name;
    bool muon;
    const char *reason; /* as "ok", "insufficient_dims", "name_pattern:*norm*" */
    size_t matrices;    /* orthogonalised per step; 0 for AdamW */
    size_t rows, cols;  /* of the first of them (out, in) */
    muonium_form form;  /* and its form, restarts, set (direct form, else NULL) and operations */
    int restarts;
    const char *direct_set;
    double flops;       /* per step, all matrices */
    size_t state_bytes; /* momentum, moments, master copy */
    double step_rms;    /* root mean square of a step: lr * scale * what orthogonal matrices of
                            this shape have; AdamW: its learning rate */
    double lr;          /* as in force */
    uint64_t steps;     /* taken by this parameter */
} muonium_parameter_report;

/* Report on the parameter of that number. */
MUONIUM_API muonium_status muonium_report_sized(const muonium_optimizer *optimizer,
                                                size_t parameter, muonium_parameter_report *report,
                                                size_t size);
static inline muonium_status muonium_report(const muonium_optimizer *optimizer, size_t parameter,
                                            muonium_parameter_report *report)
{
    return muonium_report_sized(optimizer, parameter, report, sizeof *report);
}

typedef struct muonium_counters {
    size_t struct_size; /* bytes that the library filled */
    uint64_t steps;     /* calls that succeeded */
    uint64_t matrices;  /* orthogonalised */
    uint64_t skipped;   /* parameters without gradient, or non-finite under skip; matrices
                          that could not be orthogonalised */
    uint64_t rescued;   /* as in certificates, summed */
    uint64_t zero;      /* matrices that were zero */
    size_t muon, adam;  /* parameters */
    size_t state_bytes;
    size_t scratch_bytes; /* 0 before the first step */
    double flops;         /* of all orthogonalisations of a step */
} muonium_counters;

/* Count what the optimizer holds and what its steps have done. */
MUONIUM_API muonium_status muonium_count_sized(const muonium_optimizer *optimizer,
                                               muonium_counters *counters, size_t size);
static inline muonium_status muonium_count(const muonium_optimizer *optimizer,
                                           muonium_counters *counters)
{
    return muonium_count_sized(optimizer, counters, sizeof *counters);
}

/* The certificates of a Muon parameter's matrices in its last step: up to `capacity` of
 * them, each `size` bytes after the one before; *count gets how many there are, 0 for AdamW
 * or before the first step. */
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

/* What the optimizer remembers of a parameter, dense and row-major in the order of the
 * parameter's elements; NULL where there is none. */
typedef struct muonium_state {
    size_t struct_size;           /* bytes that the library filled */
    uint64_t steps;               /* taken by this parameter */
    size_t elements;              /* of the parameter */
    void *momentum;               /* Muon */
    muonium_dtype momentum_dtype; /* options.state_dtype */
    float *exp_avg;               /* AdamW */
    float *exp_avg_sq;
    float *normuon; /* NorMuon: `rows` numbers */
    size_t rows;
    float *master; /* options.master, from the first step on */
} muonium_state;

/* Where it lies: to be read, or written, between steps, until the optimizer is
 * destroyed. */
MUONIUM_API muonium_status muonium_state_of_sized(const muonium_optimizer *optimizer,
                                                  size_t parameter, muonium_state *state,
                                                  size_t size);
static inline muonium_status muonium_state_of(const muonium_optimizer *optimizer, size_t parameter,
                                              muonium_state *state)
{
    return muonium_state_of_sized(optimizer, parameter, state, sizeof *state);
}

/* Set it from copies elsewhere. An array left NULL starts again: zero, or a master copy
 * taken from the parameter by the next step. An array that the parameter has no place
 * for, or another size or type, is an error. So is a state that muonium_load would refuse:
 * more than 2^53 steps, NaN or infinity unless the parameter's policy is to propagate them
 * (MUONIUM_NON_FINITE; an infinite exp_avg_sq is allowed), a negative mean of squares. */
MUONIUM_API muonium_status muonium_set_state_sized(muonium_optimizer *optimizer, size_t parameter,
                                                   const muonium_state *state, size_t size);
static inline muonium_status muonium_set_state(muonium_optimizer *optimizer, size_t parameter,
                                               const muonium_state *state)
{
    return muonium_set_state_sized(optimizer, parameter, state, sizeof *state);
}

/* ------------------------------------------------------ safetensors files -- */

/* The safetensors format holds named tensors, little-endian and row-major, and
 * a map of strings. Element types go by the names of the format ("F32",
 * "BF16", "I64", ...), so that files with types that this library does not
 * compute with can be listed and copied. */

/* The name of a type in the format; NULL for an unknown type. And back: false,
 * with *dtype untouched, for a name that is none of the types above. */
MUONIUM_API const char *muonium_dtype_name(muonium_dtype dtype);
MUONIUM_API bool muonium_dtype_named(const char *name, muonium_dtype *dtype);

/* One tensor of a file. */
typedef struct muonium_entry {
    const char *name;      /* UTF-8, unescaped */
    const char *dtype;     /* as "F32" */
    unsigned bits;         /* per element: 32 for "F32", 4 for "F4" */
    size_t ndim;           /* 0 for a scalar */
    const uint64_t *shape; /* ndim extents; the product of those above 0 fits in size_t */
    uint64_t bytes;        /* of data; 0 if an extent is 0 */
    uint64_t offset;       /* of the first byte of data in the file */
} muonium_entry;

/* An open file. Everything but the values is checked before an open succeeds:
 * the header is strict JSON, no name occurs twice, every size fits its shape
 * and type, the tensors cover the data without hole or overlap and the file
 * ends where the last one does. Anything else is MUONIUM_FORMAT, with a message
 * that names the entry. An element type that the format does not define is
 * refused too, since its size could not be checked.
 *
 * Only the header is held in memory: data is read when asked for, straight into
 * the caller's buffer, and never mapped, so that a file that another process
 * cuts short gives MUONIUM_IO and not a signal. Any number of threads may use
 * one reader at a time. */
typedef struct muonium_reader muonium_reader;

/* Where bytes come from if not from a path: `read` fills `buffer` with the
 * `bytes` bytes at `offset` of a file of `size` bytes, or returns false. */
typedef struct muonium_source {
    bool (*read)(void *context, uint64_t offset, void *buffer, size_t bytes);
    void *context;
    uint64_t size;
} muonium_source;

/* Open a regular file, a source (the struct is copied), or `bytes` bytes of
 * memory, which must stay as they are until the close. */
MUONIUM_API muonium_status muonium_reader_open(const char *path, muonium_reader **reader);
MUONIUM_API muonium_status muonium_reader_open_source(const muonium_source *source,
                                                      muonium_reader **reader);
MUONIUM_API muonium_status muonium_reader_open_memory(const void *data, size_t bytes,
                                                      muonium_reader **reader);

/* NULL is allowed. Does nothing in a callback of a call that is reading from it. */
MUONIUM_API void muonium_reader_close(muonium_reader *reader);

/* The tensors in the order of their data, from 0; and by name. NULL if there is
 * none. Entries and their strings live until the close. */
MUONIUM_API size_t muonium_reader_count(const muonium_reader *reader);
MUONIUM_API const muonium_entry *muonium_reader_entry(const muonium_reader *reader, size_t index);
MUONIUM_API const muonium_entry *muonium_reader_find(const muonium_reader *reader,
                                                     const char *name);

/* The metadata in the order of the file, from 0; and the value of a key. NULL
 * if there is none; `value` may be NULL. */
MUONIUM_API size_t muonium_reader_metadata_count(const muonium_reader *reader);
MUONIUM_API const char *muonium_reader_metadata_key(const muonium_reader *reader, size_t index,
                                                    const char **value);
MUONIUM_API const char *muonium_reader_metadata(const muonium_reader *reader, const char *key);

/* Copy `bytes` bytes of a tensor of this reader, from byte `first` of its data
 * on, into `buffer`, as they are in the file. A range beyond the tensor is
 * MUONIUM_INVALID; after MUONIUM_IO the buffer's content is undefined. */
MUONIUM_API muonium_status muonium_reader_read(const muonium_reader *reader,
                                               const muonium_entry *entry, uint64_t first,
                                               void *buffer, size_t bytes);

/* A file being written, in three stages: describe all, begin, stream the data.
 *
 *     muonium_writer_create(&w);
 *     muonium_writer_add(w, "weight", "F32", 2, (uint64_t[]){3, 4});
 *     muonium_writer_begin(w, "model.safetensors");
 *     muonium_writer_data(w, weights, 48);
 *     muonium_writer_finish(w);
 *     muonium_writer_destroy(w);
 *
 * The same calls give the same bytes. The data starts on a multiple of 64
 * bytes. Used by one thread at a time. */
typedef struct muonium_writer muonium_writer;

/* Make a writer, with nothing described yet. */
MUONIUM_API muonium_status muonium_writer_create(muonium_writer **writer);

/* Before the beginning: the next metadata pair, the next tensor. Names, keys
 * and values are UTF-8; names and keys must differ (checked when writing
 * begins). Tensors are laid out in the order in which they are added. */
MUONIUM_API muonium_status muonium_writer_add_metadata(muonium_writer *writer, const char *key,
                                                       const char *value);
MUONIUM_API muonium_status muonium_writer_add(muonium_writer *writer, const char *name,
                                              const char *dtype, size_t ndim,
                                              const uint64_t *shape);

/* Begin writing to a path: to a temporary file beside it, named
 * <path>.tmp-<process>-<number>, that muonium_writer_finish renames once all of
 * it is on the disk. At every instant the path holds the old file or the new
 * one, whole. A path that exists must be a regular file and keeps its
 * permissions but for setuid and setgid, and, where the writer's group is
 * another, what that group may do more than everyone; a symbolic link stays,
 * and what it points to is replaced. */
MUONIUM_API muonium_status muonium_writer_begin(muonium_writer *writer, const char *path);

/* Begin writing to a function instead, which takes the bytes in order and
 * returns false if it cannot. It can do nothing with the writer itself: calls
 * on it fail, and muonium_writer_destroy does nothing. */
MUONIUM_API muonium_status muonium_writer_begin_sink(muonium_writer *writer,
                                                     bool (*write)(void *context, const void *data,
                                                                   size_t bytes),
                                                     void *context);

/* The next bytes of data, in pieces of any size. After MUONIUM_IO the temporary
 * file is gone and the writer can only be destroyed. */
MUONIUM_API muonium_status muonium_writer_data(muonium_writer *writer, const void *data,
                                               size_t bytes);

/* All of the work of finishing but the renaming, for those who replace several files
 * together: prepare all, then finish all. The temporary file is then on the disk, and so is
 * its name, under which it can be found after a crash. Nothing is visible yet, and what can
 * still fail is next to nothing; if the renaming does, the temporary file stays, and the
 * message names it. MUONIUM_INVALID if data is missing, which may then still be given. */
MUONIUM_API muonium_status muonium_writer_prepare(muonium_writer *writer);

/* Complete the file; MUONIUM_INVALID if data is missing, which may then still
 * be given. If the last action of all fails, telling the disk of the new name,
 * the error says so: the path then holds the new file, but after a power
 * failure it may hold the old one. */
MUONIUM_API muonium_status muonium_writer_finish(muonium_writer *writer);

/* Forget a writer; an unfinished file leaves no trace. NULL is allowed. */
MUONIUM_API void muonium_writer_destroy(muonium_writer *writer);

/* ------------------------------------------------------------ checkpoints -- */

/* The state of an optimizer goes into a safetensors file that any tool can read. A Muon
 * parameter w has the tensor "w.momentum" and under NorMuon "w.normuon", an AdamW one
 * "w.exp_avg" and "w.exp_avg_sq", either "w.master" if it keeps a master copy: all of the
 * parameter's shape, but normuon, which has a number per matrix row. The parameters
 * themselves are not in it. The metadata holds the versions of format and library, the
 * steps taken, the options of every group, the route and the steps of every parameter,
 * and CRC-32C checksums of every tensor and of the header, which together cover every
 * byte. Equal states give equal files.
 *
 * Resuming is bit-exact: 50 steps, save, load in another process with any number of
 * threads and 50 steps more are 100 steps. What the caller has configured rules: loading
 * restores state and step counts, never options; where these differ from those saved,
 * the log says so. */

/* Told by the calling thread how many bytes are done, from 0 to `total`, every few
 * megabytes. */
typedef void muonium_progress(void *context, uint64_t done, uint64_t total);

/* Save to a path, which at every instant holds the old file or the new one, whole: see
 * muonium_writer_begin. Needs no memory beyond that for the header.
 *
 * What can be saved can be loaded: a state that muonium_load would refuse under the same
 * options is an error here too, which names the parameter and the element, and the old file
 * stays. No step leaves such a state behind; a caller that writes where muonium_state_of
 * points, or weights that were not finite, may. */
MUONIUM_API muonium_status muonium_save(const muonium_optimizer *optimizer, const char *path);

/* Save to a function that takes the bytes in order and returns false if it cannot, so that
 * the state can be part of another file or stay in memory. */
MUONIUM_API muonium_status muonium_save_to(const muonium_optimizer *optimizer,
                                           bool (*write)(void *context, const void *data,
                                                         size_t bytes),
                                           void *context);

/* Save up to, but not including, the moment in which the path changes: that is
 * muonium_writer_finish on the writer that this makes, which the caller destroys in every
 * case. For reporting progress, and for replacing several files together. */
MUONIUM_API muonium_status muonium_save_prepare(const muonium_optimizer *optimizer,
                                                const char *path, muonium_progress *progress,
                                                void *progress_context, muonium_writer **writer);

/* Load what was saved. The file must have the state of exactly the optimizer's
 * parameters, by name, in any order; a file of another model fails with the first
 * differences. Everything is read and checked before the first byte of the optimizer
 * changes, so any failure leaves it as it was; that takes memory for the state a second
 * time. Checked are all checksums, shapes, routes, counts of steps (at most 2^53) and
 * values: NaN and infinity are MUONIUM_NON_FINITE unless the parameter's policy is
 * MUONIUM_NONFINITE_PROPAGATE (an infinite second moment, which version 0.1 could leave, is
 * allowed); a mean of squares is not negative. Momentum is converted
 * between the sum convention and the others by the factor 1 - mu of the save, and
 * between f32 and bf16. */
MUONIUM_API muonium_status muonium_load(muonium_optimizer *optimizer, const char *path);
MUONIUM_API muonium_status muonium_load_from(muonium_optimizer *optimizer,
                                             const muonium_source *source);

typedef struct muonium_load_options {
    size_t struct_size;         /* set by muonium_load_options_init */
    bool partial;               /* names may differ: take what is there for the parameters that
                                   there are; false. What the file lacks stays as it is. Shapes
                                   and routes must fit still, and some parameter must match. */
    muonium_progress *progress; /* NULL */
    void *progress_context;
} muonium_load_options;

/* Fill with the defaults above; `size` as in muonium_plan_options_init_sized. */
MUONIUM_API void muonium_load_options_init_sized(muonium_load_options *options, size_t size);
static inline void muonium_load_options_init(muonium_load_options *options)
{
    muonium_load_options_init_sized(options, sizeof *options);
}

typedef struct muonium_load_report {
    size_t struct_size;        /* bytes that the library filled */
    size_t matched;            /* parameters whose state was loaded */
    size_t missing;            /* tensors that the file should have and has not */
    size_t left_over;          /* tensors of the file that no parameter took */
    size_t converted;          /* tensors that were converted */
    char missing_names[256];   /* the first of them, separated by commas; "" if none */
    char left_over_names[256]; /* likewise */
} muonium_load_report;

/* Load from an open file with options (NULL: the defaults). *report, if not NULL, is
 * filled on success. */
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

/* State without names, as other implementations keep it: a list in the order of the
 * parameters, of one buffer for each Muon parameter (its momentum) and of two for each
 * AdamW parameter (first and second moment). */
typedef struct muonium_buffer {
    const void *data; /* dense, row-major */
    muonium_dtype dtype;
    size_t ndim; /* the parameter's shape, or one dimension with all elements */
    size_t shape[MUONIUM_MAX_DIMS];
} muonium_buffer;

typedef struct muonium_positional_options {
    size_t struct_size; /* set by muonium_positional_options_init */
    uint64_t steps;     /* that led to this state, for bias corrections; 0 */
    bool convert;       /* the momentum is of the form below and not of the group's own; false */
    muonium_momentum_form momentum_form; /* MUONIUM_MOMENTUM_LERP */
    double momentum;                     /* mu, in [0, 1); 0.95 */
} muonium_positional_options;

/* Fill with the defaults above; `size` as in muonium_plan_options_init_sized. */
MUONIUM_API void muonium_positional_options_init_sized(muonium_positional_options *options,
                                                       size_t size);
static inline void muonium_positional_options_init(muonium_positional_options *options)
{
    muonium_positional_options_init_sized(options, sizeof *options);
}

/* Load such a list; NULL options mean the defaults. Counts and shapes must be those of
 * the optimizer, and values are checked, before anything changes. NorMuon's means restart
 * at zero, master copies from the parameters. */
MUONIUM_API muonium_status muonium_load_positional(muonium_optimizer *optimizer,
                                                   const muonium_buffer *buffers, size_t count,
                                                   const muonium_positional_options *options);

/* The same from a file whose tensors are named by their place in the list, from 0, with
 * anything that is common to all before it: "0", "1", ... or "momentum_buffer.0", ... The
 * order in the file does not matter: many tools sort by name, and 10 before 2. */
MUONIUM_API muonium_status
muonium_load_positional_reader(muonium_optimizer *optimizer, const muonium_reader *reader,
                               const muonium_positional_options *options);

typedef struct muonium_checkpoint_info {
    size_t struct_size;  /* bytes that the library filled */
    unsigned format;     /* version of the format */
    const char *version; /* of the library that saved it; lives as long as the reader */
    uint64_t steps;      /* taken by the optimizer */
    size_t muon, adam;   /* parameters */
    size_t groups;       /* see the metadata "muonium.group.0" and on */
    size_t tensors;      /* and bytes of these */
    uint64_t bytes;
} muonium_checkpoint_info;

/* Whether a file holds an optimizer's state at all: false for a model, say. */
MUONIUM_API bool muonium_is_checkpoint(const muonium_reader *reader);

/* Read all of a checkpoint and verify its checksums; *info, if not NULL, is filled on
 * success. */
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
