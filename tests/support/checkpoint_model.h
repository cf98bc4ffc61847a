/*
 * checkpoint_model.h: what the tests of checkpoints share: a small model of parameters of
 * every kind, gradients that depend on nothing but the step, and states in memory.
 */
#ifndef MUONIUM_CHECKPOINT_MODEL_H
#define MUONIUM_CHECKPOINT_MODEL_H

#include "test.h"

#include "elements.h"

/* ---- the model ---- */

typedef struct model_parameter {
    const char *name;
    muonium_dtype dtype;
    size_t ndim;
    size_t shape[4];
} model_parameter;

static const model_parameter model_parameters[] = {
    {"h.0.w", MUONIUM_F32, 2, {8, 12}},
    {"h.1.conv", MUONIUM_F32, 4, {6, 5, 2, 2}},
    {"experts.w", MUONIUM_F32, 3, {4, 6, 8}},
    {"h.2.half", MUONIUM_BF16, 2, {9, 7}},
    {"h.3.half", MUONIUM_F16, 2, {5, 10}},
    {"wte.weight", MUONIUM_F32, 2, {10, 4}},
    {"ln.bias", MUONIUM_F32, 1, {7}},
    {"scalar", MUONIUM_BF16, 0, {0}},
    {"caf\xc3\xa9 \"q\"", MUONIUM_F32, 2, {4, 4}},
};

enum {
    MODEL_PARAMETERS = sizeof model_parameters / sizeof model_parameters[0],
    MODEL_LARGEST = 256
};

typedef struct model {
    float data[MODEL_PARAMETERS][MODEL_LARGEST]; /* room for elements of any type */
    float grad[MODEL_PARAMETERS][MODEL_LARGEST];
    muonium_optimizer *optimizer;
} model;

static inline size_t model_elements(size_t parameter)
{
    return elements_of(model_parameters[parameter].shape, model_parameters[parameter].ndim);
}

static inline muonium_tensor model_tensor(model *m, size_t i)
{
    const model_parameter *p = &model_parameters[i];
    muonium_tensor tensor = {.name = p->name,
                             .dtype = p->dtype,
                             .ndim = p->ndim,
                             .data = m->data[i],
                             .grad = m->grad[i]};
    memcpy(tensor.shape, p->shape, p->ndim * sizeof p->shape[0]);
    return tensor;
}

/* Initial values; the same for every model. */
static inline void model_fill(model *m)
{
    uint64_t state = 1;
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        for (size_t k = 0; k < model_elements(i); k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            put_element(m->data[i], model_parameters[i].dtype, k,
                        (float)((double)(state >> 33) / 0x1p31 - 0.5));
        }
    }
}

/* An optimizer for parameters [first, end) of the model. */
static inline muonium_status model_create(model *m, const muonium_options *options, size_t first,
                                          size_t end)
{
    memset(m, 0, sizeof *m);
    model_fill(m);
    muonium_status status = muonium_create(options, &m->optimizer);
    for (size_t i = first; status == MUONIUM_OK && i < end; i++) {
        muonium_tensor tensor = model_tensor(m, i);
        status = muonium_add(m->optimizer, &tensor, NULL);
    }
    return status;
}

static inline void model_destroy(model *m)
{
    muonium_destroy(m->optimizer);
    m->optimizer = NULL;
}

/* The gradients that belong to a step. */
static inline void model_set_grads(model *m, unsigned step)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (step + 1);
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        for (size_t k = 0; k < model_elements(i); k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            put_element(m->grad[i], model_parameters[i].dtype, k,
                        (float)((double)(state >> 33) / 0x1p31 - 0.5));
        }
    }
}

/* Steps number [from, to), with the gradients that belong to each. */
static inline muonium_status model_steps(model *m, unsigned from, unsigned to)
{
    muonium_status status = MUONIUM_OK;
    for (unsigned step = from; status == MUONIUM_OK && step < to; step++) {
        model_set_grads(m, step);
        status = muonium_step(m->optimizer);
    }
    return status;
}

