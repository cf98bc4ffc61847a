/*
 * tiles.c: the rate of the f32 micro-kernel alone, by k: how much of the peak remains after calls,
 * stores and the ends of loops. Operands are in the L1 cache, or partly in L2 if k is above 100.
 */
#include "base/base.h"
#include "bench.h"
#include "matmul/kernel.h"

enum { DOWN = 4, REPEATS = 64, LONGEST = 512, GAP = 16 };

/* How operands lie: packed, the left one as a matrix, both as matrices. */
static const struct layout {
    const char *name;
    bool unpacked_left, unpacked_right;
} layouts[] = {{"tile, packed", false, false},
               {"tile, A unpacked", true, false},
               {"tile, unpacked", true, true}};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct tiles {
    const mu_kernel *kernel;
    const struct layout *layout;
    size_t k;
    float *a, *b, *c; /* c for each thread */
} tiles;

/* DOWN tiles one below the other, again and again. */
static void run_worker(void *context, size_t index, unsigned worker)
{
    const tiles *t = context;
    const mu_kernel *kernel = t->kernel;
    ptrdiff_t mr = (ptrdiff_t)kernel->mr, nr = (ptrdiff_t)kernel->nr, row = LONGEST + GAP;
    ptrdiff_t a_row = t->layout->unpacked_left ? row : 1, a_k = t->layout->unpacked_left ? 1 : mr;
    ptrdiff_t b_k = t->layout->unpacked_right ? nr + GAP : nr, ldc = nr + GAP;
    ptrdiff_t next = t->layout->unpacked_left ? mr * row : mr * (ptrdiff_t)t->k;
    size_t kc = t->k < kernel->kc ? t->k : kernel->kc;
    float *c = t->c + (ptrdiff_t)index * DOWN * mr * ldc;
    (void)worker;
    for (int r = 0; r < REPEATS; r++) {
        for (ptrdiff_t i = 0; i < DOWN; i++) {
            kernel->tile(t->k, kc, t->a + i * next, a_row, a_k, t->b, b_k, c + i * mr * ldc, ldc,
                         kernel->mr, kernel->nr, false);
        }
    }
}

static void run_all(void *context)
{
    mu_pool_run(run_worker, context, mu_pool_workers(), mu_pool_workers());
}

bool bench_tiles(bench *b)
{
    static const size_t lengths[] = {32, 64, 96, 128, 256, LONGEST};
    tiles t[LAYOUTS];
    const mu_kernel *kernel;
    if (mu_kernel_choose(MUONIUM_F32, &kernel) != MUONIUM_OK) {
        return false;
    }
    size_t mr = kernel->mr, nr = kernel->nr, workers = mu_pool_workers();
    float *a = bench_filled(DOWN * mr, LONGEST + GAP), *right = bench_filled(LONGEST, nr + GAP);
    float *c = bench_filled(workers * DOWN * mr, nr + GAP);
    for (size_t l = 0; a && right && c && l < sizeof lengths / sizeof lengths[0]; l++) {
        measurement times[LAYOUTS];
        for (size_t i = 0; i < LAYOUTS; i++) {
            t[i] = (tiles){kernel, &layouts[i], lengths[l], a, right, c};
            times[i] = (measurement){run_all, &t[i], 0};
        }
        measure_in_turns(times, LAYOUTS, b->budget);
        for (size_t i = 0; i < LAYOUTS; i++) {
            double flops = 2.0 * (double)(mr * nr * lengths[l]) * DOWN * REPEATS * (double)workers;
            bench_record_flops(b, layouts[i].name, (muonium_shape){mr, lengths[l], nr}, flops,
                               times[i].best);
        }
    }
    bool done = a && right && c;
    mu_free(a);
    mu_free(right);
    mu_free(c);
    return done || mu_fail(MUONIUM_NO_MEMORY, "no memory for the tiles") == MUONIUM_OK;
}
