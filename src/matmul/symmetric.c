/*
 * symmetric.c: gram (syrk in BLAS) and symmul (gemmt in BLIS). One triangle of C is computed, in
 * column blocks from the diagonal down, which consist of square blocks. A task is a column block,
 * or a part of a long one. Its thread packs the columns of B in memory of its own, reads A
 * unpacked, and applies the epilogue to every block of C and mirrors it while it is in cache. So
 * threads share only what they read, and wait for each other once. If A must be converted or
 * combined, all threads pack it together first.
 */
#include "matmul/blas.h"
#include "matmul/fixed.h"
#include "matmul/product.h"

/* Bytes of A packed per pass, at least one slice. 0.5 to 4 MB perform within 1 %
 * (docs/experiments.md). */
enum { A_PASS_BYTES = 1 << 20 };

/* About this many of the last columns are in narrow column blocks, which balance the threads
 * (docs/experiments.md). */
enum { NARROW_COLUMNS = 2 * MU_BLOCK };

/* ---- column blocks ---- */

/* Rounding to a half type: c = round(c), then c = round(own_factor * c + with_factor * with)
 * unless `with` is NULL. */
typedef struct halving {
    muonium_dtype type; /* MUONIUM_F32: no rounding */
    const void *with;
    double own_factor, with_factor;
} halving;

static void round_block(const mu_kernel *kernel, const halving *half, char *c, ptrdiff_t at,
                        ptrdiff_t ld, size_t rows, size_t cols, bool lower)
{
    for (size_t i = 0; i < rows; i++) {
        size_t length = lower && i + 1 < cols ? i + 1 : cols;
        ptrdiff_t skip = (at + (ptrdiff_t)i * ld) * (ptrdiff_t)muonium_dtype_size(kernel->type);
        if (half->with) {
            kernel->rows->combine(c + skip, half->own_factor, (const char *)half->with + skip,
                                  half->with_factor, length, half->type);
        } else {
            kernel->rows->round(c + skip, length, half->type);
        }
    }
}

typedef struct triangle {
    mu_product p;
    mu_epilogue epilogue; /* of the whole matrix */
    halving half;         /* likewise */
    bool last;            /* only the sum is wanted */
    size_t side;          /* of the blocks of a wide column block */
    size_t wide;          /* number of wide column blocks, which come first */
    size_t narrow;        /* side of the blocks of the others */
    size_t column_blocks; /* number of both */
    size_t most;          /* blocks of a column block that are one task */
    size_t own_bytes;     /* packed memory of each worker */
} triangle;

/* Epilogue and mirror image of the block of C at (i0, j0). */
static void apply_block_epilogue(const mu_kernel *kernel, const mu_epilogue *whole,
                                 const halving *half, char *c, size_t ldc, size_t i0, size_t rows,
                                 size_t j0, size_t cols, bool last)
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
    if (half->type != MUONIUM_F32) {
        round_block(kernel, half, c, row * ld + col, ld, rows, cols, i0 == j0);
    }
    kernel->rows->mirror(last ? whole->sum : c, ld, i0, i0 + rows, j0, j0 + cols);
}

typedef struct column_block {
    size_t first;  /* column, and row */
    size_t side;   /* of its blocks */
    size_t blocks; /* from the diagonal down */
} column_block;

static column_block column_block_at(const triangle *t, size_t index)
{
    bool wide = index < t->wide;
    size_t first = wide ? index * t->side : t->wide * t->side + (index - t->wide) * t->narrow;
    size_t side = wide ? t->side : t->narrow;
    column_block found = {first, side, mu_ceil_div(t->p.b.lines - first, side)};
    return found;
}

/* A part of a column block. The long ones come first, so that the short ones balance the
 * threads. */
static void multiply_part(void *context, size_t index, unsigned worker)
{
    const triangle *t = context;
    const mu_product *p = &t->p;
    column_block at = column_block_at(t, 0);
    size_t tasks = mu_ceil_div(at.blocks, t->most);
    for (size_t i = 1; index >= tasks; i++) {
        index -= tasks;
        at = column_block_at(t, i);
        tasks = mu_ceil_div(at.blocks, t->most);
    }
    size_t begin = index * at.blocks / tasks, end = (index + 1) * at.blocks / tasks;
    size_t j0 = at.first, cols = mu_min_size(at.side, p->b.lines - j0);
    mu_product own = mu_pack_own(p, true, j0, j0 + cols, p->b.packed + worker * t->own_bytes);
    size_t slices = p->first_slice + p->slice_count;
    mu_enter_tiles(p->kernel);
    for (size_t row = begin; row < end; row++) {
        size_t i0 = j0 + row * at.side, rows = mu_min_size(at.side, p->a.lines - i0);
        for (size_t slice = p->first_slice; slice < slices; slice++) {
            mu_multiply_block(&own, slice, i0, rows, j0, cols, row == 0);
        }
        if (slices * p->slice >= p->k) {
            apply_block_epilogue(p->kernel, &t->epilogue, &t->half, p->c, p->ldc, i0, rows, j0,
                                 cols, t->last);
        }
    }
    mu_leave_tiles(p->kernel);
}

