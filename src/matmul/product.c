/*
 * product.c: packing, tiles and sizes: see product.h.
 */
#include "matmul/product.h"

#include "matmul/blas.h"

/* ---- packing ---- */

size_t mu_packed_bytes(const mu_product *p, size_t lines, size_t width, size_t slices)
{
    return mu_round_up(slices * p->depth * mu_round_up(lines, width) * p->packed_bytes,
                       MU_ALIGNMENT);
}

mu_product mu_product_of(const mu_kernel *kernel, size_t k)
{
    size_t kc = mu_block_columns(kernel, k);
    mu_product p = {.kernel = kernel,
                    .bytes = muonium_dtype_size(kernel->type),
                    .packed_bytes = muonium_dtype_size(kernel->operands),
                    .k = k,
                    .kc = kc,
                    .slice = mu_round_up(mu_min_size(k, 2 * kc), 2),
                    .depth = mu_round_up(kc, kernel->k_group)};
    p.depth = k > kc ? 2 * p.depth : p.depth;
    return p;
}

mu_pack_source mu_rows_as_lines(const mu_operand *o)
{
    mu_pack_source lines = {.data = o->data,
                            .dtype = o->dtype,
                            .line_stride = o->row_stride,
                            .k_stride = o->col_stride,
                            .scale = o->scale,
                            .other = o->other,
                            .other_scale = o->other_scale,
                            .shift = o->shift};
    return lines;
}

mu_pack_source mu_columns_as_lines(const mu_operand *o)
{
    mu_pack_source lines = mu_rows_as_lines(o);
    lines.line_stride = o->col_stride;
    lines.k_stride = o->row_stride;
    return lines;
}

size_t mu_group_of(const mu_kernel *kernel)
{
    size_t group = MU_BLOCK / 3;
    while (group % kernel->mr != 0 || group % kernel->nr != 0) {
        group += MU_BLOCK / 6;
    }
    return group;
}

size_t mu_block_columns(const mu_kernel *kernel, size_t k)
{
    if (k <= kernel->kc) {
        return k;
    }
    size_t even = mu_ceil_div(k, mu_ceil_div(k, kernel->kc));
    return mu_round_up(even, MU_K_UNROLL);
}

static size_t slice_length(const mu_product *p, size_t slice)
{
    return mu_min_size(p->slice, p->k - slice * p->slice);
}

/* Where the micropanel that starts at `line`, which is not unpacked, is packed. */
static char *packed_at(const mu_product *p, const mu_side *s, size_t slice, size_t line)
{
    size_t panels = mu_ceil_div(s->lines - s->unpacked, s->width);
    size_t index = (slice - p->first_slice) * panels + (line - s->unpacked) / s->width;
    return s->packed + index * p->depth * s->width * p->packed_bytes;
}

/* Lines [from, to) of `length` k from `k` on. */
static void pack_part(const mu_product *p, const mu_side *s, size_t k, size_t length, size_t from,
                      size_t to, char *packed)
{
    ptrdiff_t skip = (ptrdiff_t)from * s->source.line_stride + (ptrdiff_t)k * s->source.k_stride;
    skip *= (ptrdiff_t)muonium_dtype_size(s->source.dtype);
    mu_pack_source part = s->source;
    part.data = (const char *)part.data + skip;
    part.other = part.other ? (const char *)part.other + skip : NULL;
    part.diagonal = (ptrdiff_t)from - (ptrdiff_t)k;
    s->pack(&part, to - from, length, packed, p->depth * s->width);
}

/* Lines [from, to) of one slice of k. Where a k-block is not made of whole k-groups, the second
 * starts at a k-group of its own. */
