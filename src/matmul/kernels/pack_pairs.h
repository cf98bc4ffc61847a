/*
 * pack_pairs.h: packing for kernel_template.h with PAIRS: operands rounded to bf16, two steps in
 * one element of a panel, as VEC(fma_pairs) multiplies them. No include guard, on purpose.
 *
 * More of the vocabulary, f32 alone:
 *
 *   load_first(n, from)     n elements, at most VL, and zeros
 *   store_low(to, v), store_high(to, v)   half of the vector
 *   pairs_along(v, w)       2 VL steps of one lane as VL pairs
 *   pairs_across(v, w)      VL lanes of two steps as VL pairs
 */

/* The pairs of 2 VL steps that lie at `from`, of which `left` exist. */
static inline __attribute__((always_inline)) V NAME(pairs_of)(const T *from, size_t left)
{
    if (left >= 2 * VL) {
        return VEC(pairs_along)(VEC(load)(from), VEC(load)(from + VL));
    }
    V second = left > VL ? VEC(load_first)(left - VL, from + VL) : VEC(zero)();
    return VEC(pairs_along)(VEC(load_first)(left < VL ? left : VL, from), second);
}

/* Steps adjacent in memory: rounded, then squares of pairs are transposed in registers. A panel
 * of half a vector fills a square with twice as many steps. `width` is a constant. */
static inline
    __attribute__((always_inline)) void NAME(pack_pairs_across)(const size_t width, bool distant,
                                                                const T *restrict from,
                                                                ptrdiff_t lane_stride, size_t lanes,
                                                                size_t steps, T *restrict packed)
{
    _Static_assert(MR == VL / 2 && NR % VL == 0, "a panel is half a vector wide, or whole ones");
    const size_t side = width < VL ? width : VL, at_once = 2 * VL * (VL / side);
    for (size_t s = 0; s < steps; s += at_once) {
        MU_UNROLLED
        for (size_t group = 0; group < width; group += side) {
            V square[VL];
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                size_t lane = group + l % side, step = s + l / side * 2 * VL;
                square[l] = VEC(zero)();
                if (lane < lanes && step < steps) {
                    const T *at = from + (ptrdiff_t)lane * lane_stride + (ptrdiff_t)step;
                    if (distant) { /* lanes are too short for the hardware to see them coming */
                        __builtin_prefetch(at + (ptrdiff_t)width * lane_stride);
                        __builtin_prefetch(at + (ptrdiff_t)width * lane_stride + VL);
                    }
                    square[l] = NAME(pairs_of)(at, steps - step);
                }
            }
            VEC(transpose)(square);
            T *to = packed + s / 2 * width + group;
            size_t pairs = (steps - s + 1) / 2;
            if (side == VL) {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    if (i < pairs) {
                        VEC(store)(to + i * width, square[i]);
                    }
                }
            } else {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    if (i < pairs) {
                        VEC(store_low)(to + i * width, square[i]);
                    }
                    if (i + VL < pairs) {
                        VEC(store_high)(to + (i + VL) * width, square[i]);
                    }
                }
            }
        }
    }
}

/* Lanes adjacent in memory: two steps are made one. */
static inline
    __attribute__((always_inline)) void NAME(pack_pairs_adjacent)(const size_t width, const T *from,
                                                                  ptrdiff_t step_stride,
                                                                  size_t lanes, size_t steps,
                                                                  T *restrict packed)
{
    for (size_t s = 0; s < steps; s += 2, from += 2 * step_stride, packed += width) {
        MU_UNROLLED
        for (size_t l = 0; l < width; l += VL) {
            size_t here = l >= lanes ? 0 : lanes - l < VL ? lanes - l : VL;
            V first, second = VEC(zero)();
            if (here == VL) {
                first = VEC(load)(from + l);
                second = s + 1 < steps ? VEC(load)(from + step_stride + l) : second;
            } else {
                first = VEC(load_first)(here, from + l);
                second = s + 1 < steps ? VEC(load_first)(here, from + step_stride + l) : second;
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

/* Anything else, as T first, STAGE steps at a time. */
static inline __attribute__((always_inline)) void NAME(pack_pairs_staged)(const size_t width,
                                                                          const mu_lanes *source,
                                                                          size_t lanes,
                                                                          size_t steps, T *packed)
{
    T stage[STAGE * NR];
    for (size_t s = 0; s < steps; s += STAGE) {
        mu_lanes part = *source;
        size_t here = steps - s < STAGE ? steps - s : STAGE;
        ptrdiff_t skip = (ptrdiff_t)s * source->step_stride;
        skip *= (ptrdiff_t)muonium_dtype_size(source->dtype);
        part.data = (const char *)part.data + skip;
        part.other = part.other ? (const char *)part.other + skip : NULL;
        part.diagonal -= (ptrdiff_t)s;
        NAME(pack)(width, &part, lanes, here, stage, 0);
        NAME(pack_pairs_adjacent)(width, stage, (ptrdiff_t)width, lanes, here,
                                  packed + s / 2 * width);
    }
}

static inline
    __attribute__((always_inline)) void NAME(pack_pairs)(const size_t width, const mu_lanes *source,
                                                         size_t lanes, size_t steps, void *packed,
                                                         size_t panel_stride)
{
    bool plain = source->dtype == T_DTYPE && source->scale == 1 && !source->other;
    plain = plain && source->shift == 0;
    bool adjacent = plain && source->lane_stride == 1;
    size_t run = adjacent ? 2 * RUN : steps;
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t s = 0; s < steps; s += run) {
        size_t part = steps - s < run ? steps - s : run;
        for (size_t lane = 0; lane < lanes; lane += width) {
            size_t here = lanes - lane < width ? lanes - lane : width;
            /* panel_stride counts bf16: half of it is pairs. */
            T *to = (T *)packed + lane / width * (panel_stride / 2) + s / 2 * width;
            mu_lanes panel = *source;
            ptrdiff_t skip =
                (ptrdiff_t)lane * source->lane_stride + (ptrdiff_t)s * source->step_stride;
            panel.data = (const char *)panel.data + skip * bytes;
            panel.other = panel.other ? (const char *)panel.other + skip * bytes : NULL;
            panel.diagonal += (ptrdiff_t)lane - (ptrdiff_t)s;
            if (adjacent) {
                NAME(pack_pairs_adjacent)(width, panel.data, panel.step_stride, here, part, to);
            } else if (plain && source->step_stride == 1) {
                NAME(pack_pairs_across)(width, panel.distant, panel.data, panel.lane_stride, here,
                                        part, to);
            } else {
                NAME(pack_pairs_staged)(width, &panel, here, part, to);
            }
        }
    }
}
