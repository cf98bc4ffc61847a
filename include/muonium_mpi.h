/*
 * muonium_mpi.h: the optimizer spread over the ranks of an MPI job.
 *
 * Every rank holds all parameters and computes gradients from its share of the data. One
 * call then does what an all-reduce of the gradients and a step on every rank would do, with
 * half of the bytes and 1/P of the work and of the state: gradients travel to the one rank
 * that owns a piece and are summed there, the owner steps its pieces, and the new parameters
 * travel back.
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
 * The description stays the caller's: rates are changed there (muonium_set_lr), on all ranks
 * alike, and places of parameters and gradients (muonium_set_data, muonium_set_grad). Until
 * muonium_mpi_destroy it takes no parameter or group, and muonium_destroy does nothing to it.
 *
 * Rules, beside those of muonium.h:
 *
 * - Collective calls must be made by all ranks, in the same order; local ones by any. A call
 *   says which it is.
 * - Results are bit-identical on all ranks, and the same as those of one process that is
 *   given the summed gradients: sums are formed in f32 in the order of ranks.
 * - Waiting ends. Every wait has a deadline; a rank that was killed, stopped or is late gives
 *   all others MUONIUM_PEER, with its number, and from then on every call on the object fails
 *   at once. Parameters may then be partly of the new step: go back to a checkpoint. What MPI
 *   may still write to is not freed, and MPI_Finalize may wait for the dead, so leave by
 *   MPI_Abort or _exit. The launcher must let the others live: docs/distributed.md.
 * - All other errors are agreed, those of arguments that one rank has wrong too: all ranks
 *   return the same status, and nothing has changed.
 * - Callbacks (the lines of muonium_mpi_report, the description's log) can do nothing with the
 *   object that they are called for: calls fail, and muonium_mpi_destroy does nothing.
 * - One thread at a time; MPI_THREAD_FUNNELED is enough.
 */
#ifndef MUONIUM_MPI_H
#define MUONIUM_MPI_H

#include <mpi.h>

#include "muonium.h"
#include "muonium_mpi_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muonium_mpi muonium_mpi;

typedef struct muonium_mpi_options {
    size_t struct_size;  /* set by muonium_mpi_options_init */
    bool sum;            /* gradients are summed over ranks; false: averaged, the default */
    bool half_gradients; /* f32 gradients travel rounded to bf16; false. Sums are f32. */
    bool half_updates;   /* the changes of f32 parameters travel, and are applied by all,
                            rounded to bf16; false: the parameters themselves, exactly */
    double max_norm;     /* > 0: gradients are clipped to this norm of all together; 0: not */
    double deadline;     /* seconds, > 0: of every wait for others; 300 */
    size_t bucket_bytes; /* travelling at a time, 4 times; 2^23; more than all gradients
                            together is the same as these */
    size_t chunk_bytes;  /* the most that one MPI call is given, below 2^31; 2^30 */
    muonium_mpi_plan_options plan;
} muonium_mpi_options;

/* Local. Fill with the defaults above; `size` as in muonium_plan_options_init_sized. */
MUONIUM_API void muonium_mpi_options_init_sized(muonium_mpi_options *options, size_t size);
static inline void muonium_mpi_options_init(muonium_mpi_options *options)
{
    muonium_mpi_options_init_sized(options, sizeof *options);
}

/* Collective. Plan, and compare: ranks whose parameters or options differ all fail, with the
 * first difference named. NULL options mean the defaults. The communicator is duplicated. Ranks
 * that wait longer than the deadline for another fail with MUONIUM_PEER, as does that one when
 * it comes; to call out who is there they use the largest tag (MPI_TAG_UB) on the caller's
 * communicator, on which errors return during the call. A rank that passes MPI_COMM_NULL
 * cannot tell the others, which then miss it. */
MUONIUM_API muonium_status muonium_mpi_create(MPI_Comm comm, muonium_optimizer *description,
                                              const muonium_mpi_options *options,
                                              muonium_mpi **distributed);

/* Collective, but after MUONIUM_PEER local. NULL is allowed. */
MUONIUM_API void muonium_mpi_destroy(muonium_mpi *distributed);

/* Collective. One step with the gradients that the description points to. A parameter that
 * has a gradient on some ranks only is stepped with the sum of these (the average still
 * divides by the number of ranks); one without any is skipped, as are, or fail, gradients
 * whose sum is not finite, or would make the momentum overflow, by options.nonfinite. Ranks
 * whose rates differ by now (lr, weight decay, momentum of any group) all fail with
 * MUONIUM_INVALID and the name of the first. */
