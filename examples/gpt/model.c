/*
 * model.c: parameters, forward and backward.
 */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/random.h"
#include "layers.h"

/* ---- parameters ---- */

/* The list of a model: embedding, the parameters of each layer, final norm, head. */
enum { EMBEDDING, FIRST_OF_LAYERS };
enum { ATTENTION_NORM, QKV, ATTENTION_OUT, MLP_NORM, MLP_UP, MLP_DOWN, PER_LAYER };
enum { EXPANSION = 4 }; /* of the MLP */

static size_t final_norm(const gpt_shape *shape)
{
    return FIRST_OF_LAYERS + shape->layers * PER_LAYER;
}

static size_t head(const gpt_shape *shape)
{
    return final_norm(shape) + 1;
}

double gpt_weight_count(gpt_shape shape)
{
    const double width = (double)shape.width;
    const double per_layer = 2 * width + (3 + 1 + 2 * EXPANSION) * width * width;
    return (double)shape.layers * per_layer + width + 2 * (double)shape.vocabulary * width;
}

static void describe(gpt_model *model, size_t index, size_t ndim, size_t rows, size_t cols)
{
    gpt_parameter *p = &model->parameters[index];
    p->ndim = ndim;
    p->rows = rows;
    p->cols = cols;
    p->offset = model->weight_count;
    model->weight_count += rows * cols;
}

/* Names follow what others call these parameters, so that the optimizer's own rules
 * recognise embedding, norms and head. */
static void describe_all(gpt_model *model)
{
    static const char *const names[PER_LAYER] = {
        [ATTENTION_NORM] = "attention_norm",
        [QKV] = "qkv",
        [ATTENTION_OUT] = "attention_out",
        [MLP_NORM] = "mlp_norm",
        [MLP_UP] = "mlp_up",
        [MLP_DOWN] = "mlp_down",
    };
    const gpt_shape *shape = &model->shape;
    const size_t width = shape->width;
    strcpy(model->parameters[EMBEDDING].name, "embedding");
    describe(model, EMBEDDING, 2, shape->vocabulary, width);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        const size_t first = FIRST_OF_LAYERS + layer * PER_LAYER;
        for (size_t i = 0; i < PER_LAYER; i++) {
            gpt_parameter *p = &model->parameters[first + i];
            snprintf(p->name, sizeof p->name, "layer.%zu.%s", layer, names[i]);
            p->fused = i == QKV;
        }
        describe(model, first + ATTENTION_NORM, 1, width, 1);
        describe(model, first + QKV, 2, 3 * width, width);
        describe(model, first + ATTENTION_OUT, 2, width, width);
        describe(model, first + MLP_NORM, 1, width, 1);
        describe(model, first + MLP_UP, 2, EXPANSION * width, width);
        describe(model, first + MLP_DOWN, 2, width, EXPANSION * width);
    }
    strcpy(model->parameters[final_norm(shape)].name, "final_norm");
    describe(model, final_norm(shape), 1, width, 1);
    strcpy(model->parameters[head(shape)].name, "head");
    describe(model, head(shape), 2, shape->vocabulary, width);
}

/* Gains start at 1, matrices with columns that keep the size of their input; what adds
 * to the residual stream starts smaller, since every layer adds. */
static void initialize(gpt_model *model, uint64_t seed)
{
    const float residual = 1 / sqrtf(2 * (float)model->shape.layers);
    for (size_t index = 0; index < model->parameter_count; index++) {
        const gpt_parameter *p = &model->parameters[index];
        float *weights = model->weights + p->offset;
        if (p->ndim == 1) {
            for (size_t i = 0; i < p->rows; i++) {
                weights[i] = 1;
            }
            continue;
        }
        const size_t kind = (index - FIRST_OF_LAYERS) % PER_LAYER;
        const bool in_layer = index >= FIRST_OF_LAYERS && index < final_norm(&model->shape);
        float deviation = 0.5f / sqrtf((float)p->cols);
        if (in_layer && (kind == ATTENTION_OUT || kind == MLP_DOWN)) {
            deviation *= residual;
        }
        for (size_t i = 0; i < p->rows * p->cols; i++) {
            uint32_t words[4];
            double normal[2];
            mu_random(seed, i, index, words);
            mu_random_normal(words, normal);
            weights[i] = deviation * (float)normal[0];
        }
    }
}

