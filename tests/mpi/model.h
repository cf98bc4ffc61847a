/*
 * model.h: the model of the MPI tests, its gradients, and the gradients that one process
 * would have to be given for the same step.
 */
#ifndef MUONIUM_TEST_MPI_MODEL_H
#define MUONIUM_TEST_MPI_MODEL_H

#include "muonium_mpi.h"

enum { MODEL_PARAMETERS = 16 };

typedef struct model {
    muonium_optimizer *optimizer; /* a description, or a real one */
    void *data[MODEL_PARAMETERS];
    void *grads[MODEL_PARAMETERS];
    size_t bytes[MODEL_PARAMETERS]; /* of data and of grads */
    size_t elements[MODEL_PARAMETERS];
} model;

/* Which model: the first two have all layouts, types and routes, the others one matrix that
 * is worth cutting by columns. */
typedef enum model_kind {
    MODEL_MIXED,
    MODEL_NORMUON,
    MODEL_WIDE,
    MODEL_TALL,
    MODEL_IN_OUT,
    /* MODEL_MIXED under other recipes */
    MODEL_NANOCHAT,
    MODEL_DION2,
    MODEL_ADAMUON,
    MODEL_MUONH,
    /* MODEL_MIXED with int8 state, and matrices that end with a block */
    MODEL_INT8,
    MODEL_INT8_DION2,
    MODEL_BLOCKS /* these matrices with f32 state */
} model_kind;

/* Of all matrices of the models made from now on; MUONIUM_F32 at first. */
extern muonium_dtype model_precision;

/* The same parameters on every rank and in every process. */
void model_make(model *m, model_kind kind, bool description);
void model_free(model *m);

/* Fill the gradients that rank `rank` has in a step. Some are missing on some ranks, some on
 * all: they are NULL in the optimizer then. */
void model_gradients(model *m, int rank, int step);

/* Fill the gradients with those of all of `ranks` ranks together, in f32, as the
 * documentation says: summed in the order of ranks; averaged unless `sum`; rounded to bf16
 * before if `half`. The model's gradients must be f32. */
void model_combined(model *m, int ranks, int step, bool sum, bool half);

/* The first parameter that differs, in any bit; -1 if none does. */
int model_differs(const model *a, const model *b);

#endif
