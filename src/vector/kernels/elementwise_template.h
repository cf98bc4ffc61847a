/*
 * elementwise_template.h: the element-wise kernels as plain loops, for the compiler to
 * vectorise. A file per instruction set defines NAME, the name of its line in kernels.def, and
 * includes this.
 *
 * The loops choose without branching and call nothing but sqrtf and copysignf. These are single
 * instructions as long as the build asks for neither errno nor exceptions, as base.h and CMake do.
 * All else that vectorising needs is that the arrays are distinct.
 */
#include <math.h>
#include <string.h>

#include "vector/kernels/kernels.h"

static void direction(const mu_momentum_step *step, const float *restrict g,
                      const float *restrict m, float *restrict d, size_t n)
{
    const mu_momentum_step s = *step;
    for (size_t i = 0; i < n; i++) {
        d[i] = s.of_g * g[i] + s.of_m * m[i];
    }
}

static void momentum(const mu_momentum_step *step, const float *restrict g, float *restrict m,
                     float *restrict d, size_t n)
{
    const mu_momentum_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float moved = s.decay * m[i] + s.gain * g[i];
        m[i] = moved;
        d[i] = s.of_g * g[i] + s.of_m * moved;
    }
}

/* x held to [-limit, limit]; NaN stays. */
static inline float held(float x, float limit)
{
    float below = x > limit ? limit : x;
    return below < -limit ? -limit : below;
}

static void step_muon(const mu_update_step *step, const float *restrict o, float *restrict w,
                      size_t n)
{
    const float decay = step->decay, rate = step->rate, limit = step->limit;
    if (!step->cautious) {
        for (size_t i = 0; i < n; i++) {
            w[i] = held(w[i] - (decay * w[i] + rate * o[i]), limit);
        }
        return;
    }
    const float least = step->at_zero ? 0.0f : 0x1p-149f;
    for (size_t i = 0; i < n; i++) {
        /* Not o * w, which may underflow. Where w is 0 the decay does not matter. */
        float wanted = o[i] * copysignf(1.0f, w[i]) >= least ? decay : 0.0f;
        w[i] = held(w[i] - (wanted * w[i] + rate * o[i]), limit);
    }
}

static void step_adam(const mu_adam_step *step, const float *restrict g, float *restrict m,
                      float *restrict v, float *restrict w, size_t n)
{
    const mu_adam_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float gradient = held(g[i], s.g_limit);
        float mean = s.beta1 * m[i] + s.one_minus_beta1 * gradient;
        float square = s.beta2 * v[i] + s.one_minus_beta2 * gradient * gradient;
        float numerator = s.of_m * mean + s.of_g * gradient;
        float denominator = sqrtf(square + s.root) * s.v_scale + s.eps;
        float divisor = denominator == 0.0f ? INFINITY : denominator; /* for a quotient of 0 */
        m[i] = mean;
        v[i] = square;
        w[i] = held(w[i] - (s.decay * w[i] + numerator / divisor), s.limit);
    }
}

static void step_adamuon(const mu_adamuon_step *step, float *restrict o, float *restrict v,
                         size_t n)
{
    const mu_adamuon_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float given = s.scale * o[i];
        float square = s.beta2 * v[i] + s.one_minus_beta2 * given * given;
        float denominator = sqrtf(square) * s.v_scale + s.eps;
        v[i] = square;
        o[i] = given / (denominator == 0.0f ? INFINITY : denominator);
    }
}

static void accumulate(float gain, const float *restrict g, float *restrict m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m[i] += gain * g[i];
    }
}

static void multiply_each(const float *restrict a, const float *restrict b, float *restrict to,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = a[i] * b[i];
    }
}

static void add_squares(const float *restrict x, double *restrict sums, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double wide = (double)x[i];
        sums[i] += wide * wide;
    }
}

static void add_magnitudes(const float *restrict x, double *restrict sums, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += fabs((double)x[i]);
    }
}

