/*
 * header.h: the header of a safetensors file as lists of tensors and metadata.
 * The reader parses a file. The writer parses its own header before writing, so
 * that it never writes a header that the reader refuses.
 */
#ifndef MU_HEADER_H
#define MU_HEADER_H

#include "checkpoint/safetensors.h"

#define MU_HEADER_LIMIT 100000000u /* bytes of JSON that the format allows */
#define MU_HEADER_PREFIX 8u        /* bytes before the JSON: its length, little-endian */

typedef struct mu_pair {
    const char *key;
    const char *value;
} mu_pair;

typedef struct mu_header {
    char *text;     /* the JSON, owned; after parsing, the strings of the entries */
    size_t bytes;   /* of JSON */
    uint64_t *dims; /* the shapes of all entries, one after another */
    muonium_entry *entries;
    size_t count;
    uint32_t *by_name; /* indices of entries in the order of names */
    mu_pair *metadata;
    size_t metadata_count;
    uint32_t *by_key;
} mu_header;

/* Parse and check text[0..bytes) as the header of a file with `data_bytes` bytes
 * of data. The caller has set text and bytes; all else in *header is zero.
 * `label` names the file in messages. mu_header_release must always follow. */
muonium_status mu_header_parse(mu_header *header, uint64_t data_bytes, const char *label);

/* layout.c, the second half of mu_header_parse: sort the entries; refuse repeated
 * names, holes, overlaps and a wrong end; convert offsets, which count from the
 * start of the data, to count from the start of the file. */
muonium_status mu_header_arrange(mu_header *header, uint64_t data_bytes, const char *label);

void mu_header_release(mu_header *header);

/* The entry and the pair of that name; NULL if there is none. */
const muonium_entry *mu_header_find(const mu_header *header, const char *name);
const mu_pair *mu_header_find_metadata(const mu_header *header, const char *key);

#endif
