/*
 * private.c: see private.h.
 */
#include "private/private.h"

#include <string.h>

const mu_private *muonium_private(const char *version)
{
    static const mu_private table = {
#define MU_PRIVATE(name) .name = name,
#include "private/private.def"
#undef MU_PRIVATE
    };
    if (strcmp(version, MUONIUM_VERSION_STRING) != 0) {
        mu_fail(MUONIUM_INVALID,
                "libmuonium_mpi %s runs with libmuonium %s: install both of one version", version,
                MUONIUM_VERSION_STRING);
        return NULL;
    }
    return &table;
}