/* Sixteen sums, so that all instruction sets add in the same order. */
static double moved_squares(double rate, const float *restrict o, const float *restrict w, size_t n)
{
    double sums[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t l = 0; l < 16; l++) {
            double moved = (double)w[i + l] - rate * (double)o[i + l];
            sums[l] += moved * moved;
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        double moved = (double)w[i] - rate * (double)o[i];
        sums[l] += moved * moved;
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            sums[l] += sums[l + half];
        }
    }
    return sums[0];
}

/* Patterns without their sign are in the order of the magnitudes, infinities and NaN last.
 * What is missing from the pattern of 2^exponent to the place of the sign, added to a
 * pattern, carries into that place for all magnitudes from 2^exponent on and for no other.
 * Halves are looked at two at a time, as they lie in a word of 32 bits, because compilers
 * widen loops over 16 bits. */
static bool all_below(const void *x, muonium_dtype dtype, int exponent, size_t n)
{
    const bool halves = dtype != MUONIUM_F32;
    const uint32_t f16_exponent = exponent < 16 ? (uint32_t)exponent : 16; /* 16: infinite */
    const uint32_t half_unit = dtype == MUONIUM_BF16 ? 0x8000u - ((uint32_t)(exponent + 127) << 7)
                                                     : 0x8000u - ((f16_exponent + 15) << 10);
    const uint32_t unit =
        halves ? half_unit << 16 | half_unit : 0x80000000u - ((uint32_t)(exponent + 127) << 23);
    const uint32_t signs = halves ? 0x80008000u : 0x80000000u;
    const size_t words = halves ? n / 2 : n;
    const unsigned char *bytes = x;
    uint32_t carries = 0;
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, bytes + 4 * i, sizeof word);
        carries |= (word & ~signs) + unit;
    }
    if (halves && n % 2 != 0) {
        uint16_t last;
        memcpy(&last, bytes + 4 * words, sizeof last);
        carries |= (last & 0x7fffu) + half_unit;
    }
    return (carries & signs) == 0;
}

/* Patterns without their sign, as signed numbers, are in the order of the magnitudes. */
static float largest(const float *x, size_t n)
{
    int32_t most = 0;
    const unsigned char *bytes = (const unsigned char *)x;
    for (size_t i = 0; i < n; i++) {
        int32_t pattern;
        memcpy(&pattern, bytes + 4 * i, sizeof pattern);
        pattern &= 0x7fffffff;
        most = pattern > most ? pattern : most;
    }
    float result;
    memcpy(&result, &most, sizeof result);
    return result;
}

static float momentum_int8(const mu_momentum_step *step, const int8_t *restrict q, float scale,
                           const float *restrict g, float *restrict m, size_t n)
{
    const mu_momentum_step s = *step;
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        float moved = s.decay * (scale * (float)q[i]) + s.gain * g[i];
        int32_t pattern;
        memcpy(&pattern, &moved, sizeof pattern);
        pattern &= 0x7fffffff;
        most = pattern > most ? pattern : most;
        m[i] = moved;
    }
    float result;
    memcpy(&result, &most, sizeof result);
    return result;
}

static void direction_int8(const mu_momentum_step *step, const float *restrict g,
                           const float *restrict m, float inverse, float scale, int8_t *restrict q,
                           float *restrict d, size_t n)
{
    const mu_momentum_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float sum = m[i] * inverse + 0x1.8p23f; /* see quantize */
        int32_t pattern;
        memcpy(&pattern, &sum, sizeof pattern);
        q[i] = (int8_t)pattern;
        d[i] = s.of_g * g[i] + s.of_m * (scale * (sum - 0x1.8p23f));
    }
}

/* The sum with 1.5 * 2^23 has the rounded number in its last bits, in two's complement. */
static void quantize(const float *restrict x, size_t n, float inverse, int8_t *restrict q)
{
    for (size_t i = 0; i < n; i++) {
        float sum = x[i] * inverse + 0x1.8p23f;
        int32_t pattern;
        memcpy(&pattern, &sum, sizeof pattern);
        q[i] = (int8_t)pattern;
    }
}

