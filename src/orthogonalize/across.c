/*
 * across.c: sums over columns, and the Gram matrix of a matrix that processes share by columns.
 */
#include "orthogonalize/across.h"

#include <string.h>

#include "orthogonalize/run.h"

static size_t triangle(size_t m)
{
    return m * (m + 1) / 2;
}

size_t mu_across_bytes(size_t m, size_t columns, size_t block, muonium_dtype precision)
{
    size_t width = precision == MUONIUM_F64 ? sizeof(double) : sizeof(float);
    size_t blocks = (columns + block - 1) / block;
    size_t pieces = columns / 256 + 2 * blocks + 2; /* no shorter than a block or 1024 */
    size_t squares = blocks * triangle(m) * width;
    size_t sums = (m * pieces + columns) * sizeof(double);
    return squares > sums ? squares : sums;
}

/* The lower triangle of R, row by row, to or from memory. */
static void pack_triangle(const mu_run *run, char *to)
{
    size_t width = muonium_dtype_size(run->plan->kernel->type);
    for (size_t i = 0; i < run->plan->m; i++) {
        size_t bytes = (i + 1) * width;
        memcpy(to, (const char *)run->square[0] + i * run->plan->ldr * width, bytes);
        to += bytes;
    }
}

static void unpack_triangle(const mu_run *run, const char *from)
{
    const muonium_plan *plan = run->plan;
    size_t width = muonium_dtype_size(plan->kernel->type);
    for (size_t i = 0; i < plan->m; i++) {
        size_t bytes = (i + 1) * width;
        memcpy((char *)run->square[0] + i * plan->ldr * width, from, bytes);
        from += bytes;
    }
    plan->rows->mirror(run->square[0], (ptrdiff_t)plan->ldr, 0, plan->m, 0, plan->m);
}

static void add_f32(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void add_f64(double *to, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

void mu_combine_into(mu_across_operation operation, muonium_dtype type, void *to, const void *from,
                     size_t count)
{
    if (operation == MU_ACROSS_SUM && type == MUONIUM_F32) {
        add_f32(to, from, count);
    } else if (operation == MU_ACROSS_SUM) {
        add_f64(to, from, count);
    } else {
        double *largest = to;
        const double *values = from;
        for (size_t i = 0; i < count; i++) {
            largest[i] = mu_larger(largest[i], values[i]);
        }
    }
}

void mu_combine(const mu_across *across, mu_across_operation operation, muonium_dtype type,
                const void *parts, size_t part_count, size_t count, void *result)
{
    size_t bytes = count * muonium_dtype_size(type);
    if (across) {
        across->combine(across->context, operation, type, parts, part_count, count, result);
        return;
    }
    if (result != parts) {
        memcpy(result, parts, bytes);
    }
    for (size_t k = 1; k < part_count; k++) {
        mu_combine_into(operation, type, result, (const char *)parts + k * bytes, count);
    }
}

static void gram_across(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    const mu_across *across = run->across;
    muonium_dtype type = plan->kernel->type;
    mu_matmul with = run->with;
    with.round = MUONIUM_F32; /* the sum is rounded, not its parts */
    size_t part = triangle(plan->m) * muonium_dtype_size(type), blocks = 0;
    char *memory = across->memory;
    for (size_t col = 0; col < plan->n; col += across->block, blocks++) {
        size_t cols = plan->n - col < across->block ? plan->n - col : across->block;
        mu_operand x = run->x;
        ptrdiff_t skip = (ptrdiff_t)col * x.col_stride * (ptrdiff_t)muonium_dtype_size(x.dtype);
        x.data = (const char *)x.data + skip;
        mu_gram(&with, plan->m, cols, &x, run->square[0], plan->ldr);
        pack_triangle(run, memory + blocks * part);
    }
    mu_combine(across, MU_ACROSS_SUM, type, memory, blocks, triangle(plan->m), memory);
    unpack_triangle(run, memory);
}

void mu_gram_of_x(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    if (run->across) {
        gram_across(run);
    } else {
        mu_gram(&run->with, plan->m, plan->n, &run->x, run->square[0], plan->ldr);
    }
}
