/*
 * muonium_mpi.h: the optimizer distributed over the ranks of an MPI job.
 *
 * Every rank holds all parameters and computes gradients from its share of the data. One call then
 * has the effect of an all-reduce of the gradients and a step on every rank. It takes half of the
 * bytes and 1/P of the work and of the state. Every piece of a parameter has one owner rank. All
 * ranks send their gradients of the piece to the owner, which sums them. The owner steps its
 * pieces and sends the new parameters back.
 *
 *     muonium_create_description(&options, &opt);      in place of muonium_create
 *     muonium_add(opt, &tensor, NULL);                 every parameter, on every rank
 *     muonium_mpi_create(MPI_COMM_WORLD, opt, NULL, &dist);
 *     for (;;) {
 *         ... backward fills gradients ...
 *         muonium_mpi_step(dist);
 *     }
 *     muonium_mpi_destroy(dist);
 *     muonium_destroy(opt);
 *
 * The caller keeps the description. It changes rates there (muonium_set_lr), equally on all ranks.
 * It also changes the addresses of parameters and gradients there (muonium_set_data,
 * muonium_set_grad). Until muonium_mpi_destroy, the description accepts no parameter and no group,
 * and muonium_destroy does nothing to it.
 *
 * Rules, in addition to those of muonium.h:
 *
 * - Collective calls must be made by all ranks, in the same order. Local calls can be made by any
 *   rank. The comment of each call says which kind it is.
 * - Results are bit-identical on all ranks. They are those of one process that is given the summed
 *   gradients. Sums are formed in f32, in the order of ranks.
 * - Every wait has a deadline. If a rank was killed, was stopped or is late, all other ranks get
 *   MUONIUM_PEER and the number of that rank. From then on every call on the object fails at once.
 *   Some parameters may then already have the values of the new step: go back to a checkpoint. The
 *   library does not free memory that MPI may still write to. MPI_Finalize may wait for the dead
 *   rank, so leave by MPI_Abort or _exit. The launcher must let the other ranks live:
 *   docs/distributed.md.
 * - The ranks agree on all other errors, even if only one rank has a wrong argument. All ranks
 *   return the same status, and nothing has changed.
 * - Callbacks (the lines of muonium_mpi_report, the log of the description) cannot use the object
 *   of the current call. Calls on it fail, and muonium_mpi_destroy does nothing.
 * - Only one thread at a time may use an object. MPI_THREAD_FUNNELED is enough.
 */
#ifndef MUONIUM_MPI_H
#define MUONIUM_MPI_H

#include <mpi.h>

#include "muonium.h"
#include "muonium_mpi_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A distributed optimizer. */
typedef struct muonium_mpi muonium_mpi;

/* The options of a distributed optimizer. */
typedef struct muonium_mpi_options {
    size_t struct_size;            /* set by muonium_mpi_options_init */
    muonium_mpi_plan_options plan; /* the plan. It begins with its own size, so that it can grow. */
    bool sum;            /* sum the gradients over the ranks; default false: average them */
    bool half_gradients; /* send f32 gradients rounded to bf16; default false. Sums are f32. */
    bool half_updates;   /* send the changes of f32 parameters, rounded to bf16. All ranks apply the
                            rounded changes. Default false: send the parameters exactly. */
    double max_norm;     /* above 0: clip the gradients to this norm of all gradients together;
                            default 0: do not clip */
    double deadline; /* the limit in seconds of every wait for other ranks, above 0; default 300 */
    size_t bucket_bytes; /* bytes in one bucket; four buckets are in transfer at a time; default
                            2^23. A value above the size of all gradients together acts as that
                            size. */
    size_t chunk_bytes;  /* the most bytes that one MPI call gets, below 2^31; default 2^30 */
} muonium_mpi_options;

/* Fill the options with the defaults above. Local. The call fails if the library cannot know a
 * struct of that size, or if libmuonium is of another version.
 *
 * `size` and `plan_size` are the sizes of muonium_mpi_options and of the muonium_mpi_plan_options
 * in it, in the caller's version. The library finds the fields after the plan by the caller's
 * plan_size, so that both structs can grow at their end. */
MUONIUM_API muonium_status muonium_mpi_options_init_sized(muonium_mpi_options *options, size_t size,
                                                          size_t plan_size);
static inline muonium_status muonium_mpi_options_init(muonium_mpi_options *options)
{
    return muonium_mpi_options_init_sized(options, sizeof *options, sizeof options->plan);
}

/* Make a distributed optimizer from a description. Collective. The call makes a plan and compares
 * the ranks. If the parameters or options of ranks differ, all ranks fail with a message that
 * names the first difference. If `options` is NULL, the call uses the defaults. *distributed gets
 * the object. The call duplicates the communicator `comm`. If ranks wait longer than the deadline
 * for another rank, they fail with MUONIUM_PEER. The late rank fails with MUONIUM_PEER too when it
 * comes. To find out which ranks are present, the ranks use the largest tag (MPI_TAG_UB) on the
 * caller's communicator. During the call, MPI errors on that communicator are returned, not fatal.
 * A rank that passes MPI_COMM_NULL cannot tell the other ranks, which then report it as
 * missing. */
MUONIUM_API muonium_status muonium_mpi_create(MPI_Comm comm, muonium_optimizer *description,
                                              const muonium_mpi_options *options,
                                              muonium_mpi **distributed);

/* Destroy a distributed optimizer. Collective; local after MUONIUM_PEER. NULL is allowed. */
MUONIUM_API void muonium_mpi_destroy(muonium_mpi *distributed);

