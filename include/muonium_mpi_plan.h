/*
 * muonium_mpi_plan.h: the distribution of an optimizer over processes.
 *
 * It needs no MPI. The same planner answers "what would 1024 ranks do?" on a laptop.
 *
 * The planner cuts the parameters of a description (muonium_create_description) into pieces:
 *
 *   - A Muon parameter is cut between its matrices, if these follow each other in memory: one piece
 *     per expert, one piece per block of rows. Parameters of other layouts stay whole.
 *   - A dense AdamW parameter is cut into slices of 2^18 elements.
 *   - A matrix is cut by columns if it would take longer than the average share of a rank and if
 *     the cut shortens the step. The columns are those of the matrix in the orientation in which it
 *     is orthogonalised, with no more rows than columns.
 *
 * The first two cuts depend on shapes alone, not on the number of ranks. Every piece gets one
 * owner. The planner assigns the most expensive piece first. Each piece goes to the rank with the
 * least work so far, so that cheap slices fill the gaps that matrices leave. The cost of a piece
 * is the time of its orthogonalisation, in the form that its plan chooses, and of the passes over
 * its memory.
 *
 * All functions are local.
 */
#ifndef MUONIUM_MPI_PLAN_H
#define MUONIUM_MPI_PLAN_H

#include "muonium.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan for the distribution of an optimizer. */
typedef struct muonium_mpi_plan muonium_mpi_plan;

/* The options of a plan. */
typedef struct muonium_mpi_plan_options {
    size_t struct_size; /* set by muonium_mpi_plan_options_init */
    double flops;       /* operations per second and rank; default 2e11. Only the ratio of flops to
                           bandwidth matters. */
    double bandwidth;   /* bytes of memory traffic per second and rank; default 1e10 */
    bool split;         /* cut matrices by columns if this shortens the step; default true */
} muonium_mpi_plan_options;

/* Fill the options with the defaults above. `size` is the size of the caller's struct. */
MUONIUM_API void muonium_mpi_plan_options_init_sized(muonium_mpi_plan_options *options,
                                                     size_t size);
static inline void muonium_mpi_plan_options_init(muonium_mpi_plan_options *options)
{
    muonium_mpi_plan_options_init_sized(options, sizeof *options);
}

/* Make a plan. `ranks` is the number of ranks, at least 1. If `options` is NULL, the call uses the
 * defaults. *plan gets the plan. The plan keeps no pointer to the description. */
MUONIUM_API muonium_status muonium_mpi_plan_create(const muonium_optimizer *description, int ranks,
                                                   const muonium_mpi_plan_options *options,
                                                   muonium_mpi_plan **plan);
MUONIUM_API void muonium_mpi_plan_destroy(muonium_mpi_plan *plan); /* NULL is allowed */

/* The description of a plan. */
typedef struct muonium_mpi_plan_info {
    size_t struct_size; /* bytes that the library filled */
    int ranks;          /* the number of ranks */
    size_t pieces;      /* the number of pieces */
    size_t split;       /* the number of matrices that are cut by columns */
    uint64_t elements;  /* the number of elements of all parameters */
    double seconds;     /* the sum of the times of all pieces */
    double largest;     /* the time of the busiest rank, in seconds */
    double mean;        /* the mean time of a rank; largest / mean is 1 if balance is perfect */
    uint64_t triangles; /* the largest `triangles` of a muonium_mpi_share */
    uint64_t hash;      /* a hash of the whole plan; equal plans have equal hashes */
} muonium_mpi_plan_info;

/* Describe a plan. `info` gets the description. */
MUONIUM_API muonium_status muonium_mpi_plan_describe_sized(const muonium_mpi_plan *plan,
                                                           muonium_mpi_plan_info *info,
                                                           size_t size);
static inline muonium_status muonium_mpi_plan_describe(const muonium_mpi_plan *plan,
                                                       muonium_mpi_plan_info *info)
{
    return muonium_mpi_plan_describe_sized(plan, info, sizeof *info);
}

/* The work and the memory of one rank. */
typedef struct muonium_mpi_share {
    size_t struct_size;      /* bytes that the library filled */
    size_t pieces;           /* the number of pieces that the rank owns */
    uint64_t elements;       /* the number of elements of these pieces */
    uint64_t state_bytes;    /* bytes of state of these pieces */
    double seconds;          /* the sum of the times of these pieces */
    uint64_t triangles;      /* elements of triangles that the rank sends on per step */
    uint64_t gradient_bytes; /* bytes of gradients that the rank sends per step, 4 bytes each */
    uint64_t update_bytes;   /* bytes that it receives per step, in the types of the parameters */
} muonium_mpi_share;

/* Describe the share of one rank. `rank` counts from 0. `share` gets the description. */
MUONIUM_API muonium_status muonium_mpi_plan_share_sized(const muonium_mpi_plan *plan, int rank,
                                                        muonium_mpi_share *share, size_t size);
static inline muonium_status muonium_mpi_plan_share(const muonium_mpi_plan *plan, int rank,
                                                    muonium_mpi_share *share)
{
    return muonium_mpi_plan_share_sized(plan, rank, share, sizeof *share);
}

/* One piece of a parameter. It consists of the elements first + i * stride + j of the parameter in
 * row-major order, for i below `runs` and j below `run`. `runs` is 1, except for pieces of
 * columns. */
typedef struct muonium_mpi_piece {
    size_t struct_size;              /* bytes that the library filled */
    size_t parameter;                /* the number of the parameter */
    bool muon;                       /* true for Muon, false for AdamW */
    int owner;                       /* the rank that owns the piece */
    size_t first, run, runs, stride; /* the elements of the piece, see above */
    double seconds;                  /* the time of the piece */
} muonium_mpi_piece;

/* Describe one piece. `index` counts from 0. `piece` gets the description. */
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
