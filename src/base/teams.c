/*
 * teams.c: jobs that teams of workers do at the same time.
 *
 * All workers of the pool take part. A worker that finds a job and a team without a leader becomes
 * its leader: it does one job after the other, and shares the runs of each with its helpers. A
 * worker that finds no team to lead becomes a helper. Each worker has its own team, the same as its
 * neighbours, which it helps first. If that has no seat, it helps any other team. So a team with
 * more workers than work gives some to others, and all workers share the last jobs. A worker that
 * can neither lead nor help does a piece of the filler.
 *
 * Seats work as in pool.c: seats and helpers within share one atomic word, and taking a seat
 * succeeds only while the run is open.
 */
#include "base/pool.h"
#include "base/topology.h"

/* The parts of mu_team.state. */
#define INSIDE 0x0000ffffu /* helpers that have taken a seat and not left */
#define SEAT 0x00010000u
#define SEATS 0x7fff0000u

enum {
    LOOKS_AT_OWN = 64
}; /* before helping another team: the next run begins within a microsecond */

typedef struct crew crew;

struct mu_team {
    _Alignas(MU_ALIGNMENT) atomic_uint state;
    atomic_bool led;
    atomic_uint leader_asleep;
    _Alignas(MU_ALIGNMENT) atomic_size_t next_piece;
    _Alignas(MU_ALIGNMENT) mu_task *task; /* written by the leader before the seats open */
    void *context;
    size_t count;
    crew *of;
};

/* The workers that do one mu_jobs, and what they share. */
struct crew {
    const mu_jobs *jobs;
    unsigned workers, teams, width;
    _Alignas(MU_ALIGNMENT) atomic_size_t next_job;
    _Alignas(MU_ALIGNMENT) atomic_size_t next_filler;
    _Alignas(MU_ALIGNMENT) atomic_size_t jobs_done;
    _Alignas(MU_ALIGNMENT) atomic_uint changes; /* counts what those who wait may wait for */
    atomic_uint asleep;
    mu_team team[MU_MAX_TEAMS];
};

_Thread_local mu_team *mu_led_team;

unsigned mu_team_width(const mu_team *team)
{
    return team->of->width;
}

static void announce(crew *c)
{
    atomic_fetch_add(&c->changes, 1);
    mu_pool_wake(MU_HELPERS_WAIT, &c->asleep);
}

/* ---- a run of a team ---- */

static void run_pieces(mu_team *t, unsigned worker)
{
    size_t piece;
    while ((piece = atomic_fetch_add_explicit(&t->next_piece, 1, memory_order_relaxed)) <
           t->count) {
        t->task(t->context, piece, worker);
    }
}

static void await_helpers(mu_team *t)
{
    unsigned state;
    while (((state = atomic_load(&t->state)) & INSIDE) != 0) {
        mu_pool_await(MU_LEADERS_WAIT, &t->state, state, &t->leader_asleep);
    }
}

void mu_team_run(mu_task *task, void *context, size_t count, unsigned max_workers)
{
    mu_team *t = mu_led_team;
    unsigned workers = t->of->width < max_workers ? t->of->width : max_workers;
    workers = count < workers ? (unsigned)count : workers;
    if (mu_pool_observer()) {
        mu_pool_run_observed(task, context, count, workers);
        return;
    }
    mu_led_team = NULL; /* runs within pieces stay in their thread */
    if (workers < 2) {
        for (size_t piece = 0; piece < count; piece++) {
            task(context, piece, 0);
        }
        mu_led_team = t;
        return;
    }
    t->task = task;
    t->context = context;
    t->count = count;
    atomic_store_explicit(&t->next_piece, 0, memory_order_relaxed);
    atomic_fetch_or(&t->state, (workers - 1) * SEAT);
    announce(t->of);
    run_pieces(t, 0);
    atomic_fetch_and(&t->state, ~SEATS);
    await_helpers(t);
    mu_led_team = t;
}

/* Take a seat of an open run and work until no piece is left; false if there is none. */
static bool help_team(mu_team *t)
{
    unsigned state = atomic_load(&t->state);
    while ((state & SEATS) != 0) {
        if (atomic_compare_exchange_weak(&t->state, &state, state - SEAT + 1)) {
            run_pieces(t, (state & SEATS) / SEAT);
            atomic_fetch_and(&t->state, ~SEATS);
            atomic_fetch_sub(&t->state, 1);
            mu_pool_wake(MU_LEADERS_WAIT, &t->leader_asleep);
            return true;
        }
    }
    return false;
}

static bool help(crew *c, unsigned own)
{
    if (c->width < 2) {
        return false;
    }
    for (int look = 0; look < LOOKS_AT_OWN; look++) {
        if (help_team(&c->team[own])) {
            return true;
        }
        if (!atomic_load_explicit(&c->team[own].led, memory_order_relaxed)) {
            break;
        }
    }
    for (unsigned i = 1; i < c->teams; i++) {
        if (help_team(&c->team[(own + i) % c->teams])) {
            return true;
        }
    }
    return false;
}

