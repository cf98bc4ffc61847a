/*
 * layout.c: checks the entries of a header together. Sorted by offset, each must
 * begin where the one before ends. Sorted by name, neighbours must differ; names
 * are found by bisection. Sorting takes n log n comparisons for every input,
 * unlike a hash table under attack.
 */
#include "checkpoint/header.h"
#include "checkpoint/text.h"

#include <inttypes.h>
#include <string.h>

typedef int compare(const mu_header *header, uint32_t a, uint32_t b);
typedef uint64_t key_of(const mu_header *header, uint32_t index);
typedef const char *name_of(const mu_header *header, uint32_t index);

static uint64_t offset_key(const mu_header *header, uint32_t index)
{
    return header->entries[index].offset;
}

static int compare_bytes(const mu_header *header, uint32_t a, uint32_t b)
{
    uint64_t x = header->entries[a].bytes;
    uint64_t y = header->entries[b].bytes;
    return x == y ? 0 : x < y ? -1 : 1;
}

static const char *entry_name(const mu_header *header, uint32_t index)
{
    return header->entries[index].name;
}

static const char *pair_key(const mu_header *header, uint32_t index)
{
    return header->metadata[index].key;
}

/* The first eight bytes of a string as a number that orders as strcmp does. */
static uint64_t string_key(const char *string)
{
    uint64_t key = 0;
    for (int i = 0; i < 8; i++) {
        key = key << 8 | (unsigned char)*string;
        string += *string != '\0' ? 1 : 0;
    }
    return key;
}

static uint64_t entry_name_prefix(const mu_header *header, uint32_t index)
{
    return string_key(entry_name(header, index));
}

static uint64_t pair_key_prefix(const mu_header *header, uint32_t index)
{
    return string_key(pair_key(header, index));
}

static int compare_names(const mu_header *header, uint32_t a, uint32_t b)
{
    return strcmp(entry_name(header, a), entry_name(header, b));
}

static int compare_keys(const mu_header *header, uint32_t a, uint32_t b)
{
    return strcmp(pair_key(header, a), pair_key(header, b));
}

/* Keys lie beside the indices so that most comparisons stay within the array
 * being sorted instead of jumping through the header. */
typedef struct keyed {
    uint64_t key;
    uint32_t index;
} keyed;

/* Merge the sorted runs from[start..middle) and from[middle..end). */
static void merge(const mu_header *header, compare *equal_keys, const keyed *from, keyed *to,
                  size_t start, size_t middle, size_t end)
{
    size_t a = start;
    size_t b = middle;
    for (size_t i = start; i < end; i++) {
        bool first;
        if (a == middle || b == end) {
            first = b == end;
        } else if (from[a].key != from[b].key) {
            first = from[a].key < from[b].key;
        } else {
            first = equal_keys(header, from[a].index, from[b].index) <= 0;
        }
        to[i] = first ? from[a++] : from[b++];
    }
}

/* The indices 0..count-1 in the order of their keys, then of `equal_keys`, then
 * as they were: a merge sort, n log n comparisons whatever the input. NULL if
 * there is no memory. Counts fit 32 bits since a header has at most 10^8 bytes. */
static uint32_t *sorted_indices(const mu_header *header, size_t count, key_of *key,
                                compare *equal_keys)
{
    keyed *from = mu_alloc((count + 1) * sizeof *from);
    keyed *to = mu_alloc((count + 1) * sizeof *to);
    uint32_t *indices = mu_alloc((count + 1) * sizeof *indices);
    if (from != NULL && to != NULL && indices != NULL) {
        for (size_t i = 0; i < count; i++) {
            from[i] = (keyed){key(header, (uint32_t)i), (uint32_t)i};
        }
        for (size_t run = 1; run < count; run *= 2) {
            for (size_t start = 0; start < count; start += 2 * run) {
                size_t middle = start + run < count ? start + run : count;
                size_t end = middle + run < count ? middle + run : count;
                merge(header, equal_keys, from, to, start, middle, end);
            }
            keyed *swap = from;
            from = to;
            to = swap;
        }
        for (size_t i = 0; i < count; i++) {
            indices[i] = from[i].index;
        }
    } else {
        mu_free(indices);
        indices = NULL;
    }
    mu_free(from);
    mu_free(to);
    return indices;
}

/* Put the entries in the order of their data, and set their shape pointers. Shapes
 * are stored in the order of the header. */
