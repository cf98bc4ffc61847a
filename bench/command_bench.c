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
#include "matmul/fixed.h"
#include "matmul/matmul.h"
#include "progress.h"
#include "shapes.h"
#include "simulate.h"

enum {
    JSON,
    THREADS,
    SHAPES,
    SECONDS,
    QUICK,
    PRODUCTS,
    FORMS,
    GPT2,
    TILES,
    RECIPES,
    CHECKPOINT,
    DIRECTORY,
    MEGABYTES,
    CORES,
    PRECISIONS
};

static const option options[] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
    [THREADS] = {.name = "threads",
                 .type = OPTION_INTEGER,
                 .placeholder = "N",
                 .least = 1,
                 .most = 1024,
                 .help = "number of threads, for the CBLAS library too; by default as "
                         "many as the library would use"},
    [SHAPES] = {.name = "shapes",
                .type = OPTION_TEXT,
                .placeholder = "LIST",
                .help = "measure only these shapes, such as 768x3072,24x128x512 (batch "
                        "first): their orthogonalisations and products of their sizes"},
    [SECONDS] = {.name = "seconds",
                 .type = OPTION_NUMBER,
                 .placeholder = "S",
                 .fallback = "0.2",
                 .help = "time to spend on each figure; the best run counts"},
    [QUICK] = {.name = "quick",
               .type = OPTION_FLAG,
               .help = "measure fewer and smaller shapes, in about ten seconds"},
    [PRODUCTS] = {.name = "products", .type = OPTION_FLAG, .help = "measure only the products"},
    [FORMS] = {.name = "forms", .type = OPTION_FLAG, .help = "also orthogonalise in every form"},
    [GPT2] = {.name = "gpt2",
              .type = OPTION_FLAG,
              .help = "also take whole optimizer steps of GPT-2 124M (1.7 GB, about "
                      "20 seconds)"},
    [TILES] = {.name = "tiles",
               .type = OPTION_FLAG,
               .help = "measure only the micro-kernel, by rows x (k x columns), with "
                       "packed and with unpacked operands"},
    [RECIPES] = {.name = "recipes",
                 .type = OPTION_FLAG,
                 .help = "measure only whole optimizer steps of GPT-2 124M under every recipe "
                         "(2.5 GB, about two minutes)"},
    [CHECKPOINT] = {.name = "checkpoint",
                    .type = OPTION_FLAG,
                    .help = "measure only saving and loading of a state, against plain "
                            "write and read of the same bytes"},
    [DIRECTORY] = {.name = "directory",
                   .type = OPTION_FILE,
                   .placeholder = "DIR",
                   .fallback = ".",
                   .help = "directory for --checkpoint, with room for two states"},
    [MEGABYTES] = {.name = "megabytes",
                   .type = OPTION_INTEGER,
                   .placeholder = "N",
                   .fallback = "500",
                   .least = 1,
                   .most = 100000,
                   .help = "size of the state of --checkpoint; needs four times as much "
                           "memory"},
    [PRECISIONS] = {.name = "precisions",
                    .type = OPTION_FLAG,
                    .help = "also measure bf16, if the CPU multiplies it, fixed23 and fixed15; "
                            "without --quick the default where the CPU has int8 dot products"},
    [CORES] =
        {.name = "cores",
         .type = OPTION_TEXT,
         .placeholder = "LIST",
         .help =
             "measure only the pool, and predict the time of a step for each of these numbers of "
             "cores, such as 8,16,32,64,128; with --quick only for small models"},
};

static const muonium_shape standard_shapes[] = {
    {1, 128, 128},   {1, 256, 256},   {1, 512, 512},    {1, 768, 768},  {1, 1024, 1024},
    {1, 2048, 2048}, {1, 512, 2048},  {1, 768, 3072},   {24, 128, 512}, {16, 512, 1280},
    {256, 64, 64},   {1, 4096, 4096}, {1, 4096, 11008},
};

/* Standard shapes of more elements than this have products only: whole orthogonalisations of them
 * take seconds each. */
enum { PRODUCTS_ALONE = 1 << 23 };

static const muonium_shape quick_shapes[] = {
    {1, 128, 128}, {1, 512, 512}, {1, 256, 1024}, {24, 64, 256}};