/* ---- jobs ---- */

static bool jobs_left(crew *c)
{
    return atomic_load_explicit(&c->next_job, memory_order_relaxed) < c->jobs->count;
}

/* A team without a leader, from `own` on; c->teams: there is none. */
static unsigned take_team(crew *c, unsigned own)
{
    for (unsigned i = 0; i < c->teams; i++) {
        unsigned t = (own + i) % c->teams;
        if (!atomic_load_explicit(&c->team[t].led, memory_order_relaxed) &&
            !atomic_exchange_explicit(&c->team[t].led, true, memory_order_acquire)) {
            return t;
        }
    }
    return c->teams;
}

/* Lead a team until no job is left; false if there is no job or no team. */
static bool lead(crew *c, unsigned own, unsigned worker)
{
    if (!jobs_left(c)) {
        return false;
    }
    unsigned t = take_team(c, own);
    if (t == c->teams) {
        return false;
    }
    /* At the end of the process the caller is left to finish alone. */
    while (worker == 0 || !mu_pool_stopping()) {
        size_t job = atomic_fetch_add_explicit(&c->next_job, 1, memory_order_relaxed);
        if (job >= c->jobs->count) {
            break;
        }
        mu_led_team = &c->team[t];
        c->jobs->job(c->jobs->context, job, t);
        mu_led_team = NULL;
        if (atomic_fetch_add(&c->jobs_done, 1) + 1 == c->jobs->count) {
            announce(c);
        }
    }
    atomic_store_explicit(&c->team[t].led, false, memory_order_release);
    return true;
}

static bool fill(crew *c)
{
    const mu_jobs *jobs = c->jobs;
    if (atomic_load_explicit(&c->next_filler, memory_order_relaxed) >= jobs->filler_count) {
        return false;
    }
    size_t piece = atomic_fetch_add_explicit(&c->next_filler, 1, memory_order_relaxed);
    if (piece >= jobs->filler_count) {
        return false;
    }
    jobs->filler(jobs->filler_context, piece, 0);
    return true;
}

static void take_part(void *context, size_t index, unsigned worker)
{
    crew *c = context;
    unsigned own = mu_topology_share(worker, c->workers, c->teams);
    (void)index;
    while (worker == 0 || !mu_pool_stopping()) {
        unsigned seen = atomic_load(&c->changes);
        if (lead(c, own, worker) || help(c, own) || fill(c)) {
            continue;
        }
        if (atomic_load(&c->jobs_done) == c->jobs->count) {
            return;
        }
        mu_pool_await(MU_HELPERS_WAIT, &c->changes, seen, &c->asleep);
    }
}

static void start_crew(crew *c, const mu_jobs *jobs, unsigned workers)
{
    unsigned most = jobs->teams < MU_MAX_TEAMS ? jobs->teams : MU_MAX_TEAMS;
    c->jobs = jobs;
    c->workers = workers;
    c->teams = most < 1 ? 1 : most;
    c->width = jobs->width < 1 ? 1 : jobs->width;
    atomic_init(&c->next_job, 0);
    atomic_init(&c->next_filler, 0);
    atomic_init(&c->jobs_done, 0);
    atomic_init(&c->changes, 0);
    atomic_init(&c->asleep, 0);
    for (unsigned t = 0; t < c->teams; t++) {
        atomic_init(&c->team[t].state, 0);
        atomic_init(&c->team[t].led, false);
        atomic_init(&c->team[t].leader_asleep, 0);
        atomic_init(&c->team[t].next_piece, 0);
        c->team[t].of = c;
    }
}

/* In this thread, for the observer: the team of every job is the first. */
static void run_observed(crew *c)
{
    const mu_observer *observer = mu_pool_observer();
    const mu_jobs *jobs = c->jobs;
    observer->jobs(observer->context, jobs);
    for (size_t job = 0; job < jobs->count; job++) {
        if (observer->job(observer->context, job)) {
            mu_led_team = &c->team[0];
            jobs->job(jobs->context, job, 0);
            mu_led_team = NULL;
            observer->job_end(observer->context);
        }
    }
    mu_pool_run_observed(jobs->filler, jobs->filler_context, jobs->filler_count, c->workers);
    observer->jobs_end(observer->context);
}

void mu_pool_run_jobs(const mu_jobs *jobs)
{
    unsigned workers = mu_pool_workers();
    crew c;
    if (mu_pool_observer() && !mu_inside_task) {
        start_crew(&c, jobs, workers);
        run_observed(&c);
    } else if (workers < 2 || mu_led_team || mu_inside_task) {
        for (size_t job = 0; job < jobs->count; job++) {
            jobs->job(jobs->context, job, 0);
        }
        for (size_t piece = 0; piece < jobs->filler_count; piece++) {
            jobs->filler(jobs->filler_context, piece, 0);
        }
    } else {
        mu_topology_prepare();
        start_crew(&c, jobs, workers);
        mu_pool_run(take_part, &c, workers, workers);
    }
}
