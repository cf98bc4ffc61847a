/*
 * emulated_avx512.c: the kernels for AVX-512 and AVX512-BF16, compiled against an emulation of
 * their intrinsics, so that they can be tested on any CPU. SIMDe (simd-everywhere)
 * supplies most of them. Here is what it lacks, and a multiply-add that is
 * fused, because the kernels' order and number of roundings are tested too.
 */
/* Whether or not the compiler knows these instructions. */
#define MU_HAVE_AVX512_BF16

#include "every_kernel.h"

#if defined(__x86_64__)

#define SIMDE_NO_NATIVE /* whatever the compiler may use */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <math.h>

#include "base/half.h"

#define MU_EMULATE

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

/* The names of the objects. */
#define mu_rows_avx512_f32 mu_rows_emulated_f32
#define mu_rows_avx512_f64 mu_rows_emulated_f64
#define mu_kernel_avx512_f32_8x32 mu_kernel_emulated_f32
#define mu_kernel_avx512_f64_8x16 mu_kernel_emulated_f64
#define mu_kernel_avx512_bf16_8x32 mu_kernel_emulated_bf16
#define mu_burst_avx512_f32_8x32 mu_burst_emulated_f32
#define mu_burst_avx512_f64_8x16 mu_burst_emulated_f64
#define mu_burst_avx512_bf16_8x32 mu_burst_emulated_bf16

#include "vector/kernels/rows_avx512.c"
#undef T
#undef T_DTYPE
#undef T_BITS
#undef VEC
#undef VL
#undef NAME

#include "matmul/kernels/kernel_avx512.c"

/* What a second file of kernels defines again. */
#include "matmul/kernels/undefine.h"
#undef PAIRS
#undef BY_HAND

/* ---- AVX512-BF16 ---- */

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* As the instruction: the upper halves first, everything rounded to nearest. */
static void multiply_pairs(size_t n, const float *a, const float *b, float *sums)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x = mu_bits_of_f32(a[i]), y = mu_bits_of_f32(b[i]);
        float high = flushed(mu_f32_of_bits(x & 0xffff0000u));
        float low = flushed(mu_f32_of_bits(x << 16));
        float sum = flushed(sums[i]);
        sum = flushed(fmaf(high, flushed(mu_f32_of_bits(y & 0xffff0000u)), sum));
        sums[i] = flushed(fmaf(low, flushed(mu_f32_of_bits(y << 16)), sum));
    }
}

static vf_t vf_fma_pairs(vf_t a, vf_t b, vf_t c)
{
    float x[16], y[16], z[16];
    vf_store(x, a);
    vf_store(y, b);
    vf_store(z, c);
    multiply_pairs(16, x, y, z);
    return vf_load(z);
}

static hf_t hf_fma_pairs(hf_t a, hf_t b, hf_t c)
{
    float x[8], y[8], z[8];
    hf_store(x, a);
    hf_store(y, b);
    hf_store(z, c);
    multiply_pairs(8, x, y, z);
    return hf_load(z);
}

static vf_t vf_load_first(size_t n, const float *from)
{
    float x[16] = {0};
    memcpy(x, from, n * sizeof *x);
    return vf_load(x);
}

static void vf_store_low(float *to, vf_t v)
{
    float x[16];
    vf_store(x, v);
    memcpy(to, x, 8 * sizeof *x);
}

static void vf_store_high(float *to, vf_t v)
{
    float x[16];
    vf_store(x, v);
    memcpy(to, x + 8, 8 * sizeof *x);
}

static float pair_of(float first, float second)
{
    uint32_t high = mu_bf16_from_f32(flushed(first)), low = mu_bf16_from_f32(flushed(second));
    return mu_f32_of_bits(high << 16 | low);
}

static vf_t vf_pairs_along(vf_t v, vf_t w)
{
    float x[32], z[16];
    vf_store(x, v);
    vf_store(x + 16, w);
    for (int i = 0; i < 16; i++) {
        z[i] = pair_of(x[2 * i], x[2 * i + 1]);
    }
    return vf_load(z);
}

static vf_t vf_pairs_across(vf_t v, vf_t w)
{
    float x[16], y[16];
    vf_store(x, v);
    vf_store(y, w);
    for (int i = 0; i < 16; i++) {
        x[i] = pair_of(x[i], y[i]);
    }
    return vf_load(x);
}

#include "matmul/kernels/kernel_avx512_bf16.c"

/* ---- AMX-BF16 ---- */

#include "matmul/kernels/undefine.h"
#undef PAIRS
#undef BY_HAND

#include "emulated_tiles.h"

static void multiply_bf16_tiles(int c, int a, int b)
{
    for (size_t i = 0; i < TILE_ROWS; i++) {
        for (size_t j = 0; j < TILE_ROWS; j++) {
            float sums[2] = {0, 0}, sum;
            for (size_t k = 0; k < 2 * TILE_ROWS; k++) {
                uint16_t x, y;
                memcpy(&x, tiles[a].byte[i] + 2 * k, sizeof x);
                memcpy(&y, tiles[b].byte[k / 2] + 4 * j + 2 * (k % 2), sizeof y);
                float left = flushed(mu_f32_from_bf16(x)), right = flushed(mu_f32_from_bf16(y));
                sums[k % 2] = flushed(fmaf(left, right, sums[k % 2]));
            }
            memcpy(&sum, tiles[c].byte[i] + 4 * j, sizeof sum);
            sum = flushed(flushed(sums[0] + sums[1]) + flushed(sum));
            memcpy(tiles[c].byte[i] + 4 * j, &sum, sizeof sum);
        }
    }
}

#if !defined(MU_HAVE_AMX)
#define MU_HAVE_AMX
enum { MU_NEEDS_amx = MU_CPU_AMX_TILE, amx_bf16_32x32_needs = MU_NEEDS_amx };
enum { amx_bf16_32x32_mr = 32, amx_bf16_32x32_nr = 32, amx_bf16_32x32_grain = 16 };
enum { amx_bf16_32x32_kc = 256, amx_bf16_32x32_unpacked_b = 0 };
enum { amx_bf16_32x32_b_pass_bytes = 1 << 20 };
#endif
#define _tile_dpbf16ps(c, a, b) multiply_bf16_tiles(c, a, b)
#define mu_kernel_amx_bf16_32x32 mu_kernel_emulated_amx
#define mu_burst_amx_bf16_32x32 mu_burst_emulated_amx
#include "matmul/kernels/kernel_amx_bf16.c"

#endif