static void pack_slice(const mu_product *p, const mu_side *s, size_t slice, size_t from, size_t to)
{
    size_t k = slice * p->slice, length = slice_length(p, slice);
    char *packed = packed_at(p, s, slice, from);
    size_t first = p->kc % p->kernel->k_group != 0 ? mu_min_size(p->kc, length) : length;
    pack_part(p, s, k, first, from, to, packed);
    if (length > first) {
        packed += mu_round_up(p->kc, p->kernel->k_group) * s->width * p->packed_bytes;
        pack_part(p, s, k + first, length - first, from, to, packed);
    }
}

/* Lines [from, to) of all slices at hand. Where a line is contiguous in memory, one panel after the
 * other, so that long runs of memory are read. */
static void pack_lines(const mu_product *p, const mu_side *s, size_t from, size_t to)
{
    size_t at_once = s->source.line_stride == 1 ? to - from : s->width;
    for (size_t line = from; line < to; line += at_once) {
        for (size_t i = 0; i < p->slice_count; i++) {
            pack_slice(p, s, p->first_slice + i, line, mu_min_size(line + at_once, to));
        }
    }
}

typedef struct packing {
    const mu_product *p;
    const mu_side *s;
    size_t first; /* group of lines */
} packing;

static void pack_group(void *context, size_t index, unsigned worker)
{
    const packing *all = context;
    size_t group = mu_group_of(all->p->kernel), from = (all->first + index) * group;
    (void)worker;
    pack_lines(all->p, all->s, from < all->s->unpacked ? all->s->unpacked : from,
               mu_min_size(from + group, all->s->lines));
}

void mu_pack_side(const mu_product *p, const mu_side *s, unsigned threads)
{
    if (s->unpacked >= s->lines) {
        return;
    }
    size_t group = mu_group_of(p->kernel);
    packing all = {p, s, s->unpacked / group};
    mu_pool_run(pack_group, &all, mu_ceil_div(s->lines, group) - all.first, threads);
}

mu_product mu_pack_own(const mu_product *p, bool right, size_t first, size_t end, char *packed)
{
    mu_product own = *p;
    mu_side *side = right ? &own.b : &own.a;
    side->lines = end;
    side->packed = packed;
    if (side->unpacked < end) { /* whole panels from `first` on */
        size_t unpacked = side->unpacked > first ? side->unpacked - first : 0;
        side->unpacked = first + unpacked / side->width * side->width;
    }
    pack_lines(&own, side, side->unpacked, end);
    return own;
}

/* ---- tiles ---- */

/* The micropanels of one slice, one after the other, as tiles read them. */
typedef struct panels {
    const char *data;
    ptrdiff_t line_stride, k_stride; /* in elements */
    ptrdiff_t next;                  /* bytes from a panel to the next */
} panels;

/* The panels from `line` on, up to the last unpacked one or the last. */
static panels panels_at(const mu_product *p, const mu_side *s, size_t slice, size_t line)
{
    ptrdiff_t width = (ptrdiff_t)s->width, bytes = (ptrdiff_t)p->bytes;
    if (line >= s->unpacked) {
        panels packed = {packed_at(p, s, slice, line), 1, width,
                         (ptrdiff_t)(p->depth * p->packed_bytes) * width};
        return packed;
    }
    ptrdiff_t lines = s->source.line_stride, k = s->source.k_stride;
    ptrdiff_t at = (ptrdiff_t)line * lines + (ptrdiff_t)(slice * p->slice) * k;
    panels unpacked = {(const char *)s->source.data + at * bytes, lines, k, width * lines * bytes};
    return unpacked;
}

/* What all tiles of a block of C have in common. */
typedef struct tiles {
    const mu_product *p;
    size_t slice, k;
    size_t i_end, j_end;
    bool lower;
} tiles;

