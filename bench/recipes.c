/*
 * recipes.c: what a step of GPT-2 124M takes under every recipe, beside the least that the bytes
 * and the operations of that step can take on this machine.
 */
#include <math.h>
#include <stdio.h>

#include "bench.h"
#include "json.h"
#include "progress.h"

enum { MOST_RECIPES = 32, SECONDS_EACH = 10 };

typedef struct recipe_row {
    bench_recipe_figures figures;
    double bound; /* seconds */
} recipe_row;

/* What follows the recipes: our own with state of other types. */
static const struct variant {
    const char *name;
    muonium_dtype momentum, adam;
} variants[] = {{"  bf16", MUONIUM_BF16, MUONIUM_F32},
                {"  int8", MUONIUM_INT8, MUONIUM_F32},
                {"  int8 all", MUONIUM_INT8, MUONIUM_INT8}};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* Recipes that iterate in half precision run in f32 too, so that the table compares their rules. */
static bool measure(bench *b, const char *name, const struct variant *state, recipe_row *row)
{
    muonium_options options;
    muonium_options_init(&options, state ? NULL : name);
    if (state) {
        options.state_dtype = state->momentum;
        options.adam_state_dtype = state->adam;
    }
    options.lr = isnan(options.lr) ? 0.01 : options.lr;
    options.plan.precision = MUONIUM_F32;
    options.routing = MUONIUM_ROUTING_MUONIUM;
    row->figures.name = name;
    progress_next(SECONDS_EACH, "a step of GPT-2 124M under %s", name);
    if (!bench_recipe(b, &options, &row->figures)) {
        return false;
    }
    double peak = measure_peak(MUONIUM_F32, 0.03);
    b->peak = peak > b->peak ? peak : b->peak;
    return true;
}

static void print_json(const recipe_row *rows, size_t count,
                       const bench_momentum_figures momenta[BENCH_MOMENTA])
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "version", muonium_version());
    json_integer(&writer, "threads", muonium_threads());
    json_array(&writer, "recipes");
    for (size_t i = 0; i < count; i++) {
        const recipe_row *row = &rows[i];
        json_object(&writer, NULL);
        json_string(&writer, "recipe", row->figures.name);
        json_number(&writer, "seconds", row->figures.seconds);
        json_number(&writer, "times_as_fast", rows[0].figures.seconds / row->figures.seconds);
        json_number(&writer, "percent_of_bound", 100 * row->bound / row->figures.seconds);
        json_number(&writer, "state_bytes", row->figures.state);
        json_number(&writer, "flops", row->figures.flops);
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_array(&writer, "momentum_pass");
    for (size_t i = 0; i < BENCH_MOMENTA; i++) {
        json_object(&writer, NULL);
        json_string(&writer, "momentum", momenta[i].name);
        json_number(&writer, "seconds", momenta[i].seconds);
        json_number(&writer, "times_as_fast", momenta[0].seconds / momenta[i].seconds);
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_object_end(&writer);
}

static void print_table(const bench *b, const recipe_row *rows, size_t count)
{
    printf("GPT-2 124M, whole steps on %d threads, iterations in f32, routes of muonium\n"
           "peak %.0f GF/s, copy %.1f GB/s\n\n"
           "%-10s %10s %8s %12s %10s %10s\n",
           muonium_threads(), b->peak / 1e9, b->copy / 1e9, "recipe", "ms", "speed", "% of bound",
           "state MB", "GF");
    for (size_t i = 0; i < count; i++) {
        const bench_recipe_figures *f = &rows[i].figures;
        printf("%-10s %10.1f %7.2fx %12.0f %10.0f %10.1f\n", f->name, 1e3 * f->seconds,
               rows[0].figures.seconds / f->seconds, 100 * rows[i].bound / f->seconds,
               f->state / 1e6, f->flops / 1e9);
    }
    printf("\nbf16, int8, int8 all: %s with momentum of that type; all: AdamW's first moment too.\n"
           "speed: relative to %s. The bound is the time of the bytes of a step at the bandwidth "
           "of a copy, plus the time of its operations at the peak.\n",
           rows[0].figures.name, rows[0].figures.name);
}

static void print_momenta(const bench_momentum_figures momenta[BENCH_MOMENTA])
{
    printf("\nThe pass over gradients and momentum of 12 matrices 3072 x 768 alone, all types in "
           "turns:\n");
    for (size_t i = 0; i < BENCH_MOMENTA; i++) {
        printf("%-16s %7.2f ms %7.2fx, %.0f bytes of momentum per element\n", momenta[i].name,
               1e3 * momenta[i].seconds, momenta[0].seconds / momenta[i].seconds, momenta[i].bytes);
    }
}

bool bench_recipes(bench *b, bool as_json)
{
    static recipe_row rows[MOST_RECIPES];
    const char *name;
    size_t count = 0, total = 0;
    while (total < MOST_RECIPES && muonium_recipe_name((int)total)) {
        total++;
    }
    total = total < MOST_RECIPES - VARIANTS ? total : MOST_RECIPES - VARIANTS;
    progress_begin((double)(SECONDS_EACH * (total + VARIANTS + 1)));
    bool done = true;
    for (; done && count < total && (name = muonium_recipe_name((int)count)); count++) {
        done = measure(b, name, NULL, &rows[count]);
    }
    for (size_t i = 0; done && i < VARIANTS; i++, count++) {
        done = measure(b, variants[i].name, &variants[i], &rows[count]);
    }
    bench_momentum_figures momenta[BENCH_MOMENTA] = {{NULL, 0, 0}};
    progress_next(SECONDS_EACH, "the momentum pass alone");
    done = done && bench_momentum(b, momenta);
    progress_end();
    for (size_t i = 0; i < count; i++) {
        rows[i].bound = rows[i].figures.bytes / b->copy + rows[i].figures.flops / b->peak;
    }
    if (done && as_json) {
        print_json(rows, count, momenta);
    } else if (done) {
        print_table(b, rows, count);
        print_momenta(momenta);
    }
    return done;
}
