/*
 * tile_template.h: the tile: MR x NR elements of C in registers, while the micropanels of A and B
 * pass by. kernel_template.h lists the parameters. No include guard, on purpose.
 */
#define V VEC(t)
#define NR (NV * VL)

/* sum += a b^T for one k. */
static inline __attribute__((always_inline)) void NAME(add_product)(const int vectors, const T *a,
                                                                    ptrdiff_t a_row, const T *b,
                                                                    V sum[MR][NV])
{
    V columns[NV];
    MU_UNROLLED
    for (int j = 0; j < vectors; j++) {
        columns[j] = VEC(load)(b + j * VL);
    }
    MU_UNROLLED
    for (int i = 0; i < MR; i++) {
        V row = VEC(set1)(a[i * a_row]);
        MU_UNROLLED
        for (int j = 0; j < vectors; j++) {
#if PAIRS
            sum[i][j] = VEC(fma_pairs)(row, columns[j], sum[i][j]);
#else
            sum[i][j] = VEC(fma)(row, columns[j], sum[i][j]);
#endif
        }
    }
}

/* sum = the products of k terms, added in order onto zero; a and b advance. `vectors`, 1 to NV, is
 * a constant at all call sites: vectors beyond the last column are not computed. */
static inline __attribute__((always_inline)) void NAME(add_products)(const int vectors, size_t k,
                                                                     const T **a, ptrdiff_t a_row,
                                                                     ptrdiff_t a_k, const T **b,
                                                                     ptrdiff_t b_k, V sum[MR][NV])
{
    MU_UNROLLED
    for (int i = 0; i < MR; i++) {
        MU_UNROLLED
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = VEC(zero)();
        }
    }
#if BY_HAND
    bool unpacked = a_k == 1, packed = a_row == 1 && a_k == MR;
    if (vectors == NV && b_k == NR && (unpacked || packed) && k >= UNROLL) {
        VEC(eights)(unpacked, k / UNROLL, a, a_row, b, sum);
        k %= UNROLL;
    }
#else
    for (; k >= UNROLL; k -= UNROLL) {
        MU_UNROLLED
        for (int p = 0; p < UNROLL; p++, *a += a_k, *b += b_k) {
            NAME(add_product)(vectors, *a, a_row, *b, sum);
        }
    }
#endif
#if UNROLL > 1
    for (; k > 0; k--, *a += a_k, *b += b_k) {
        NAME(add_product)(vectors, *a, a_row, *b, sum);
    }
#endif
}

static inline __attribute__((always_inline)) void NAME(store_sums)(const int vectors, V sum[MR][NV],
                                                                   T to[MR][NR])
{
    MU_UNROLLED
    for (int i = 0; i < MR; i++) {
        MU_UNROLLED
        for (int j = 0; j < vectors; j++) {
            VEC(store)(&to[i][j * VL], sum[i][j]);
        }
    }
}

/* `two`, a constant: there are two k-blocks, k > kc. */
static inline
    __attribute__((always_inline)) void NAME(tile_of)(const int vectors, const bool two, size_t k,
                                                      size_t kc, const T *a, ptrdiff_t a_row,
                                                      ptrdiff_t a_k, const T *b, ptrdiff_t b_k,
                                                      T *restrict c, ptrdiff_t ldc, size_t rows,
                                                      size_t cols, bool accumulate)
{
    V sum[MR][NV];
    _Alignas(MU_ALIGNMENT) T first[MR][NR];
    /* Prefetch the tile of C while the sum is formed. Matrices with short sums are resident, unless
     * their rows are long, and prefetches would cost more than they save (docs/experiments.md). */
    bool streaming = k > 128 >> PAIRS || (k > 64 >> PAIRS && ldc > 128);
    for (size_t i = 0; streaming && i < rows; i++) {
        MU_UNROLLED
        for (size_t j = 0; j < NR; j += MU_ALIGNMENT / sizeof(T)) {
            __builtin_prefetch(c + (ptrdiff_t)i * ldc + (ptrdiff_t)j, 1);
        }
    }
    if (two) {
        NAME(add_products)(vectors, kc, &a, a_row, a_k, &b, b_k, sum);
        NAME(store_sums)(vectors, sum, first);
        k -= kc;
    }
    NAME(add_products)(vectors, k, &a, a_row, a_k, &b, b_k, sum);
    if (cols == (size_t)(vectors * VL)) {
        MU_UNROLLED
        for (int i = 0; i < MR; i++) {
            if ((size_t)i == rows) {
                break;
            }
            MU_UNROLLED
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

/* Constant strides save registers. */
static inline __attribute__((always_inline)) void NAME(tile_at)(
    const bool two, size_t k, size_t kc, const void *a, ptrdiff_t a_row, ptrdiff_t a_k,
    const void *b, ptrdiff_t b_k, void *c, ptrdiff_t ldc, size_t rows, size_t cols, bool accumulate)
{
    if (NV == 1 || cols <= VL) {
        NAME(tile_of)(1, two, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    } else if (NV > 2 && cols <= 2 * VL) {
        NAME(tile_of)(2, two, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    } else if (NV > 3 && cols <= 3 * VL) {
        NAME(tile_of)(3, two, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    } else if (b_k == NR && a_k == MR && a_row == 1) {
        NAME(tile_of)(NV, two, k, kc, a, 1, MR, b, NR, c, ldc, rows, cols, accumulate);
    } else if (b_k == NR && a_k == 1) {
        NAME(tile_of)(NV, two, k, kc, a, a_row, 1, b, NR, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_of)(NV, two, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    }
}

static void NAME(tile)(size_t k, size_t kc, const void *a, ptrdiff_t a_row, ptrdiff_t a_k,
                       const void *b, ptrdiff_t b_k, void *c, ptrdiff_t ldc, size_t rows,
                       size_t cols, bool accumulate)
{
#ifdef HALF_TILE
    /* Columns that fit half a vector are not worth a whole one. */
    size_t last = cols % VL;
    if (last > 0 && last <= VL / 2) {
        cols -= last;
        HALF_TILE(k, kc, a, a_row, a_k, (const T *)b + cols, b_k, (T *)c + cols, ldc, rows, last,
                  accumulate);
        if (cols == 0) {
            return;
        }
    }
#endif
    k = (k + PAIRS) >> PAIRS;
    kc = (kc + PAIRS) >> PAIRS;
    if (k > kc) {
        NAME(tile_at)(true, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_at)(false, k, kc, a, a_row, a_k, b, b_k, c, ldc, rows, cols, accumulate);
    }
}
