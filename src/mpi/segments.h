/*
 * segments.h: where the elements of a parameter's state lie among ranks.
 */
#ifndef MU_MPI_SEGMENTS_H
#define MU_MPI_SEGMENTS_H

#include "mpi/distributed.h"

#include "checkpoint/state.h"

/* Consecutive elements of an array of a parameter that one part has, consecutive there too. */
typedef struct mu_segment {
    size_t part;
    size_t offset; /* in the part's own array */
    size_t count;
} mu_segment;

/* The segment that begins with element `index` of an array of parameter `parameter`. */
mu_segment mu_segment_at(const muonium_mpi *d, size_t parameter, mu_state_kind kind, size_t index);

/* The rows of a matrix, of those that NorMuon counts, that a part has: the first, and how
 * many. */
void mu_rows_of_part(const muonium_mpi *d, size_t part, size_t *first, size_t *count);

/* The arrays of one of our parts, of `own`. */
size_t mu_own_arrays(const muonium_mpi *d, size_t part, mu_state_array arrays[MU_STATE_KINDS]);

#endif
