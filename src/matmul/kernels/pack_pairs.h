/*
 * pack_pairs.h: packing for kernel_template.h with PAIRS: operands are rounded to bf16, and two
 * consecutive k share one element of a micropanel, as VEC(fma_pairs) multiplies them. No include
 * guard, on purpose.
 *
 * SIMD operations that it needs besides, for f32 alone:
 *
 *   load_first(n, from)     n elements, at most VL, and zeros
 *   store_low(to, v), store_high(to, v)   half of the vector
 *   pairs_along(v, w)       2 VL elements of one line as VL pairs
 *   pairs_across(v, w)      VL lines of two k as VL pairs
 */

/* The pairs of 2 VL elements of a line at `from`, of which `left` exist. */
static inline __attribute__((always_inline)) V NAME(pairs_of)(const T *from, size_t left)
{
    if (left >= 2 * VL) {
        return VEC(pairs_along)(VEC(load)(from), VEC(load)(from + VL));
    }
    V second = left > VL ? VEC(load_first)(left - VL, from + VL) : VEC(zero)();
    return VEC(pairs_along)(VEC(load_first)(left < VL ? left : VL, from), second);
}

/* Lines contiguous in memory: rounded, then blocks of pairs are transposed in registers. A panel of
 * half a vector fills a block with twice as many k. `width` is a constant. */
static inline
    __attribute__((always_inline)) void NAME(pack_pairs_across)(const size_t width, bool streaming,
                                                                const T *restrict from,
                                                                ptrdiff_t line_stride, size_t lines,
                                                                size_t k, T *restrict packed)
{
    _Static_assert((MR == VL / 2 || MR % VL == 0) && NR % VL == 0,
                   "a panel is half a vector wide, or whole ones");
    const size_t side = width < VL ? width : VL, at_once = 2 * VL * (VL / side);
    for (size_t p = 0; p < k; p += at_once) {
        MU_UNROLLED
        for (size_t group = 0; group < width; group += side) {
            V block[VL];
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                size_t line = group + l % side, first = p + l / side * 2 * VL;
                block[l] = VEC(zero)();
                if (line < lines && first < k) {
                    const T *at = from + (ptrdiff_t)line * line_stride + (ptrdiff_t)first;
                    if (streaming) { /* lines are too short for the hardware prefetcher */
                        __builtin_prefetch(at + (ptrdiff_t)width * line_stride);
                        __builtin_prefetch(at + (ptrdiff_t)width * line_stride + VL);
                    }
                    block[l] = NAME(pairs_of)(at, k - first);
                }
            }
            VEC(transpose)(block);
            T *to = packed + p / 2 * width + group;
            size_t pairs = (k - p + 1) / 2;
            if (side == VL) {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    if (i < pairs) {
                        VEC(store)(to + i * width, block[i]);
                    }
                }
            } else {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    if (i < pairs) {
                        VEC(store_low)(to + i * width, block[i]);
                    }
                    if (i + VL < pairs) {
                        VEC(store_high)(to + (i + VL) * width, block[i]);
                    }
                }
            }
        }
    }
}

/* Lines adjacent in memory: two k become one element. */
static inline
    __attribute__((always_inline)) void NAME(pack_pairs_adjacent)(const size_t width, const T *from,
                                                                  ptrdiff_t k_stride, size_t lines,
                                                                  size_t k, T *restrict packed)
{
    for (size_t p = 0; p < k; p += 2, from += 2 * k_stride, packed += width) {
        MU_UNROLLED
        for (size_t l = 0; l < width; l += VL) {
            size_t here = l >= lines ? 0 : lines - l < VL ? lines - l : VL;
            V first, second = VEC(zero)();
            if (here == VL) {
                first = VEC(load)(from + l);
                second = p + 1 < k ? VEC(load)(from + k_stride + l) : second;
            } else {
                first = VEC(load_first)(here, from + l);
                second = p + 1 < k ? VEC(load_first)(here, from + k_stride + l) : second;
            }
            V pairs = VEC(pairs_across)(first, second);
            if (width < VL) {
                VEC(store_low)(packed + l, pairs);
            } else {
                VEC(store)(packed + l, pairs);
            }
        }
    }
}

/* Anything else: first as T, STAGE of k at a time. */
static inline
    __attribute__((always_inline)) void NAME(pack_pairs_staged)(const size_t width,
                                                                const mu_pack_source *source,
                                                                size_t lines, size_t k, T *packed)
{
    T stage[STAGE * NR];
    for (size_t p = 0; p < k; p += STAGE) {
        mu_pack_source part = *source;
        size_t here = k - p < STAGE ? k - p : STAGE;
        ptrdiff_t skip = (ptrdiff_t)p * source->k_stride;
        skip *= (ptrdiff_t)muonium_dtype_size(source->dtype);
        part.data = (const char *)part.data + skip;
        part.other = part.other ? (const char *)part.other + skip : NULL;
        part.diagonal -= (ptrdiff_t)p;
        NAME(pack)(width, &part, lines, here, stage, 0);
        NAME(pack_pairs_adjacent)(width, stage, (ptrdiff_t)width, lines, here,
                                  packed + p / 2 * width);
    }
}

static inline
    __attribute__((always_inline)) void NAME(pack_pairs)(const size_t width,
                                                         const mu_pack_source *source, size_t lines,
                                                         size_t k, void *packed,
                                                         size_t panel_stride)
{
    bool as_is = source->dtype == T_DTYPE && source->scale == 1 && !source->other;
    as_is = as_is && source->shift == 0;
    bool adjacent = as_is && source->line_stride == 1;
    size_t run = adjacent ? 2 * RUN : k;
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t p = 0; p < k; p += run) {
        size_t part = k - p < run ? k - p : run;
        for (size_t line = 0; line < lines; line += width) {
            size_t here = lines - line < width ? lines - line : width;
            /* panel_stride counts bf16: half of it is pairs. */
            T *to = (T *)packed + line / width * (panel_stride / 2) + p / 2 * width;
            mu_pack_source panel = *source;
            ptrdiff_t skip =
                (ptrdiff_t)line * source->line_stride + (ptrdiff_t)p * source->k_stride;
            panel.data = (const char *)panel.data + skip * bytes;
            panel.other = panel.other ? (const char *)panel.other + skip * bytes : NULL;
            panel.diagonal += (ptrdiff_t)line - (ptrdiff_t)p;
            if (adjacent) {
                NAME(pack_pairs_adjacent)(width, panel.data, panel.k_stride, here, part, to);
            } else if (as_is && source->k_stride == 1) {
                NAME(pack_pairs_across)(width, panel.streaming, panel.data, panel.line_stride, here,
                                        part, to);
            } else {
                NAME(pack_pairs_staged)(width, &panel, here, part, to);
            }
        }
    }
}
