/*
 * command_bench.c: `muonium bench`: every product and whole orthogonalisations, in
 * flops per second and as a share of the peak measured in the same run.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cblas_peer.h"
#include "command.h"
#include "json.h"
#include "matmul/matmul.h"
#include "shapes.h"

enum { JSON, THREADS, SHAPES, SECONDS, FORMS, GPT2, TILES, CHECKPOINT, DIRECTORY, MEGABYTES };

static const option options[] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
    [THREADS] = {.name = "threads",
                 .type = OPTION_INTEGER,
                 .placeholder = "N",
                 .least = 1,
                 .most = 1024,
                 .help = "threads to use; without it, as many as the library would"},
    [SHAPES] = {.name = "shapes",
                .type = OPTION_TEXT,
                .placeholder = "LIST",
                .help = "orthogonalise just these, as 768x3072,24x128x512 (batch first), and "
                        "measure the products at their sizes; without it, a standard list"},
    [SECONDS] = {.name = "seconds",
                 .type = OPTION_NUMBER,
                 .placeholder = "S",
                 .fallback = "0.2",
                 .help = "time to spend on each figure; the best run counts"},
    [FORMS] = {.name = "forms",
               .type = OPTION_FLAG,
               .help = "orthogonalise in every form too, and compare"},
    [GPT2] = {.name = "gpt2",
              .type = OPTION_FLAG,
              .help = "also take whole steps of GPT-2 124M (1.7 GB, some 20 seconds)"},
    [TILES] = {.name = "tiles",
               .type = OPTION_FLAG,
               .help = "instead of all this, the innermost part of products alone, as rows x "
                       "(terms of the sum x columns), packed and where matrices lie"},
    [CHECKPOINT] = {.name = "checkpoint",
                    .type = OPTION_FLAG,
                    .help = "instead of all this, save and load a state, beside plain write and "
                            "read of the same bytes"},
    [DIRECTORY] = {.name = "directory",
                   .type = OPTION_FILE,
                   .placeholder = "DIR",
                   .fallback = ".",
                   .help = "where --checkpoint does so, with room for the state twice"},
    [MEGABYTES] = {.name = "megabytes",
                   .type = OPTION_INTEGER,
                   .placeholder = "N",
                   .fallback = "500",
                   .least = 1,
                   .most = 100000,
                   .help = "the state of --checkpoint; four times as much memory is used"},
};

static const muonium_shape standard_shapes[] = {
    {1, 128, 128},   {1, 256, 256},   {1, 512, 512},  {1, 768, 768},
    {1, 1024, 1024}, {1, 2048, 2048}, {1, 512, 2048}, {1, 768, 3072},
    {24, 128, 512},  {16, 512, 1280}, {256, 64, 64},
};

/* The clock of a CPU wanders: the peak is the best seen in the whole run. And threads wander
 * between CPUs, a virtual machine's even where they are pinned. */
static void watch_machine(bench *b)
{
    double peak = measure_peak(MUONIUM_F32, 0.03), trip = measure_round_trip();
    b->peak = peak > b->peak ? peak : b->peak;
    if (trip > 1e-5) {
        return; /* no way is that long: one of the threads had no CPU */
    }
    b->nearest = b->nearest == 0 || (trip > 0 && trip < b->nearest) ? trip : b->nearest;
    b->farthest = trip > b->farthest ? trip : b->farthest;
}

void bench_record(bench *b, bench_row row)
{
    if (b->count < MOST_ROWS) {
        b->rows[b->count++] = row;
    }
    watch_machine(b);
}

void bench_record_flops(bench *b, const char *name, muonium_shape shape, double flops,
                        double seconds)
{
    bench_record(b, (bench_row){.name = name, .shape = shape, .seconds = seconds, .flops = flops});
}

float *bench_filled(size_t rows, size_t ld)
{
    float *matrix = mu_alloc(rows * ld * sizeof *matrix);
    for (size_t i = 0; matrix && i < rows * ld; i++) {
        matrix[i] = (float)((i * 2654435761u >> 8) % 2048) / 2048 - 0.5f;
    }
    return matrix;
}

/* ---- products ---- */

typedef struct product {
    mu_matmul with;
    size_t m, n, ld_square, ld;
    mu_operand square, x;
    void *symmetric, *other, *rectangle, *result;
} product;

static void run_gram(void *context)
{
    product *p = context;
    mu_gram(&p->with, p->m, p->n, &p->x, p->other, p->ld_square);
}

