/*
 * symmetric.c: gram and symmul: one triangle of the result, in strips of columns from the
 * diagonal down. A strip is one thread's: it packs its columns of the right operand for
 * itself, reads the left one where it lies, and finishes and mirrors every square of the
 * result while that is in cache. So threads share nothing but what they read, and wait for
 * each other only at the end. Where the left operand has to be converted or combined, all
 * threads pack it together before.
 */
#include "matmul/blas.h"
#include "matmul/product.h"

/* Bytes, or one block of k, of a left operand packed for all threads: half as much to four times
 * as much takes the same time to 1 % (docs/performance.md). */
enum { LEFT_AT_ONCE = 1 << 20 };

/* About as many columns, the last ones, are in narrow strips where threads are to be evened out:
 * up to 1.5 % of products of 576 and more on two threads, with AVX2 up to 5
 * (docs/performance.md). */
enum { NARROW_COLUMNS = 2 * MU_BLOCK };

/* ---- strips ---- */

typedef struct triangle {
    mu_product p;
    mu_epilogue finish; /* of the whole */
    bool last;          /* only the sum is wanted */
    size_t square;      /* columns of a strip, and rows of its squares, */
    size_t wide;        /* of so many strips: the last ones, which are to even out the threads, */
    size_t narrow;      /* are so wide */
    size_t strips;      /* how many, of either width */
    size_t most;        /* squares of a strip that are one task */
    size_t strip_bytes; /* private packed memory per lane */
} triangle;

/* The rows and columns of C from (i0, j0) on, and what mirrors them. */
static void finish_square(const mu_kernel *kernel, const mu_epilogue *whole, char *c, size_t ldc,
                          size_t i0, size_t rows, size_t j0, size_t cols, bool last)
{
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(kernel->type), ld = (ptrdiff_t)ldc;
    ptrdiff_t row = (ptrdiff_t)i0, col = (ptrdiff_t)j0;
    if (whole->term_count > 0 || whole->scale != 1 || whole->shift != 0 || whole->sum) {
        mu_epilogue f = *whole;
        for (size_t t = 0; t < f.term_count; t++) {
            ptrdiff_t at = row * f.terms[t].ld + col;
            f.terms[t].data = (const char *)f.terms[t].data + at * bytes;
        }
        f.sum = f.sum ? (char *)f.sum + (row * f.sum_ld + col) * bytes : NULL;
        kernel->rows->epilogue(c + (row * ld + col) * bytes, ld, rows, cols, i0 == j0, &f);
    }
    kernel->rows->mirror(last ? whole->sum : c, ld, i0, i0 + rows, j0, j0 + cols);
}

typedef struct strip {
    size_t first;   /* column, and row */
    size_t side;    /* of its squares */
    size_t squares; /* from the diagonal down */
} strip;

static strip strip_at(const triangle *t, size_t index)
{
    bool wide = index < t->wide;
    size_t first = wide ? index * t->square : t->wide * t->square + (index - t->wide) * t->narrow;
    size_t side = wide ? t->square : t->narrow;
    strip found = {first, side, mu_ceil_div(t->p.b.lanes - first, side)};
    return found;
}

/* Part of a strip. The long strips come first, so that the short ones even out the threads. */
static void strip_task(void *context, size_t index, unsigned worker)
{
    const triangle *t = context;
    const mu_product *p = &t->p;
    strip at = strip_at(t, 0);
    size_t tasks = mu_ceil_div(at.squares, t->most);
    for (size_t i = 1; index >= tasks; i++) {
        index -= tasks;
        at = strip_at(t, i);
        tasks = mu_ceil_div(at.squares, t->most);
    }
    size_t begin = index * at.squares / tasks, end = (index + 1) * at.squares / tasks;
    size_t j0 = at.first, cols = mu_min_size(at.side, p->b.lanes - j0);
    mu_product own = mu_take_strip(p, true, j0, j0 + cols, p->b.packed + worker * t->strip_bytes);
    size_t blocks = p->first_block + p->block_count;
    for (size_t row = begin; row < end; row++) {
        size_t i0 = j0 + row * at.side, rows = mu_min_size(at.side, p->a.lanes - i0);
        for (size_t block = p->first_block; block < blocks; block++) {
            mu_multiply_block(&own, block, i0, rows, j0, cols, row == 0);
        }
        if (blocks * p->kc >= p->k) {
            finish_square(p->kernel, &t->finish, p->c, p->ldc, i0, rows, j0, cols, t->last);
        }
    }
}

