/*
 * product.c: gram, symmul and apply: blocking, packing and the division of work.
 *
 * The sum over k runs in blocks of one length, fixed by k and the kernel alone.
 * gram and symmul pack their operands for a few blocks at a time, or read small ones
 * where they lie, and compute squares on and below the diagonal, each by one thread,
 * which finishes and mirrors it while it is in cache. apply packs its symmetric operand
 * once and gives each thread strips of X: of columns, or where the result lies column by
 * column of what are then rows. A strip is packed privately, whole, before its place is
 * written, so X may be its own result.
 */
#include "matmul/matmul.h"

#include "matmul/blas.h"

enum {
    PACKED_AT_ONCE = 1 << 20, /* bytes, or one block of k, packed before gram and symmul multiply:
                                 more drives the operands out of a shared cache */
    SMALL = 512,              /* up to this m squares are small, which evens out the threads, a
                                 plain left operand is not packed, and none is far away */
    TINY = 256,               /* up to this m a plain right operand is not packed either */
    STRIP = 2 * MU_BLOCK      /* most of X that apply gives to a thread at a time, and what it
                                 multiplies that with at a time */
};

/* One operand on its way through packing. */
typedef struct side {
    mu_lanes whole; /* from lane 0 and step 0 */
    size_t lanes;   /* in all */
    size_t width;   /* of a panel: mr or nr */
    void (*pack)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                 size_t panel_stride);
    char *packed; /* [block of k][panel][step][lane], from panel plain / width on */
    size_t plain; /* lanes, whole panels of them, that are not packed but read where they lie */
} side;

typedef struct product {
    const mu_kernel *kernel;
    size_t bytes;       /* of an element */
    size_t k;           /* length of the sums */
    size_t kc;          /* length of a block of them; the last may be shorter */
    size_t first_block; /* what is packed now */
    size_t block_count;
    side a, b;
    char *c;
    size_t ldc;
    mu_finishing finish; /* gram, symmul: of the whole */
    bool last;           /* symmul: only the sum is wanted */
    size_t square;       /* gram, symmul: rows of the squares */
    size_t squares;      /* how many in a column */
    bool tall;           /* apply: X is the left operand, its strips are of rows */
    size_t strips;       /* apply */
    size_t strip_bytes;  /* apply: private packed memory per lane */
} product;

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Lanes packed at a time, and rows of small squares: whole panels of either side. */
static size_t group_of(const mu_kernel *kernel)
{
    size_t half = MU_BLOCK / 2;
    return half % kernel->mr == 0 && half % kernel->nr == 0 ? half : MU_BLOCK;
}

size_t mu_block_columns(const mu_kernel *kernel, size_t k)
{
    return ceil_div(k, ceil_div(k, kernel->kc));
}

static size_t steps_of(const product *p, size_t block)
{
    return min_size(p->kc, p->k - block * p->kc);
}

/* Where the panel that starts at `lane`, not a plain one, is packed. */
static char *packed_at(const product *p, const side *s, size_t block, size_t lane)
{
    size_t panels = ceil_div(s->lanes - s->plain, s->width);
    size_t index = (block - p->first_block) * panels + (lane - s->plain) / s->width;
    return s->packed + index * p->kc * s->width * p->bytes;
}

/* Pack lanes [from, to) of one block of k; `packed` starts with lane `from`. */
static void pack_block(const product *p, const side *s, size_t block, size_t from, size_t to,
                       char *packed)
{
    size_t step = block * p->kc;
    ptrdiff_t skip =
        (ptrdiff_t)from * s->whole.lane_stride + (ptrdiff_t)step * s->whole.step_stride;
    skip *= (ptrdiff_t)muonium_dtype_size(s->whole.dtype);
    mu_lanes part = s->whole;
    part.data = (const char *)part.data + skip;
    part.other = part.other ? (const char *)part.other + skip : NULL;
    part.diagonal = (ptrdiff_t)from - (ptrdiff_t)step;
    part.distant = s->lanes > SMALL;
    s->pack(&part, to - from, steps_of(p, block), packed, p->kc * s->width);
}

/* Pack lanes of all blocks at hand. Where memory runs along a lane one panel after the other,
 * so that it is read in long stretches. */
static void pack_group(const product *p, const side *s, size_t index)
{
    size_t group = group_of(p->kernel), end = min_size((index + 1) * group, s->lanes);
    size_t at_once = s->whole.lane_stride == 1 ? group : s->width, lane = index * group;
    for (lane = lane < s->plain ? s->plain : lane; lane < end; lane += at_once) {
        for (size_t i = 0; i < p->block_count; i++) {
            size_t block = p->first_block + i;
            pack_block(p, s, block, lane, min_size(lane + at_once, end),
                       packed_at(p, s, block, lane));
        }
    }
}

