/*
 * threads.c: how many threads the pool has.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity; CMake defines it for all */
#endif

#include "base/pool.h"
#include "base/quota.h"
#include "base/topology.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_uint chosen_threads;  /* by muonium_set_threads; 0: the default */
static atomic_uint default_threads; /* 0: not determined yet */
static atomic_uint allowed_cpus;    /* 0: not determined yet */

static unsigned count_allowed_cpus(void)
{
#if defined(__linux__)
    cpu_set_t masks[64]; /* room for 65,536 CPUs: a kernel with more than fit would refuse */
    if (sched_getaffinity(0, sizeof masks, masks) == 0) {
        int allowed = CPU_COUNT_S(sizeof masks, masks);
        if (allowed > 0) {
            return (unsigned)allowed;
        }
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= MU_MAX_THREADS ? (unsigned)online : 1;
}

unsigned mu_usable_cpus(void)
{
    unsigned known = atomic_load_explicit(&allowed_cpus, memory_order_relaxed);
    if (known == 0) {
        unsigned quota = mu_quota_cpus("");
        known = count_allowed_cpus();
        known = quota > 0 && quota < known ? quota : known;
        atomic_store_explicit(&allowed_cpus, known, memory_order_relaxed);
    }
    return known;
}

/* The decimal number that `text` consists of, if it is in 1..MU_MAX_THREADS; else 0. */
static unsigned parse_threads(const char *text)
{
    unsigned number = 0;
    for (; *text >= '0' && *text <= '9' && number <= MU_MAX_THREADS; text++) {
        number = number * 10 + (unsigned)(*text - '0');
    }
    return *text == '\0' && number <= MU_MAX_THREADS ? number : 0;
}

/* Whether MUONIUM_NUM_THREADS is set to what is no number of threads. */
static atomic_bool bad_variable;

static const char *variable(void)
{
    const char *value = getenv("MUONIUM_NUM_THREADS");
    return value != NULL && *value != '\0' ? value : NULL;
}

static muonium_status refuse_variable(const char *value)
{
    return mu_fail(MUONIUM_INVALID,
                   "MUONIUM_NUM_THREADS is \"%.64s\": use a number from 1 to %d, or unset it",
                   value, (int)MU_MAX_THREADS);
}

/* MUONIUM_NUM_THREADS, else one thread per usable CPU, also for a bad value: the number is
 * needed in places that have no way to report an error. mu_pool_check reports it. */
static unsigned determine_default_threads(void)
{
    const char *value = variable();
    unsigned threads = value != NULL ? parse_threads(value) : 0;
    atomic_store_explicit(&bad_variable, value != NULL && threads == 0, memory_order_relaxed);
    if (threads == 0) {
        threads = mu_usable_cpus() < MU_MAX_THREADS ? mu_usable_cpus() : MU_MAX_THREADS;
    }
    return threads;
}

unsigned mu_threads_in_force(void)
{
    unsigned threads = atomic_load_explicit(&chosen_threads, memory_order_relaxed);
    if (threads == 0) {
        threads = atomic_load_explicit(&default_threads, memory_order_relaxed);
    }
    if (threads == 0) {
        threads = determine_default_threads();
        atomic_store_explicit(&default_threads, threads, memory_order_relaxed);
    }
    return threads;
}

void mu_forget_surroundings(void)
{
    atomic_store_explicit(&default_threads, 0, memory_order_relaxed);
    atomic_store_explicit(&allowed_cpus, 0, memory_order_relaxed);
    mu_topology_forget();
}

muonium_status muonium_set_threads(int threads)
{
    if (threads < 0 || threads > MU_MAX_THREADS) {
        return mu_fail(MUONIUM_INVALID, "threads is %d: it must be 1 to %d, or 0 for the default",
                       threads, (int)MU_MAX_THREADS);
    }
    const char *value = threads == 0 ? variable() : NULL;
    if (value != NULL && parse_threads(value) == 0) {
        return refuse_variable(value);
    }
    mu_forget_surroundings();
    atomic_store_explicit(&chosen_threads, (unsigned)threads, memory_order_relaxed);
    return MUONIUM_OK;
}

muonium_status mu_pool_check(void)
{
    if (atomic_load_explicit(&chosen_threads, memory_order_relaxed) > 0) {
        return MUONIUM_OK;
    }
    mu_threads_in_force(); /* has the variable read */
    if (!atomic_load_explicit(&bad_variable, memory_order_relaxed)) {
        return MUONIUM_OK;
    }
    const char *value = variable();
    return refuse_variable(value != NULL ? value : "");
}

int muonium_threads(void)
{
    return (int)mu_threads_in_force();
}
