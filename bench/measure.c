/*
 * measure.c: see measure.h.
 */
#include "measure.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "matmul/int8.h"
#include "matmul/kernel.h"

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void measure_in_turns(measurement *all, size_t count, double budget)
{
    enum { LEAST = 3 };
    double limit = (double)count * (8 * budget + 0.2), begin = seconds_now();
    for (size_t i = 0; i < count; i++) {
        all[i].run(all[i].context);
        all[i].best = 1e30;
    }
    double start = seconds_now(), before = start;
    for (int turn = 0; turn == 0 || before - start < (double)count * budget ||
                       (turn < LEAST && before - begin < limit);
         turn++) {
        for (size_t i = 0; i < count; i++) {
            all[i].run(all[i].context);
            double after = seconds_now();
            all[i].best = after - before < all[i].best ? after - before : all[i].best;
            before = after;
        }
    }
}

double measure_best(measured *run, void *context, double budget)
{
    measurement one = {run, context, 0};
    measure_in_turns(&one, 1, budget);
    return one.best;
}

/* ---- peak ---- */

typedef struct burst_run {
    const mu_kernel *kernel;
    double flops[1024]; /* per worker: muonium_set_threads allows no more */
} burst_run;

static void burst_task(void *context, size_t index, unsigned worker)
{
    burst_run *burst = context;
    (void)worker;
    burst->flops[index] = mu_kernel_burst(burst->kernel, 1 << 16);
}

static void burst_all(void *context)
{
    mu_pool_run(burst_task, context, mu_pool_workers(), mu_pool_workers());
}

double measure_peak(muonium_dtype type, double budget)
{
    static burst_run burst;
    if (mu_kernel_choose(type, &burst.kernel) != MUONIUM_OK || burst.kernel->operands != type) {
        return 0;
    }
    double seconds = measure_best(burst_all, &burst, budget), flops = 0;
    for (unsigned i = 0; i < mu_pool_workers(); i++) {
        flops += burst.flops[i];
    }
    return flops / seconds;
}

enum {
    DIGITS = 3,
    PRODUCTS_OF_DIGITS = 6, /* of A_p B_q with p + q < 3 */
    GROUPS = 32,            /* words per line: both operands and the sums fit L1 */
    MOST_LINES = 32,
    TILE_ROUNDS = 64
};

typedef struct int8_run {
    const mu_int8_kernel *kernel;
    _Alignas(64) int8_t a[DIGITS * 4 * GROUPS * MOST_LINES], b[DIGITS * 4 * GROUPS * MOST_LINES];
    int32_t start[MU_SUMS * MOST_LINES];
} int8_run;

static void int8_task(void *context, size_t index, unsigned worker)
{
    const int8_run *run = context;
    _Alignas(64) int32_t sums[MU_SUMS * MOST_LINES * MOST_LINES];
    const mu_meanwhile nothing = {.end = NULL};
    (void)index;
    (void)worker;
    if (run->kernel->enter) {
        run->kernel->enter();
    }
    for (int i = 0; i < TILE_ROUNDS; i++) {
        run->kernel->tile(DIGITS, GROUPS, run->a, run->b, run->start, sums, &nothing);
    }
    if (run->kernel->leave) {
        run->kernel->leave();
    }
}

static void int8_all(void *context)
{
    mu_pool_run(int8_task, context, mu_pool_workers(), mu_pool_workers());
}

double measure_int8_peak(double budget)
{
    static int8_run run;
    uint32_t state = 1;
    if (mu_int8_choose(&run.kernel) != MUONIUM_OK) {
        return 0;
    }
    for (size_t i = 0; i < sizeof run.a; i++) {
        state = state * 1664525u + 1013904223u;
        run.a[i] = (int8_t)((int)(state >> 24) - 128);
        run.b[i] = (int8_t)((int)(state >> 16 & 255) - 128);
    }
    double tile = 2.0 * PRODUCTS_OF_DIGITS * 4 * GROUPS * (double)(run.kernel->mr * run.kernel->nr);
    return tile * TILE_ROUNDS * mu_pool_workers() / measure_best(int8_all, &run, budget);
}

/* ---- copy ---- */

enum { COPY_PIECE = 1 << 20, COPY_PIECES = 64 };

typedef struct copy_run {
    char *from, *to;
} copy_run;

static void copy_task(void *context, size_t index, unsigned worker)
{
    copy_run *copy = context;
    (void)worker;
    /* A plain loop that the compiler vectorises: what element-wise code can hope for. */
    const double *restrict from = (const double *)(void *)(copy->from + index * COPY_PIECE);
    double *restrict to = (double *)(void *)(copy->to + index * COPY_PIECE);
    for (size_t i = 0; i < COPY_PIECE / sizeof(double); i++) {
        to[i] = from[i];
    }
    __asm__ volatile("" ::: "memory"); /* not to be turned into nothing */
}

static void copy_all(void *context)
{
    mu_pool_run(copy_task, context, COPY_PIECES, mu_pool_workers());
}

double measure_copy(double budget)
{
    size_t bytes = (size_t)COPY_PIECE * COPY_PIECES;
    copy_run copy = {malloc(bytes), malloc(bytes)};
    double rate = 0;
    if (copy.from && copy.to) {
        memset(copy.from, 1, bytes);
        memset(copy.to, 2, bytes);
        rate = 2 * (double)bytes / measure_best(copy_all, &copy, budget);
    }
    free(copy.from);
    free(copy.to);
    return rate;
}

/* ---- round trip ---- */

enum { ROUND_TRIPS = 1000, OVER = -1 };

/* At most: threads that share a CPU take a slice each way. */
static const double rally_seconds = 0.05;

typedef struct rally {
    _Alignas(128) atomic_int ball; /* even: the caller's */
    double best;
} rally;

/* False if the other never comes: the pool may give both ends to one thread. */
static bool wait_for(atomic_int *ball, int value)
{
    for (double start = seconds_now(); atomic_load(ball) != value;) {
        if (atomic_load(ball) == OVER || seconds_now() - start > 0.1) {
            return false;
        }
    }
    return true;
}

static void rally_task(void *context, size_t index, unsigned worker)
{
    rally *r = context;
    (void)worker;
    for (int i = 0; i < ROUND_TRIPS && index == 1 && wait_for(&r->ball, 2 * i + 1); i++) {
        atomic_store(&r->ball, 2 * i + 2);
    }
    double start = seconds_now(), before = start;
    for (int i = 0; i < ROUND_TRIPS && index == 0 && before - start < rally_seconds; i++) {
        atomic_store(&r->ball, 2 * i + 1);
        if (!wait_for(&r->ball, 2 * i + 2)) {
            break;
        }
        double after = seconds_now();
        r->best = r->best == 0 || after - before < r->best ? after - before : r->best;
        before = after;
    }
    if (index == 0) {
        atomic_store(&r->ball, OVER);
    }
}

double measure_round_trip(void)
{
    rally r = {.best = 0};
    if (mu_pool_workers() > 1) {
        mu_pool_run(rally_task, &r, 2, 2);
    }
    return r.best;
}
