/*
 * optimizer_model.h: what the tests of the optimizer share: a set of parameters that has
 * every type and layout, and all bytes of an optimizer's state, to see that none changed.
 */
#ifndef MUONIUM_OPTIMIZER_MODEL_H
#define MUONIUM_OPTIMIZER_MODEL_H

#include "test.h"

#include "elements.h"
#include "optimizer/optimizer.h"

/* ---- parameters ---- */

typedef struct model_spec {
    const char *name;
    muonium_dtype dtype;
    size_t ndim, shape[4];
    muonium_layout layout;
    size_t heads;
    size_t splits[3]; /* of the rows, up to the first 0 */
    uint32_t out_axes, in_axes;
} model_spec;

/* Rows longer than the pieces that are worked on at a time, and tensors longer than the
 * tasks that are handed to threads, among them. */
static const model_spec model_specs[] = {
    {.name = "wide", .ndim = 2, .shape = {20, 33}},
    {.name = "tall", .ndim = 2, .shape = {33, 20}},
    {.name = "long", .ndim = 2, .shape = {17, 1500}},
    {.name = "bf16", .dtype = MUONIUM_BF16, .ndim = 2, .shape = {40, 21}},
    {.name = "f16", .dtype = MUONIUM_F16, .ndim = 2, .shape = {21, 40}},
    {.name = "conv", .ndim = 4, .shape = {12, 6, 3, 3}},
    {.name = "spatial",
     .dtype = MUONIUM_BF16,
     .ndim = 4,
     .shape = {12, 6, 3, 3},
     .layout = MUONIUM_LAYOUT_SPATIAL},
    {.name = "experts",
     .dtype = MUONIUM_F16,
     .ndim = 4,
     .shape = {2, 3, 20, 9},
     .layout = MUONIUM_LAYOUT_EXPERTS},
    {.name = "qkv", .ndim = 2, .shape = {60, 20}, .splits = {40, 13, 7}},
    {.name = "heads", .ndim = 2, .shape = {60, 20}, .heads = 5},
    {.name = "fan",
     .ndim = 4,
     .shape = {6, 5, 2, 8},
     .layout = MUONIUM_LAYOUT_FAN,
     .out_axes = 1u << 3,
     .in_axes = 1u << 0 | 1u << 1},
    {.name = "norm", .dtype = MUONIUM_BF16, .ndim = 2, .shape = {9, 11}},
    {.name = "vector", .ndim = 1, .shape = {70001}},
    {.name = "half.vector", .dtype = MUONIUM_F16, .ndim = 1, .shape = {35001}},
    {.name = "scalar", .ndim = 0},
};

enum { MODEL_COUNT = sizeof model_specs / sizeof model_specs[0] };

typedef struct model {
    void *data[MODEL_COUNT], *grads[MODEL_COUNT];
} model;

static inline size_t model_elements(size_t index)
{
    return elements_of(model_specs[index].shape, model_specs[index].ndim);
}

static inline size_t model_bytes(size_t index)
{
    return model_elements(index) * muonium_dtype_size(model_specs[index].dtype);
}

static inline void model_fill(void *data, size_t index, const char *what, size_t step)
{
    char label[64];
    snprintf(label, sizeof label, "%s of %s %zu", what, model_specs[index].name, step);
    test_rng rng = test_rng_start(label);
    for (size_t i = 0; i < model_elements(index); i++) {
        float value = (float)test_uniform(&rng, -1, 1);
        put_element(data, model_specs[index].dtype, i, value);
    }
}

/* Gradients of a step; the same in every model. */
static inline void model_set_grads(const model *m, size_t step)
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        model_fill(m->grads[i], i, "grad", step);
    }
}

static inline model model_new(void)
{
    model m;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        m.data[i] = malloc(model_bytes(i));
        m.grads[i] = malloc(model_bytes(i));
        assert_true(m.data[i] && m.grads[i]);
        model_fill(m.data[i], i, "data", 0);
    }
    model_set_grads(&m, 1);
    return m;
}

