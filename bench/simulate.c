/*
 * simulate.c: see simulate.h. A step is recorded on one core (recording.c), and replay.c plays its
 * schedule on P workers.
 */
#include "simulate.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "measure.h"
#include "models.h"
#include "recording.h"

enum { MOST_CORES = 16, MOST_ROUNDS = 12, MOST_REAL_CORES = 2 };

/* What a socket of 64 cores reads and writes per second: eight channels of DDR5-4800. */
static const double socket_bandwidth = 300e9, socket_cores = 64;

/* A prediction is valid if it is as near as this to the measured time. */
static const double tolerance = 0.10;

/* ---- the pool ---- */

typedef struct meeting {
    unsigned threads;
    atomic_uint present;
} meeting;

/* Wait until all threads of the run are here; not forever, as some may not exist. One that does not
 * come at once may need this CPU. */
static void meet(void *context, size_t index, unsigned worker)
{
    meeting *m = context;
    (void)index;
    (void)worker;
    atomic_fetch_add(&m->present, 1);
    double start = seconds_now(), waited = 0;
    while (atomic_load(&m->present) < m->threads && waited < 0.05) {
        waited = seconds_now() - start;
        if (waited > 10e-6) {
            sched_yield();
        }
    }
}

/* The shortest time of a run in which all threads meet: for starting and ending it. 0: there are
 * not so many threads. */
static double run_cost(unsigned threads, bool rested, double budget)
{
    meeting m = {.threads = threads};
    double best = 1e30, start = seconds_now();
    if (muonium_set_threads((int)threads) != MUONIUM_OK) {
        return 0;
    }
    for (int i = 0; i < 4 || seconds_now() - start < budget; i++) {
        if (rested) {
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        }
        atomic_store(&m.present, 0);
        double begin = seconds_now();
        mu_pool_run(meet, &m, threads, threads);
        double time = seconds_now() - begin;
        best = i > 0 && time < best ? time : best; /* the first one starts the threads */
    }
    return best;
}

enum { RUN_COSTS = 6 }; /* of 2, 4, ... 64 threads */

typedef struct pool_costs {
    double spinning[RUN_COSTS], rested[RUN_COSTS];
} pool_costs;

static pool_costs measure_pool(void)
{
    pool_costs c;
    for (int i = 0; i < RUN_COSTS; i++) {
        c.spinning[i] = run_cost(2u << i, false, i == 0 ? 0.5 : 0.1);
        c.rested[i] = run_cost(2u << i, true, i == 0 ? 0.5 : 0.1);
    }
    return c;
}

static void print_pool(const pool_costs *c, unsigned cpus, bool json)
{
    printf(json ? "{\"runs\": [" : "cost of a run of the pool: of spinning, of sleeping threads\n");
    for (int i = 0; i < RUN_COSTS; i++) {
        unsigned threads = 2u << i;
        if (json) {
            printf("%s{\"threads\": %u, \"microseconds\": %.3f, \"from_sleep\": %.3f, "
                   "\"oversubscribed\": %s}",
                   i > 0 ? ", " : "", threads, 1e6 * c->spinning[i], 1e6 * c->rested[i],
                   threads > cpus ? "true" : "false");
        } else {
            printf("  %2u threads  %9.2f us  %9.2f us%s\n", threads, 1e6 * c->spinning[i],
                   1e6 * c->rested[i], threads > cpus ? "  (more threads than CPUs)" : "");
        }
    }
    printf(json ? "]" : "\n");
}

/* ---- the machine ---- */

typedef struct here {
    unsigned cpus;
    replay_machine machine;       /* what does not depend on the number of cores */
    double copy[MOST_REAL_CORES]; /* bytes per second of so many threads */
    double slowdown;              /* of a piece, if a second core works too */
} here;

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

