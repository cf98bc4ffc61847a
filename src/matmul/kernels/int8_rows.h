/*
 * int8_rows.h: packing and ends of tiles of 32 x 32 with AVX-512, for a kernel whose micropanels
 * hold blocks of 16 lines by 64 k: of A by lines, of B by groups of four k. Lines are read along k.
 *
 * The same operations as in int8_template.h, rounded alike, which this follows.
 */
enum { LANES = 16, BLOCK_K = 4 * GROUPS, BLOCK_BYTES = LANES * BLOCK_K };

INLINE __mmask16 first_lanes(size_t n)
{
    unsigned mask = n >= LANES ? 0xffff : (1u << n) - 1;
    return (__mmask16)mask;
}

/* BLOCK_K elements of a line; those beyond k are 0. */
INLINE void read_block(const mu_digit_source *s, size_t line, size_t k0, size_t k, __m512 to[4])
{
    size_t n = k0 < k ? k - k0 : 0;
    ptrdiff_t at = (ptrdiff_t)line * s->line_stride + (ptrdiff_t)k0;
    const float *data = s->data + at, *other = s->other ? s->other + at : NULL;
    __m512 scale = _mm512_set1_ps(s->scale), other_scale = _mm512_set1_ps(s->other_scale);
    if (n >= BLOCK_K) {
        MU_UNROLLED
        for (size_t v = 0; v < 4; v++) {
            to[v] = _mm512_mul_ps(scale, _mm512_loadu_ps(data + v * LANES));
        }
        MU_UNROLLED
        for (size_t v = 0; v < 4 && other; v++) {
            __m512 more = _mm512_mul_ps(other_scale, _mm512_loadu_ps(other + v * LANES));
            to[v] = _mm512_add_ps(to[v], more);
        }
    } else {
        MU_UNROLLED
        for (size_t v = 0; v < 4; v++) {
            __mmask16 mask = first_lanes(n > v * LANES ? n - v * LANES : 0);
            to[v] = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(mask, data + v * LANES));
            if (other) {
                __m512 more = _mm512_maskz_loadu_ps(mask, other + v * LANES);
                to[v] = _mm512_add_ps(to[v], _mm512_mul_ps(other_scale, more));
            }
        }
    }
    ptrdiff_t place = (ptrdiff_t)line + s->offset - (ptrdiff_t)k0;
    if (place >= 0 && place < BLOCK_K && (size_t)place < n && s->diagonal != 0) {
        uint64_t lane = (uint64_t)1 << place;
        __m512 diagonal = _mm512_set1_ps(s->diagonal);
        MU_UNROLLED
        for (size_t v = 0; v < 4; v++) {
            __mmask16 mask = (__mmask16)(lane >> v * LANES & 0xffff);
            to[v] = _mm512_mask_mov_ps(to[v], mask, _mm512_sub_ps(to[v], diagonal));
        }
    }
}

static void largest_of_rows(const mu_digit_source *s, size_t lines, size_t k, uint32_t *bits)
{
    if (s->k_stride != 1) {
        largest_of_lines(s, lines, k, bits);
        return;
    }
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    for (size_t line = 0; line < lines; line++) {
        __m512i most[4];
        MU_UNROLLED
        for (size_t v = 0; v < 4; v++) {
            most[v] = _mm512_setzero_si512();
        }
        for (size_t k0 = 0; k0 < k; k0 += BLOCK_K) {
            __m512 x[4];
            read_block(s, line, k0, k, x);
            MU_UNROLLED
            for (size_t v = 0; v < 4; v++) {
                __m512i m = _mm512_and_si512(_mm512_castps_si512(x[v]), magnitude_bits);
                most[v] = _mm512_max_epi32(most[v], m);
            }
        }
        most[0] = _mm512_max_epi32(_mm512_max_epi32(most[0], most[1]),
                                   _mm512_max_epi32(most[2], most[3]));
        most[0] = _mm512_max_epi32(most[0], _mm512_shuffle_i32x4(most[0], most[0], 0x4e));
        most[0] = _mm512_max_epi32(most[0], _mm512_shuffle_i32x4(most[0], most[0], 0xb1));
        __m128i four = _mm512_castsi512_si128(most[0]);
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
        bits[line] = (uint32_t)_mm_cvtsi128_si32(four);
    }
}

/* ---- digits ---- */

