/*
 * muonium_mpi_plan.h: who does what when an optimizer is spread over processes. Needs no
 * MPI: the same planner answers "what would 1024 ranks do?" on a laptop.
 *
 * The parameters of a description (muonium_create_description) are cut into pieces:
 *
 *   - a Muon parameter between its matrices, where these follow each other in memory:
 *     one piece per expert, one per block of rows; other layouts stay whole;
 *   - an AdamW parameter that is dense into slices of 2^18 elements;
 *   - where that shortens the step, a matrix that would take longer than the average
 *     rank's share of everything by columns (of the matrix as it is orthogonalised: with
 *     no more rows than columns).
 *
 * The first two depend on shapes alone, not on the number of ranks. Every piece gets one
 * owner: the most expensive first, each to the rank with the least to do so far, so that
 * cheap slices fill the gaps that matrices leave. A piece's cost is the time of its
 * orthogonalisation in the form that its plan chooses, and of the passes over its memory.
 *
 * All functions are local.
 */
#ifndef MUONIUM_MPI_PLAN_H
#define MUONIUM_MPI_PLAN_H

#include "muonium.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muonium_mpi_plan muonium_mpi_plan;

typedef struct muonium_mpi_plan_options {
    size_t struct_size; /* set by muonium_mpi_plan_options_init */
    double flops;       /* per second and rank; 2e11. Only its ratio to the next matters. */
    double bandwidth;   /* of memory, bytes per second and rank; 1e10 */
    bool split;         /* cut matrices by columns where that pays; true */
} muonium_mpi_plan_options;

/* Fill with the defaults above; `size` as in muonium_plan_options_init_sized. */
MUONIUM_API void muonium_mpi_plan_options_init_sized(muonium_mpi_plan_options *options,
                                                     size_t size);
static inline void muonium_mpi_plan_options_init(muonium_mpi_plan_options *options)
{
    muonium_mpi_plan_options_init_sized(options, sizeof *options);
}

/* Plan for a number of ranks, at least 1. NULL options mean the defaults. The plan keeps
 * no pointer to the description. */
MUONIUM_API muonium_status muonium_mpi_plan_create(const muonium_optimizer *description, int ranks,
                                                   const muonium_mpi_plan_options *options,
                                                   muonium_mpi_plan **plan);
MUONIUM_API void muonium_mpi_plan_destroy(muonium_mpi_plan *plan); /* NULL is allowed */

typedef struct muonium_mpi_plan_info {
    size_t struct_size; /* bytes that the library filled */
    int ranks;
    size_t pieces;
    size_t split;       /* matrices cut by columns */
    uint64_t elements;  /* of all parameters */
    double seconds;     /* of all pieces together */
    double largest;     /* seconds of the busiest rank */
    double mean;        /* of all ranks: largest / mean is 1 if balance is perfect */
    uint64_t triangles; /* as in muonium_mpi_share, of the rank that has the most */
    uint64_t hash;      /* of all of it: equal plans have equal hashes */
} muonium_mpi_plan_info;

MUONIUM_API muonium_status muonium_mpi_plan_describe_sized(const muonium_mpi_plan *plan,
                                                           muonium_mpi_plan_info *info,
                                                           size_t size);
static inline muonium_status muonium_mpi_plan_describe(const muonium_mpi_plan *plan,
                                                       muonium_mpi_plan_info *info)
{
    return muonium_mpi_plan_describe_sized(plan, info, sizeof *info);
}

/* What one rank has to do and to keep. */
typedef struct muonium_mpi_share {
    size_t struct_size; /* bytes that the library filled */
    size_t pieces;
    uint64_t elements;
    uint64_t state_bytes;
    double seconds;
    uint64_t triangles;      /* elements of triangles that it passes on per step */
    uint64_t gradient_bytes; /* that it sends per step, gradients of 4 bytes */
    uint64_t update_bytes;   /* that it receives, in the parameters' types */
} muonium_mpi_share;

MUONIUM_API muonium_status muonium_mpi_plan_share_sized(const muonium_mpi_plan *plan, int rank,
                                                        muonium_mpi_share *share, size_t size);
static inline muonium_status muonium_mpi_plan_share(const muonium_mpi_plan *plan, int rank,
                                                    muonium_mpi_share *share)
{
    return muonium_mpi_plan_share_sized(plan, rank, share, sizeof *share);
}

/* One piece: elements first + i * stride + j of its parameter in row-major order, for i
 * below `runs` and j below `run`; runs is 1 but for pieces of columns. */
typedef struct muonium_mpi_piece {
    size_t struct_size; /* bytes that the library filled */
    size_t parameter;
    bool muon;
    int owner;
    size_t first, run, runs, stride;
    double seconds;
} muonium_mpi_piece;

MUONIUM_API muonium_status muonium_mpi_plan_piece_sized(const muonium_mpi_plan *plan, size_t index,
                                                        muonium_mpi_piece *piece, size_t size);
static inline muonium_status muonium_mpi_plan_piece(const muonium_mpi_plan *plan, size_t index,
                                                    muonium_mpi_piece *piece)
{
    return muonium_mpi_plan_piece_sized(plan, index, piece, sizeof *piece);
}

#ifdef __cplusplus
}
#endif

#endif
