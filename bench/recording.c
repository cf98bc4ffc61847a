/*
 * recording.c: see recording.h. The pool hands out the very runs that it would hand out to P
 * workers, one job of each kind, and each piece is timed.
 */
#include "recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "measure.h"

enum { SAMPLES = 48 };

/* Reading the clock of a thread is a system call, and takes as long as a hundredth of a piece. */
static double clock_cost;

static double cost_of_clock(void)
{
    double least = 1;
    for (int i = 0; i < 100; i++) {
        double start = thread_seconds(), cost = thread_seconds() - start;
        least = cost < least ? cost : least;
    }
    return least;
}

static double since(double start)
{
    double time = thread_seconds() - start - clock_cost;
    return time > 0 ? time : 0;
}

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
    r->runs[r->run_count++] = (replay_run){since(rec->last), r->piece_count, 0, workers, 0};
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
    rec->started = thread_seconds();
    return !skip;
}

static void on_piece_end(void *context)
{
    recorder *rec = context;
    double time = since(rec->started);
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
    rec->last = thread_seconds();
}

static void on_jobs(void *context, const mu_jobs *jobs)
{
    recorder *rec = context;
    rec->r.before = (replay_job){0, rec->r.run_count, since(rec->last)};
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
    rec->last = thread_seconds();
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
    job->tail = since(rec->last);
    double elements = (double)of->m * (double)of->n * (double)rec->kind_counts[rec->kind_count - 1];
    if (job->count > 1) {
        replay_run *first = &r->runs[job->first], *last = &r->runs[r->run_count - 1];
        first->bytes = 16 * elements / (double)(first->count > 0 ? first->count : 1);
        last->bytes = 12 * elements / (double)(last->count > 0 ? last->count : 1);
    }
}

static void on_jobs_end(void *context)
{
    ((recorder *)context)->last = thread_seconds();
}

bool recording_make(muonium_optimizer *optimizer, size_t copies, unsigned cores, recorder *rec)
{
    memset(rec, 0, sizeof *rec);
    rec->copies = copies;
    if (muonium_set_threads((int)cores) != MUONIUM_OK ||
        mu_schedule_make(optimizer, copies) != MUONIUM_OK) {
        return false;
    }
    rec->schedule = optimizer->schedule;
    const mu_observer observer = {rec,     on_run, on_piece,   on_piece_end, on_run_end,
                                  on_jobs, on_job, on_job_end, on_jobs_end};
    clock_cost = cost_of_clock();
    rec->last = thread_seconds();
    mu_pool_observe(&observer);
    muonium_status status = muonium_step(optimizer);
    mu_pool_observe(NULL);
    if (rec->phase == FILLER) {
        rec->r.filler = rec->r.runs[rec->r.run_count - 1];
    }
    return status == MUONIUM_OK && !rec->r.failed;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

void recording_keep_best(replay_recording *r, const replay_recording *other)
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
