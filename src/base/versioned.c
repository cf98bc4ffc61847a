/*
 * versioned.c: structs of options, which grow from version to version. Their first member
 * is struct_size, the size of the struct that the caller was compiled with: nothing beyond
 * it is written or read, and what an older caller does not know is at its default.
 */
#include "base/base.h"

#include <string.h>

muonium_status mu_versioned_check(const char *type, size_t size, size_t known)
{
    if (size <= sizeof(size_t) || size > known || size % sizeof(size_t) != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "struct_size of %s is %zu: fill the struct by %s_init first (this library "
                       "knows versions of up to %zu bytes)",
                       type, size, type, known);
    }
    return MUONIUM_OK;
}

void mu_versioned_init(void *options, size_t size, const void *defaults, size_t known)
{
    if (options && size >= sizeof(size_t)) {
        size = size < known ? size : known;
        memcpy(options, defaults, size);
        memcpy(options, &size, sizeof size);
    }
}

muonium_status mu_versioned_read(const char *type, const void *given, void *options, size_t known)
{
    size_t size = 0;
    if (!given) {
        return MUONIUM_OK;
    }
    memcpy(&size, given, sizeof size);
    muonium_status status = mu_versioned_check(type, size, known);
    if (status == MUONIUM_OK) {
        memcpy(options, given, size);
        memcpy(options, &known, sizeof known);
    }
    return status;
}
