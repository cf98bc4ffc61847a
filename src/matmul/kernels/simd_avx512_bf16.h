/*
 * simd_avx512_bf16.h: what AVX512-BF16 adds to simd_avx512.h: products of pairs, and packing
 * them (pack_pairs.h). The first k of a pair is its upper half, because
 * the instruction adds the product of that one first. Subnormal numbers count as zero.
 *
 * Tests on CPUs without it define MU_EMULATE and supply the functions themselves.
 */
#ifndef MU_SIMD_AVX512_BF16_H
#define MU_SIMD_AVX512_BF16_H

#include "vector/kernels/simd_avx512.h"

#ifndef MU_EMULATE

static inline vf_t vf_fma_pairs(vf_t a, vf_t b, vf_t c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}

static inline hf_t hf_fma_pairs(hf_t a, hf_t b, hf_t c)
{
    return _mm256_dpbf16_ps(c, (__m256bh)_mm256_castps_si256(a), (__m256bh)_mm256_castps_si256(b));
}

static inline vf_t vf_load_first(size_t n, const float *from)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}

static inline void vf_store_low(float *to, vf_t v)
{
    _mm256_storeu_ps(to, _mm512_castps512_ps256(v));
}

static inline void vf_store_high(float *to, vf_t v)
{
    _mm256_storeu_ps(to, _mm512_extractf32x8_ps(v, 1));
}

static inline vf_t vf_pairs_along(vf_t v, vf_t w)
{
    __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(w, v);
    return _mm512_castsi512_ps(_mm512_rol_epi32(pairs, 16));
}

static inline vf_t vf_pairs_across(vf_t v, vf_t w)
{
    /* Element 2i is lane i of w, 2i + 1 is lane i of v. */
    __m512i low = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                   7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(v, w);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(low, pairs));
}

#endif

#endif