MUONIUM_API muonium_status muonium_mpi_step(muonium_mpi *distributed);

/* The same in parts, so that gradients travel while others are still being computed:
 *
 *     muonium_mpi_begin(dist);
 *     ... backward, and as soon as the gradient of parameter i is there:
 *         muonium_mpi_ready(dist, i);
 *     muonium_mpi_finish(dist);
 *
 * Ranks may announce in any order; it helps to announce in the reverse of the order in which
 * parameters were added. A gradient announced must stay as it is until the finish. What was
 * not announced is taken to be ready at the finish. All local but the finish, which is
 * collective. */
MUONIUM_API muonium_status muonium_mpi_begin(muonium_mpi *distributed);
MUONIUM_API muonium_status muonium_mpi_ready(muonium_mpi *distributed, size_t parameter);
MUONIUM_API muonium_status muonium_mpi_finish(muonium_mpi *distributed);

/* Local. Let what is travelling move on, without waiting; muonium_mpi_ready does the same.
 * To be called now and then during long computations. */
MUONIUM_API muonium_status muonium_mpi_progress(muonium_mpi *distributed);

/* Local. The norm of all gradients together in the last step, before clipping; 0 if
 * max_norm is 0. */
MUONIUM_API double muonium_mpi_grad_norm(const muonium_mpi *distributed);

/* Local. The plan, which lives as long as the object. */
MUONIUM_API const muonium_mpi_plan *muonium_mpi_plan_of(const muonium_mpi *distributed);

/* Local. Describe the plan in lines of text: the balance, what each rank owns, keeps and
 * sends, and the owner of every piece. */
MUONIUM_API muonium_status muonium_mpi_report(const muonium_mpi *distributed, muonium_log *line,
                                              void *context);

/* Collective. Counters of all ranks together; state_bytes and flops are those of all, scratch
 * bytes those of the rank that has the most. */
MUONIUM_API muonium_status muonium_mpi_count_sized(muonium_mpi *distributed,
                                                   muonium_counters *counters, size_t size);
static inline muonium_status muonium_mpi_count(muonium_mpi *distributed, muonium_counters *counters)
{
    return muonium_mpi_count_sized(distributed, counters, sizeof *counters);
}

/* Collective. Save the state to the same file, byte for byte, that one process would write;
 * rank 0 does, streaming from the owners. The path holds the old file or the new one, whole,
 * at every instant. */
MUONIUM_API muonium_status muonium_mpi_save(muonium_mpi *distributed, const char *path);

/* Collective. Load what any number of ranks, or one process, saved. Every rank must be able
 * to read the path, and reads what it owns, and its share of the rest to verify. */
MUONIUM_API muonium_status muonium_mpi_load(muonium_mpi *distributed, const char *path);

/* ---- tensor-parallel matrices ---- */

/* Orthogonalise a matrix that lives split by columns, rank after rank, without bringing it
 * together: only triangles of rows x rows travel, as often as the form takes a Gram matrix.
 * The matrix must be split along its longer side; one that is split by rows is passed with
 * row and column strides exchanged. Each rank may have another number of columns. The result
 * is that of muonium_plan_execute on the whole up to rounding; where every rank but the last
 * has a multiple of the same block, which is at most 1024 columns, it does not depend on the
 * number of ranks. Memory: a triangle per block of columns that a rank has. */
typedef struct muonium_mpi_columns muonium_mpi_columns;

/* Collective. `rows` must be the same on all ranks, `cols` are this rank's. NULL options mean
 * the defaults; a deadline of 0 means 300 seconds. */
MUONIUM_API muonium_status muonium_mpi_columns_create(MPI_Comm comm, size_t rows, size_t cols,
                                                      const muonium_plan_options *options,
                                                      double deadline,
                                                      muonium_mpi_columns **columns);

/* Collective. `in` and `out` are this rank's columns; they may be the same. Values of f64 are
 * rounded to f32. The certificate, if not NULL, is that of the whole matrix. */
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

/* Collective, but after MUONIUM_PEER local. NULL is allowed. */
MUONIUM_API void muonium_mpi_columns_destroy(muonium_mpi_columns *columns);

#ifdef __cplusplus
}
#endif

#endif
