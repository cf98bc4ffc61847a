/*
 * pool.h: what the parts of the thread pool share: threads.c (how many threads), pool.c (runs),
 * teams.c (jobs of teams).
 */
#ifndef MU_POOL_H
#define MU_POOL_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    MU_MAX_THREADS = 1024,
    MU_SPIN_NANOSECONDS = 50000,      /* of a wait; about what sleeping and being woken costs */
    MU_JOB_SPIN_NANOSECONDS = 1000000 /* within jobs; longer than most pieces */
};

/* ---- threads.c ---- */

/* The number of threads in force, and the CPUs that this process may use: the affinity mask,
 * limited by the CPU quota of its control group. */
unsigned mu_threads_in_force(void);
unsigned mu_usable_cpus(void);

/* Look at environment, affinity, quota and topology again when they are next needed. */
void mu_forget_surroundings(void);

/* ---- pool.c ---- */

/* Whether this thread is running a piece; always so for workers. */
extern _Thread_local bool mu_inside_task;

/* Whether the process ends: workers shall return as soon as their piece is done. */
bool mu_pool_stopping(void);

/* Who waits: helpers for work, or leaders for their helpers. Neither is woken for the other. */
typedef enum mu_waiting { MU_HELPERS_WAIT, MU_LEADERS_WAIT, MU_WAITING_KINDS } mu_waiting;

/* Wait within jobs until *word differs from `seen`, or the process ends. Spin at first, then yield
 * the CPU to whoever wants it, and sleep only after longer than pieces take: waking many makes the
 * worker late that opens a run. `asleep` counts the sleepers of this word. */
void mu_pool_await(mu_waiting kind, atomic_uint *word, unsigned seen, atomic_uint *asleep);

/* Wake all of a kind who sleep until a word changes, if any sleeps because of this one. To be
 * called after the change. */
void mu_pool_wake(mu_waiting kind, atomic_uint *asleep);

/* While there is an observer, everything runs in the calling thread, as if it were divided among
 * muonium_threads() workers, and the observer is told. Only the benchmark's simulator has one; it
 * makes no other calls meanwhile. */
typedef struct mu_observer {
    void *context;
    void (*run)(void *context, mu_task *task, size_t count, unsigned workers);
    bool (*piece)(void *context, size_t index); /* false: skip it */
    void (*piece_end)(void *context);
    void (*run_end)(void *context);
    void (*jobs)(void *context, const mu_jobs *jobs);
    bool (*job)(void *context, size_t index); /* false: skip it */
    void (*job_end)(void *context);
    void (*jobs_end)(void *context);
} mu_observer;

void mu_pool_observe(const mu_observer *observer); /* NULL: none */

/* The observer of this process; NULL: none. */
const mu_observer *mu_pool_observer(void);

/* Tell the observer about a run, in this thread. */
void mu_pool_run_observed(mu_task *task, void *context, size_t count, unsigned workers);

/* ---- teams.c ---- */

typedef struct mu_team mu_team;

/* The team that this thread leads, outside of pieces; NULL: none. */
extern _Thread_local mu_team *mu_led_team;

/* The most workers that it can have. */
unsigned mu_team_width(const mu_team *team);

/* A run of the team that this thread leads. */
void mu_team_run(mu_task *task, void *context, size_t count, unsigned max_workers);

#endif
