/*
 * orthogonalize.c: whole orthogonalisations: by the library, in one form or all; and as
 * they are usually written, five steps of plain matrix products, by a CBLAS library.
 */
#include <math.h>

#include "base/base.h"
#include "base/half.h"
#include "bench.h"
#include "cblas_peer.h"

/* ---- the library ---- */

typedef struct execution {
    muonium_plan *plan;
    muonium_view in, out;
    void *workspace;
    muonium_status status;
} execution;

static void run_plan(void *context)
{
    execution *e = context;
    muonium_status status = muonium_plan_execute(e->plan, &e->in, &e->out, e->workspace, NULL);
    e->status = e->status == MUONIUM_OK ? status : e->status;
}

/* The array's elements rounded to a type, in its own memory. */
static void narrow(muonium_dtype dtype, size_t count, float *array)
{
    uint16_t *to = (uint16_t *)(void *)array;
    for (size_t i = 0; dtype != MUONIUM_F32 && i < count; i++) {
        to[i] = dtype == MUONIUM_BF16 ? mu_bf16_from_f32(array[i]) : mu_f16_from_f32(array[i]);
    }
}

/* What is measured: first as a user gets it, then other precisions, what conversion costs, and
 * every form, and the half mode as others compute. */
static const struct variant {
    const char *name;
    muonium_dtype dtype;
    muonium_form form;
    const char *set;
    muonium_dtype precision;
} variants[] = {
    {"orthogonalize", MUONIUM_F32, MUONIUM_FORM_AUTO, NULL, MUONIUM_F32},
    {"  fixed23", MUONIUM_F32, MUONIUM_FORM_AUTO, NULL, MUONIUM_FIXED23},
    {"  fixed15", MUONIUM_F32, MUONIUM_FORM_AUTO, NULL, MUONIUM_FIXED15},
    {"  bf16", MUONIUM_F32, MUONIUM_FORM_AUTO, NULL, MUONIUM_BF16},
    {"  stored in bf16", MUONIUM_BF16, MUONIUM_FORM_AUTO, NULL, MUONIUM_F32},
    {"  stored in f16", MUONIUM_F16, MUONIUM_FORM_AUTO, NULL, MUONIUM_F32},
    {"  standard", MUONIUM_F32, MUONIUM_FORM_STANDARD, NULL, MUONIUM_F32},
    {"  gram", MUONIUM_F32, MUONIUM_FORM_GRAM, NULL, MUONIUM_F32},
    {"  direct P11", MUONIUM_F32, MUONIUM_FORM_DIRECT, "P11", MUONIUM_F32},
    {"  direct P12", MUONIUM_F32, MUONIUM_FORM_DIRECT, "P12", MUONIUM_F32},
    {"  direct P13", MUONIUM_F32, MUONIUM_FORM_DIRECT, "P13", MUONIUM_F32},
    {"  direct S12", MUONIUM_F32, MUONIUM_FORM_DIRECT, "S12", MUONIUM_F32},
    {"  rounded to bf16", MUONIUM_F32, MUONIUM_FORM_STANDARD, NULL, MUONIUM_BF16},
};

enum { VARIANTS = sizeof variants / sizeof variants[0], PRECISIONS = 4, DTYPES = 4 };

/* All of them, or the precisions, or only what a user gets. */
static size_t variants_of(const bench *b, bool forms)
{
    return forms ? VARIANTS : b->precisions ? PRECISIONS : 1;
}

/* The variants of one shape. All use one workspace, and those of a type the same matrices. */
typedef struct contest {
    size_t count; /* of variants */
    execution runs[VARIANTS];
    double flops[VARIANTS];
    measurement times[VARIANTS];
    float *in[DTYPES], *out;
    void *workspace;
} contest;

/* False, with the library's message, if that fails. */
static bool prepare(contest *c, muonium_shape shape)
{
    size_t bytes = 0;
    for (size_t i = 0; i < c->count; i++) {
        muonium_plan_options options;
        muonium_plan_info info;
        muonium_plan_options_init(&options);
        options.form = variants[i].form;
        options.direct_set = variants[i].set;
        options.precision = variants[i].precision;
        if (muonium_plan_create(shape, &options, &c->runs[i].plan) != MUONIUM_OK) {
            return false;
        }
        muonium_plan_describe(c->runs[i].plan, &info);
        bytes = info.workspace > bytes ? info.workspace : bytes;
        c->flops[i] = info.flops * (double)shape.batch;
    }
    c->workspace = mu_alloc(bytes);
    c->out = bench_filled(shape.batch * shape.rows, shape.cols);
    for (size_t i = 0; i < c->count; i++) {
        muonium_dtype dtype = variants[i].dtype;
        if (!c->in[dtype]) {
            c->in[dtype] = bench_filled(shape.batch * shape.rows, shape.cols);
            if (!c->workspace || !c->out || !c->in[dtype]) {
                mu_fail(MUONIUM_NO_MEMORY, "no memory for the matrices");
                return false;
            }
            narrow(dtype, shape.batch * shape.rows * shape.cols, c->in[dtype]);
        }
        c->runs[i].in = muonium_dense(dtype, shape, c->in[dtype]);
        c->runs[i].out = muonium_dense(dtype, shape, c->out);
        c->runs[i].workspace = c->workspace;
        c->times[i] = (measurement){run_plan, &c->runs[i], 0};
    }
    return true;
}