/* Small matrices that threads share are cut into smaller squares, which even them out: 32 are 7 %
 * faster than 96 at 128 with AVX-512, 64 1.5 % from 256 to 512; on one thread they are 1 to 5 %
 * slower (docs/performance.md). */
static size_t square_of(const mu_kernel *kernel, size_t m, size_t threads)
{
    enum { TINY = 128, MEDIUM = 64 };
    size_t group = mu_group_of(kernel), medium = MEDIUM > group ? MEDIUM / group * group : group;
    size_t shared = m > MU_SMALL ? MU_BLOCK : m > TINY ? medium : group;
    return mu_min_size(m, threads > 1 ? shared : MU_BLOCK);
}

/* How many of `blocks` blocks of k, at least one, are packed at once if those of `lanes` lanes
 * shall take no more than this. */
static size_t blocks_within(const mu_product *p, size_t lanes, size_t width, size_t bytes,
                            size_t blocks)
{
    size_t one = mu_packed_bytes(p, lanes, width, 1), fit = one > 0 ? bytes / one : blocks;
    return mu_min_size(blocks, fit > 0 ? fit : 1);
}

/* Enough for a left operand that is packed whole, and so for the last lanes of a plain one. */
size_t mu_triangle_scratch(const mu_kernel *kernel, size_t m, size_t k, unsigned workers)
{
    mu_product p = mu_product_of(kernel, k);
    size_t mr = kernel->mr, nr = kernel->nr, blocks = mu_ceil_div(k, p.kc), most = 0;
    size_t left = blocks_within(&p, m, mr, LEFT_AT_ONCE, blocks);
    for (size_t threads = 1; threads <= 2; threads++) { /* there may be fewer than expected */
        size_t square = square_of(kernel, m, threads);
        size_t right = blocks_within(&p, square, nr, kernel->b_pass_bytes, blocks);
        size_t bytes = mu_packed_bytes(&p, square, nr, right);
        most = bytes > most ? bytes : most;
    }
    return mu_packed_bytes(&p, m, mr, left) + workers * most;
}

