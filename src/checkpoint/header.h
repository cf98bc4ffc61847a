/*
 * header.h: the header of a safetensors file as a list of tensors and of
 * metadata. The reader makes it from a file, the writer from what it is about
 * to write, so that it writes nothing that the reader would refuse.
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

/* Parse and check text[0..bytes), which is set already, as the header of a file
 * with `data_bytes` bytes of data; all else in *header is zero. `label` names
 * the file in messages. In every case mu_header_release must follow. */
muonium_status mu_header_parse(mu_header *header, uint64_t data_bytes, const char *label);

/* The second half of it (layout.c): order the entries, whose offsets count from
 * the start of the data, find names given twice, holes, overlaps and a wrong
 * end, and make the offsets count from the start of the file. */
muonium_status mu_header_arrange(mu_header *header, uint64_t data_bytes, const char *label);

void mu_header_release(mu_header *header);

/* The entry and the pair of that name; NULL if there is none. */
const muonium_entry *mu_header_find(const mu_header *header, const char *name);
const mu_pair *mu_header_find_metadata(const mu_header *header, const char *key);

#endif
