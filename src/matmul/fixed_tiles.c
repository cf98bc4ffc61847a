/*
 * fixed_tiles.c: blocks of a fixed-point product, tile by tile. A kernel that interleaves applies
 * the epilogue of a tile while the next one is multiplied.
 */
#include "matmul/fixed_product.h"

enum { LARGEST_TILE = 32 * 32 };

/* Tiles in progress. If the kernel interleaves them, the end of each is applied while the next is
 * multiplied. */
typedef struct pipeline {
    const mu_fixed_product *p;
    _Alignas(MU_ALIGNMENT) int32_t sums[2][MU_SUMS * LARGEST_TILE];
    float partial[LARGEST_TILE]; /* sums of earlier k-blocks */
    mu_tile_end ends[2];
    bool filled[2];     /* there are sums whose end is to be applied, */
    bool unmirrored[2]; /* and which do not write the mirror image themselves */
    size_t at[2][2];    /* row and column of the tile */
    size_t next;
    const char *ahead;  /* of the micropanel of A that follows, what is to be fetched */
    size_t ahead_bytes; /* during each tile */
} pipeline;

static void fill_triangle(pipeline *line, size_t which)
{
    const mu_fixed_product *p = line->p;
    size_t row = line->at[which][0], col = line->at[which][1];
    const mu_tile_end *end = &line->ends[which];
    p->rows->mirror(p->mirrored, (ptrdiff_t)p->ldc, row, row + end->rows, col, col + end->cols);
}

/* Fetch what the end of a tile reads and writes: without that it would wait for memory. */
static void prefetch_end(const mu_fixed_product *p, const mu_tile_end *end)
{
    enum { LINE = 64 / sizeof(float) };
    size_t width = p->kernel->nr;
    for (size_t i = 0; i < end->rows; i++) {
        ptrdiff_t row = (ptrdiff_t)i;
        for (size_t j = 0; j < width; j += LINE) {
            __builtin_prefetch(end->c + row * end->ldc + j, 1);
            for (size_t t = 0; t < end->f.term_count; t++) {
                __builtin_prefetch(end->f.terms[t].data + row * end->f.terms[t].row_stride +
                                   (ptrdiff_t)j * end->f.terms[t].col_stride);
            }
            if (end->f.sum) {
                __builtin_prefetch(end->f.sum + row * end->f.sum_ld + j, 1);
            }
        }
    }
}

/* Multiply two micropanels; line->ends[line->next] is what becomes of the sums. */
static void multiply_panels(pipeline *line, size_t groups, const void *a, const void *b,
                            const int32_t *start)
{
    const mu_fixed_product *p = line->p;
    size_t now = line->next, before = !now;
    mu_meanwhile meanwhile = {line->filled[before] ? &line->ends[before] : NULL, line->ahead,
                              line->ahead_bytes};
    line->ends[now].sums = line->sums[now];
    if (!p->kernel->interleaved) {
        prefetch_end(p, &line->ends[now]);
    }
    p->kernel->tile(p->digits, groups, a, b, start, line->sums[now], &meanwhile);
    if (!p->kernel->interleaved) {
        p->kernel->combine(&line->ends[now]);
        return;
    }
    line->ahead += line->ahead_bytes;
    if (line->filled[before] && line->unmirrored[before]) {
        fill_triangle(line, before);
    }
    line->filled[before] = false;
    line->filled[now] = true;
    line->next = before;
}

static void apply_last_epilogue(pipeline *line)
{
    size_t last = !line->next;
    if (line->filled[last]) {
        line->p->kernel->combine(&line->ends[last]);
        if (line->unmirrored[last]) {
            fill_triangle(line, last);
        }
    }
}

/* The part of the epilogue for the tile at (row, col), with its own mirror image if it may. Copies
 * only the terms that there are: this is called for every tile. */