/* Plain operands are read where they lie, but for last lanes that tiles would read beyond. */
static void multiply(const mu_matmul *with, size_t m, size_t k, const mu_lanes *a,
                     const mu_lanes *b, void *c, size_t ldc, const mu_epilogue *finish, bool last)
{
    const mu_kernel *kernel = with->kernel;
    size_t mr = kernel->mr, nr = kernel->nr,
           workers = mu_min_size(mu_pool_workers(), with->workers);
    bool a_plain = mu_is_plain(kernel, a) && a->step_stride == 1;
    bool b_plain = m <= kernel->unpacked_b && mu_is_plain(kernel, b) && b->lane_stride == 1;
    triangle t = {.p = mu_product_of(kernel, k),
                  .finish = *finish,
                  .last = last,
                  .square = square_of(kernel, m, workers),
                  .narrow = square_of(kernel, m, workers)};
    mu_product *p = &t.p;
    p->a = (mu_side){*a, m, mr, kernel->pack_a, with->scratch, a_plain ? m / mr * mr : 0};
    p->b = (mu_side){*b, m, nr, kernel->pack_b, NULL, b_plain ? mu_plain_columns(kernel, m) : 0};
    p->c = c;
    p->ldc = ldc;
    p->a.whole.distant = p->b.whole.distant = m > MU_SMALL;
    size_t blocks = mu_ceil_div(k, p->kc), left = m - p->a.plain;
    size_t at_once = blocks_within(p, left, mr, LEFT_AT_ONCE, blocks);
    at_once = blocks_within(p, t.square, nr, kernel->b_pass_bytes, at_once);
    p->b.packed = p->a.packed + mu_packed_bytes(p, left, mr, at_once);
    t.strip_bytes = mu_packed_bytes(p, t.square, nr, at_once);
    size_t squares = 0, tasks = 0;
    if (m > MU_SMALL && workers > 1) {
        t.wide = (m - NARROW_COLUMNS) / t.square;
        t.narrow = mu_group_of(kernel);
    }
    t.strips = t.wide + mu_ceil_div(m - t.wide * t.square, t.narrow);
    for (size_t i = 0; i < t.strips; i++) {
        squares += strip_at(&t, i).squares;
    }
    /* Parts of a strip pack the same columns again: no more of them than keep threads busy. */
    t.most = p->b.plain < m ? mu_ceil_div(squares, 2 * workers) : 1;
    for (size_t i = 0; i < t.strips; i++) {
        tasks += mu_ceil_div(strip_at(&t, i).squares, t.most);
    }
    for (; p->first_block < blocks; p->first_block += p->block_count) {
        p->block_count = mu_min_size(blocks - p->first_block, at_once);
        mu_pack_side(p, &p->a, with->workers);
        mu_pool_run(strip_task, &t, tasks, with->workers);
    }
}

/* ---- gram and symmul ---- */

void mu_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c, size_t ldc)
{
    if (mu_blas_selected()) {
        mu_blas_gram(with, m, n, x, c, ldc);
        return;
    }
    mu_lanes rows = mu_rows_as_lanes(x);
    mu_epilogue f = {.scale = 1};
    if (with->separate) {
        f.scale = x->scale * x->scale;
        rows.scale = 1;
    }
    multiply(with, m, n, &rows, &rows, c, ldc, &f, false);
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

static void add_term(mu_epilogue *f, const void *data, ptrdiff_t ld, double factor)
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
                         mu_epilogue *f)
{
    f->scale = a->scale * b->scale;
    f->shift = a->shift * b->shift;
    add_term(f, a->data, a->row_stride, a->scale * b->shift);
    add_term(f, b->data, b->row_stride, a->shift * b->scale);
    *left = mu_rows_as_lanes(a);
    *right = mu_cols_as_lanes(b); /* which are its rows, B being symmetric, but adjacent */
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
    mu_epilogue f = {.scale = 1,
                     .sum = finish->sum,
                     .sum_ld = (ptrdiff_t)ldc,
                     .sum_factor = finish->sum_factor,
                     .accumulate = finish->accumulate};
    /* B is symmetric: its rows serve as columns, and are packed in longer stretches. */
    mu_lanes left = mu_rows_as_lanes(a), right = mu_rows_as_lanes(b);
    bool shifted = a->shift != 0 || b->shift != 0;
    bool small = m <= kernel->unpacked_b && is_single(kernel, a) && is_single(kernel, b);
    bool allowed = with->separate || (small && (finish->may_multiply_out || !shifted));
    if (!mu_blas_selected() && allowed) {
        multiply_out(a, b, &left, &right, &f);
    } else {
        choose_left(kernel, &left, &right);
    }
    if (finish->plus) {
        add_term(&f, finish->plus, (ptrdiff_t)ldc, finish->plus_factor);
    }
    f.shift += finish->plus_identity;
    if (mu_blas_selected()) {
        mu_blas_symmul(with, m, a, b, c, ldc);
        finish_square(kernel, &f, c, ldc, 0, m, 0, m, finish->last);
        return;
    }
    multiply(with, m, m, &left, &right, c, ldc, &f, finish->last);
}
