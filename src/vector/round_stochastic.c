/*
 * round_stochastic.c: rounding f32 to bf16 or f16 up or down at random.
 *
 * Without the sign, the bit patterns of a half type number its values in order of size. A
 * magnitude lies between two patterns. It is written as a fixed-point number: the lower
 * pattern, and 32 bits of fraction of the way to the next. Adding 32 random bits and dropping
 * the fraction rounds up with the right probability. Patterns are consecutive across
 * exponents, so there is no special case for those.
 */
#include "base/half.h"
#include "base/random.h"
#include "vector/kernels/kernels.h"

/* A magnitude, given as the f32 pattern without its sign, as described above. */
static uint64_t in_steps_of_bf16(uint32_t magnitude)
{
    return (uint64_t)magnitude << 16;
}

static uint64_t in_steps_of_f16(uint32_t magnitude)
{
    if (magnitude >= 0x38800000u) { /* normal in f16: from 2^-14 */
        return (uint64_t)(magnitude - (112u << 23)) << 19;
    }
    /* Denormal: multiples of 2^-24. What is below 2^-56, denormals of f32 among it, is 0. */
    uint32_t exponent = magnitude >> 23;
    uint64_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    return exponent >= 71 ? (significand << 32) >> (126 - exponent) : 0;
}

typedef struct half_type {
    uint64_t (*in_steps)(uint32_t magnitude);
    uint16_t (*nearest)(float value);
    uint32_t largest; /* finite value, as an f32 pattern */
} half_type;

static const half_type bf16 = {in_steps_of_bf16, mu_bf16_from_f32, 0x7f7f0000u};
static const half_type f16 = {in_steps_of_f16, mu_f16_from_f32, 0x477fe000u};

static inline uint16_t round_one(float value, half_type type, uint32_t word)
{
    uint32_t bits = mu_bits_of_f32(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > type.largest) { /* NaN too */
        return type.nearest(value);
    }
    uint64_t steps = type.in_steps(magnitude) + word;
    return (uint16_t)(((bits >> 16) & 0x8000u) | (uint32_t)(steps >> 32));
}

/* Inline, with a constant type, so that no element costs an indirect call. */
static inline void round_all(const float *restrict x, size_t n, half_type type, uint64_t key,
                             uint64_t stream, uint64_t first, uint16_t *restrict to)
{
    size_t i = 0;
    while (i < n) {
        uint32_t words[4];
        mu_random(key, (first + i) / 4, stream, words);
        for (size_t word = (first + i) % 4; word < 4 && i < n; word++, i++) {
            to[i] = round_one(x[i], type, words[word]);
        }
    }
}

void mu_round_stochastic(const float *x, size_t n, muonium_dtype half, uint64_t key,
                         uint64_t stream, uint64_t first, uint16_t *to)
{
    if (half == MUONIUM_BF16) {
        round_all(x, n, bf16, key, stream, first, to);
    } else {
        round_all(x, n, f16, key, stream, first, to);
    }
}
