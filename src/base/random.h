/*
 * random.h: a counter-based generator (Philox 4x32, 10 rounds; Salmon et al.,
 * SC 2011). The numbers are a pure function of key and counter: element i of a
 * tensor at step t gets the same bits whoever computes it, in whatever order.
 */
#ifndef MU_RANDOM_H
#define MU_RANDOM_H

#include <stdint.h>

/* Four random words for counter (counter_low, counter_high) under `key`, each
 * number entering with its low half first. */
void mu_random(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t words[4]);

/* A double in [0, 1) from 32 bits: word * 2^-32, exactly. */
double mu_random_unit(uint32_t word);

/* A pair of independent standard normals from four words. They come from the C
 * library's logarithm and sines, so their last bits may differ between systems. */
void mu_random_normal(const uint32_t words[4], double pair[2]);

#endif