/* Clock rates change, so the peak is the best rate of the whole run. Threads move between CPUs, in
 * a virtual machine even if they are pinned, so round trips are measured again and again. */
static void watch_machine(bench *b)
{
    double peak = measure_peak(MUONIUM_F32, 0.03), bf16 = measure_peak(MUONIUM_BF16, 0.01);
    double int8 = measure_int8_peak(0.01), trip = measure_round_trip();
    b->peak = peak > b->peak ? peak : b->peak;
    b->bf16_peak = bf16 > b->bf16_peak ? bf16 : b->bf16_peak;
    b->int8_peak = int8 > b->int8_peak ? int8 : b->int8_peak;
    if (trip > 1e-5) {
        return; /* one of the threads had no CPU: no round trip takes that long */
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

bench_shape_text bench_format_shape(muonium_shape shape)
{
    bench_shape_text t;
    if (shape.batch == 1) {
        snprintf(t.text, sizeof t.text, "%zu x %zu", shape.rows, shape.cols);
    } else {
        snprintf(t.text, sizeof t.text, "%zu x (%zu x %zu)", shape.batch, shape.rows, shape.cols);
    }
    return t;
}

bool bench_peer_can(bench *b, const char *name, muonium_shape shape, double flops)
{
    double seconds = flops / b->peer_rate, limit = 10 * b->budget;
    if (seconds <= (limit > 1 ? limit : 1)) {
        return true;
    }
    if (b->skip_count < MOST_SKIPS) {
        b->skips[b->skip_count++] = (bench_skip){name, shape, seconds};
    }
    return false;
}

double bench_figure_seconds(const bench *b, double run)
{
    enum { RUNS = 4 };
    double watching = 0.1; /* the machine, after each */
    return watching + (RUNS * run > b->budget ? RUNS * run : b->budget);
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

static void measure_peer(bench *b, const char *name, measured *peer, product *p, double flops)
{
    muonium_shape shape = {1, p->m, p->n};
    if (bench_peer_can(b, name, shape, flops)) {
        bench_record_flops(b, name, shape, flops, measure_best(peer, p, b->budget));
    }
}

/* The int8 operations for each of f32, if products are formed of so many digits. */
static double int8_per_flop(int digits)
{
    return digits == 3 ? 6 : 4;
}

/* The products in other precisions. The values do not matter. */
static bool bench_precisions(bench *b, const product *f32)
{
    static const struct {
        int digits; /* 0: bf16 */
        const char *gram, *symmul, *apply;
    } precisions[] = {{0, "  gram bf16", "  symmul bf16", "  apply bf16"},
                      {3, "  gram fixed23", "  symmul fixed23", "  apply fixed23"},
                      {2, "  gram fixed15", "  symmul fixed15", "  apply fixed15"}};
    product p = *f32;
    size_t m = p.m, n = p.n, bytes = 0;
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        int digits = precisions[i].digits;
        if (digits == 0 && b->bf16_peak == 0) {
            continue;
        }
        p.with.digits = digits;
        p.with.separate = digits == 0;
        p.with.kernel = f32->with.kernel;
        if (mu_int8_choose(&p.with.int8) != MUONIUM_OK ||
            (digits == 0 && mu_kernel_choose(MUONIUM_BF16, &p.with.kernel) != MUONIUM_OK) ||
            !(digits == 0 ? mu_matmul_scratch(p.with.kernel, m, n, p.with.workers, &bytes)
                          : mu_fixed_scratch(p.with.int8, digits, m, n, p.with.workers, &bytes))) {
            return false;
        }
        p.with.scratch = mu_alloc(bytes);
        if (!p.with.scratch) {
            return false;
        }
        muonium_shape shape = {1, m, n};
        measurement all[] = {{run_gram, &p, 0}, {run_symmul, &p, 0}, {run_apply, &p, 0}};
        measure_in_turns(all, 3, b->budget);
        bench_row rows[] = {{.name = precisions[i].gram, .flops = mu_gram_flops(m, n)},
                            {.name = precisions[i].symmul, .flops = mu_symmul_flops(m)},
                            {.name = precisions[i].apply, .flops = mu_apply_flops(m, n)}};
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            rows[r].shape = shape;
            rows[r].seconds = all[r].best;
            rows[r].int8_ops = digits > 0 ? int8_per_flop(digits) * rows[r].flops : 0;
            bench_record(b, rows[r]);
        }
        mu_free(p.with.scratch);
    }
    return true;
}

static bool bench_products(bench *b, size_t m, size_t n)
{
    product p = {.m = m, .n = n};
    size_t bytes;
    if (mu_kernel_choose(MUONIUM_F32, &p.with.kernel) != MUONIUM_OK ||
        !mu_matmul_scratch(p.with.kernel, m, n, mu_pool_workers(), &bytes)) {
        return false;
    }
    p.with.workers = mu_pool_workers();
    p.with.scratch = mu_alloc(bytes);
    p.ld_square = mu_leading(p.with.kernel, m);
    p.ld = mu_leading(p.with.kernel, n);
    p.symmetric = bench_filled(m, p.ld_square);
    p.other = bench_filled(m, p.ld_square);
    p.rectangle = bench_filled(m, p.ld);
    p.result = bench_filled(m, p.ld);
    bool ready = p.with.scratch && p.symmetric && p.other && p.rectangle && p.result;
    if (ready) {
        p.with.kernel->rows->mirror(p.symmetric, (ptrdiff_t)p.ld_square, 0, m, 0, m);
        p.square = mu_operand_of(p.with.kernel, p.symmetric, p.ld_square, 1, 0);
        p.x = mu_operand_of(p.with.kernel, p.rectangle, p.ld, 1, 0);
        muonium_shape shape = {1, m, n};
        measurement ours[] = {{run_gram, &p, 0}, {run_symmul, &p, 0}, {run_apply, &p, 0}};
        measure_in_turns(ours, 3, b->budget);
        bench_record_flops(b, "gram", shape, mu_gram_flops(m, n), ours[0].best);
        bench_record_flops(b, "symmul", shape, mu_symmul_flops(m), ours[1].best);
        bench_record_flops(b, "apply", shape, mu_apply_flops(m, n), ours[2].best);
        ready = !b->precisions || bench_precisions(b, &p);
        if (b->peer_rate > 0) { /* not in turns with ours: its threads go on spinning */
            measure_peer(b, "cblas_ssyrk", run_ssyrk, &p, mu_gram_flops(m, n));
            measure_peer(b, "cblas_sgemm", run_sgemm, &p, mu_apply_flops(m, n));
        }
    }
    mu_free(p.with.scratch);
    mu_free(p.symmetric);
    mu_free(p.other);
    mu_free(p.rectangle);
    mu_free(p.result);
    return ready;
}

static double products_seconds(const bench *b, size_t m, size_t n)
{
    double ours = mu_apply_flops(m, n) / b->peak, theirs = mu_apply_flops(m, n) / b->peer_rate;
    return (b->precisions ? 12 : 3) * bench_figure_seconds(b, ours) +
           (b->peer_rate > 0 ? 2 * bench_figure_seconds(b, theirs < 2 ? theirs : 0) : 0);
}

/* First of all, how fast the peer is about: so fast that it is worth the time. */
static void try_peer(bench *b)
{
    enum { SIDE = 192 };
    product p = {.m = SIDE, .n = SIDE, .ld_square = SIDE, .ld = SIDE};
    p.symmetric = bench_filled(SIDE, SIDE);
    p.rectangle = bench_filled(SIDE, SIDE);
    p.result = bench_filled(SIDE, SIDE);
    if (cblas_peer_name() && p.symmetric && p.rectangle && p.result) {
        b->peer_limited = cblas_peer_set_threads(muonium_threads());
        b->peer_rate = mu_apply_flops(SIDE, SIDE) / measure_best(run_sgemm, &p, 0.02);
    }
    mu_free(p.symmetric);
    mu_free(p.rectangle);
    mu_free(p.result);
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
        printf("%10.1f GF/s %6.1f %% of peak", r->flops / r->seconds / 1e9,
               100 * bound_of(b, r) / r->seconds);
        if (r->int8_ops > 0 && b->int8_peak > 0) {
            printf(", %5.1f %% of int8", 100 * r->int8_ops / r->seconds / b->int8_peak);
        }
        printf("\n");
    } else if (r->flops == 0) {
        printf("%10.1f GB/s %6.1f %% of copy\n", r->bytes / r->seconds / 1e9,
               100 * bound_of(b, r) / r->seconds);
    } else {
        printf("%15s %6.1f %% of both\n", "", 100 * bound_of(b, r) / r->seconds);
    }
}

