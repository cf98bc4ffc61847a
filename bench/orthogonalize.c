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

/* Seconds for one execution on matrices of a type; 0, with the library's message, if it
 * fails. */
static double measure_plan(bench *b, muonium_shape shape, muonium_dtype dtype,
                           const muonium_plan_options *options, muonium_plan_info *info)
{
    execution e = {0};
    double seconds = 0;
    if (muonium_plan_create(shape, options, &e.plan) != MUONIUM_OK) {
        return 0;
    }
    muonium_plan_describe(e.plan, info);
    e.workspace = mu_alloc(info->workspace);
    float *in = bench_filled(shape.batch * shape.rows, shape.cols);
    float *out = bench_filled(shape.batch * shape.rows, shape.cols);
    if (e.workspace && in && out) {
        narrow(dtype, shape.batch * shape.rows * shape.cols, in);
        e.in = muonium_dense(dtype, shape, in);
        e.out = muonium_dense(dtype, shape, out);
        seconds = measure_best(run_plan, &e, b->budget);
    } else {
        mu_fail(MUONIUM_NO_MEMORY, "no memory for the matrices");
    }
    mu_free(e.workspace);
    mu_free(in);
    mu_free(out);
    muonium_plan_destroy(e.plan);
    return e.status == MUONIUM_OK ? seconds : 0;
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
static double measure_plain(bench *b, muonium_shape shape, double *flops)
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
    double seconds = 0, sides = 2 * (double)m * (double)m;
    if (p.in && p.x && p.next && p.gram && p.square &&
        muonium_polar_express(5, 1e-3, 2e-2, 0.02, p.table) == MUONIUM_OK) {
        seconds = measure_best(run_plain, &p, b->budget);
    }
    *flops = 5 * sides * (2 * (double)n + (double)m) * (double)shape.batch;
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

static bool every_form(bench *b, muonium_shape shape, double ours)
{
    static const struct {
        const char *name, *set;
        muonium_form form;
    } forms[] = {
        {"  standard", NULL, MUONIUM_FORM_STANDARD},  {"  gram", NULL, MUONIUM_FORM_GRAM},
        {"  direct P11", "P11", MUONIUM_FORM_DIRECT}, {"  direct P12", "P12", MUONIUM_FORM_DIRECT},
        {"  direct P13", "P13", MUONIUM_FORM_DIRECT}, {"  direct S12", "S12", MUONIUM_FORM_DIRECT}};
    double quintics = 0;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        muonium_plan_options options;
        muonium_plan_info info;
        muonium_plan_options_init(&options);
        options.form = forms[i].form;
        options.direct_set = forms[i].set;
        double seconds = measure_plan(b, shape, MUONIUM_F32, &options, &info);
        if (seconds == 0) {
            return false;
        }
        bench_record_flops(b, forms[i].name, shape, info.flops * (double)shape.batch, seconds);
        if (i < 2 && (quintics == 0 || seconds < quintics)) {
            quintics = seconds;
        }
    }
    compare(b, shape, "the best form of the quintics", ours, quintics);
    return true;
}

/* What conversion costs: the same with matrices stored in the half types. */
static bool half_types(bench *b, muonium_shape shape)
{
    static const struct {
        const char *name;
        muonium_dtype dtype;
    } types[] = {{"  stored in bf16", MUONIUM_BF16}, {"  stored in f16", MUONIUM_F16}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        muonium_plan_info info;
        double seconds = measure_plan(b, shape, types[i].dtype, NULL, &info);
        if (seconds == 0) {
            return false;
        }
        bench_record_flops(b, types[i].name, shape, info.flops * (double)shape.batch, seconds);
    }
    return true;
}

bool bench_orthogonalize(bench *b, muonium_shape shape, bool forms)
{
    muonium_plan_info info;
    double flops, seconds = measure_plan(b, shape, MUONIUM_F32, NULL, &info);
    if (seconds == 0) {
        return false;
    }
    bench_record_flops(b, "orthogonalize", shape, info.flops * (double)shape.batch, seconds);
    if (forms && !(half_types(b, shape) && every_form(b, shape, seconds))) {
        return false;
    }
    if (cblas_peer_name()) {
        double theirs = measure_plain(b, shape, &flops);
        bench_record_flops(b, "plain cblas", shape, flops, theirs);
        compare(b, shape, "plain products by cblas", seconds, theirs);
    }
    return true;
}