static void end_contest(contest *c)
{
    for (size_t i = 0; i < c->count; i++) {
        muonium_plan_destroy(c->runs[i].plan);
    }
    for (size_t i = 0; i < DTYPES; i++) {
        mu_free(c->in[i]);
    }
    mu_free(c->out);
    mu_free(c->workspace);
}

/* ---- as usually written ---- */

typedef struct plain {
    muonium_shape shape; /* rows <= cols */
    float *in, *x, *next, *gram, *square;
    double table[5][3];
} plain;

static void step(const plain *p, const double abc[3], const float *x, float *next)
{
    size_t m = p->shape.rows, n = p->shape.cols;
    float a = (float)abc[0], b = (float)abc[1], c = (float)abc[2];
    cblas_peer_gemm_transposed(m, m, n, x, n, x, n, p->gram, m);
    cblas_peer_gemm(m, m, m, p->gram, m, p->gram, m, p->square, m);
    for (size_t i = 0; i < m * m; i++) {
        p->square[i] = b * p->gram[i] + c * p->square[i];
    }
    cblas_peer_gemm(m, n, m, p->square, m, x, n, next, n);
    for (size_t i = 0; i < m * n; i++) {
        next[i] += a * x[i];
    }
}

static void run_plain(void *context)
{
    plain *p = context;
    size_t count = p->shape.rows * p->shape.cols;
    for (size_t batch = 0; batch < p->shape.batch; batch++) {
        const float *from = p->in + batch * count;
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += (double)from[i] * (double)from[i];
        }
        float factor = (float)(1 / sqrt(sum));
        for (size_t i = 0; i < count; i++) {
            p->x[i] = from[i] * factor;
        }
        for (int t = 0; t < 5; t++) {
            step(p, p->table[t], t % 2 ? p->next : p->x, t % 2 ? p->x : p->next);
        }
    }
}

/* Seconds for the shape; 0 without memory. */
static double measure_plain(bench *b, muonium_shape shape)
{
    if (shape.rows > shape.cols) {
        shape = (muonium_shape){shape.batch, shape.cols, shape.rows};
    }
    size_t m = shape.rows, n = shape.cols;
    plain p = {.shape = shape,
               .in = bench_filled(shape.batch * m, n),
               .x = bench_filled(m, n),
               .next = bench_filled(m, n),
               .gram = bench_filled(m, m),
               .square = bench_filled(m, m)};
    double seconds = 0;
    if (p.in && p.x && p.next && p.gram && p.square &&
        muonium_polar_express(5, 1e-3, 2e-2, 0.02, p.table) == MUONIUM_OK) {
        seconds = measure_best(run_plain, &p, b->budget);
    }
    mu_free(p.in);
    mu_free(p.x);
    mu_free(p.next);
    mu_free(p.gram);
    mu_free(p.square);
    return seconds;
}

/* ---- both ---- */

static void compare(bench *b, muonium_shape shape, const char *peer, double ours, double theirs)
{
    if (theirs > 0 && b->comparison_count < MOST_COMPARISONS) {
        b->comparisons[b->comparison_count++] = (bench_comparison){shape, peer, ours, theirs};
    }
}

/* Run and record; *seconds is what a user gets. */
static bool run_contest(bench *b, muonium_shape shape, contest *c, double *seconds)
{
    double quintics = 0;
    if (!prepare(c, shape)) {
        return false;
    }
    measure_in_turns(c->times, c->count, b->budget);
    *seconds = c->times[0].best;
    for (size_t i = 0; i < c->count; i++) {
        double best = c->times[i].best;
        if (c->runs[i].status != MUONIUM_OK) {
            return false;
        }
        bench_record_flops(b, variants[i].name, shape, c->flops[i], best);
        bool quintic =
            variants[i].form == MUONIUM_FORM_STANDARD || variants[i].form == MUONIUM_FORM_GRAM;
        quintic = quintic && variants[i].precision == MUONIUM_F32;
        if (quintic && (quintics == 0 || best < quintics)) {
            quintics = best;
        }
    }
    compare(b, shape, "the best form of the quintics", *seconds, quintics);
    return true;
}

static double plain_flops(muonium_shape shape)
{
    bool tall = shape.rows > shape.cols;
    double m = (double)(tall ? shape.cols : shape.rows),
           n = (double)(tall ? shape.rows : shape.cols);
    return 5 * 2 * m * m * (2 * n + m) * (double)shape.batch;
}

double bench_orthogonalize_seconds(const bench *b, muonium_shape shape, bool forms)
{
    double flops = plain_flops(shape), theirs = flops / b->peer_rate; /* ours are half of that */
    return (double)variants_of(b, forms) * bench_figure_seconds(b, flops / 2 / b->peak) +
           (b->peer_rate > 0 ? bench_figure_seconds(b, theirs < 2 ? theirs : 0) : 0);
}

bool bench_orthogonalize(bench *b, muonium_shape shape, bool forms)
{
    contest c = {.count = variants_of(b, forms)};
    double flops = plain_flops(shape), seconds = 0;
    bool done = run_contest(b, shape, &c, &seconds);
    end_contest(&c);
    if (done && b->peer_rate > 0 && bench_peer_can(b, "plain cblas", shape, flops)) {
        double theirs = measure_plain(b, shape);
        bench_record_flops(b, "plain cblas", shape, flops, theirs);
        compare(b, shape, "plain products by cblas", seconds, theirs);
    }
    return done;
}
