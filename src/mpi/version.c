/*
 * version.c: finds the functions of libmuonium that are not public (src/private/private.h), and
 * refuses those of another version.
 */
#include "mpi/plan.h"

muonium_status mu_check_version(void)
{
    return muonium_private(MUONIUM_VERSION_STRING) ? MUONIUM_OK : MUONIUM_INVALID;
}

#if defined(MUONIUM_MPI_SHARED)

/* After a refusal there are no objects. Calls without one fail, but cannot set a message. */
#undef mu_fail
static muonium_status fail_without_message(muonium_status status, const char *format, ...)
{
    (void)format;
    return status;
}

static const mu_private refused = {.mu_fail = fail_without_message};
const mu_private *mu_libmuonium = &refused;

__attribute__((constructor)) static void find_at_load(void)
{
    const mu_private *found = muonium_private(MUONIUM_VERSION_STRING);
    mu_libmuonium = found ? found : &refused;
}

#endif
