/*
 * simulate.c: see simulate.h. A step is recorded on one core: the pool hands out the very runs that
 * it would hand out to P workers, one job of each kind, and each piece is timed. Then replay.c
 * plays the schedule on P workers.
 */
#include "simulate.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "optimizer/schedule.h"
#include "replay.h"

enum { MOST_CORES = 16, MOST_PARAMETERS = 1024, SAMPLES = 48 };

/* What a socket of 64 cores reads and writes per second: eight channels of DDR5-4800. */
static const double socket_bandwidth = 300e9, socket_cores = 64;

/* ---- models ---- */

typedef struct layer_matrix {
    size_t batch, rows, cols, heads; /* batch > 1: experts */
} layer_matrix;

typedef struct model_shape {
    const char *name;
    bool quick;
    size_t layers, copies; /* in memory, and how often each counts */
    size_t embedding_rows, width;
    layer_matrix matrices[4];
} model_shape;

static const model_shape models[] = {
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

typedef struct model {
    muonium_optimizer *optimizer;
    float *memory[MOST_PARAMETERS];
    size_t arrays;
} model;

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

static bool make(model *m, const model_shape *shape)
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
    if (done) {
        m->optimizer->modeled_copies = shape->copies;
    }
    return done;
}

static void destroy(model *m)
{
    muonium_destroy(m->optimizer);
    for (size_t i = 0; i < m->arrays; i++) {
        free(m->memory[i]);
    }
}

/* ---- recording ---- */

typedef enum phase { BEFORE, JOB, FILLER } phase;

typedef struct recorder {
    replay_recording r;
    const mu_schedule *schedule;
    size_t copies;
    phase phase;
    size_t first_run;     /* of the present job */
    double last, started; /* end of the last run; start of the present piece */
    size_t index;         /* of the present piece */
    size_t stride;        /* sampled pieces of long runs of chunks */
    double sampled;       /* seconds of all sampled pieces */
    size_t samples;       /* their number */
    const mu_class *kinds[256];
    size_t kind_counts[256], kind_jobs[256], kind_count;
    bool known;
} recorder;

static bool grow(void **array, size_t *room, size_t count, size_t bytes)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room > 0 ? 2 * *room : 1024;
    void *grown = realloc(*array, more * bytes);
    if (grown) {
        *array = grown;
        *room = more;
    }
    return grown != NULL;
}

static void add_piece(recorder *rec, double seconds)
{
    replay_recording *r = &rec->r;
    if (!grow((void **)&r->pieces, &r->piece_room, r->piece_count, sizeof *r->pieces)) {
        r->failed = true;
        return;
    }
    r->pieces[r->piece_count++] = seconds;
}

static bool is_muon(const recorder *rec, size_t chunk)
{
    return rec->schedule->chunks[chunk].parameter->muon;
}

static void on_run(void *context, mu_task *task, size_t count, unsigned workers)
{
    recorder *rec = context;
    replay_recording *r = &rec->r;
    rec->phase = task == mu_adam_chunk ? FILLER : rec->phase;
    if (!grow((void **)&r->runs, &r->run_room, r->run_count, sizeof *r->runs)) {
        r->failed = true;
        return;
    }
    r->runs[r->run_count++] =
        (replay_run){seconds_now() - rec->last, r->piece_count, 0, workers, 0};
    rec->stride = rec->phase != JOB && count > SAMPLES ? count / SAMPLES : 1;
    rec->sampled = 0;
    rec->samples = 0;
}

static bool on_piece(void *context, size_t index)
{
    recorder *rec = context;
    bool skip = rec->phase == FILLER && is_muon(rec, index);
    rec->index = index;
    if (!skip && rec->phase != JOB && index % rec->stride != 0) {
        size_t copies = is_muon(rec, index) ? rec->copies : 1;
        for (size_t i = 0; i < copies; i++) {
            add_piece(rec, -1); /* as long as the sampled ones */
        }
        skip = true;
    }
    rec->started = seconds_now();
    return !skip;
}

