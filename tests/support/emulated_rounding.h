/*
 * emulated_rounding.h: what SIMDe lacks and several emulations need.
 */
#ifndef MUONIUM_EMULATED_ROUNDING_H
#define MUONIUM_EMULATED_ROUNDING_H

#include <math.h>

static __m512i _mm512_cvtps_epi32(__m512 a)
{
    float x[16];
    int32_t z[16];
    _mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i++) {
        bool fits = x[i] > -0x1p31f && x[i] < 0x1p31f;
        z[i] = fits ? (int32_t)rintf(x[i]) : INT32_MIN; /* as the instruction */
    }
    return _mm512_loadu_si512(z);
}

#endif
