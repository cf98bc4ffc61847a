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

/* Read the topology, once per process. mu_topology_share uses what was read before. */
void mu_topology_prepare(void);

/* If MUONIUM_PIN is 1, bind this thread, the n-th worker that was started, to the CPU of that place
 * in the order. The first place is left to the thread that calls the library. */
void mu_topology_pin(unsigned n);

#endif