static void print_peer(const bench *b)
{
    double share = 100 * b->peer_rate / b->peak;
    printf("peer   %s, %.1f GF/s at 192 x 192, %.0f %% of peak", cblas_peer_name(),
           b->peer_rate / 1e9, share);
    if (!b->peer_limited) {
        printf("; its threads cannot be set");
    }
    printf("\n");
    for (size_t i = 0; i < b->skip_count; i++) {
        const bench_skip *s = &b->skips[i];
        printf("       left out: %s, %s: %.0f s a run\n", s->name,
               bench_format_shape(s->shape).text, s->seconds);
    }
}

static void print_table(const bench *b, const muonium_cpu_info *cpu, bool quick)
{
    if (quick) {
        printf("quick  (--quick: rough figures of few shapes)\n");
    }
    printf("kernel %s (%s), %d threads\n", cpu->kernel, cpu->reason, muonium_threads());
    printf("peak   %.1f GF/s f32", b->peak / 1e9);
    if (b->bf16_peak > 0) {
        printf(", %.1f GF/s bf16", b->bf16_peak / 1e9);
    }
    printf(
        ", %.1f Gop/s int8: multiply-add on changing operands, at the\n"
        "       highest clock seen in this run; shares are of f32. Copy %.1f GB/s (read + write)\n",
        b->int8_peak / 1e9, b->copy / 1e9);
    if (b->farthest > 0) {
        printf("caches %.0f to %.0f ns from one thread to another and back\n", 1e9 * b->nearest,
               1e9 * b->farthest);
    }
    if (b->peer_rate > 0) {
        print_peer(b);
    }
    printf("\n");
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        printf("%-16s %20s %10.3f ms ", r->name, bench_format_shape(r->shape).text,
               1e3 * r->seconds);
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
        printf("%s%-20s %5.2f times as fast as %s\n", i == 0 ? "\n" : "",
               bench_format_shape(c->shape).text, c->theirs / c->ours, c->peer);
    }
    if (b->overhead > 0) {
        printf("\nA Muon step on 768 x 3072 takes %.1f %% more than orthogonalising alone.\n",
               100 * b->overhead);
    }
    if (!quick) {
        printf("\nmuonium bench --quick takes some ten seconds.\n");
    }
}

