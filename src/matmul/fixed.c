/*
 * fixed.c: gram, symmul and apply in fixed point.
 *
 * A product has two sides. A side is packed as micropanels of digits, with two numbers per line:
 * the unit by which its elements are multiplied before they are rounded to integers, and the unit
 * of its first digit, by which sums are multiplied. Symmetric products pack both sides and compute
 * blocks of the lower triangle. apply packs its symmetric operand, and every worker the lines of X
 * that it multiplies, so that the result may take the place of X.
 *
 * Sums longer than MU_FIXED_K are cut into k-blocks, whose results are added in order.
 */
#include "matmul/fixed.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 128,           /* rows and columns of a block of C: its digits fit L2 at k = 1024 */
    SMALL_BLOCK = 64,      /* of products that workers share and that have few blocks */
    LOWEST_EXPONENT = -100 /* of a line: the unit of smaller ones would not be an f32 */
};

/* One side of a product. */
typedef struct side {
    mu_digit_source source;
    const mu_operand *unread; /* not NULL: what the source is to be loaded from, see load_lines */
    bool by_columns;          /* its lines are columns of `unread` */
    size_t lines;             /* in all */
    size_t width;             /* of a micropanel: mr or nr */
    size_t first_k;           /* of the k-blocks that are packed now */
    size_t k;                 /* of all of these */
    char *packed;             /* [k-block][micropanel] */
    float *unit;              /* [k-block][line]: of the first digit */
    int32_t *start;           /* [k-block][micropanel][sum][line]; NULL: not needed */
    mu_pack_digits *pack;
} side;

typedef struct product {
    const mu_int8_kernel *kernel;
    int digits;
    unsigned workers;
    size_t block; /* side of a block of C */
    const mu_rows *rows;
    float *buffers; /* of MU_LINE_GROUP lines by a k-block for every worker */
    size_t k;       /* length of the sums */
    side a, b;
    mu_fixed_epilogue epilogue; /* of the whole matrix, after the last k-block */
    float *c;
    size_t ldc;
    float *mirrored; /* NULL, or whose upper triangle is filled after tiles: c or the sum */
} product;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t count_of(size_t all, size_t each)
{
    return (all + each - 1) / each;
}

/* Words per line of a k-block, and the bytes of such a micropanel. */
static size_t groups_of(const product *p, size_t k)
{
    return mu_round_up(count_of(k, 4), p->kernel->groups);
}

static size_t panel_bytes(const product *p, const side *s, size_t k)
{
    return groups_of(p, k) * 4 * s->width * (size_t)p->digits;
}

static size_t padded(const side *s)
{
    return mu_round_up(s->lines, MU_LINE_GROUP);
}

/* The first byte of a micropanel of a k-block: all but the last are of MU_FIXED_K terms. */
static char *panel_at(const product *p, const side *s, size_t k_block, size_t panel)
{
    size_t k0 = k_block * MU_FIXED_K, panels = padded(s) / s->width;
    return s->packed + k_block * panels * panel_bytes(p, s, MU_FIXED_K) +
           panel * panel_bytes(p, s, least(MU_FIXED_K, s->k - k0));
}

/* ---- packing ---- */

