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
    double flops;    /* 0: memory alone counts */
    double bytes;    /* read plus written; 0: arithmetic alone counts */
    double int8_ops; /* operations on digits of a fixed-point product; 0: it is none */
    double scratch;  /* of a step, in sizes of its largest matrix; 0: not of interest */
} bench_row;

/* Our time for an orthogonalisation beside another's in the same run. */
typedef struct bench_comparison {
    muonium_shape shape;
    const char *peer;
    double ours, theirs; /* seconds */
} bench_comparison;

/* A product that the peer was not asked for, because one run would take `seconds`. */
typedef struct bench_skip {
    const char *name;
    muonium_shape shape;
    double seconds;
} bench_skip;

enum { MOST_ROWS = 1024, MOST_COMPARISONS = 128, MOST_SKIPS = 256 };

typedef struct bench {
    double budget; /* seconds per figure */
    bench_row rows[MOST_ROWS];
    size_t count;
    bench_comparison comparisons[MOST_COMPARISONS];
    size_t comparison_count;
    bench_skip skips[MOST_SKIPS];
    size_t skip_count;
    double peak, copy;        /* flops of f32 and bytes per second */
    double peer_rate;         /* flops per second of the peer's sgemm; 0: there is none */
    bool peer_limited;        /* the peer uses as many threads as the library */
    double bf16_peak;         /* where the CPU multiplies bf16; 0: it does not */
    double int8_peak;         /* of the int8 tile */
    bool precisions;          /* all of them are measured, not only f32 */
    double nearest, farthest; /* round trips between two threads, in seconds; 0: one thread */
    double overhead;          /* of a Muon step over its orthogonalisation; 0: not measured */
} bench;

void bench_record(bench *b, bench_row row);
void bench_record_flops(bench *b, const char *name, muonium_shape shape, double flops,
                        double seconds);

/* Whether a run of the peer with `flops` operations takes at most ten times the budget, or a
 * second. Otherwise record the skip. */
bool bench_peer_can(bench *b, const char *name, muonium_shape shape, double flops);

/* About how long one figure takes, in seconds, if one run takes `run` seconds. */
double bench_figure_seconds(const bench *b, double run);

/* An array of numbers in [-0.5, 0.5); NULL without memory. Free it by mu_free. */
float *bench_filled(size_t rows, size_t ld);

/* "768 x 3072", "24 x (128 x 512)" */
typedef struct bench_shape_text {
    char text[80];
} bench_shape_text;

bench_shape_text bench_format_shape(muonium_shape shape);

/* orthogonalize.c: measure muonium_orthogonalize on a shape, and the same iterations by products of
 * a CBLAS library if there is one; with `forms`, also every form. False, with the library's
 * message, if it fails. The second function estimates how long the first takes. */
bool bench_orthogonalize(bench *b, muonium_shape shape, bool forms);
double bench_orthogonalize_seconds(const bench *b, muonium_shape shape, bool forms);

/* tiles.c: measure the micro-kernel alone, as rows x (k x columns). False, with the library's
 * message, if it fails. */
bool bench_tiles(bench *b);

/* optimizer.c: measure steps of AdamW and of Muon; then a whole step of GPT-2 124M. False, with the
 * library's message, if the optimizer fails. */
bool bench_optimizer(bench *b);
bool bench_gpt2(bench *b);

/* A whole step of GPT-2 124M under some options. */
typedef struct bench_recipe_figures {
    const char *name;
    double seconds;
    double flops; /* of the orthogonalisations */
    double bytes; /* the least memory traffic of a step */
    double state; /* bytes */
} bench_recipe_figures;

/* optimizer.c: false, with the library's message, if it fails. */
bool bench_recipe(bench *b, const muonium_options *options, bench_recipe_figures *figures);

/* momentum.c: the pass over gradient and momentum alone, with momentum of each type in turns, in
 * seconds. False, with the library's message, if it fails. */
typedef struct bench_momentum_figures {
    const char *name;
    double seconds;
    double bytes; /* of momentum, read and written, per element */
} bench_momentum_figures;

enum { BENCH_MOMENTA = 4 };

bool bench_momentum(bench *b, bench_momentum_figures figures[BENCH_MOMENTA]);

/* recipes.c: all recipes, and variants of state; prints a table or JSON. False, with the library's
 * message, if one fails. */
bool bench_recipes(bench *b, bool as_json);

/* checkpoint.c: seconds to save and to load a state, and seconds that plain system calls take for
 * the same bytes. */
typedef struct checkpoint_figures {
    double bytes;       /* of the state */
    double save, write; /* with fsync */
    double load, read;  /* from the page cache */
    double cold_load, cold_read;
    double extra; /* bytes of memory that a save allocates */
} checkpoint_figures;

/* Measure in a directory, with a state of about that many megabytes. False if it fails; `error`
 * then holds the reason. */
bool bench_checkpoint(const char *directory, int megabytes, checkpoint_figures *figures,
                      char error[512]);
void bench_checkpoint_print(const checkpoint_figures *figures);
void bench_checkpoint_json(const checkpoint_figures *figures);

#endif
