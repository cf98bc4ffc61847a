/*
 * model.c: see model.h.
 */
#include "model.h"

#include "base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed_of_run(void)
{
    const char *given = getenv("MUONIUM_TEST_SEED");
    return given ? strtoull(given, NULL, 10) : 20261;
}

/* SplitMix64, started by what the numbers are for. */
typedef struct stream {
    uint64_t state;
} stream;

static uint64_t bits(stream *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static stream stream_of(uint64_t a, uint64_t b, uint64_t c)
{
    stream s = {seed_of_run() + a * 0x100000001b3u + b * 0x10001u + c};
    bits(&s);
    return s;
}

static float number(stream *s)
{
    return (float)((double)(bits(s) >> 11) * 0x1p-52 - 1);
}

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "model: %s\n", muonium_last_error());
        abort();
    }
}

static void fill(void *to, muonium_dtype dtype, size_t count, stream *s)
{
    for (size_t i = 0; i < count; i++) {
        float value = number(s);
        if (dtype == MUONIUM_F32) {
            ((float *)to)[i] = value;
        } else if (dtype == MUONIUM_BF16) {
            ((uint16_t *)to)[i] = mu_bf16_from_f32(value);
        } else {
            ((uint16_t *)to)[i] = mu_f16_from_f32(value);
        }
    }
}

static void add(model *m, muonium_tensor tensor, muonium_group *group)
{
    size_t i = muonium_parameter_count(m->optimizer), elements = 1, span = 1;
    stream s = stream_of(1, i, 0);
    for (size_t d = 0; d < tensor.ndim; d++) {
        elements *= tensor.shape[d];
        span = tensor.strides ? 4 : 1;
    }
    m->elements[i] = elements;
    m->bytes[i] = elements * span * sizeof(float);
    m->data[i] = calloc(1, m->bytes[i] + 1);
    m->grads[i] = calloc(1, m->bytes[i] + 1);
    if (!m->data[i] || !m->grads[i]) {
        abort();
    }
    fill(m->data[i], tensor.dtype, elements * span, &s);
    tensor.data = m->data[i];
    tensor.f32_grad = true;
    check(muonium_add(m->optimizer, &tensor, group));
}

/* `blocks`: experts and heads end with a block of int8 state. */
static void add_mixed(model *m, muonium_group *half, bool blocks)
{
    static const size_t splits[] = {24, 8, 8};
    const muonium_tensor tensors[] = {
        {.name = "embedding", .ndim = 2, .shape = {4100, 65}},
        {.name = "experts",
         .ndim = 3,
         .shape = {5, blocks ? 64 : 24, blocks ? 32 : 40},
         .layout = MUONIUM_LAYOUT_EXPERTS},
        {.name = "qkv", .ndim = 2, .shape = {40, 24}, .row_splits = splits, .row_split_count = 3},
        {.name = "heads", .ndim = 2, .shape = {blocks ? 256 : 64, 32}, .heads = 4},
        {.name = "conv", .ndim = 4, .shape = {16, 12, 3, 3}, .layout = MUONIUM_LAYOUT_SPATIAL},
        {.name = "transposed", .ndim = 2, .shape = {48, 40}, .strides = (const ptrdiff_t[]){1, 48}},
        {.name = "spaced.bias", .ndim = 1, .shape = {50}, .strides = (const ptrdiff_t[]){3}},
        {.name = "w.0", .ndim = 2, .shape = {96, 64}},
        {.name = "w.1", .ndim = 2, .shape = {64, 96}},
        {.name = "scalar"},
        {.name = "missing", .ndim = 2, .shape = {32, 32}},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        add(m, tensors[i], NULL);
    }
    add(m, (muonium_tensor){.name = "h.w", .dtype = MUONIUM_BF16, .ndim = 2, .shape = {48, 56}},
        half);
    add(m,
        (muonium_tensor){.name = "h.experts",
                         .dtype = MUONIUM_BF16,
                         .ndim = 3,
                         .shape = {3, 16, 24},
                         .layout = MUONIUM_LAYOUT_EXPERTS},
        half);
    add(m, (muonium_tensor){.name = "h.bias", .dtype = MUONIUM_F16, .ndim = 1, .shape = {33}},
        half);
    add(m,
        (muonium_tensor){.name = "one.row",
                         .ndim = 2,
                         .shape = {24, 40},
                         .grad_strides = (const ptrdiff_t[]){0, 1}},
        NULL);
    add(m, (muonium_tensor){.name = "empty", .ndim = 2, .shape = {0, 16}}, half);
}

muonium_dtype model_precision = MUONIUM_F32;