/* 2^e, for -126 <= e <= 127. */
static float power_of_two(int e)
{
    uint32_t bits = (uint32_t)(e + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Convert k-block `k0` of `lines` lines from X, of any type and strides, to a buffer in which k is
 * adjacent if the kernel packs by rows, else lines. */
static mu_digit_source load_lines(const product *p, const side *s, size_t first, size_t lines,
                                  size_t k0, size_t k, float *buffer)
{
    const mu_operand *x = s->unread;
    ptrdiff_t line = s->by_columns ? x->col_stride : x->row_stride;
    ptrdiff_t step = s->by_columns ? x->row_stride : x->col_stride;
    ptrdiff_t at = (ptrdiff_t)first * line + (ptrdiff_t)k0 * step;
    const char *data = (const char *)x->data + at * (ptrdiff_t)muonium_dtype_size(x->dtype);
    mu_digit_source source = {.data = buffer, .scale = s->source.scale};
    if (p->kernel->by_rows) {
        mu_block block = {(void *)(uintptr_t)data, x->dtype, line, step, lines, k};
        p->rows->load(&block, buffer, k);
        source.line_stride = (ptrdiff_t)k;
        source.k_stride = 1;
    } else {
        mu_block block = {(void *)(uintptr_t)data, x->dtype, step, line, k, lines};
        p->rows->load(&block, buffer, MU_LINE_GROUP);
        source.line_stride = 1;
        source.k_stride = MU_LINE_GROUP;
    }
    return source;
}

/* The part of a source from (line, k) on. */
static mu_digit_source part_of(const mu_digit_source *whole, size_t line, size_t k)
{
    mu_digit_source part = *whole;
    ptrdiff_t at = (ptrdiff_t)line * whole->line_stride + (ptrdiff_t)k * whole->k_stride;
    part.data += at;
    part.other = whole->other ? whole->other + at : NULL;
    part.offset += (ptrdiff_t)line - (ptrdiff_t)k;
    return part;
}

/* The units of lines with these largest magnitudes: of the first digit, and by which elements are
 * multiplied. Digits divide by the smallest 2^e of which the largest is at most 127/128. A line
 * with an element that is not finite has no digits, and the unit NaN. */
static void set_units(int digits, const uint32_t *bits, size_t lines, float *unit, float *scale)
{
    const uint32_t fraction = 0x7fffff, most = 0x7e0000; /* that of 127/128 */
    for (size_t i = 0; i < lines; i++) {
        bool finite = bits[i] < 0x7f800000;
        int exponent = (int)(bits[i] >> 23) - 126 + ((bits[i] & fraction) > most);
        exponent = exponent > LOWEST_EXPONENT ? exponent : LOWEST_EXPONENT;
        scale[i] = finite ? power_of_two(8 * digits - 1 - exponent) : 0;
        unit[i] = finite ? power_of_two(exponent - 7) : NAN;
    }
}

/* Pack a k-block of the lines [first, first + MU_LINE_GROUP), as far as they exist, of a side, and
 * of `twin`, unless that is NULL: the other side, with the same lines. */
static void split_lines(const product *p, const side *s, const side *twin, size_t k_block,
                        size_t first, float *buffer)
{
    const mu_int8_kernel *kernel = p->kernel;
    size_t lines = least(MU_LINE_GROUP, s->lines - first), k0 = k_block * MU_FIXED_K;
    size_t k = least(MU_FIXED_K, s->k - k0), groups = groups_of(p, k);
    uint32_t bits[MU_LINE_GROUP];
    float scale[MU_LINE_GROUP];
    mu_digit_source source = s->unread ? load_lines(p, s, first, lines, s->first_k + k0, k, buffer)
                                       : part_of(&s->source, first, s->first_k + k0);
    kernel->largest(&source, lines, k, bits);
    set_units(p->digits, bits, lines, s->unit + k_block * padded(s) + first, scale);
    for (const side *to = s; to; to = to == s ? twin : NULL) {
        size_t panels = padded(to) / to->width, panel = first / to->width;
        size_t end = panel + count_of(lines, to->width);
        if (to == twin && kernel->transpose) {
            for (; panel < end; panel++) {
                kernel->transpose(p->digits, groups, panel_at(p, s, k_block, panel),
                                  panel_at(p, to, k_block, panel));
            }
            continue;
        }
        to->pack(p->digits, &source, lines, k, groups, scale, panel_at(p, to, k_block, panel));
        for (; to->start && panel < end; panel++) {
            kernel->start(p->digits, groups, panel_at(p, to, k_block, panel),
                          to->start + (k_block * panels + panel) * MU_SUMS * to->width);
        }
    }
}

typedef struct packing {
    const product *p;
    const side *first, *second; /* with the same number of lines; the second may be NULL */
    bool twins;
} packing;

static float *buffer_of(const product *p, unsigned worker)
{
    return p->buffers + worker * MU_LINE_GROUP * least(p->k, MU_FIXED_K);
}

/* Some lines of each side together: if both sides are one matrix, the second finds it in cache. */
static void split_task(void *context, size_t index, unsigned worker)
{
    const packing *all = context;
    float *buffer = buffer_of(all->p, worker);
    size_t groups = count_of(all->first->lines, MU_LINE_GROUP);
    size_t block = index / groups, line = index % groups * MU_LINE_GROUP;
    split_lines(all->p, all->first, all->twins ? all->second : NULL, block, line, buffer);
    if (all->second && !all->twins) {
        split_lines(all->p, all->second, NULL, block, line, buffer);
    }
}

/* Pack all k-blocks at hand of one side (`second` is NULL) or of both. Twins share lines. */
static void split_sides(const product *p, const side *first, const side *second, bool twins)
{
    packing all = {p, first, second, twins};
    size_t tasks = count_of(first->lines, MU_LINE_GROUP) * count_of(first->k, MU_FIXED_K);
    mu_pool_run(split_task, &all, tasks, p->workers);
}

/* ---- tiles ---- */

enum { LARGEST_TILE = 32 * 32 };

/* Tiles in progress. If the kernel interleaves them, the end of each is applied while the next is
 * multiplied. */
typedef struct pipeline {
    const product *p;
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
    const product *p = line->p;
    size_t row = line->at[which][0], col = line->at[which][1];
    const mu_tile_end *end = &line->ends[which];
    p->rows->mirror(p->mirrored, (ptrdiff_t)p->ldc, row, row + end->rows, col, col + end->cols);
}

/* Fetch what the end of a tile reads and writes: without that it would wait for memory. */
static void prefetch_end(const product *p, const mu_tile_end *end)
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
    const product *p = line->p;
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

static void finish_pipeline(pipeline *line)
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
static void set_epilogue(const product *p, size_t row, size_t col, bool mirrors,
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
    const product *p = line->p;
    const side *a = &p->a, *b = &p->b;
    size_t mr = p->kernel->mr, nr = p->kernel->nr, row = i * mr, col = j * nr;
    size_t rows = least(mr, a->lines - row), cols = least(nr, b->lines - col);
    size_t blocks = count_of(a->k, MU_FIXED_K), panels = padded(a) / mr;
    bool mirrored = p->mirrored && p->kernel->interleaved;
    bool whole = mirrored && row >= col + nr && rows == mr && cols == nr;
    const float *before = p->epilogue.before;
    ptrdiff_t before_ld = p->epilogue.before_ld;
    before = before ? before + (ptrdiff_t)row * before_ld + (ptrdiff_t)col : NULL;
    for (size_t block = 0; block < blocks; block++) {
        const int32_t *start = a->start ? a->start + (block * panels + i) * MU_SUMS * mr : NULL;
        size_t groups = groups_of(p, least(MU_FIXED_K, a->k - block * MU_FIXED_K));
        mu_tile_end *end = &line->ends[line->next];
        bool complete = block + 1 == blocks;
        end->rows = rows;
        end->cols = cols;
        end->row_unit = a->unit + block * padded(a) + row;
        end->col_unit = b->unit + block * padded(b) + col;
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
        multiply_panels(line, groups, panel_at(p, a, block, i), panel_at(p, b, block, j), start);
    }
}

/* Tiles of rows [i0, i1) and columns [j0, j1) of C; `lower`: only those that reach the diagonal or
 * below it. A micropanel of A is used for all columns before the next one, which is fetched
 * meanwhile: those of B stay in cache. */
static void multiply_block(const product *p, size_t i0, size_t i1, size_t j0, size_t j1, bool lower)
{
    const mu_int8_kernel *kernel = p->kernel;
    size_t columns = count_of(j1 - j0, kernel->nr);
    size_t bytes = panel_bytes(p, &p->a, least(MU_FIXED_K, p->a.k));
    pipeline line;
    line.p = p;
    line.filled[0] = line.filled[1] = false;
    line.next = 0;
    if (kernel->enter) {
        kernel->enter();
    }
    for (size_t i = i0 / kernel->mr; i * kernel->mr < i1; i++) {
        bool more = (i + 1) * kernel->mr < p->a.lines && p->a.k <= MU_FIXED_K;
        line.ahead = more ? panel_at(p, &p->a, 0, i + 1) : NULL;
        line.ahead_bytes = more ? bytes / columns : 0;
        for (size_t j = j0 / kernel->nr; j * kernel->nr < j1; j++) {
            if (!lower || (i + 1) * kernel->mr > j * kernel->nr) {
                multiply_fixed_tile(&line, i, j);
            }
        }
    }
    finish_pipeline(&line);
    if (kernel->leave) {
        kernel->leave();
    }
}

/* ---- symmetric products ---- */

typedef struct triangle {
    product p;
    bool twins; /* A and B have the same lines */
} triangle;

/* Row and column of block `index` of the lower triangle, in order of columns. */
static void block_at(size_t index, size_t blocks, size_t *row, size_t *col)
{
    size_t j = 0;
    while (index >= blocks - j) {
        index -= blocks - j++;
    }
    *row = j + index;
    *col = j;
}

static void triangle_task(void *context, size_t index, unsigned worker)
{
    const triangle *t = context;
    const product *p = &t->p;
    size_t m = p->a.lines, row, col;
    (void)worker;
    block_at(index, count_of(m, p->block), &row, &col);
    size_t i0 = row * p->block, i1 = least(i0 + p->block, m);
    size_t j0 = col * p->block, j1 = least(j0 + p->block, m);
    multiply_block(p, i0, i1, j0, j1, row == col);
    if (p->mirrored && !p->kernel->interleaved) {
        p->rows->mirror(p->mirrored, (ptrdiff_t)p->ldc, i0, i1, j0, j1);
    }
}

/* The scratch memory after the buffers. */
static char *after_buffers(const product *p)
{
    return (char *)buffer_of(p, p->workers);
}

/* Memory for a side: digits, units and starts of as many k-blocks as `k` has. */
static char *give_memory(const product *p, side *s, size_t k, bool is_a, char *memory)
{
    size_t lines = padded(s), blocks = count_of(k, MU_FIXED_K);
    s->packed = memory;
    memory += blocks * lines / s->width * panel_bytes(p, s, least(k, MU_FIXED_K));
    s->unit = (float *)memory;
    memory += blocks * lines * sizeof *s->unit;
    s->start = is_a && p->kernel->start ? (int32_t *)memory : NULL;
    return s->start ? memory + blocks * lines * MU_SUMS * sizeof *s->start : memory;
}

/* A product with sums of length k; a side without a source gets one later. */
static product product_of(const mu_matmul *with, size_t k, const mu_digit_source *a, size_t a_lines,
                          const mu_digit_source *b, size_t b_lines)
{
    const mu_int8_kernel *kernel = with->int8;
    const mu_digit_source none = {.data = NULL};
    product p = {.kernel = kernel,
                 .digits = with->digits,
                 .workers = with->workers,
                 .block = BLOCK,
                 .rows = with->kernel->rows,
                 .buffers = with->scratch,
                 .k = k,
                 .a = {.source = a ? *a : none,
                       .lines = a_lines,
                       .width = kernel->mr,
                       .pack = kernel->pack_a},
                 .b = {.source = b ? *b : none,
                       .lines = b_lines,
                       .width = kernel->nr,
                       .pack = kernel->pack_b}};
    return p;
}

static void multiply_triangle(const mu_matmul *with, triangle *t)
{
    product *p = &t->p;
    size_t k = p->k, m = p->a.lines, workers = least(mu_pool_workers(), with->workers);
    mu_fixed_epilogue epilogue = p->epilogue, none = {.term_count = 0};
    float *mirrored = p->mirrored;
    char *memory = give_memory(p, &p->a, least(k, MU_FIXED_K), true, after_buffers(p));
    give_memory(p, &p->b, least(k, MU_FIXED_K), false, memory);
    p->b.unit = t->twins ? p->a.unit : p->b.unit;
    if (workers > 1 && m < 8 * BLOCK) {
        p->block = SMALL_BLOCK;
    }
    size_t blocks = count_of(m, p->block);
    for (size_t k0 = 0; k0 < k; k0 += MU_FIXED_K) {
        p->a.first_k = p->b.first_k = k0;
        p->a.k = p->b.k = least(MU_FIXED_K, k - k0);
        bool last = k0 + MU_FIXED_K >= k;
        p->epilogue = last ? epilogue : none;
        p->mirrored = last ? mirrored : NULL;
        if (k0 > 0) {
            p->epilogue.before = p->c;
            p->epilogue.before_ld = (ptrdiff_t)p->ldc;
        }
        split_sides(p, &p->a, &p->b, t->twins);
        mu_pool_run(triangle_task, t, blocks * (blocks + 1) / 2, with->workers);
    }
}

/* ---- operands ---- */

/* A square symmetric operand: digits of O, and d. */
typedef struct split {
    mu_digit_source source; /* lines adjacent */
    float mean;             /* of the diagonal of s M + t N */
    float shift;            /* d: that and the identity of the operand */
} split;

static split split_of(const mu_operand *o, size_t m)
{
    const float *data = o->data, *other = o->other;
    size_t step = (size_t)o->row_stride + 1;
    double sum = 0;
    for (size_t i = 0; i < m; i++) {
        sum += o->scale * (double)data[i * step];
        sum += other ? o->other_scale * (double)other[i * step] : 0;
    }
    split s = {.mean = (float)(sum / (double)m)};
    s.shift = (float)((double)s.mean + o->shift);
    s.source = (mu_digit_source){.data = data,
                                 .line_stride = 1,
                                 .k_stride = o->row_stride,
                                 .scale = (float)o->scale,
                                 .other = other,
                                 .other_scale = (float)o->other_scale,
                                 .diagonal = s.mean};
    return s;
}

/* The same digits with k adjacent: the matrix is symmetric. */
static mu_digit_source as_rows(const mu_digit_source *source)
{
    mu_digit_source turned = *source;
    turned.line_stride = source->k_stride;
    turned.k_stride = source->line_stride;
    return turned;
}

static mu_digit_source lines_of(const mu_matmul *with, const split *s)
{
    return with->int8->by_rows ? as_rows(&s->source) : s->source;
}

static void add_fixed_term(mu_fixed_epilogue *f, const float *data, ptrdiff_t row_stride,
                           double factor)
{
    for (size_t t = 0; t < f->term_count; t++) {
        if (f->terms[t].data == data && f->terms[t].row_stride == row_stride) {
            f->terms[t].factor = (float)((double)f->terms[t].factor + factor);
            return;
        }
    }
    if (factor != 0) {
        f->terms[f->term_count].data = data;
        f->terms[f->term_count].row_stride = row_stride;
        f->terms[f->term_count].col_stride = 1;
        f->terms[f->term_count++].factor = (float)factor;
    }
}

/* factor * (s M + t N) */
static void add_operand(mu_fixed_epilogue *f, const mu_operand *o, double factor)
{
    add_fixed_term(f, o->data, o->row_stride, factor * o->scale);
    if (o->other) {
        add_fixed_term(f, o->other, o->row_stride, factor * o->other_scale);
    }
}

/* Whether two operands have the same lines of digits. */
static bool has_same_digits(const mu_digit_source *a, const mu_digit_source *b)
{
    return a->data == b->data && a->line_stride == b->line_stride && a->k_stride == b->k_stride &&
           a->scale == b->scale && a->other == b->other &&
           (!a->other || a->other_scale == b->other_scale) && a->diagonal == b->diagonal;
}

/* ---- the products ---- */

/* Whether tiles take X as it is: f32, with k adjacent where that is packed fastest, else lines. */
static bool is_ready(const mu_operand *x, ptrdiff_t line_stride, ptrdiff_t k_stride, bool rows)
{
    return x->dtype == MUONIUM_F32 && (rows ? k_stride : line_stride) == 1;
}

/* X as a side, its lines being rows or columns. */
static void set_x_side(side *s, const mu_operand *x, bool by_columns, bool by_rows)
{
    ptrdiff_t line = by_columns ? x->col_stride : x->row_stride;
    ptrdiff_t step = by_columns ? x->row_stride : x->col_stride;
    s->source = (mu_digit_source){
        .data = x->data, .line_stride = line, .k_stride = step, .scale = (float)x->scale};
    s->unread = is_ready(x, line, step, by_rows) ? NULL : x;
    s->by_columns = by_columns;
}

void mu_fixed_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, float *c,
                   size_t ldc)
{
    triangle t = {.p = product_of(with, n, NULL, m, NULL, m), .twins = true};
    set_x_side(&t.p.a, x, false, with->int8->by_rows);
    t.p.c = t.p.mirrored = c;
    t.p.ldc = ldc;
    multiply_triangle(with, &t);
}

void mu_fixed_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                     float *c, size_t ldc, const mu_symmul_epilogue *after)
{
    split left = split_of(a, m), right = split_of(b, m);
    mu_digit_source a_lines = lines_of(with, &left), b_lines = lines_of(with, &right);
    triangle t = {.p = product_of(with, m, &a_lines, m, &b_lines, m),
                  .twins = has_same_digits(&a_lines, &b_lines)};
    mu_fixed_epilogue *f = &t.p.epilogue;
    double da = left.shift, db = right.shift;
    add_operand(f, a, db);
    add_operand(f, b, da);
    if (after->plus) {
        add_fixed_term(f, after->plus, (ptrdiff_t)ldc, after->plus_factor);
    }
    f->shift =
        (float)(da * db - db * (double)left.mean - da * (double)right.mean + after->plus_identity);
    f->sum = after->sum;
    f->sum_ld = (ptrdiff_t)ldc;
    f->sum_factor = (float)after->sum_factor;
    f->accumulate = after->accumulate;
    t.p.c = c;
    t.p.mirrored = after->last ? after->sum : c;
    t.p.ldc = ldc;
    multiply_triangle(with, &t);
}