size_t mu_shared_block(size_t m)
{
    return m > MU_RESIDENT ? MU_BLOCK : 64;
}

/* Small matrices that threads share are divided into smaller blocks, which balances the threads. On
 * one thread large blocks are faster (docs/experiments.md). */
static size_t block_side(const mu_kernel *kernel, size_t m, size_t threads)
{
    enum { TINY = 128 };
    size_t group = mu_group_of(kernel), about = mu_shared_block(m);
    size_t shared = m > MU_RESIDENT             ? about
                    : m > TINY && about > group ? about / group * group
                                                : group;
    return mu_min_size(m, threads > 1 ? shared : MU_BLOCK);
}

/* How many of `slices` slices of k, at least one, fit into `bytes` when so many lines are
 * packed. */
static size_t slices_within(const mu_product *p, size_t lines, size_t width, size_t bytes,
                            size_t slices)
{
    size_t one = mu_packed_bytes(p, lines, width, 1), fit = one > 0 ? bytes / one : slices;
    return mu_min_size(slices, fit > 0 ? fit : 1);
}

/* Enough for an A that is packed whole, and so for the last lines of one that is not. */
size_t mu_triangle_scratch(const mu_kernel *kernel, size_t m, size_t k, unsigned workers)
{
    mu_product p = mu_product_of(kernel, k);
    size_t mr = kernel->mr, nr = kernel->nr, slices = mu_ceil_div(k, p.slice), most = 0;
    size_t left = slices_within(&p, m, mr, A_PASS_BYTES, slices);
    for (size_t threads = 1; threads <= 2; threads++) { /* there may be fewer than expected */
        size_t side = block_side(kernel, m, threads);
        size_t right = slices_within(&p, side, nr, kernel->b_pass_bytes, slices);
        size_t bytes = mu_packed_bytes(&p, side, nr, right);
        most = bytes > most ? bytes : most;
    }
    return mu_packed_bytes(&p, m, mr, left) + workers * most;
}

/* Operands stay unpacked if they can, except for the last lines, which tiles would read beyond. */
static void multiply(const mu_matmul *with, size_t m, size_t k, const mu_pack_source *a,
                     const mu_pack_source *b, void *c, size_t ldc, const mu_epilogue *epilogue,
                     const halving *half, bool last)
{
    const mu_kernel *kernel = with->kernel;
    size_t mr = kernel->mr, nr = kernel->nr,
           workers = mu_min_size(mu_pool_workers(), with->workers);
    bool unpacked_a = mu_is_unpackable(kernel, a) && a->k_stride == 1;
    bool unpacked_b = m <= kernel->unpacked_b && mu_is_unpackable(kernel, b) && b->line_stride == 1;
    triangle t = {.p = mu_product_of(kernel, k),
                  .epilogue = *epilogue,
                  .half = *half,
                  .last = last,
                  .side = block_side(kernel, m, workers),
                  .narrow = block_side(kernel, m, workers)};
    mu_product *p = &t.p;
    p->a = (mu_side){*a, m, mr, kernel->pack_a, with->scratch, unpacked_a ? m / mr * mr : 0};
    p->b =
        (mu_side){*b, m, nr, kernel->pack_b, NULL, unpacked_b ? mu_unpacked_columns(kernel, m) : 0};
    p->c = c;
    p->ldc = ldc;
    p->a.source.streaming = p->b.source.streaming = m > MU_RESIDENT;
    size_t slices = mu_ceil_div(k, p->slice), left = m - p->a.unpacked;
    size_t at_once = slices_within(p, left, mr, A_PASS_BYTES, slices);
    at_once = slices_within(p, t.side, nr, kernel->b_pass_bytes, at_once);
    p->b.packed = p->a.packed + mu_packed_bytes(p, left, mr, at_once);
    t.own_bytes = mu_packed_bytes(p, t.side, nr, at_once);
    size_t blocks = 0, tasks = 0;
    if (m > MU_RESIDENT && workers > 1) {
        t.wide = (m - NARROW_COLUMNS) / t.side;
        t.narrow = mu_group_of(kernel);
    }
    t.column_blocks = t.wide + mu_ceil_div(m - t.wide * t.side, t.narrow);
    for (size_t i = 0; i < t.column_blocks; i++) {
        blocks += column_block_at(&t, i).blocks;
    }
    /* Parts of a column block pack the same columns again: only as many as keep the threads
     * busy. */
    t.most = p->b.unpacked < m ? mu_ceil_div(blocks, 2 * workers) : 1;
    for (size_t i = 0; i < t.column_blocks; i++) {
        tasks += mu_ceil_div(column_block_at(&t, i).blocks, t.most);
    }
    for (; p->first_slice < slices; p->first_slice += p->slice_count) {
        p->slice_count = mu_min_size(slices - p->first_slice, at_once);
        mu_pack_side(p, &p->a, with->workers);
        mu_pool_run(multiply_part, &t, tasks, with->workers);
    }
}