muonium_status gpt_model_create(gpt_shape shape, uint64_t seed, gpt_model **model)
{
    gpt_model *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->shape = shape;
        made->parameter_count = head(&shape) + 1;
        made->parameters = calloc(made->parameter_count, sizeof *made->parameters);
    }
    if (made != NULL && made->parameters != NULL) {
        describe_all(made);
        made->weights = mu_alloc(made->weight_count * sizeof(float));
        made->gradients = mu_alloc_zeroed(made->weight_count * sizeof(float));
    }
    if (made == NULL || made->weights == NULL || made->gradients == NULL) {
        gpt_model_destroy(made);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a model of %.0f weights",
                       gpt_weight_count(shape));
    }
    initialize(made, seed);
    *model = made;
    return MUONIUM_OK;
}

void gpt_model_destroy(gpt_model *model)
{
    if (model != NULL) {
        mu_free(model->weights);
        mu_free(model->gradients);
        free(model->parameters);
        free(model);
    }
}

/* ---- the memory of a pass ---- */

/* What the way back needs of a layer, a row per token. */
typedef struct layer_memory {
    float *x; /* input of the layer */
    float *attention_inverse;
    float *attention_normed;
    float *qkv;
    float *attention_weights;
    float *attended;
    float *middle; /* input of the MLP half */
    float *mlp_inverse;
    float *mlp_normed;
    float *up, *activated;
} layer_memory;

struct gpt_pass {
    gpt_shape shape;
    gpt_machine *machine;
    size_t sequences; /* of the last loss */
    size_t length;
    const unsigned char *tokens;
    layer_memory *layers;
    float *last, *last_inverse, *last_normed, *logits, *losses;
    float *d_x, *d_normed, *d_wide, *scratch; /* gradients; d_wide is EXPANSION widths wide */
    float *cosines, *sines;
    float *memory; /* all of the above, in one piece */
};

/* Hand out `count` elements of memory, or only count them. */
typedef struct cutter {
    float *memory; /* NULL while counting */
    double used;   /* elements; in floating point, where nothing overflows */
} cutter;

static float *cut(cutter *from, double count)
{
    const double line = MU_ALIGNMENT / sizeof(float);
    float *piece = from->memory != NULL ? from->memory + (size_t)from->used : NULL;
    from->used += ceil(count / line) * line;
    return piece;
}

static void cut_layer(cutter *from, const gpt_shape *shape, double sequences, layer_memory *layer)
{
    const double length = (double)shape->context, tokens = sequences * length;
    const double row = tokens * (double)shape->width;
    layer->x = cut(from, row);
    layer->attention_inverse = cut(from, tokens);
    layer->attention_normed = cut(from, row);
    layer->qkv = cut(from, 3 * row);
    layer->attention_weights = cut(from, tokens * length * (double)shape->heads);
    layer->attended = cut(from, row);
    layer->middle = cut(from, row);
    layer->mlp_inverse = cut(from, tokens);
    layer->mlp_normed = cut(from, row);
    layer->up = cut(from, EXPANSION * row);
    layer->activated = cut(from, EXPANSION * row);
}

static void cut_rest(cutter *from, const gpt_shape *shape, double sequences, double workers,
                     gpt_pass *pass)
{
    const double length = (double)shape->context, tokens = sequences * length;
    const double row = tokens * (double)shape->width;
    pass->last = cut(from, row);
    pass->last_inverse = cut(from, tokens);
    pass->last_normed = cut(from, row);
    pass->logits = cut(from, tokens * (double)shape->vocabulary);
    pass->losses = cut(from, tokens);
    pass->d_x = cut(from, row);
    pass->d_normed = cut(from, row);
    pass->d_wide = cut(from, EXPANSION * row);
    pass->scratch = cut(from, workers * length * length);
    pass->cosines = cut(from, row / tokens * length);
    pass->sines = cut(from, row / tokens * length);
}

double gpt_pass_bytes(gpt_shape shape, size_t sequences, int threads)
{
    cutter layer = {NULL, 0}, rest = {NULL, 0};
    layer_memory unused_layer;
    gpt_pass unused;
    cut_layer(&layer, &shape, (double)sequences, &unused_layer);
    cut_rest(&rest, &shape, (double)sequences, threads, &unused);
    return sizeof(float) * ((double)shape.layers * layer.used + rest.used);
}

muonium_status gpt_pass_create(gpt_shape shape, size_t sequences, gpt_pass **pass)
{
    gpt_machine *machine;
    muonium_status status = gpt_machine_create(&machine);
    if (status != MUONIUM_OK) {
        return status;
    }
    const unsigned workers = gpt_machine_workers(machine);
    const double bytes = gpt_pass_bytes(shape, sequences, (int)workers);
    gpt_pass *made = calloc(1, sizeof *made);
    layer_memory *layers = calloc(shape.layers, sizeof *layers);
    float *memory = bytes < (double)PTRDIFF_MAX ? mu_alloc((size_t)bytes) : NULL;
    if (made == NULL || layers == NULL || memory == NULL) {
        free(made);
        free(layers);
        mu_free(memory);
        gpt_machine_destroy(machine);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the %.0f bytes of a pass", bytes);
    }
    cutter from = {memory, 0};
    *made = (gpt_pass){.shape = shape, .machine = machine, .layers = layers, .memory = memory};
    for (size_t layer = 0; layer < shape.layers; layer++) {
        cut_layer(&from, &shape, (double)sequences, &layers[layer]);
    }
    cut_rest(&from, &shape, (double)sequences, workers, made);
    gpt_rotations(shape.context, shape.width / shape.heads, made->cosines, made->sines);
    *pass = made;
    return MUONIUM_OK;
}

