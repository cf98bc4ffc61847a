/*
 * pool.c: one pool of threads per process.
 *
 * A run is a row of numbered pieces and a number of seats. The caller opens the
 * seats, works as worker 0 and closes them when no piece is left; workers take a
 * seat (its number is their worker), claim pieces by a fetch-and-add and leave.
 * The caller waits only for workers that have taken a seat, never for one that
 * is still waking up, so a run costs no more than the caller working alone.
 *
 * Seats, workers within and the order to stop share one atomic word: taking a
 * seat is one compare-and-swap, and succeeds only while the run is open, hence
 * only while its description stays valid.
 *
 * Idle workers watch that word for a while before they sleep, because the runs
 * of one orthogonalisation follow each other within microseconds. Where threads
 * outnumber CPUs nobody spins: it would take the CPU from whoever has the work.
 *
 * A forked child has no workers and an idle pool, whatever the parent's other
 * threads were doing, and starts workers of its own when it needs them.
 */
#include "base/pool.h"
#include "base/topology.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    WORKER_STACK_BYTES = 1 << 20,
    RUNS_BEFORE_RETRY = 1000 /* after a thread could not be started */
};

/* The parts of pool.state. */
#define INSIDE 0x0000ffffu /* workers that have taken a seat and not left */
#define SEAT 0x00010000u
#define SEATS 0x7fff0000u
#define STOP 0x80000000u /* workers shall end */

static struct {
    /* On a cache line of its own each, since all workers write to them. */
    _Alignas(MU_ALIGNMENT) atomic_uint state;
    _Alignas(MU_ALIGNMENT) atomic_size_t next_piece;

    /* The run in progress: written by its caller before the seats open. */
    _Alignas(MU_ALIGNMENT) mu_task *task;
    void *context;
    size_t count;

    atomic_bool busy;          /* some caller has the pool */
    atomic_bool spinning_pays; /* as the last caller found */
    unsigned workers;          /* started; changed by who has the pool, under the mutex */
    unsigned runs_until_retry; /* belongs to who has the pool */

    /* Sleeping. A sleeper announces itself before it looks at the state for the
     * last time, and who changes the state looks for sleepers afterwards: one
     * of the two sees the other, as these accesses are sequentially consistent. */
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_cond_t done;
    pthread_cond_t changed[MU_WAITING_KINDS]; /* of mu_pool_await */
    atomic_uint workers_asleep;
    atomic_bool caller_asleep;

    pthread_t threads[MU_MAX_THREADS - 1];
    bool forks_safely;
} pool = {
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
    .changed = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER},
};

_Thread_local bool mu_inside_task;

unsigned mu_pool_workers(void)
{
    return mu_led_team ? mu_team_width(mu_led_team) : mu_inside_task ? 1 : mu_threads_in_force();
}

/* ---- waiting ---- */

static void relax_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static long long nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool any_set(unsigned bits)
{
    return (atomic_load(&pool.state) & bits) != 0;
}

/* Watch the state for as long as that is cheaper than sleeping, until any of
 * `bits` is set, or until none is; tell whether that happened. */
static bool spin_until(unsigned bits, bool set)
{
    if (any_set(bits) == set) {
        return true;
    }
    if (!atomic_load_explicit(&pool.spinning_pays, memory_order_relaxed)) {
        return false;
    }
    long long deadline = nanoseconds_now() + MU_SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < 32; i++) {
            relax_cpu();
            if (any_set(bits) == set) {
                return true;
            }
        }
    } while (nanoseconds_now() < deadline);
    return false;
}

bool mu_pool_stopping(void)
{
    return any_set(STOP);
}

static bool has_changed(atomic_uint *word, unsigned seen)
{
    return atomic_load(word) != seen || mu_pool_stopping();
}

void mu_pool_await(mu_waiting kind, atomic_uint *word, unsigned seen, atomic_uint *asleep)
{
    bool spin = atomic_load_explicit(&pool.spinning_pays, memory_order_relaxed);
    long long start = spin ? nanoseconds_now() : 0, waited = 0;
    do {
        for (int i = 0; i < 32; i++) {
            if (has_changed(word, seen)) {
                return;
            }
            relax_cpu();
        }
        waited = spin ? nanoseconds_now() - start : 0;
        if (waited > MU_SPIN_NANOSECONDS) {
            sched_yield();
        }
    } while (spin && waited < MU_JOB_SPIN_NANOSECONDS);
    /* A caller cancelled here would abandon workers that use its memory. */
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(asleep, 1);
    while (!has_changed(word, seen)) {
        pthread_cond_wait(&pool.changed[kind], &pool.mutex);
    }
    atomic_fetch_sub(asleep, 1);
    pthread_mutex_unlock(&pool.mutex);
    pthread_setcancelstate(cancel_state, NULL);
}

