/*
 * private.h: what libmuonium_mpi uses of libmuonium beyond the public interface. Both share one
 * pool, one allocator and one error message per thread, so the functions are not compiled into
 * libmuonium_mpi again. libmuonium.so exports a single function for this, which returns a
 * table of the others. The static libraries need no table: they are linked by name.
 */
#ifndef MUONIUM_PRIVATE_H
#define MUONIUM_PRIVATE_H

#include "base/base.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/incoming.h"
#include "checkpoint/state.h"
#include "checkpoint/text.h"
#include "matmul/kernel.h"
#include "matmul/matmul.h"
#include "optimizer/blocks.h"
#include "optimizer/optimizer.h"
#include "optimizer/schedule.h"
#include "optimizer/state_arrays.h"
#include "orthogonalize/across.h"
#include "orthogonalize/plan.h"
#include "orthogonalize/survey.h"
#include "vector/rows.h"

typedef struct mu_private {
#define MU_PRIVATE(name) __typeof__(name) *name;
#include "private/private.def"
#undef MU_PRIVATE
} mu_private;

/* The table, for a library built from the sources of this version. NULL, with a message, for
 * another version, whose structs differ. */
MUONIUM_API const mu_private *muonium_private(const char *version);

/* In the shared libmuonium_mpi, mu_alloc means mu_libmuonium->mu_alloc, and so on for every
 * name of private.def. CMake writes these macros. */
#if defined(MUONIUM_MPI_SHARED)
extern const mu_private *mu_libmuonium;
#include <private_names.h>
#endif

#endif
