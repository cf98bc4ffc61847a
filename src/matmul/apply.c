/*
 * apply.c: Y = A X with a symmetric A (symm in BLAS). A stays unpacked if it can, or else is packed
 * once. Each thread has a share of the columns of X and works in column blocks. It packs a column
 * block in memory of its own before it writes that block of Y, so Y may be X. If Y is stored by
 * columns, Y^T = X^T A is computed instead: X is then the left operand, and a column block of X is
 * a block of rows of X^T.
 */
#include "matmul/blas.h"
#include "matmul/fixed.h"
#include "matmul/product.h"

enum {
    COLUMNS = 2 * MU_BLOCK, /* of a column block of X, at most */
    ROWS = MU_BLOCK,        /* of A that multiply it at a time: they, one slice of k of both and the
                               block of Y fit L2 */
    UNPACKED_X = 128        /* largest m for which X stays unpacked */
};

typedef struct application {
    mu_product p;
    size_t columns;   /* of a column block of X */
    bool tall;        /* Y^T = X^T A: X is the left operand */
    size_t shares;    /* one per thread */
    size_t share;     /* columns of X in a share; the last has fewer */
    size_t own_bytes; /* packed memory of each worker */
    mu_operand x;
    muonium_dtype round; /* MUONIUM_F32: results are not rounded to a half type */
    double beta, alpha;  /* Y = alpha * (beta * X + A X) */
} application;

/* Columns of a column block: no more than an even share of n columns for so many workers, in whole
 * groups, so that many workers do not need memory for columns that they never have. */
static size_t block_columns(const mu_kernel *kernel, size_t n, unsigned workers)
{
    size_t even = mu_ceil_div(n, workers > 0 ? workers : 1);
    return mu_min_size(COLUMNS, mu_round_up(even, mu_group_of(kernel)));
}

/* The block of C for columns [first, end) of X. */
static mu_block place_of(const application *a, size_t first, size_t end)
{
    const mu_product *p = &a->p;
    size_t i = a->tall ? first : 0, j = a->tall ? 0 : first, columns = end - first;
    mu_block place = {
        p->c + (i * p->ldc + j) * p->bytes, p->kernel->type,         (ptrdiff_t)p->ldc, 1,
        a->tall ? columns : p->k,           a->tall ? p->k : columns};
    return place;
}

static void scale_place(const application *a, const mu_block *place, double factor)
{
    const mu_kernel *kernel = a->p.kernel;
    for (size_t i = 0; i < place->rows; i++) {
        kernel->rows->scale((char *)place->data + i * a->p.ldc * a->p.bytes, place->cols, factor);
    }
}

static void begin_with_x(const application *a, const mu_block *place, size_t first)
{
    if (a->x.data != a->p.c) {
        ptrdiff_t skip = (ptrdiff_t)first * a->x.col_stride;
        mu_block from = *place;
        from.data = (char *)(uintptr_t)a->x.data + skip * (ptrdiff_t)muonium_dtype_size(a->x.dtype);
        from.dtype = a->x.dtype;
        from.row_stride = a->tall ? a->x.col_stride : a->x.row_stride;
        from.col_stride = a->tall ? a->x.row_stride : a->x.col_stride;
        a->p.kernel->rows->load(&from, place->data, a->p.ldc);
    }
    scale_place(a, place, a->beta);
}

/* Factor and rounding, row by row. */
static void apply_place_epilogue(const application *a, const mu_block *place)
{
    const mu_rows *ops = a->p.kernel->rows;
    for (size_t i = 0; (a->alpha != 1 || a->round != MUONIUM_F32) && i < place->rows; i++) {
        char *row = (char *)place->data + i * a->p.ldc * a->p.bytes;
        if (a->alpha != 1) {
            ops->scale(row, place->cols, a->alpha);
        }
        if (a->round != MUONIUM_F32) {
            ops->round(row, place->cols, a->round);
        }
    }
}

static void multiply_columns(void *context, size_t index, unsigned worker)
{
    const application *a = context;
    const mu_product *p = &a->p;
    const mu_side *x = a->tall ? &p->a : &p->b;
    size_t share = index % a->shares, slices = mu_ceil_div(p->k, p->slice);
    size_t first = share * a->share + index / a->shares * a->columns;
    size_t end = mu_min_size((share + 1) * a->share, x->lines);
    if (first >= end) {
        return;
    }
    end = mu_min_size(first + a->columns, end);
    mu_product own = mu_pack_own(p, !a->tall, first, end, x->packed + worker * a->own_bytes);
    mu_block place = place_of(a, first, end);
    if (a->beta != 0) {
        begin_with_x(a, &place, first);
    }
    mu_enter_tiles(p->kernel);
    for (size_t at = 0; at < p->k; at += ROWS) {
        size_t columns = end - first, part = mu_min_size(ROWS, p->k - at);
        size_t i0 = a->tall ? first : at, rows = a->tall ? columns : part;
        size_t j0 = a->tall ? at : first, cols = a->tall ? part : columns;
        for (size_t slice = 0; slice < slices; slice++) {
            mu_multiply_block(&own, slice, i0, rows, j0, cols, false);
        }
    }
    mu_leave_tiles(p->kernel);
    apply_place_epilogue(a, &place);
}

/* Both operands unpacked, on this thread, with tiles of whole rows and grains. At m = 32 dividing
 * the work would take a tenth of the time. */