static here look_around(const pool_costs *costs)
{
    enum { TURNS = 6 };
    const double transfer = 100e-9; /* of a cache line, where it cannot be measured */
    here h = {.slowdown = 1};
    double peak[MOST_REAL_CORES] = {0}, trip = 0, run = costs->spinning[0];
    muonium_set_threads(0);
    h.cpus = (unsigned)muonium_threads();
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < MOST_REAL_CORES; i++) {
            muonium_set_threads(i + 1);
            h.copy[i] = greater(h.copy[i], measure_copy(0.05));
            peak[i] = greater(peak[i], measure_peak(MUONIUM_F32, 0.03));
        }
        run = lesser(run, run_cost(2, false, 0.1)); /* both threads must have a CPU */
        double found = measure_round_trip();
        trip = trip > 0 && found > trip ? trip : found;
    }
    if (h.cpus > 1 && peak[1] > 0) {
        h.slowdown = greater(1, 2 * peak[0] / peak[1]);
    }
    replay_machine *m = &h.machine;
    m->spin = MU_JOB_SPIN_NANOSECONDS * 1e-9;
    m->handover = h.cpus > 1 ? run : 1e-6;
    m->per_worker = trip > 0 && trip < 2e-6 ? trip / 2 : transfer;
    m->wakeup = greater(costs->rested[0], m->handover);
    m->per_sleeper = (costs->rested[RUN_COSTS - 1] - m->wakeup) / ((2u << (RUN_COSTS - 1)) - 2);
    m->per_sleeper = greater(m->per_sleeper, m->per_worker);
    return h;
}

static void print_machine(const here *h, bool json)
{
    const replay_machine *m = &h->machine;
    if (json) {
        printf(",\n \"machine\": {\"cpus\": %u, \"handover\": %.4g, \"per_worker\": %.4g, "
               "\"wakeup\": %.4g, \"per_sleeper\": %.4g, \"copy\": [%.4g, %.4g], "
               "\"slowdown_of_two\": %.4f}",
               h->cpus, m->handover, m->per_worker, m->wakeup, m->per_sleeper, h->copy[0],
               h->copy[1], h->slowdown);
        return;
    }
    printf("waiting workers start after %.2f us and %.3f us for each further one;\n"
           "from sleep after %.1f us and %.2f us; copy of one core %.1f GB/s, of two %.1f GB/s;\n"
           "each of two cores computes at %.0f %% of the speed of one\n\n",
           1e6 * m->handover, 1e6 * m->per_worker, 1e6 * m->wakeup, 1e6 * m->per_sleeper,
           h->copy[0] / 1e9, h->copy[1] / 1e9, 100 / h->slowdown);
}

/* Up to two cores this machine, as measured; beyond, a server with as much as it has per core. */
static replay_machine machine_of(const here *h, unsigned cores)
{
    double sockets = (double)(unsigned)((cores + socket_cores - 1) / socket_cores);
    replay_machine m = h->machine;
    m.workers = cores;
    /* What one core takes was recorded. */
    m.bandwidth = cores == 1 ? 1e30 : cores == 2 ? h->copy[1] : socket_bandwidth * sockets;
    m.slowdown = cores == 2 ? h->slowdown : 1;
    return m;
}

/* ---- predictions ---- */

typedef struct prediction {
    replay_result found;
    size_t scratch;
    double measured;   /* seconds; 0: not measured */
    double difference; /* of prediction and measurement of the same moment, the median */
} prediction;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Seconds of a step: on one core of the thread, so that other programs do not count. */
static double time_step(muonium_optimizer *optimizer, unsigned cores)
{
    double start = cores > 1 ? seconds_now() : thread_seconds();
    muonium_step(optimizer);
    return (cores > 1 ? seconds_now() : thread_seconds()) - start;
}

/* Record and replay a step several times. `real`: after each time measure it too, so that both meet
 * the same state of the machine. */
