/*
 * product.h: what gram, symmul (symmetric.c) and apply (apply.c) are made of: operands on
 * their way through packing, and blocks of tiles. The sum over k runs in blocks of one
 * length, fixed by k and the kernel alone.
 */
#ifndef MU_PRODUCT_H
#define MU_PRODUCT_H

#include "matmul/matmul.h"

/* Up to this m operands are not far away, and squares are small. */
enum { MU_SMALL = 512 };

/* One operand. */
typedef struct mu_side {
    mu_lanes whole; /* from lane 0 and step 0 */
    size_t lanes;   /* in all */
    size_t width;   /* of a panel: mr or nr */
    void (*pack)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                 size_t panel_stride);
    char *packed; /* [block of k][panel][step][lane], from lane `plain` on */
    size_t plain; /* the lanes before, whole panels or all, are read where they lie, if at all */
} mu_side;

typedef struct mu_product {
    const mu_kernel *kernel;
    size_t bytes;        /* of an element, */
    size_t packed_bytes; /* and of a packed one */
    size_t k;            /* length of the sums */
    size_t sum;          /* how many terms are added onto zero at a time; at the end fewer */
    size_t kc;           /* a block: twice that, at the end less */
    size_t first_block;  /* what is packed now */
    size_t block_count;
    mu_side a, b;
    char *c;
    size_t ldc;
    bool adds; /* to what c has already */
} mu_product;

static inline size_t mu_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t mu_ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* A product of sums of this length, in blocks of whole pairs of steps, without operands yet. */
mu_product mu_product_of(const mu_kernel *kernel, size_t k);

/* Nothing to convert or to combine: tiles may read it where it lies, a left operand if its
 * steps are adjacent, a right one if its lanes are. */
static inline bool mu_is_plain(const mu_kernel *kernel, const mu_lanes *o)
{
    bool as_it_is = o->dtype == kernel->type && kernel->operands == kernel->type;
    return as_it_is && o->scale == 1 && !o->other && o->shift == 0;
}

/* Of so many plain columns, those that tiles can read without reading beyond. */
static inline size_t mu_plain_columns(const mu_kernel *kernel, size_t columns)
{
    return columns % kernel->grain == 0 ? columns : columns / kernel->nr * kernel->nr;
}

/* The rows of an operand as lanes; its columns as lanes. */
mu_lanes mu_rows_as_lanes(const mu_operand *o);
mu_lanes mu_cols_as_lanes(const mu_operand *o);

/* Lanes packed at a time, and the least that squares are cut into: whole panels of either side. */
size_t mu_group_of(const mu_kernel *kernel);

/* Bytes of `blocks` blocks of a packed side. */
size_t mu_packed_bytes(const mu_product *p, size_t lanes, size_t width, size_t blocks);

/* Pack the lanes of a side that are not plain, of all blocks at hand, on up to so many threads. */
void mu_pack_side(const mu_product *p, const mu_side *s, unsigned threads);

/* The product for lanes [first, end) of its right or left side alone, of which those that are
 * not plain are packed at `packed`, by this thread. */
mu_product mu_take_strip(const mu_product *p, bool right, size_t first, size_t end, char *packed);

/* A rows x cols block of C at (i0, j0) from one block of k. `lower`: only tiles that reach
 * the diagonal or below it, and of these only the columns that do. */
void mu_multiply_block(const mu_product *p, size_t block, size_t i0, size_t rows, size_t j0,
                       size_t cols, bool lower);

/* Bytes of scratch that a symmetric product with sums of length k needs, and apply; the
 * sizes being such that nothing overflows. */
size_t mu_triangle_scratch(const mu_kernel *kernel, size_t m, size_t k, unsigned workers);
size_t mu_apply_scratch(const mu_kernel *kernel, size_t m, unsigned workers);

#endif
