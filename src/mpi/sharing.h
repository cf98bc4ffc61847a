/*
 * sharing.h: our columns of a matrix that several ranks share, and the other ranks.
 */
#ifndef MU_MPI_SHARING_H
#define MU_MPI_SHARING_H

#include "mpi/distributed.h"

#include "matmul/kernel.h"

struct mu_sharing {
    mu_across across;
    muonium_mpi *d;
    int before, after; /* ranks with the columns before and after ours, or -1 */
    MPI_Request *requests;
    char *memory; /* the partial sum */
};

/* Allocate the sharing of a rows x cols matrix of which this rank has `columns` columns, with
 * Gram matrices of the kernel's type. The caller sets `before`, `after` and across.first.
 * mu_sharing_free must always follow. */
muonium_status mu_sharing_make(muonium_mpi *d, size_t rows, size_t cols, size_t columns,
                               size_t block, const mu_kernel *kernel, mu_sharing *sharing);
void mu_sharing_free(mu_sharing *sharing);

#endif
