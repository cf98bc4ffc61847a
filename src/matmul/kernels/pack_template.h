/*
 * pack_template.h: packing of operands into micropanels. kernel_template.h lists the parameters. A
 * line is a row of A or a column of B; p counts k. No include guard, on purpose.
 */
#define STAGE 64 /* elements of a line that are converted at a time */

/* Lines adjacent in memory: a copy for every k. `width` is a constant. `readable` lines may be
 * read. If width is not a multiple of VL, vectors spill into the place of the next k, which is
 * written after them; `more`: there is such a place after the last k too. */
static inline __attribute__((always_inline)) void NAME(pack_adjacent)(
    const size_t width, const T *restrict from, const T *restrict other, ptrdiff_t k_stride,
    T scale, T other_scale, size_t lines, size_t readable, size_t k, bool more, T *restrict packed)
{
    const size_t covered = (width + VL - 1) / VL * VL;
    V factor = VEC(set1)(scale), other_factor = VEC(set1)(other_scale);
    size_t p = 0, copied = readable < covered ? 0 : more || width == covered ? k : k - 1;
    for (; p < copied; p++) {
        ptrdiff_t row = (ptrdiff_t)p * k_stride;
        MU_UNROLLED
        for (size_t l = 0; l < covered; l += VL) {
            V value = VEC(mul)(VEC(load)(from + row + l), factor);
            if (other) {
                value = VEC(add)(value, VEC(mul)(VEC(load)(other + row + l), other_factor));
            }
            VEC(store)(packed + p * width + l, value);
        }
    }
    for (; p < k; p++) {
        ptrdiff_t row = (ptrdiff_t)p * k_stride;
        for (size_t l = 0; l < lines; l++) {
            T value = from[row + (ptrdiff_t)l] * scale;
            packed[p * width + l] = other ? value + other[row + (ptrdiff_t)l] * other_scale : value;
        }
        for (size_t l = lines; l < width; l++) {
            packed[p * width + l] = 0;
        }
    }
}

/* Lines contiguous in memory: blocks of VL lines by VL of k are transposed in registers. If width
 * is not a multiple of VL, the last lines come first: their vectors spill into the first lines of
 * the next k, which are written after them, so only the last k must be stored exactly.
 *
 * Three constants: `width`; `streaming`: prefetch the next panel, because lines are too short for
 * the hardware prefetcher; `full`: lines == width. */
static inline __attribute__((always_inline)) void NAME(pack_across)(
    const size_t width, const bool streaming, const bool full, const T *restrict from,
    const T *restrict other, ptrdiff_t line_stride, T scale, T other_scale, size_t lines, size_t k,
    T *restrict packed)
{
    size_t p = 0, whole = k / VL * VL, present = full ? width : lines;
    V factor = VEC(set1)(scale), other_factor = VEC(set1)(other_scale);
    for (; p < whole; p += VL) {
        MU_UNROLLED
        for (size_t groups = (width + VL - 1) / VL; groups > 0; groups--) {
            size_t group = (groups - 1) * VL;
            V block[VL];
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                if (group + l < present) {
                    ptrdiff_t at = (ptrdiff_t)(group + l) * line_stride + (ptrdiff_t)p;
                    ptrdiff_t next = at + (ptrdiff_t)width * line_stride;
                    if (streaming) {
                        __builtin_prefetch(from + next);
                    }
                    block[l] = VEC(mul)(VEC(load)(from + at), factor);
                    if (streaming && other) {
                        __builtin_prefetch(other + next);
                    }
                    if (other) {
                        V term = VEC(mul)(VEC(load)(other + at), other_factor);
                        block[l] = VEC(add)(block[l], term);
                    }
                } else {
                    block[l] = VEC(zero)();
                }
            }
            if (full || group < present) {
                VEC(transpose)(block);
            }
            T *to = packed + p * width + group;
            if (group + VL <= width || p + VL < k) {
                MU_UNROLLED
                for (size_t i = 0; i < VL; i++) {
                    VEC(store)(to + i * width, block[i]);
                }
            } else {
                MU_UNROLLED
                for (size_t i = 0; i + 1 < VL; i++) {
                    VEC(store)(to + i * width, block[i]);
                }
                T last[VL];
                VEC(store)(last, block[VL - 1]);
                memcpy(to + (VL - 1) * width, last, (width - group) * sizeof(T));
            }
        }
    }
    for (; p < k; p++) {
        for (size_t l = 0; l < width; l++) {
            ptrdiff_t at = (ptrdiff_t)l * line_stride + (ptrdiff_t)p;
            T value = 0;
            if (l < lines) {
                value = from[at] * scale;
                value = other ? value + other[at] * other_scale : value;
            }
            packed[p * width + l] = value;
        }
    }
}

static inline __attribute__((always_inline)) void NAME(pack_rows)(
    const size_t width, bool streaming, const T *from, const T *other, ptrdiff_t line_stride,
    T scale, T other_scale, size_t lines, size_t k, T *packed)
{
    if (lines < width) {
        NAME(pack_across)(width, false, false, from, other, line_stride, scale, other_scale, lines,
                          k, packed);
    } else if (streaming) {
        NAME(pack_across)(width, true, true, from, other, line_stride, scale, other_scale, lines, k,
                          packed);
    } else {
        NAME(pack_across)(width, false, true, from, other, line_stride, scale, other_scale, lines,
                          k, packed);
    }
}

