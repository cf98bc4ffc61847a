/*
 * random.c: Philox 4x32 with 10 rounds, and normals by Box and Muller.
 *
 * A round multiplies two of the four words by odd constants, keeps both halves
 * of the products and mixes the upper ones with the remaining words and the
 * key; the key then advances along two Weyl sequences.
 */
#include "base/random.h"

#include <math.h>

enum { ROUNDS = 10 };

void mu_random(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t words[4])
{
    const uint64_t multiplier0 = 0xd2511f53u, multiplier1 = 0xcd9e8d57u;
    const uint32_t golden_ratio = 0x9e3779b9u, root_of_three = 0xbb67ae85u;

    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product0 = multiplier0 * x0;
        uint64_t product1 = multiplier1 * x2;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)product1;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)product0;
        key0 += golden_ratio;
        key1 += root_of_three;
    }
    words[0] = x0;
    words[1] = x1;
    words[2] = x2;
    words[3] = x3;
}

double mu_random_unit(uint32_t word)
{
    return word * 0x1p-32;
}

/* The upper 53 of 64 random bits, as many as a double holds. */
static double upper_53_bits(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11);
}

void mu_random_normal(const uint32_t words[4], double pair[2])
{
    const double two_pi = 6.283185307179586476925286766559;

    /* The radius comes from (0, 1], where the logarithm is finite. */
    double radius = sqrt(-2.0 * log((upper_53_bits(words[0], words[1]) + 1.0) * 0x1p-53));
    double angle = two_pi * (upper_53_bits(words[2], words[3]) * 0x1p-53);
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}
