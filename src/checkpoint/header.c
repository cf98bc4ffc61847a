/*
 * header.c: parses the JSON of a safetensors header into entries. One pass over
 * the text collects the entries in the order of the header and checks each by
 * itself; layout.c then checks them together. Time and memory are linear in the
 * size of the header.
 */
#include "checkpoint/header.h"

#include "checkpoint/json.h"
#include "checkpoint/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct parser {
    mu_json json;
    mu_header *header;
    const char *label;
    const char *kind; /* what is being read, for messages: NULL, "tensor", "__metadata__ key" */
    const char *name; /* and its name */
    size_t dims_count;
    size_t dims_capacity;
    size_t entry_capacity;
    size_t pair_capacity;
} parser;

/* Fails with: label: kind "name": reason. */
static muonium_status refuse(const parser *p, const char *reason)
{
    if (p->kind == NULL) {
        return mu_fail(MUONIUM_FORMAT, "%s: %s", p->label, reason);
    }
    mu_quoted name = mu_quote(p->name);
    return mu_fail(MUONIUM_FORMAT, "%s: %s %s: %s", p->label, p->kind, name.text, reason);
}

static muonium_status refuse_syntax(const parser *p)
{
    char reason[128];
    snprintf(reason, sizeof reason, "%s at byte %zu of the header", p->json.problem, p->json.at);
    return refuse(p, reason);
}

static muonium_status out_of_memory(const parser *p)
{
    return mu_fail(MUONIUM_NO_MEMORY, "%s: no memory for its header of %zu bytes", p->label,
                   p->header->bytes);
}

static muonium_status parse_metadata(parser *p)
{
    mu_header *header = p->header;
    if (!mu_json_expect(&p->json, '{')) {
        return refuse_syntax(p);
    }
    if (mu_json_take(&p->json, '}')) {
        return MUONIUM_OK;
    }
    do {
        char *key;
        char *value;
        p->kind = "entry";
        p->name = "__metadata__";
        if (!mu_json_string(&p->json, &key)) {
            return refuse_syntax(p);
        }
        p->kind = "__metadata__ key";
        p->name = key;
        if (!mu_json_expect(&p->json, ':') || !mu_json_string(&p->json, &value)) {
            return refuse_syntax(p);
        }
        mu_pair *pairs =
            mu_grow(header->metadata, &p->pair_capacity, header->metadata_count + 1, sizeof *pairs);
        if (pairs == NULL) {
            return out_of_memory(p);
        }
        header->metadata = pairs;
        pairs[header->metadata_count++] = (mu_pair){key, value};
    } while (mu_json_take(&p->json, ','));
    return mu_json_expect(&p->json, '}') ? MUONIUM_OK : refuse_syntax(p);
}

static muonium_status parse_dtype(parser *p, muonium_entry *entry)
{
    char *dtype;
    if (!mu_json_string(&p->json, &dtype)) {
        return refuse_syntax(p);
    }
    entry->dtype = dtype;
    entry->bits = mu_dtype_bits(dtype);
    if (entry->bits == 0) {
        mu_quoted name = mu_quote(p->name);
        mu_quoted unknown = mu_quote(dtype);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: tensor %s: unknown dtype %s, so its size cannot be checked", p->label,
                       name.text, unknown.text);
    }
    return MUONIUM_OK;
}

static muonium_status parse_shape(parser *p, muonium_entry *entry)
{
    mu_header *header = p->header;
    entry->ndim = 0;
    if (!mu_json_expect(&p->json, '[')) {
        return refuse_syntax(p);
    }
    if (mu_json_take(&p->json, ']')) {
        return MUONIUM_OK;
    }
    do {
        uint64_t extent;
        if (!mu_json_integer(&p->json, &extent)) {
            return refuse_syntax(p);
        }
        uint64_t *dims = mu_grow(header->dims, &p->dims_capacity, p->dims_count + 1, sizeof *dims);
        if (dims == NULL) {
            return out_of_memory(p);
        }
        header->dims = dims;
        dims[p->dims_count++] = extent;
        entry->ndim++;
    } while (mu_json_take(&p->json, ','));
    return mu_json_expect(&p->json, ']') ? MUONIUM_OK : refuse_syntax(p);
}

static muonium_status parse_offsets(parser *p, muonium_entry *entry)
{
    uint64_t begin;
    uint64_t end;
    if (!mu_json_expect(&p->json, '[') || !mu_json_integer(&p->json, &begin) ||
        !mu_json_expect(&p->json, ',') || !mu_json_integer(&p->json, &end) ||
        !mu_json_expect(&p->json, ']')) {
        return refuse_syntax(p);
    }
    if (end < begin) {
        mu_quoted name = mu_quote(p->name);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: tensor %s: data_offsets [%" PRIu64 ", %" PRIu64
                       "] end before they begin",
                       p->label, name.text, begin, end);
    }
    entry->offset = begin;
    entry->bytes = end - begin;
    return MUONIUM_OK;
}

