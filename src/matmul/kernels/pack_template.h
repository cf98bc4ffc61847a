/*
 * pack_template.h: the packing of kernel_template.h, which lists the parameters and has what
 * converts rows: operands into panels that a tile reads straight ahead. No include guard, on
 * purpose.
 */
#define STAGE 64 /* steps that are converted at a time */

/* Lanes adjacent in memory: every step is a copy. `width` is a constant. `readable` lanes may
 * be read and `more` steps follow in memory that is written later: where width is not a
 * multiple of VL, vectors spill into the next step, which is written after them. */
static inline __attribute__((always_inline)) void NAME(pack_adjacent)(
    const size_t width, const T *restrict from, const T *restrict other, ptrdiff_t step_stride,
    T scale, T other_scale, size_t lanes, size_t readable, size_t steps, bool more,
    T *restrict packed)
{
    const size_t covered = (width + VL - 1) / VL * VL;
    V factor = VEC(set1)(scale), other_factor = VEC(set1)(other_scale);
    size_t s = 0, copied = readable < covered ? 0 : more || width == covered ? steps : steps - 1;
    for (; s < copied; s++) {
        ptrdiff_t row = (ptrdiff_t)s * step_stride;
        MU_UNROLLED
        for (size_t l = 0; l < covered; l += VL) {
            V value = VEC(mul)(VEC(load)(from + row + l), factor);
            if (other) {
                value = VEC(add)(value, VEC(mul)(VEC(load)(other + row + l), other_factor));
            }
            VEC(store)(packed + s * width + l, value);
        }
    }
    for (; s < steps; s++) {
        ptrdiff_t row = (ptrdiff_t)s * step_stride;
        for (size_t l = 0; l < lanes; l++) {
            T value = from[row + (ptrdiff_t)l] * scale;
            packed[s * width + l] = other ? value + other[row + (ptrdiff_t)l] * other_scale : value;
        }
        for (size_t l = lanes; l < width; l++) {
            packed[s * width + l] = 0;
        }
    }
}

/* Steps adjacent in memory: squares of VL lanes by VL steps are transposed in
 * registers. Where width is not a multiple of VL the last lanes come first: their
 * vectors spill into the first lanes of the next step, which are written after
 * them, so only the very last step must be stored exactly. Lanes are a block long, too
 * short for the hardware to see them coming: where they are `distant`, a constant too,
 * those of the next panel are asked for. `full`, the third constant: lanes == width. */
static inline __attribute__((always_inline)) void NAME(pack_across)(
    const size_t width, const bool distant, const bool full, const T *restrict from,
    const T *restrict other, ptrdiff_t lane_stride, T scale, T other_scale, size_t lanes,
    size_t steps, T *restrict packed)
{
    size_t s = 0, whole = steps / VL * VL, present = full ? width : lanes;
    V factor = VEC(set1)(scale), other_factor = VEC(set1)(other_scale);
    for (; s < whole; s += VL) {
        MU_UNROLLED
        for (size_t groups = (width + VL - 1) / VL; groups > 0; groups--) {
            size_t group = (groups - 1) * VL;
            V square[VL];
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                if (group + l < present) {
                    ptrdiff_t at = (ptrdiff_t)(group + l) * lane_stride + (ptrdiff_t)s;
                    ptrdiff_t next = at + (ptrdiff_t)width * lane_stride;
                    if (distant) {
                        __builtin_prefetch(from + next);
                    }
                    square[l] = VEC(mul)(VEC(load)(from + at), factor);
                    if (distant && other) {
                        __builtin_prefetch(other + next);
                    }
                    if (other) {
                        V term = VEC(mul)(VEC(load)(other + at), other_factor);
                        square[l] = VEC(add)(square[l], term);
                    }
                } else {
                    square[l] = VEC(zero)();
                }
            }
            if (full || group < present) {
                VEC(transpose)(square);
            }
            T *to = packed + s * width + group;
            if (group + VL <= width || s + VL < steps) {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    VEC(store)(to + i * width, square[i]);
                }
            } else {
                MU_UNROLLED
                for (size_t i = 0; i + 1 < VL; i++) {
                    VEC(store)(to + i * width, square[i]);
                }
                T last[VL];
                VEC(store)(last, square[VL - 1]);
                memcpy(to + (VL - 1) * width, last, (width - group) * sizeof(T));
            }
        }
    }
    for (; s < steps; s++) {
        for (size_t l = 0; l < width; l++) {
            ptrdiff_t at = (ptrdiff_t)l * lane_stride + (ptrdiff_t)s;
            T value = 0;
            if (l < lanes) {
                value = from[at] * scale;
                value = other ? value + other[at] * other_scale : value;
            }
            packed[s * width + l] = value;
        }
    }
}

static inline __attribute__((always_inline)) void NAME(pack_rows)(const size_t width, bool distant,
                                                                  const T *from, const T *other,
                                                                  ptrdiff_t lane_stride, T scale,
                                                                  T other_scale, size_t lanes,
                                                                  size_t steps, T *packed)
{
    if (lanes < width) {
        NAME(pack_across)(width, false, false, from, other, lane_stride, scale, other_scale, lanes,
                          steps, packed);
    } else if (distant) {
        NAME(pack_across)(width, true, true, from, other, lane_stride, scale, other_scale, lanes,
                          steps, packed);
    } else {
        NAME(pack_across)(width, false, true, from, other, lane_stride, scale, other_scale, lanes,
                          steps, packed);
    }
}