/* Panels of one block of k, one after the other, as tiles read them. */
typedef struct panels {
    const char *data;
    ptrdiff_t lane, step; /* strides, in elements */
    ptrdiff_t next;       /* bytes from a panel to the next */
} panels;

/* The panels from `lane` on, up to the last plain one or the last. */
static panels panels_at(const product *p, const side *s, size_t block, size_t lane)
{
    ptrdiff_t width = (ptrdiff_t)s->width, bytes = (ptrdiff_t)p->bytes;
    if (lane >= s->plain) {
        panels packed = {packed_at(p, s, block, lane), 1, width, (ptrdiff_t)p->kc * width * bytes};
        return packed;
    }
    ptrdiff_t lanes = s->whole.lane_stride, steps = s->whole.step_stride;
    ptrdiff_t at = (ptrdiff_t)lane * lanes + (ptrdiff_t)(block * p->kc) * steps;
    panels plain = {(const char *)s->whole.data + at * bytes, lanes, steps, width * lanes * bytes};
    return plain;
}

/* A rows x cols block of C at (i0, j0) from one block of k. `lower`: only tiles that reach
 * the diagonal or below it, and of these only the columns that do. */
static void multiply(const product *p, size_t block, size_t i0, size_t rows, size_t j0, size_t cols,
                     bool lower)
{
    const mu_kernel *kernel = p->kernel;
    size_t steps = steps_of(p, block);
    panels b = panels_at(p, &p->b, block, j0);
    for (size_t j = j0; j < j0 + cols; j += kernel->nr, b.data += b.next) {
        size_t above = lower && j > i0 ? (j - i0) / kernel->mr : 0; /* panels to leave out */
        size_t first = i0 + above * kernel->mr;
        panels a = panels_at(p, &p->a, block, first);
        if (j == p->b.plain) {
            b = panels_at(p, &p->b, block, j);
        }
        for (size_t i = first; i < i0 + rows; i += kernel->mr, a.data += a.next) {
            if (i == p->a.plain) {
                a = panels_at(p, &p->a, block, i);
            }
            size_t tile_rows = min_size(kernel->mr, i0 + rows - i);
            size_t tile_cols = min_size(kernel->nr, j0 + cols - j);
            if (lower) { /* as many whole vectors as reach the diagonal */
                size_t vector = kernel->nr / 2;
                tile_cols = min_size(tile_cols, i + tile_rows - j <= vector ? vector : kernel->nr);
            }
            kernel->tile(steps, a.data, a.lane, a.step, b.data, b.step,
                         p->c + (i * p->ldc + j) * p->bytes, (ptrdiff_t)p->ldc, tile_rows,
                         tile_cols, block > 0);
        }
    }
}

/* ---- gram and symmul ---- */

/* Both sides in turn, as they may be the same matrix, which is then in cache. */
static void pack_task(void *context, size_t index, unsigned lane)
{
    const product *p = context;
    (void)lane;
    pack_group(p, &p->a, index);
    pack_group(p, &p->b, index);
}

/* Squares are handed out with those off the diagonal first, rows with the most of
 * them before others, so that the small ones come last and even out the threads. */
static void square_at(size_t index, size_t squares, size_t *row, size_t *col)
{
    for (size_t i = squares - 1; i > 0; i--) {
        if (index < i) {
            *row = i;
            *col = index;
            return;
        }
        index -= i;
    }
    *row = *col = index;
}

/* The rows and columns of C from (i0, j0) on, and what mirrors them. */
static void finish_square(const mu_kernel *kernel, const mu_finishing *whole, char *c, size_t ldc,
                          size_t i0, size_t rows, size_t j0, size_t cols, bool last)
{
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(kernel->type), ld = (ptrdiff_t)ldc;
    ptrdiff_t row = (ptrdiff_t)i0, col = (ptrdiff_t)j0;
    if (whole->term_count > 0 || whole->scale != 1 || whole->shift != 0 || whole->sum) {
        mu_finishing f = *whole;
        for (size_t t = 0; t < f.term_count; t++) {
            ptrdiff_t at = row * f.terms[t].ld + col;
            f.terms[t].data = (const char *)f.terms[t].data + at * bytes;
        }
        f.sum = f.sum ? (char *)f.sum + (row * f.sum_ld + col) * bytes : NULL;
        kernel->finish(c + (row * ld + col) * bytes, ld, rows, cols, i0 == j0, &f);
    }
    kernel->mirror(last ? whole->sum : c, ld, i0, i0 + rows, j0, j0 + cols);
}