static void on_piece_end(void *context)
{
    recorder *rec = context;
    double time = seconds_now() - rec->started;
    size_t copies = rec->phase == BEFORE && is_muon(rec, rec->index) ? rec->copies : 1;
    rec->sampled += time;
    rec->samples++;
    for (size_t i = 0; i < copies; i++) {
        add_piece(rec, time);
    }
}

static void on_run_end(void *context)
{
    recorder *rec = context;
    replay_recording *r = &rec->r;
    replay_run *run = &r->runs[r->run_count - 1];
    run->count = r->piece_count - run->first;
    for (size_t i = run->first; i < r->piece_count; i++) {
        if (r->pieces[i] < 0) {
            r->pieces[i] = rec->samples > 0 ? rec->sampled / (double)rec->samples : 0;
        }
    }
    /* A chunk has at most 32 pieces of the optimizer's. The check reads gradients; AdamW reads and
     * writes parameter and moments. */
    double chunk = (double)rec->schedule->chunks[0].count;
    run->bytes = rec->phase == BEFORE ? 4 * chunk : rec->phase == FILLER ? 28 * chunk : 0;
    rec->last = seconds_now();
}

static void on_jobs(void *context, const mu_jobs *jobs)
{
    recorder *rec = context;
    rec->r.before = (replay_job){0, rec->r.run_count, seconds_now() - rec->last};
    rec->r.teams = jobs->teams;
    rec->r.width = jobs->width;
}

static bool on_job(void *context, size_t index)
{
    recorder *rec = context;
    replay_recording *r = &rec->r;
    const mu_batch_job *job = &rec->schedule->jobs[index];
    size_t kind = 0;
    while (kind < rec->kind_count &&
           (rec->kinds[kind] != job->of || rec->kind_counts[kind] != job->count)) {
        kind++;
    }
    rec->known = kind < rec->kind_count;
    if (!rec->known) {
        if (kind == sizeof rec->kinds / sizeof rec->kinds[0] ||
            !grow((void **)&r->jobs, &r->job_room, r->job_count, sizeof *r->jobs)) {
            r->failed = true;
            return false;
        }
        rec->kinds[kind] = job->of;
        rec->kind_counts[kind] = job->count;
        rec->kind_jobs[kind] = r->job_count;
        r->jobs[r->job_count++] = (replay_job){r->run_count, 0, 0};
        rec->kind_count++;
    }
    for (size_t i = 0; i < rec->copies; i++) {
        if (!grow((void **)&r->queue, &r->queue_room, r->queue_count, sizeof *r->queue)) {
            r->failed = true;
            return false;
        }
        r->queue[r->queue_count++] = rec->kind_jobs[kind];
    }
    rec->phase = JOB;
    rec->last = seconds_now();
    return !rec->known;
}

/* The first run of a job gathers: gradient, momentum twice, direction. The last one applies:
 * parameter twice, direction. */
static void on_job_end(void *context)
{
    recorder *rec = context;
    replay_recording *r = &rec->r;
    replay_job *job = &r->jobs[r->job_count - 1];
    const mu_class *of = rec->kinds[rec->kind_count - 1];
    job->count = r->run_count - job->first;
    job->tail = seconds_now() - rec->last;
    double elements = (double)of->m * (double)of->n * (double)rec->kind_counts[rec->kind_count - 1];
    if (job->count > 1) {
        replay_run *first = &r->runs[job->first], *last = &r->runs[r->run_count - 1];
        first->bytes = 16 * elements / (double)(first->count > 0 ? first->count : 1);
        last->bytes = 12 * elements / (double)(last->count > 0 ? last->count : 1);
    }
}

static void on_jobs_end(void *context)
{
    ((recorder *)context)->last = seconds_now();
}

