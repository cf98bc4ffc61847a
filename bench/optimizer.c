/*
 * optimizer.c: the optimizer's figures: AdamW against the bandwidth of a copy, what a
 * Muon step costs beyond its orthogonalisation, and whole steps of GPT-2 124M.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* ---- models ---- */

/* Elements from which on a matrix is large, and what a step needs beside it is of interest. */
enum { LARGE = 1 << 20 };

typedef struct model {
    muonium_optimizer *optimizer;
    float *memory[512]; /* of parameters and gradients */
    size_t arrays;
    size_t elements, muon_elements;
    size_t largest; /* matrix of Muon's, in elements */
} model;

static void filled(float *array, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        array[i] = (float)((i * 2654435761u >> 8) % 2048) / 2048 - 0.5f;
    }
}

static bool add(model *m, const char *name, size_t rows, size_t cols, size_t heads)
{
    muonium_tensor tensor = {
        .name = name, .ndim = 2, .shape = {rows, cols}, .heads = heads, .dtype = MUONIUM_F32};
    float *data = malloc(rows * cols * sizeof *data), *grad = malloc(rows * cols * sizeof *grad);
    if (!data || !grad || m->arrays + 2 > sizeof m->memory / sizeof m->memory[0]) {
        free(data);
        free(grad);
        return false;
    }
    m->memory[m->arrays++] = data;
    m->memory[m->arrays++] = grad;
    filled(data, rows * cols);
    filled(grad, rows * cols);
    tensor.data = data;
    tensor.grad = grad;
    if (muonium_add(m->optimizer, &tensor, NULL) != MUONIUM_OK) {
        return false;
    }
    muonium_parameter_report report;
    muonium_report(m->optimizer, muonium_parameter_count(m->optimizer) - 1, &report);
    m->elements += rows * cols;
    m->muon_elements += report.muon ? rows * cols : 0;
    size_t matrix = report.muon ? rows * cols / (heads > 0 ? heads : 1) : 0;
    m->largest = matrix > m->largest ? matrix : m->largest;
    return true;
}

static void destroy(model *m)
{
    muonium_destroy(m->optimizer);
    for (size_t i = 0; i < m->arrays; i++) {
        free(m->memory[i]);
    }
}

typedef struct stepping {
    model *model;
    muonium_status status;
} stepping;

static void step(void *context)
{
    stepping *s = context;
    muonium_status status = muonium_step(s->model->optimizer);
    s->status = s->status == MUONIUM_OK ? status : s->status;
}

/* What a step must move at least, in f32: Muon reads gradient, momentum and parameter and
 * writes the last two; AdamW has two moments. Checking all gradients before anything is
 * written reads them once more. */
static double least_bytes(const model *m, bool checked)
{
    double muon = (double)m->muon_elements, adam = (double)m->elements - muon;
    return muon * 20 + adam * 28 + (checked ? 4 * (muon + adam) : 0);
}

static bool measure_steps(bench *b, model *m, const char *name, muonium_shape shape, bool checked,
                          double *seconds)
{
    muonium_counters counters;
    stepping s = {m, MUONIUM_OK};
    *seconds = measure_best(step, &s, b->budget);
    if (s.status != MUONIUM_OK || muonium_count(m->optimizer, &counters) != MUONIUM_OK) {
        return false;
    }
    bench_record(b, (bench_row){.name = name,
                                .shape = shape,
                                .seconds = *seconds,
                                .flops = counters.flops,
                                .bytes = least_bytes(m, checked),
                                .scratch = m->largest >= LARGE
                                               ? (double)counters.scratch_bytes /
                                                     (double)(m->largest * sizeof(float))
                                               : 0});
    return true;
}

/* ---- single parameters ---- */

static bool bench_single(bench *b, const char *name, muonium_route route, muonium_adam_kind adam,
                         bool checked, size_t rows, size_t cols, double *seconds)
{
    model m = {0};
    muonium_options options;
    muonium_options_init(&options, NULL);
    options.route = route;
    options.adam = adam;
    options.plan.nonfinite = checked ? MUONIUM_NONFINITE_ERROR : MUONIUM_NONFINITE_PROPAGATE;
    bool done = muonium_create(&options, &m.optimizer) == MUONIUM_OK &&
                add(&m, "w", rows, cols, 0) &&
                measure_steps(b, &m, name, (muonium_shape){1, rows, cols}, checked, seconds);
    destroy(&m);
    return done;
}

