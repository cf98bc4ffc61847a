/*
 * tile_template.h: the tile of kernel_template.h, which lists the parameters: a rectangle of C
 * in registers, while panels of A and B pass by. No include guard, on purpose.
 */
#define V VEC(t)
#define NR (NV * VL)

static inline
    __attribute__((always_inline)) void NAME(add_step)(const int vectors, const T *a,
                                                       ptrdiff_t a_row, const T *b, V sum[MR][NV])
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

/* The products of k steps, added up from zero; a and b move on. `vectors` is a constant, 1 to
 * NV, at all call sites: columns beyond the last wanted vector are not computed. */
static inline __attribute__((always_inline)) void NAME(add_steps)(const int vectors, size_t k,
                                                                  const T **a, ptrdiff_t a_row,
                                                                  ptrdiff_t a_step, const T **b,
                                                                  ptrdiff_t b_step, V sum[MR][NV])
{
    MU_UNROLLED
    for (int i = 0; i < MR; i++) {
        MU_UNROLLED
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = VEC(zero)();
        }
    }
#if BY_HAND
    bool plain = a_step == 1, packed = a_row == 1 && a_step == MR;
    if (vectors == NV && b_step == NR && (plain || packed) && k >= UNROLL) {
        VEC(eights)(plain, k / UNROLL, a, a_row, b, sum);
        k %= UNROLL;
    }
#else
    for (; k >= UNROLL; k -= UNROLL) {
        MU_UNROLLED
        for (int step = 0; step < UNROLL; step++, *a += a_step, *b += b_step) {
            NAME(add_step)(vectors, *a, a_row, *b, sum);
        }
    }
#endif
#if UNROLL > 1
    for (; k > 0; k--, *a += a_step, *b += b_step) {
        NAME(add_step)(vectors, *a, a_row, *b, sum);
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

/* `two`, a constant, is whether there are two blocks: k > block. */
static inline __attribute__((always_inline)) void NAME(tile_of)(
    const int vectors, const bool two, size_t k, size_t block, const T *a, ptrdiff_t a_row,
    ptrdiff_t a_step, const T *b, ptrdiff_t b_step, T *restrict c, ptrdiff_t ldc, size_t rows,
    size_t cols, bool accumulate)
{
    V sum[MR][NV];
    _Alignas(MU_ALIGNMENT) T first[MR][NR];
    /* The tile of C arrives while the sum is being formed. Short sums are of matrices that are
     * near, unless their rows are long: at 32, asking for them would take 5 % of the time. */
    bool far = k > 128 >> PAIRS || (k > 64 >> PAIRS && ldc > 128);
    for (size_t i = 0; far && i < rows; i++) {
        MU_UNROLLED
        for (size_t j = 0; j < NR; j += MU_ALIGNMENT / sizeof(T)) {
            __builtin_prefetch(c + (ptrdiff_t)i * ldc + (ptrdiff_t)j, 1);
        }
    }
    if (two) {
        NAME(add_steps)(vectors, block, &a, a_row, a_step, &b, b_step, sum);
        NAME(store_sums)(vectors, sum, first);
        k -= block;
    }
    NAME(add_steps)(vectors, k, &a, a_row, a_step, &b, b_step, sum);
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

/* Strides that are constants save registers. */
static inline
    __attribute__((always_inline)) void NAME(tile_at)(const bool two, size_t k, size_t block,
                                                      const void *a, ptrdiff_t a_row,
                                                      ptrdiff_t a_step, const void *b,
                                                      ptrdiff_t b_step, void *c, ptrdiff_t ldc,
                                                      size_t rows, size_t cols, bool accumulate)
{
    if (NV == 1 || cols <= VL) {
        NAME(tile_of)(1, two, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols,
                      accumulate);
    } else if (b_step == NR && a_step == MR && a_row == 1) {
        NAME(tile_of)(NV, two, k, block, a, 1, MR, b, NR, c, ldc, rows, cols, accumulate);
    } else if (b_step == NR && a_step == 1) {
        NAME(tile_of)(NV, two, k, block, a, a_row, 1, b, NR, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_of)(NV, two, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols,
                      accumulate);
    }
}

static void NAME(tile)(size_t k, size_t block, const void *a, ptrdiff_t a_row, ptrdiff_t a_step,
                       const void *b, ptrdiff_t b_step, void *c, ptrdiff_t ldc, size_t rows,
                       size_t cols, bool accumulate)
{
#ifdef HALF_TILE
    /* What half a vector holds is not worth a whole one. */
    size_t last = cols % VL;
    if (last > 0 && last <= VL / 2) {
        cols -= last;
        HALF_TILE(k, block, a, a_row, a_step, (const T *)b + cols, b_step, (T *)c + cols, ldc, rows,
                  last, accumulate);
        if (cols == 0) {
            return;
        }
    }
#endif
    k = (k + PAIRS) >> PAIRS;
    block = (block + PAIRS) >> PAIRS;
    if (k > block) {
        NAME(tile_at)(true, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols, accumulate);
    } else {
        NAME(tile_at)(false, k, block, a, a_row, a_step, b, b_step, c, ldc, rows, cols, accumulate);
    }
}
