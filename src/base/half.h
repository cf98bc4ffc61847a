/*
 * half.h: bf16 and f16 as bit patterns, one element at a time. Exact both ways:
 * widening changes no value, narrowing rounds to nearest, ties to even,
 * overflows to infinity as IEEE 754 does, goes through denormals correctly and
 * keeps NaN a NaN (quiet, with the top of its payload and its sign).
 */
#ifndef MU_HALF_H
#define MU_HALF_H

#include <stdint.h>
#include <string.h>

#include "muonium.h"

static inline uint32_t mu_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mu_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float mu_f32_from_bf16(uint16_t half)
{
    return mu_f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t mu_bf16_from_f32(float value)
{
    uint32_t bits = mu_bits_of_f32(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x0040u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float mu_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) { /* infinity or NaN; NaN becomes quiet as in hardware */
        uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
        return mu_f32_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet);
    }
    if (magnitude >= 0x0400u) { /* normal: rebias the exponent from 15 to 127 */
        return mu_f32_of_bits(sign | ((magnitude << 13) + (112u << 23)));
    }
    /* Denormal: magnitude * 2^-24, exact in f32. */
    float value = (float)magnitude * 0x1p-24f;
    return mu_f32_of_bits(sign | mu_bits_of_f32(value));
}

static inline uint16_t mu_f16_from_f32(float value)
{
    uint32_t bits = mu_bits_of_f32(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* from 65520 on, rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >= 0x38800000u) { /* normal in f16: from 2^-14 */
        uint32_t rebiased = magnitude - (112u << 23);
        return (uint16_t)(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
    }
    /* Denormal or zero: adding 0.5 aligns the last bit of an f16 denormal, 2^-24,
     * with the last bit of the sum, so that the addition itself rounds. */
    float sum = mu_f32_of_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (mu_bits_of_f32(sum) - 0x3f000000u));
}

/* The same for either half type: MUONIUM_BF16 or MUONIUM_F16. */
static inline float mu_f32_from_half(muonium_dtype type, uint16_t half)
{
    return type == MUONIUM_BF16 ? mu_f32_from_bf16(half) : mu_f32_from_f16(half);
}

static inline uint16_t mu_half_from_f32(muonium_dtype type, float value)
{
    return type == MUONIUM_BF16 ? mu_bf16_from_f32(value) : mu_f16_from_f32(value);
}

#endif
