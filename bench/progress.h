/*
 * progress.h: show what is being measured and how long the rest will take. A terminal shows it on
 * one line of standard error; elsewhere a line is written every half minute.
 */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

/* Start. `seconds` is the estimated time of all measurements. */
void progress_begin(double seconds);

/* Name the next measurement, with its estimated time. */
void progress_next(double seconds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Clear the line. */
void progress_end(void);

#endif
