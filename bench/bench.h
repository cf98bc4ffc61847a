/*
 * bench.h: what the parts of the benchmark share.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>

#include "measure.h"
#include "muonium.h"

/* One figure: how long, and what the machine had to do at least. */
typedef struct bench_row {
    const char *name;
    muonium_shape shape;
    double seconds;
    double flops; /* 0: memory alone counts */
    double bytes; /* read plus written; 0: arithmetic alone counts */
} bench_row;

enum { MOST_ROWS = 512 };

typedef struct bench {
    double budget; /* seconds per figure */
    bench_row rows[MOST_ROWS];
    size_t count;
    double peak, copy; /* flops and bytes per second */
    double overhead;   /* of a Muon step over its orthogonalisation; 0: not measured */
} bench;

void bench_record(bench *b, bench_row row);

/* optimizer.c: AdamW, a Muon step; GPT-2 124M. False, with the library's message, if the
 * optimizer fails. */
bool bench_optimizer(bench *b);
bool bench_gpt2(bench *b);

#endif
