/*
 * distributed.h: what the parts of libmuonium_mpi know of each other.
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

enum { MU_WINDOWS = 4 }; /* rounds that travel at a time */

/* What travels to or from one owner in a step: its parts one after the other, each on a
 * multiple of 4 bytes. Gradients have a word before them that tells whether there is one. */
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

/* One round on its way. */
typedef struct mu_window {
    bool busy;
    size_t round;
    MPI_Request request;
    char *send, *receive;
    int *send_counts, *send_at, *receive_counts, *receive_at; /* one per rank */
} mu_window;

/* What the owner of a part found in the sum of its gradients; gathered by all. */
typedef struct mu_finding {
    uint64_t bad_at; /* the first element that is not finite */
    float bad_value;
    uint32_t flags; /* MU_PRESENT, MU_BAD, and if that is of the momentum MU_OVERFLOW */
} mu_finding;

/* What travels when ranks agree on a status. */
typedef struct mu_message {
    int32_t status;
    char text[508];
} mu_message;

enum { MU_PRESENT = 1, MU_BAD = 2, MU_OVERFLOW = 4 };

typedef struct mu_sharing mu_sharing; /* sharing.h */

struct muonium_mpi {
    MPI_Comm comm; /* our own copy of the caller's; MPI_COMM_NULL before there is one */
    int rank, ranks;
    /* While the object is being made: the caller's communicator, its error handler, the tag
     * on it by which we call out who is there, and where the copy appears. */
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
    uint8_t *present;             /* of each, for each rank: it has a gradient */
    float *before;                /* half_updates: our f32 parameters as they were */
    mu_sharing *sharings;         /* of those that are columns of a matrix */
    size_t sharing_count;
    uint64_t idle; /* parts that `own` was given without a gradient, so far */

    /* The step under way. */
    mu_streams gradients, updates;
    mu_window windows[MU_WINDOWS];
    size_t next_round, done_rounds;
    bool begun;
    bool *ready;        /* per parameter */
    size_t *pending;    /* per round of gradients: parts in it that are not ready */
    size_t *first_part; /* per parameter, and one more: its first part */
    size_t *grad_at;    /* per part: where its owner's stream of gradients has it */
    mu_finding *found;  /* in the order of owners: of each its opinion, then its parts */
    size_t *found_at;   /* where that of a part is */
    double *squares;    /* of the units of all parts, in the same order */
    size_t *squares_at; /* where those of a part begin */
    bool *active;       /* per parameter: it is stepped */
    double norm;
    uint64_t skipped; /* parameters that were, in all steps */

    /* What MPI reads and writes when ranks agree: part of the object, so that no rank can
     * lack the memory to be told. */
    int64_t given, least;
    mu_message agreed;
    uint64_t counts[2];

    bool held;        /* it is among the description's holders */
    const char *user; /* the call that is calling back; NULL: none */
    bool broken;
    char why[512];
};

/* ---- waiting.c ---- */

/* Wait for a request until the deadline, and forget it. `what` completes "while ...". */
muonium_status mu_wait(muonium_mpi *d, MPI_Request *request, const char *what);

/* Whether it is complete. */
muonium_status mu_test(muonium_mpi *d, MPI_Request *request, const char *what, bool *done);

/* MUONIUM_OK if an MPI call returned success. */
muonium_status mu_mpi_ok(muonium_mpi *d, int code, const char *what);

/* The same status on all ranks: that of the lowest that failed, with its message. */
muonium_status mu_agree(muonium_mpi *d, muonium_status status, const char *what);

/* `bytes` bytes from one rank to all. They must be part of the object, or memory that goes by
 * mu_release. */
muonium_status mu_broadcast(muonium_mpi *d, void *data, size_t bytes, int root, const char *what);

/* The smallest of what all ranks give. */
muonium_status mu_smallest(muonium_mpi *d, int64_t value, int64_t *least, const char *what);

/* Free memory that MPI was given, unless it may still write there. */
void mu_release(const muonium_mpi *d, void *memory);

/* MUONIUM_PEER if the object is of no use any more, MUONIUM_INVALID in a callback of it. */
muonium_status mu_usable(const muonium_mpi *d);

/* ---- create.c ---- */

/* Make our communicator of the caller's, which both are used until mu_settle, so that ranks
 * that have come further hear those that have not; and free ours. */
muonium_status mu_connect(muonium_mpi *d, MPI_Comm comm);
void mu_settle(muonium_mpi *d);
void mu_disconnect(muonium_mpi *d);

/* ---- compare.c ---- */

/* Fail on all ranks, naming the first difference, unless all have the same. */
muonium_status mu_compare_ranks(muonium_mpi *d);

/* A number for the options that can be changed since, of all groups. */
uint64_t mu_hash_rates(const muonium_mpi *d);

/* ---- stream.c ---- */

muonium_status mu_streams_make(const muonium_mpi *d, bool gradients, mu_streams *streams);
void mu_streams_free(mu_streams *streams);

size_t mu_stream_bytes(const mu_stream *stream);

/* The bytes of round `round` that concern owner `owner`: [from, to) of its stream. */
void mu_round_range(const mu_streams *streams, size_t round, int owner, size_t *from, size_t *to);

/* A run of elements of one part within a range of a stream. */
typedef struct mu_run {
    size_t part;         /* number in the plan */
    size_t index;        /* in the stream */
    bool starts;         /* its word is within the range */
    size_t word;         /* and lies so many bytes after the beginning of the range, */
    size_t bytes;        /* as does the first element */
    size_t first, count; /* elements of the part */
} mu_run;

/* The run at or after byte *from of a stream, before `to`; moves *from on. `origin` is where
 * the range began. */
bool mu_next_run(const muonium_mpi *d, const mu_streams *streams, int owner, size_t origin,
                 size_t *from, size_t to, mu_run *run);

/* The type in which a part's elements travel. */
muonium_dtype mu_wire_type(const muonium_mpi *d, size_t part, bool gradients);

/* Elements of a part to, or from, consecutive ones of a type: of its gradient, or of the
 * parameter. */
void mu_pack_gradient(const muonium_mpi *d, const mu_run *run, muonium_dtype type, void *to);
void mu_pack_data(const muonium_mpi *d, const mu_run *run, muonium_dtype type, void *to);
void mu_unpack_data(const muonium_mpi *d, const mu_run *run, muonium_dtype type, const void *from);

/* data += change, for f32 parameters; `before`, if not NULL, is what they were. */
void mu_add_change(const muonium_mpi *d, const mu_run *run, const uint16_t *change,
                   const float *before);

/* ---- gradients.c ---- */

/* Start what is ready, take what has come; `all`: until everything has. */
muonium_status mu_move_gradients(muonium_mpi *d, bool all);

/* ---- across.c ---- */

/* Tell those of our parts that are columns of a matrix how to reach the others. */
muonium_status mu_share_columns(muonium_mpi *d);
void mu_unshare_columns(muonium_mpi *d);

/* ---- verdict.c ---- */

/* Look at the sums, agree with all ranks on what is stepped, clip. */
muonium_status mu_reach_verdict(muonium_mpi *d);

/* ---- updates.c ---- */

muonium_status mu_return_updates(muonium_mpi *d);

#endif
