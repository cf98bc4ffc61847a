/*
 * emulated_int8_avx512_vnni.c: the int8 kernel for avx512_vnni, compiled against SIMDe's
 * emulation of its intrinsics, for CPUs that lack them.
 */
#if defined(__x86_64__)

#include "every_int8.h"

#define SIMDE_NO_NATIVE /* whatever the compiler may use */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include "emulated_rounding.h"

#define MU_EMULATE
#define MU_INT8_NAME(name) mu_int8_emulated_avx512_vnni
#include "../../src/matmul/kernels/int8_avx512_vnni.c"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