static void run_symmul(void *context)
{
    product *p = context;
    mu_symmul(&p->with, p->m, &p->square, &p->square, p->other, p->ld_square);
}

static void run_apply(void *context)
{
    product *p = context;
    mu_apply(&p->with, p->m, p->n, &p->square, &p->x, p->result, p->ld, 1);
}

static void run_sgemm(void *context)
{
    product *p = context;
    cblas_peer_gemm(p->m, p->n, p->m, p->symmetric, p->ld_square, p->rectangle, p->ld, p->result,
                    p->ld);
}

static void run_ssyrk(void *context)
{
    product *p = context;
    cblas_peer_syrk(p->m, p->n, p->rectangle, p->ld, p->other, p->ld_square);
}

static bool bench_products(bench *b, size_t m, size_t n)
{
    product p = {.m = m, .n = n};
    size_t bytes;
    if (mu_kernel_choose(MUONIUM_F32, &p.with.kernel) != MUONIUM_OK ||
        !mu_matmul_scratch(p.with.kernel, m, n, mu_pool_lanes(), &bytes)) {
        return false;
    }
    p.with.lanes = mu_pool_lanes();
    p.with.scratch = mu_alloc(bytes);
    p.ld_square = mu_leading(p.with.kernel, m);
    p.ld = mu_leading(p.with.kernel, n);
    p.symmetric = bench_filled(m, p.ld_square);
    p.other = bench_filled(m, p.ld_square);
    p.rectangle = bench_filled(m, p.ld);
    p.result = bench_filled(m, p.ld);
    bool ready = p.with.scratch && p.symmetric && p.other && p.rectangle && p.result;
    if (ready) {
        p.with.kernel->mirror(p.symmetric, (ptrdiff_t)p.ld_square, 0, m, 0, m);
        p.square = mu_operand_of(p.with.kernel, p.symmetric, p.ld_square, 1, 0);
        p.x = mu_operand_of(p.with.kernel, p.rectangle, p.ld, 1, 0);
        muonium_shape shape = {1, m, n};
        measurement ours[] = {{run_gram, &p, 0}, {run_symmul, &p, 0}, {run_apply, &p, 0}};
        measure_in_turns(ours, 3, b->budget);
        bench_record_flops(b, "gram", shape, mu_gram_flops(m, n), ours[0].best);
        bench_record_flops(b, "symmul", shape, mu_symmul_flops(m), ours[1].best);
        bench_record_flops(b, "apply", shape, mu_apply_flops(m, n), ours[2].best);
        if (cblas_peer_name()) { /* not in turns with ours: its threads go on spinning */
            measurement theirs[] = {{run_ssyrk, &p, 0}, {run_sgemm, &p, 0}};
            measure_in_turns(theirs, 2, b->budget);
            bench_record_flops(b, "cblas_ssyrk", shape, mu_gram_flops(m, n), theirs[0].best);
            bench_record_flops(b, "cblas_sgemm", shape, mu_apply_flops(m, n), theirs[1].best);
        }
    }
    mu_free(p.with.scratch);
    mu_free(p.symmetric);
    mu_free(p.other);
    mu_free(p.rectangle);
    mu_free(p.result);
    return ready;
}

/* ---- command ---- */

/* Bytes take time too: the least time that the machine allows. */
static double bound_of(const bench *b, const bench_row *r)
{
    return (b->peak > 0 ? r->flops / b->peak : 0) + (b->copy > 0 ? r->bytes / b->copy : 0);
}

static void print_share(const bench *b, const bench_row *r)
{
    if (r->bytes == 0) {
        printf("%10.1f GF/s %6.1f %% of peak\n", r->flops / r->seconds / 1e9,
               100 * bound_of(b, r) / r->seconds);
    } else if (r->flops == 0) {
        printf("%10.1f GB/s %6.1f %% of copy\n", r->bytes / r->seconds / 1e9,
               100 * bound_of(b, r) / r->seconds);
    } else {
        printf("%15s %6.1f %% of both\n", "", 100 * bound_of(b, r) / r->seconds);
    }
}

static void format_shape(muonium_shape shape, char *text, size_t size)
{
    if (shape.batch == 1) {
        snprintf(text, size, "%zu x %zu", shape.rows, shape.cols);
    } else {
        snprintf(text, size, "%zu x (%zu x %zu)", shape.batch, shape.rows, shape.cols);
    }
}