static inline void model_free(model *m)
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        free(m->data[i]);
        free(m->grads[i]);
    }
}

static inline muonium_tensor model_tensor(const model *m, size_t index)
{
    const model_spec *spec = &model_specs[index];
    muonium_tensor tensor = {.name = spec->name,
                             .dtype = spec->dtype,
                             .ndim = spec->ndim,
                             .data = m->data[index],
                             .grad = m->grads[index],
                             .layout = spec->layout,
                             .heads = spec->heads,
                             .out_axes = spec->out_axes,
                             .in_axes = spec->in_axes};
    memcpy(tensor.shape, spec->shape, sizeof spec->shape);
    if (spec->splits[0] > 0) {
        tensor.row_splits = spec->splits;
        tensor.row_split_count = 3;
    }
    return tensor;
}

static inline void model_add(const model *m, size_t index, muonium_optimizer *optimizer)
{
    muonium_tensor tensor = model_tensor(m, index);
    assert_ok(muonium_add(optimizer, &tensor, NULL));
}

static inline muonium_options model_options(void)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    return options;
}

/* An optimizer of all parameters. */
static inline muonium_optimizer *model_optimizer(const model *m, const muonium_options *options)
{
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(options, &optimizer));
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        model_add(m, i, optimizer);
    }
    return optimizer;
}

static inline void model_assert_equal(const model *a, const model *b, const char *what)
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        if (memcmp(a->data[i], b->data[i], model_bytes(i)) != 0) {
            print_error("%s: parameter %s differs\n", what, model_specs[i].name);
            fail();
        }
    }
}

/* ---- everything that a step may change ---- */

typedef struct snapshot {
    unsigned char *bytes;
    size_t count, capacity;
} snapshot;

static inline void snapshot_put(snapshot *to, const void *from, size_t bytes)
{
    if (to->count + bytes > to->capacity) {
        to->capacity = 2 * (to->count + bytes);
        to->bytes = realloc(to->bytes, to->capacity);
        assert_non_null(to->bytes);
    }
    if (from && bytes > 0) {
        memcpy(to->bytes + to->count, from, bytes);
        to->count += bytes;
    }
}

/* Parameters (dense), state, counters and options of all groups. */
static inline snapshot snapshot_of(const muonium_optimizer *optimizer)
{
    snapshot s = {NULL, 0, 0};
    snapshot_put(&s, &optimizer->counters, sizeof optimizer->counters);
    snapshot_put(&s, &optimizer->count, sizeof optimizer->count);
    for (const muonium_group *group = optimizer->groups; group; group = group->next) {
        snapshot_put(&s, &group->options, sizeof group->options);
    }
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        size_t n = p->elements;
        snapshot_put(&s, p->tensor.data, n * muonium_dtype_size(p->tensor.dtype));
        snapshot_put(&s, p->tensor.grad, n * muonium_dtype_size(p->grad_dtype));
        mu_state_array arrays[MU_STATE_KINDS];
        for (size_t k = 0, kept = mu_state_arrays(p, arrays); k < kept; k++) {
            bool written = mu_state_has_values(p, &arrays[k]);
            snapshot_put(&s, written ? arrays[k].data : NULL, mu_state_bytes(&arrays[k]));
        }
        snapshot_put(&s, p->certificates, p->matrices.count * sizeof *p->certificates);
        snapshot_put(&s, &p->steps, sizeof p->steps);
        snapshot_put(&s, &p->tensor.data, sizeof p->tensor.data);
        snapshot_put(&s, &p->tensor.grad, sizeof p->tensor.grad);
        const bool flags[] = {p->has_master, p->certified, p->muon};
        snapshot_put(&s, flags, sizeof flags);
    }
    return s;
}

/* Nothing has changed since; frees the snapshot. */
static inline void snapshot_assert_same(snapshot *before, const muonium_optimizer *optimizer)
{
    snapshot now = snapshot_of(optimizer);
    assert_int_equal(now.count, before->count);
    assert_memory_equal(now.bytes, before->bytes, now.count);
    free(now.bytes);
    free(before->bytes);
}

#endif
