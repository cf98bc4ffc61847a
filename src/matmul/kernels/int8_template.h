/*
 * int8_template.h: digits, packing and the epilogue of fixed-point products as plain loops, which
 * every instruction set compiles for itself. Before the include a kernel defines
 *
 *     MR, NR              the tile
 *     A_LINES, B_LINES    L of the two layouts, see int8.h; by default MR and NR
 *     GROUPS              G; by default 1
 *     BIAS                128 if digits of B are stored plus 128; by default 0
 *     VL                  lanes of a vector vf_t, whose operations it includes
 *     PACK_A, PACK_B, LARGEST, COMBINE
 *                         functions of its own, if any; the first three together
 *
 * Products and sums are rounded one by one: the sources are compiled without contraction.
 */
#include <math.h>
#include <string.h>

#include "matmul/int8.h"
#include "vector/kernels/unroll.h"

#if !defined(A_LINES)
#define A_LINES MR
#define B_LINES NR
#define GROUPS 1
#endif
#if !defined(BIAS)
#define BIAS 0
#endif

/* What a kernel may have of its own. */
#if !defined(PACK_A)
#define PACK_A pack_a
#define PACK_B pack_columns
#define LARGEST largest_of_lines
#endif

#define INLINE static inline __attribute__((always_inline))

/* Elements read at a time along a line, and the lines of a buffer: whole vectors. */
enum { RUN = 64, WIDTH = MR > NR ? (MR > VL ? MR : VL) : (NR > VL ? NR : VL) };

/* ---- reading ---- */

/* to[i] = the n elements from (line, k) on, along the direction in which they are adjacent. */
INLINE void read_run(const mu_digit_source *s, size_t line, size_t k, size_t n, float *restrict to)
{
    ptrdiff_t at = (ptrdiff_t)line * s->line_stride + (ptrdiff_t)k * s->k_stride;
    const float *restrict data = s->data + at;
    float scale = s->scale, other_scale = s->other_scale;
    if (s->other) {
        const float *restrict other = s->other + at;
        for (size_t i = 0; i < n; i++) {
            to[i] = scale * data[i] + other_scale * other[i];
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            to[i] = scale * data[i];
        }
    }
    ptrdiff_t place = s->line_stride == 1 ? (ptrdiff_t)k - s->offset - (ptrdiff_t)line
                                          : (ptrdiff_t)line + s->offset - (ptrdiff_t)k;
    if (s->diagonal != 0 && place >= 0 && (size_t)place < n) {
        to[place] -= s->diagonal;
    }
}

INLINE size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* to[i][line] = element (line, k0 + i) of up to VL lines and n <= RUN elements, where k is
 * adjacent. Rows of `to` are WIDTH apart; VL elements of each are written. */
INLINE void read_transposed(const mu_digit_source *s, size_t first, size_t lines, size_t k0,
                            size_t n, float *to)
{
    float rows[VL][RUN];
    for (size_t line = 0; line < VL; line++) {
        if (line < lines && n == RUN) {
            read_run(s, first + line, k0, RUN, rows[line]);
        } else {
            memset(rows[line], 0, sizeof rows[line]);
            read_run(s, first + line, k0, line < lines ? n : 0, rows[line]);
        }
    }
    for (size_t k = 0; k < RUN; k += VL) {
        vf_t v[VL];
        MU_UNROLLED
        for (size_t line = 0; line < VL; line++) {
            v[line] = vf_load(&rows[line][k]);
        }
        vf_transpose(v);
        MU_UNROLLED
        for (size_t i = 0; i < VL; i++) {
            vf_store(to + (k + i) * WIDTH, v[i]);
        }
    }
}

/* ---- the largest magnitude of each line ---- */

