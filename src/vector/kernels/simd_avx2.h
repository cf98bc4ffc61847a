/*
 * simd_avx2.h: the SIMD operations of rows_template.h for AVX2, FMA and F16C.
 */
#ifndef MU_SIMD_AVX2_H
#define MU_SIMD_AVX2_H

#include <immintrin.h>

#include "muonium.h"

typedef __m256 vf_t;
typedef __m256d vd_t;

static inline vf_t vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vf_store(float *p, vf_t v)
{
    _mm256_storeu_ps(p, v);
}

static inline vf_t vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf_t vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf_t vf_add(vf_t a, vf_t b)
{
    return _mm256_add_ps(a, b);
}

static inline vf_t vf_mul(vf_t a, vf_t b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf_t vf_fma(vf_t a, vf_t b, vf_t c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline void vf_transpose(vf_t v[8])
{
    vf_t pair[8], quad[8];
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

static inline vf_t vf_choose(size_t n, vf_t a, vf_t b)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i chosen = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(chosen));
}

static inline vf_t vf_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F64) {
        const double *d = from;
        __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(d));
        __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd(d + 4));
        return _mm256_set_m128(high, low);
    }
    __m128i half = _mm_loadu_si128(from);
    if (dtype == MUONIUM_BF16) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
    return _mm256_cvtph_ps(half);
}

static inline void vf_narrow(vf_t v, muonium_dtype half, void *to)
{
    if (half == MUONIUM_F16) {
        _mm_storeu_si128(to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i word = _mm256_blendv_epi8(rounded, quiet, nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(word, word), 0x08);
    _mm_storeu_si128(to, _mm256_castsi256_si128(packed));
}

static inline vd_t vd_load(const double *p)
{
    return _mm256_loadu_pd(p);
}

static inline void vd_store(double *p, vd_t v)
{
    _mm256_storeu_pd(p, v);
}

static inline vd_t vd_set1(double x)
{
    return _mm256_set1_pd(x);
}

static inline vd_t vd_zero(void)
{
    return _mm256_setzero_pd();
}

static inline vd_t vd_add(vd_t a, vd_t b)
{
    return _mm256_add_pd(a, b);
}

static inline vd_t vd_mul(vd_t a, vd_t b)
{
    return _mm256_mul_pd(a, b);
}

static inline vd_t vd_fma(vd_t a, vd_t b, vd_t c)
{
    return _mm256_fmadd_pd(a, b, c);
}

static inline void vd_transpose(vd_t v[4])
{
    vd_t low01 = _mm256_unpacklo_pd(v[0], v[1]), high01 = _mm256_unpackhi_pd(v[0], v[1]);
    vd_t low23 = _mm256_unpacklo_pd(v[2], v[3]), high23 = _mm256_unpackhi_pd(v[2], v[3]);
    v[0] = _mm256_permute2f128_pd(low01, low23, 0x20);
    v[1] = _mm256_permute2f128_pd(high01, high23, 0x20);
    v[2] = _mm256_permute2f128_pd(low01, low23, 0x31);
    v[3] = _mm256_permute2f128_pd(high01, high23, 0x31);
}

static inline vd_t vd_choose(size_t n, vd_t a, vd_t b)
{
    __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    __m256i chosen = _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), lane);
    return _mm256_blendv_pd(b, a, _mm256_castsi256_pd(chosen));
}

static inline vd_t vd_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F32) {
        return _mm256_cvtps_pd(_mm_loadu_ps(from));
    }
    __m128i half = _mm_loadl_epi64(from);
    if (dtype == MUONIUM_BF16) {
        __m128i bits = _mm_slli_epi32(_mm_cvtepu16_epi32(half), 16);
        return _mm256_cvtps_pd(_mm_castsi128_ps(bits));
    }
    return _mm256_cvtps_pd(_mm_cvtph_ps(half));
}

#endif
