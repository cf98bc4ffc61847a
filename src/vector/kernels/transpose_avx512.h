/*
 * transpose_avx512.h: 16 x 16 elements of 32 bits transposed in registers. Includes nothing: who
 * includes this has the intrinsics or an emulation of them.
 */
#ifndef MU_TRANSPOSE_AVX512_H
#define MU_TRANSPOSE_AVX512_H

static inline void mu_transpose_16x16(__m512 v[16])
{
    __m512 pair[16], quad[16];
    for (int i = 0; i < 16; i += 2) {
        pair[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    /* quad[4g + e] holds, for rows 4g..4g+3, column e of each 128-bit part. */
    for (int i = 0; i < 16; i += 4) {
        quad[i] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm512_shuffle_ps(pair[i], pair[i + 2], 0xee);
        quad[i + 2] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm512_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    for (int e = 0; e < 4; e++) {
        __m512 even01 = _mm512_shuffle_f32x4(quad[e], quad[e + 4], 0x88);
        __m512 odd01 = _mm512_shuffle_f32x4(quad[e], quad[e + 4], 0xdd);
        __m512 even23 = _mm512_shuffle_f32x4(quad[e + 8], quad[e + 12], 0x88);
        __m512 odd23 = _mm512_shuffle_f32x4(quad[e + 8], quad[e + 12], 0xdd);
        v[e] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        v[e + 4] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        v[e + 8] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        v[e + 12] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

#endif