typedef struct application {
    product p;
    bool right; /* X is the right operand, and Y lies row by row */
    size_t private_bytes;
    char *private_memory;
} application;

/* Some lines of X: packed by this worker, then multiplied by all of A. */
static void apply_task(void *context, size_t index, unsigned worker)
{
    const application *all = context;
    product p = all->p;
    side *x = all->right ? &p.b : &p.a;
    size_t line = index * p.block, lines = least(p.block, x->lines - line);
    mu_operand unread;
    if (x->unread) {
        unread = *x->unread;
        ptrdiff_t skip = (ptrdiff_t)line * unread.col_stride;
        skip *= (ptrdiff_t)muonium_dtype_size(unread.dtype);
        unread.data = (const char *)unread.data + skip;
        x->unread = &unread;
    } else {
        x->source.data += (ptrdiff_t)line * x->source.line_stride;
    }
    x->lines = lines;
    p.c += line * (all->right ? 1 : p.ldc);
    for (size_t t = 0; t < p.epilogue.term_count; t++) {
        p.epilogue.terms[t].data += (ptrdiff_t)line * (all->right ? p.epilogue.terms[t].col_stride
                                                                  : p.epilogue.terms[t].row_stride);
    }
    give_memory(&p, x, x->k, !all->right, all->private_memory + worker * all->private_bytes);
    for (size_t block = 0; block * MU_FIXED_K < x->k; block++) {
        for (size_t i = 0; i < lines; i += MU_LINE_GROUP) {
            split_lines(&p, x, NULL, block, i, buffer_of(&p, worker));
        }
    }
    for (size_t i = 0; i < p.a.lines; i += BLOCK) {
        for (size_t j = 0; j < p.b.lines; j += BLOCK) {
            multiply_block(&p, i, least(i + BLOCK, p.a.lines), j, least(j + BLOCK, p.b.lines),
                           false);
        }
    }
}

