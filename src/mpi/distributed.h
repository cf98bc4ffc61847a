/*
 * distributed.h: the distributed optimizer, and the functions that its files share.
 *
 *     create.c     create and destroy; which parts this rank owns
 *     compare.c    checks that all ranks have the same model and options
 *     waiting.c    waits with a deadline, agreement on a status, names of missing ranks
 *     stream.c     the order in which pieces travel, packing and unpacking
 *     gradients.c  sends gradients to their owners and sums them
 *     verdict.c    norm, clipping and non-finite values, agreed by all ranks
 *     updates.c    sends updated parameters back from their owners
 *     across.c     sums over the columns of a matrix that several ranks share
 *     columns.c    muonium_mpi_columns, the orthogonalisation of such a matrix alone
 *     step.c       the step
 *     segments.c   where the elements of a state array lie among ranks
 *     saving.c, loading.c  one checkpoint for all ranks
 */
#ifndef MU_MPI_DISTRIBUTED_H
#define MU_MPI_DISTRIBUTED_H

#include "mpi/plan.h"
#include "muonium_mpi.h"

enum { MU_WINDOWS = 4 }; /* rounds in flight */

/* The bytes that travel to or from one owner in a step: its parts one after the other, each
 * aligned to 4 bytes. A word before each gradient tells whether there is one. */
typedef struct mu_stream {
    size_t *parts; /* their numbers in the plan */
    size_t *at;    /* first byte of each, and the end of the last */
    size_t count;
} mu_stream;

/* Streams of all owners, cut into rounds of `slab` bytes of each. */
typedef struct mu_streams {
    mu_stream *of; /* one per rank */
    bool gradients;
    size_t slab;
    size_t rounds;
    size_t *memory;
} mu_streams;

/* One round in flight. */
typedef struct mu_window {
    bool busy;
    size_t round;
    MPI_Request request;
    char *send, *receive;
    int *send_counts, *send_at, *receive_counts, *receive_at; /* one per rank */
} mu_window;

/* What the owner of a part found in the sum of its gradients. All ranks gather it. */
typedef struct mu_finding {
    uint64_t bad_at; /* the first element that is not finite */
    float bad_value;
    uint32_t flags; /* MU_PRESENT, MU_BAD; MU_OVERFLOW if the momentum would be bad */
} mu_finding;

/* A status and its message, sent when ranks agree. */
typedef struct mu_message {
    int32_t status;
    char text[508];
} mu_message;

enum { MU_PRESENT = 1, MU_BAD = 2, MU_OVERFLOW = 4 };

typedef struct mu_sharing mu_sharing; /* sharing.h */

struct muonium_mpi {
    MPI_Comm comm; /* our own copy of the caller's; MPI_COMM_NULL before there is one */
    int rank, ranks;
    /* While the object is being created: the caller's communicator, its error handler, the tag
     * of the roll call on it, and the copy that is being made. */
    MPI_Comm caller, copy;
    MPI_Errhandler callers_handler;
    int caller_tag;
    muonium_mpi_options options;
    muonium_optimizer *description; /* the caller's */
    muonium_mpi_plan *plan;
    const mu_rows *rows;

    /* Our parts: parameter i of `own` is part own_parts[i] of the plan. */
    muonium_optimizer *own; /* NULL if we have none */
    muonium_group **own_groups;
    size_t *own_parts;
    size_t own_count;
    float **sums; /* of the gradients of each */
    float *sum_memory;
    void **own_data, **own_grads; /* for muonium_step_at */
    uint8_t *present;             /* per part and rank: the rank has a gradient */
    float *before;                /* half_updates: our f32 parameters before the step */
    mu_sharing *sharings;         /* of parts that are columns of a matrix */
    size_t sharing_count;
    uint64_t idle; /* parts without a gradient in all steps so far: `own` counts them as skipped */

    /* The step under way. */
    mu_streams gradients, updates;
    mu_window windows[MU_WINDOWS];
    size_t next_round, done_rounds;
    bool begun;
    bool *ready;        /* per parameter */
    size_t *pending;    /* per round of gradients: parts in it that are not ready */
    size_t *first_part; /* per parameter, and one more: its first part */
    size_t *grad_at;    /* per part: its offset in its owner's stream of gradients */
    mu_finding *found;  /* per rank: a hash of its rates in bad_at, then its parts */
    size_t *found_at;   /* per part: its index in found */
    double *squares;    /* sums of squares of the units of all parts, in the same order */
    size_t *squares_at; /* per part: its first index in squares */
    bool *active;       /* per parameter: this step changes it */
    double norm;
    uint64_t skipped; /* parameters that were skipped, in all steps */