/* Any strides and types: convert STAGE elements of each line to contiguous lines of type T, then as
 * above. */
static inline __attribute__((always_inline)) void NAME(pack_staged)(const size_t width,
                                                                    const mu_pack_source *source,
                                                                    size_t lines, size_t k,
                                                                    T *restrict packed)
{
    T stage[NR * STAGE];
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t p0 = 0; p0 < k; p0 += STAGE) {
        size_t part = k - p0 < STAGE ? k - p0 : STAGE;
        const char *from = (const char *)source->data + (ptrdiff_t)p0 * source->k_stride * bytes;
        for (size_t l = 0; l < lines; l++) {
            NAME(load_row)(from + (ptrdiff_t)l * source->line_stride * bytes, source->dtype,
                           source->k_stride, part, stage + l * STAGE);
        }
        NAME(pack_rows)(width, false, stage, NULL, STAGE, (T)source->scale, 0, lines, part,
                        packed + p0 * width);
    }
}

/* Where lines are adjacent, so many k of one panel are packed before the next panel: so memory is
 * read along its rows. */
#define RUN 8

/* Lines adjacent, but of another type: RUN of k of many lines are converted at a time. */
static inline
    __attribute__((always_inline)) void NAME(pack_converted)(const size_t width,
                                                             const mu_pack_source *source,
                                                             size_t lines, size_t k, T *packed,
                                                             size_t panel_stride)
{
    T stage[RUN * MU_BLOCK];
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    for (size_t first = 0; first < lines; first += MU_BLOCK) {
        size_t here = lines - first < MU_BLOCK ? lines - first : MU_BLOCK;
        for (size_t p = 0; p < k; p += RUN) {
            size_t part = k - p < RUN ? k - p : RUN;
            for (size_t i = 0; i < part; i++) {
                ptrdiff_t at = (ptrdiff_t)first + (ptrdiff_t)(p + i) * source->k_stride;
                NAME(load_row)((const char *)source->data + at * bytes, source->dtype, 1, here,
                               stage + i * MU_BLOCK);
            }
            for (size_t l = 0; l < here; l += width) {
                NAME(pack_adjacent)(width, stage + l, NULL, MU_BLOCK, (T)source->scale, 0,
                                    here - l < width ? here - l : width, here - l, part,
                                    p + part < k,
                                    packed + (first + l) / width * panel_stride + p * width);
            }
        }
    }
}

static inline
    __attribute__((always_inline)) void NAME(pack)(const size_t width, const mu_pack_source *source,
                                                   size_t lines, size_t k, T *packed,
                                                   size_t panel_stride)
{
    const T *from = source->data, *other = source->other;
    T scale = (T)source->scale, other_scale = (T)source->other_scale;
    bool adjacent = source->dtype == T_DTYPE && source->line_stride == 1;
    size_t run = adjacent ? RUN : k;
    bool converted = !adjacent && source->line_stride == 1;
    if (converted) {
        NAME(pack_converted)(width, source, lines, k, packed, panel_stride);
    }
    for (size_t p = 0; !converted && p < k; p += run) {
        size_t part = k - p < run ? k - p : run;
        T *to = packed + p * width;
        for (size_t line = 0; line < lines; line += width, to += panel_stride) {
            size_t here = lines - line < width ? lines - line : width;
            ptrdiff_t at = (ptrdiff_t)line * source->line_stride + (ptrdiff_t)p * source->k_stride;
            if (adjacent) {
                NAME(pack_adjacent)(width, from + at, other ? other + at : NULL, source->k_stride,
                                    scale, other_scale, here, lines - line, part, p + part < k, to);
            } else if (source->dtype == T_DTYPE && source->k_stride == 1) {
                NAME(pack_rows)(width, source->streaming, from + at, other ? other + at : NULL,
                                source->line_stride, scale, other_scale, here, part, to);
            } else {
                mu_pack_source rest = *source;
                rest.data =
                    (const char *)source->data + at * (ptrdiff_t)muonium_dtype_size(source->dtype);
                NAME(pack_staged)(width, &rest, here, part, to);
            }
        }
    }
    for (size_t l = 0; l < lines && source->shift != 0; l++) {
        ptrdiff_t p = (ptrdiff_t)l + source->diagonal;
        if (p >= 0 && p < (ptrdiff_t)k) {
            packed[l / width * panel_stride + (size_t)p * width + l % width] += (T)source->shift;
        }
    }
}

#if PAIRS
#include "matmul/kernels/pack_pairs.h"
#define PACK NAME(pack_pairs)
#else
#define PACK NAME(pack)
#endif

#if !defined(K_GROUP)
static void NAME(pack_a)(const mu_pack_source *source, size_t lines, size_t k, void *packed,
                         size_t panel_stride)
{
    PACK(MR, source, lines, k, packed, panel_stride);
}

static void NAME(pack_b)(const mu_pack_source *source, size_t lines, size_t k, void *packed,
                         size_t panel_stride)
{
    PACK(NR, source, lines, k, packed, panel_stride);
}
#endif