static bool record(model *m, size_t copies, unsigned cores, recorder *rec)
{
    memset(rec, 0, sizeof *rec);
    rec->copies = copies;
    if (muonium_set_threads((int)cores) != MUONIUM_OK ||
        mu_schedule_make(m->optimizer) != MUONIUM_OK) {
        return false;
    }
    rec->schedule = m->optimizer->schedule;
    const mu_observer observer = {rec,     on_run, on_piece,   on_piece_end, on_run_end,
                                  on_jobs, on_job, on_job_end, on_jobs_end};
    rec->last = seconds_now();
    mu_pool_observe(&observer);
    muonium_status status = muonium_step(m->optimizer);
    mu_pool_observe(NULL);
    if (rec->phase == FILLER) {
        rec->r.filler = rec->r.runs[rec->r.run_count - 1];
    }
    return status == MUONIUM_OK && !rec->r.failed;
}

/* ---- the cost of the pool ---- */

typedef struct meeting {
    unsigned threads;
    bool crowded; /* more threads than CPUs */
    atomic_uint present;
} meeting;

/* Wait until all threads of the run are here; not forever, as some may not exist. */
static void meet(void *context, size_t index, unsigned worker)
{
    meeting *m = context;
    (void)index;
    (void)worker;
    atomic_fetch_add(&m->present, 1);
    double end = seconds_now() + 0.05;
    while (atomic_load(&m->present) < m->threads && seconds_now() < end) {
        if (m->crowded) {
            sched_yield();
        }
    }
}

static void run_meeting(void *context)
{
    meeting *m = context;
    atomic_store(&m->present, 0);
    mu_pool_run(meet, m, m->threads, m->threads);
}

/* Seconds of a run in which all threads meet once: for starting and ending it. */
static double run_cost(unsigned threads, unsigned cpus)
{
    meeting m = {.threads = threads, .crowded = threads > cpus};
    return muonium_set_threads((int)threads) == MUONIUM_OK ? measure_best(run_meeting, &m, 0.05)
                                                           : 0;
}

static unsigned processors(void)
{
    muonium_set_threads(0);
    return (unsigned)muonium_threads();
}

static void print_run_costs(unsigned cpus, bool json)
{
    printf(json ? "{\"runs\": [" : "cost of a run of the pool\n");
    for (unsigned threads = 2; threads <= 64; threads *= 2) {
        double cost = 1e6 * run_cost(threads, cpus);
        if (json) {
            printf("%s{\"threads\": %u, \"microseconds\": %.3f, \"oversubscribed\": %s}",
                   threads > 2 ? ", " : "", threads, cost, threads > cpus ? "true" : "false");
        } else {
            printf("  %2u threads  %9.2f us%s\n", threads, cost,
                   threads > cpus ? "  (more threads than CPUs)" : "");
        }
    }
    printf(json ? "],\n \"steps\": [" : "\n");
}

/* ---- predictions ---- */

