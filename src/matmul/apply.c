/*
 * apply.c: a symmetric matrix times any other, X. The symmetric one is read where it lies, or
 * else packed once; each thread is given a share of X, of columns, or where the result lies
 * column by column of what are then rows, and works it off in strips. A strip is packed
 * privately, whole, before its place is written, so X may be its own result.
 */
#include "matmul/blas.h"
#include "matmul/product.h"

enum {
    STRIP = 2 * MU_BLOCK, /* most lanes of X that a thread is given at a time, */
    PART = MU_BLOCK,      /* and of A that it multiplies them with at a time: two blocks of k of
                             both and what comes of them are 660 KB of its own cache */
    PLAIN = 128           /* up to this m plain operands may be read where they lie */
};

typedef struct application {
    mu_product p;
    bool tall;          /* X is the left operand, its strips are of rows */
    size_t shares;      /* as many as threads, */
    size_t share;       /* each of so many lanes of X, the last of fewer: it is cut into strips */
    size_t strip_bytes; /* private packed memory per lane */
    mu_operand x;
    double before; /* C begins as so many times X, */
    double after;  /* and ends as so many times what it has become */
} application;

/* The place of a strip in C, whose rows are those of X, or if that is on the left its columns. */
static mu_block place_of(const application *a, size_t first, size_t end)
{
    const mu_product *p = &a->p;
    size_t i = a->tall ? first : 0, j = a->tall ? 0 : first, strip = end - first;
    mu_block place = {p->c + (i * p->ldc + j) * p->bytes,
                      p->kernel->type,
                      (ptrdiff_t)p->ldc,
                      1,
                      a->tall ? strip : p->k,
                      a->tall ? p->k : strip};
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
    scale_place(a, place, a->before);
}

static void strip_task(void *context, size_t index, unsigned worker)
{
    const application *a = context;
    const mu_product *p = &a->p;
    const mu_side *x = a->tall ? &p->a : &p->b;
    size_t share = index % a->shares, blocks = mu_ceil_div(p->k, p->kc);
    size_t first = share * a->share + index / a->shares * STRIP;
    size_t end = mu_min_size((share + 1) * a->share, x->lanes);
    if (first >= end) {
        return;
    }
    end = mu_min_size(first + STRIP, end);
    mu_product own = mu_take_strip(p, !a->tall, first, end, x->packed + worker * a->strip_bytes);
    mu_block place = place_of(a, first, end);
    if (a->before != 0) {
        begin_with_x(a, &place, first);
    }
    for (size_t at = 0; at < p->k; at += PART) {
        size_t strip = end - first, part = mu_min_size(PART, p->k - at);
        size_t i0 = a->tall ? first : at, rows = a->tall ? strip : part;
        size_t j0 = a->tall ? at : first, cols = a->tall ? part : strip;
        for (size_t block = 0; block < blocks; block++) {
            mu_multiply_block(&own, block, i0, rows, j0, cols, false);
        }
    }
    if (a->after != 1) {
        scale_place(a, &place, a->after);
    }
}

/* Both operands where they lie, all tiles whole but for grains, on this thread: nothing to cut. At
 * 32 the cutting would take a tenth of the time. */
