/*
 * replay.c: see replay.h. The workers do what src/base/teams.c lets them do: lead a team while
 * there are jobs, else help a team, their own first, else do the filler, else wait.
 *
 * The clock goes from event to event. An event is a worker that is free at some time. All workers
 * that wait look for work whenever a run opens, as in teams.c, where they watch one shared word.
 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

typedef struct team {
    bool led;
    const replay_job *job;
    size_t run;     /* of the job */
    size_t next;    /* piece of the run; the run is open while there are any and seats */
    unsigned seats; /* left */
    unsigned inside;
    unsigned leader;
    bool open;
} team;

typedef enum what_next { LOOK, LEAD, OPEN, WORK, FILL } what_next;

typedef struct worker {
    double free; /* when */
    what_next next;
    unsigned team; /* that it leads or helps */
    bool leads, streams, waits;
    double since; /* it waits */
    double delay; /* since it was woken */
} worker;

typedef struct clockwork {
    const replay_recording *r;
    const replay_machine *m;
    unsigned teams;
    team *team;
    worker *worker;
    unsigned *heap, heap_count;
    size_t next_job, jobs_done, next_filler;
    unsigned streaming; /* workers in pieces that use memory */
    bool awaits_all;    /* at the end all workers must have come */
    double last_job_end;
    replay_result result;
} clockwork;

/* ---- the heap of workers, the next free one first ---- */

static bool earlier(const clockwork *c, unsigned a, unsigned b)
{
    double x = c->worker[a].free, y = c->worker[b].free;
    return x < y || (!(y < x) && a < b);
}

