/*
 * tile_template.h: the tile of kernel_template.h, which includes it and lists the parameters:
 * a rectangle of C in registers, while panels of A and B pass by.
 */
/* Steps between branches: so few branches that the last one is predicted. An emulated step is
 * long, and eight of them unoptimised would outgrow the stack of a thread. */
#ifdef MU_EMULATE_AVX512
#define UNROLL 1
#else
#define UNROLL MU_STEPS
#endif

static inline
    __attribute__((always_inline)) void NAME(add_step)(const int vectors, const T *a,
                                                       ptrdiff_t a_row, const T *b, V sum[MR][2])
{
    V left = VEC(load)(b), right = vectors == 2 ? VEC(load)(b + VL) : left;
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        V row = VEC(set1)(a[i * a_row]);
        sum[i][0] = VEC(fma)(row, left, sum[i][0]);
        if (vectors == 2) {
            sum[i][1] = VEC(fma)(row, right, sum[i][1]);
        }
    }
}

/* The products of k steps, added up from zero; a and b move on. `vectors` is a constant, 1 or
 * 2, at all call sites: columns beyond the first vector are not computed when none is wanted. */
static inline
    __attribute__((always_inline)) void NAME(add_steps)(const int vectors, size_t k, const T **a,
                                                        ptrdiff_t a_row, ptrdiff_t a_step,
                                                        const T **b, ptrdiff_t b_step, V sum[MR][2])
{
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = VEC(zero)();
        }
    }
#if BY_HAND
    bool plain = a_step == 1, packed = a_row == 1 && a_step == MR;
    if (vectors == 2 && b_step == NR && (plain || packed) && k >= UNROLL) {
        VEC(eights)(plain, k / UNROLL, a, a_row, b, sum);
        k %= UNROLL;
    }
#else
    for (; k >= UNROLL; k -= UNROLL) {
#pragma GCC unroll 8
        for (int step = 0; step < UNROLL; step++, *a += a_step, *b += b_step) {
            NAME(add_step)(vectors, *a, a_row, *b, sum);
        }
    }
#endif
    for (; k > 0; k--, *a += a_step, *b += b_step) {
        NAME(add_step)(vectors, *a, a_row, *b, sum);
    }
}

static inline __attribute__((always_inline)) void NAME(store_sums)(const int vectors, V sum[MR][2],
                                                                   T to[MR][NR])
{
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            VEC(store)(&to[i][j * VL], sum[i][j]);
        }
    }
}

/* `two`, a constant, is whether there are two blocks: k > block. */
static inline __attribute__((always_inline)) void NAME(tile_of)(
    const int vectors, const bool two, size_t k, size_t block, const T *a, ptrdiff_t a_row,
    ptrdiff_t a_step, const T *b, ptrdiff_t b_step, T *restrict c, ptrdiff_t ldc, size_t rows,
    size_t cols, bool accumulate)
{
    V sum[MR][2];
    _Alignas(MU_ALIGNMENT) T first[MR][NR];
    /* The tile of C arrives while the sum is being formed. */
    for (size_t i = 0; i < rows; i++) {
        __builtin_prefetch(c + (ptrdiff_t)i * ldc, 1);
        __builtin_prefetch(c + (ptrdiff_t)i * ldc + (NR - 1), 1);
    }
    if (two) {
        NAME(add_steps)(vectors, block, &a, a_row, a_step, &b, b_step, sum);
        NAME(store_sums)(vectors, sum, first);
        k -= block;
    }
    NAME(add_steps)(vectors, k, &a, a_row, a_step, &b, b_step, sum);
    if (cols == (size_t)(vectors * VL)) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            if ((size_t)i == rows) {
                break;
            }
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) {
                T *to = c + i * ldc + j * VL;
                V before = two ? VEC(load)(&first[i][j * VL]) : VEC(zero)();
                if (accumulate) {
                    before = two ? VEC(add)(VEC(load)(to), before) : VEC(load)(to);
                }
                VEC(store)(to, two || accumulate ? VEC(add)(before, sum[i][j]) : sum[i][j]);
            }
        }
        return;
    }
    _Alignas(MU_ALIGNMENT) T edge[MR][NR];
    NAME(store_sums)(vectors, sum, edge);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            T *to = c + (ptrdiff_t)i * ldc + (ptrdiff_t)j;
            if (two) {
                *to = accumulate ? *to + first[i][j] : first[i][j];
            }
            *to = two || accumulate ? *to + edge[i][j] : edge[i][j];
        }
    }
}

/* Strides that are constants save registers. */
static inline
    __attribute__((always_inline)) void NAME(tile_at)(const bool two, size_t k, size_t block,
                                                      const void *a, ptrdiff_t a_row,
                                                      ptrdiff_t a_step, const void *b,
                                                      ptrdiff_t b_step, void *c, ptrdiff_t ldc,
                                                      size_t rows, size_t cols, bool accumulate)
{
    if (cols <= VL) {
        NAME(tile_of)(1, two, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols,
                      accumulate);
    } else if (b_step == NR && a_step == MR && a_row == 1) {
        NAME(tile_of)(2, two, k, block, a, 1, MR, b, NR, c, ldc, rows, cols, accumulate);
    } else if (b_step == NR && a_step == 1) {
        NAME(tile_of)(2, two, k, block, a, a_row, 1, b, NR, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_of)(2, two, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols,
                      accumulate);
    }
}

static void NAME(tile)(size_t k, size_t block, const void *a, ptrdiff_t a_row, ptrdiff_t a_step,
                       const void *b, ptrdiff_t b_step, void *c, ptrdiff_t ldc, size_t rows,
                       size_t cols, bool accumulate)
{
    if (k > block) {
        NAME(tile_at)(true, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_at)(false, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols, accumulate);
    }
}
