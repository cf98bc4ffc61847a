/*
 * base.h: what every room of the library stands on. No file outside src/base
 * needs more than this header and muonium.h from here.
 */
#ifndef MU_BASE_H
#define MU_BASE_H

#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Muonium needs a 64-bit little-endian CPU"
#endif

#include "muonium.h"

/* Results must not depend on whether a compiler fuses multiplications and additions: kernels ask
 * for that explicitly. CMake passes the same as flags (cmake/MuoniumFlags.cmake says why); this is
 * for builds without them. With -std=c11 gcc does not fuse anyway. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__STRICT_ANSI__)
#pragma GCC optimize("fp-contract=off", "no-math-errno", "no-trapping-math")
#endif

#if !defined(__x86_64__)
#include <fenv.h>
#endif

#if defined(__GNUC__)
#define MU_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MU_PRINTF(text, first)
#endif

/* ---- status.c: errors ---- */

/* Record the message of this thread and return `status`, so that a check reads
 *     if (steps < 1) return mu_fail(MUONIUM_INVALID, "steps is %d: ...", steps);
 * Numbers are formatted independently of the locale. The message may contain text from
 * outside, such as names and paths: see mu_clean. */
muonium_status mu_fail(muonium_status status, const char *format, ...) MU_PRINTF(2, 3);

/* ---- utf8.c: UTF-8, and text from outside made fit to be shown ---- */

/* Length of the UTF-8 sequence that begins at `bytes`, of which `available`
 * (at least 1) exist; 0 if it is none: cut short, overlong, a surrogate or
 * beyond U+10FFFF. */
size_t mu_utf8_length(const char *bytes, size_t available);
bool mu_utf8_valid(const char *string);

/* Replace by '?', in place, what could speak to a terminal, break a line or reorder it:
 * control characters (C0, DEL and C1), line and paragraph separators, bidirectional
 * controls, and bytes that are not UTF-8. */
void mu_clean(char *text);

/* A name in double quotes for a message, cleaned as above, and cut if it is long so that
 * a hostile one cannot push out the rest of the message. */
typedef struct mu_quoted {
    char text[128];
} mu_quoted;

mu_quoted mu_quote(const char *name);

/* ---- callback.c: functions of the caller ---- */

/* Before and after a function of the caller is called by this thread: its name, for messages. */
const char *mu_callback_begin(const char *name); /* returns what the end takes */
void mu_callback_end(const char *outer);

/* The name of the function of the caller in which this thread is; NULL: in none. */
const char *mu_callback_name(void);

/* ---- hash.c: a number for a text, by FNV-1a ---- */

uint64_t mu_hash_text(const char *text);

/* ---- index.c: numbers of things by the hash of their keys ---- */

typedef struct mu_index_slot {
    uint64_t hash;
    size_t next_number; /* the number plus 1; 0: free */
} mu_index_slot;

typedef struct mu_index {
    mu_index_slot *slots; /* all zero: empty */
    size_t size;
} mu_index;

/* Have room for `count` numbers in all; false, and nothing has changed, without memory. */
bool mu_index_reserve(mu_index *index, size_t count);
void mu_index_add(mu_index *index, uint64_t hash, size_t number); /* where there is room */

/* The next number under a hash, SIZE_MAX after the last. *probe begins as 0. */
size_t mu_index_next(const mu_index *index, uint64_t hash, size_t *probe);
void mu_index_release(mu_index *index);

/* ---- versioned.c: structs of options that begin with struct_size ---- */

/* Fails, naming the type, unless `size` can be that of a version of a struct of which this
 * library knows `known` bytes. */
muonium_status mu_versioned_check(const char *type, size_t size, size_t known);

/* Fill the first `size` bytes, as many as the caller's version has, with the defaults. NULL
 * is allowed. */
void mu_versioned_init(void *options, size_t size, const void *defaults, size_t known);

/* Put what is given, unless that is NULL, over options that hold the defaults. */
muonium_status mu_versioned_read(const char *type, const void *given, void *options, size_t known);

/* A struct that holds another directly after its struct_size, and what this library knows of
 * both. Either may be shorter in the caller's version. */
typedef struct mu_nested {
    const char *type;   /* "muonium_options" */
    const char *member; /* ".plan" */
    size_t known, inner_known;
} mu_nested;

/* As above. `size` counts the inner struct, of `inner` bytes. */
muonium_status mu_nested_check(const mu_nested *nested, size_t size, size_t inner);
muonium_status mu_nested_read(const mu_nested *nested, const void *given, void *options);

/* Fill the caller's version, whose sizes have been checked, from ours. */
void mu_nested_write(const mu_nested *nested, void *options, size_t size, size_t inner,
                     const void *from);

/* ---- number.c: numbers as text that does not depend on the locale ---- */

enum { MU_NUMBER_BYTES = 32 };

/* The shortest of 15 to 17 digits that comes back equal. */
void mu_format_number(double value, char text[MU_NUMBER_BYTES]);

