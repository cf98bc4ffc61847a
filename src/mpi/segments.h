/*
 * segments.h: which rank has which elements of the state of a parameter.
 */
#ifndef MU_MPI_SEGMENTS_H
#define MU_MPI_SEGMENTS_H

#include "mpi/distributed.h"

#include "checkpoint/state.h"

/* Elements that are consecutive both in the array of a parameter and in that of a part. */
typedef struct mu_segment {
    size_t part;
    size_t offset; /* in the part's own array */
    size_t count;
} mu_segment;

/* The segment that begins with element `index` of an array of parameter `parameter`. */
mu_segment mu_segment_at(const muonium_mpi *d, size_t parameter, mu_state_kind kind, size_t index);

/* The rows of a part: the first, counted over all matrices of the parameter, and their number. The
 * parameter was cut. */
void mu_rows_of_part(const muonium_mpi *d, size_t part, size_t *first, size_t *count);

/* The state arrays of one of our parts. */
size_t mu_own_arrays(const muonium_mpi *d, size_t part, mu_state_array arrays[MU_STATE_KINDS]);

#endif
