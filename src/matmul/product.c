/*
 * product.c: see product.h: packing, tiles and sizes.
 */
#include "matmul/product.h"

#include "matmul/blas.h"

/* ---- packing ---- */

size_t mu_packed_bytes(const mu_product *p, size_t lanes, size_t width, size_t blocks)
{
    return mu_round_up(blocks * p->kc * mu_round_up(lanes, width) * p->packed_bytes, MU_ALIGNMENT);
}

/* Two sums at once: a panel of the left operand, the narrower one, stays in the nearest cache while
 * the right one passes by, and results are written and read again half as often. Bits are the
 * same. */
mu_product mu_product_of(const mu_kernel *kernel, size_t k)
{
    size_t sum = mu_block_columns(kernel, k);
    mu_product p = {.kernel = kernel,
                    .bytes = muonium_dtype_size(kernel->type),
                    .packed_bytes = muonium_dtype_size(kernel->operands),
                    .k = k,
                    .sum = sum,
                    .kc = mu_round_up(mu_min_size(k, 2 * sum), 2)};
    return p;
}

mu_lanes mu_rows_as_lanes(const mu_operand *o)
{
    mu_lanes lanes = {.data = o->data,
                      .dtype = o->dtype,
                      .lane_stride = o->row_stride,
                      .step_stride = o->col_stride,
                      .scale = o->scale,
                      .other = o->other,
                      .other_scale = o->other_scale,
                      .shift = o->shift};
    return lanes;
}

mu_lanes mu_cols_as_lanes(const mu_operand *o)
{
    mu_lanes lanes = mu_rows_as_lanes(o);
    lanes.lane_stride = o->col_stride;
    lanes.step_stride = o->row_stride;
    return lanes;
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
    return mu_round_up(even, MU_STEPS);
}

static size_t steps_of(const mu_product *p, size_t block)
{
    return mu_min_size(p->kc, p->k - block * p->kc);
}

/* Where the panel that starts at `lane`, not a plain one, is packed. */
static char *packed_at(const mu_product *p, const mu_side *s, size_t block, size_t lane)
{
    size_t panels = mu_ceil_div(s->lanes - s->plain, s->width);
    size_t index = (block - p->first_block) * panels + (lane - s->plain) / s->width;
    return s->packed + index * p->kc * s->width * p->packed_bytes;
}

/* Lanes [from, to) of one block of k. */
static void pack_block(const mu_product *p, const mu_side *s, size_t block, size_t from, size_t to)
{
    size_t step = block * p->kc;
    ptrdiff_t skip =
        (ptrdiff_t)from * s->whole.lane_stride + (ptrdiff_t)step * s->whole.step_stride;
    skip *= (ptrdiff_t)muonium_dtype_size(s->whole.dtype);
    mu_lanes part = s->whole;
    part.data = (const char *)part.data + skip;
    part.other = part.other ? (const char *)part.other + skip : NULL;
    part.diagonal = (ptrdiff_t)from - (ptrdiff_t)step;
    s->pack(&part, to - from, steps_of(p, block), packed_at(p, s, block, from), p->kc * s->width);
}

/* Lanes [from, to) of all blocks at hand: where memory runs along a lane, one panel after the
 * other, so that it is read in long stretches. */
static void pack_lanes(const mu_product *p, const mu_side *s, size_t from, size_t to)
{
    size_t at_once = s->whole.lane_stride == 1 ? to - from : s->width;
    for (size_t lane = from; lane < to; lane += at_once) {
        for (size_t i = 0; i < p->block_count; i++) {
            pack_block(p, s, p->first_block + i, lane, mu_min_size(lane + at_once, to));
        }
    }
}

typedef struct packing {
    const mu_product *p;
    const mu_side *s;
    size_t first; /* group of lanes */
} packing;

static void pack_group(void *context, size_t index, unsigned worker)
{
    const packing *all = context;
    size_t group = mu_group_of(all->p->kernel), from = (all->first + index) * group;
    (void)worker;
    pack_lanes(all->p, all->s, from < all->s->plain ? all->s->plain : from,
               mu_min_size(from + group, all->s->lanes));
}

