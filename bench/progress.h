/*
 * progress.h: what is being measured, and about how long it will go on. A terminal shows it on
 * one line of standard error; elsewhere a line is written every half minute.
 */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

/* Everything together will take about so many seconds. */
void progress_begin(double seconds);

/* What comes next, about so many seconds of them. */
void progress_next(double seconds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Clears the line. */
void progress_end(void);

#endif
