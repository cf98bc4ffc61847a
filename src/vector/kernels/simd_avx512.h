/*
 * simd_avx512.h: the SIMD operations of rows_template.h for AVX-512 F, DQ, BW, VL.
 *
 * Tests on CPUs without AVX-512 compile the kernel against an emulation of these
 * intrinsics; they then define MU_EMULATE and provide the include.
 */
#ifndef MU_SIMD_AVX512_H
#define MU_SIMD_AVX512_H

#ifndef MU_EMULATE
#include <immintrin.h>
#endif

#include "muonium.h"
#include "vector/kernels/transpose_avx512.h"

typedef __m512 vf_t;
typedef __m512d vd_t;

static inline vf_t vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf_t v)
{
    _mm512_storeu_ps(p, v);
}

static inline vf_t vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf_t vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf_t vf_add(vf_t a, vf_t b)
{
    return _mm512_add_ps(a, b);
}

static inline vf_t vf_mul(vf_t a, vf_t b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf_t vf_fma(vf_t a, vf_t b, vf_t c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline void vf_transpose(vf_t v[16])
{
    mu_transpose_16x16(v);
}

static inline vf_t vf_choose(size_t n, vf_t a, vf_t b)
{
    return _mm512_mask_mov_ps(b, (__mmask16)((1u << n) - 1), a);
}

static inline vf_t vf_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F64) {
        const double *d = from;
        __m256 low = _mm512_cvtpd_ps(_mm512_loadu_pd(d));
        __m256 high = _mm512_cvtpd_ps(_mm512_loadu_pd(d + 8));
        return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    }
    __m256i half = _mm256_loadu_si256(from);
    if (dtype == MUONIUM_BF16) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    return _mm512_cvtph_ps(half);
}

static inline void vf_narrow(vf_t v, muonium_dtype half, void *to)
{
    if (half == MUONIUM_F16) {
        /* Without optimisation gcc's intrinsic is a macro that has a mask of -1. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
        _mm256_storeu_si256(to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#pragma GCC diagnostic pop
        return;
    }
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i bias = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
}

static inline vd_t vd_load(const double *p)
{
    return _mm512_loadu_pd(p);
}

static inline void vd_store(double *p, vd_t v)
{
    _mm512_storeu_pd(p, v);
}

static inline vd_t vd_set1(double x)
{
    return _mm512_set1_pd(x);
}

static inline vd_t vd_zero(void)
{
    return _mm512_setzero_pd();
}

static inline vd_t vd_add(vd_t a, vd_t b)
{
    return _mm512_add_pd(a, b);
}

static inline vd_t vd_mul(vd_t a, vd_t b)
{
    return _mm512_mul_pd(a, b);
}

static inline vd_t vd_fma(vd_t a, vd_t b, vd_t c)
{
    return _mm512_fmadd_pd(a, b, c);
}

static inline void vd_transpose(vd_t v[8])
{
    vd_t pair[8];
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm512_unpacklo_pd(v[i], v[i + 1]);
        pair[i + 1] = _mm512_unpackhi_pd(v[i], v[i + 1]);
    }
    for (int e = 0; e < 2; e++) {
        vd_t even01 = _mm512_shuffle_f64x2(pair[e], pair[e + 2], 0x88);
        vd_t odd01 = _mm512_shuffle_f64x2(pair[e], pair[e + 2], 0xdd);
        vd_t even23 = _mm512_shuffle_f64x2(pair[e + 4], pair[e + 6], 0x88);
        vd_t odd23 = _mm512_shuffle_f64x2(pair[e + 4], pair[e + 6], 0xdd);
        v[e] = _mm512_shuffle_f64x2(even01, even23, 0x88);
        v[e + 2] = _mm512_shuffle_f64x2(odd01, odd23, 0x88);
        v[e + 4] = _mm512_shuffle_f64x2(even01, even23, 0xdd);
        v[e + 6] = _mm512_shuffle_f64x2(odd01, odd23, 0xdd);
    }
}

static inline vd_t vd_choose(size_t n, vd_t a, vd_t b)
{
    return _mm512_mask_mov_pd(b, (__mmask8)((1u << n) - 1), a);
}

static inline vd_t vd_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F32) {
        return _mm512_cvtps_pd(_mm256_loadu_ps(from));
    }
    __m128i half = _mm_loadu_si128(from);
    if (dtype == MUONIUM_BF16) {
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
        return _mm512_cvtps_pd(_mm256_castsi256_ps(bits));
    }
    return _mm512_cvtps_pd(_mm256_cvtph_ps(half));
}

/* ---- vectors half as long, for the half tile of the micro-kernels ---- */

typedef __m256 hf_t;
typedef __m256d hd_t;

static inline hf_t hf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void hf_store(float *p, hf_t v)
{
    _mm256_storeu_ps(p, v);
}

static inline hf_t hf_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline hf_t hf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline hf_t hf_add(hf_t a, hf_t b)
{
    return _mm256_add_ps(a, b);
}

static inline hf_t hf_fma(hf_t a, hf_t b, hf_t c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline hd_t hd_load(const double *p)
{
    return _mm256_loadu_pd(p);
}

static inline void hd_store(double *p, hd_t v)
{
    _mm256_storeu_pd(p, v);
}

static inline hd_t hd_set1(double x)
{
    return _mm256_set1_pd(x);
}

static inline hd_t hd_zero(void)
{
    return _mm256_setzero_pd();
}

static inline hd_t hd_add(hd_t a, hd_t b)
{
    return _mm256_add_pd(a, b);
}

static inline hd_t hd_fma(hd_t a, hd_t b, hd_t c)
{
    return _mm256_fmadd_pd(a, b, c);
}

#endif