/* Bytes that give_memory takes for a side. */
static size_t side_bytes(const mu_int8_kernel *kernel, int digits, size_t lines, size_t k)
{
    size_t blocks = count_of(k, MU_FIXED_K), all = mu_round_up(lines, MU_LINE_GROUP);
    size_t groups = mu_round_up(count_of(least(k, MU_FIXED_K), 4), kernel->groups);
    size_t per_line = groups * 4 * (size_t)digits + sizeof(float) + MU_SUMS * sizeof(int32_t);
    return mu_round_up(blocks * all * per_line, MU_ALIGNMENT);
}

void mu_fixed_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a,
                    const mu_operand *x, float *y, size_t row_stride, size_t col_stride)
{
    split h = split_of(a, m);
    application all = {.right = col_stride == 1};
    mu_digit_source lines = lines_of(with, &h);
    all.p = all.right ? product_of(with, m, &lines, m, NULL, n)
                      : product_of(with, m, NULL, n, &lines, m);
    product *p = &all.p;
    side *shared = all.right ? &p->a : &p->b, *streamed = all.right ? &p->b : &p->a;
    set_x_side(streamed, x, true, !all.right && with->int8->by_rows);
    p->a.k = p->b.k = m;
    p->c = y;
    p->ldc = all.right ? row_stride : col_stride;
    p->epilogue.term_count = 1;
    p->epilogue.terms[0].data = x->data;
    p->epilogue.terms[0].row_stride = all.right ? x->row_stride : x->col_stride;
    p->epilogue.terms[0].col_stride = all.right ? x->col_stride : x->row_stride;
    p->epilogue.terms[0].factor = (float)((double)h.shift * x->scale);
    give_memory(p, shared, m, all.right, after_buffers(p));
    all.private_memory = after_buffers(p) + side_bytes(with->int8, with->digits, m, m);
    all.private_bytes = side_bytes(with->int8, with->digits, BLOCK, m);
    size_t workers = least(mu_pool_workers(), with->workers);
    p->block = n < 2 * BLOCK * workers ? SMALL_BLOCK : BLOCK;
    split_sides(p, shared, NULL, false);
    mu_pool_run(apply_task, &all, count_of(n, p->block), with->workers);
}

bool mu_fixed_scratch(const mu_int8_kernel *kernel, int digits, size_t m, size_t n,
                      unsigned workers, size_t *bytes)
{
    size_t limit;
    if (!mu_add(m, 2 * MU_LINE_GROUP, &limit) || !mu_mul(limit, limit, &limit) ||
        !mu_mul(limit, 64, &limit) || !mu_mul(mu_round_up(m, 256), 64 * (size_t)BLOCK, &limit) ||
        !mu_mul(limit, workers, &limit) || n > SIZE_MAX / 64) {
        return false;
    }
    size_t gram = 2 * side_bytes(kernel, digits, m, least(n, MU_FIXED_K));
    size_t symmul = 2 * side_bytes(kernel, digits, m, least(m, MU_FIXED_K));
    size_t apply =
        side_bytes(kernel, digits, m, m) + workers * side_bytes(kernel, digits, BLOCK, m);
    size_t longest = least(m > n ? m : n, MU_FIXED_K);
    *bytes = gram > symmul ? gram : symmul;
    *bytes = apply > *bytes ? apply : *bytes;
    *bytes += workers * mu_round_up(MU_LINE_GROUP * longest * sizeof(float), MU_ALIGNMENT);
    return true;
}
