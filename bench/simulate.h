/*
 * simulate.h: `muonium bench --cores LIST`: what a step would take on more cores than this machine
 * has.
 */
#ifndef BENCH_SIMULATE_H
#define BENCH_SIMULATE_H

#include <stdbool.h>

/* Print the cost of the pool for 2 to 64 threads, and predicted steps on as many cores as the
 * comma-separated list says. `quick`: only the small models. False, with a message in
 * muonium_last_error or in *why, if that fails. */
bool simulate_cores(const char *list, bool quick, bool json, const char **why);

#endif
