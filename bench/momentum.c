/*
 * momentum.c: the pass of a step that reads gradients, updates the momentum and writes directions,
 * without all that follows it. Momentum of each type has its turn in every round.
 */
#include <stdlib.h>

#include "bench.h"
#include "optimizer/muon.h"

/* The long matrices of GPT-2 124M, each with a gradient and momentum of its own: more than a cache
 * holds. */
enum { MATRICES = 12, ROWS = 3072, COLS = 768, ELEMENTS = ROWS * COLS };

/* One optimizer per type, on the same weights and gradients. */
typedef struct pass {
    muonium_optimizer *optimizer;
} pass;

static const struct {
    const char *name;
    muonium_dtype dtype;
    bool stochastic;
    double bytes;
} types[BENCH_MOMENTA] = {{"f32", MUONIUM_F32, false, 8},
                          {"bf16", MUONIUM_BF16, false, 4},
                          {"int8", MUONIUM_INT8, false, 2},
                          {"int8 at random", MUONIUM_INT8, true, 2}};

static muonium_status make(pass *p, size_t type, float *memory)
{
    muonium_options options;
    muonium_options_init(&options, NULL);
    options.state_dtype = types[type].dtype;
    options.state_stochastic = types[type].stochastic;
    muonium_status status = muonium_create(&options, &p->optimizer);
    for (size_t i = 0; status == MUONIUM_OK && i < MATRICES; i++) {
        muonium_tensor tensor = {.ndim = 2,
                                 .shape = {ROWS, COLS},
                                 .data = memory + 2 * i * ELEMENTS,
                                 .grad = memory + (2 * i + 1) * ELEMENTS};
        status = muonium_add(p->optimizer, &tensor, NULL);
    }
    return status == MUONIUM_OK ? muonium_step(p->optimizer) : status;
}

static void run(void *context)
{
    const pass *p = context;
    const mu_schedule *schedule = p->optimizer->schedule;
    const mu_class *of = &schedule->classes[0];
    mu_batch b = {.schedule = schedule,
                  .of = of,
                  .scratch = mu_scratch_of(schedule, of, 0),
                  .count = 1,
                  .row_tasks = (of->longer + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK};
    for (size_t i = 0; i < of->count; i++) {
        b.scratch.batch[0] = of->members[i];
        mu_gather(&b, 1);
    }
}

bool bench_momentum(bench *b, bench_momentum_figures figures[BENCH_MOMENTA])
{
    float *memory = bench_filled((size_t)2 * MATRICES * ROWS, COLS);
    pass passes[BENCH_MOMENTA] = {{NULL}};
    measurement turns[BENCH_MOMENTA];
    muonium_status status = memory ? MUONIUM_OK : mu_fail(MUONIUM_NO_MEMORY, "no memory");
    for (size_t i = 0; status == MUONIUM_OK && i < BENCH_MOMENTA; i++) {
        status = make(&passes[i], i, memory);
        turns[i] = (measurement){run, &passes[i], 0};
    }
    if (status == MUONIUM_OK) {
        measure_in_turns(turns, BENCH_MOMENTA, b->budget);
    }
    for (size_t i = 0; i < BENCH_MOMENTA; i++) {
        figures[i] = (bench_momentum_figures){
            types[i].name, status == MUONIUM_OK ? turns[i].best : 0, types[i].bytes};
        muonium_destroy(passes[i].optimizer);
    }
    mu_free(memory);
    return status == MUONIUM_OK;
}
