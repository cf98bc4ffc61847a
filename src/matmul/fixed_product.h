/*
 * fixed_product.h: what the parts of the fixed-point products share: fixed.c forms products,
 * fixed_pack.c packs digits, and fixed_tiles.c multiplies blocks.
 *
 * A product has two sides. A side is packed as micropanels of digits, with two numbers per line:
 * the unit by which its elements are multiplied before they are rounded to integers, and the unit
 * of its first digit, by which sums are multiplied. Sums longer than MU_FIXED_K are cut into
 * k-blocks, whose results are added in order.
 */
#ifndef MU_FIXED_PRODUCT_H
#define MU_FIXED_PRODUCT_H

#include "matmul/fixed.h"

enum {
    MU_FIXED_BLOCK = 128 /* rows and columns of a block of C: its digits fit L2 at k = 1024 */
};

/* One side of a product. */
typedef struct mu_digit_side {
    mu_digit_source source;
    const mu_operand *unread; /* not NULL: what the source is to be loaded from, see load_lines */
    bool by_columns;          /* its lines are columns of `unread` */
    size_t lines;             /* in all */
    size_t width;             /* of a micropanel: mr or nr */
    size_t first_k;           /* of the k-blocks that are packed now */
    size_t k;                 /* of all of these */
    char *packed;             /* [k-block][micropanel] */
    float *unit;              /* [k-block][line]: of the first digit */
    int32_t *start;           /* [k-block][micropanel][sum][line]; NULL: not needed */
    mu_pack_digits *pack;
} mu_digit_side;

typedef struct mu_fixed_product {
    const mu_int8_kernel *kernel;
    int digits;
    unsigned workers;
    size_t block; /* side of a block of C */
    const mu_rows *rows;
    float *buffers; /* of MU_LINE_GROUP lines by a k-block for every worker */
    size_t k;       /* length of the sums */
    mu_digit_side a, b;
    mu_fixed_epilogue epilogue; /* of the whole matrix, after the last k-block */
    float *c;
    size_t ldc;
    float *mirrored; /* NULL, or whose upper triangle is filled after tiles: c or the sum */
} mu_fixed_product;

/* Words per line of a k-block, and the bytes of such a micropanel. */
static inline size_t mu_digit_groups(const mu_fixed_product *p, size_t k)
{
    return mu_round_up(mu_ceil_div(k, 4), p->kernel->groups);
}

static inline size_t mu_digit_panel_bytes(const mu_fixed_product *p, const mu_digit_side *s,
                                          size_t k)
{
    return mu_digit_groups(p, k) * 4 * s->width * (size_t)p->digits;
}

static inline size_t mu_padded_lines(const mu_digit_side *s)
{
    return mu_round_up(s->lines, MU_LINE_GROUP);
}

/* The first byte of a micropanel of a k-block: all but the last are of MU_FIXED_K terms. */
static inline char *mu_digit_panel(const mu_fixed_product *p, const mu_digit_side *s,
                                   size_t k_block, size_t panel)
{
    size_t k0 = k_block * MU_FIXED_K, panels = mu_padded_lines(s) / s->width;
    return s->packed + k_block * panels * mu_digit_panel_bytes(p, s, MU_FIXED_K) +
           panel * mu_digit_panel_bytes(p, s, mu_min_size(MU_FIXED_K, s->k - k0));
}

/* Of MU_LINE_GROUP lines by a k-block, for one worker. */
static inline float *mu_line_buffer(const mu_fixed_product *p, unsigned worker)
{
    return p->buffers + worker * MU_LINE_GROUP * mu_min_size(p->k, MU_FIXED_K);
}

/* ---- fixed_pack.c ---- */

/* Bytes that mu_give_side_memory takes for a side, and that: digits, units and starts of as many
 * k-blocks as `k` has. Returns the memory after them. */
size_t mu_side_bytes(const mu_int8_kernel *kernel, int digits, size_t lines, size_t k);
char *mu_give_side_memory(const mu_fixed_product *p, mu_digit_side *s, size_t k, bool is_a,
                          char *memory);

/* Pack a k-block of the lines [first, first + MU_LINE_GROUP), as far as they exist, of a side, and
 * of `twin`, unless that is NULL: the other side, with the same lines. */
void mu_split_lines(const mu_fixed_product *p, const mu_digit_side *s, const mu_digit_side *twin,
                    size_t k_block, size_t first, float *buffer);

/* Pack all k-blocks at hand of one side (`second` is NULL) or of both. Twins share lines. */
void mu_split_sides(const mu_fixed_product *p, const mu_digit_side *first,
                    const mu_digit_side *second, bool twins);

/* ---- fixed_tiles.c ---- */

/* Tiles of rows [i0, i1) and columns [j0, j1) of C; `lower`: only those that reach the diagonal or
 * below it. */
void mu_multiply_fixed_block(const mu_fixed_product *p, size_t i0, size_t i1, size_t j0, size_t j1,
                             bool lower);

#endif
