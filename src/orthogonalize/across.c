/*
 * across.c: the Gram matrix of a matrix whose columns are spread.
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
    size_t squares = (blocks + 1) * triangle(m) * width;
    size_t sums = (m * pieces + columns) * sizeof(double);
    return squares > sums ? squares : sums;
}

/* The lower triangle of R, row by row, to or from memory. */
static void pack(const mu_run *run, char *to)
{
    size_t width = muonium_dtype_size(run->plan->kernel->type);
    for (size_t i = 0; i < run->plan->m; i++) {
        size_t bytes = (i + 1) * width;
        memcpy(to, (const char *)run->square[0] + i * run->plan->ldr * width, bytes);
        to += bytes;
    }
}

static void unpack(const mu_run *run, const char *from)
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

static void gram_across(mu_run *run)
{
    const muonium_plan *plan = run->plan;
    const mu_across *across = run->across;
    muonium_dtype type = plan->kernel->type;
    size_t part = triangle(plan->m) * muonium_dtype_size(type), blocks = 0;
    char *memory = across->memory;
    for (size_t col = 0; col < plan->n; col += across->block, blocks++) {
        size_t cols = plan->n - col < across->block ? plan->n - col : across->block;
        mu_operand x = run->x;
        ptrdiff_t skip = (ptrdiff_t)col * x.col_stride * (ptrdiff_t)muonium_dtype_size(x.dtype);
        x.data = (const char *)x.data + skip;
        mu_gram(&run->with, plan->m, cols, &x, run->square[0], plan->ldr);
        pack(run, memory + blocks * part);
    }
    across->combine(across->context, MU_ACROSS_SUM, type, memory, blocks, triangle(plan->m),
                    memory + blocks * part);
    unpack(run, memory + blocks * part);
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

void mu_add_row_sums(mu_run *run)
{
    if (run->across) {
        run->across->combine(run->across->context, MU_ACROSS_SUM, MUONIUM_F64, run->row_sums, 1,
                             run->plan->m, run->row_sums);
    }
}