static void set_epilogue(const mu_fixed_product *p, size_t row, size_t col, bool mirrors,
                         mu_fixed_epilogue *f)
{
    ptrdiff_t i = (ptrdiff_t)row, j = (ptrdiff_t)col;
    const mu_fixed_epilogue *whole = &p->epilogue;
    for (size_t t = 0; t < whole->term_count; t++) {
        f->terms[t] = whole->terms[t];
        f->terms[t].data += i * f->terms[t].row_stride + j * f->terms[t].col_stride;
    }
    f->term_count = whole->term_count;
    f->shift = whole->shift;
    f->offset = whole->offset + i - j;
    f->sum = whole->sum ? whole->sum + i * whole->sum_ld + j : NULL;
    f->sum_ld = whole->sum_ld;
    f->sum_factor = whole->sum_factor;
    f->accumulate = whole->accumulate;
    f->mirror_ld = (ptrdiff_t)p->ldc;
    f->mirror = mirrors ? p->mirrored + j * f->mirror_ld + i : NULL;
    f->mirror_sum = p->mirrored != p->c;
}

/* The tile of C at micropanels i of A and j of B, from all k-blocks at hand. */
static void multiply_fixed_tile(pipeline *line, size_t i, size_t j)
{
    const mu_fixed_product *p = line->p;
    const mu_digit_side *a = &p->a, *b = &p->b;
    size_t mr = p->kernel->mr, nr = p->kernel->nr, row = i * mr, col = j * nr;
    size_t rows = mu_min_size(mr, a->lines - row), cols = mu_min_size(nr, b->lines - col);
    size_t blocks = mu_ceil_div(a->k, MU_FIXED_K), panels = mu_padded_lines(a) / mr;
    bool mirrored = p->mirrored && p->kernel->interleaved;
    bool whole = mirrored && row >= col + nr && rows == mr && cols == nr;
    const float *before = p->epilogue.before;
    ptrdiff_t before_ld = p->epilogue.before_ld;
    before = before ? before + (ptrdiff_t)row * before_ld + (ptrdiff_t)col : NULL;
    for (size_t block = 0; block < blocks; block++) {
        const int32_t *start = a->start ? a->start + (block * panels + i) * MU_SUMS * mr : NULL;
        size_t groups = mu_digit_groups(p, mu_min_size(MU_FIXED_K, a->k - block * MU_FIXED_K));
        mu_tile_end *end = &line->ends[line->next];
        bool complete = block + 1 == blocks;
        end->rows = rows;
        end->cols = cols;
        end->row_unit = a->unit + block * mu_padded_lines(a) + row;
        end->col_unit = b->unit + block * mu_padded_lines(b) + col;
        if (complete) {
            set_epilogue(p, row, col, whole, &end->f);
        } else {
            end->f = (mu_fixed_epilogue){.term_count = 0};
        }
        end->c = complete ? p->c + row * p->ldc + col : line->partial;
        end->ldc = complete ? (ptrdiff_t)p->ldc : (ptrdiff_t)nr;
        end->f.before = before;
        end->f.before_ld = before_ld;
        before = line->partial;
        before_ld = (ptrdiff_t)nr;
        line->unmirrored[line->next] = complete && mirrored && !whole;
        line->at[line->next][0] = row;
        line->at[line->next][1] = col;
        multiply_panels(line, groups, mu_digit_panel(p, a, block, i),
                        mu_digit_panel(p, b, block, j), start);
    }
}

/* A micropanel of A is used for all columns before the next one, which is fetched meanwhile: those
 * of B stay in cache. */
void mu_multiply_fixed_block(const mu_fixed_product *p, size_t i0, size_t i1, size_t j0, size_t j1,
                             bool lower)
{
    const mu_int8_kernel *kernel = p->kernel;
    size_t columns = mu_ceil_div(j1 - j0, kernel->nr);
    size_t bytes = mu_digit_panel_bytes(p, &p->a, mu_min_size(MU_FIXED_K, p->a.k));
    pipeline line;
    line.p = p;
    line.filled[0] = line.filled[1] = false;
    line.next = 0;
    if (kernel->enter) {
        kernel->enter();
    }
    for (size_t i = i0 / kernel->mr; i * kernel->mr < i1; i++) {
        bool more = (i + 1) * kernel->mr < p->a.lines && p->a.k <= MU_FIXED_K;
        line.ahead = more ? mu_digit_panel(p, &p->a, 0, i + 1) : NULL;
        line.ahead_bytes = more ? bytes / columns : 0;
        for (size_t j = j0 / kernel->nr; j * kernel->nr < j1; j++) {
            if (!lower || (i + 1) * kernel->mr > j * kernel->nr) {
                multiply_fixed_tile(&line, i, j);
            }
        }
    }
    apply_last_epilogue(&line);
    if (kernel->leave) {
        kernel->leave();
    }
}
