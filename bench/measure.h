/*
 * measure.h: how long things take, and what this machine could do at best.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>

typedef void measured(void *context);

/* The shortest time in seconds that one run takes, of as many as fit into `budget`
 * seconds but at least three after a first one that is not counted. */
double measure_best(measured *run, void *context, double budget);

/* Floating-point operations per second of all threads together, in registers only,
 * with the f32 kernel in use; best of `budget` seconds. */
double measure_peak(double budget);

/* Bytes per second, read plus written, of a copy between two arrays far larger than
 * any cache, by all threads together. 0 if there is no memory for it. */
double measure_copy(void);

double seconds_now(void);

#endif
