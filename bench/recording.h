/*
 * recording.h: a step recorded on one core, as replay.h takes it.
 */
#ifndef BENCH_RECORDING_H
#define BENCH_RECORDING_H

#include "optimizer/schedule.h"
#include "replay.h"

typedef enum recording_phase { BEFORE, JOB, FILLER } recording_phase;

typedef struct recorder {
    replay_recording r;
    const mu_schedule *schedule;
    size_t copies;
    recording_phase phase;
    size_t first_run;     /* of the present job */
    double last, started; /* end of the last run; start of the present piece */
    size_t index;         /* of the present piece */
    size_t stride;        /* sampled pieces of long runs of chunks */
    double sampled;       /* seconds of all sampled pieces */
    size_t samples;       /* their number */
    const mu_class *kinds[256];
    size_t kind_counts[256], kind_jobs[256], kind_count;
    bool known;
} recorder;

/* Record a step as the schedule divides it for so many cores, with every matrix counted `copies`
 * times. Seconds are the CPU time of this thread, so that other programs do not count. False
 * without memory, or with the library's message. */
bool recording_make(muonium_optimizer *optimizer, size_t copies, unsigned cores, recorder *rec);

/* Keep the lesser of the times of two recordings of the same step: noise only adds. */
void recording_keep_best(replay_recording *r, const replay_recording *other);

#endif
