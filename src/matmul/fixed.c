/*
 * fixed.c: gram, symmul and apply in fixed point.
 *
 * Symmetric products pack both sides (fixed_pack.c) and compute blocks of the lower triangle
 * (fixed_tiles.c). apply packs its symmetric operand, and every worker the lines of X that it
 * multiplies, so that the result may take the place of X.
 */
#include "matmul/fixed_product.h"

enum { SMALL_BLOCK = 64 }; /* of products that workers share and that have few blocks */

/* ---- symmetric products ---- */

typedef struct fixed_triangle {
    mu_fixed_product p;
    bool twins; /* A and B have the same lines */
} fixed_triangle;

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
    const fixed_triangle *t = context;
    const mu_fixed_product *p = &t->p;
    size_t m = p->a.lines, row, col;
    (void)worker;
    block_at(index, mu_ceil_div(m, p->block), &row, &col);
    size_t i0 = row * p->block, i1 = mu_min_size(i0 + p->block, m);
    size_t j0 = col * p->block, j1 = mu_min_size(j0 + p->block, m);
    mu_multiply_fixed_block(p, i0, i1, j0, j1, row == col);
    if (p->mirrored && !p->kernel->interleaved) {
        p->rows->mirror(p->mirrored, (ptrdiff_t)p->ldc, i0, i1, j0, j1);
    }
}

/* The scratch memory after the buffers. */
static char *after_buffers(const mu_fixed_product *p)
{
    return (char *)mu_line_buffer(p, p->workers);
}