/* Parameters [first, end) of the model after two steps. */
static inline void create_stepped(model *m, const char *recipe, size_t first, size_t end)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, recipe));
    options.routing = MUONIUM_ROUTING_MUONIUM; /* the routes that the tests count on */
    assert_ok(model_create(m, &options, first, end));
    assert_ok(model_steps(m, 0, 2));
}

/* ---- bytes in memory ---- */

typedef struct bytes {
    unsigned char *data;
    size_t count;
} bytes;

static inline bool bytes_append(void *context, const void *data, size_t count)
{
    bytes *to = context;
    unsigned char *larger = realloc(to->data, to->count + count);
    if (larger == NULL) {
        return false;
    }
    memcpy(larger + to->count, data, count);
    to->data = larger;
    to->count += count;
    return true;
}

static inline void bytes_free(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

static inline bool bytes_equal(const bytes *a, const bytes *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->data, b->data, a->count) == 0);
}

/* The state of an optimizer, complete. */
static inline bytes model_state(const model *m)
{
    bytes state = {0};
    assert_ok(muonium_save_to(m->optimizer, bytes_append, &state));
    return state;
}

static inline muonium_status model_load_with(model *m, const bytes *state,
                                             const muonium_load_options *options,
                                             muonium_load_report *report)
{
    muonium_reader *reader = NULL;
    muonium_status status = muonium_reader_open_memory(state->data, state->count, &reader);
    if (status == MUONIUM_OK) {
        status = muonium_load_reader(m->optimizer, reader, options, report);
    }
    muonium_reader_close(reader);
    return status;
}

static inline muonium_status model_load(model *m, const bytes *state)
{
    return model_load_with(m, state, NULL, NULL);
}

/* ---- configurations ---- */

typedef struct configuration {
    const char *name, *recipe;
    void (*change)(muonium_options *options);
} configuration;

static inline void use_normuon(muonium_options *o)
{
    o->normuon = true;
}

static inline void use_bf16(muonium_options *o)
{
    o->state_dtype = MUONIUM_BF16;
}

static inline void use_master(muonium_options *o)
{
    o->master = true;
}

static inline void use_stochastic(muonium_options *o)
{
    o->stochastic_rounding = true;
    o->seed = 7;
}

static inline void use_everything(muonium_options *o)
{
    o->normuon = true;
    o->state_dtype = MUONIUM_BF16;
    o->master = true;
    o->stochastic_rounding = true;
    o->decay = MUONIUM_DECAY_CAUTIOUS;
    o->adam = MUONIUM_NADAMW;
    o->layout_3d = MUONIUM_LAYOUT_EXPERTS;
}

static const configuration configurations[] = {
    {"muonium", "muonium", NULL},
    {"motif", "motif", NULL},
    {"fp16", "fp16", NULL},
    {"fp32", "fp32", NULL},
    {"timm", "timm", NULL},
    {"optax", "optax", NULL},
    {"torch", "torch", NULL},
    {"keller", "keller", NULL},
    {"moonlight", "moonlight", NULL},
    {"nanochat", "nanochat", NULL},
    {"dion2", "dion2", NULL},
    {"nordion2", "nordion2", NULL},
    {"adamuon", "adamuon", NULL},
    {"muonh", "muonh", NULL},
    {"normuon", NULL, use_normuon},
    {"bf16 momentum", NULL, use_bf16},
    {"master copies", NULL, use_master},
    {"stochastic rounding", NULL, use_stochastic},
    {"everything", "optax", use_everything},
};

enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0] };

static inline muonium_options configure(const configuration *c)
{
    muonium_options options;
    muonium_options_init(&options, c->recipe);
    options.lr = 0.01;
    if (c->change != NULL) {
        c->change(&options);
    }
    return options;
}

#endif