static void print_json(const bench *b, const muonium_cpu_info *cpu)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "version", muonium_version());
    json_string(&writer, "kernel", cpu->kernel);
    json_string(&writer, "peer", cblas_peer_name());
    if (b->peer_rate > 0) {
        json_number(&writer, "peer_gflops", b->peer_rate / 1e9);
        json_bool(&writer, "peer_threads_set", b->peer_limited);
    }
    json_number(&writer, "peak_gflops", b->peak / 1e9);
    json_number(&writer, "copy_gbps", b->copy / 1e9);
    if (b->bf16_peak > 0) {
        json_number(&writer, "bf16_peak_gflops", b->bf16_peak / 1e9);
    }
    json_number(&writer, "int8_peak_gops", b->int8_peak / 1e9);
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
        if (r->int8_ops > 0 && b->int8_peak > 0) {
            json_number(&writer, "percent_of_int8_peak",
                        100 * r->int8_ops / r->seconds / b->int8_peak);
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
    json_array(&writer, "left_out");
    for (size_t i = 0; i < b->skip_count; i++) {
        const bench_skip *s = &b->skips[i];
        json_object(&writer, NULL);
        json_string(&writer, "name", s->name);
        json_integer(&writer, "m", (long long)s->shape.rows);
        json_integer(&writer, "n", (long long)s->shape.cols);
        json_integer(&writer, "batch", (long long)s->shape.batch);
        json_number(&writer, "seconds_expected", s->seconds);
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

/* What to measure. */
typedef struct work {
    const muonium_shape *shapes;
    size_t count;
    bool named; /* the user named the shapes */
    bool tiles, orthogonalize, forms, optimizer, gpt2;
} work;

/* The products once per size, where one matrix stands for a batch. */
static bool has_products(muonium_shape shape)
{
    return shape.batch == 1 && shape.rows <= shape.cols;
}

static bool orthogonalized(const work *todo, muonium_shape shape)
{
    return todo->orthogonalize && (todo->named || shape.rows * shape.cols <= PRODUCTS_ALONE);
}

static const double tiles_figures = 18, optimizer_figures = 8, optimizer_setup = 4,
                    gpt2_seconds = 20;

static double expected_seconds(const bench *b, const work *todo)
{
    double seconds =
        (todo->tiles ? tiles_figures * bench_figure_seconds(b, 0) : 0) +
        (todo->optimizer ? optimizer_setup + optimizer_figures * bench_figure_seconds(b, 0) : 0) +
        (todo->gpt2 ? gpt2_seconds : 0);
    for (size_t i = 0; i < todo->count; i++) {
        muonium_shape shape = todo->shapes[i];
        seconds += has_products(shape) ? products_seconds(b, shape.rows, shape.cols) : 0;
        seconds +=
            orthogonalized(todo, shape) ? bench_orthogonalize_seconds(b, shape, todo->forms) : 0;
    }
    return seconds;
}

static bool measure_all(bench *b, const work *todo, problem *what)
{
    if (todo->tiles) {
        progress_next(tiles_figures * bench_figure_seconds(b, 0), "tiles");
        if (!bench_tiles(b)) {
            return problem_set(what, "%s", muonium_last_error());
        }
    }
    for (size_t i = 0; i < todo->count; i++) {
        muonium_shape shape = todo->shapes[i];
        if (has_products(shape)) {
            progress_next(products_seconds(b, shape.rows, shape.cols), "products of %s",
                          bench_format_shape(shape).text);
            if (!bench_products(b, shape.rows, shape.cols)) {
                return problem_set(what, "no memory for the products of %s",
                                   bench_format_shape(shape).text);
            }
        }
    }
    for (size_t i = 0; i < todo->count; i++) {
        muonium_shape shape = todo->shapes[i];
        if (!orthogonalized(todo, shape)) {
            continue;
        }
        progress_next(bench_orthogonalize_seconds(b, shape, todo->forms),
                      "the orthogonalisation of %s", bench_format_shape(shape).text);
        if (!bench_orthogonalize(b, shape, todo->forms)) {
            return problem_set(what, "orthogonalising %s failed: %s",
                               bench_format_shape(shape).text, muonium_last_error());
        }
    }
    if (todo->optimizer) {
        progress_next(optimizer_setup + optimizer_figures * bench_figure_seconds(b, 0),
                      "the optimizer");
        if (!bench_optimizer(b)) {
            return problem_set(what, "the optimizer: %s", muonium_last_error());
        }
    }
    if (todo->gpt2) {
        progress_next(gpt2_seconds, "steps of GPT-2 124M");
        if (!bench_gpt2(b)) {
            return problem_set(what, "GPT-2: %s", muonium_last_error());
        }
    }
    return true;
}

/* Whether the int8 kernel in use has instructions for dot products of bytes. */
static bool multiplies_int8(void)
{
    const mu_int8_kernel *kernel = NULL;
#if defined(__x86_64__)
    const mu_features features = MU_CPU_AVX512_VNNI | MU_CPU_AVX_VNNI | MU_CPU_AMX_INT8;
#elif defined(__aarch64__)
    const mu_features features = MU_CPU_DOTPROD | MU_CPU_I8MM;
#else
    const mu_features features = 0;
#endif
    return mu_int8_choose(&kernel) == MUONIUM_OK && (kernel->needs & features) != 0;
}

static int run(const command *self, const arguments *given)
{
    static const option_clash clashes[] = {
        {CHECKPOINT, SHAPES}, {CHECKPOINT, SECONDS},  {CHECKPOINT, FORMS},  {CHECKPOINT, GPT2},
        {CHECKPOINT, TILES},  {TILES, SHAPES},        {TILES, FORMS},       {TILES, GPT2},
        {CHECKPOINT, QUICK},  {CHECKPOINT, PRODUCTS}, {TILES, PRODUCTS},    {PRODUCTS, FORMS},
        {RECIPES, SHAPES},    {RECIPES, FORMS},       {RECIPES, GPT2},      {RECIPES, TILES},
        {RECIPES, QUICK},     {RECIPES, PRODUCTS},    {RECIPES, CHECKPOINT}};
    const option_value *value = given->value;
    if (!options_agree(self->name, options, value, clashes, sizeof clashes / sizeof clashes[0])) {
        return EXIT_USAGE;
    }
    muonium_shape shapes[SHAPES_MOST];
    size_t count = sizeof standard_shapes / sizeof standard_shapes[0];
    memcpy(shapes, standard_shapes, sizeof standard_shapes);
    if (value[QUICK].given) {
        count = sizeof quick_shapes / sizeof quick_shapes[0];
        memcpy(shapes, quick_shapes, sizeof quick_shapes);
    }
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
    if (value[CORES].given) {
        const char *why;
        bool done = simulate_cores(value[CORES].text, value[QUICK].given, value[JSON].given, &why);
        return done ? EXIT_OK : message_failed(self->name, "%s", why);
    }
    static bench b;
    b.budget = value[QUICK].given && !value[SECONDS].given ? 0.05 : value[SECONDS].number;
    b.copy = measure_copy(b.budget < 0.2 ? b.budget : 0.5);
    b.precisions = value[PRECISIONS].given || (!value[QUICK].given && multiplies_int8());
    watch_machine(&b);
    if (value[RECIPES].given) {
        return bench_recipes(&b, value[JSON].given)
                   ? EXIT_OK
                   : message_failed(self->name, "%s", muonium_last_error());
    }
    work todo = {.shapes = shapes,
                 .count = value[TILES].given ? 0 : count,
                 .named = value[SHAPES].text != NULL,
                 .tiles = value[TILES].given,
                 .forms = value[FORMS].given,
                 .orthogonalize = !value[PRODUCTS].given,
                 .optimizer = !value[SHAPES].given && !value[TILES].given &&
                              !value[PRODUCTS].given && !value[QUICK].given,
                 .gpt2 = value[GPT2].given};
    if (!value[TILES].given) {
        try_peer(&b);
    }
    progress_begin(expected_seconds(&b, &todo));
    problem what;
    bool done = measure_all(&b, &todo, &what);
    progress_end();
    if (!done) {
        return message_failed(self->name, "%s", what.text);
    }
    if (value[JSON].given) {
        print_json(&b, &cpu);
    } else {
        print_table(&b, &cpu, value[QUICK].given);
    }
    return EXIT_OK;
}

const command command_bench = {
    .name = "bench",
    .summary = "measure products and orthogonalisations against this machine's peak",
    .description =
        "Measures the three products of the iteration, whole orthogonalisations and the optimizer, "
        "in f32. Each figure is the best of several runs. It is printed as a share of the "
        "multiply-add peak, or of the bandwidth of a plain copy loop. Both are measured in the "
        "same run. Symmetric products count the flops of one triangle. Where the CPU has int8 "
        "dot products, or with --precisions, the precisions bf16, fixed23 and fixed15 are measured "
        "too. Their products count the same flops as in f32. Fixed-point products also have their "
        "share of the int8 peak.\n\n"
        "If a CBLAS library is installed, its products are measured with the same number of "
        "threads. Its ssyrk also counts one triangle. Five iterations by its general products, "
        "the usual implementation, are measured too. A product of that library is left out if it "
        "would take more than one second and more than ten times --seconds.\n\n"
        "The round trip is the time that a word takes from one thread to another and back. It "
        "shows whether the threads share a cache. On a virtual machine it may change during a "
        "run.\n\n"
        "Run this on an otherwise idle machine.",
    .example = "muonium bench\nmuonium bench --quick\nmuonium bench --shapes 768x3072,24x128x512 "
               "--threads 2 --json\n"
               "muonium bench --recipes\n"
               "muonium bench --checkpoint --directory /tmp",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