static bool predict(model *m, const model_shape *shape, unsigned cores, const here *h, bool real,
                    prediction *made)
{
    const double patience = 1.5;    /* seconds */
    const int least = real ? 3 : 1; /* besides the first */
    static recorder rec, again;
    double ratios[MOST_ROUNDS], times[MOST_ROUNDS];
    replay_machine machine = machine_of(h, cores);
    bool done = recording_make(m->optimizer, shape->copies, cores, &rec); /* touches the memory */
    double start = seconds_now();
    size_t rounds = 0;
    while (done &&
           ((int)rounds < least || (rounds < MOST_ROUNDS && seconds_now() - start < patience))) {
        done = recording_make(m->optimizer, shape->copies, cores, &again) &&
               replay(&again.r, &machine, &made->found);
        if (done) {
            times[rounds] = real ? time_step(m->optimizer, cores) : 1;
            ratios[rounds] = made->found.seconds / times[rounds];
            rounds++;
            recording_keep_best(&rec.r, &again.r);
        }
        replay_free(&again.r);
    }
    done = done && replay(&rec.r, &machine, &made->found);
    made->measured = done && real ? median(times, rounds) : 0;
    made->difference = done && real ? median(ratios, rounds) - 1 : 0;
    made->found.teams = rec.r.teams;
    made->found.width = rec.r.width;
    made->scratch = done ? rec.schedule->bytes : 0;
    replay_free(&rec.r);
    return done;
}

/* What one core would take: the least that was recorded, also in the division for many. */
static double seconds_of_one(const replay_result *one, const replay_result *many)
{
    return lesser(one->seconds, many->busy);
}

static const char *limit_of(const replay_result *found, const replay_result *one, unsigned cores)
{
    double lost[] = {found->idle, found->barriers, found->stalled, found->busy - one->busy};
    static const char *const names[] = {"span", "barriers", "bandwidth", "smaller tasks"};
    size_t worst = 0;
    for (size_t i = 1; i < 4; i++) {
        worst = lost[i] > lost[worst] ? i : worst;
    }
    return lost[worst] > 0.01 * found->seconds * cores ? names[worst] : "nothing";
}

static void print_prediction(const model_shape *shape, unsigned cores, const prediction *made,
                             const replay_result *one, bool json, bool first)
{
    const replay_result *found = &made->found;
    double all = found->seconds * cores, share = seconds_of_one(one, found) / all;
    const char *limit = limit_of(found, one, cores);
    bool valid = made->difference < tolerance && made->difference > -tolerance;
    if (json) {
        printf("%s\n  {\"model\": \"%s\", \"cores\": %u, \"seconds\": %.6g, \"efficiency\": %.4f, "
               "\"limit\": \"%s\", \"span\": %.4f, \"barriers\": %.4f, \"bandwidth\": %.4f, "
               "\"teams\": %u, \"width\": %u, \"scratch_bytes\": %zu",
               first ? "" : ",", shape->name, cores, found->seconds, share, limit,
               found->idle / all, found->barriers / all, found->stalled / all, found->teams,
               found->width, made->scratch);
        if (made->measured > 0) {
            printf(", \"measured\": %.6g, \"difference\": %.4f, \"validated\": %s", made->measured,
                   made->difference, valid ? "true" : "false");
        }
        printf("}");
        fflush(stdout);
        return;
    }
    printf("  %-15s %4u  %10.2f ms  %5.1f %%  %4u x %-4u %8.1f MB  %s", shape->name, cores,
           1e3 * found->seconds, 100 * share, found->teams, found->width,
           (double)made->scratch / 1e6, limit);
    if (made->measured > 0) {
        printf("  (measured %.2f ms; validated: %s, %+.1f %%)", 1e3 * made->measured,
               valid ? "yes" : "no", 100 * made->difference);
    }
    printf("\n");
    fflush(stdout);
}

/* `whole`: all layers are in memory, so that the step can be measured too. */
static bool simulate_model(const model_shape *shape, const unsigned *cores, size_t count,
                           const here *h, bool whole, bool json, bool first)
{
    static model m;
    prediction one, made;
    bool done = model_make(&m, shape) && predict(&m, shape, 1, h, whole, &one);
    for (size_t i = 0; done && i < count; i++) {
        made = one;
        if (cores[i] > 1) {
            bool real = whole && cores[i] <= h->cpus && cores[i] <= MOST_REAL_CORES;
            done = predict(&m, shape, cores[i], h, real, &made);
        }
        if (done) {
            print_prediction(shape, cores[i], &made, &one.found, json, first && i == 0);
        }
    }
    model_destroy(&m);
    return done;
}

