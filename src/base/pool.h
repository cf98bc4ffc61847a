/*
 * pool.h: what the parts of the thread pool share: threads.c (how many threads), pool.c (runs),
 * teams.c (jobs of teams).
 */
#ifndef MU_POOL_H
#define MU_POOL_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MU_MAX_THREADS = 1024 };

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

/* Wait until *word differs from `seen`, or the process ends: spin as long as that is cheaper than
 * sleeping, then sleep. `asleep` counts the sleepers of this word. */
void mu_pool_await(atomic_uint *word, unsigned seen, atomic_uint *asleep);

/* Wake all who sleep until a word changes, if there are any. To be called after the change. */
void mu_pool_wake(atomic_uint *asleep);

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