/* `count` matrices of 64 x 64: what each costs must not depend on how many there are. */
static bool bench_many(bench *b, size_t count)
{
    enum { SIDE = 64 };
    model m = {0};
    double seconds;
    muonium_options options;
    muonium_options_init(&options, NULL);
    options.route = MUONIUM_ROUTE_MUON;
    bool done = muonium_create(&options, &m.optimizer) == MUONIUM_OK;
    float *data = malloc(2 * count * SIDE * SIDE * sizeof *data);
    if (!data) {
        muonium_destroy(m.optimizer);
        return false;
    }
    m.memory[m.arrays++] = data;
    filled(data, 2 * count * SIDE * SIDE);
    for (size_t i = 0; done && i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%zu", i);
        muonium_tensor tensor = {.name = name,
                                 .ndim = 2,
                                 .shape = {SIDE, SIDE},
                                 .dtype = MUONIUM_F32,
                                 .data = data + 2 * i * SIDE * SIDE,
                                 .grad = data + (2 * i + 1) * SIDE * SIDE};
        done = muonium_add(m.optimizer, &tensor, NULL) == MUONIUM_OK;
    }
    m.elements = m.muon_elements = count * SIDE * SIDE;
    done = done &&
           measure_steps(b, &m, "muon step", (muonium_shape){count, SIDE, SIDE}, true, &seconds);
    destroy(&m);
    return done;
}

bool bench_optimizer(bench *b)
{
    enum { ROWS = 4096, COLS = 4096 };
    double seconds, alone = 0;
    bool done =
        bench_many(b, 10) && bench_many(b, 100) && bench_many(b, 1000) && bench_many(b, 10000) &&
        bench_single(b, "adamw", MUONIUM_ROUTE_ADAM, MUONIUM_ADAMW, false, ROWS, COLS, &seconds) &&
        bench_single(b, "nadamw", MUONIUM_ROUTE_ADAM, MUONIUM_NADAMW, false, ROWS, COLS,
                     &seconds) &&
        bench_single(b, "adamw, checked", MUONIUM_ROUTE_ADAM, MUONIUM_ADAMW, true, ROWS, COLS,
                     &seconds) &&
        bench_single(b, "muon step", MUONIUM_ROUTE_MUON, MUONIUM_ADAMW, true, 768, 3072, &seconds);
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        if (strcmp(r->name, "orthogonalize") == 0 && r->shape.batch == 1 && r->shape.rows == 768 &&
            r->shape.cols == 3072) {
            alone = r->seconds;
        }
    }
    b->overhead = done && alone > 0 ? seconds / alone - 1 : 0;
    return done;
}

/* ---- GPT-2 ---- */

enum { LAYERS = 12, WIDTH = 768, TOKENS = 50257, CONTEXT = 1024 };

static bool make_gpt2(model *m, const muonium_options *options)
{
    bool done = muonium_create(options, &m->optimizer) == MUONIUM_OK &&
                add(m, "wte", TOKENS, WIDTH, 0) && add(m, "wpe", CONTEXT, WIDTH, 0);
    for (int layer = 0; done && layer < LAYERS; layer++) {
        const struct {
            const char *name;
            size_t rows, cols, heads;
        } matrices[] = {
            {"attn.qkv", 3 * WIDTH, WIDTH, 3},
            {"attn.proj", WIDTH, WIDTH, 0},
            {"mlp.fc", 4 * WIDTH, WIDTH, 0},
            {"mlp.proj", WIDTH, 4 * WIDTH, 0},
            {"ln_1", 2, WIDTH, 0},
            {"ln_2", 2, WIDTH, 0},
        };
        for (size_t i = 0; done && i < sizeof matrices / sizeof matrices[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "h.%d.%s", layer, matrices[i].name);
            done = add(m, name, matrices[i].rows, matrices[i].cols, matrices[i].heads);
        }
    }
    return done;
}

bool bench_gpt2(bench *b)
{
    static model m;
    double seconds;
    bool done = make_gpt2(&m, NULL);
    done = done && measure_steps(b, &m, "gpt2-124m step",
                                 (muonium_shape){1, m.elements / WIDTH, WIDTH}, true, &seconds);
    destroy(&m);
    memset(&m, 0, sizeof m);
    return done;
}

bool bench_recipe(bench *b, const muonium_options *options, bench_recipe_figures *figures)
{
    static model m;
    muonium_counters counters;
    stepping s = {&m, MUONIUM_OK};
    bool done = make_gpt2(&m, options);
    if (done) {
        figures->seconds = measure_best(step, &s, b->budget);
        done = s.status == MUONIUM_OK && muonium_count(m.optimizer, &counters) == MUONIUM_OK;
    }
    if (done) {
        double muon = (double)m.muon_elements, adam = (double)m.elements - muon;
        double state = (double)counters.state_bytes;
        figures->state = state;
        figures->flops = counters.flops;
        /* Gradients are read twice, weights and state read and written. */
        figures->bytes = 16 * (muon + adam) + 2 * state;
    }
    destroy(&m);
    memset(&m, 0, sizeof m);
    return done;
}