void model_make(model *m, model_kind kind, bool description)
{
    muonium_options options;
    muonium_group *half;
    memset(m, 0, sizeof *m);
    const char *recipe = kind == MODEL_NANOCHAT                            ? "nanochat"
                         : kind == MODEL_DION2 || kind == MODEL_INT8_DION2 ? "dion2"
                         : kind == MODEL_ADAMUON                           ? "adamuon"
                         : kind == MODEL_MUONH                             ? "muonh"
                                                                           : "muonium";
    check(muonium_options_init(&options, recipe));
    options.lr = 0.02;
    options.weight_decay = kind == MODEL_MUONH ? 0 : 0.1;
    options.normuon = options.normuon || kind == MODEL_NORMUON;
    options.plan.precision = model_precision;
    options.kernels_in_out = kind == MODEL_IN_OUT;
    bool int8 = kind == MODEL_INT8 || kind == MODEL_INT8_DION2;
    options.state_dtype = options.adam_state_dtype = int8 ? MUONIUM_INT8 : MUONIUM_F32;
    if (kind == MODEL_WIDE) { /* two Gram matrices a step, one of them for the norm */
        options.plan.form = MUONIUM_FORM_GRAM;
        options.plan.normalization = MUONIUM_NORM_SCHATTEN;
    }
    check(description ? muonium_create_description(&options, &m->optimizer)
                      : muonium_create(&options, &m->optimizer));
    options.lr = 0.01;
    options.stochastic_rounding = true;
    options.master = kind == MODEL_NORMUON;
    options.state_dtype = kind == MODEL_NORMUON ? MUONIUM_BF16 : options.state_dtype;
    options.state_stochastic = int8;
    options.seed = 7;
    check(muonium_add_group(m->optimizer, &options, &half));
    if (kind == MODEL_MIXED || kind == MODEL_NORMUON || kind >= MODEL_NANOCHAT) {
        add_mixed(m, half, int8 || kind == MODEL_BLOCKS);
    } else {
        bool tall = kind == MODEL_TALL;
        add(m, (muonium_tensor){.name = "small", .ndim = 2, .shape = {16, 24}}, NULL);
        add(m,
            (muonium_tensor){
                .name = "large", .ndim = 2, .shape = {tall ? 4000 : 40, tall ? 40 : 4000}},
            NULL);
        add(m, (muonium_tensor){.name = "bias", .ndim = 1, .shape = {40}}, NULL);
        if (kind == MODEL_IN_OUT) { /* heads are blocks of columns in memory */
            add(m, (muonium_tensor){.name = "heads", .ndim = 2, .shape = {24, 64}, .heads = 4},
                NULL);
        }
    }
}

void model_free(model *m)
{
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        free(m->data[i]);
        free(m->grads[i]);
    }
    muonium_destroy(m->optimizer);
}

/* Missing everywhere, or on every third rank. */
static bool has_gradient(size_t parameter, int rank, int step)
{
    bool nowhere = parameter == 10 && step % 2 == 1;
    return !nowhere && !((parameter + (size_t)rank + (size_t)step) % 3 == 0 && parameter % 2 == 0);
}

void model_gradients(model *m, int rank, int step)
{
    for (size_t i = 0; i < muonium_parameter_count(m->optimizer); i++) {
        stream s = stream_of(2 + (uint64_t)rank, i, (uint64_t)step);
        fill(m->grads[i], MUONIUM_F32, m->elements[i], &s);
        check(muonium_set_grad(m->optimizer, i, has_gradient(i, rank, step) ? m->grads[i] : NULL));
    }
}

void model_combined(model *m, int ranks, int step, bool sum, bool half)
{
    for (size_t i = 0; i < muonium_parameter_count(m->optimizer); i++) {
        float *to = m->grads[i];
        bool any = false;
        for (int r = 0; r < ranks; r++) {
            stream s = stream_of(2 + (uint64_t)r, i, (uint64_t)step);
            for (size_t k = 0; has_gradient(i, r, step) && k < m->elements[i]; k++) {
                float value = number(&s);
                value = half ? mu_f32_from_bf16(mu_bf16_from_f32(value)) : value;
                to[k] = any ? to[k] + value : value;
            }
            any = any || has_gradient(i, r, step);
        }
        for (size_t k = 0; any && !sum && ranks > 1 && k < m->elements[i]; k++) {
            to[k] /= (float)ranks;
        }
        check(muonium_set_grad(m->optimizer, i, any ? to : NULL));
    }
}

int model_differs(const model *a, const model *b)
{
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        if (a->bytes[i] > 0 && memcmp(a->data[i], b->data[i], a->bytes[i]) != 0) {
            return (int)i;
        }
    }
    return -1;
}