/* ---- gram and symmul ---- */

void mu_gram(const mu_matmul *with, size_t m, size_t n, const mu_operand *x, void *c, size_t ldc)
{
    if (with->digits > 0) {
        mu_fixed_gram(with, m, n, x, c, ldc);
        return;
    }
    halving half = {.type = with->round};
    if (mu_blas_selected()) {
        mu_blas_gram(with, m, n, x, c, ldc);
        if (half.type != MUONIUM_F32) {
            round_block(with->kernel, &half, c, 0, (ptrdiff_t)ldc, m, m, false);
        }
        return;
    }
    mu_pack_source rows = mu_rows_as_lines(x);
    mu_epilogue f = {.scale = 1};
    if (with->separate) {
        f.scale = x->scale * x->scale;
        rows.scale = 1;
    }
    multiply(with, m, n, &rows, &rows, c, ldc, &f, &half, false);
}

/* A number times a matrix of the kernel's type. Without the number it needs no packing. */
static bool is_multiple(const mu_kernel *kernel, const mu_pack_source *o)
{
    return o->dtype == kernel->type && !o->other && o->shift == 0;
}

static void hand_over_scale(mu_pack_source *from, mu_pack_source *to)
{
    to->scale *= from->scale;
    to->other_scale *= from->scale;
    to->shift *= from->scale;
    from->scale = 1;
}

/* Make the left operand one that needs no packing, if there is one: they commute. */
static void choose_left(const mu_kernel *kernel, mu_pack_source *left, mu_pack_source *right)
{
    if (is_multiple(kernel, left)) {
        hand_over_scale(left, right);
    } else if (is_multiple(kernel, right)) {
        mu_pack_source single = *right;
        *right = *left;
        *left = single;
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

/* A number times a matrix that needs no packing, plus a shift. */
static bool is_single(const mu_kernel *kernel, const mu_operand *o)
{
    return o->dtype == kernel->type && !o->other && o->col_stride == 1;
}

/* (s A + d I) (t B + e I) = s t A B + s e A + d t B + d e I: the product of the matrices
 * themselves, neither of which must be packed; the epilogue does the rest. */
static void multiply_out(const mu_operand *a, const mu_operand *b, mu_pack_source *left,
                         mu_pack_source *right, mu_epilogue *f)
{
    f->scale = a->scale * b->scale;
    f->shift = a->shift * b->shift;
    add_term(f, a->data, a->row_stride, a->scale * b->shift);
    add_term(f, b->data, b->row_stride, a->shift * b->scale);
    *left = mu_rows_as_lines(a);
    *right = mu_columns_as_lines(b); /* B is symmetric: its columns are its rows, but adjacent */
    left->scale = right->scale = 1;
    left->shift = right->shift = 0;
}

void mu_symmul(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b, void *c,
               size_t ldc)
{
    mu_symmul_epilogue none = {0};
    mu_symmul_fused(with, m, a, b, c, ldc, &none);
}

void mu_symmul_fused(const mu_matmul *with, size_t m, const mu_operand *a, const mu_operand *b,
                     void *c, size_t ldc, const mu_symmul_epilogue *epilogue)
{
    if (with->digits > 0) {
        mu_fixed_symmul(with, m, a, b, c, ldc, epilogue);
        return;
    }
    const mu_kernel *kernel = with->kernel;
    mu_epilogue f = {.scale = 1,
                     .sum = epilogue->sum,
                     .sum_ld = (ptrdiff_t)ldc,
                     .sum_factor = epilogue->sum_factor,
                     .accumulate = epilogue->accumulate};
    halving half = {epilogue->sum ? MUONIUM_F32 : with->round, epilogue->with, epilogue->own_factor,
                    epilogue->with_factor};
    /* B is symmetric: its rows serve as columns, and are contiguous in memory. */
    mu_pack_source left = mu_rows_as_lines(a), right = mu_rows_as_lines(b);
    bool shifted = a->shift != 0 || b->shift != 0;
    bool small = m <= kernel->unpacked_b && is_single(kernel, a) && is_single(kernel, b);
    bool allowed = with->separate || (small && (epilogue->may_multiply_out || !shifted));
    if (!mu_blas_selected() && allowed) {
        multiply_out(a, b, &left, &right, &f);
    } else {
        choose_left(kernel, &left, &right);
    }
    if (epilogue->plus) {
        add_term(&f, epilogue->plus, (ptrdiff_t)ldc, epilogue->plus_factor);
    }
    f.shift += epilogue->plus_identity;
    if (mu_blas_selected()) {
        mu_blas_symmul(with, m, a, b, c, ldc);
        apply_block_epilogue(kernel, &f, &half, c, ldc, 0, m, 0, m, epilogue->last);
        return;
    }
    multiply(with, m, m, &left, &right, c, ldc, &f, &half, epilogue->last);
}
