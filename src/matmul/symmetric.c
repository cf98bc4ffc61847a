/*
 * symmetric.c: gram and symmul: one triangle of the result. Operands are packed for a few
 * blocks of k at a time, or read where they lie if they are small; then squares on and
 * below the diagonal are computed, each by one thread, which finishes and mirrors it while
 * it is in cache.
 */
#include "matmul/blas.h"
#include "matmul/product.h"

enum {
    PACKED_AT_ONCE = 1 << 20, /* bytes, or one block of k, packed before squares are computed:
                                 more drives the operands out of a shared cache */
    PLAIN_LEFT = MU_SMALL,    /* up to this m a plain left operand is not packed, */
    PLAIN_RIGHT = 256         /* and up to this a plain right one */
};

/* ---- squares ---- */

typedef struct triangle {
    mu_product p;
    mu_epilogue finish; /* of the whole */
    bool last;          /* only the sum is wanted */
    size_t square;      /* rows of the squares */
    size_t squares;     /* how many in a column */
} triangle;

/* Both sides in turn, as they may be the same matrix, which is then in cache. */
static void pack_task(void *context, size_t index, unsigned lane)
{
    const triangle *t = context;
    (void)lane;
    mu_pack_group(&t->p, &t->p.a, index);
    mu_pack_group(&t->p, &t->p.b, index);
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
        kernel->finish(c + (row * ld + col) * bytes, ld, rows, cols, i0 == j0, &f);
    }
    kernel->mirror(last ? whole->sum : c, ld, i0, i0 + rows, j0, j0 + cols);
}

static void square_task(void *context, size_t index, unsigned lane)
{
    const triangle *t = context;
    const mu_product *p = &t->p;
    (void)lane;
    size_t row, col;
    square_at(index, t->squares, &row, &col);
    size_t i0 = row * t->square, j0 = col * t->square;
    size_t rows = mu_min_size(t->square, p->a.lanes - i0),
           cols = mu_min_size(t->square, p->b.lanes - j0);
    size_t end = p->first_block + p->block_count;
    for (size_t block = p->first_block; block < end; block++) {
        mu_multiply_block(p, block, i0, rows, j0, cols, row == col);
    }
    if (end * p->kc >= p->k) {
        finish_square(p->kernel, &t->finish, p->c, p->ldc, i0, rows, j0, cols, t->last);
    }
}

static size_t both_packed(const mu_product *p, size_t m, size_t blocks)
{
    return mu_packed_bytes(p, m, p->kernel->mr, blocks) +
           mu_packed_bytes(p, m, p->kernel->nr, blocks);
}

/* How many of `blocks` blocks of k are packed at once. */
static size_t blocks_at_once(const mu_product *p, size_t m, size_t blocks)
{
    size_t one = both_packed(p, m, 1), fit = one > 0 ? PACKED_AT_ONCE / one : 0;
    return mu_min_size(blocks, fit > 0 ? fit : 1);
}

size_t mu_triangle_scratch(const mu_kernel *kernel, size_t m, size_t k)
{
    mu_product p = {.kernel = kernel,
                    .bytes = muonium_dtype_size(kernel->type),
                    .kc = mu_block_columns(kernel, k)};
    return both_packed(&p, m, blocks_at_once(&p, m, mu_ceil_div(k, p.kc)));
}

/* Nothing to convert or to combine. */
static bool is_plain(const mu_kernel *kernel, const mu_lanes *o)
{
    return o->dtype == kernel->type && o->scale == 1 && !o->other && o->shift == 0;
}

/* A plain left operand is read where it lies if its steps are adjacent, a right one if its
 * lanes are. */
static void multiply(const mu_matmul *with, size_t m, size_t k, const mu_lanes *a,
                     const mu_lanes *b, void *c, size_t ldc, const mu_epilogue *finish, bool last)
{
    const mu_kernel *kernel = with->kernel;
    bool a_plain = m <= PLAIN_LEFT && is_plain(kernel, a) && a->step_stride == 1;
    bool b_plain = m <= PLAIN_RIGHT && is_plain(kernel, b) && b->lane_stride == 1;
    triangle t = {.p = {.kernel = kernel,
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
                        .ldc = ldc},
                  .finish = *finish,
                  .last = last,
                  .square = m > MU_SMALL ? MU_BLOCK : mu_group_of(kernel)};
    mu_product *p = &t.p;
    size_t blocks = mu_ceil_div(k, p->kc), at_once = blocks_at_once(p, m, blocks);
    t.squares = mu_ceil_div(m, t.square);
    p->b.packed = p->a.packed + mu_packed_bytes(p, m - p->a.plain, kernel->mr, at_once);
    for (; p->first_block < blocks; p->first_block += p->block_count) {
        p->block_count = mu_min_size(blocks - p->first_block, at_once);
        if (p->a.plain < m || p->b.plain < m) {
            mu_pool_run(pack_task, &t, mu_ceil_div(m, mu_group_of(kernel)), with->lanes);
        }
        mu_pool_run(square_task, &t, t.squares * (t.squares + 1) / 2, with->lanes);
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
    mu_epilogue nothing = {.scale = 1};
    multiply(with, m, n, &rows, &rows, c, ldc, &nothing, false);
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
    bool by_blas = mu_blas_selected(), shifted = a->shift != 0 || b->shift != 0;
    bool small = m <= PLAIN_RIGHT && is_single(kernel, a) && is_single(kernel, b);
    if (!by_blas && small && (finish->may_multiply_out || !shifted)) {
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
    multiply(with, m, m, &left, &right, c, ldc, &f, finish->last);
}