/* Take one step with the gradients that the description points to. Collective. If only some ranks
 * have a gradient for a parameter, the step uses the sum of these gradients; an average still
 * divides by the number of all ranks. A parameter without any gradient is skipped.
 * options.plan.nonfinite decides if the step skips or fails when a sum of gradients is not finite
 * or would make the momentum overflow. If the rates of the ranks differ (lr, weight decay or
 * momentum of any group), all ranks fail with MUONIUM_INVALID and a message that names the first
 * difference. */
MUONIUM_API muonium_status muonium_mpi_step(muonium_mpi *distributed);

/* Take one step in parts, so that gradients are sent while others are still being computed:
 *
 *     muonium_mpi_begin(dist);
 *     ... backward, and as soon as the gradient of parameter i is there:
 *         muonium_mpi_ready(dist, i);
 *     muonium_mpi_finish(dist);
 *
 * muonium_mpi_begin and muonium_mpi_ready are local. muonium_mpi_finish is collective. Ranks may
 * announce their gradients in any order. The best order is the reverse of the order in which
 * parameters were added. An announced gradient must not change until the finish. A gradient that
 * was not announced is taken to be ready at the finish. */
MUONIUM_API muonium_status muonium_mpi_begin(muonium_mpi *distributed);
MUONIUM_API muonium_status muonium_mpi_ready(muonium_mpi *distributed, size_t parameter);
MUONIUM_API muonium_status muonium_mpi_finish(muonium_mpi *distributed);

/* Advance the current transfers without waiting. Local. muonium_mpi_ready does the same. Call this
 * now and then during long computations. */
MUONIUM_API muonium_status muonium_mpi_progress(muonium_mpi *distributed);

/* The norm of all gradients together in the last step, before clipping. Local. The norm is 0 if
 * max_norm is 0. */
MUONIUM_API double muonium_mpi_grad_norm(const muonium_mpi *distributed);

/* The plan of a distributed optimizer. Local. The plan lives as long as the object. */
MUONIUM_API const muonium_mpi_plan *muonium_mpi_plan_of(const muonium_mpi *distributed);

/* Describe the plan in lines of text. Local. The call passes `context` and one line at a time to
 * `line`. The lines give the balance, the pieces, the state and the traffic of each rank, and the
 * owner of every piece. */
MUONIUM_API muonium_status muonium_mpi_report(const muonium_mpi *distributed, muonium_log *line,
                                              void *context);

/* Get the counters of all ranks together. Collective. state_bytes and flops are the sums over all
 * ranks. scratch_bytes is that of the rank that has the most. */
MUONIUM_API muonium_status muonium_mpi_count_sized(muonium_mpi *distributed,
                                                   muonium_counters *counters, size_t size);
static inline muonium_status muonium_mpi_count(muonium_mpi *distributed, muonium_counters *counters)
{
    return muonium_mpi_count_sized(distributed, counters, sizeof *counters);
}

/* Save the state to a path. Collective. The file is byte for byte the file that one process would
 * write. Rank 0 writes it and streams the state from the owners. At every instant the path holds
 * the whole old file or the whole new file. */
MUONIUM_API muonium_status muonium_mpi_save(muonium_mpi *distributed, const char *path);

/* Load a state that any number of ranks, or one process, saved. Collective. Every rank must be
 * able to read the path. It reads the state that it owns. To verify the file, it also reads its
 * share of the rest. */
MUONIUM_API muonium_status muonium_mpi_load(muonium_mpi *distributed, const char *path);

/* ---- tensor-parallel matrices ---- */

/* A matrix that is split by columns over the ranks, rank after rank. Such a matrix can be
 * orthogonalised without gathering it. The ranks exchange only triangles of rows x rows elements,
 * one exchange for each Gram matrix of the form. The matrix must be split along its longer side.
 * Pass a matrix that is split by rows with row and column strides exchanged. The numbers of
 * columns of the ranks may differ. Up to rounding, the result is that of muonium_plan_execute on
 * the whole matrix. The result does not depend on the number of ranks if every rank but the last
 * has a multiple of the same block of columns; that block has at most 1024 columns. The memory is
 * one triangle per block of columns that a rank has. */
typedef struct muonium_mpi_columns muonium_mpi_columns;

/* Prepare the orthogonalisation of a split matrix. Collective.
 *   rows      is the number of rows. It must be the same on all ranks.
 *   cols      is the number of columns of this rank.
 *   options   are the options of the orthogonalisation. NULL means the defaults.
 *   deadline  is the limit of every wait in seconds. 0 means 300 seconds.
 *   columns   gets the object. */
MUONIUM_API muonium_status muonium_mpi_columns_create(MPI_Comm comm, size_t rows, size_t cols,
                                                      const muonium_plan_options *options,
                                                      double deadline,
                                                      muonium_mpi_columns **columns);

/* Orthogonalise a split matrix. Collective. `in` and `out` describe the columns of this rank. They
 * may be the same. f64 values are rounded to f32. `certificate` gets the certificate of the whole
 * matrix; it may be NULL. */
MUONIUM_API muonium_status muonium_mpi_columns_execute_sized(muonium_mpi_columns *columns,
                                                             const muonium_view *in,
                                                             const muonium_view *out,
                                                             muonium_certificate *certificate,
                                                             size_t size);
static inline muonium_status muonium_mpi_columns_execute(muonium_mpi_columns *columns,
                                                         const muonium_view *in,
                                                         const muonium_view *out,
                                                         muonium_certificate *certificate)
{
    return muonium_mpi_columns_execute_sized(columns, in, out, certificate, sizeof *certificate);
}

/* Destroy the object. Collective; local after MUONIUM_PEER. NULL is allowed. */
MUONIUM_API void muonium_mpi_columns_destroy(muonium_mpi_columns *columns);

#ifdef __cplusplus
}
#endif

#endif