static void push(clockwork *c, unsigned w, double when, what_next next)
{
    c->worker[w].free = when;
    c->worker[w].next = next;
    unsigned at = c->heap_count++;
    for (; at > 0 && earlier(c, w, c->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        c->heap[at] = c->heap[(at - 1) / 2];
    }
    c->heap[at] = w;
}

static unsigned pop(clockwork *c)
{
    unsigned top = c->heap[0], w = c->heap[--c->heap_count], at = 0;
    for (;;) {
        unsigned child = 2 * at + 1;
        if (child >= c->heap_count) {
            break;
        }
        child += child + 1 < c->heap_count && earlier(c, c->heap[child + 1], c->heap[child]);
        if (!earlier(c, c->heap[child], w)) {
            break;
        }
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = w;
    return top;
}

/* ---- pieces ---- */

static const replay_run *run_of(const clockwork *c, const team *t)
{
    return &c->r->runs[t->job->first + t->run];
}

/* The time of a piece that starts now, when others use memory too. */
static double piece_time(clockwork *c, const replay_run *run, size_t piece, worker *w)
{
    double alone = c->r->pieces[run->first + piece], time = alone * c->m->slowdown;
    if (run->bytes > 0) {
        c->streaming++;
        w->streams = true;
        double least = run->bytes * c->streaming / c->m->bandwidth;
        time = least > time ? least : time;
    }
    c->result.busy += alone;
    c->result.stalled += time - alone;
    return time;
}

static void start_piece(clockwork *c, unsigned w, double now)
{
    team *t = &c->team[c->worker[w].team];
    double end = now + piece_time(c, run_of(c, t), t->next++, &c->worker[w]);
    push(c, w, end, WORK);
}

/* ---- waiting ---- */

static void wait_from(clockwork *c, unsigned w, double now)
{
    c->worker[w].waits = true;
    c->worker[w].since = now;
}

static bool sleeps(const clockwork *c, const worker *w, double now)
{
    return now - w->since > c->m->spin;
}

/* Let all who wait look again, as they do when anything changes: those whose own team it is first.
 * The seconds for which this keeps the caller busy. */
static double wake(clockwork *c, double now, unsigned team_number)
{
    unsigned spinning = 0, asleep = 0, workers = c->m->workers;
    unsigned own = (unsigned)((size_t)team_number * workers / c->teams);
    for (unsigned i = 0; i < workers; i++) {
        worker *w = &c->worker[(own + i) % workers];
        if (w->waits) {
            w->delay = sleeps(c, w, now) ? c->m->wakeup + asleep++ * c->m->per_sleeper
                                         : c->m->handover + spinning++ * c->m->per_worker;
            w->waits = false;
            c->result.idle += now - w->since;
            push(c, (own + i) % workers, now + w->delay, LOOK);
        }
    }
    c->result.barriers += asleep * c->m->per_sleeper;
    return asleep * c->m->per_sleeper;
}

/* ---- what a free worker does ---- */

/* The leader begins the next run of its job, or the next job, or leaves. */
static void go_on(clockwork *c, unsigned w, double now)
{
    team *t = &c->team[c->worker[w].team];
    if (t->job && t->run < t->job->count) {
        c->result.busy += run_of(c, t)->gap;
        push(c, w, now + run_of(c, t)->gap, OPEN);
        return;
    }
    if (t->job) {
        c->result.busy += t->job->tail;
        now += t->job->tail;
        t->job = NULL;
        c->last_job_end = now > c->last_job_end ? now : c->last_job_end;
        if (++c->jobs_done == c->r->queue_count && c->awaits_all) {
            now += wake(c, now, 0);
        }
    }
    if (c->next_job < c->r->queue_count) {
        t->job = &c->r->jobs[c->r->queue[c->next_job++]];
        t->run = 0;
        push(c, w, now, LEAD);
        return;
    }
    t->led = false;
    c->worker[w].leads = false;
    push(c, w, now, LOOK);
}

static void open_run(clockwork *c, unsigned w, double now)
{
    team *t = &c->team[c->worker[w].team];
    const replay_run *run = run_of(c, t);
    unsigned workers = run->workers < c->r->width ? run->workers : c->r->width;
    workers = run->count < workers ? (unsigned)run->count : workers;
    t->next = 0;
    t->inside = 0;
    t->seats = workers > 0 ? workers - 1 : 0;
    t->open = t->seats > 0;
    if (t->open) {
        now += wake(c, now, c->worker[w].team);
    }
    if (run->count > 0) {
        start_piece(c, w, now);
    } else {
        t->run++;
        go_on(c, w, now);
    }
}

/* After a piece of a team: the next one, or the end of the run for this worker. */
static void work_on(clockwork *c, unsigned w, double now)
{
    worker *self = &c->worker[w];
    team *t = &c->team[self->team];
    if (t->next < run_of(c, t)->count) {
        start_piece(c, w, now);
        return;
    }
    t->open = false;
    if (self->leads && t->inside > 0) {
        self->since = now; /* the last helper goes on with it */
        t->leader = w;
        return;
    }
    if (self->leads) {
        t->run++;
        go_on(c, w, now);
        return;
    }
    t->inside--;
    worker *leader = &c->worker[t->leader];
    push(c, w, now, LOOK);
    bool leader_waits =
        t->inside == 0 && leader->leads && leader->since >= 0 && leader->team == self->team;
    if (leader_waits) {
        double delay = sleeps(c, leader, now) ? c->m->wakeup : c->m->handover;
        c->result.idle += now - leader->since;
        c->result.barriers += delay;
        leader->since = -1;
        t->run++;
        push(c, t->leader, now + delay, LEAD);
    }
}

static bool help(clockwork *c, unsigned w, double now)
{
    unsigned own = (unsigned)((size_t)w * c->teams / c->m->workers);
    for (unsigned i = 0; i < c->teams; i++) {
        unsigned at = (own + i) % c->teams;
        team *t = &c->team[at];
        if (t->open && t->seats > 0 && t->next < run_of(c, t)->count) {
            t->seats--;
            t->inside++;
            t->open = t->seats > 0;
            c->worker[w].team = at;
            start_piece(c, w, now);
            return true;
        }
    }
    return false;
}

static bool lead(clockwork *c, unsigned w, double now)
{
    unsigned own = (unsigned)((size_t)w * c->teams / c->m->workers);
    for (unsigned i = 0; i < c->teams && c->next_job < c->r->queue_count; i++) {
        team *t = &c->team[(own + i) % c->teams];
        if (!t->led) {
            *t = (team){.led = true, .leader = w};
            c->worker[w].leads = true;
            c->worker[w].since = -1;
            c->worker[w].team = (own + i) % c->teams;
            go_on(c, w, now);
            return true;
        }
    }
    return false;
}

static bool fill(clockwork *c, unsigned w, double now)
{
    if (c->next_filler == c->r->filler.count) {
        return false;
    }
    double time = piece_time(c, &c->r->filler, c->next_filler++, &c->worker[w]);
    push(c, w, now + time, FILL);
    return true;
}

static void look(clockwork *c, unsigned w, double now)
{
    double delay = c->worker[w].delay;
    c->worker[w].delay = 0;
    if (lead(c, w, now) || help(c, w, now) || fill(c, w, now)) {
        c->result.barriers += delay;
    } else {
        c->result.idle += delay;
        wait_from(c, w, now);
    }
}

static double run_jobs(clockwork *c, double start)
{
    double end = start;
    for (unsigned w = 0; w < c->m->workers; w++) {
        double delay = w > 0 ? c->m->handover + (w - 1) * c->m->per_worker : 0;
        c->worker[w].delay = delay;
        push(c, w, start + delay, LOOK);
    }
    while (c->heap_count > 0) {
        unsigned w = pop(c);
        worker *self = &c->worker[w];
        double now = self->free;
        end = now > end && (self->next != LOOK || c->awaits_all) ? now : end;
        if (self->streams) {
            self->streams = false;
            c->streaming--;
        }
        if (self->next == LEAD) {
            go_on(c, w, now);
        } else if (self->next == OPEN) {
            open_run(c, w, now);
        } else if (self->next == WORK) {
            work_on(c, w, now);
        } else {
            look(c, w, now);
        }
    }
    end = c->last_job_end > end ? c->last_job_end : end;
    for (unsigned w = 0; w < c->m->workers; w++) {
        if (c->worker[w].waits) {
            c->result.idle += end - c->worker[w].since;
        }
    }
    return end;
}

/* Runs of all workers, one after the other: as jobs of one team. */
static bool replay_part(const replay_recording *r, const replay_machine *m, double start,
                        bool awaits_all, replay_result *result)
{
    unsigned teams = r->teams < 1 ? 1 : r->teams;
    clockwork c = {.r = r, .m = m, .teams = teams, .awaits_all = awaits_all};
    c.team = calloc(teams, sizeof *c.team);
    c.worker = calloc(m->workers, sizeof *c.worker);
    c.heap = calloc(m->workers, sizeof *c.heap);
    bool done = c.team && c.worker && c.heap;
    if (done) {
        c.result = *result;
        c.result.seconds = run_jobs(&c, start);
        *result = c.result;
    }
    free(c.team);
    free(c.worker);
    free(c.heap);
    return done;
}

bool replay(const replay_recording *r, const replay_machine *m, replay_result *result)
{
    size_t zero = 0;
    replay_job before = r->before;
    replay_recording first = *r;
    memset(result, 0, sizeof *result);
    first.jobs = &before;
    first.queue = &zero;
    first.queue_count = 1;
    first.teams = 1;
    first.width = m->workers;
    first.filler.count = 0;
    return (before.count == 0 || replay_part(&first, m, 0, false, result)) &&
           replay_part(r, m, result->seconds, true, result);
}

void replay_free(replay_recording *r)
{
    free(r->pieces);
    free(r->runs);
    free(r->jobs);
    free(r->queue);
    memset(r, 0, sizeof *r);
}