/* The digits of BLOCK_K elements of a line: digit[d] has one byte per element. */
INLINE void split_block(int digits, const mu_digit_source *s, size_t line, size_t k0, size_t k,
                        float unit, __m512i digit[3])
{
    __m512 x[4];
    __m512i t[4];
    read_block(s, line, k0, k, x);
    const __m512i bias = _mm512_set1_epi32(0x808080);
    /* In every 128-bit part: byte 0 of its four words, then bytes 1, then bytes 2. */
    const __m512i by_byte =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    MU_UNROLLED
    for (size_t v = 0; v < 4; v++) {
        __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x[v], _mm512_set1_ps(unit)));
        t[v] = _mm512_xor_si512(_mm512_add_epi32(rounded, bias), bias);
        t[v] = _mm512_shuffle_epi8(t[v], by_byte);
    }
    /* Bytes 0 of two vectors, then their bytes 1; and the bytes 2 of two vectors. */
    const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i high =
        _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 2, 6, 10, 14, 18, 22, 26, 30);
    __m512i a = _mm512_permutex2var_epi32(t[0], low, t[1]);
    __m512i b = _mm512_permutex2var_epi32(t[2], low, t[3]);
    digit[digits - 1] = _mm512_shuffle_i32x4(a, b, 0x44);
    digit[digits - 2] = _mm512_shuffle_i32x4(a, b, 0xee);
    if (digits == 3) {
        a = _mm512_permutex2var_epi32(t[0], high, t[1]);
        b = _mm512_permutex2var_epi32(t[2], high, t[3]);
        digit[0] = _mm512_shuffle_i32x4(a, b, 0x44);
    }
}

/* The blocks of 16 lines from `first` on by BLOCK_K k, one for each digit, `stride` bytes apart. */
INLINE void split_lines_of(int digits, const mu_digit_source *s, size_t first, size_t lines,
                           size_t k0, size_t k, const float *unit, char *to, size_t stride)
{
    for (size_t line = 0; line < LANES; line++) {
        __m512i digit[3];
        MU_UNROLLED
        for (size_t d = 0; d < 3; d++) {
            digit[d] = _mm512_setzero_si512();
        }
        if (first + line < lines && k0 < k) {
            split_block(digits, s, first + line, k0, k, unit[first + line], digit);
        }
        MU_UNROLLED
        for (size_t d = 0; d < 3; d++) {
            if (d < (size_t)digits) {
                _mm512_storeu_si512(to + d * stride + line * BLOCK_K, digit[d]);
            }
        }
    }
}

/* A block of A as one of B, or the other way round. */
INLINE void transpose_block(const char *from, char *to)
{
    __m512 v[LANES];
    MU_UNROLLED
    for (size_t i = 0; i < LANES; i++) {
        v[i] = _mm512_castsi512_ps(_mm512_loadu_si512(from + i * BLOCK_K));
    }
    mu_transpose_16x16(v);
    MU_UNROLLED
    for (size_t i = 0; i < LANES; i++) {
        _mm512_storeu_si512(to + i * BLOCK_K, _mm512_castps_si512(v[i]));
    }
}

INLINE void pack_rows_of_a(int digits, const mu_digit_source *s, size_t lines, size_t k,
                           size_t groups, const float *unit, char *to)
{
    for (size_t panel = 0; panel < lines; panel += MR) {
        for (size_t k0 = 0; k0 < 4 * groups; k0 += BLOCK_K) {
            for (size_t first = 0; first < MR; first += LANES) {
                split_lines_of(digits, s, panel + first, lines, k0, k, unit, to + first * BLOCK_K,
                               MR / LANES * BLOCK_BYTES);
            }
            to += (size_t)digits * MR / LANES * BLOCK_BYTES;
        }
    }
}

static void pack_rows(int digits, const mu_digit_source *s, size_t lines, size_t k, size_t groups,
                      const float *unit, void *packed)
{
    if (digits == 3) {
        pack_rows_of_a(3, s, lines, k, groups, unit, packed);
    } else {
        pack_rows_of_a(2, s, lines, k, groups, unit, packed);
    }
}

