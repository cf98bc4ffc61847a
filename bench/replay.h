/*
 * replay.h: a recorded step on more workers than this machine has.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include <stdbool.h>
#include <stddef.h>

/* One run of the pool: the times of its pieces in seconds, each measured alone on one core. */
typedef struct replay_run {
    double gap;   /* seconds of one thread before it */
    size_t first; /* piece, in the recording's array */
    size_t count;
    unsigned workers; /* that may take part */
    double bytes;     /* of memory traffic per piece; 0: in cache */
} replay_run;

/* A sequence of runs: the work of one team for one job, or of all workers between jobs. */
typedef struct replay_job {
    size_t first, count; /* runs, in the recording's array */
    double tail;         /* seconds of one thread after the last run */
} replay_job;

typedef struct replay_recording {
    double *pieces;
    size_t piece_count, piece_room;
    replay_run *runs;
    size_t run_count, run_room;
    replay_job *jobs;
    size_t job_count, job_room;
    size_t *queue; /* jobs in the order in which they are handed out, by number */
    size_t queue_count, queue_room;
    replay_job before; /* all workers, before the jobs */
    replay_run filler;
    unsigned teams, width;
    bool failed; /* there was no memory */
} replay_recording;

/* The machine. Seconds are those of a worker that waits for work until it has a piece. It spins at
 * first, and sleeps after `spin` seconds. Of those that wait the first is there after `handover` or
 * `wakeup`, and each further one so much later. Who wakes sleepers is busy for as long. */
typedef struct replay_machine {
    unsigned workers;
    double spin;
    double handover, per_worker; /* of those that spin */
    double wakeup, per_sleeper;  /* of those that sleep */
    double bandwidth;            /* bytes per second of all workers together */
    double slowdown;             /* of a piece, because other cores work too; 1: none */
} replay_machine;

typedef struct replay_result {
    double seconds;
    /* Seconds of workers, together `seconds` times their number: within pieces or between the runs
     * of a job; within pieces but waiting for memory or slowed down; from the start of a run or its
     * end to the next piece; and without anything to do. */
    double busy, stalled, barriers, idle;
    unsigned teams, width; /* of the recording */
} replay_result;

/* False without memory. */
bool replay(const replay_recording *recording, const replay_machine *machine,
            replay_result *result);

void replay_free(replay_recording *recording);

#endif