static replay_machine machine_of(unsigned cores, double handover, const double *copy)
{
    double sockets = (double)(unsigned)((cores + socket_cores - 1) / socket_cores);
    /* Up to two cores this machine, measured; beyond, a server with as much as it has per core. */
    double bandwidth = cores <= 2 ? copy[cores - 1] : socket_bandwidth * sockets;
    double each = copy[0] * cores;
    replay_machine m = {cores, handover, 60e-9, each < bandwidth ? each : bandwidth};
    return m;
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

static void step_of(void *context)
{
    muonium_step(context);
}

static double measured_step(model *m, unsigned cores)
{
    muonium_set_threads((int)cores);
    return measure_best(step_of, m->optimizer, 1);
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* The lesser of the times of two recordings of the same step: noise only adds. */
static void keep_best(replay_recording *r, const replay_recording *other)
{
    bool same = r->piece_count == other->piece_count && r->run_count == other->run_count &&
                r->job_count == other->job_count;
    for (size_t i = 0; same && i < r->piece_count; i++) {
        r->pieces[i] = lesser(r->pieces[i], other->pieces[i]);
    }
    for (size_t i = 0; same && i < r->run_count; i++) {
        r->runs[i].gap = lesser(r->runs[i].gap, other->runs[i].gap);
    }
    for (size_t i = 0; same && i < r->job_count; i++) {
        r->jobs[i].tail = lesser(r->jobs[i].tail, other->jobs[i].tail);
    }
}

static bool predict(model *m, const model_shape *shape, unsigned cores, const double *copy,
                    double handover, replay_result *found, recorder *rec)
{
    enum { MOST_RECORDINGS = 12 };
    const double limit = 1.5; /* seconds */
    static recorder again;
    replay_machine machine = machine_of(cores, handover, copy);
    bool done = record(m, shape->copies, cores, rec); /* touches the memory first */
    double start = seconds_now();
    for (int i = 1; done && (i < 2 || (i < MOST_RECORDINGS && seconds_now() - start < limit));
         i++) {
        done = record(m, shape->copies, cores, &again);
        if (done) {
            keep_best(&rec->r, &again.r);
        }
        replay_free(&again.r);
    }
    done = done && replay(&rec->r, &machine, found);
    found->teams = rec->r.teams;
    found->width = rec->r.width;
    replay_free(&rec->r);
    return done;
}

static void print_prediction(const model_shape *shape, unsigned cores, const replay_result *found,
                             const replay_result *one, const recorder *rec, double real, bool json)
{
    double share = one->seconds / found->seconds / cores;
    const char *limit = limit_of(found, one, cores);
    static bool any;
    if (json) {
        printf("%s\n  {\"model\": \"%s\", \"cores\": %u, \"seconds\": %.6g, \"efficiency\": %.4f, "
               "\"limit\": \"%s\", \"teams\": %u, \"width\": %u, \"scratch_bytes\": %zu, "
               "\"measured\": %.6g}",
               any ? "," : "", shape->name, cores, found->seconds, share, limit, found->teams,
               found->width, rec->schedule->bytes, real);
        any = true;
        return;
    }
    printf("  %-15s %4u  %10.2f ms  %5.1f %%  %4u x %-4u %8.1f MB  %s", shape->name, cores,
           1e3 * found->seconds, 100 * share, found->teams, found->width,
           (double)rec->schedule->bytes / 1e6, limit);
    if (real > 0) {
        printf("  (measured %.2f ms, %+.1f %%)", 1e3 * real, 100 * (found->seconds / real - 1));
    }
    printf("\n");
    fflush(stdout);
}

static bool simulate_model(const model_shape *shape, const unsigned *cores, size_t count,
                           unsigned cpus, const double *copy, double handover, bool json)
{
    static model m;
    static recorder rec;
    replay_result one, found;
    bool done = make(&m, shape) && predict(&m, shape, 1, copy, handover, &one, &rec);
    for (size_t i = 0; done && i < count; i++) {
        done = predict(&m, shape, cores[i], copy, handover, &found, &rec);
        bool here = shape->copies == 1 && cores[i] <= cpus && cores[i] <= 2;
        if (done) {
            print_prediction(shape, cores[i], &found, &one, &rec,
                             here ? measured_step(&m, cores[i]) : 0, json);
        }
    }
    destroy(&m);
    return done;
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
    unsigned cores[MOST_CORES], cpus = processors();
    size_t count = read_cores(list, cores);
    if (count == 0) {
        *why = "cores is no list of up to 16 numbers from 1 to 1024, such as 8,16,32,64,128";
        return false;
    }
    double copy[2];
    for (int threads = 1; threads <= 2; threads++) {
        muonium_set_threads(threads);
        copy[threads - 1] = measure_copy(0.3);
    }
    print_run_costs(cpus, json);
    double handover = cpus > 1 ? run_cost(2, cpus) : 1e-6;
    if (!json) {
        printf("predicted steps: cores, time, efficiency, teams x workers, scratch, limit\n");
    }
    bool done = true;
    for (size_t i = 0; done && i < sizeof models / sizeof models[0]; i++) {
        if (!quick || models[i].quick) {
            done = simulate_model(&models[i], cores, count, cpus, copy, handover, json);
        }
    }
    if (json) {
        printf("]}\n");
    }
    muonium_set_threads(0);
    *why = done ? NULL : *muonium_last_error() ? muonium_last_error() : "no memory for the model";
    return done;
}