static void multiply_small(const mu_kernel *kernel, size_t rows, size_t cols, size_t k,
                           const mu_pack_source *left, const mu_pack_source *right, char *c,
                           size_t ldc)
{
    size_t bytes = muonium_dtype_size(kernel->type);
    ptrdiff_t down = left->line_stride * (ptrdiff_t)bytes;
    const char *a = left->data, *b = right->data;
    for (size_t i = 0; i < rows; i += kernel->mr) {
        for (size_t j = 0; j < cols; j += kernel->nr) {
            kernel->tile(k, k, a + (ptrdiff_t)i * down, left->line_stride, 1, b + j * bytes,
                         right->k_stride, c + (i * ldc + j) * bytes, (ptrdiff_t)ldc, kernel->mr,
                         mu_min_size(kernel->nr, cols - j), false);
        }
    }
}

void mu_apply(const mu_matmul *with, size_t m, size_t n, const mu_operand *a, const mu_operand *x,
              void *y, size_t row_stride, size_t col_stride)
{
    if (with->digits > 0) {
        mu_fixed_apply(with, m, n, a, x, y, row_stride, col_stride);
        return;
    }
    if (mu_blas_selected()) {
        mu_blas_apply(with, m, n, a, x, y, row_stride, col_stride);
        size_t lines = col_stride == 1 ? m : n, ld = col_stride == 1 ? row_stride : col_stride;
        for (size_t i = 0; with->round != MUONIUM_F32 && i < lines; i++) {
            char *line = (char *)y + i * ld * muonium_dtype_size(with->kernel->type);
            with->kernel->rows->round(line, col_stride == 1 ? n : m, with->round);
        }
        return;
    }
    const mu_kernel *kernel = with->kernel;
    size_t mr = kernel->mr, nr = kernel->nr;
    bool tall = col_stride != 1; /* Y^T = X^T A, A being symmetric */
    mu_operand factor = *a, other = *x;
    double beta = 0, alpha = 1;
    if (with->separate) { /* (s A + d I) t X = s t (d / s X + A X) */
        beta = a->shift / a->scale;
        alpha = a->scale * x->scale;
        factor.scale = other.scale = 1;
        factor.shift = 0;
    }
    mu_pack_source fixed = mu_rows_as_lines(&factor), streamed = mu_columns_as_lines(&other);
    /* A stays unpacked if it can; on the right only if it is small. X too if it is small and Y lies
     * elsewhere. */
    bool unpacked_a = mu_is_unpackable(kernel, &fixed) && (!tall || m <= kernel->unpacked_b);
    if (tall && unpacked_a) {
        fixed = mu_columns_as_lines(
            &factor); /* A is symmetric: its columns are its rows, but adjacent */
    }
    unpacked_a = unpacked_a && (tall ? fixed.line_stride : fixed.k_stride) == 1;
    bool unpacked_x = unpacked_a && m <= UNPACKED_X && x->data != y &&
                      mu_is_unpackable(kernel, &streamed) &&
                      (tall ? streamed.k_stride : streamed.line_stride) == 1;
    fixed.streaming = m > MU_RESIDENT;
    streamed.streaming = n > MU_RESIDENT;
    const mu_pack_source *left = tall ? &streamed : &fixed, *right = tall ? &fixed : &streamed;
    bool unpacked_left = tall ? unpacked_x : unpacked_a,
         unpacked_right = tall ? unpacked_a : unpacked_x;
    size_t rows = tall ? n : m, cols = tall ? m : n, ldc = tall ? col_stride : row_stride;
    if (unpacked_x && with->workers == 1 && rows % mr == 0 && cols % kernel->grain == 0 &&
        m <= kernel->kc && beta == 0 && alpha == 1 && with->round == MUONIUM_F32) {
        multiply_small(kernel, rows, cols, m, left, right, y, ldc);
        return;
    }
    application all = {.p = mu_product_of(kernel, m),
                       .tall = tall,
                       .x = *x,
                       .beta = beta,
                       .alpha = alpha,
                       .round = with->round};
    mu_product *p = &all.p;
    p->a = (mu_side){*left, rows, mr, kernel->pack_a, NULL, unpacked_left ? rows / mr * mr : 0};
    p->b = (mu_side){*right,         cols, nr,
                     kernel->pack_b, NULL, unpacked_right ? mu_unpacked_columns(kernel, cols) : 0};
    p->c = y;
    p->ldc = ldc;
    p->adds = beta != 0;
    mu_side *a_side = tall ? &p->b : &p->a, *x_side = tall ? &p->a : &p->b;
    size_t unit = tall ? mr : kernel->grain;
    p->slice_count = mu_ceil_div(m, p->slice);
    a_side->packed = with->scratch;
    x_side->packed = a_side->packed + mu_packed_bytes(p, m, a_side->width, p->slice_count);
    all.columns = block_columns(kernel, n, with->workers);
    all.own_bytes = mu_packed_bytes(p, all.columns, x_side->width, p->slice_count);
    /* Equal shares of whole micropanels, except for the last. */
    all.shares = mu_min_size(mu_pool_workers(), with->workers);
    all.share = mu_round_up(mu_ceil_div(n, all.shares), unit);
    mu_pack_side(p, a_side, with->workers);
    mu_pool_run(multiply_columns, &all, all.shares * mu_ceil_div(all.share, all.columns),
                with->workers);
}

size_t mu_apply_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned workers)
{
    mu_product p = mu_product_of(kernel, m);
    size_t slices = mu_ceil_div(m, p.slice);
    /* A may be on either side, and is rounded up to whole micropanels of that side. */
    size_t left = mu_packed_bytes(&p, m, kernel->mr, slices);
    size_t right = mu_packed_bytes(&p, m, kernel->nr, slices);
    return (left > right ? left : right) +
           workers * mu_packed_bytes(&p, block_columns(kernel, m > n ? m : n, workers), 1, slices);
}