INLINE void pack_rows_of_b(int digits, const mu_digit_source *s, size_t lines, size_t k,
                           size_t groups, const float *unit, char *to)
{
    char blocks[MU_MAX_DIGITS * BLOCK_BYTES];
    for (size_t panel = 0; panel < lines; panel += NR) {
        for (size_t k0 = 0; k0 < 4 * groups; k0 += BLOCK_K) {
            for (size_t first = 0; first < NR; first += LANES) {
                split_lines_of(digits, s, panel + first, lines, k0, k, unit, blocks, BLOCK_BYTES);
                for (size_t d = 0; d < (size_t)digits; d++) {
                    transpose_block(blocks + d * BLOCK_BYTES,
                                    to + (d * NR + first) / LANES * BLOCK_BYTES);
                }
            }
            to += (size_t)digits * NR / LANES * BLOCK_BYTES;
        }
    }
}

static void pack_b(int digits, const mu_digit_source *s, size_t lines, size_t k, size_t groups,
                   const float *unit, void *packed)
{
    if (s->k_stride != 1) {
        pack_columns(digits, s, lines, k, groups, unit, packed);
    } else if (digits == 3) {
        pack_rows_of_b(3, s, lines, k, groups, unit, packed);
    } else {
        pack_rows_of_b(2, s, lines, k, groups, unit, packed);
    }
}

static void transpose_panel(int digits, size_t groups, const void *a, void *b)
{
    size_t bytes = 4 * groups * MR * (size_t)digits;
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        transpose_block((const char *)a + at, (char *)b + at);
    }
}

/* ---- the end of a tile ---- */

/* The elements of a row that the mask has; the others are 0. `whole`: it has all, and the stride is
 * 1. */
INLINE __m512 read_part(const float *from, ptrdiff_t stride, __mmask16 mask, bool whole)
{
    if (whole) {
        return _mm512_loadu_ps(from);
    }
    if (stride == 1) {
        return _mm512_maskz_loadu_ps(mask, from);
    }
    float elements[LANES] = {0};
    for (size_t j = 0; j < LANES && mask >> j & 1; j++) {
        elements[j] = from[(ptrdiff_t)j * stride];
    }
    return _mm512_loadu_ps(elements);
}

INLINE void write_part(float *to, __mmask16 mask, bool whole, __m512 value)
{
    if (whole) {
        _mm512_storeu_ps(to, value);
    } else {
        _mm512_mask_storeu_ps(to, mask, value);
    }
}

/* Row i of the end of a tile; `whole`: of all columns, which are adjacent in every term. */
INLINE void end_row(const mu_tile_end *end, size_t i, bool whole)
{
    enum { PARTS = NR / LANES };
    const mu_fixed_epilogue *f = &end->f;
    ptrdiff_t row = (ptrdiff_t)i;
    const __m512 fraction = _mm512_set1_ps(1.0f / 256);
    const __m512 row_unit = _mm512_set1_ps(end->row_unit[i]);
    const int32_t *s = end->sums + i * NR;
    __m512 value[PARTS];
    __mmask16 mask[PARTS];
    MU_UNROLLED
    for (size_t v = 0; v < PARTS; v++) {
        size_t j = v * LANES;
        mask[v] = whole ? (__mmask16)0xffff : first_lanes(end->cols > j ? end->cols - j : 0);
        __m512 s0 = _mm512_cvtepi32_ps(_mm512_loadu_si512(s + j));
        __m512 s1 = _mm512_cvtepi32_ps(_mm512_loadu_si512(s + MR * NR + j));
        __m512 s2 = _mm512_cvtepi32_ps(_mm512_loadu_si512(s + 2 * MR * NR + j));
        __m512 low = _mm512_add_ps(s1, _mm512_mul_ps(s2, fraction));
        value[v] = _mm512_add_ps(s0, _mm512_mul_ps(low, fraction));
        value[v] = _mm512_mul_ps(value[v], row_unit);
        value[v] = _mm512_mul_ps(value[v], read_part(end->col_unit + j, 1, mask[v], whole));
    }
    if (f->before) {
        MU_UNROLLED
        for (size_t v = 0; v < PARTS; v++) {
            const float *before = f->before + row * f->before_ld + v * LANES;
            value[v] = _mm512_add_ps(value[v], read_part(before, 1, mask[v], whole));
        }
    }
    for (size_t t = 0; t < f->term_count; t++) {
        ptrdiff_t stride = whole ? 1 : f->terms[t].col_stride;
        const float *term = f->terms[t].data + row * f->terms[t].row_stride;
        const __m512 factor = _mm512_set1_ps(f->terms[t].factor);
        MU_UNROLLED
        for (size_t v = 0; v < PARTS; v++) {
            __m512 other =
                read_part(term + (ptrdiff_t)(v * LANES) * stride, stride, mask[v], whole);
            value[v] = _mm512_add_ps(value[v], _mm512_mul_ps(factor, other));
        }
    }
    ptrdiff_t place = row + f->offset;
    if (f->shift != 0 && place >= 0 && place < NR) {
        uint64_t lane = (uint64_t)1 << place;
        MU_UNROLLED
        for (size_t v = 0; v < PARTS; v++) {
            __m512 more = _mm512_add_ps(value[v], _mm512_set1_ps(f->shift));
            __mmask16 here = (__mmask16)(lane >> v * LANES & 0xffff);
            value[v] = _mm512_mask_mov_ps(value[v], here, more);
        }
    }
    MU_UNROLLED
    for (size_t v = 0; v < PARTS; v++) {
        write_part(end->c + row * end->ldc + v * LANES, mask[v], whole, value[v]);
    }
    if (f->sum) {
        float *sum = f->sum + row * f->sum_ld;
        MU_UNROLLED
        for (size_t v = 0; v < PARTS; v++) {
            value[v] = _mm512_mul_ps(_mm512_set1_ps(f->sum_factor), value[v]);
            if (f->accumulate) {
                value[v] = _mm512_add_ps(read_part(sum + v * LANES, 1, mask[v], whole), value[v]);
            }
            write_part(sum + v * LANES, mask[v], whole, value[v]);
        }
    }
}

