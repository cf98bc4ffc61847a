/*
 * int8_lanes.h: packing with AVX-512 for kernels whose words of a group lie side by side: 16 lines
 * at a time, if they are adjacent in memory. Other lines are left to int8_template.h, whose
 * operations these are, rounded alike.
 */
enum { LANES = 16, GROUP_OF_LANES = 4 };

/* Elements k of 16 lines from `first` on. */
INLINE __m512 read_lanes(const mu_digit_source *s, size_t first, size_t k)
{
    ptrdiff_t at = (ptrdiff_t)first + (ptrdiff_t)k * s->k_stride;
    __m512 x = _mm512_mul_ps(_mm512_set1_ps(s->scale), _mm512_loadu_ps(s->data + at));
    if (s->other) {
        __m512 other = _mm512_loadu_ps(s->other + at);
        x = _mm512_add_ps(x, _mm512_mul_ps(_mm512_set1_ps(s->other_scale), other));
    }
    ptrdiff_t lane = (ptrdiff_t)k - s->offset - (ptrdiff_t)first;
    if (lane >= 0 && lane < LANES && s->diagonal != 0) {
        float elements[LANES];
        _mm512_storeu_ps(elements, x);
        elements[lane] -= s->diagonal;
        x = _mm512_loadu_ps(elements);
    }
    return x;
}

/* So many lines that start whole vectors can be read. */
INLINE size_t lanes_of(const mu_digit_source *s, size_t lines)
{
    return s->line_stride == 1 ? lines / LANES * LANES : 0;
}

/* The largest magnitudes of `count` vectors of lines. */
INLINE void largest_of_vectors(const mu_digit_source *s, size_t count, size_t first, size_t k,
                               uint32_t *bits)
{
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    __m512i most[GROUP_OF_LANES];
    MU_UNROLLED
    for (size_t v = 0; v < count; v++) {
        most[v] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i < k; i++) {
        MU_UNROLLED
        for (size_t v = 0; v < count; v++) {
            __m512i x = _mm512_castps_si512(read_lanes(s, first + v * LANES, i));
            most[v] = _mm512_max_epi32(most[v], _mm512_and_si512(x, magnitude_bits));
        }
    }
    MU_UNROLLED
    for (size_t v = 0; v < count; v++) {
        _mm512_storeu_si512(bits + v * LANES, most[v]);
    }
}

static void largest_of_lanes(const mu_digit_source *s, size_t lines, size_t k, uint32_t *bits)
{
    size_t whole = lanes_of(s, lines), line = 0;
    for (; line + GROUP_OF_LANES * LANES <= whole; line += GROUP_OF_LANES * LANES) {
        largest_of_vectors(s, GROUP_OF_LANES, line, k, bits + line);
    }
    for (; line < whole; line += LANES) {
        largest_of_vectors(s, 1, line, k, bits + line);
    }
    if (line < lines) {
        mu_digit_source rest = from_line(s, line);
        largest_of_lines(&rest, lines - line, k, bits + line);
    }
}

/* Words of digits plus 128 of four k, from numbers t that have 128 added to every byte. */
INLINE void words_of(int digits, const __m512i t[4], __m512i word[3])
{
    const __m512i even = _mm512_set1_epi32(0xff00ff), low = _mm512_set1_epi32(0xff);
    const __m512i next = _mm512_set1_epi32(0xff00), half = _mm512_set1_epi32(0xffff);
    __m512i even01 = _mm512_or_si512(_mm512_and_si512(t[0], even),
                                     _mm512_slli_epi32(_mm512_and_si512(t[1], even), 8));
    __m512i even23 = _mm512_or_si512(_mm512_and_si512(t[2], even),
                                     _mm512_slli_epi32(_mm512_and_si512(t[3], even), 8));
    __m512i odd01 = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(t[0], 8), low),
                                    _mm512_and_si512(t[1], next));
    __m512i odd23 = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(t[2], 8), low),
                                    _mm512_and_si512(t[3], next));
    word[digits - 1] =
        _mm512_or_si512(_mm512_and_si512(even01, half), _mm512_slli_epi32(even23, 16));
    word[digits - 2] = _mm512_or_si512(odd01, _mm512_slli_epi32(odd23, 16));
    if (digits == 3) {
        word[0] = _mm512_or_si512(_mm512_srli_epi32(even01, 16), _mm512_andnot_si512(half, even23));
    }
}

/* 16 lines, which are LANES / width micropanels of `bytes` bytes. */
INLINE void pack_lanes(size_t width, uint8_t bias, int digits, const mu_digit_source *s,
                       size_t first, size_t k, size_t groups, const float *unit, char *to,
                       size_t bytes)
{
    const __m512 units = _mm512_loadu_ps(unit + first);
    const __m512i zero = _mm512_set1_epi32(0x808080);
    const __m512i flip = _mm512_set1_epi32((int)((bias ^ 128u) * 0x01010101u));
    for (size_t g = 0; g < groups; g++) {
        __m512i t[4], word[3];
        MU_UNROLLED
        for (size_t i = 0; i < 4; i++) {
            t[i] = zero;
            if (4 * g + i < k) {
                __m512 x = _mm512_mul_ps(read_lanes(s, first, 4 * g + i), units);
                t[i] = _mm512_add_epi32(_mm512_cvtps_epi32(x), zero);
            }
        }
        words_of(digits, t, word);
        MU_UNROLLED
        for (size_t d = 0; d < 3; d++) {
            if (d >= (size_t)digits) {
                break;
            }
            char *at = to + (g * (size_t)digits + d) * 4 * width;
            word[d] = _mm512_xor_si512(word[d], flip);
            if (width == LANES) {
                _mm512_storeu_si512(at, word[d]);
            } else {
                _mm256_storeu_si256((void *)at, _mm512_castsi512_si256(word[d]));
                _mm256_storeu_si256((void *)(at + bytes), _mm512_extracti64x4_epi64(word[d], 1));
            }
        }
    }
}

/* All whole vectors of lines, then the rest by `others`. */
INLINE void pack_all_lanes(size_t width, uint8_t bias, int digits, const mu_digit_source *s,
                           size_t lines, size_t k, size_t groups, const float *unit, void *packed,
                           mu_pack_digits *others)
{
    size_t whole = lanes_of(s, lines), line_bytes = 4 * groups * (size_t)digits;
    for (size_t line = 0; line < whole; line += LANES) {
        char *to = (char *)packed + line * line_bytes;
        if (digits == 3) {
            pack_lanes(width, bias, 3, s, line, k, groups, unit, to, width * line_bytes);
        } else {
            pack_lanes(width, bias, 2, s, line, k, groups, unit, to, width * line_bytes);
        }
    }
    if (whole < lines) {
        mu_digit_source rest = from_line(s, whole);
        others(digits, &rest, lines - whole, k, groups, unit + whole,
               (char *)packed + whole * line_bytes);
    }
}

static void pack_lanes_of_a(int digits, const mu_digit_source *s, size_t lines, size_t k,
                            size_t groups, const float *unit, void *packed)
{
    pack_all_lanes(MR, 0, digits, s, lines, k, groups, unit, packed, pack_a);
}

static void pack_lanes_of_b(int digits, const mu_digit_source *s, size_t lines, size_t k,
                            size_t groups, const float *unit, void *packed)
{
    pack_all_lanes(NR, BIAS, digits, s, lines, k, groups, unit, packed, pack_columns);
}
