/*
 * measure.h: measure how long functions take, and the peak rates of this machine.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>

#include "muonium.h"

typedef void measured(void *context);

/* The shortest time of a run, in seconds. The first run is not counted. As many follow as fit into
 * `budget` seconds, but at least three, or one if a run is very long. */
double measure_best(measured *run, void *context, double budget);

/* The same for several functions, which run in turn, so that other load on the machine affects all
 * of them alike. `budget` is for each. */
typedef struct measurement {
    measured *run;
    void *context;
    double best; /* the result */
} measurement;

void measure_in_turns(measurement *all, size_t count, double budget);

/* The peak rate of all threads together, in floating-point operations per second: the micro-kernel
 * for operands of a type on changing operands, best of `budget` seconds. 0 if there is no such
 * kernel. */
double measure_peak(muonium_dtype type, double budget);

/* Operations per second of the int8 tile by all threads together, on random digits in the L1 cache.
 * A multiplication and an addition count as two. */
double measure_int8_peak(double budget);

/* Bytes per second, read plus written, of a copy by all threads together between two arrays far
 * larger than any cache; best of `budget` seconds. 0 if there is no memory for it. */
double measure_copy(double budget);

/* The shortest time in seconds in which a word passes from one thread to another and back. It is
 * about three times as long between threads without a common cache. 0 with one thread. */
double measure_round_trip(void);

double seconds_now(void);

/* Seconds for which this thread has had a CPU. */
double thread_seconds(void);

#endif