static void print_table(const bench *b, const muonium_cpu_info *cpu)
{
    printf("kernel %s (%s), %d threads\n", cpu->kernel, cpu->reason, muonium_threads());
    printf("peak   %.1f GF/s (multiply-add in registers), copy %.1f GB/s (read + write)\n",
           b->peak / 1e9, b->copy / 1e9);
    if (b->bf16_peak > 0) {
        printf("       %.1f GF/s where bf16 is multiplied; shares are of the peak above\n",
               b->bf16_peak / 1e9);
    }
    if (b->farthest > 0) {
        printf("caches %.0f to %.0f ns from one thread to another and back\n", 1e9 * b->nearest,
               1e9 * b->farthest);
    }
    if (cblas_peer_name()) {
        printf("peer   %s\n", cblas_peer_name());
    }
    printf("\n");
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        char shape[64];
        format_shape(r->shape, shape, sizeof shape);
        printf("%-16s %20s %10.3f ms ", r->name, shape, 1e3 * r->seconds);
        print_share(b, r);
    }
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        if (r->scratch > 0) {
            printf("\nThe %s uses scratch memory of %.2f times its largest matrix.\n", r->name,
                   r->scratch);
        }
    }
    for (size_t i = 0; i < b->comparison_count; i++) {
        const bench_comparison *c = &b->comparisons[i];
        char shape[64];
        format_shape(c->shape, shape, sizeof shape);
        printf("%s%-20s %5.2f times as fast as %s\n", i == 0 ? "\n" : "", shape,
               c->theirs / c->ours, c->peer);
    }
    if (b->overhead > 0) {
        printf("\nA Muon step on 768 x 3072 takes %.1f %% more than orthogonalising alone.\n",
               100 * b->overhead);
    }
}

static void print_json(const bench *b, const muonium_cpu_info *cpu)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "version", muonium_version());
    json_string(&writer, "kernel", cpu->kernel);
    json_string(&writer, "peer", cblas_peer_name());
    json_number(&writer, "peak_gflops", b->peak / 1e9);
    json_number(&writer, "copy_gbps", b->copy / 1e9);
    if (b->bf16_peak > 0) {
        json_number(&writer, "bf16_peak_gflops", b->bf16_peak / 1e9);
    }
    if (b->farthest > 0) {
        json_number(&writer, "nearest_round_trip_ns", 1e9 * b->nearest);
        json_number(&writer, "farthest_round_trip_ns", 1e9 * b->farthest);
    }
    if (b->overhead > 0) {
        json_number(&writer, "step_overhead_percent", 100 * b->overhead);
    }
    json_array(&writer, "results");
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        json_object(&writer, NULL);
        json_string(&writer, "name", r->name);
        json_integer(&writer, "m", (long long)r->shape.rows);
        json_integer(&writer, "n", (long long)r->shape.cols);
        json_integer(&writer, "batch", (long long)r->shape.batch);
        json_integer(&writer, "threads", muonium_threads());
        json_number(&writer, "seconds", r->seconds);
        if (r->flops > 0) {
            json_number(&writer, "gflops", r->flops / r->seconds / 1e9);
            json_number(&writer, "percent_of_peak", 100 * r->flops / r->seconds / b->peak);
        }
        if (r->bytes > 0) {
            json_number(&writer, "gbps", r->bytes / r->seconds / 1e9);
            json_number(&writer, "percent_of_copy", 100 * r->bytes / r->seconds / b->copy);
        }
        if (r->bytes > 0 && r->flops > 0) {
            json_number(&writer, "percent_of_bound", 100 * bound_of(b, r) / r->seconds);
        }
        if (r->scratch > 0) {
            json_number(&writer, "scratch_per_largest_matrix", r->scratch);
        }
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_array(&writer, "comparisons");
    for (size_t i = 0; i < b->comparison_count; i++) {
        const bench_comparison *c = &b->comparisons[i];
        json_object(&writer, NULL);
        json_integer(&writer, "m", (long long)c->shape.rows);
        json_integer(&writer, "n", (long long)c->shape.cols);
        json_integer(&writer, "batch", (long long)c->shape.batch);
        json_string(&writer, "peer", c->peer);
        json_number(&writer, "times_as_fast", c->theirs / c->ours);
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_object_end(&writer);
}

