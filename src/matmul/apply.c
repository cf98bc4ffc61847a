/*
 * apply.c: a symmetric matrix times any other, X. The symmetric one is packed once, and
 * each thread is given strips of X: of columns, or where the result lies column by column
 * of what are then rows. A strip is packed privately, whole, before its place is written,
 * so X may be its own result.
 */
#include "matmul/blas.h"
#include "matmul/product.h"

/* Most of X that a thread is given at a time, and what it multiplies that with at a time. */
enum { STRIP = 2 * MU_BLOCK };

typedef struct application {
    mu_product p;
    bool tall;          /* X is the left operand, its strips are of rows */
    size_t strips;      /* how many */
    size_t strip_bytes; /* private packed memory per lane */
} application;

static void pack_fixed_task(void *context, size_t index, unsigned lane)
{
    const application *a = context;
    (void)lane;
    mu_pack_group(&a->p, a->tall ? &a->p.b : &a->p.a, index);
}

/* One strip, packed, is a product of its own. */
static void strip_task(void *context, size_t index, unsigned lane)
{
    const application *a = context;
    const mu_product *p = &a->p;
    const mu_side *x = a->tall ? &p->a : &p->b;
    size_t panels = mu_ceil_div(x->lanes, x->width), blocks = mu_ceil_div(p->k, p->kc);
    size_t first = index * panels / a->strips * x->width;
    size_t end = mu_min_size((index + 1) * panels / a->strips * x->width, x->lanes);
    mu_product own = *p;
    mu_side *strip = a->tall ? &own.a : &own.b;
    strip->packed += lane * a->strip_bytes;
    strip->lanes = end - first;
    own.c += first * (a->tall ? p->ldc : 1) * p->bytes;
    for (size_t block = 0; block < blocks; block++) {
        mu_pack_block(p, x, block, first, end, mu_packed_at(&own, strip, block, 0));
    }
    for (size_t at = 0; at < p->k; at += STRIP) {
        size_t i0 = a->tall ? 0 : at, j0 = a->tall ? at : 0;
        size_t rows = mu_min_size(STRIP, own.a.lanes - i0);
        size_t cols = mu_min_size(STRIP, own.b.lanes - j0);
        for (size_t block = 0; block < blocks; block++) {
            mu_multiply_block(&own, block, i0, rows, j0, cols, false);
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
    mu_lanes fixed = mu_rows_as_lanes(a), strips = mu_cols_as_lanes(x);
    fixed.distant = m > MU_SMALL;
    strips.distant = n > MU_SMALL;
    application all = {
        .p = {.kernel = kernel,
              .bytes = muonium_dtype_size(kernel->type),
              .k = m,
              .kc = mu_block_columns(kernel, m),
              .a = {tall ? strips : fixed, tall ? n : m, kernel->mr, kernel->pack_a, NULL, 0},
              .b = {tall ? fixed : strips, tall ? m : n, kernel->nr, kernel->pack_b, NULL, 0},
              .c = y,
              .ldc = tall ? col_stride : row_stride},
        .tall = tall};
    mu_product *p = &all.p;
    mu_side *whole = tall ? &p->b : &p->a, *streamed = tall ? &p->a : &p->b;
    size_t width = streamed->width, panels = mu_ceil_div(n, width);
    p->block_count = mu_ceil_div(m, p->kc);
    whole->packed = with->scratch;
    streamed->packed = whole->packed + mu_packed_bytes(p, m, whole->width, p->block_count);
    all.strip_bytes = mu_packed_bytes(p, STRIP, width, p->block_count);
    /* As many strips for each thread, none wider than STRIP. */
    unsigned lanes = mu_pool_lanes() < with->lanes ? mu_pool_lanes() : with->lanes;
    all.strips = mu_min_size(lanes * mu_ceil_div(n, (size_t)lanes * STRIP), panels);
    while (mu_ceil_div(panels, all.strips) * width > STRIP) {
        all.strips++;
    }
    mu_pool_run(pack_fixed_task, &all, mu_ceil_div(m, mu_group_of(kernel)), with->lanes);
    mu_pool_run(strip_task, &all, all.strips, with->lanes);
}

size_t mu_apply_scratch(const mu_kernel *kernel, size_t m, unsigned lanes)
{
    mu_product p = {.bytes = muonium_dtype_size(kernel->type), .kc = mu_block_columns(kernel, m)};
    size_t blocks = mu_ceil_div(m, p.kc);
    size_t wider = kernel->mr > kernel->nr ? kernel->mr : kernel->nr; /* X on either side */
    return mu_packed_bytes(&p, m, wider, blocks) + lanes * mu_packed_bytes(&p, STRIP, 1, blocks);
}
