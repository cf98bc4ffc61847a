/*
 * models.h: the models whose steps are predicted, with gradients of no meaning.
 */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include <stdbool.h>
#include <stddef.h>

#include "muonium.h"

typedef struct layer_matrix {
    size_t batch, rows, cols, heads; /* batch > 1: experts */
} layer_matrix;

typedef struct model_shape {
    const char *name;
    bool quick;
    size_t layers, copies; /* in memory, and how often each counts */
    size_t embedding_rows, width;
    layer_matrix matrices[4];
} model_shape;

extern const model_shape model_shapes[];
extern const size_t model_count;

enum { MOST_PARAMETERS = 1024 };

typedef struct model {
    muonium_optimizer *optimizer;
    float *memory[MOST_PARAMETERS];
    size_t arrays;
} model;

/* False without memory, or with the library's message. To be destroyed in any case. */
bool model_make(model *m, const model_shape *shape);
void model_destroy(model *m);

#endif
