/*
 * crc32c.c: CRC-32C by tables, eight bytes at a time, and by an instruction: of SSE4.2,
 * or of Armv8. That instruction has a latency of two or three cycles and a throughput
 * of one, so three streams of a block run in parallel. They are joined by
 * advancing a checksum past a stream of zeros, which is linear: four lookups.
 *
 * Below, a "register" is the checksum without its inversions.
 */
#include "checkpoint/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u
#define STREAM 1024u /* bytes per stream: much work per join, and shorter than most data */

/* slices[k][b]: the register after byte b and k zero bytes, from 0.
 * past_stream[k][b]: the register b << 8k after STREAM zero bytes. */
static uint32_t slices[8][256];
static uint32_t past_stream[4][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t value = b;
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1u) ? POLYNOMIAL : 0u);
        }
        slices[0][b] = value;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = slices[k - 1][b];
            slices[k][b] = (before >> 8) ^ slices[0][before & 0xffu];
        }
    }
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t value = b << (8 * k);
            for (uint32_t i = 0; i < STREAM; i++) {
                value = (value >> 8) ^ slices[0][value & 0xffu];
            }
            past_stream[k][b] = value;
        }
    }
}

static uint32_t little_endian_32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t mu_crc32c_portable(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint32_t value = ~crc;
    pthread_once(&tables_made, make_tables);
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low = value ^ little_endian_32(p);
        uint32_t high = little_endian_32(p + 4);
        value = slices[7][low & 0xffu] ^ slices[6][(low >> 8) & 0xffu] ^
                slices[5][(low >> 16) & 0xffu] ^ slices[4][low >> 24] ^ slices[3][high & 0xffu] ^
                slices[2][(high >> 8) & 0xffu] ^ slices[1][(high >> 16) & 0xffu] ^
                slices[0][high >> 24];
    }
    for (; bytes > 0; bytes--, p++) {
        value = (value >> 8) ^ slices[0][(value ^ *p) & 0xffu];
    }
    return ~value;
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <nmmintrin.h>

#if defined(__clang__) && __clang_major__ >= 14 /* a feature of its own, which may be off */
#define WITH_INSTRUCTION __attribute__((target("sse4.2,crc32")))
#else
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#endif
#define CRC_OF_8(value, word) (value) = _mm_crc32_u64(value, word)
#define CRC_OF_1(value, byte) (value) = _mm_crc32_u8(value, byte)
enum { NEEDED = MU_CPU_SSE42 };

#elif defined(__aarch64__) && defined(__GNUC__)

#if defined(__clang__)
#define WITH_INSTRUCTION __attribute__((target("crc")))
#else
#define WITH_INSTRUCTION __attribute__((target("+crc")))
#endif
/* As assembly, since not every compiler declares the intrinsics without a flag. */
#define CRC_OF_8(value, word) __asm__("crc32cx %w0, %w0, %x1" : "+r"(value) : "r"(word))
#define CRC_OF_1(value, byte) __asm__("crc32cb %w0, %w0, %w1" : "+r"(value) : "r"(byte))
enum { NEEDED = MU_CPU_CRC32 };

#endif

#if defined(WITH_INSTRUCTION)

static uint64_t load_64(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static uint32_t skip_stream(uint64_t value)
{
    return past_stream[0][value & 0xffu] ^ past_stream[1][(value >> 8) & 0xffu] ^
           past_stream[2][(value >> 16) & 0xffu] ^ past_stream[3][(value >> 24) & 0xffu];
}

WITH_INSTRUCTION static uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t value = (uint32_t)~crc;
    if (bytes >= 3 * STREAM) {
        pthread_once(&tables_made, make_tables);
    }
    for (; bytes >= 3 * STREAM; bytes -= 3 * STREAM, p += 3 * STREAM) {
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t i = 0; i < STREAM; i += 8) {
            CRC_OF_8(value, load_64(p + i));
            CRC_OF_8(second, load_64(p + STREAM + i));
            CRC_OF_8(third, load_64(p + 2 * STREAM + i));
        }
        value = skip_stream(skip_stream(value) ^ second) ^ third;
    }
    for (; bytes >= 8; bytes -= 8, p += 8) {
        CRC_OF_8(value, load_64(p));
    }
    uint32_t rest = (uint32_t)value;
    for (; bytes > 0; bytes--, p++) {
        CRC_OF_1(rest, *p);
    }
    return ~rest;
}

mu_crc32c_function *mu_crc32c_hardware(void)
{
    return mu_includes(mu_cpu_detect()->has, NEEDED) ? crc32c_by_instruction : NULL;
}

#else

mu_crc32c_function *mu_crc32c_hardware(void)
{
    return NULL;
}

#endif

uint32_t mu_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    mu_crc32c_function *hardware = mu_crc32c_hardware();
    return hardware != NULL ? hardware(crc, data, bytes) : mu_crc32c_portable(crc, data, bytes);
}

/* The product of two polynomials modulo ours; the highest bit is the constant term. */
static uint32_t multiply_polynomials(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= (a & 0x80000000u) ? b : 0u;
        b = (b >> 1) ^ ((b & 1u) ? POLYNOMIAL : 0u);
    }
    return product;
}

uint32_t mu_crc32c_join(uint32_t first, uint32_t second, size_t second_bytes)
{
    /* Zero bytes multiply a register by x^8 each; the inversions of both cancel. */
    uint32_t shift = 0x80000000u, square = 0x00800000u;
    for (; second_bytes > 0; second_bytes >>= 1) {
        shift = (second_bytes & 1u) ? multiply_polynomials(shift, square) : shift;
        square = multiply_polynomials(square, square);
    }
    return multiply_polynomials(first, shift) ^ second;
}
