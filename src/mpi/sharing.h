/*
 * sharing.h: our columns of a matrix that ranks share, and the way to the others.
 */
#ifndef MU_MPI_SHARING_H
#define MU_MPI_SHARING_H

#include "mpi/distributed.h"

#include "matmul/kernel.h"

struct mu_sharing {
    mu_across across;
    muonium_mpi *d;
    int before, after; /* ranks that have the columns before and after ours; -1 if none */
    MPI_Request *requests;
    char *memory; /* of the sum, while it travels */
};

/* Memory and functions for a share of `columns` columns of a rows x cols matrix, for products
 * of the kernel's type. The caller sets who comes before and after, and whether ours are the
 * first columns. In every case mu_sharing_free must follow. */
muonium_status mu_sharing_make(muonium_mpi *d, size_t rows, size_t cols, size_t columns,
                               size_t block, const mu_kernel *kernel, mu_sharing *sharing);
void mu_sharing_free(mu_sharing *sharing);

#endif