void mu_pool_wake(mu_waiting kind, atomic_uint *asleep)
{
    if (atomic_load(asleep) > 0) {
        /* Once the mutex was free, each sleeper is either waiting or sees the change. */
        pthread_mutex_lock(&pool.mutex);
        pthread_mutex_unlock(&pool.mutex);
        pthread_cond_broadcast(&pool.changed[kind]);
    }
}

/* ---- workers ---- */

static void await_work(void)
{
    if (spin_until(SEATS | STOP, true)) {
        return;
    }
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.workers_asleep, 1);
    while (!any_set(SEATS | STOP)) {
        pthread_cond_wait(&pool.work, &pool.mutex);
    }
    atomic_fetch_sub(&pool.workers_asleep, 1);
    pthread_mutex_unlock(&pool.mutex);
}

/* Wait for a free seat and take it: its worker, or 0 when it is time to end. */
static unsigned take_seat(void)
{
    for (;;) {
        unsigned state = atomic_load(&pool.state);
        while ((state & SEATS) != 0 && (state & STOP) == 0) {
            if (atomic_compare_exchange_weak(&pool.state, &state, state - SEAT + 1)) {
                return (state & SEATS) / SEAT;
            }
        }
        if ((state & STOP) != 0) {
            return 0;
        }
        await_work();
    }
}

/* Leave the run, and close it: a worker leaves when no piece is left. */
static void leave_seat(void)
{
    atomic_fetch_and(&pool.state, ~SEATS);
    unsigned before = atomic_fetch_sub(&pool.state, 1);
    if ((before & INSIDE) == 1 && atomic_load(&pool.caller_asleep)) {
        /* Once the mutex was free, the caller is either waiting or sees the state. */
        pthread_mutex_lock(&pool.mutex);
        pthread_mutex_unlock(&pool.mutex);
        pthread_cond_signal(&pool.done);
    }
}

static bool run_next_piece(unsigned worker)
{
    size_t piece = atomic_fetch_add_explicit(&pool.next_piece, 1, memory_order_relaxed);
    if (piece >= pool.count) {
        return false;
    }
    pool.task(pool.context, piece, worker);
    return true;
}

/* `number` is that of the worker if it shall be bound to a CPU, else 0. */
static void *work_until_stopped(void *number)
{
    if (number) {
        mu_topology_pin((unsigned)(uintptr_t)number);
    }
    mu_inside_task = true;
    mu_fenv_enter(); /* a new thread has the environment of whoever started it */
    unsigned worker;
    while ((worker = take_seat()) != 0) {
        /* At the end of the process the caller is left to finish alone. */
        while (!any_set(STOP) && run_next_piece(worker)) {
        }
        leave_seat();
    }
    return NULL;
}

/* Start threads until there are `wanted` workers or no more can be had. */
static void start_workers(unsigned wanted)
{
    bool pins = mu_topology_pins();
    if (pins) {
        mu_topology_prepare();
    }
    /* Signals are for the program's own threads. */
    sigset_t all, callers;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &callers);

    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
        pthread_mutex_lock(&pool.mutex);
        while (error == 0 && pool.workers < wanted && !any_set(STOP)) {
            void *number = (void *)(uintptr_t)(pins ? pool.workers + 1 : 0);
            error = pthread_create(&pool.threads[pool.workers], &attributes, work_until_stopped,
                                   number);
            pool.workers += error == 0;
        }
        pthread_mutex_unlock(&pool.mutex);
        pthread_attr_destroy(&attributes);
    }
    if (error != 0) {
        pool.runs_until_retry = RUNS_BEFORE_RETRY;
    }
    pthread_sigmask(SIG_SETMASK, &callers, NULL);
}

/* ---- runs ---- */

/* The number of workers that a run may have, at most `wanted`. */
static unsigned recruit(unsigned wanted)
{
    if (pool.workers < wanted && pool.forks_safely) {
        if (pool.runs_until_retry == 0) {
            start_workers(wanted);
        } else {
            pool.runs_until_retry--;
        }
    }
    return pool.workers < wanted ? pool.workers : wanted;
}

/* Wake as many sleepers as are needed to fill the seats besides who is awake. */
static void wake_workers(unsigned seats)
{
    unsigned asleep = atomic_load(&pool.workers_asleep);
    unsigned awake = pool.workers > asleep ? pool.workers - asleep : 0;
    if (asleep == 0 || awake >= seats) {
        return;
    }
    /* Once the mutex was free, each sleeper is either waiting or sees the state. */
    pthread_mutex_lock(&pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    if (seats - awake >= asleep) {
        pthread_cond_broadcast(&pool.work);
        return;
    }
    for (unsigned i = awake; i < seats; i++) {
        pthread_cond_signal(&pool.work);
    }
}

static void await_workers(void)
{
    if (spin_until(INSIDE, false)) {
        return;
    }
    /* A caller cancelled here would abandon workers that use its memory. */
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.caller_asleep, true);
    while (any_set(INSIDE)) {
        pthread_cond_wait(&pool.done, &pool.mutex);
    }
    atomic_store(&pool.caller_asleep, false);
    pthread_mutex_unlock(&pool.mutex);
    pthread_setcancelstate(cancel_state, NULL);
}