/* The mirror image of 16 rows of a whole tile. */
INLINE void mirror_rows(const mu_tile_end *end, size_t i)
{
    const mu_fixed_epilogue *f = &end->f;
    const float *from = f->mirror_sum ? f->sum : end->c;
    ptrdiff_t ld = f->mirror_sum ? f->sum_ld : end->ldc;
    for (size_t j = 0; j < NR; j += LANES) {
        __m512 v[LANES];
        MU_UNROLLED
        for (size_t l = 0; l < LANES; l++) {
            v[l] = _mm512_loadu_ps(from + (ptrdiff_t)(i + l) * ld + j);
        }
        mu_transpose_16x16(v);
        MU_UNROLLED
        for (size_t l = 0; l < LANES; l++) {
            _mm512_storeu_ps(f->mirror + (ptrdiff_t)(j + l) * f->mirror_ld + i, v[l]);
        }
    }
}

INLINE bool is_whole(const mu_tile_end *end)
{
    bool whole = end->cols == NR;
    for (size_t t = 0; t < end->f.term_count; t++) {
        whole = whole && end->f.terms[t].col_stride == 1;
    }
    return whole;
}

/* Rows [begin, end) of the end of a tile. */
static __attribute__((noinline)) void end_rows(const mu_tile_end *of, size_t begin, size_t end,
                                               bool whole)
{
    for (size_t i = begin; i < end && i < of->rows; i++) {
        if (whole) {
            end_row(of, i, true);
        } else {
            end_row(of, i, false);
        }
        if (of->f.mirror && i % LANES == LANES - 1) {
            mirror_rows(of, i + 1 - LANES);
        }
    }
}

static void combine(const mu_tile_end *end)
{
    end_rows(end, 0, MR, is_whole(end));
}

/* Ask for rows [begin, end) of what the end of a tile reads. */
static __attribute__((noinline)) void prefetch_rows(const mu_tile_end *of, size_t begin, size_t end)
{
    const mu_fixed_epilogue *f = &of->f;
    for (size_t i = begin; i < end && i < of->rows; i++) {
        ptrdiff_t row = (ptrdiff_t)i;
        for (size_t t = 0; t < f->term_count; t++) {
            const float *term = f->terms[t].data + row * f->terms[t].row_stride;
            __builtin_prefetch(term);
            __builtin_prefetch(term + LANES);
        }
        if (f->sum) {
            __builtin_prefetch(f->sum + row * f->sum_ld, 1);
            __builtin_prefetch(f->sum + row * f->sum_ld + LANES, 1);
        }
        __builtin_prefetch(of->c + row * of->ldc, 1);
        __builtin_prefetch(of->c + row * of->ldc + LANES, 1);
    }
}