static void square_task(void *context, size_t index, unsigned lane)
{
    const product *p = context;
    (void)lane;
    size_t row, col;
    square_at(index, p->squares, &row, &col);
    size_t i0 = row * p->square, j0 = col * p->square;
    size_t rows = min_size(p->square, p->a.lanes - i0), cols = min_size(p->square, p->b.lanes - j0);
    size_t end = p->first_block + p->block_count;
    for (size_t block = p->first_block; block < end; block++) {
        multiply(p, block, i0, rows, j0, cols, row == col);
    }
    if (end * p->kc >= p->k) {
        finish_square(p->kernel, &p->finish, p->c, p->ldc, i0, rows, j0, cols, p->last);
    }
}

/* Bytes of one packed side with `lanes` lanes and k steps. */
static size_t packed_bytes(const product *p, size_t lanes, size_t width, size_t blocks)
{
    return mu_round_up(blocks * p->kc * mu_round_up(lanes, width) * p->bytes, MU_ALIGNMENT);
}

/* How many of `blocks` blocks of k are packed at once. */
static size_t blocks_at_once(const product *p, const mu_kernel *kernel, size_t m, size_t blocks)
{
    size_t one = packed_bytes(p, m, kernel->mr, 1) + packed_bytes(p, m, kernel->nr, 1);
    size_t fit = one > 0 ? PACKED_AT_ONCE / one : 0;
    return min_size(blocks, fit > 0 ? fit : 1);
}

/* Nothing to convert or to combine. */
static bool is_plain(const mu_kernel *kernel, const mu_lanes *o)
{
    return o->dtype == kernel->type && o->scale == 1 && !o->other && o->shift == 0;
}

/* A plain left operand is read where it lies if its steps are adjacent, a right one if its
 * lanes are. */
static void triangle(const mu_matmul *with, size_t m, size_t k, const mu_lanes *a,
                     const mu_lanes *b, void *c, size_t ldc, const mu_finishing *finish, bool last)
{
    const mu_kernel *kernel = with->kernel;
    bool a_plain = m <= SMALL && is_plain(kernel, a) && a->step_stride == 1;
    bool b_plain = m <= TINY && is_plain(kernel, b) && b->lane_stride == 1;
    product p = {.kernel = kernel,
                 .bytes = muonium_dtype_size(kernel->type),
                 .k = k,
                 .kc = mu_block_columns(kernel, k),
                 .a = {.whole = *a,
                       .lanes = m,
                       .width = kernel->mr,
                       .pack = kernel->pack_a,
                       .packed = with->scratch,
                       .plain = a_plain ? m / kernel->mr * kernel->mr : 0},
                 .b = {.whole = *b,
                       .lanes = m,
                       .width = kernel->nr,
                       .pack = kernel->pack_b,
                       .plain = b_plain ? m / kernel->nr * kernel->nr : 0},
                 .c = c,
                 .ldc = ldc,
                 .finish = *finish,
                 .last = last,
                 .square = m > SMALL ? MU_BLOCK : group_of(kernel)};
    size_t blocks = ceil_div(k, p.kc), at_once = blocks_at_once(&p, kernel, m, blocks);
    p.squares = ceil_div(m, p.square);
    p.b.packed = p.a.packed + packed_bytes(&p, m - p.a.plain, kernel->mr, at_once);
    for (; p.first_block < blocks; p.first_block += p.block_count) {
        p.block_count = min_size(blocks - p.first_block, at_once);
        if (p.a.plain < m || p.b.plain < m) {
            mu_pool_run(pack_task, &p, ceil_div(m, group_of(kernel)), with->lanes);
        }
        mu_pool_run(square_task, &p, p.squares * (p.squares + 1) / 2, with->lanes);
    }
}

/* The rows of an operand as lanes; its columns as lanes. */
static mu_lanes rows_as_lanes(const mu_operand *o)
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

static mu_lanes cols_as_lanes(const mu_operand *o)
{
    mu_lanes lanes = rows_as_lanes(o);
    lanes.lane_stride = o->col_stride;
    lanes.step_stride = o->row_stride;
    return lanes;
}

