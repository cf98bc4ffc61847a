/*
 * emulated_avx512.c: the kernels for AVX-512, compiled against an emulation of its
 * intrinsics, so that they can be tested on any CPU. SIMDe (simd-everywhere)
 * supplies most of them. Here is what it lacks, and a multiply-add that is
 * fused, because the kernels' order and number of roundings are tested too.
 */
#include "every_kernel.h"

#if defined(__x86_64__)

#define SIMDE_NO_NATIVE /* whatever the compiler may use */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <math.h>

#include "base/half.h"

#define MU_EMULATE_AVX512

/* The two that SIMDe has are not fused, and its names are macros. */
#undef _mm512_fmadd_ps
#undef _mm512_fmadd_pd

/* These it has under its own names alone. */
#define _mm512_shuffle_f32x4 simde_mm512_shuffle_f32x4
#define _mm512_shuffle_f64x2 simde_mm512_shuffle_f64x2
typedef simde__mmask16 __mmask16;
typedef simde__mmask8 __mmask8;

static __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c)
{
    float x[16], y[16], z[16];
    _mm512_storeu_ps(x, a);
    _mm512_storeu_ps(y, b);
    _mm512_storeu_ps(z, c);
    for (int i = 0; i < 16; i++) {
        z[i] = fmaf(x[i], y[i], z[i]);
    }
    return _mm512_loadu_ps(z);
}

static __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c)
{
    double x[8], y[8], z[8];
    _mm512_storeu_pd(x, a);
    _mm512_storeu_pd(y, b);
    _mm512_storeu_pd(z, c);
    for (int i = 0; i < 8; i++) {
        z[i] = fma(x[i], y[i], z[i]);
    }
    return _mm512_loadu_pd(z);
}

static __m256 mu_fmadd_ps(__m256 a, __m256 b, __m256 c)
{
    float x[8], y[8], z[8];
    _mm256_storeu_ps(x, a);
    _mm256_storeu_ps(y, b);
    _mm256_storeu_ps(z, c);
    for (int i = 0; i < 8; i++) {
        z[i] = fmaf(x[i], y[i], z[i]);
    }
    return _mm256_loadu_ps(z);
}

static __m256d mu_fmadd_pd(__m256d a, __m256d b, __m256d c)
{
    double x[4], y[4], z[4];
    _mm256_storeu_pd(x, a);
    _mm256_storeu_pd(y, b);
    _mm256_storeu_pd(z, c);
    for (int i = 0; i < 4; i++) {
        z[i] = fma(x[i], y[i], z[i]);
    }
    return _mm256_loadu_pd(z);
}

#undef _mm256_fmadd_ps
#undef _mm256_fmadd_pd
#define _mm256_fmadd_ps mu_fmadd_ps
#define _mm256_fmadd_pd mu_fmadd_pd

static __m256 _mm512_cvtpd_ps(__m512d a)
{
    double x[8];
    float z[8];
    _mm512_storeu_pd(x, a);
    for (int i = 0; i < 8; i++) {
        z[i] = (float)x[i];
    }
    return _mm256_loadu_ps(z);
}

static __m512d _mm512_cvtps_pd(__m256 a)
{
    float x[8];
    double z[8];
    _mm256_storeu_ps(x, a);
    for (int i = 0; i < 8; i++) {
        z[i] = (double)x[i];
    }
    return _mm512_loadu_pd(z);
}

static __m512i _mm512_cvtepu16_epi32(__m256i a)
{
    uint16_t x[16];
    uint32_t z[16];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 16; i++) {
        z[i] = x[i];
    }
    return _mm512_loadu_si512(z);
}

static __m256i _mm512_cvtepi32_epi16(__m512i a)
{
    uint32_t x[16];
    uint16_t z[16];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 16; i++) {
        z[i] = (uint16_t)(x[i] & 0xffffu);
    }
    return _mm256_loadu_si256((const void *)z);
}

static __m512 _mm512_cvtph_ps(__m256i a)
{
    uint16_t x[16];
    float z[16];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 16; i++) {
        z[i] = mu_f32_from_f16(x[i]);
    }
    return _mm512_loadu_ps(z);
}

static __m256i _mm512_cvtps_ph(__m512 a, int rounding)
{
    (void)rounding; /* the kernels ask for nearest even, as half.h does */
    float x[16];
    uint16_t z[16];
    _mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i++) {
        z[i] = mu_f16_from_f32(x[i]);
    }
    return _mm256_loadu_si256((const void *)z);
}

#define mu_kernel_avx512_f32_8x48 mu_kernel_emulated_f32
#define mu_kernel_avx512_f64_8x24 mu_kernel_emulated_f64
#include "matmul/kernels/kernel_avx512.c"

#endif