static bool arrange_entries(mu_header *header)
{
    const uint64_t *shape = header->dims;
    for (size_t i = 0; i < header->count; i++) {
        muonium_entry *entry = &header->entries[i];
        entry->shape = shape;
        if (entry->ndim > 0) {
            shape += entry->ndim;
        }
    }
    uint32_t *order = sorted_indices(header, header->count, offset_key, compare_bytes);
    muonium_entry *arranged = mu_alloc((header->count + 1) * sizeof *arranged);
    if (order != NULL && arranged != NULL) {
        for (size_t i = 0; i < header->count; i++) {
            arranged[i] = header->entries[order[i]];
        }
        mu_free(header->entries);
        header->entries = arranged;
        mu_free(order);
        return true;
    }
    mu_free(order);
    mu_free(arranged);
    return false;
}

static muonium_status check_coverage(const mu_header *header, uint64_t data_bytes,
                                     const char *label)
{
    uint64_t end = 0;
    for (size_t i = 0; i < header->count; i++) {
        const muonium_entry *entry = &header->entries[i];
        if (entry->offset != end) {
            mu_quoted name = mu_quote(entry->name);
            return mu_fail(MUONIUM_FORMAT,
                           "%s: tensor %s: begins at byte %" PRIu64
                           " of the data, %s the one before it, which ends at %" PRIu64,
                           label, name.text, entry->offset,
                           entry->offset < end ? "overlapping" : "leaving a hole after", end);
        }
        end += entry->bytes;
        if (end > data_bytes) {
            mu_quoted name = mu_quote(entry->name);
            return mu_fail(MUONIUM_FORMAT,
                           "%s: tensor %s: ends at byte %" PRIu64
                           " of the data, of which the file has only %" PRIu64 ": it was cut short",
                           label, name.text, end, data_bytes);
        }
    }
    if (end < data_bytes) {
        mu_quoted name =
            mu_quote(header->count == 0 ? "" : header->entries[header->count - 1].name);
        return mu_fail(MUONIUM_FORMAT, "%s: %" PRIu64 " trailing bytes after the last tensor%s%s",
                       label, data_bytes - end, header->count == 0 ? "" : ", ",
                       header->count == 0 ? "" : name.text);
    }
    return MUONIUM_OK;
}

static muonium_status check_unique(const mu_header *header, const uint32_t *sorted, size_t count,
                                   name_of *name, const char *kind, const char *label)
{
    for (size_t i = 1; i < count; i++) {
        const char *here = name(header, sorted[i]);
        if (strcmp(name(header, sorted[i - 1]), here) == 0) {
            mu_quoted quoted = mu_quote(here);
            return mu_fail(MUONIUM_FORMAT, "%s: %s %s: occurs twice", label, kind, quoted.text);
        }
    }
    return MUONIUM_OK;
}

muonium_status mu_header_arrange(mu_header *header, uint64_t data_bytes, const char *label)
{
    if (arrange_entries(header)) {
        header->by_name = sorted_indices(header, header->count, entry_name_prefix, compare_names);
        header->by_key =
            sorted_indices(header, header->metadata_count, pair_key_prefix, compare_keys);
    }
    if (header->by_name == NULL || header->by_key == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "%s: no memory for its %zu tensors", label,
                       header->count);
    }
    /* Names first: otherwise a repeated tensor would be reported as an overlap. */
    muonium_status status =
        check_unique(header, header->by_name, header->count, entry_name, "tensor", label);
    if (status == MUONIUM_OK) {
        status = check_unique(header, header->by_key, header->metadata_count, pair_key,
                              "__metadata__ key", label);
    }
    if (status == MUONIUM_OK) {
        status = check_coverage(header, data_bytes, label);
    }
    for (size_t i = 0; i < header->count; i++) {
        header->entries[i].offset += MU_HEADER_PREFIX + header->bytes;
    }
    return status;
}

/* The index at which `wanted` is; SIZE_MAX if it is nowhere. */
static size_t find_name(const mu_header *header, const uint32_t *sorted, size_t count,
                        name_of *name, const char *wanted)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(wanted, name(header, sorted[middle]));
        if (order == 0) {
            return sorted[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return SIZE_MAX;
}

const muonium_entry *mu_header_find(const mu_header *header, const char *name)
{
    size_t index = find_name(header, header->by_name, header->count, entry_name, name);
    return index == SIZE_MAX ? NULL : &header->entries[index];
}

const mu_pair *mu_header_find_metadata(const mu_header *header, const char *key)
{
    size_t index = find_name(header, header->by_key, header->metadata_count, pair_key, key);
    return index == SIZE_MAX ? NULL : &header->metadata[index];
}