void mu_pack_side(const mu_product *p, const mu_side *s, unsigned threads)
{
    if (s->plain >= s->lanes) {
        return;
    }
    size_t group = mu_group_of(p->kernel);
    packing all = {p, s, s->plain / group};
    mu_pool_run(pack_group, &all, mu_ceil_div(s->lanes, group) - all.first, threads);
}

mu_product mu_take_strip(const mu_product *p, bool right, size_t first, size_t end, char *packed)
{
    mu_product strip = *p;
    mu_side *side = right ? &strip.b : &strip.a;
    side->lanes = end;
    side->packed = packed;
    if (side->plain < end) { /* whole panels from `first` on */
        size_t plain = side->plain > first ? side->plain - first : 0;
        side->plain = first + plain / side->width * side->width;
    }
    pack_lanes(&strip, side, side->plain, end);
    return strip;
}

/* ---- tiles ---- */

/* Panels of one block of k, one after the other, as tiles read them. */
typedef struct panels {
    const char *data;
    ptrdiff_t lane, step; /* strides, in elements */
    ptrdiff_t next;       /* bytes from a panel to the next */
} panels;

/* The panels from `lane` on, up to the last plain one or the last. */
static panels panels_at(const mu_product *p, const mu_side *s, size_t block, size_t lane)
{
    ptrdiff_t width = (ptrdiff_t)s->width, bytes = (ptrdiff_t)p->bytes;
    if (lane >= s->plain) {
        panels packed = {packed_at(p, s, block, lane), 1, width,
                         (ptrdiff_t)(p->kc * p->packed_bytes) * width};
        return packed;
    }
    ptrdiff_t lanes = s->whole.lane_stride, steps = s->whole.step_stride;
    ptrdiff_t at = (ptrdiff_t)lane * lanes + (ptrdiff_t)(block * p->kc) * steps;
    panels plain = {(const char *)s->whole.data + at * bytes, lanes, steps, width * lanes * bytes};
    return plain;
}

/* What all tiles of a block have in common. */
typedef struct tiles {
    const mu_product *p;
    size_t block, steps;
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
    kernel->tile(t->steps, p->sum, a->data, a->lane, a->step, b->data, b->step,
                 p->c + (i * p->ldc + j) * p->bytes, (ptrdiff_t)p->ldc, rows, cols,
                 p->adds || t->block > 0);
}

/* The next panel after the one before `lane`. */
static void advance(const mu_product *p, const mu_side *s, size_t block, size_t lane, panels *at)
{
    at->data += at->next;
    if (lane == s->plain && lane < s->lanes) {
        *at = panels_at(p, s, block, lane);
    }
}

/* Row by row of tiles. */
void mu_multiply_block(const mu_product *p, size_t block, size_t i0, size_t rows, size_t j0,
                       size_t cols, bool lower)
{
    tiles t = {p, block, steps_of(p, block), i0 + rows, j0 + cols, lower};
    size_t mr = p->kernel->mr, nr = p->kernel->nr;
    panels a = panels_at(p, &p->a, block, i0);
    for (size_t i = i0; i < t.i_end; i += mr, advance(p, &p->a, block, i, &a)) {
        size_t end = lower ? mu_min_size(i + mr, t.j_end) : t.j_end;
        panels b = panels_at(p, &p->b, block, j0);
        for (size_t j = j0; j < end; j += nr, advance(p, &p->b, block, j, &b)) {
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
    /* Far more than any product can need; then nothing below can overflow. */
    size_t rows, wide, limit;
    if (!mu_add(m, MU_BLOCK, &rows) || !mu_add(m > n ? m : n, MU_BLOCK, &wide) ||
        !mu_mul(rows, wide, &limit) || !mu_mul(limit, 8 * (sizeof(double) + workers), &limit)) {
        return false;
    }
    size_t gram = mu_triangle_scratch(kernel, m, n, workers);
    size_t symmul = mu_triangle_scratch(kernel, m, m, workers);
    size_t apply = mu_apply_scratch(kernel, m, workers);
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

/* A triangle with its diagonal has m(m+1)/2 sums; each term is two operations. */
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
