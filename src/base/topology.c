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

/* The CPUs of this process in order, and the place of each. Atomic, since one caller may read the
 * topology again while the workers of another use it. */
static struct {
    atomic_int state; /* UNREAD, READING, READ */
    atomic_size_t count;
    atomic_uint cpus[MOST_CPUS];
    atomic_ushort place[MOST_CPUS];
} known;

enum { UNREAD, READING, READ };

static void read_topology(void)
{
    unsigned cpus[MOST_CPUS];
    cpu_set_t masks[MOST_CPUS / CPU_SETSIZE];
    size_t count = 0;
    if (sched_getaffinity(0, sizeof masks, masks) == 0) {
        for (unsigned cpu = 0; cpu < MOST_CPUS; cpu++) {
            if (CPU_ISSET_S(cpu, sizeof masks, masks)) {
                cpus[count++] = cpu;
            }
        }
    }
    mu_topology_order("", cpus, count);
    for (size_t i = 0; i < count; i++) {
        atomic_store(&known.cpus[i], cpus[i]);
        atomic_store(&known.place[cpus[i]], (unsigned short)i);
    }
    atomic_store(&known.count, count);
}

void mu_topology_prepare(void)
{
    int unread = UNREAD, reading = READING;
    if (atomic_compare_exchange_strong(&known.state, &unread, READING)) {
        read_topology();
        /* It stays unread if it was forgotten meanwhile. */
        atomic_compare_exchange_strong(&known.state, &reading, READ);
    }
    while (atomic_load(&known.state) == READING) { /* by another thread, within milliseconds */
        sched_yield();
    }
}

void mu_topology_forget(void)
{
    atomic_store(&known.state, UNREAD);
}

/* The place of the CPU on which this thread runs; SIZE_MAX: unknown. */
static size_t place_now(size_t count)
{
    int cpu = atomic_load(&known.state) == READ ? sched_getcpu() : -1;
    if (cpu < 0 || cpu >= MOST_CPUS) {
        return SIZE_MAX;
    }
    size_t place = atomic_load(&known.place[cpu]);
    return place < count && atomic_load(&known.cpus[place]) == (unsigned)cpu ? place : SIZE_MAX;
}

static size_t known_cpus(void)
{
    return atomic_load(&known.count);
}

bool mu_topology_pins(void)
{
    const char *pin = getenv("MUONIUM_PIN");
    return pin && strcmp(pin, "1") == 0;
}

void mu_topology_pin(unsigned n)
{
    cpu_set_t masks[MOST_CPUS / CPU_SETSIZE];
    size_t count = known_cpus();
    if (count > 0) {
        CPU_ZERO_S(sizeof masks, masks);
        CPU_SET_S(atomic_load(&known.cpus[n % count]), sizeof masks, masks);
        pthread_setaffinity_np(pthread_self(), sizeof masks, masks); /* refused: unbound */
    }
}

#else

void mu_topology_prepare(void)
{
}

void mu_topology_forget(void)
{
}

static size_t place_now(size_t count)
{
    (void)count;
    return SIZE_MAX;
}

static size_t known_cpus(void)
{
    return 0;
}

bool mu_topology_pins(void)
{
    return false;
}

void mu_topology_pin(unsigned n)
{
    (void)n;
}

#endif

unsigned mu_topology_share(unsigned worker, unsigned workers, unsigned shares)
{
    size_t places = known_cpus(), place = place_now(places);
    if (place == SIZE_MAX) {
        place = worker;
        places = workers;
    }
    return places > 0 ? (unsigned)(place % places * shares / places) : 0;
}
