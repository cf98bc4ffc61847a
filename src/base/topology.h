/*
 * topology.h: which CPUs are neighbours.
 */
#ifndef MU_TOPOLOGY_H
#define MU_TOPOLOGY_H

#include "base/base.h"

/* Order `count` numbers of CPUs by neighbourhood, as /sys below `root` ("" but in tests) tells:
 * hardware threads of one core are far apart, so that the first CPUs are cores of their own;
 * otherwise by package, last-level cache, core. What is unknown counts as 0. */
void mu_topology_order(const char *root, unsigned *cpus, size_t count);

/* The share of `shares` that is nearest to the CPU on which this thread runs now, among the CPUs
 * that the process may use; by the number of the worker where that is unknown. Below `shares`. */
unsigned mu_topology_share(unsigned worker, unsigned workers, unsigned shares);

/* Read the topology for the CPUs that this thread may use, unless it is known. */
void mu_topology_prepare(void);

/* Have it read again when it is next needed: after a fork, or a change of the affinity mask. */
void mu_topology_forget(void);

/* Whether MUONIUM_PIN is 1: each thread that the library starts shall be bound to one CPU. */
bool mu_topology_pins(void);

/* Bind this thread, the n-th worker that was started, to the CPU of that place in the order. The
 * first place is left to the thread that calls the library. mu_topology_prepare comes before. */
void mu_topology_pin(unsigned n);

#endif