    /* Memory that MPI reads and writes when ranks agree. It is part of the object, so that an
     * agreement needs no allocation. */
    int64_t given, least;
    mu_message agreed;
    uint64_t counts[2];

    bool held;        /* it is among the description's holders */
    const char *user; /* the call whose callback is running, or NULL */
    bool broken;
    char why[512];
};

/* ---- waiting.c ---- */

/* Wait for a request until the deadline; the request is released. `what` completes "while ...". */
muonium_status mu_wait(muonium_mpi *d, MPI_Request *request, const char *what);

/* Whether a request is complete, without waiting. */
muonium_status mu_test(muonium_mpi *d, MPI_Request *request, const char *what, bool *done);

/* MUONIUM_OK if an MPI call returned success. */
muonium_status mu_mpi_ok(muonium_mpi *d, int code, const char *what);

/* Agree on a status: that of the lowest rank that failed, with its message, on all ranks. */
muonium_status mu_agree(muonium_mpi *d, muonium_status status, const char *what);

/* Broadcast bytes from one rank. The memory must be part of the object, or be freed with
 * mu_release. */
muonium_status mu_broadcast(muonium_mpi *d, void *data, size_t bytes, int root, const char *what);

/* The smallest value of all ranks. */
muonium_status mu_smallest(muonium_mpi *d, int64_t value, int64_t *least, const char *what);

/* Free memory that MPI was given, unless MPI may still write to it. */
void mu_release(const muonium_mpi *d, void *memory);

/* Fail with MUONIUM_PEER if the object is broken, with MUONIUM_INVALID in one of its callbacks. */
muonium_status mu_usable(const muonium_mpi *d);

/* ---- create.c ---- */

/* Make our communicator from the caller's. Both are used until mu_settle, so that ranks that are
 * ahead hear those that are not. mu_disconnect frees ours. */
muonium_status mu_connect(muonium_mpi *d, MPI_Comm comm);
void mu_settle(muonium_mpi *d);
void mu_disconnect(muonium_mpi *d);

/* ---- compare.c ---- */

/* Fail on all ranks, naming the first difference, unless all have the same configuration. */
muonium_status mu_compare_ranks(muonium_mpi *d);

/* A hash of the options that can change after creation, of all groups. */
uint64_t mu_hash_rates(const muonium_mpi *d);

/* ---- stream.c ---- */

muonium_status mu_streams_make(const muonium_mpi *d, bool gradients, mu_streams *streams);
void mu_streams_free(mu_streams *streams);

size_t mu_stream_bytes(const mu_stream *stream);

/* The bytes of a round in the stream of an owner: [from, to). */
void mu_round_range(const mu_streams *streams, size_t round, int owner, size_t *from, size_t *to);

/* A run of elements of one part within a range of a stream. */
typedef struct mu_span {
    size_t part;         /* number in the plan */
    size_t index;        /* in the stream */
    bool starts;         /* the word before the gradient is in the range */
    size_t word;         /* offset of the word from the start of the range, in bytes */
    size_t bytes;        /* offset of the first element */
    size_t first, count; /* elements of the part */
} mu_span;

/* The first run at or after byte *from of a stream and before `to`; *from becomes its end.
 * `origin` is the start of the range. */
bool mu_next_span(const muonium_mpi *d, const mu_streams *streams, int owner, size_t origin,
                  size_t *from, size_t to, mu_span *run);

/* The type in which a part's elements travel. */
muonium_dtype mu_wire_type(const muonium_mpi *d, size_t part, bool gradients);

/* Convert elements of a part, of its gradient or its data, to or from consecutive elements of a
 * type. */
void mu_pack_gradient(const muonium_mpi *d, const mu_span *run, muonium_dtype type, void *to);
void mu_pack_data(const muonium_mpi *d, const mu_span *run, muonium_dtype type, void *to);
void mu_unpack_data(const muonium_mpi *d, const mu_span *run, muonium_dtype type, const void *from);

/* data += change, for f32 parameters; with `before`, data = before + change. */
void mu_add_change(const muonium_mpi *d, const mu_span *run, const uint16_t *change,
                   const float *before);

/* ---- gradients.c ---- */

/* Start the rounds that are ready and receive those that are complete; `all`: wait for all. */
muonium_status mu_move_gradients(muonium_mpi *d, bool all);

/* ---- across.c ---- */

/* Set up the sums over columns of those of our parts that share a matrix with other ranks. */
muonium_status mu_share_columns(muonium_mpi *d);
void mu_unshare_columns(muonium_mpi *d);

/* ---- verdict.c ---- */

/* Examine the sums, agree with all ranks on which parameters are stepped, clip. */
muonium_status mu_reach_verdict(muonium_mpi *d);

/* ---- updates.c ---- */

muonium_status mu_return_updates(muonium_mpi *d);

#endif
