/*
 * versioned.c: structs of options, which grow at their end from version to version. Their
 * first member is struct_size, the size of the struct that the caller was compiled with:
 * nothing beyond it is written or read, and what an older caller does not know is at its
 * default.
 *
 * A struct may hold another one directly after its struct_size. Both may then be shorter
 * than ours:
 *
 *     ours       size | inner size, a b c d | p q r s
 *     caller's   size | inner size, a b | p q r
 *
 * What follows the inner struct (the tail) is found by the caller's inner size. All sizes are
 * multiples of 8, so that the tail is aligned wherever it starts.
 */
#include "base/base.h"

#include <string.h>

enum { HEAD = sizeof(size_t) }; /* struct_size itself */

static muonium_status fail_on_size(const char *type, const char *member, size_t size, size_t known)
{
    return mu_fail(MUONIUM_INVALID,
                   "struct_size of %s%s is %zu: fill the struct by %s_init first (this library "
                   "knows versions of up to %zu bytes)",
                   type, member, size, type, known);
}

static bool is_version(size_t size, size_t known)
{
    return size > HEAD && size <= known && size % HEAD == 0;
}

static size_t size_at(const void *options)
{
    size_t size;
    memcpy(&size, options, sizeof size);
    return size;
}

muonium_status mu_versioned_check(const char *type, size_t size, size_t known)
{
    return is_version(size, known) ? MUONIUM_OK : fail_on_size(type, "", size, known);
}

void mu_versioned_init(void *options, size_t size, const void *defaults, size_t known)
{
    if (options && size >= HEAD) {
        size = size < known ? size : known;
        memcpy(options, defaults, size);
        memcpy(options, &size, sizeof size);
    }
}

muonium_status mu_versioned_read(const char *type, const void *given, void *options, size_t known)
{
    if (!given) {
        return MUONIUM_OK;
    }
    size_t size = size_at(given);
    muonium_status status = mu_versioned_check(type, size, known);
    if (status == MUONIUM_OK) {
        memcpy(options, given, size);
        memcpy(options, &known, sizeof known);
    }
    return status;
}

/* ---- a struct with another directly after its struct_size ---- */

muonium_status mu_nested_check(const mu_nested *n, size_t size, size_t inner)
{
    if (is_version(size, n->known) && !is_version(inner, n->inner_known)) {
        return fail_on_size(n->type, n->member, inner, n->inner_known);
    }
    /* Without the inner struct it is a version of head and tail. */
    return size > inner && is_version(size - inner, n->known - n->inner_known)
               ? MUONIUM_OK
               : fail_on_size(n->type, "", size, n->known);
}

void mu_nested_write(const mu_nested *n, void *options, size_t size, size_t inner, const void *from)
{
    char *to = options;
    memcpy(to, &size, sizeof size);
    mu_versioned_init(to + HEAD, inner, (const char *)from + HEAD, n->inner_known);
    memcpy(to + HEAD + inner, (const char *)from + HEAD + n->inner_known, size - inner - HEAD);
}

muonium_status mu_nested_read(const mu_nested *n, const void *given, void *options)
{
    if (!given) {
        return MUONIUM_OK;
    }
    const char *from = given;
    char *to = options;
    size_t size = size_at(from), inner = size > HEAD ? size_at(from + HEAD) : 0;
    muonium_status status = mu_nested_check(n, size, inner);
    if (status == MUONIUM_OK) {
        memcpy(to + HEAD, from + HEAD, inner);
        memcpy(to + HEAD, &n->inner_known, HEAD);
        memcpy(to + HEAD + n->inner_known, from + HEAD + inner, size - inner - HEAD);
        memcpy(to, &n->known, HEAD);
    }
    return status;
}
