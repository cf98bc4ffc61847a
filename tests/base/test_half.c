/*
 * test_half.c: bf16 and f16 against their definition, for every bit pattern and
 * at every place where rounding changes its mind.
 */
#include "test.h"

#include <math.h>

#include "base/half.h"

/* A 16-bit format, described so that one test serves both. */
typedef struct half_format {
    const char *name;
    int fraction_bits, bias;
    uint16_t infinity;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
} half_format;

static const half_format half_formats[] = {
    {"f16", 10, 15, 0x7c00, mu_f32_from_f16, mu_f16_from_f32},
    {"bf16", 7, 127, 0x7f80, mu_f32_from_bf16, mu_bf16_from_f32},
};

/* The value by definition; that of infinity is what would follow the largest
 * finite number, which is where rounding starts to overflow. */
static double half_value(const half_format *f, uint16_t half)
{
    int exponent = (half & 0x7fff) >> f->fraction_bits;
    int fraction = half & ((1 << f->fraction_bits) - 1);
    double magnitude = exponent == 0 ? ldexp(fraction, 1 - f->bias - f->fraction_bits)
                                     : ldexp(fraction + (1 << f->fraction_bits),
                                             exponent - f->bias - f->fraction_bits);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/* The nearest half of a finite value, ties to even, by exact arithmetic in double. */
static uint16_t nearest_half(const half_format *f, float value)
{
    double magnitude = fabs((double)value);
    int exponent;
    (void)frexp(magnitude, &exponent);
    int smallest = 1 - f->bias;
    int unit = (exponent - 1 > smallest ? exponent - 1 : smallest) - f->fraction_bits;
    /* Counted in the last place; numbers count on from denormals into binades. */
    double places = nearbyint(ldexp(magnitude, -unit));
    double index = places + ldexp(unit + f->fraction_bits - smallest, f->fraction_bits);
    uint16_t bits = index < f->infinity ? (uint16_t)index : f->infinity;
    return (uint16_t)(bits | (signbit(value) ? 0x8000 : 0));
}

static void halfs_widen_exactly_and_return(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const half_format *f = &half_formats[k];
        uint16_t quiet = (uint16_t)(1u << (f->fraction_bits - 1));
        for (unsigned bits = 0; bits < 65536; bits++) {
            uint16_t half = (uint16_t)bits;
            uint16_t magnitude = half & 0x7fff;
            float wide = f->widen(half);
            assert_int_equal(signbit(wide) != 0, half >> 15);
            if (magnitude > f->infinity) {
                assert_true(isnan(wide));
                assert_int_equal(f->narrow(wide), half | quiet);
            } else {
                double expected = magnitude < f->infinity ? half_value(f, half)
                                  : half >> 15 != 0       ? (double)-INFINITY
                                                          : (double)INFINITY;
                assert_true((double)wide == expected);
                assert_int_equal(f->narrow(wide), half);
            }
        }
    }
}

static void halfs_round_to_nearest_even_at_every_midpoint(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const half_format *f = &half_formats[k];
        for (unsigned bits = 0; bits < f->infinity; bits++) {
            uint16_t below = (uint16_t)bits, above = (uint16_t)(bits + 1);
            uint16_t even = bits % 2 == 0 ? below : above;
            double exact = (half_value(f, below) + half_value(f, above)) / 2;
            float middle = (float)exact;
            assert_true((double)middle == exact);
            assert_int_equal(f->narrow(middle), even);
            assert_int_equal(f->narrow(-middle), even | 0x8000);
            float less = nextafterf(middle, 0.0f), more = nextafterf(middle, INFINITY);
            assert_int_equal(f->narrow(less), below);
            assert_int_equal(f->narrow(-less), below | 0x8000);
            assert_int_equal(f->narrow(more), above);
            assert_int_equal(f->narrow(-more), above | 0x8000);
        }
    }
}

static void halfs_round_random_numbers_to_nearest(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("halfs");
    for (int i = 0; i < 400000; i++) {
        /* Of any magnitude, and of those where f16 goes from denormal to infinite. */
        uint32_t bits = (uint32_t)test_bits(&rng);
        if (i % 2 != 0) {
            bits = (bits & 0x807fffffu) | ((uint32_t)(100 + test_below(&rng, 46)) << 23);
        }
        float value = mu_f32_of_bits(bits);
        assert_int_equal(mu_bits_of_f32(value), bits);
        if (!isfinite(value)) {
            continue;
        }
        for (size_t k = 0; k < 2; k++) {
            const half_format *f = &half_formats[k];
            if (f->narrow(value) != nearest_half(f, value)) {
                fail_msg("%s of %a is %#x, expected %#x", f->name, (double)value, f->narrow(value),
                         nearest_half(f, value));
            }
        }
    }
}

static void halfs_keep_nan_and_infinity(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const half_format *f = &half_formats[k];
        uint16_t quiet = (uint16_t)(1u << (f->fraction_bits - 1));
        for (unsigned sign = 0; sign < 2; sign++) {
            for (unsigned bit = 0; bit < 23; bit++) {
                uint32_t nan_bits = (sign << 31) | 0x7f800000u | (1u << bit);
                uint16_t half = f->narrow(mu_f32_of_bits(nan_bits));
                uint32_t payload = (nan_bits & 0x7fffffu) >> (23 - f->fraction_bits);
                assert_int_equal(half, (sign << 15) | f->infinity | quiet | payload);
            }
        }
        assert_int_equal(f->narrow(INFINITY), f->infinity);
        assert_int_equal(f->narrow(-INFINITY), f->infinity | 0x8000);
        assert_int_equal(f->narrow(3.4028235e38f), f->infinity);
        assert_int_equal(f->narrow(0x1p-149f), 0);
        assert_int_equal(f->narrow(-0x1p-149f), 0x8000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halfs_widen_exactly_and_return),
        cmocka_unit_test(halfs_round_to_nearest_even_at_every_midpoint),
        cmocka_unit_test(halfs_round_random_numbers_to_nearest),
        cmocka_unit_test(halfs_keep_nan_and_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