/* A product with sums of length k; a side without a source gets one later. */
static mu_fixed_product product_of(const mu_matmul *with, size_t k, const mu_digit_source *a,
                                   size_t a_lines, const mu_digit_source *b, size_t b_lines)
{
    const mu_int8_kernel *kernel = with->int8;
    const mu_digit_source none = {.data = NULL};
    mu_fixed_product p = {.kernel = kernel,
                          .digits = with->digits,
                          .workers = with->workers,
                          .block = MU_FIXED_BLOCK,
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

static void multiply_triangle(const mu_matmul *with, fixed_triangle *t)
{
    mu_fixed_product *p = &t->p;
    size_t k = p->k, m = p->a.lines, workers = mu_min_size(mu_pool_workers(), with->workers);
    mu_fixed_epilogue epilogue = p->epilogue, none = {.term_count = 0};
    float *mirrored = p->mirrored;
    char *memory =
        mu_give_side_memory(p, &p->a, mu_min_size(k, MU_FIXED_K), true, after_buffers(p));
    mu_give_side_memory(p, &p->b, mu_min_size(k, MU_FIXED_K), false, memory);
    p->b.unit = t->twins ? p->a.unit : p->b.unit;
    if (workers > 1 && m < 8 * MU_FIXED_BLOCK) {
        p->block = SMALL_BLOCK;
    }
    size_t blocks = mu_ceil_div(m, p->block);
    for (size_t k0 = 0; k0 < k; k0 += MU_FIXED_K) {
        p->a.first_k = p->b.first_k = k0;
        p->a.k = p->b.k = mu_min_size(MU_FIXED_K, k - k0);
        bool last = k0 + MU_FIXED_K >= k;
        p->epilogue = last ? epilogue : none;
        p->mirrored = last ? mirrored : NULL;
        if (k0 > 0) {
            p->epilogue.before = p->c;
            p->epilogue.before_ld = (ptrdiff_t)p->ldc;
        }
        mu_split_sides(p, &p->a, &p->b, t->twins);
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
    size_t next = (size_t)o->row_stride + 1;
    double sum = 0;
    for (size_t i = 0; i < m; i++) {
        sum += o->scale * (double)data[i * next];
        sum += other ? o->other_scale * (double)other[i * next] : 0;
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
    mu_digit_source rows = *source;
    rows.line_stride = source->k_stride;
    rows.k_stride = source->line_stride;
    return rows;
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
static void set_x_side(mu_digit_side *s, const mu_operand *x, bool by_columns, bool by_rows)
{
    ptrdiff_t line = by_columns ? x->col_stride : x->row_stride;
    ptrdiff_t k_stride = by_columns ? x->row_stride : x->col_stride;
    s->source = (mu_digit_source){
        .data = x->data, .line_stride = line, .k_stride = k_stride, .scale = (float)x->scale};
    s->unread = is_ready(x, line, k_stride, by_rows) ? NULL : x;
    s->by_columns = by_columns;
}

void mu_fixed_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, float *c,
                   size_t ldc)
{
    fixed_triangle t = {.p = product_of(with, n, NULL, m, NULL, m), .twins = true};
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
    fixed_triangle t = {.p = product_of(with, m, &a_lines, m, &b_lines, m),
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

typedef struct fixed_application {
    mu_fixed_product p;
    bool right; /* X is the right operand, and Y lies row by row */
    size_t private_bytes;
    char *private_memory;
} fixed_application;

/* Some lines of X: packed by this worker, then multiplied by all of A. */
static void apply_task(void *context, size_t index, unsigned worker)
{
    const fixed_application *all = context;
    mu_fixed_product p = all->p;
    mu_digit_side *x = all->right ? &p.b : &p.a;
    size_t line = index * p.block, lines = mu_min_size(p.block, x->lines - line);
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
    mu_give_side_memory(&p, x, x->k, !all->right,
                        all->private_memory + worker * all->private_bytes);
    for (size_t block = 0; block * MU_FIXED_K < x->k; block++) {
        for (size_t i = 0; i < lines; i += MU_LINE_GROUP) {
            mu_split_lines(&p, x, NULL, block, i, mu_line_buffer(&p, worker));
        }
    }
    for (size_t i = 0; i < p.a.lines; i += MU_FIXED_BLOCK) {
        for (size_t j = 0; j < p.b.lines; j += MU_FIXED_BLOCK) {
            mu_multiply_fixed_block(&p, i, mu_min_size(i + MU_FIXED_BLOCK, p.a.lines), j,
                                    mu_min_size(j + MU_FIXED_BLOCK, p.b.lines), false);
        }
    }
}

void mu_fixed_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a,
                    const mu_operand *x, float *y, size_t row_stride, size_t col_stride)
{
    split h = split_of(a, m);
    fixed_application all = {.right = col_stride == 1};
    mu_digit_source lines = lines_of(with, &h);
    all.p = all.right ? product_of(with, m, &lines, m, NULL, n)
                      : product_of(with, m, NULL, n, &lines, m);
    mu_fixed_product *p = &all.p;
    mu_digit_side *shared = all.right ? &p->a : &p->b, *streamed = all.right ? &p->b : &p->a;
    set_x_side(streamed, x, true, !all.right && with->int8->by_rows);
    p->a.k = p->b.k = m;
    p->c = y;
    p->ldc = all.right ? row_stride : col_stride;
    p->epilogue.term_count = 1;
    p->epilogue.terms[0].data = x->data;
    p->epilogue.terms[0].row_stride = all.right ? x->row_stride : x->col_stride;
    p->epilogue.terms[0].col_stride = all.right ? x->col_stride : x->row_stride;
    p->epilogue.terms[0].factor = (float)((double)h.shift * x->scale);
    mu_give_side_memory(p, shared, m, all.right, after_buffers(p));
    all.private_memory = after_buffers(p) + mu_side_bytes(with->int8, with->digits, m, m);
    all.private_bytes = mu_side_bytes(with->int8, with->digits, MU_FIXED_BLOCK, m);
    size_t workers = mu_min_size(mu_pool_workers(), with->workers);
    p->block = n < 2 * MU_FIXED_BLOCK * workers ? SMALL_BLOCK : MU_FIXED_BLOCK;
    mu_split_sides(p, shared, NULL, false);
    mu_pool_run(apply_task, &all, mu_ceil_div(n, p->block), with->workers);
}

bool mu_fixed_scratch(const mu_int8_kernel *kernel, int digits, size_t m, size_t n,
                      unsigned workers, size_t *bytes)
{
    size_t limit;
    if (!mu_add(m, 2 * MU_LINE_GROUP, &limit) || !mu_mul(limit, limit, &limit) ||
        !mu_mul(limit, 64, &limit) ||
        !mu_mul(mu_round_up(m, 256), 64 * (size_t)MU_FIXED_BLOCK, &limit) ||
        !mu_mul(limit, workers, &limit) || n > SIZE_MAX / 64) {
        return false;
    }
    size_t gram = 2 * mu_side_bytes(kernel, digits, m, mu_min_size(n, MU_FIXED_K));
    size_t symmul = 2 * mu_side_bytes(kernel, digits, m, mu_min_size(m, MU_FIXED_K));
    size_t apply = mu_side_bytes(kernel, digits, m, m) +
                   workers * mu_side_bytes(kernel, digits, MU_FIXED_BLOCK, m);
    size_t longest = mu_min_size(m > n ? m : n, MU_FIXED_K);
    *bytes = gram > symmul ? gram : symmul;
    *bytes = apply > *bytes ? apply : *bytes;
    *bytes += workers * mu_round_up(MU_LINE_GROUP * longest * sizeof(float), MU_ALIGNMENT);
    return true;
}