/* The fields of an entry: each once, in any order, and no other. */
static const struct {
    const char *name;
    muonium_status (*parse)(parser *p, muonium_entry *entry);
    const char *missing;
    const char *twice;
} fields[] = {
    {"dtype", parse_dtype, "its dtype is missing", "its dtype occurs twice"},
    {"shape", parse_shape, "its shape is missing", "its shape occurs twice"},
    {"data_offsets", parse_offsets, "its data_offsets are missing", "its data_offsets occur twice"},
};

enum { FIELDS = sizeof fields / sizeof fields[0] };

static muonium_status parse_field(parser *p, muonium_entry *entry, bool seen[FIELDS])
{
    char *field;
    if (!mu_json_string(&p->json, &field) || !mu_json_expect(&p->json, ':')) {
        return refuse_syntax(p);
    }
    for (size_t i = 0; i < FIELDS; i++) {
        if (strcmp(field, fields[i].name) == 0) {
            if (seen[i]) {
                return refuse(p, fields[i].twice);
            }
            seen[i] = true;
            return fields[i].parse(p, entry);
        }
    }
    mu_quoted name = mu_quote(p->name);
    mu_quoted unknown = mu_quote(field);
    return mu_fail(MUONIUM_FORMAT, "%s: tensor %s: the format has no field %s", p->label, name.text,
                   unknown.text);
}

/* The extents of the entry parsed last are at the end of `dims`. */
static muonium_status check_size(const parser *p, const muonium_entry *entry)
{
    const uint64_t *shape =
        entry->ndim == 0 ? NULL : p->header->dims + (p->dims_count - entry->ndim);
    uint64_t bytes;
    if (!mu_tensor_bytes(entry->bits, entry->ndim, shape, &bytes)) {
        mu_quoted name = mu_quote(p->name);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: tensor %s: its %zu extents of %s overflow or do not fill whole bytes",
                       p->label, name.text, entry->ndim, entry->dtype);
    }
    if (bytes != entry->bytes) {
        mu_quoted name = mu_quote(p->name);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: tensor %s: data_offsets span %" PRIu64
                       " bytes but its shape and dtype %s need %" PRIu64,
                       p->label, name.text, entry->bytes, entry->dtype, bytes);
    }
    return MUONIUM_OK;
}

static muonium_status parse_tensor(parser *p, const char *name)
{
    mu_header *header = p->header;
    muonium_entry entry = {.name = name};
    bool seen[FIELDS] = {false};
    p->kind = "tensor";
    p->name = name;
    if (!mu_json_expect(&p->json, '{')) {
        return refuse_syntax(p);
    }
    if (!mu_json_take(&p->json, '}')) {
        do {
            muonium_status status = parse_field(p, &entry, seen);
            if (status != MUONIUM_OK) {
                return status;
            }
        } while (mu_json_take(&p->json, ','));
        if (!mu_json_expect(&p->json, '}')) {
            return refuse_syntax(p);
        }
    }
    for (size_t i = 0; i < FIELDS; i++) {
        if (!seen[i]) {
            return refuse(p, fields[i].missing);
        }
    }
    muonium_entry *entries =
        mu_grow(header->entries, &p->entry_capacity, header->count + 1, sizeof *entries);
    if (entries == NULL) {
        return out_of_memory(p);
    }
    header->entries = entries;
    entries[header->count++] = entry;
    return check_size(p, &entry);
}

static muonium_status parse_members(parser *p)
{
    bool metadata_seen = false;
    if (p->json.size == 0 || p->json.text[0] != '{') {
        return refuse(p, "the header does not start with '{'");
    }
    p->json.at = 1;
    if (!mu_json_take(&p->json, '}')) {
        do {
            char *name;
            p->kind = NULL;
            if (!mu_json_string(&p->json, &name)) {
                return refuse_syntax(p);
            }
            bool metadata = strcmp(name, "__metadata__") == 0;
            p->kind = metadata ? "entry" : "tensor";
            p->name = name;
            if (!mu_json_expect(&p->json, ':')) {
                return refuse_syntax(p);
            }
            if (metadata && metadata_seen) {
                return refuse(p, "occurs twice");
            }
            metadata_seen = metadata_seen || metadata;
            muonium_status status = metadata ? parse_metadata(p) : parse_tensor(p, name);
            if (status != MUONIUM_OK) {
                return status;
            }
        } while (mu_json_take(&p->json, ','));
        p->kind = NULL;
        if (!mu_json_expect(&p->json, '}')) {
            return refuse_syntax(p);
        }
    }
    p->kind = NULL;
    return mu_json_end(&p->json) ? MUONIUM_OK : refuse_syntax(p);
}

muonium_status mu_header_parse(mu_header *header, uint64_t data_bytes, const char *label)
{
    parser p = {
        .json = {.text = header->text, .size = header->bytes}, .header = header, .label = label};
    muonium_status status = parse_members(&p);
    if (status != MUONIUM_OK) {
        return status;
    }
    return mu_header_arrange(header, data_bytes, label);
}

void mu_header_release(mu_header *header)
{
    mu_free(header->text);
    mu_free(header->dims);
    mu_free(header->entries);
    mu_free(header->by_name);
    mu_free(header->metadata);
    mu_free(header->by_key);
    *header = (mu_header){0};
}
