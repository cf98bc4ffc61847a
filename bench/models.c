/*
 * models.c: see models.h.
 */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const model_shape model_shapes[] = {
    {"1024 x 1024", true, 1, 1, 0, 0, {{1, 1024, 1024, 0}}},
    {"4096 x 4096", false, 1, 1, 0, 0, {{1, 4096, 4096, 0}}},
    {"GPT-2 124M",
     true,
     12,
     1,
     51281,
     768,
     {{1, 2304, 768, 3}, {1, 768, 768, 0}, {1, 3072, 768, 0}, {1, 768, 3072, 0}}},
    {"MoE 64 experts",
     false,
     1,
     8,
     32000,
     1024,
     {{1, 3072, 1024, 3}, {1, 1024, 1024, 0}, {64, 2048, 1024, 0}, {64, 1024, 1024, 0}}},
    {"GPT-2 1.5B",
     false,
     1,
     48,
     51281,
     1600,
     {{1, 4800, 1600, 3}, {1, 1600, 1600, 0}, {1, 6400, 1600, 0}, {1, 1600, 6400, 0}}},
    {"Llama 7B",
     false,
     1,
     32,
     64000,
     4096,
     {{1, 12288, 4096, 3}, {1, 4096, 4096, 0}, {2, 11008, 4096, 0}, {1, 4096, 11008, 0}}},
};

const size_t model_count = sizeof model_shapes / sizeof model_shapes[0];

static bool add(model *m, const char *name, size_t batch, size_t rows, size_t cols, size_t heads)
{
    size_t count = batch * rows * cols;
    muonium_tensor tensor = {.name = name, .ndim = 2, .shape = {rows, cols}, .heads = heads};
    if (batch > 1) {
        tensor.ndim = 3;
        tensor.shape[0] = batch;
        tensor.shape[1] = rows;
        tensor.shape[2] = cols;
        tensor.layout = MUONIUM_LAYOUT_EXPERTS;
    }
    float *data = malloc(2 * count * sizeof *data);
    if (!data || m->arrays == MOST_PARAMETERS) {
        free(data);
        return false;
    }
    for (size_t i = 0; i < 2 * count; i++) {
        data[i] = (float)((i * 2654435761u >> 8) % 2048) / 2048 - 0.5f;
    }
    m->memory[m->arrays++] = data;
    tensor.data = data;
    tensor.grad = data + count;
    return muonium_add(m->optimizer, &tensor, NULL) == MUONIUM_OK;
}

bool model_make(model *m, const model_shape *shape)
{
    char name[64];
    memset(m, 0, sizeof *m);
    bool done = muonium_create(NULL, &m->optimizer) == MUONIUM_OK;
    if (done && shape->embedding_rows > 0) {
        done = add(m, "embed_tokens.weight", 1, shape->embedding_rows, shape->width, 0);
    }
    for (size_t layer = 0; layer < shape->layers; layer++) {
        for (size_t i = 0; done && i < 4 && shape->matrices[i].batch > 0; i++) {
            const layer_matrix *w = &shape->matrices[i];
            snprintf(name, sizeof name, "layers.%zu.w%zu.weight", layer, i);
            done = add(m, name, w->batch, w->rows, w->cols, w->heads);
        }
    }
    return done;
}

void model_destroy(model *m)
{
    muonium_destroy(m->optimizer);
    for (size_t i = 0; i < m->arrays; i++) {
        free(m->memory[i]);
    }
}
