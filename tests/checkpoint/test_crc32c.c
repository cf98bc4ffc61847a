/*
 * test_crc32c.c: CRC-32C by tables and by instruction: the vectors of RFC 3720,
 * every small length at every alignment, continuation at every split, and a
 * bit-by-bit reference.
 */
#include "test.h"

#include "checkpoint/crc32c.h"

static uint32_t reference(uint32_t crc, const unsigned char *p, size_t bytes)
{
    uint32_t value = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        value ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1u) != 0 ? 0x82f63b78u : 0u);
        }
    }
    return ~value;
}

/* The variants to test, hardware last; NULL ends. */
static mu_crc32c_function *variants[4];

static int collect_variants(void **state)
{
    (void)state;
    variants[0] = mu_crc32c_portable;
    variants[1] = mu_crc32c;
    variants[2] = mu_crc32c_hardware();
    print_message("hardware CRC-32C: %s\n", variants[2] != NULL ? "yes" : "no");
    return 0;
}

static void test_known_answers(void **state)
{
    unsigned char zeros[32] = {0};
    unsigned char ones[32];
    unsigned char up[32];
    unsigned char down[32];
    (void)state;
    for (size_t i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    for (mu_crc32c_function **crc = variants; *crc != NULL; crc++) {
        assert_int_equal((*crc)(0, "", 0), 0);
        assert_int_equal((*crc)(0, zeros, 32), 0x8a9136aau);
        assert_int_equal((*crc)(0, ones, 32), 0x62a8ab43u);
        assert_int_equal((*crc)(0, up, 32), 0x46dd794eu);
        assert_int_equal((*crc)(0, down, 32), 0x113fdb5cu);
        assert_int_equal((*crc)(0, "123456789", 9), 0xe3069283u);
    }
}

enum { LONG = 20000 };

static unsigned char data[LONG + 64];

static void fill(void)
{
    test_rng rng = test_rng_start("crc32c");
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)test_bits(&rng);
    }
}

static void test_lengths_and_alignments(void **state)
{
    (void)state;
    fill();
    for (mu_crc32c_function **crc = variants; *crc != NULL; crc++) {
        for (size_t offset = 0; offset < 16; offset++) {
            for (size_t bytes = 0; bytes < 70; bytes++) {
                assert_int_equal((*crc)(5, data + offset, bytes),
                                 reference(5, data + offset, bytes));
            }
            /* Around one and two blocks of three streams, and past them. */
            for (size_t middle = 3072; middle <= 6144; middle += 3072) {
                for (size_t bytes = middle - 9; bytes <= middle + 9; bytes++) {
                    assert_int_equal((*crc)(~0u, data + offset, bytes),
                                     reference(~0u, data + offset, bytes));
                }
            }
            assert_int_equal((*crc)(0, data + offset, LONG), reference(0, data + offset, LONG));
        }
    }
}

static void test_continuation(void **state)
{
    (void)state;
    fill();
    uint32_t whole = reference(0, data, 7000);
    for (mu_crc32c_function **crc = variants; *crc != NULL; crc++) {
        for (size_t split = 0; split <= 7000; split += 13) {
            assert_int_equal((*crc)((*crc)(0, data, split), data + split, 7000 - split), whole);
        }
    }
}

static void test_joining(void **state)
{
    (void)state;
    fill();
    uint32_t whole = reference(0, data, 7000);
    for (size_t split = 0; split <= 7000; split += 7) {
        uint32_t first = reference(0, data, split);
        uint32_t second = reference(0, data + split, 7000 - split);
        assert_int_equal(mu_crc32c_join(first, second, 7000 - split), whole);
    }
}

static void test_every_bit_matters(void **state)
{
    (void)state;
    fill();
    for (mu_crc32c_function **crc = variants; *crc != NULL; crc++) {
        uint32_t whole = (*crc)(0, data, 3100);
        for (size_t bit = 0; bit < 8 * 3100; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
            assert_int_not_equal((*crc)(0, data, 3100), whole);
            data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),     cmocka_unit_test(test_lengths_and_alignments),
        cmocka_unit_test(test_continuation),      cmocka_unit_test(test_joining),
        cmocka_unit_test(test_every_bit_matters),
    };
    return cmocka_run_group_tests(tests, collect_variants, NULL);
}
