/*
 * interposed.c: what stands between the library and MPI or memory, to count what passes and to
 * let it fail.
 */
#include "cases.h"

#include <stdlib.h>

/* ---- bytes, counted where MPI is called ---- */

uint64_t gradient_bytes, update_bytes, sent_bytes;
bool small_only;

int MPI_Ialltoallv(const void *send, const int *send_counts, const int *send_at,
                   MPI_Datatype send_type, void *receive, const int *receive_counts,
                   const int *receive_at, MPI_Datatype receive_type, MPI_Comm comm,
                   MPI_Request *request)
{
    int sum = 0, size, me;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &me);
    for (int r = 0; r < size; r++) {
        gradient_bytes += r != me ? (uint64_t)send_counts[r] : 0;
        sum += receive_counts[r];
    }
    if (small_only && sum > 4096) {
        fprintf(stderr, "rank %d: %d bytes at once\n", rank, sum);
        failures++;
    }
    return PMPI_Ialltoallv(send, send_counts, send_at, send_type, receive, receive_counts,
                           receive_at, receive_type, comm, request);
}

int MPI_Iallgatherv(const void *send, int send_count, MPI_Datatype send_type, void *receive,
                    const int *receive_counts, const int *receive_at, MPI_Datatype receive_type,
                    MPI_Comm comm, MPI_Request *request)
{
    int size, me;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &me);
    for (int r = 0; r < size && send != MPI_IN_PLACE; r++) { /* in place: findings */
        update_bytes += r != me ? (uint64_t)receive_counts[r] : 0;
    }
    return PMPI_Iallgatherv(send, send_count, send_type, receive, receive_counts, receive_at,
                            receive_type, comm, request);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    sent_bytes += (uint64_t)count; /* of bytes, wherever it matters */
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* ---- memory, which can be counted and can fail ---- */

long fail_after = -1;
size_t allocated;

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)context;
    if (fail_after == 0) {
        return NULL; /* and from then on */
    }
    fail_after -= fail_after > 0;
    allocated += bytes;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

static void release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

const muonium_allocator counting_allocator = {allocate, release, NULL};