static void multiply_tile(const tiles *t, const panels *a, size_t i, const panels *b, size_t j)
{
    const mu_product *p = t->p;
    const mu_kernel *kernel = p->kernel;
    size_t rows = mu_min_size(kernel->mr, t->i_end - i);
    size_t cols = mu_min_size(kernel->nr, t->j_end - j);
    if (t->lower) { /* as many whole grains as reach the diagonal */
        size_t within = kernel->grain - 1;
        cols = mu_min_size(cols, (i + rows - j + within) & ~within);
    }
    kernel->tile(t->k, p->kc, a->data, a->line_stride, a->k_stride, b->data, b->k_stride,
                 p->c + (i * p->ldc + j) * p->bytes, (ptrdiff_t)p->ldc, rows, cols,
                 p->adds || t->slice > 0);
}

/* Move on to the panel that starts at `line`. */
static void advance(const mu_product *p, const mu_side *s, size_t slice, size_t line, panels *at)
{
    at->data += at->next;
    if (line == s->unpacked && line < s->lines) {
        *at = panels_at(p, s, slice, line);
    }
}

/* One row of tiles after the other: the A-panel stays in L1. */
void mu_multiply_block(const mu_product *p, size_t slice, size_t i0, size_t rows, size_t j0,
                       size_t cols, bool lower)
{
    tiles t = {p, slice, slice_length(p, slice), i0 + rows, j0 + cols, lower};
    size_t mr = p->kernel->mr, nr = p->kernel->nr;
    panels a = panels_at(p, &p->a, slice, i0);
    for (size_t i = i0; i < t.i_end; i += mr, advance(p, &p->a, slice, i, &a)) {
        size_t end = lower ? mu_min_size(i + mr, t.j_end) : t.j_end;
        panels b = panels_at(p, &p->b, slice, j0);
        for (size_t j = j0; j < end; j += nr, advance(p, &p->b, slice, j, &b)) {
            multiply_tile(&t, &a, i, &b, j);
        }
    }
}

/* ---- sizes ---- */

bool mu_matmul_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned workers, size_t *bytes)
{
    if (mu_blas_selected()) {
        return mu_blas_scratch(kernel, m, n, bytes);
    }
    /* More than any product needs: if this fits, nothing below overflows. */
    size_t rows, wide, limit;
    if (!mu_add(m, MU_BLOCK, &rows) || !mu_add(m > n ? m : n, MU_BLOCK, &wide) ||
        !mu_mul(rows, wide, &limit) || !mu_mul(limit, 8 * (sizeof(double) + workers), &limit)) {
        return false;
    }
    size_t gram = mu_triangle_scratch(kernel, m, n, workers);
    size_t symmul = mu_triangle_scratch(kernel, m, m, workers);
    size_t apply = mu_apply_scratch(kernel, m, n, workers);
    *bytes = gram > symmul ? gram : symmul;
    *bytes = apply > *bytes ? apply : *bytes;
    return true;
}

size_t mu_leading(const mu_kernel *kernel, size_t n)
{
    size_t line = MU_ALIGNMENT / muonium_dtype_size(kernel->type);
    size_t ld = mu_round_up(n, line);
    return ld % (16 * line) == 0 ? ld + line : ld;
}

mu_operand mu_operand_of(const mu_kernel *kernel, const void *data, size_t ld, double scale,
                         double shift)
{
    mu_operand operand = {data, kernel->type, (ptrdiff_t)ld, 1, scale, NULL, 0, shift};
    return operand;
}

/* A triangle with its diagonal has m(m+1)/2 elements of n terms; each term is two operations. */
double mu_gram_flops(size_t m, size_t n)
{
    return (double)m * (double)(m + 1) * (double)n;
}

double mu_symmul_flops(size_t m)
{
    return mu_gram_flops(m, m);
}

double mu_apply_flops(size_t m, size_t n)
{
    return 2 * (double)m * (double)m * (double)n;
}

double mu_gram_moved(size_t m, size_t n)
{
    return 4 * (double)m * (double)n + 1.5 * (double)m * (double)m;
}

double mu_symmul_moved(size_t m)
{
    return mu_gram_moved(m, m);
}

double mu_apply_moved(size_t m, size_t n)
{
    return 2 * (double)m * (double)m + 3 * (double)m * (double)n;
}
