/*
 * test_round_stochastic.c: rounding to half types at random: which way each random word
 * takes a value, that the mean is right, and that the work can be divided anywhere.
 */
#include "test.h"

#include <math.h>

#include "base/half.h"
#include "base/random.h"
#include "vector/elementwise.h"

/* One piece of code serves the kernels of all instruction sets. */
static void round_stochastic(const float *x, size_t n, muonium_dtype half, uint64_t key,
                             uint64_t stream, uint64_t first, uint16_t *to)
{
    mu_elementwise_at(0)->round_stochastic(x, n, half, key, stream, first, to);
}

typedef struct half_type {
    muonium_dtype dtype;
    float (*widen)(uint16_t half);
    uint16_t (*nearest)(float value);
    float largest;
} half_type;

static const half_type half_types[] = {
    {MUONIUM_BF16, mu_f32_from_bf16, mu_bf16_from_f32, 0x1.fep127f},
    {MUONIUM_F16, mu_f32_from_f16, mu_f16_from_f32, 65504.0f},
};

/* The largest half that is no greater than a magnitude within the type's range. */
static uint16_t below(const half_type *type, float magnitude)
{
    uint16_t half = type->nearest(magnitude);
    return type->widen(half) > magnitude ? (uint16_t)(half - 1) : half;
}

/* How far a magnitude lies from the half below it to the next, from 0 to 1. */
static double fraction_above(const half_type *type, float magnitude)
{
    uint16_t half = below(type, magnitude);
    double low = (double)type->widen(half), high = (double)type->widen((uint16_t)(half + 1));
    return low == (double)magnitude ? 0.0 : ((double)magnitude - low) / (high - low);
}

/* What the contract says, by comparing numbers instead of adding patterns. */
static uint16_t expected_rounding(const half_type *type, float value, uint32_t word)
{
    float magnitude = fabsf(value);
    if (!(magnitude <= type->largest)) {
        return type->nearest(value);
    }
    bool up = floor(fraction_above(type, magnitude) * 0x1p32) + (double)word >= 0x1p32;
    return (uint16_t)((signbit(value) ? 0x8000u : 0u) + below(type, magnitude) + up);
}

static float any_value(test_rng *rng, const half_type *type)
{
    static const float special[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-130f, INFINITY, -INFINITY, NAN};
    if (test_below(rng, 8) == 0) {
        return special[test_below(rng, sizeof special / sizeof special[0])];
    }
    double exponent = type->dtype == MUONIUM_F16 ? test_uniform(rng, -60.0, 17.0)
                                                 : test_uniform(rng, -150.0, 128.0);
    return (float)(test_uniform(rng, -1.0, 1.0) * exp2(exponent));
}

static void test_rounding_contract(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    test_rng rng = test_rng_start("rounding contract");
    static float x[COUNT];
    static uint16_t got[COUNT];
    for (size_t t = 0; t < 2; t++) {
        const half_type *type = &half_types[t];
        uint64_t key = test_bits(&rng), stream = test_bits(&rng);
        uint64_t first = test_bits(&rng) >> test_below(&rng, 60);
        for (size_t i = 0; i < COUNT; i++) {
            x[i] = any_value(&rng, type);
        }
        round_stochastic(x, COUNT, type->dtype, key, stream, first, got);
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t words[4];
            uint64_t element = first + i;
            mu_random(key, element / 4, stream, words);
            uint16_t expected = expected_rounding(type, x[i], words[element % 4]);
            if (got[i] != expected) {
                fail_msg("%a became %04x, expected %04x", (double)x[i], got[i], expected);
            }
        }
    }
}

static void test_rounding_keeps_halves(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("rounding halves");
    static float x[0x10000];
    static uint16_t got[0x10000];
    for (size_t t = 0; t < 2; t++) {
        const half_type *type = &half_types[t];
        for (uint32_t half = 0; half <= 0xffffu; half++) {
            x[half] = type->widen((uint16_t)half);
        }
        round_stochastic(x, 0x10000, type->dtype, test_bits(&rng), 7, 0, got);
        for (uint32_t half = 0; half <= 0xffffu; half++) {
            if (isnan(x[half])) {
                assert_true(isnan(type->widen(got[half])));
            } else {
                assert_int_equal(got[half], half);
            }
        }
    }
}