void gpt_pass_destroy(gpt_pass *pass)
{
    if (pass != NULL) {
        gpt_machine_destroy(pass->machine);
        mu_free(pass->memory);
        free(pass->layers);
        free(pass);
    }
}

/* ---- forward ---- */

static const float *weights_of(const gpt_model *model, size_t index)
{
    return model->weights + model->parameters[index].offset;
}

/* y = x w^T, or y += x w^T: a row of x per token, a row of w per output. */
static void linear(const gpt_pass *pass, const gpt_model *model, size_t index, const float *x,
                   float *y, bool accumulate)
{
    const gpt_parameter *p = &model->parameters[index];
    gpt_multiply(pass->machine,
                 &(gpt_product){.m = pass->sequences * pass->length,
                                .n = p->rows,
                                .k = p->cols,
                                .a = gpt_rows(x, p->cols),
                                .b = gpt_transposed(weights_of(model, index), p->cols),
                                .c = y,
                                .c_row = p->rows,
                                .scale = 1,
                                .accumulate = accumulate});
}

static gpt_norm norm_of(const gpt_pass *pass, const gpt_model *model, size_t index, const float *x,
                        float *inverse)
{
    return (gpt_norm){pass->sequences * pass->length, pass->shape.width, x,
                      weights_of(model, index), inverse};
}

static gpt_attention attention_of(const gpt_pass *pass, const layer_memory *layer)
{
    return (gpt_attention){
        .sequences = pass->sequences,
        .length = pass->length,
        .width = pass->shape.width,
        .heads = pass->shape.heads,
        .cosines = pass->cosines,
        .sines = pass->sines,
        .qkv = layer->qkv,
        .weights = layer->attention_weights,
    };
}

/* From layer->x to `out`. */
static void layer_forward(const gpt_pass *pass, const gpt_model *model, size_t number, float *out)
{
    const layer_memory *layer = &pass->layers[number];
    const size_t first = FIRST_OF_LAYERS + number * PER_LAYER;
    const size_t tokens = pass->sequences * pass->length, width = pass->shape.width;

    gpt_norm norm =
        norm_of(pass, model, first + ATTENTION_NORM, layer->x, layer->attention_inverse);
    gpt_norm_forward(pass->machine, &norm, layer->attention_normed);
    linear(pass, model, first + QKV, layer->attention_normed, layer->qkv, false);
    gpt_attention attention = attention_of(pass, layer);
    gpt_attention_forward(pass->machine, &attention, layer->attended);
    memcpy(layer->middle, layer->x, tokens * width * sizeof(float));
    linear(pass, model, first + ATTENTION_OUT, layer->attended, layer->middle, true);

    norm = norm_of(pass, model, first + MLP_NORM, layer->middle, layer->mlp_inverse);
    gpt_norm_forward(pass->machine, &norm, layer->mlp_normed);
    linear(pass, model, first + MLP_UP, layer->mlp_normed, layer->up, false);
    gpt_relu_squared(pass->machine, tokens * EXPANSION * width, layer->up, layer->activated);
    memcpy(out, layer->middle, tokens * width * sizeof(float));
    linear(pass, model, first + MLP_DOWN, layer->activated, out, true);
}

static void forward(gpt_pass *pass, const gpt_model *model, const unsigned char *tokens)
{
    const gpt_shape *shape = &pass->shape;
    const float *embedding = weights_of(model, EMBEDDING);
    pass->tokens = tokens;
    for (size_t t = 0; t < pass->sequences * pass->length; t++) {
        memcpy(pass->layers[0].x + t * shape->width, embedding + tokens[t] * shape->width,
               shape->width * sizeof(float));
    }
    for (size_t i = 0; i < shape->layers; i++) {
        layer_forward(pass, model, i, i + 1 < shape->layers ? pass->layers[i + 1].x : pass->last);
    }
    gpt_norm norm = norm_of(pass, model, final_norm(shape), pass->last, pass->last_inverse);
    gpt_norm_forward(pass->machine, &norm, pass->last_normed);
    linear(pass, model, head(shape), pass->last_normed, pass->logits, false);
}