static void dequantize(const int8_t *restrict q, size_t n, float scale, float *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * (float)q[i];
    }
}

/* Counters that are computed at the same time: several vectors, since a round waits for the one
 * before. */
enum { LANES = 64 };

/* mu_random for the counters (counter, stream + 2^54 first) and following ones. */
static void random_words(uint64_t key, uint64_t stream, uint64_t counter, size_t first,
                         uint32_t words[4][LANES])
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    uint32_t *restrict x0 = words[0], *restrict x1 = words[1], *restrict x2 = words[2],
                       *restrict x3 = words[3];
    for (size_t l = 0; l < LANES; l++) {
        x0[l] = (uint32_t)counter;
        x1[l] = (uint32_t)(counter >> 32);
        x2[l] = (uint32_t)stream;
        x3[l] = (uint32_t)(stream >> 32) + ((uint32_t)(first + l) << 22);
    }
    for (int round = 0; round < 10; round++) {
        for (size_t l = 0; l < LANES; l++) {
            uint64_t product0 = (uint64_t)0xd2511f53u * x0[l];
            uint64_t product1 = (uint64_t)0xcd9e8d57u * x2[l];
            x0[l] = (uint32_t)(product1 >> 32) ^ x1[l] ^ key0;
            x1[l] = (uint32_t)product1;
            x2[l] = (uint32_t)(product0 >> 32) ^ x3[l] ^ key1;
            x3[l] = (uint32_t)product0;
        }
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

/* 23 random bits added to a number with 23 bits of fraction, of which the fraction is dropped. */
static inline int8_t round_at_random(float x, float inverse, uint32_t word)
{
    int32_t steps = (int32_t)(x * inverse * 0x1p23f) + (int32_t)(word >> 9);
    int32_t rounded = steps >> 23;
    rounded = rounded > 127 ? 127 : rounded;
    return (int8_t)(rounded < -127 ? -127 : rounded);
}

static void quantize_stochastic(const float *restrict x, size_t n, float inverse, uint64_t key,
                                uint64_t stream, uint64_t counter, int8_t *restrict q)
{
    uint32_t words[4][LANES];
    for (size_t first = 0; first < MU_RANDOM_STRIDE && first < n; first += LANES) {
        random_words(key, stream, counter, first, words);
        for (size_t word = 0; word < 4; word++) {
            size_t at = word * MU_RANDOM_STRIDE + first;
            if (at + LANES <= n) {
                for (size_t l = 0; l < LANES; l++) {
                    q[at + l] = round_at_random(x[at + l], inverse, words[word][l]);
                }
                continue;
            }
            for (size_t l = 0; at + l < n; l++) {
                q[at + l] = round_at_random(x[at + l], inverse, words[word][l]);
            }
        }
    }
}

#define DEFINE(name_)                                                                              \
    const mu_elementwise mu_elementwise_##name_ = {                                                \
        .needs = mu_elementwise_##name_##_needs,                                                   \
        .momentum = momentum,                                                                      \
        .direction = direction,                                                                    \
        .update = step_muon,                                                                       \
        .adam = step_adam,                                                                         \
        .adamuon = step_adamuon,                                                                   \
        .accumulate = accumulate,                                                                  \
        .multiply = multiply_each,                                                                 \
        .add_squares = add_squares,                                                                \
        .add_magnitudes = add_magnitudes,                                                          \
        .moved_squares = moved_squares,                                                            \
        .all_below = all_below,                                                                    \
        .largest = largest,                                                                        \
        .momentum_int8 = momentum_int8,                                                            \
        .direction_int8 = direction_int8,                                                          \
        .quantize = quantize,                                                                      \
        .quantize_stochastic = quantize_stochastic,                                                \
        .dequantize = dequantize,                                                                  \
        .round_stochastic = mu_round_stochastic,                                                   \
    };
#define DEFINE_EXPANDED(name_) DEFINE(name_)
DEFINE_EXPANDED(NAME)