/* Any strides and types: convert STAGE steps of a panel at a time into a small block of
 * type T in which steps are adjacent, then as above. */
static inline
    __attribute__((always_inline)) void NAME(pack_staged)(const size_t width,
                                                          const mu_lanes *source, size_t lanes,
                                                          size_t steps, T *restrict packed)
{
    T stage[NR * STAGE];
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t s0 = 0; s0 < steps; s0 += STAGE) {
        size_t part = steps - s0 < STAGE ? steps - s0 : STAGE;
        const char *from = (const char *)source->data + (ptrdiff_t)s0 * source->step_stride * bytes;
        for (size_t l = 0; l < lanes; l++) {
            NAME(load_row)(from + (ptrdiff_t)l * source->lane_stride * bytes, source->dtype,
                           source->step_stride, part, stage + l * STAGE);
        }
        NAME(pack_rows)(width, false, stage, NULL, STAGE, (T)source->scale, 0, lanes, part,
                        packed + s0 * width);
    }
}

/* Steps of one panel before the next, where lanes are adjacent: so memory is read along its
 * rows. */
#define RUN 8

/* Lanes adjacent, but of another type: RUN steps of many lanes are converted at a time. */
static inline
    __attribute__((always_inline)) void NAME(pack_converted)(const size_t width,
                                                             const mu_lanes *source, size_t lanes,
                                                             size_t steps, T *packed,
                                                             size_t panel_stride)
{
    T stage[RUN * MU_BLOCK];
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t first = 0; first < lanes; first += MU_BLOCK) {
        size_t here = lanes - first < MU_BLOCK ? lanes - first : MU_BLOCK;
        for (size_t s = 0; s < steps; s += RUN) {
            size_t part = steps - s < RUN ? steps - s : RUN;
            for (size_t k = 0; k < part; k++) {
                ptrdiff_t at = (ptrdiff_t)first + (ptrdiff_t)(s + k) * source->step_stride;
                NAME(load_row)((const char *)source->data + at * bytes, source->dtype, 1, here,
                               stage + k * MU_BLOCK);
            }
            for (size_t l = 0; l < here; l += width) {
                NAME(pack_adjacent)(width, stage + l, NULL, MU_BLOCK, (T)source->scale, 0,
                                    here - l < width ? here - l : width, here - l, part,
                                    s + part < steps,
                                    packed + (first + l) / width * panel_stride + s * width);
            }
        }
    }
}

static inline
    __attribute__((always_inline)) void NAME(pack)(const size_t width, const mu_lanes *source,
                                                   size_t lanes, size_t steps, T *packed,
                                                   size_t panel_stride)
{
    const T *from = source->data, *other = source->other;
    T scale = (T)source->scale, other_scale = (T)source->other_scale;
    bool adjacent = source->dtype == T_DTYPE && source->lane_stride == 1;
    size_t run = adjacent ? RUN : steps;
    bool converted = !adjacent && source->lane_stride == 1;
    if (converted) {
        NAME(pack_converted)(width, source, lanes, steps, packed, panel_stride);
    }
    for (size_t s = 0; !converted && s < steps; s += run) {
        size_t part = steps - s < run ? steps - s : run;
        T *to = packed + s * width;
        for (size_t lane = 0; lane < lanes; lane += width, to += panel_stride) {
            size_t here = lanes - lane < width ? lanes - lane : width;
            ptrdiff_t at =
                (ptrdiff_t)lane * source->lane_stride + (ptrdiff_t)s * source->step_stride;
            if (adjacent) {
                NAME(pack_adjacent)(width, from + at, other ? other + at : NULL,
                                    source->step_stride, scale, other_scale, here, lanes - lane,
                                    part, s + part < steps, to);
            } else if (source->dtype == T_DTYPE && source->step_stride == 1) {
                NAME(pack_rows)(width, source->distant, from + at, other ? other + at : NULL,
                                source->lane_stride, scale, other_scale, here, part, to);
            } else {
                mu_lanes rest = *source;
                rest.data =
                    (const char *)source->data + at * (ptrdiff_t)muonium_dtype_size(source->dtype);
                NAME(pack_staged)(width, &rest, here, part, to);
            }
        }
    }
    for (size_t l = 0; l < lanes && source->shift != 0; l++) {
        ptrdiff_t s = (ptrdiff_t)l + source->diagonal;
        if (s >= 0 && s < (ptrdiff_t)steps) {
            packed[l / width * panel_stride + (size_t)s * width + l % width] += (T)source->shift;
        }
    }
}

#if PAIRS
#include "matmul/kernels/pack_pairs.h"
#define PACK NAME(pack_pairs)
#else
#define PACK NAME(pack)
#endif

static void NAME(pack_a)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                         size_t panel_stride)
{
    PACK(MR, source, lanes, steps, packed, panel_stride);
}

static void NAME(pack_b)(const mu_lanes *source, size_t lanes, size_t steps, void *packed,
                         size_t panel_stride)
{
    PACK(NR, source, lanes, steps, packed, panel_stride);
}