/* Beyond the largest finite value as to nearest; never infinite up to it. */
static void test_rounding_range(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    float x[COUNT];
    uint16_t got[COUNT];
    for (size_t t = 0; t < 2; t++) {
        const half_type *type = &half_types[t];
        const uint16_t infinity = type->nearest(INFINITY), largest = (uint16_t)(infinity - 1);
        double last_step = (double)type->largest - (double)type->widen((uint16_t)(largest - 1));
        const struct {
            double at;
            uint16_t low, high;
        } cases[] = {
            {(double)type->largest - 0.5 * last_step, (uint16_t)(largest - 1), largest},
            {(double)type->largest + 0.4 * last_step, largest, largest},
            {(double)type->largest + 0.6 * last_step, infinity, infinity},
        };
        for (size_t c = 0; c < 3; c++) {
            for (size_t i = 0; i < COUNT; i++) {
                x[i] = (float)(i % 2 != 0 ? -cases[c].at : cases[c].at);
            }
            round_stochastic(x, COUNT, type->dtype, 3, 5, 0, got);
            size_t high = 0;
            for (size_t i = 0; i < COUNT; i++) {
                uint16_t magnitude = got[i] & 0x7fffu;
                assert_int_equal(got[i] >> 15, i % 2);
                assert_true(magnitude == cases[c].low || magnitude == cases[c].high);
                high += magnitude == cases[c].high;
            }
            bool at_random = cases[c].low != cases[c].high;
            assert_true(at_random ? high > COUNT / 4 && high < COUNT / 4 * 3 : high == COUNT);
        }
    }
}

/* The mean of many roundings of one value is the value, within five deviations. */
static void test_rounding_mean(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    test_rng rng = test_rng_start("rounding mean");
    static float x[COUNT];
    static uint16_t got[COUNT];
    static const double sizes[] = {1.0, 3e4, 7e-5, 3e-5, 1e-6, 4e-8, 1e-10, 1e-30};
    for (size_t t = 0; t < 2; t++) {
        const half_type *type = &half_types[t];
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            float value = (float)(sizes[s] * test_uniform(&rng, -1.0, 1.0));
            for (size_t i = 0; i < COUNT; i++) {
                x[i] = value;
            }
            round_stochastic(x, COUNT, type->dtype, test_bits(&rng), test_bits(&rng),
                             test_bits(&rng), got);
            double low = (double)type->widen(below(type, fabsf(value)));
            double up = fraction_above(type, fabsf(value)), count_up = 0.0;
            for (size_t i = 0; i < COUNT; i++) {
                count_up += fabsf(type->widen(got[i])) > (float)low;
            }
            double deviation = sqrt(up * (1.0 - up) * COUNT);
            if (fabs(count_up - up * COUNT) > 5.0 * deviation + 1.0) {
                fail_msg("%.9g went up %g times of %d, expected %g within 5 times %g",
                         (double)value, count_up, COUNT, up * COUNT, deviation);
            }
        }
    }
}

/* Far below the least f16 the odds are long: look for a random word that is just large
 * enough, and ask for the smallest value that it takes up. */
static void test_rounding_long_odds(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("rounding long odds");
    uint64_t key = test_bits(&rng);
    for (unsigned odds = 8; odds <= 18; odds += 2) {
        uint32_t words[4];
        uint64_t counter = 0;
        do {
            mu_random(key, ++counter, odds, words);
        } while (words[1] == 0 || words[1] < UINT32_MAX << (32 - odds));
        uint32_t missing = 0u - words[1]; /* for a carry: at least 1 */
        const float x[2] = {(float)missing * 0x1p-56f, (float)(missing - 1) * 0x1p-56f};
        for (size_t i = 0; i < 2; i++) {
            uint16_t half;
            round_stochastic(&x[i], 1, MUONIUM_F16, key, odds, 4 * counter + 1, &half);
            assert_int_equal(half, i == 0);
        }
    }
}

static void test_rounding_split(void **state)
{
    (void)state;
    enum { COUNT = 501 };
    test_rng rng = test_rng_start("rounding split");
    float x[COUNT];
    uint16_t whole[COUNT], other[COUNT];
    uint64_t key = test_bits(&rng), stream = test_bits(&rng), first = test_bits(&rng) >> 20;
    test_fill_normal_f32(&rng, x, COUNT);
    for (size_t t = 0; t < 2; t++) {
        muonium_dtype dtype = half_types[t].dtype;
        round_stochastic(x, COUNT, dtype, key, stream, first, whole);
        for (int trial = 0; trial < 200; trial++) {
            uint16_t *half = trial % 2 == 0 ? test_guarded_alloc(sizeof whole, 0)
                                            : test_guarded_alloc_front(sizeof whole, 0);
            for (size_t begin = 0, count; begin < COUNT; begin += count) {
                count = test_below(&rng, 12);
                count = count < COUNT - begin ? count : COUNT - begin;
                round_stochastic(x + begin, count, dtype, key, stream, first + begin, half + begin);
            }
            assert_memory_equal(half, whole, sizeof whole);
            test_guarded_free(half);
        }
        round_stochastic(x, COUNT, dtype, key, stream + 1, first, other);
        assert_memory_not_equal(other, whole, sizeof whole);
        round_stochastic(x, COUNT, dtype, key + 1, stream, first, other);
        assert_memory_not_equal(other, whole, sizeof whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_contract),  cmocka_unit_test(test_rounding_keeps_halves),
        cmocka_unit_test(test_rounding_range),     cmocka_unit_test(test_rounding_mean),
        cmocka_unit_test(test_rounding_long_odds), cmocka_unit_test(test_rounding_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
