/*
 * crc32c.h: CRC-32C, the checksum of iSCSI (RFC 3720): reflected polynomial
 * 0x82f63b78, all bits inverted before and after. It detects every error of one
 * or two bits in up to 2^31 - 1 bits, every odd number of wrong bits, and every
 * burst of up to 32 bits.
 */
#ifndef MU_CRC32C_H
#define MU_CRC32C_H

#include "base/base.h"

/* The checksum of data that follows bytes whose checksum is `crc`; 0 at first. */
uint32_t mu_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The checksum of two runs of bytes, one after the other, from the checksums of each and
 * the length of the second. */
uint32_t mu_crc32c_join(uint32_t first, uint32_t second, size_t second_bytes);

/* The two ways to compute it, for tests and benchmarks. The second is NULL where
 * the CPU has no instruction for it. */
typedef uint32_t mu_crc32c_function(uint32_t crc, const void *data, size_t bytes);
uint32_t mu_crc32c_portable(uint32_t crc, const void *data, size_t bytes);
mu_crc32c_function *mu_crc32c_hardware(void);

#endif
