/*
 * pack_k_groups.h: packing for tiles of a matrix unit, which read K_GROUP of k at a time: 2 VL. A
 * B-panel is that of pack_pairs.h. In an A-panel the VL pairs of a line are adjacent. No include
 * guard, on purpose.
 */

/* Lines contiguous in memory. */
static inline __attribute__((always_inline)) void NAME(pack_groups_across)(bool streaming,
                                                                           const T *restrict from,
                                                                           ptrdiff_t line_stride,
                                                                           size_t lines, size_t k,
                                                                           T *restrict packed)
{
    for (size_t p = 0; p < k; p += K_GROUP) {
        for (size_t l = 0; l < MR; l++, packed += VL) {
            const T *at = from + (ptrdiff_t)l * line_stride + (ptrdiff_t)p;
            if (streaming) {
                __builtin_prefetch(at + (ptrdiff_t)MR * line_stride);
                __builtin_prefetch(at + (ptrdiff_t)MR * line_stride + VL);
            }
            VEC(store)(packed, l < lines ? NAME(pairs_of)(at, k - p) : VEC(zero)());
        }
    }
}

/* As pack_pairs.h makes them: pairs of k by lines. */
static inline
    __attribute__((always_inline)) void NAME(transpose_groups)(const T *restrict pairs, size_t k,
                                                               T *restrict packed)
{
    for (size_t p = 0; p < k; p += K_GROUP, pairs += VL * MR, packed += VL * MR) {
        for (size_t group = 0; group < MR; group += VL) {
            V block[VL];
            MU_UNROLLED
            for (size_t i = 0; i < VL; i++) {
                block[i] = VEC(load)(pairs + i * MR + group);
            }
            VEC(transpose)(block);
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                VEC(store)(packed + (group + l) * VL, block[l]);
            }
        }
    }
}

/* Zeros in pairs of k up to a whole k-group. */
static void NAME(fill_group)(const size_t width, size_t k, T *packed)
{
    size_t pairs = (k + 1) / 2, whole = (k + K_GROUP - 1) / K_GROUP * (K_GROUP / 2);
    memset(packed + pairs * width, 0, (whole - pairs) * width * sizeof *packed);
}

static void NAME(pack_a)(const mu_pack_source *source, size_t lines, size_t k, void *packed,
                         size_t panel_stride)
{
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(source->dtype);
    bool as_is = source->dtype == T_DTYPE && source->scale == 1 && !source->other;
    bool across = as_is && source->shift == 0 && source->k_stride == 1;
    for (size_t line = 0; line < lines; line += MR) {
        size_t here = lines - line < MR ? lines - line : MR;
        T *to = (T *)packed + line / MR * (panel_stride / 2);
        mu_pack_source panel = *source;
        ptrdiff_t skip = (ptrdiff_t)line * source->line_stride * bytes;
        panel.data = (const char *)panel.data + skip;
        panel.other = panel.other ? (const char *)panel.other + skip : NULL;
        panel.diagonal += (ptrdiff_t)line;
        if (across) {
            NAME(pack_groups_across)
            (panel.streaming, panel.data, panel.line_stride, here, k, to);
            continue;
        }
        for (size_t p = 0; p < k; p += STAGE, to += STAGE / 2 * MR) {
            T pairs[STAGE / 2 * MR];
            mu_pack_source part = panel;
            size_t some = k - p < STAGE ? k - p : STAGE;
            skip = (ptrdiff_t)p * source->k_stride * bytes;
            part.data = (const char *)panel.data + skip;
            part.other = panel.other ? (const char *)panel.other + skip : NULL;
            part.diagonal -= (ptrdiff_t)p;
            NAME(pack_pairs)(MR, &part, here, some, pairs, 0);
            NAME(fill_group)(MR, some, pairs);
            NAME(transpose_groups)(pairs, some, to);
        }
    }
}

static void NAME(pack_b)(const mu_pack_source *source, size_t lines, size_t k, void *packed,
                         size_t panel_stride)
{
    NAME(pack_pairs)(NR, source, lines, k, packed, panel_stride);
    for (size_t line = 0; line < lines; line += NR) {
        NAME(fill_group)(NR, k, (T *)packed + line / NR * (panel_stride / 2));
    }
}
