/*
 * simd_portable.h: the SIMD operations of rows_template.h in the compilers' generic
 * 16-byte vectors, which every 64-bit target has.
 */
#ifndef MU_SIMD_PORTABLE_H
#define MU_SIMD_PORTABLE_H

#include <string.h>

#include "base/half.h"
#include "muonium.h"

typedef float vf_t __attribute__((vector_size(16)));
typedef double vd_t __attribute__((vector_size(16)));

static inline vf_t vf_load(const float *p)
{
    vf_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vf_store(float *p, vf_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf_t vf_set1(float x)
{
    return (vf_t){x, x, x, x};
}

static inline vf_t vf_zero(void)
{
    return (vf_t){0, 0, 0, 0};
}

static inline vf_t vf_add(vf_t a, vf_t b)
{
    return a + b;
}

static inline vf_t vf_mul(vf_t a, vf_t b)
{
    return a * b;
}

/* Two roundings: the baseline has no fused operation, and emulating one is slow. */
static inline vf_t vf_fma(vf_t a, vf_t b, vf_t c)
{
    return a * b + c;
}

static inline void vf_transpose(vf_t v[4])
{
    vf_t r0 = {v[0][0], v[1][0], v[2][0], v[3][0]};
    vf_t r1 = {v[0][1], v[1][1], v[2][1], v[3][1]};
    vf_t r2 = {v[0][2], v[1][2], v[2][2], v[3][2]};
    vf_t r3 = {v[0][3], v[1][3], v[2][3], v[3][3]};
    v[0] = r0;
    v[1] = r1;
    v[2] = r2;
    v[3] = r3;
}

static inline vf_t vf_choose(size_t n, vf_t a, vf_t b)
{
    return (vf_t){n > 0 ? a[0] : b[0], n > 1 ? a[1] : b[1], n > 2 ? a[2] : b[2],
                  n > 3 ? a[3] : b[3]};
}

static inline vf_t vf_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F64) {
        double d[4];
        memcpy(d, from, sizeof d);
        return (vf_t){(float)d[0], (float)d[1], (float)d[2], (float)d[3]};
    }
    uint16_t h[4];
    memcpy(h, from, sizeof h);
    if (dtype == MUONIUM_BF16) {
        return (vf_t){mu_f32_from_bf16(h[0]), mu_f32_from_bf16(h[1]), mu_f32_from_bf16(h[2]),
                      mu_f32_from_bf16(h[3])};
    }
    return (vf_t){mu_f32_from_f16(h[0]), mu_f32_from_f16(h[1]), mu_f32_from_f16(h[2]),
                  mu_f32_from_f16(h[3])};
}

static inline void vf_narrow(vf_t v, muonium_dtype half, void *to)
{
    uint16_t h[4];
    for (int i = 0; i < 4; i++) {
        h[i] = half == MUONIUM_BF16 ? mu_bf16_from_f32(v[i]) : mu_f16_from_f32(v[i]);
    }
    memcpy(to, h, sizeof h);
}

static inline vd_t vd_load(const double *p)
{
    vd_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vd_store(double *p, vd_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline vd_t vd_set1(double x)
{
    return (vd_t){x, x};
}

static inline vd_t vd_zero(void)
{
    return (vd_t){0, 0};
}

static inline vd_t vd_add(vd_t a, vd_t b)
{
    return a + b;
}

static inline vd_t vd_mul(vd_t a, vd_t b)
{
    return a * b;
}

static inline vd_t vd_fma(vd_t a, vd_t b, vd_t c)
{
    return a * b + c;
}

static inline void vd_transpose(vd_t v[2])
{
    vd_t r0 = {v[0][0], v[1][0]};
    vd_t r1 = {v[0][1], v[1][1]};
    v[0] = r0;
    v[1] = r1;
}

static inline vd_t vd_choose(size_t n, vd_t a, vd_t b)
{
    return (vd_t){n > 0 ? a[0] : b[0], n > 1 ? a[1] : b[1]};
}

static inline vd_t vd_widen(muonium_dtype dtype, const void *from)
{
    if (dtype == MUONIUM_F32) {
        float f[2];
        memcpy(f, from, sizeof f);
        return (vd_t){(double)f[0], (double)f[1]};
    }
    uint16_t h[2];
    memcpy(h, from, sizeof h);
    if (dtype == MUONIUM_BF16) {
        return (vd_t){(double)mu_f32_from_bf16(h[0]), (double)mu_f32_from_bf16(h[1])};
    }
    return (vd_t){(double)mu_f32_from_f16(h[0]), (double)mu_f32_from_f16(h[1])};
}

#endif
