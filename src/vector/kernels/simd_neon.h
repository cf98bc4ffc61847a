/*
 * simd_neon.h: the SIMD operations of rows_template.h for 64-bit Arm. Conversions of f16 are part
 * of NEON. A file defines MU_NEON_BF16 if its CPU also rounds to bf16 by an instruction.
 */
#ifndef MU_SIMD_NEON_H
#define MU_SIMD_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "muonium.h"

typedef float32x4_t vf_t;
typedef float64x2_t vd_t;

static inline vf_t vf_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void vf_store(float *p, vf_t v)
{
    vst1q_f32(p, v);
}

static inline vf_t vf_set1(float x)
{
    return vdupq_n_f32(x);
}

static inline vf_t vf_zero(void)
{
    return vdupq_n_f32(0);
}

static inline vf_t vf_add(vf_t a, vf_t b)
{
    return vaddq_f32(a, b);
}

static inline vf_t vf_mul(vf_t a, vf_t b)
{
    return vmulq_f32(a, b);
}

static inline vf_t vf_fma(vf_t a, vf_t b, vf_t c)
{
    return vfmaq_f32(c, a, b);
}

static inline vd_t vd_of_f32(vf_t v)
{
    return vreinterpretq_f64_f32(v);
}

static inline vf_t vf_of_f64(vd_t v)
{
    return vreinterpretq_f32_f64(v);
}

static inline void vf_transpose(vf_t v[4])
{
    vd_t even01 = vd_of_f32(vtrn1q_f32(v[0], v[1])), odd01 = vd_of_f32(vtrn2q_f32(v[0], v[1]));
    vd_t even23 = vd_of_f32(vtrn1q_f32(v[2], v[3])), odd23 = vd_of_f32(vtrn2q_f32(v[2], v[3]));
    v[0] = vf_of_f64(vtrn1q_f64(even01, even23));
    v[1] = vf_of_f64(vtrn1q_f64(odd01, odd23));
    v[2] = vf_of_f64(vtrn2q_f64(even01, even23));
    v[3] = vf_of_f64(vtrn2q_f64(odd01, odd23));
}

static inline vf_t vf_choose(size_t n, vf_t a, vf_t b)
{
    static const uint32_t lanes[4] = {0, 1, 2, 3};
    uint32x4_t chosen = vcltq_u32(vld1q_u32(lanes), vdupq_n_u32((uint32_t)n));
    return vbslq_f32(chosen, a, b);
}

/* Four halves from any address. */
static inline uint16x4_t four_halves(const void *from)
{
    return vreinterpret_u16_u8(vld1_u8(from));
}

static inline vf_t vf_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F64) {
        const double *d = from;
        return vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(d)), vld1q_f64(d + 2));
    }
    uint16x4_t half = four_halves(from);
    if (dtype == MUONIUM_BF16) {
        return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
    }
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}

static inline uint16x4_t bf16_of(vf_t v)
{
#if defined(MU_NEON_BF16)
    uint16x4_t half; /* by assembly: a return value of type bfloat16x4_t needs newer compilers */
    __asm__("bfcvtn %0.4h, %1.4s" : "=w"(half) : "w"(v));
    return half;
#else
    uint32x4_t bits = vreinterpretq_u32_f32(v), high = vshrq_n_u32(bits, 16);
    uint32x4_t bias = vaddq_u32(vdupq_n_u32(0x7fff), vandq_u32(high, vdupq_n_u32(1)));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, bias), 16);
    uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet));
#endif
}

static inline void vf_narrow(vf_t v, muonium_dtype half, void *to)
{
    uint16x4_t bits = half == MUONIUM_F16 ? vreinterpret_u16_f16(vcvt_f16_f32(v)) : bf16_of(v);
    vst1_u8(to, vreinterpret_u8_u16(bits));
}

static inline vd_t vd_load(const double *p)
{
    return vld1q_f64(p);
}

static inline void vd_store(double *p, vd_t v)
{
    vst1q_f64(p, v);
}

static inline vd_t vd_set1(double x)
{
    return vdupq_n_f64(x);
}

static inline vd_t vd_zero(void)
{
    return vdupq_n_f64(0);
}

static inline vd_t vd_add(vd_t a, vd_t b)
{
    return vaddq_f64(a, b);
}

static inline vd_t vd_mul(vd_t a, vd_t b)
{
    return vmulq_f64(a, b);
}

static inline vd_t vd_fma(vd_t a, vd_t b, vd_t c)
{
    return vfmaq_f64(c, a, b);
}

static inline void vd_transpose(vd_t v[2])
{
    vd_t even = vtrn1q_f64(v[0], v[1]), odd = vtrn2q_f64(v[0], v[1]);
    v[0] = even;
    v[1] = odd;
}

static inline vd_t vd_choose(size_t n, vd_t a, vd_t b)
{
    static const uint64_t lanes[2] = {0, 1};
    uint64x2_t chosen = vcltq_u64(vld1q_u64(lanes), vdupq_n_u64((uint64_t)n));
    return vbslq_f64(chosen, a, b);
}

static inline vd_t vd_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F32) {
        return vcvt_f64_f32(vld1_f32(from));
    }
    uint32_t two;
    memcpy(&two, from, sizeof two);
    uint16x4_t half = vreinterpret_u16_u32(vdup_n_u32(two));
    float32x4_t wide = dtype == MUONIUM_BF16 ? vreinterpretq_f32_u32(vshll_n_u16(half, 16))
                                             : vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vcvt_f64_f32(vget_low_f32(wide));
}

#endif