void mu_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c, size_t ldc)
{
    if (mu_blas_selected()) {
        mu_blas_gram(with, m, n, x, c, ldc);
        return;
    }
    mu_lanes rows = rows_as_lanes(x);
    mu_finishing nothing = {.scale = 1};
    triangle(with, m, n, &rows, &rows, c, ldc, &nothing, false);
}

/* A number times a matrix of the kernel's type; plain without the number. */
static bool is_multiple(const mu_kernel *kernel, const mu_lanes *o)
{
    return o->dtype == kernel->type && !o->other && o->shift == 0;
}

static void hand_over_scale(mu_lanes *from, mu_lanes *to)
{
    to->scale *= from->scale;
    to->other_scale *= from->scale;
    to->shift *= from->scale;
    from->scale = 1;
}

/* The left operand plain if one of them can be: they commute. */
static void choose_left(const mu_kernel *kernel, mu_lanes *left, mu_lanes *right)
{
    if (is_multiple(kernel, left)) {
        hand_over_scale(left, right);
    } else if (is_multiple(kernel, right)) {
        mu_lanes plain = *right;
        *right = *left;
        *left = plain;
        hand_over_scale(left, right);
    }
}

static void add_term(mu_finishing *f, const void *data, ptrdiff_t ld, double factor)
{
    for (size_t t = 0; t < f->term_count; t++) {
        if (f->terms[t].data == data && f->terms[t].ld == ld) {
            f->terms[t].factor += factor;
            return;
        }
    }
    if (factor != 0) {
        f->terms[f->term_count].data = data;
        f->terms[f->term_count].ld = ld;
        f->terms[f->term_count++].factor = factor;
    }
}

/* A matrix with rows that can be read where they lie, a number times it, and a shift. */
static bool is_single(const mu_kernel *kernel, const mu_operand *o)
{
    return o->dtype == kernel->type && !o->other && o->col_stride == 1;
}

/* (s A + d I) (t B + e I) = s t A B + s e A + d t B + d e I: the product of the matrices
 * themselves, neither of which has to be packed, and the rest while C is in cache. */
static void multiply_out(const mu_operand *a, const mu_operand *b, mu_lanes *left, mu_lanes *right,
                         mu_finishing *f)
{
    f->scale = a->scale * b->scale;
    f->shift = a->shift * b->shift;
    add_term(f, a->data, a->row_stride, a->scale * b->shift);
    add_term(f, b->data, b->row_stride, a->shift * b->scale);
    *left = rows_as_lanes(a);
    *right = cols_as_lanes(b); /* which are its rows, B being symmetric, but adjacent */
    left->scale = right->scale = 1;
    left->shift = right->shift = 0;
}

void mu_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b, void *c,
               size_t ldc)
{
    mu_finish nothing = {0};
    mu_symmul_finish(with, m, a, b, c, ldc, &nothing);
}

void mu_symmul_finish(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                      void *c, size_t ldc, const mu_finish *finish)
{
    const mu_kernel *kernel = with->kernel;
    mu_finishing f = {.scale = 1,
                      .sum = finish->sum,
                      .sum_ld = (ptrdiff_t)ldc,
                      .sum_factor = finish->sum_factor,
                      .accumulate = finish->accumulate};
    /* B is symmetric: its rows serve as columns, and are packed in longer stretches. */
    mu_lanes left = rows_as_lanes(a), right = rows_as_lanes(b);
    bool by_blas = mu_blas_selected();
    if (!by_blas && m <= TINY && is_single(kernel, a) && is_single(kernel, b)) {
        multiply_out(a, b, &left, &right, &f);
    } else {
        choose_left(kernel, &left, &right);
    }
    if (finish->plus) {
        add_term(&f, finish->plus, (ptrdiff_t)ldc, finish->plus_factor);
    }
    if (by_blas) {
        mu_blas_symmul(with, m, a, b, c, ldc);
        finish_square(kernel, &f, c, ldc, 0, m, 0, m, finish->last);
        return;
    }
    triangle(with, m, m, &left, &right, c, ldc, &f, finish->last);
}

/* ---- apply ---- */

static void pack_fixed_task(void *context, size_t index, unsigned lane)
{
    const product *p = context;
    (void)lane;
    pack_group(p, p->tall ? &p->b : &p->a, index);
}