/* Read a whole text as a number; false if it is none. */
bool mu_parse_number(const char *text, size_t length, double *value);

/* ---- sized.c: structs of which the caller has `size` bytes and this library knows `known` ---- */

/* Copy what was filled to the caller's struct, and zero what the caller knows more. Both
 * structs start with struct_size, which is set to the number of bytes copied. */
void mu_sized_write(void *out, size_t size, const void *filled, size_t known);

/* Copy the caller's struct, and zero what the caller does not know. Fails, naming the type, if
 * a field that only the caller knows is not 0. */
muonium_status mu_sized_read(const char *type, const void *given, size_t size, void *read,
                             size_t known);

/* The elements of an array. */
#define MU_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- size: sums and products of sizes that report overflow ---- */

/* *out = a * b (a + b); false if it does not fit, and *out is then undefined. */
static inline bool mu_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool mu_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* The smallest multiple of `unit` that is >= n. For sizes known to be small. */
static inline size_t mu_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline size_t mu_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t mu_ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* ---- extent.c: where strided arrays lie ---- */

typedef struct mu_extent {
    uintptr_t from, to; /* addresses of bytes, [from, to) */
} mu_extent;

/* What an array of elements of `bytes` bytes covers, for extents of at least 1 and
 * strides in elements; false if that leaves the address space. */
bool mu_extent_of(const void *data, size_t bytes, size_t ndim, const size_t *shape,
                  const ptrdiff_t *strides, mu_extent *extent);

bool mu_extents_overlap(mu_extent a, mu_extent b);

/* Whether no two elements can share a place. Strides that interleave without meeting
 * count as sharing: no usual array has them. Within the address space, see above. */
bool mu_elements_distinct(size_t ndim, const size_t *shape, const ptrdiff_t *strides);

/* ---- interval.c: sets of extents ---- */

/* A member of a set. It must not move, nor its extent change, while it is in one. */
typedef struct mu_interval {
    mu_extent extent;
    void *owner;     /* the caller's */
    uintptr_t reach; /* the rest belongs to the set */
    struct mu_interval *left, *right;
} mu_interval;

/* *root is NULL for the empty set. An empty extent is never in it. */
void mu_interval_insert(mu_interval **root, mu_interval *node);
void mu_interval_remove(mu_interval **root, mu_interval *node); /* which is in it */

/* One that overlaps an extent; NULL if none does. */
mu_interval *mu_interval_find(mu_interval *root, mu_extent extent);

/* ---- memory.c: the allocator hook ---- */

#define MU_ALIGNMENT 64 /* of all memory that mu_alloc returns: a cache line, an AVX-512 vector */

void *mu_alloc(size_t bytes); /* NULL on failure, without a message; never for 0 bytes alone */
void *mu_alloc_zeroed(size_t bytes);
void mu_free(void *memory); /* NULL is allowed */

/* Have the system back memory that is about to be written for the first time, in one call
 * rather than page by page when it is touched. Advice: its content stays as it is. */
void mu_populate(void *memory, size_t bytes);

/* ---- pool.c: one thread pool per process ---- */

/* One of `count` independent pieces of work. `worker` tells concurrent calls
 * apart: it is below the number of workers of the run, and no two calls that run
 * at the same time share it, so it can index private scratch memory. */
typedef void mu_task(void *context, size_t index, unsigned worker);

/* Run task(context, 0..count-1) on at most `max_workers` threads, the caller's
 * included, and return when all are done. Pieces are handed out in order, one
 * by one. Within a task, or when the pool is busy with another caller,
 * everything runs in the calling thread as worker 0, so a run may be nested and
 * never deadlocks. Memory written before the call is visible to the pieces, and
 * what they write to the caller after it. A child that a task forks must not
 * return from that task. */
void mu_pool_run(mu_task *task, void *context, size_t count, unsigned max_workers);

/* The most workers that a run started now by this thread can have: 1 inside a task, the width of
 * its team inside a job, else the number of threads in force. The number may change at any time,
 * so pass as `max_workers` the value that scratch memory was sized by. */
unsigned mu_pool_workers(void);

/* ---- teams.c: jobs that teams of workers do at the same time ---- */

enum { MU_MAX_TEAMS = 128 };

/* `count` independent jobs, the longest first. job(context, index, team) runs in the leader of a
 * team. Up to `teams` jobs run at the same time. Each has a number `team` below that to itself,
 * which can index private scratch memory. Within a job, mu_pool_run divides a run among up to
 * `width` workers, including the leader, and mu_pool_workers returns `width`. Workers that no job
 * needs call filler(filler_context, 0..filler_count-1, 0). It must be independent of the jobs. */
typedef struct mu_jobs {
    mu_task *job;
    void *context;
    size_t count;
    unsigned teams; /* at most MU_MAX_TEAMS count */
    unsigned width;
    mu_task *filler;
    void *filler_context;
    size_t filler_count;
} mu_jobs;

/* Do all of them and return. Within a task or a job, or with one thread, everything runs in the
 * calling thread in order. */
