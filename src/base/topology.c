/*
 * topology.c: see topology.h. Only Linux tells; elsewhere nothing is known and nothing is bound.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu and affinity; CMake defines it for all */
#endif

#include "base/topology.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CPUS = 4096 };

typedef struct cpu_place {
    unsigned cpu;
    unsigned thread; /* its place among the hardware threads of its core */
    unsigned package, cache, core;
} cpu_place;

/* The first number in a file of a CPU; `unknown` without one. */
static unsigned number_in(const char *root, unsigned cpu, const char *name, unsigned unknown)
{
    char path[512];
    unsigned number;
    int length = snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/%s", root, cpu, name);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    if (!file) {
        return unknown;
    }
    bool found = fscanf(file, "%u", &number) == 1;
    fclose(file);
    return found ? number : unknown;
}

static int compare_numbers(unsigned a, unsigned b)
{
    return (a > b) - (a < b);
}

static int compare_places(const void *first, const void *second)
{
    const cpu_place *a = first, *b = second;
    int by_thread = compare_numbers(a->thread, b->thread);
    int by_package = compare_numbers(a->package, b->package);
    int by_cache = compare_numbers(a->cache, b->cache);
    int by_core = compare_numbers(a->core, b->core);
    return by_thread    ? by_thread
           : by_package ? by_package
           : by_cache   ? by_cache
           : by_core    ? by_core
                        : compare_numbers(a->cpu, b->cpu);
}

void mu_topology_order(const char *root, unsigned *cpus, size_t count)
{
    cpu_place *places = mu_alloc(count * sizeof *places);
    if (!places) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned cpu = cpus[i];
        /* The first number of a list of siblings is the same for all of them. */
        unsigned first = number_in(root, cpu, "topology/thread_siblings_list", cpu);
        places[i] = (cpu_place){
            .cpu = cpu,
            .thread = first != cpu,
            .package = number_in(root, cpu, "topology/physical_package_id", 0),
            .cache = number_in(root, cpu, "cache/index3/shared_cpu_list", 0),
            .core = number_in(root, cpu, "topology/core_id", 0),
        };
    }
    qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 0; i < count; i++) {
        cpus[i] = places[i].cpu;
    }
    mu_free(places);
}

#if defined(__linux__)

/* The CPUs of this process in order, and the place of each. */
static struct {
    atomic_int state; /* UNREAD, READING, READ */
    size_t count;
    unsigned cpus[MOST_CPUS];
    unsigned short place[MOST_CPUS];
} known;

enum { UNREAD, READING, READ };

void mu_topology_prepare(void)
{
    int unread = UNREAD;
    if (!atomic_compare_exchange_strong(&known.state, &unread, READING)) {
        return;
    }
    cpu_set_t masks[MOST_CPUS / CPU_SETSIZE];
    size_t count = 0;
    if (sched_getaffinity(0, sizeof masks, masks) == 0) {
        for (unsigned cpu = 0; cpu < MOST_CPUS; cpu++) {
            if (CPU_ISSET_S(cpu, sizeof masks, masks)) {
                known.cpus[count++] = cpu;
            }
        }
    }
    mu_topology_order("", known.cpus, count);
    for (size_t i = 0; i < count; i++) {
        known.place[known.cpus[i]] = (unsigned short)i;
    }
    known.count = count;
    atomic_store(&known.state, READ);
}

/* The place of the CPU on which this thread runs; SIZE_MAX: unknown. */
static size_t place_now(void)
{
    int cpu = atomic_load(&known.state) == READ ? sched_getcpu() : -1;
    if (cpu < 0 || cpu >= MOST_CPUS) {
        return SIZE_MAX;
    }
    size_t place = known.place[cpu];
    return place < known.count && known.cpus[place] == (unsigned)cpu ? place : SIZE_MAX;
}

void mu_topology_pin(unsigned n)
{
    const char *pin = getenv("MUONIUM_PIN");
    if (!pin || strcmp(pin, "1") != 0) {
        return;
    }
    mu_topology_prepare();
    if (atomic_load(&known.state) != READ || known.count == 0) {
        return;
    }
    cpu_set_t masks[MOST_CPUS / CPU_SETSIZE];
    CPU_ZERO_S(sizeof masks, masks);
    CPU_SET_S(known.cpus[n % known.count], sizeof masks, masks);
    pthread_setaffinity_np(pthread_self(), sizeof masks, masks); /* refused: unbound */
}

#else

void mu_topology_prepare(void)
{
}

static size_t place_now(void)
{
    return SIZE_MAX;
}

static const struct {
    size_t count;
} known;

void mu_topology_pin(unsigned n)
{
    (void)n;
}

#endif

unsigned mu_topology_share(unsigned worker, unsigned workers, unsigned shares)
{
    size_t place = place_now(), places = known.count;
    if (place == SIZE_MAX) {
        place = worker;
        places = workers;
    }
    return places > 0 ? (unsigned)(place % places * shares / places) : 0;
}