static int run_checkpoint(const command *self, const option_value *value)
{
    checkpoint_figures figures;
    char error[512];
    if (!bench_checkpoint(value[DIRECTORY].text, value[MEGABYTES].integer, &figures, error)) {
        return message_failed(self->name, "%s", error);
    }
    if (value[JSON].given) {
        bench_checkpoint_json(&figures);
    } else {
        bench_checkpoint_print(&figures);
    }
    return EXIT_OK;
}

static int run(const command *self, const arguments *given)
{
    static const option_clash clashes[] = {
        {CHECKPOINT, SHAPES}, {CHECKPOINT, SECONDS}, {CHECKPOINT, FORMS}, {CHECKPOINT, GPT2},
        {CHECKPOINT, TILES},  {TILES, SHAPES},       {TILES, FORMS},      {TILES, GPT2}};
    const option_value *value = given->value;
    if (!options_agree(self->name, options, value, clashes, sizeof clashes / sizeof clashes[0])) {
        return EXIT_USAGE;
    }
    muonium_shape shapes[SHAPES_MOST];
    size_t count = sizeof standard_shapes / sizeof standard_shapes[0];
    memcpy(shapes, standard_shapes, sizeof standard_shapes);
    if (value[SHAPES].text && !shapes_parse(value[SHAPES].text, shapes, &count)) {
        return message_usage(self->name,
                             "shapes '%s' cannot be read: write rows x columns, as 768x3072, or "
                             "24x128x512 with a batch, up to %d of them separated by commas",
                             value[SHAPES].text, SHAPES_MOST);
    }
    if (value[SECONDS].number < 0 || value[SECONDS].number > 60) {
        return message_usage(self->name, "seconds is %g: use 0 to 60", value[SECONDS].number);
    }
    muonium_cpu_info cpu;
    if ((value[THREADS].given && muonium_set_threads(value[THREADS].integer) != MUONIUM_OK) ||
        muonium_cpu(&cpu) != MUONIUM_OK) {
        return message_failed(self->name, "%s", muonium_last_error());
    }
    if (value[CHECKPOINT].given) {
        return run_checkpoint(self, value);
    }
    static bench b;
    b.budget = value[SECONDS].number;
    b.copy = measure_copy();
    watch_machine(&b);
    if (value[TILES].given) {
        count = 0;
        if (!bench_tiles(&b)) {
            return message_failed(self->name, "%s", muonium_last_error());
        }
    }
    for (size_t i = 0; i < count; i++) {
        /* The products once per size, where one matrix stands for a batch. */
        bool rectangle_only = shapes[i].batch > 1;
        size_t m = shapes[i].rows, n = shapes[i].cols;
        if (!rectangle_only && m <= n && !bench_products(&b, m, n)) {
            return message_failed(self->name, "no memory for the products of %zu x %zu", m, n);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!bench_orthogonalize(&b, shapes[i], value[FORMS].given)) {
            return message_failed(self->name, "orthogonalising %zu x %zu x %zu failed: %s",
                                  shapes[i].batch, shapes[i].rows, shapes[i].cols,
                                  muonium_last_error());
        }
    }
    if (!value[SHAPES].given && !value[TILES].given && !bench_optimizer(&b)) {
        return message_failed(self->name, "the optimizer: %s", muonium_last_error());
    }
    if (value[GPT2].given && !bench_gpt2(&b)) {
        return message_failed(self->name, "GPT-2: %s", muonium_last_error());
    }
    if (value[JSON].given) {
        print_json(&b, &cpu);
    } else {
        print_table(&b, &cpu);
    }
    return EXIT_OK;
}

const command command_bench = {
    .name = "bench",
    .summary = "measure products and orthogonalisations against this machine's peak",
    .description =
        "Measures the three products of the iteration, whole orthogonalisations and the "
        "optimizer in f32, best of several runs, and prints each as a share of the multiply-add "
        "peak, or of the bandwidth of a plain copy, measured in the same run. Symmetric products "
        "count the operations of one triangle only. Where a CBLAS "
        "library is installed, its products stand beside ours (it counts as if it computed one "
        "triangle for ssyrk), and so do five steps of the iteration as they are usually written, "
        "in plain products of that library. The time that a word takes from one thread to another "
        "and back tells whether they had a cache in common; it may change during a run.\n\n"
        "Run it on an otherwise idle machine.",
    .example = "muonium bench\nmuonium bench --shapes 768x3072,24x128x512 --threads 2 --json\n"
               "muonium bench --checkpoint --directory /tmp",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
