/*
 * product.c: gram, symmul and apply: blocking, packing and the division of work.
 *
 * The sum over k runs in blocks of one length, fixed by k and the kernel alone.
 * gram and symmul pack both operands for a few blocks at a time, then compute
 * squares on and below the diagonal, each by one thread, which mirrors it while
 * it is in cache. apply packs its symmetric operand once and gives each thread strips
 * of X: of columns, or where the result lies column by column of what are then rows. A
 * strip is packed privately, whole, before its place is written, so X may be its own
 * result.
 */
#include "matmul/matmul.h"

#include "matmul/blas.h"

enum {
    PACKED_AT_ONCE = 1 << 20, /* bytes, or one block of k, packed before gram and symmul multiply:
                                 more drives the operands out of a shared cache */
    SMALL = 512,              /* up to this m squares are small, which evens out the threads, a
                                 plain left operand is not packed, and none is far away */
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
    char *packed; /* [block of k][panel][step][lane] */
} side;

typedef struct product {
    const mu_kernel *kernel;
    size_t bytes;       /* of an element */
    size_t k;           /* length of the sums */
    size_t kc;          /* length of a block of them; the last may be shorter */
    size_t first_block; /* what is packed now */
    size_t block_count;
    side a, b;
    size_t plain_rows; /* of A, whole panels of them, are not packed but read where they lie */
    char *c;
    size_t ldc;
    const mu_sum *sum;  /* symmul: NULL, or where C is added up */
    size_t square;      /* gram, symmul: rows of the squares */
    size_t squares;     /* how many in a column */
    bool tall;          /* apply: X is the left operand, its strips are of rows */
    size_t strips;      /* apply */
    size_t strip_bytes; /* apply: private packed memory per lane */
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

/* Where the panel that starts at `lane` lies, in a packed side that starts at
 * block `first_block` and panel `first_lane`. */
static char *panel_of(const product *p, const side *s, char *packed, size_t panels, size_t block,
                      size_t lane)
{
    size_t index = (block - p->first_block) * panels + lane / s->width;
    return packed + index * p->kc * s->width * p->bytes;
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
    size_t panels = ceil_div(s->lanes, s->width), group = group_of(p->kernel);
    size_t end = min_size((index + 1) * group, s->lanes);
    size_t at_once = s->whole.lane_stride == 1 ? group : s->width, lane = index * group;
    if (s == &p->a && lane < p->plain_rows) {
        lane = p->plain_rows;
    }
    for (; lane < end; lane += at_once) {
        for (size_t i = 0; i < p->block_count; i++) {
            size_t block = p->first_block + i;
            pack_block(p, s, block, lane, min_size(lane + at_once, end),
                       panel_of(p, s, s->packed, panels, block, lane));
        }
    }
}

/* Whether an operand can be the left one where it lies: nothing to convert or to combine, and
 * steps adjacent. */
static bool is_plain(const mu_kernel *kernel, const mu_lanes *o)
{
    return o->dtype == kernel->type && o->step_stride == 1 && o->scale == 1 && !o->other &&
           o->shift == 0;
}

/* mr rows of A, one block of k, for a tile. */
typedef struct left_rows {
    const char *data;
    ptrdiff_t row, step; /* strides */
    ptrdiff_t next;      /* bytes to the next mr rows */
} left_rows;

static left_rows left_at(const product *p, size_t block, size_t i)
{
    size_t width = p->a.width;
    if (i < p->plain_rows) {
        ptrdiff_t row = p->a.whole.lane_stride, bytes = (ptrdiff_t)p->bytes;
        ptrdiff_t at = (ptrdiff_t)i * row + (ptrdiff_t)(block * p->kc);
        left_rows plain = {(const char *)p->a.whole.data + at * bytes, row, 1,
                           (ptrdiff_t)width * row * bytes};
        return plain;
    }
    size_t panels = ceil_div(p->a.lanes, width);
    left_rows packed = {panel_of(p, &p->a, p->a.packed, panels, block, i), 1, (ptrdiff_t)width,
                        (ptrdiff_t)(p->kc * width * p->bytes)};
    return packed;
}

/* A rows x cols block of C at (i0, j0) from one block of k, where `b_panels` packed
 * panels of B start with column j0. `lower`: only tiles that reach the diagonal
 * or below it, and of these only the columns that do. */
static void multiply(const product *p, size_t block, size_t i0, size_t rows, size_t j0, size_t cols,
                     const char *b, bool lower)
{
    const mu_kernel *kernel = p->kernel;
    size_t steps = steps_of(p, block);
    for (size_t j = j0; j < j0 + cols; j += kernel->nr) {
        size_t above = lower && j > i0 ? (j - i0) / kernel->mr : 0; /* panels to leave out */
        size_t first = i0 + above * kernel->mr;
        left_rows a = left_at(p, block, first);
        for (size_t i = first; i < i0 + rows; i += kernel->mr, a.data += a.next) {
            if (i == p->plain_rows) {
                a = left_at(p, block, i);
            }
            size_t tile_rows = min_size(kernel->mr, i0 + rows - i);
            size_t tile_cols = min_size(kernel->nr, j0 + cols - j);
            if (lower) { /* as many whole vectors as reach the diagonal */
                size_t vector = kernel->nr / 2;
                tile_cols = min_size(tile_cols, i + tile_rows - j <= vector ? vector : kernel->nr);
            }
            kernel->tile(steps, a.data, a.row, a.step, b, p->c + (i * p->ldc + j) * p->bytes,
                         (ptrdiff_t)p->ldc, tile_rows, tile_cols, block > 0);
        }
        b += p->kc * kernel->nr * p->bytes;
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

/* The rows [i0, i1) and columns [j0, j1) of C, on and below the diagonal, into its sum. */
static void add_up(const mu_kernel *kernel, const mu_sum *sum, const void *c, size_t ldc, size_t i0,
                   size_t i1, size_t j0, size_t j1)
{
    size_t bytes = muonium_dtype_size(kernel->type);
    for (size_t i = i0; i < i1; i++) {
        size_t at = (i * ldc + j0) * bytes;
        kernel->row_add((char *)sum->data + at, (const char *)c + at, min_size(j1, i + 1) - j0,
                        sum->factor, sum->accumulate);
    }
    if (sum->mirror) {
        kernel->mirror(sum->data, (ptrdiff_t)ldc, i0, i1, j0, j1);
    }
}

static void square_task(void *context, size_t index, unsigned lane)
{
    const product *p = context;
    (void)lane;
    size_t row, col;
    square_at(index, p->squares, &row, &col);
    size_t i0 = row * p->square, j0 = col * p->square;
    size_t rows = min_size(p->square, p->a.lanes - i0), cols = min_size(p->square, p->b.lanes - j0);
    size_t panels = ceil_div(p->b.lanes, p->b.width);
    size_t end = p->first_block + p->block_count;
    for (size_t block = p->first_block; block < end; block++) {
        multiply(p, block, i0, rows, j0, cols, panel_of(p, &p->b, p->b.packed, panels, block, j0),
                 row == col);
    }
    if (end * p->kc >= p->k) {
        p->kernel->mirror(p->c, (ptrdiff_t)p->ldc, i0, i0 + rows, j0, j0 + cols);
        if (p->sum) {
            add_up(p->kernel, p->sum, p->c, p->ldc, i0, i0 + rows, j0, j0 + cols);
        }
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

static void triangle(const mu_matmul *with, size_t m, size_t k, const mu_lanes *a,
                     const mu_lanes *b, void *c, size_t ldc, const mu_sum *sum)
{
    const mu_kernel *kernel = with->kernel;
    product p = {.kernel = kernel,
                 .bytes = muonium_dtype_size(kernel->type),
                 .k = k,
                 .kc = mu_block_columns(kernel, k),
                 .a = {*a, m, kernel->mr, kernel->pack_a, with->scratch},
                 .b = {*b, m, kernel->nr, kernel->pack_b, NULL},
                 .c = c,
                 .ldc = ldc,
                 .sum = sum,
                 .square = m > SMALL ? MU_BLOCK : group_of(kernel)};
    size_t blocks = ceil_div(k, p.kc), at_once = blocks_at_once(&p, kernel, m, blocks);
    p.squares = ceil_div(m, p.square);
    if (m <= SMALL && is_plain(kernel, a)) {
        p.plain_rows = m / kernel->mr * kernel->mr;
    }
    p.b.packed = p.a.packed + packed_bytes(&p, m, kernel->mr, at_once);
    for (; p.first_block < blocks; p.first_block += p.block_count) {
        p.block_count = min_size(blocks - p.first_block, at_once);
        mu_pool_run(pack_task, &p, ceil_div(m, group_of(kernel)), with->lanes);
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
    triangle(with, m, n, &rows, &rows, c, ldc, NULL);
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

void mu_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b, void *c,
               size_t ldc)
{
    mu_symmul_sum(with, m, a, b, c, ldc, NULL);
}

void mu_symmul_sum(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                   void *c, size_t ldc, const mu_sum *sum)
{
    if (mu_blas_selected()) {
        mu_blas_symmul(with, m, a, b, c, ldc);
        if (sum) {
            add_up(with->kernel, sum, c, ldc, 0, m, 0, m);
        }
        return;
    }
    /* B is symmetric: its rows serve as columns, and are read in longer stretches. */
    mu_lanes left = rows_as_lanes(a), right = rows_as_lanes(b);
    if (is_multiple(with->kernel, &left)) {
        hand_over_scale(&left, &right);
    } else if (is_multiple(with->kernel, &right)) {
        hand_over_scale(&right, &left);
    }
    bool swap = is_plain(with->kernel, &right);
    triangle(with, m, m, swap ? &right : &left, swap ? &left : &right, c, ldc, sum);
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
    size_t panels = ceil_div(x->lanes, x->width), blocks = ceil_div(p->k, p->kc);
    size_t first = index * panels / p->strips * x->width;
    size_t end = min_size((index + 1) * panels / p->strips * x->width, x->lanes);
    product own = *p;
    side *strip = p->tall ? &own.a : &own.b;
    strip->packed += lane * p->strip_bytes;
    strip->lanes = end - first;
    own.c += first * (p->tall ? p->ldc : 1) * p->bytes;
    for (size_t block = 0; block < blocks; block++) {
        size_t strip_panels = ceil_div(strip->lanes, x->width);
        pack_block(p, x, block, first, end,
                   panel_of(&own, strip, strip->packed, strip_panels, block, 0));
    }
    size_t b_panels = ceil_div(own.b.lanes, own.b.width);
    for (size_t at = 0; at < p->k; at += STRIP) {
        size_t i0 = p->tall ? 0 : at, j0 = p->tall ? at : 0;
        size_t rows = min_size(STRIP, own.a.lanes - i0), cols = min_size(STRIP, own.b.lanes - j0);
        for (size_t block = 0; block < blocks; block++) {
            multiply(&own, block, i0, rows, j0, cols,
                     panel_of(&own, &own.b, own.b.packed, b_panels, block, j0), false);
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
                 .a = {tall ? strips : fixed, tall ? n : m, kernel->mr, kernel->pack_a, NULL},
                 .b = {tall ? fixed : strips, tall ? m : n, kernel->nr, kernel->pack_b, NULL},
                 .c = y,
                 .ldc = tall ? col_stride : row_stride,
                 .tall = tall};
    side *whole = tall ? &p.b : &p.a, *streamed = tall ? &p.a : &p.b;
    size_t width = streamed->width, panels = ceil_div(n, width);
    p.block_count = ceil_div(m, p.kc);
    whole->packed = with->scratch;
    streamed->packed = whole->packed + packed_bytes(&p, m, whole->width, p.block_count);
    p.strip_bytes = packed_bytes(&p, STRIP, width, p.block_count);
    /* As many strips for each thread, none wider than STRIP. */
    unsigned lanes = mu_pool_lanes() < with->lanes ? mu_pool_lanes() : with->lanes;
    p.strips = min_size(lanes * ceil_div(n, (size_t)lanes * STRIP), panels);
    while (ceil_div(panels, p.strips) * width > STRIP) {
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
