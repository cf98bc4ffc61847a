/*
 * product.h: what gram, symmul (symmetric.c) and apply (apply.c) share: operands, their packing,
 * and blocks of tiles.
 *
 * The sum over k is divided into k-blocks of equal length, which depends on k and the kernel alone.
 * One call of a tile covers a slice: two k-blocks. So the A-panel stays in L1 while B passes by,
 * and C is written and read half as often. The bits are the same.
 */
#ifndef MU_PRODUCT_H
#define MU_PRODUCT_H

#include "matmul/matmul.h"

/* Up to this m operands stay resident in cache, and blocks of C are small. */
enum { MU_RESIDENT = 512 };

/* One operand: A with its rows as lines, or B with its columns as lines. */
typedef struct mu_side {
    mu_pack_source source; /* from line 0 and k = 0 */
    size_t lines;          /* in all */
    size_t width;          /* of a micropanel: mr or nr */
    mu_pack *pack;
    char *packed;    /* [slice][panel][k][line], from line `unpacked` on */
    size_t unpacked; /* lines before this one, whole panels or all, are not packed */
} mu_side;

typedef struct mu_product {
    const mu_kernel *kernel;
    size_t bytes;        /* of an element */
    size_t packed_bytes; /* of a packed element */
    size_t k;
    size_t kc;          /* length of a k-block; the last is shorter */
    size_t slice;       /* length of a slice, two k-blocks; the last is shorter */
    size_t depth;       /* of a packed slice: its k-blocks in whole k-groups */
    size_t first_slice; /* the slices that are packed now */
    size_t slice_count;
    mu_side a, b;
    char *c;
    size_t ldc;
    bool adds; /* the product is added to C */
} mu_product;

/* Before and after a thread multiplies. */
static inline void mu_enter_tiles(const mu_kernel *kernel)
{
    if (kernel->enter) {
        kernel->enter();
    }
}

static inline void mu_leave_tiles(const mu_kernel *kernel)
{
    if (kernel->leave) {
        kernel->leave();
    }
}

/* A product of sums of length k, without operands yet. */
mu_product mu_product_of(const mu_kernel *kernel, size_t k);

/* Whether an operand needs neither conversion nor combination. Tiles may then read it unpacked: A
 * if its k_stride is 1, B if its line_stride is. */
static inline bool mu_is_unpackable(const mu_kernel *kernel, const mu_pack_source *o)
{
    bool same_type = o->dtype == kernel->type && kernel->operands == kernel->type;
    return same_type && o->scale == 1 && !o->other && o->shift == 0;
}

/* Of so many unpacked columns, those that tiles can read without reading beyond the last. */
static inline size_t mu_unpacked_columns(const mu_kernel *kernel, size_t columns)
{
    return columns % kernel->grain == 0 ? columns : columns / kernel->nr * kernel->nr;
}

/* An operand as a packing source, with its rows or its columns as lines. */
mu_pack_source mu_rows_as_lines(const mu_operand *o);
mu_pack_source mu_columns_as_lines(const mu_operand *o);

/* Lines that one task packs, and the smallest side of a block of C: whole micropanels of A and
 * B. */
size_t mu_group_of(const mu_kernel *kernel);

/* Bytes of `slices` packed slices. */
size_t mu_packed_bytes(const mu_product *p, size_t lines, size_t width, size_t slices);

/* Pack the lines of a side that are not unpacked, for all slices at hand, on up to so many
 * threads. */
void mu_pack_side(const mu_product *p, const mu_side *s, unsigned threads);

/* The product for lines [first, end) of B (`right`) or A alone. This thread packs them at `packed`,
 * which is its own memory, except those that stay unpacked. */
mu_product mu_pack_own(const mu_product *p, bool right, size_t first, size_t end, char *packed);

/* A rows x cols block of C at (i0, j0) from one slice of k. `lower`: only tiles on or below the
 * diagonal, and of these only the columns that reach it. */
void mu_multiply_block(const mu_product *p, size_t slice, size_t i0, size_t rows, size_t j0,
                       size_t cols, bool lower);

/* Bytes of scratch of a symmetric product with sums of length k, and of apply. The caller has
 * checked that nothing overflows. */
size_t mu_triangle_scratch(const mu_kernel *kernel, size_t m, size_t k, unsigned workers);
size_t mu_apply_scratch(const mu_kernel *kernel, size_t m, size_t n, unsigned workers);

#endif