double gpt_loss(gpt_pass *pass, const gpt_model *model, size_t sequences,
                const unsigned char *tokens, const unsigned char *targets)
{
    pass->sequences = sequences;
    pass->length = pass->shape.context;
    forward(pass, model, tokens);
    return gpt_cross_entropy(pass->machine, sequences * pass->length, pass->shape.vocabulary,
                             pass->logits, targets, pass->losses);
}

const float *gpt_next(gpt_pass *pass, const gpt_model *model, const unsigned char *tokens,
                      size_t length)
{
    pass->sequences = 1;
    pass->length = length;
    forward(pass, model, tokens);
    return pass->logits + (length - 1) * pass->shape.vocabulary;
}

/* ---- backward ---- */

static float *gradients_of(gpt_model *model, size_t index)
{
    return model->gradients + model->parameters[index].offset;
}

/* For y = x w^T: the gradient of w, dy^T x, and that of x, dy w. */
static void linear_backward(const gpt_pass *pass, gpt_model *model, size_t index, const float *x,
                            const float *dy, float *dx)
{
    const gpt_parameter *p = &model->parameters[index];
    const size_t tokens = pass->sequences * pass->length;
    gpt_multiply(pass->machine, &(gpt_product){.m = p->rows,
                                               .n = p->cols,
                                               .k = tokens,
                                               .a = gpt_transposed(dy, p->rows),
                                               .b = gpt_rows(x, p->cols),
                                               .c = gradients_of(model, index),
                                               .c_row = p->cols,
                                               .scale = 1});
    gpt_multiply(pass->machine, &(gpt_product){.m = tokens,
                                               .n = p->cols,
                                               .k = p->rows,
                                               .a = gpt_rows(dy, p->rows),
                                               .b = gpt_rows(weights_of(model, index), p->cols),
                                               .c = dx,
                                               .c_row = p->cols,
                                               .scale = 1});
}

/* pass->d_x, the gradient of the layer's output, becomes that of its input. */
static void layer_backward(const gpt_pass *pass, gpt_model *model, size_t number)
{
    const layer_memory *layer = &pass->layers[number];
    const size_t first = FIRST_OF_LAYERS + number * PER_LAYER;
    const size_t tokens = pass->sequences * pass->length, width = pass->shape.width;

    linear_backward(pass, model, first + MLP_DOWN, layer->activated, pass->d_x, pass->d_wide);
    gpt_relu_squared_backward(pass->machine, tokens * EXPANSION * width, layer->up, pass->d_wide);
    linear_backward(pass, model, first + MLP_UP, layer->mlp_normed, pass->d_wide, pass->d_normed);
    gpt_norm norm = norm_of(pass, model, first + MLP_NORM, layer->middle, layer->mlp_inverse);
    gpt_norm_backward(pass->machine, &norm, pass->d_normed, pass->d_x,
                      gradients_of(model, first + MLP_NORM));

    linear_backward(pass, model, first + ATTENTION_OUT, layer->attended, pass->d_x, pass->d_normed);
    gpt_attention attention = attention_of(pass, layer);
    gpt_attention_backward(pass->machine, &attention, pass->d_normed, pass->d_wide, pass->scratch);
    linear_backward(pass, model, first + QKV, layer->attention_normed, pass->d_wide,
                    pass->d_normed);
    norm = norm_of(pass, model, first + ATTENTION_NORM, layer->x, layer->attention_inverse);
    gpt_norm_backward(pass->machine, &norm, pass->d_normed, pass->d_x,
                      gradients_of(model, first + ATTENTION_NORM));
}

void gpt_backward(gpt_pass *pass, gpt_model *model)
{
    const gpt_shape *shape = &pass->shape;
    const size_t tokens = pass->sequences * pass->length, width = shape->width;

    linear_backward(pass, model, head(shape), pass->last_normed, pass->logits, pass->d_normed);
    memset(pass->d_x, 0, tokens * width * sizeof(float));
    gpt_norm norm = norm_of(pass, model, final_norm(shape), pass->last, pass->last_inverse);
    gpt_norm_backward(pass->machine, &norm, pass->d_normed, pass->d_x,
                      gradients_of(model, final_norm(shape)));
    for (size_t i = shape->layers; i-- > 0;) {
        layer_backward(pass, model, i);
    }
    float *embedding = gradients_of(model, EMBEDDING);
    memset(embedding, 0, shape->vocabulary * width * sizeof(float));
    for (size_t t = 0; t < tokens; t++) {
        float *row = embedding + pass->tokens[t] * width;
        for (size_t i = 0; i < width; i++) {
            row[i] += pass->d_x[t * width + i];
        }
    }
}
