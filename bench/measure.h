/*
 * measure.h: how long things take, and what this machine could do at best.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>

#include "muonium.h"

typedef void measured(void *context);

/* The shortest time in seconds that one run takes, of as many as fit into `budget`
 * seconds but at least three after a first one that is not counted; of what takes long, one. */
double measure_best(measured *run, void *context, double budget);

/* The same for several things, of which each runs in its turn: so that what else goes on in
 * the machine meets all of them. `budget` is for each. */
typedef struct measurement {
    measured *run;
    void *context;
    double best; /* the result */
} measurement;

void measure_in_turns(measurement *all, size_t count, double budget);

/* Floating-point operations per second of all threads together, on operands that change, with the
 * kernel in use for operands of a type; best of `budget` seconds. 0 if none multiplies that. */
double measure_peak(muonium_dtype type, double budget);

/* Operations per second of the int8 tile on random digits in the nearest cache, by all threads
 * together; a product and its sum are two. */
double measure_int8_peak(double budget);

/* Bytes per second, read plus written, of a copy between two arrays far larger than
 * any cache, by all threads together; best of `budget` seconds. 0 if there is no memory for it. */
double measure_copy(double budget);

/* Seconds that a word takes from one thread to another and back, at best: three times as
 * long where the two have no cache in common. 0 with one thread. */
double measure_round_trip(void);

double seconds_now(void);

#endif