/* ---- twice as many threads as CPUs ---- */

/* Steps in turns with as many threads as CPUs and with twice as many: the median of the ratios. */
static bool crowd_model(const model_shape *shape, const here *h, bool json, bool first)
{
    enum { ROUNDS = 9, LEAST = 3 };
    const double patience = 3; /* seconds */
    static model m;
    double times[2][ROUNDS], ratios[ROUNDS];
    bool done = model_make(&m, shape);
    size_t rounds = 0;
    double begin = seconds_now();
    while (done && (rounds < LEAST || (rounds < ROUNDS && seconds_now() - begin < patience))) {
        for (unsigned crowded = 0; crowded < 2; crowded++) {
            muonium_set_threads((int)(h->cpus << crowded));
            done = done && muonium_step(m.optimizer) == MUONIUM_OK; /* makes the schedule */
            double start = seconds_now();
            done = done && muonium_step(m.optimizer) == MUONIUM_OK;
            times[crowded][rounds] = seconds_now() - start;
        }
        ratios[rounds] = times[1][rounds] / times[0][rounds];
        rounds++;
    }
    model_destroy(&m);
    if (!done) {
        return false;
    }
    double ratio = median(ratios, rounds), alone = median(times[0], rounds);
    if (json) {
        printf("%s\n  {\"model\": \"%s\", \"threads\": %u, \"seconds\": %.6g, "
               "\"ratio_of_twice\": %.4f}",
               first ? "" : ",", shape->name, h->cpus, alone, ratio);
    } else {
        printf("  %-15s %4u threads %10.2f ms, %u threads %+.1f %%\n", shape->name, h->cpus,
               1e3 * alone, 2 * h->cpus, 100 * (ratio - 1));
    }
    return true;
}

/* ---- the command ---- */

static size_t read_cores(const char *list, unsigned *cores)
{
    size_t count = 0;
    for (const char *at = list; count < MOST_CORES;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (end == at || number < 1 || number > 1024 || (*end != '\0' && *end != ',')) {
            return 0;
        }
        cores[count++] = (unsigned)number;
        if (*end == '\0') {
            return count;
        }
        at = end + 1;
    }
    return 0;
}

bool simulate_cores(const char *list, bool quick, bool json, const char **why)
{
    unsigned cores[MOST_CORES];
    size_t count = read_cores(list, cores);
    if (count == 0) {
        *why = "cores is no list of up to 16 numbers from 1 to 1024, such as 8,16,32,64,128";
        return false;
    }
    pool_costs costs = measure_pool();
    here h = look_around(&costs);
    print_pool(&costs, h.cpus, json);
    print_machine(&h, json);
    printf(json ? ",\n \"twice_the_threads\": [" : "steps with twice as many threads as CPUs\n");
    bool done = true, first = true;
    for (size_t i = 0; done && i < model_count; i++) {
        if (model_shapes[i].copies == 1 && (!quick || model_shapes[i].layers == 1) &&
            model_shapes[i].quick) {
            done = crowd_model(&model_shapes[i], &h, json, first);
            first = false;
        }
    }
    printf(json ? "],\n \"steps\": ["
                : "\npredicted steps: cores, time, efficiency, teams x workers, scratch, limit\n");
    first = true;
    for (size_t i = 0; done && i < model_count; i++) {
        if (!quick || model_shapes[i].quick) {
            bool whole = model_shapes[i].copies == 1 && (!quick || model_shapes[i].layers == 1);
            done = simulate_model(&model_shapes[i], cores, count, &h, whole, json, first);
            first = false;
        }
    }
    if (json) {
        printf("]}\n");
    }
    muonium_set_threads(0);
    *why = done ? NULL : *muonium_last_error() ? muonium_last_error() : "no memory for the model";
    return done;
}
