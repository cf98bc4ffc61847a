/*
 * safetensors.h: functions on safetensors files that checkpoints need beyond the
 * public interface: element types by name, and the seal.
 *
 * A seal is a metadata pair whose value is the CRC-32C of the whole header, the
 * length before it included, as 8 lower-case hexadecimal digits, computed with
 * these digits as zeros. Together with one checksum per tensor among the
 * metadata it covers every byte of a file.
 */
#ifndef MU_SAFETENSORS_H
#define MU_SAFETENSORS_H

#include "base/base.h"

/* Bits per element of a type by its name in the format; 0 if there is none. */
unsigned mu_dtype_bits(const char *name);

/* Bytes of a tensor; false if elements or bytes overflow or the last is not full. A
 * zero extent does not hide an overflow of the others, so that a consumer may
 * multiply extents in any order. */
bool mu_tensor_bytes(unsigned bits, size_t ndim, const uint64_t *shape, uint64_t *bytes);

/* What messages call the file of a reader. */
const char *mu_reader_label(const muonium_reader *reader);

/* Whether several threads may read: yes from a file or memory; a function of the caller is
 * called from the caller's thread alone. */
bool mu_reader_is_concurrent(const muonium_reader *reader);

/* While a reader is held, closing it, as a callback might, has no effect. */
void mu_reader_hold(const muonium_reader *reader);
void mu_reader_release(const muonium_reader *reader);

/* Announce bytes of the file that will be read soon. They need not exist. */
void mu_reader_expect(const muonium_reader *reader, uint64_t offset, size_t bytes);

/* Write a seal under `key`, as the last pair of the metadata. Call before writing begins. */
muonium_status mu_writer_seal(muonium_writer *writer, const char *key);

/* Check the seal under `key`: MUONIUM_FORMAT if it is missing or wrong. */
muonium_status mu_reader_check_seal(const muonium_reader *reader, const char *key);

#endif
