/*
 * emulated_int8_amx.c: the int8 kernel for AMX with tile instructions in plain C: exact, so that
 * CPUs without AMX test all but the instructions themselves. SIMDe emulates those of AVX-512.
 */
#if defined(__x86_64__)

#include <stdint.h>
#include <string.h>

#include "every_int8.h"

#define SIMDE_NO_NATIVE /* whatever the compiler may use */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <math.h>

#include "emulated_rounding.h"
#include "emulated_tiles.h"

/* c += a b: four bytes of a row of a with four of a column of b, sums wrapping around. */
static void multiply(int c, int a, int b)
{
    for (size_t i = 0; i < TILE_ROWS; i++) {
        int32_t sums[16];
        memcpy(sums, tiles[c].byte[i], sizeof sums);
        for (size_t g = 0; g < 16; g++) {
            const int8_t *x = tiles[a].byte[i] + 4 * g, *y = tiles[b].byte[g];
            for (size_t j = 0; j < 16; j++) {
                int32_t sum = x[0] * y[4 * j] + x[1] * y[4 * j + 1] + x[2] * y[4 * j + 2] +
                              x[3] * y[4 * j + 3];
                sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)sum);
            }
        }
        memcpy(tiles[c].byte[i], sums, sizeof sums);
    }
}

/* What SIMDe lacks. */
typedef simde__mmask16 __mmask16;
#define _mm512_shuffle_f32x4 simde_mm512_shuffle_f32x4

static __m512 _mm512_cvtepi32_ps(__m512i a)
{
    int32_t x[16];
    float z[16];
    _mm512_storeu_si512(x, a);
    for (int i = 0; i < 16; i++) {
        z[i] = (float)x[i];
    }
    return _mm512_loadu_ps(z);
}

static __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float *from)
{
    float z[16];
    for (int i = 0; i < 16; i++) {
        z[i] = mask >> i & 1 ? from[i] : 0;
    }
    return _mm512_loadu_ps(z);
}

static void _mm512_mask_storeu_ps(float *to, __mmask16 mask, __m512 a)
{
    float x[16];
    _mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1) {
            to[i] = x[i];
        }
    }
}

#define MU_EMULATE
#define _tile_dpbssd(c, a, b) multiply(c, a, b)
#define MU_INT8_NAME(name) mu_int8_emulated_amx
#include "../../src/matmul/kernels/int8_amx.c"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