static void run_alone(mu_task *task, void *context, size_t count)
{
    bool was_inside = mu_inside_task;
    mu_inside_task = true;
    for (size_t piece = 0; piece < count; piece++) {
        task(context, piece, 0);
    }
    mu_inside_task = was_inside;
}

/* ---- observing ---- */

static const mu_observer *observer;

const mu_observer *mu_pool_observer(void)
{
    return observer;
}

void mu_pool_observe(const mu_observer *by)
{
    observer = by;
}

void mu_pool_run_observed(mu_task *task, void *context, size_t count, unsigned workers)
{
    mu_team *leading = mu_led_team;
    bool was_inside = mu_inside_task;
    mu_led_team = NULL;
    mu_inside_task = true;
    observer->run(observer->context, task, count, workers);
    for (size_t piece = 0; piece < count; piece++) {
        if (observer->piece(observer->context, piece)) {
            task(context, piece, 0);
            observer->piece_end(observer->context);
        }
    }
    observer->run_end(observer->context);
    mu_inside_task = was_inside;
    mu_led_team = leading;
}

void mu_pool_run(mu_task *task, void *context, size_t count, unsigned max_workers)
{
    if (mu_led_team) {
        mu_team_run(task, context, count, max_workers);
        return;
    }
    unsigned workers = mu_pool_workers();
    workers = max_workers < workers ? max_workers : workers;
    workers = count < workers ? (unsigned)count : workers;
    if (observer && !mu_inside_task) {
        mu_pool_run_observed(task, context, count, workers);
        return;
    }
    if (workers < 2 || atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) {
        run_alone(task, context, count);
        return;
    }

    /* Decided here, as a worker may have an affinity mask of its own. */
    atomic_store_explicit(&pool.spinning_pays, mu_threads_in_force() <= mu_usable_cpus(),
                          memory_order_relaxed);
    unsigned seats = recruit(workers - 1);
    pool.task = task;
    pool.context = context;
    pool.count = count;
    atomic_store_explicit(&pool.next_piece, 0, memory_order_relaxed);
    atomic_fetch_or(&pool.state, seats * SEAT);
    wake_workers(seats);

    mu_inside_task = true;
    while (run_next_piece(0)) {
    }
    mu_inside_task = false;

    atomic_fetch_and(&pool.state, ~SEATS);
    await_workers();
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}

/* ---- fork, load, unload ---- */

/* The mutex is held across fork so that the child gets it in a known state. */
static void before_fork(void)
{
    pthread_mutex_lock(&pool.mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&pool.mutex);
}

static void after_fork_in_child(void)
{
    /* Fresh, for the parent's sleepers still wait on the copies. */
    const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    pool.work = fresh;
    pool.done = fresh;
    for (mu_waiting kind = 0; kind < MU_WAITING_KINDS; kind++) {
        pool.changed[kind] = fresh;
    }
    mu_led_team = NULL;
    atomic_store(&pool.workers_asleep, 0);
    atomic_store(&pool.caller_asleep, false);
    atomic_fetch_and(&pool.state, STOP);
    pool.workers = 0;
    pool.runs_until_retry = 0;
    atomic_store(&pool.busy, false);
    mu_forget_surroundings();
    pthread_mutex_unlock(&pool.mutex);
}

__attribute__((constructor)) static void prepare_for_fork(void)
{
    /* Without the handlers a child would wait for workers that it does not have,
     * so without them there are no workers. */
    pool.forks_safely = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

/* At the end of the process or before the library is unloaded: no worker may
 * outlive the code it runs. Whoever still uses the pool finishes alone. */
__attribute__((destructor)) static void stop_workers(void)
{
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_or(&pool.state, STOP);
    unsigned workers = pool.workers;
    pthread_cond_broadcast(&pool.work);
    for (mu_waiting kind = 0; kind < MU_WAITING_KINDS; kind++) {
        pthread_cond_broadcast(&pool.changed[kind]);
    }
    pthread_mutex_unlock(&pool.mutex);
    for (unsigned i = 0; i < workers; i++) {
        /* A task that ends the process cannot wait for the end of itself. */
        if (mu_inside_task) {
            pthread_detach(pool.threads[i]);
        } else {
            pthread_join(pool.threads[i], NULL);
        }
    }
}