INLINE int32_t magnitude(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

static void largest_of_lines(const mu_digit_source *s, size_t lines, size_t k, uint32_t *bits)
{
    float run[RUN];
    int32_t most[RUN];
    if (s->line_stride == 1) {
        for (size_t first = 0; first < lines; first += RUN) {
            size_t n = lines - first < RUN ? lines - first : RUN;
            memset(most, 0, sizeof most);
            memset(run, 0, sizeof run);
            for (size_t i = 0; i < k; i++) {
                if (n == RUN) {
                    read_run(s, first, i, RUN, run);
                } else {
                    read_run(s, first, i, n, run);
                }
                for (size_t j = 0; j < RUN; j++) {
                    int32_t m = magnitude(run[j]);
                    most[j] = m > most[j] ? m : most[j];
                }
            }
            memcpy(bits + first, most, n * sizeof *bits);
        }
        return;
    }
    for (size_t line = 0; line < lines; line++) {
        memset(most, 0, sizeof most);
        for (size_t first = 0; first < k; first += RUN) {
            size_t n = k - first < RUN ? k - first : RUN;
            if (n == RUN) {
                read_run(s, line, first, RUN, run);
            } else {
                memset(run, 0, sizeof run);
                read_run(s, line, first, n, run);
            }
            for (size_t j = 0; j < RUN; j++) {
                int32_t m = magnitude(run[j]);
                most[j] = m > most[j] ? m : most[j];
            }
        }
        int32_t all = 0;
        for (size_t j = 0; j < RUN; j++) {
            all = most[j] > all ? most[j] : all;
        }
        bits[line] = (uint32_t)all;
    }
}

/* ---- digits ---- */

/* x * unit rounded to an integer, as bytes that hold its digits plus 128 each. Adding 128 to every
 * digit makes them plain bytes: nothing is borrowed from the next. */
INLINE uint32_t biased(float x, float unit)
{
    return (uint32_t)(int32_t)rintf(x * unit) + 0x808080u;
}

/* Four k of `width` lines: rows[i] + line is k = i. Writes D words per line. */
INLINE void pack_group(size_t width, size_t block, int digits, const float *const rows[4],
                       const float *restrict unit, uint32_t flip, uint32_t *const to[3],
                       size_t block_stride)
{
    const float *restrict r0 = rows[0], *restrict r1 = rows[1], *restrict r2 = rows[2],
                          *restrict r3 = rows[3];
    for (size_t first = 0; first < width; first += block) {
        uint32_t *restrict q0 = to[0] + first / block * block_stride;
        uint32_t *restrict q1 = to[1] + first / block * block_stride;
        uint32_t *restrict q2 = to[2] + first / block * block_stride;
        for (size_t j = 0; j < block; j++) {
            size_t line = first + j;
            uint32_t t0 = biased(r0[line], unit[line]), t1 = biased(r1[line], unit[line]);
            uint32_t t2 = biased(r2[line], unit[line]), t3 = biased(r3[line], unit[line]);
            /* Bytes 0 and 2 of pairs of k, then byte 1. */
            uint32_t even01 = (t0 & 0xff00ffu) | (t1 & 0xff00ffu) << 8;
            uint32_t even23 = (t2 & 0xff00ffu) | (t3 & 0xff00ffu) << 8;
            uint32_t odd01 = (t0 >> 8 & 0xffu) | (t1 & 0xff00u);
            uint32_t odd23 = (t2 >> 8 & 0xffu) | (t3 & 0xff00u);
            uint32_t low = (even01 & 0xffffu) | even23 << 16;
            uint32_t middle = odd01 | odd23 << 16;
            if (digits == 3) {
                q0[j] = (even01 >> 16 | (even23 & 0xffff0000u)) ^ flip;
                q1[j] = middle ^ flip;
                q2[j] = low ^ flip;
            } else {
                q0[j] = middle ^ flip;
                q1[j] = low ^ flip;
            }
        }
    }
}

INLINE void pack_panel(size_t width, size_t block, uint8_t bias, int digits,
                       const mu_digit_source *s, size_t lines, size_t k, size_t groups,
                       const float *unit, void *packed)
{
    uint32_t *words = packed, flip = (bias ^ 128u) * 0x01010101u;
    float buffer[RUN][WIDTH], units[WIDTH] = {0};
    memcpy(units, unit, lines * sizeof *unit);
    bool across = s->line_stride == 1; /* lines are adjacent */
    bool direct = across && lines == width && s->scale == 1 && !s->other;
    memset(buffer, 0, sizeof buffer);
    for (size_t first = 0; first < groups; first += RUN / 4) {
        size_t k0 = 4 * first, here = k0 < k ? (k - k0 < RUN ? k - k0 : RUN) : 0;
        size_t most = groups - first < RUN / 4 ? groups - first : RUN / 4;
        /* Whether the diagonal passes through these k. */
        bool diagonal = s->diagonal != 0 && s->offset < (ptrdiff_t)(k0 + RUN) &&
                        s->offset + (ptrdiff_t)width > (ptrdiff_t)k0;
        bool whole = direct && here == RUN && !diagonal;
        if (!whole) {
            if (here < RUN) {
                memset(buffer, 0, sizeof buffer);
            }
            if (across) {
                for (size_t i = 0; i < here; i++) {
                    if (lines == width) {
                        read_run(s, 0, k0 + i, width, buffer[i]);
                    } else {
                        read_run(s, 0, k0 + i, lines, buffer[i]);
                    }
                }
            } else {
                for (size_t line = 0; line < lines; line += VL) {
                    read_transposed(s, line, least(VL, lines - line), k0, here, &buffer[0][line]);
                }
            }
        }
        for (size_t g = first; g < first + most; g++) {
            const float *rows[4];
            uint32_t *to[3];
            for (size_t i = 0; i < 4; i++) {
                size_t at = 4 * g + i;
                rows[i] = whole ? s->data + (ptrdiff_t)at * s->k_stride : buffer[at - k0];
            }
            for (int d = 0; d < 3; d++) {
                int digit = d < digits ? d : 0;
                to[d] = words + ((g / GROUPS) * (size_t)digits + (size_t)digit) * width * GROUPS +
                        g % GROUPS * block;
            }
            pack_group(width, block, digits, rows, units, flip, to, block * GROUPS);
        }
    }
}

/* A source from a line on. */
INLINE mu_digit_source from_line(const mu_digit_source *s, size_t line)
{
    mu_digit_source part = *s;
    ptrdiff_t at = (ptrdiff_t)line * s->line_stride;
    part.data += at;
    part.other = s->other ? s->other + at : NULL;
    part.offset += (ptrdiff_t)line;
    return part;
}

INLINE void pack_panels(size_t width, size_t block, uint8_t bias, int digits,
                        const mu_digit_source *s, size_t lines, size_t k, size_t groups,
                        const float *unit, void *packed)
{
    char *to = packed;
    for (size_t line = 0; line < lines; line += width, to += 4 * groups * width * (size_t)digits) {
        mu_digit_source part = from_line(s, line);
        pack_panel(width, block, bias, digits, &part, least(width, lines - line), k, groups,
                   unit + line, to);
    }
}

#if A_LINES == MR
static void pack_a(int digits, const mu_digit_source *s, size_t lines, size_t k, size_t groups,
                   const float *unit, void *packed)
{
    if (digits == 3) {
        pack_panels(MR, A_LINES, 0, 3, s, lines, k, groups, unit, packed);
    } else {
        pack_panels(MR, A_LINES, 0, 2, s, lines, k, groups, unit, packed);
    }
}
#endif

static void pack_columns(int digits, const mu_digit_source *s, size_t lines, size_t k,
                         size_t groups, const float *unit, void *packed)
{
    if (digits == 3) {
        pack_panels(NR, B_LINES, BIAS, 3, s, lines, k, groups, unit, packed);
    } else {
        pack_panels(NR, B_LINES, BIAS, 2, s, lines, k, groups, unit, packed);
    }
}

/* ---- the end of a tile ---- */

#if !defined(COMBINE)
#define COMBINE combine

/* A row of a tile, in registers. */
typedef float row_f32 __attribute__((vector_size(NR * sizeof(float)), aligned(4), may_alias));
typedef int32_t row_int __attribute__((vector_size(NR * sizeof(float)), aligned(4), may_alias));

/* The `cols` elements that exist of a row, the others being 0. Vectors are not returned: without
 * AVX there is no calling convention for them. */
INLINE void read_row(const float *from, ptrdiff_t stride, size_t cols, row_f32 *row)
{
    if (stride == 1 && cols == NR) {
        *row = *(const row_f32 *)from;
        return;
    }
    float elements[NR] = {0};
    for (size_t j = 0; j < cols; j++) {
        elements[j] = from[(ptrdiff_t)j * stride];
    }
    *row = *(const row_f32 *)elements;
}

INLINE void write_row(float *to, size_t cols, const row_f32 *row)
{
    if (cols == NR) {
        *(row_f32 *)to = *row;
        return;
    }
    float elements[NR];
    memcpy(elements, row, sizeof elements);
    memcpy(to, elements, cols * sizeof *to);
}

static void combine(const mu_tile_end *end)
{
    const mu_fixed_epilogue *f = &end->f;
    size_t cols = end->cols;
    row_f32 units, other;
    read_row(end->col_unit, 1, cols, &units);
    for (size_t i = 0; i < end->rows; i++) {
        ptrdiff_t row = (ptrdiff_t)i;
        const row_int *s = (const row_int *)(end->sums + i * NR);
        row_f32 low = __builtin_convertvector(s[MR], row_f32) +
                      __builtin_convertvector(s[2 * MR], row_f32) * (1.0f / 256);
        row_f32 value = __builtin_convertvector(s[0], row_f32) + low * (1.0f / 256);
        value = value * end->row_unit[i] * units;
        if (f->before) {
            read_row(f->before + row * f->before_ld, 1, cols, &other);
            value += other;
        }
        for (size_t t = 0; t < f->term_count; t++) {
            const float *term = f->terms[t].data + row * f->terms[t].row_stride;
            read_row(term, f->terms[t].col_stride, cols, &other);
            value += f->terms[t].factor * other;
        }
        ptrdiff_t place = row + f->offset;
        if (f->shift != 0 && place >= 0 && (size_t)place < cols) {
            float elements[NR];
            memcpy(elements, &value, sizeof elements);
            elements[place] += f->shift;
            memcpy(&value, elements, sizeof elements);
        }
        write_row(end->c + row * end->ldc, cols, &value);
        if (f->sum) {
            float *sum = f->sum + row * f->sum_ld;
            value *= f->sum_factor;
            if (f->accumulate) {
                read_row(sum, 1, cols, &other);
                value += other;
            }
            write_row(sum, cols, &value);
        }
    }
}
#endif

/* The object of a line INT8_KERNEL(name_, ...), and what differs from the defaults. Emulations in
 * the tests have names of their own. */
#if !defined(MU_INT8_NAME)
#define MU_INT8_NAME(name_) mu_int8_##name_
#define INT8_KERNEL(name_, set, mr, nr)                                                            \
    enum { name_##_needs = MU_NEEDS_##set, name_##_mr = mr, name_##_nr = nr };
#include "matmul/kernels/int8.def"
#undef INT8_KERNEL
#else
#define INT8_KERNEL(name_, set, mr, nr)                                                            \
    enum { name_##_needs = 0, name_##_mr = mr, name_##_nr = nr };
#include "matmul/kernels/int8.def"
#undef INT8_KERNEL
#endif

#define MU_INT8_KERNEL(name_, ...)                                                                 \
    _Static_assert((int)name_##_mr == MR && (int)name_##_nr == NR, "int8.def has another tile");   \
    extern const mu_int8_kernel MU_INT8_NAME(name_);                                               \
    const mu_int8_kernel MU_INT8_NAME(name_) = {.name = #name_,                                    \
                                                .needs = name_##_needs,                            \
                                                .mr = name_##_mr,                                  \
                                                .nr = name_##_nr,                                  \
                                                .groups = GROUPS,                                  \
                                                .tile = tile,                                      \
                                                .largest = LARGEST,                                \
                                                .pack_a = PACK_A,                                  \
                                                .pack_b = PACK_B,                                  \
                                                .combine = COMBINE,                                \
                                                __VA_ARGS__};
