/*
 * sized.c: structs whose size comes with the call, since a caller may be compiled against
 * another version of the header. Nothing beyond the caller's struct is read or written.
 */
#include "base/base.h"

#include <string.h>

void mu_sized_write(void *out, size_t size, const void *filled, size_t known)
{
    size_t both = size < known ? size : known;
    memcpy(out, filled, both);
    memset((char *)out + both, 0, size - both);
    if (size >= sizeof both) {
        memcpy(out, &both, sizeof both);
    }
}

muonium_status mu_sized_read(const char *type, const void *given, size_t size, void *read,
                             size_t known)
{
    size_t both = size < known ? size : known;
    for (size_t i = both; i < size; i++) {
        if (((const char *)given)[i] != 0) {
            return mu_fail(MUONIUM_INVALID,
                           "%s has a field that version " MUONIUM_VERSION_STRING
                           " does not know: byte %zu of %zu is not 0",
                           type, i, size);
        }
    }
    memcpy(read, given, both);
    memset((char *)read + both, 0, known - both);
    return MUONIUM_OK;
}