/* One strip, packed, is a product of its own. */
static void strip_task(void *context, size_t index, unsigned lane)
{
    const product *p = context;
    const side *x = p->tall ? &p->a : &p->b;
    size_t all = ceil_div(x->lanes, x->width), blocks = ceil_div(p->k, p->kc);
    size_t first = index * all / p->strips * x->width;
    size_t end = min_size((index + 1) * all / p->strips * x->width, x->lanes);
    product own = *p;
    side *strip = p->tall ? &own.a : &own.b;
    strip->packed += lane * p->strip_bytes;
    strip->lanes = end - first;
    own.c += first * (p->tall ? p->ldc : 1) * p->bytes;
    for (size_t block = 0; block < blocks; block++) {
        pack_block(p, x, block, first, end, packed_at(&own, strip, block, 0));
    }
    for (size_t at = 0; at < p->k; at += STRIP) {
        size_t i0 = p->tall ? 0 : at, j0 = p->tall ? at : 0;
        size_t rows = min_size(STRIP, own.a.lanes - i0), cols = min_size(STRIP, own.b.lanes - j0);
        for (size_t block = 0; block < blocks; block++) {
            multiply(&own, block, i0, rows, j0, cols, false);
        }
    }
}

void mu_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a, const mu_operand *x,
              void *y, size_t row_stride, size_t col_stride)
{
    if (mu_blas_selected()) {
        mu_blas_apply(with, m, n, a, x, y, row_stride, col_stride);
        return;
    }
    const mu_kernel *kernel = with->kernel;
    bool tall = col_stride != 1; /* Y^T = X^T A, A being symmetric */
    mu_lanes fixed = rows_as_lanes(a), strips = cols_as_lanes(x);
    product p = {.kernel = kernel,
                 .bytes = muonium_dtype_size(kernel->type),
                 .k = m,
                 .kc = mu_block_columns(kernel, m),
                 .a = {tall ? strips : fixed, tall ? n : m, kernel->mr, kernel->pack_a, NULL, 0},
                 .b = {tall ? fixed : strips, tall ? m : n, kernel->nr, kernel->pack_b, NULL, 0},
                 .c = y,
                 .ldc = tall ? col_stride : row_stride,
                 .tall = tall};
    side *whole = tall ? &p.b : &p.a, *streamed = tall ? &p.a : &p.b;
    size_t width = streamed->width, all = ceil_div(n, width);
    p.block_count = ceil_div(m, p.kc);
    whole->packed = with->scratch;
    streamed->packed = whole->packed + packed_bytes(&p, m, whole->width, p.block_count);
    p.strip_bytes = packed_bytes(&p, STRIP, width, p.block_count);
    /* As many strips for each thread, none wider than STRIP. */
    unsigned lanes = mu_pool_lanes() < with->lanes ? mu_pool_lanes() : with->lanes;
    p.strips = min_size(lanes * ceil_div(n, (size_t)lanes * STRIP), all);
    while (ceil_div(all, p.strips) * width > STRIP) {
        p.strips++;
    }
    mu_pool_run(pack_fixed_task, &p, ceil_div(m, group_of(kernel)), with->lanes);
    mu_pool_run(strip_task, &p, p.strips, with->lanes);
}

/* ---- sizes ---- */

bool mu_matmul_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned lanes, size_t *bytes)
{
    if (mu_blas_selected()) {
        return mu_blas_scratch(kernel, m, n, bytes);
    }
    /* Far more than any product can need; then nothing below can overflow. */
    size_t rows, wide, limit;
    if (!mu_add(m, MU_BLOCK, &rows) || !mu_add(m > n ? m : n, MU_BLOCK, &wide) ||
        !mu_mul(rows, wide, &limit) || !mu_mul(limit, 8 * (sizeof(double) + lanes), &limit)) {
        return false;
    }
    product p = {.bytes = muonium_dtype_size(kernel->type)};
    size_t longest = 0;
    size_t lengths[2] = {m, n};
    for (int i = 0; i < 2; i++) {
        p.kc = mu_block_columns(kernel, lengths[i]);
        size_t blocks = blocks_at_once(&p, kernel, m, ceil_div(lengths[i], p.kc));
        size_t both =
            packed_bytes(&p, m, kernel->mr, blocks) + packed_bytes(&p, m, kernel->nr, blocks);
        longest = both > longest ? both : longest;
    }
    p.kc = mu_block_columns(kernel, m);
    size_t blocks = ceil_div(m, p.kc);
    size_t wider = kernel->mr > kernel->nr ? kernel->mr : kernel->nr; /* X on either side */
    size_t apply = packed_bytes(&p, m, wider, blocks) + lanes * packed_bytes(&p, STRIP, 1, blocks);
    *bytes = apply > longest ? apply : longest;
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