static void multiply_small(const mu_kernel *kernel, size_t rows, size_t cols, size_t k,
                           const mu_lanes *left, const mu_lanes *right, char *c, size_t ldc)
{
    size_t bytes = muonium_dtype_size(kernel->type);
    ptrdiff_t down = left->lane_stride * (ptrdiff_t)bytes;
    const char *a = left->data, *b = right->data;
    for (size_t i = 0; i < rows; i += kernel->mr) {
        for (size_t j = 0; j < cols; j += kernel->nr) {
            kernel->tile(k, k, a + (ptrdiff_t)i * down, left->lane_stride, 1, b + j * bytes,
                         right->step_stride, c + (i * ldc + j) * bytes, (ptrdiff_t)ldc, kernel->mr,
                         mu_min_size(kernel->nr, cols - j), false);
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
    size_t mr = kernel->mr, nr = kernel->nr;
    bool tall = col_stride != 1; /* Y^T = X^T A, A being symmetric */
    mu_operand factor = *a, other = *x;
    double before = 0, after = 1;
    if (with->separate) { /* (s A + d I) t X = s t (d / s X + A X) */
        before = a->shift / a->scale;
        after = a->scale * x->scale;
        factor.scale = other.scale = 1;
        factor.shift = 0;
    }
    mu_lanes fixed = mu_rows_as_lanes(&factor), streamed = mu_cols_as_lanes(&other);
    /* A is read where it lies if it is plain and, on the right, small; X too if it is, small, and
     * results go elsewhere. */
    bool plain_a = mu_is_plain(kernel, &fixed) && (!tall || m <= kernel->unpacked_b);
    if (tall && plain_a) {
        fixed = mu_cols_as_lanes(&factor); /* the same, but adjacent */
    }
    plain_a = plain_a && (tall ? fixed.lane_stride : fixed.step_stride) == 1;
    bool plain_x = plain_a && m <= PLAIN && x->data != y && mu_is_plain(kernel, &streamed) &&
                   (tall ? streamed.step_stride : streamed.lane_stride) == 1;
    fixed.distant = m > MU_SMALL;
    streamed.distant = n > MU_SMALL;
    const mu_lanes *left = tall ? &streamed : &fixed, *right = tall ? &fixed : &streamed;
    bool plain_left = tall ? plain_x : plain_a, plain_right = tall ? plain_a : plain_x;
    size_t rows = tall ? n : m, cols = tall ? m : n, ldc = tall ? col_stride : row_stride;
    if (plain_x && with->workers == 1 && rows % mr == 0 && cols % kernel->grain == 0 &&
        m <= kernel->kc && before == 0 && after == 1) {
        multiply_small(kernel, rows, cols, m, left, right, y, ldc);
        return;
    }
    application all = {
        .p = mu_product_of(kernel, m), .tall = tall, .x = *x, .before = before, .after = after};
    mu_product *p = &all.p;
    p->a = (mu_side){*left, rows, mr, kernel->pack_a, NULL, plain_left ? rows / mr * mr : 0};
    p->b = (mu_side){*right,         cols, nr,
                     kernel->pack_b, NULL, plain_right ? mu_plain_columns(kernel, cols) : 0};
    p->c = y;
    p->ldc = ldc;
    p->adds = before != 0;
    mu_side *whole = tall ? &p->b : &p->a, *strips = tall ? &p->a : &p->b;
    size_t unit = tall ? mr : kernel->grain;
    p->block_count = mu_ceil_div(m, p->kc);
    whole->packed = with->scratch;
    strips->packed = whole->packed + mu_packed_bytes(p, m, whole->width, p->block_count);
    all.strip_bytes = mu_packed_bytes(p, STRIP, strips->width, p->block_count);
    /* As much for each thread, and whole panels but for the last of its share. */
    all.shares = mu_min_size(mu_pool_workers(), with->workers);
    all.share = mu_round_up(mu_ceil_div(n, all.shares), unit);
    mu_pack_side(p, whole, with->workers);
    mu_pool_run(strip_task, &all, all.shares * mu_ceil_div(all.share, STRIP), with->workers);
}

size_t mu_apply_scratch(const mu_kernel *kernel, size_t m, unsigned workers)
{
    mu_product p = mu_product_of(kernel, m);
    size_t blocks = mu_ceil_div(m, p.kc);
    /* A on either side: whole panels of one may be more lanes than those of the other. */
    size_t left = mu_packed_bytes(&p, m, kernel->mr, blocks);
    size_t right = mu_packed_bytes(&p, m, kernel->nr, blocks);
    return (left > right ? left : right) + workers * mu_packed_bytes(&p, STRIP, 1, blocks);
}