void mu_pool_run_jobs(const mu_jobs *jobs);

/* ---- threads.c ---- */

/* Fails if the number of threads in force should come from MUONIUM_NUM_THREADS, and that is
 * none. */
muonium_status mu_pool_check(void);

/* ---- environment.c: the caller's floating-point environment ---- */

typedef struct mu_fenv {
#if defined(__x86_64__)
    unsigned saved; /* MXCSR in the low half, the x87 control word in the high one */
#else
    fenv_t saved;
#endif
} mu_fenv;

/* Round to nearest, denormals on, exceptions masked, until mu_fenv_leave. Every
 * public function that computes brackets its work in these; pool threads run
 * under the same settings. Exception flags raised in between are dropped. */
mu_fenv mu_fenv_enter(void);
void mu_fenv_leave(mu_fenv environment);

/* ---- cpu.c: what the processor can do ---- */

/* Whether the compiler knows AVX512-BF16. Products of f32 replace it, with the same results. */
#if defined(__x86_64__) && defined(__clang__)
#if __clang_major__ >= 9
#define MU_HAVE_AVX512_BF16
#endif
#elif defined(__x86_64__) && __GNUC__ >= 10
#define MU_HAVE_AVX512_BF16
#endif

/* Whether the compiler knows AVX-VNNI and AMX. */
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define MU_HAVE_AVX_VNNI
#define MU_HAVE_AMX
#endif

/* Whether the compiler knows the dot products of Armv8.2, and i8mm and BF16 of Armv8.6. */
#if defined(__aarch64__) && (defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 8)
#define MU_HAVE_NEON_DOTPROD
#endif
#if defined(__aarch64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 10)
#define MU_HAVE_NEON_I8MM
#endif

/* A set of CPU features. Every architecture has bits of its own. */
typedef unsigned mu_features;
#if defined(__aarch64__)
enum {
    MU_CPU_NEON = 1 << 0,
    MU_CPU_CRC32 = 1 << 1,
    MU_CPU_DOTPROD = 1 << 2,
    MU_CPU_I8MM = 1 << 3,
    MU_CPU_BF16 = 1 << 4
};
#else
enum {
    MU_CPU_SSE42 = 1 << 0,
    MU_CPU_AVX = 1 << 1,
    MU_CPU_F16C = 1 << 2,
    MU_CPU_FMA = 1 << 3,
    MU_CPU_AVX2 = 1 << 4,
    MU_CPU_AVX512F = 1 << 5,
    MU_CPU_AVX512DQ = 1 << 6,
    MU_CPU_AVX512BW = 1 << 7,
    MU_CPU_AVX512VL = 1 << 8,
    MU_CPU_AVX512_BF16 = 1 << 9,
    MU_CPU_AVX512_FP16 = 1 << 10,
    MU_CPU_AVX_VNNI = 1 << 11,
    MU_CPU_AVX512_VNNI = 1 << 12,
    MU_CPU_AMX_TILE = 1 << 13,
    MU_CPU_AMX_INT8 = 1 << 14,
    MU_CPU_AMX_BF16 = 1 << 15
};
#endif

/* MU_NEEDS_name: the features of an instruction set. */
#define INSTRUCTION_SET(name, features) enum { MU_NEEDS_##name = features };
#include "base/instruction_sets.def"
#undef INSTRUCTION_SET

static inline bool mu_includes(mu_features set, mu_features part)
{
    return (part & ~set) == 0;
}

typedef struct mu_instruction_set {
    const char *name;
    mu_features needs;
} mu_instruction_set;

/* Those that this build knows, from 0, the most general first; NULL past the last. */
const mu_instruction_set *mu_instruction_set_at(size_t index);

typedef struct mu_cpu {
    mu_features has;      /* what both CPU and operating system offer */
    const char *features; /* their names, separated by spaces */
    const char *refused;  /* what the system refuses, and why; "" if nothing */
    size_t l1_bytes;      /* data caches per core; usual values where unknown */
    size_t l2_bytes;
} mu_cpu;

const mu_cpu *mu_cpu_detect(void); /* cached; never fails */

/* Say why AMX cannot be used, for an error of mu_platform_lend_tiles; "" for 0. */
void mu_cpu_explain_refusal(int error, char *text, size_t size);

/* The value of MUONIUM_CPU as read once per process; NULL if unset or empty. */
const char *mu_cpu_override(void);

/* Choose the features that kernels may use: all that the CPU has, or those of the instruction set
 * that MUONIUM_CPU names. Fails, with a message, if that variable or MUONIUM_NUM_THREADS cannot be
 * obeyed. */
muonium_status mu_cpu_choose(void);

enum { MU_CPU_REASON_SIZE = 160 }; /* of the text that tells why kernels were chosen */

/* Once that has succeeded: these features, the most capable instruction set in use, and why. */
mu_features mu_cpu_usable(void);
const char *mu_cpu_isa(void);
const char *mu_cpu_reason(void);

#endif
