/*
 * int8_avx_vnni.c: fixed-point products with AVX-VNNI, the 256-bit form of AVX512-VNNI for CPUs
 * without AVX-512. Digits of B are stored plus 128, as int8_avx512_vnni.c explains.
 */
#include "base/base.h"

#if defined(MU_HAVE_AVX_VNNI)

#define TARGET_AVX_VNNI
#include "vector/kernels/target.h"

#if defined(MU_EMULATE)
#define VL 4
#include "vector/kernels/simd_portable.h"
#else
#define VL 8
#include "vector/kernels/simd_avx2.h"
#endif

#define MR 4
#define NR 8
#define BIAS 128
#include "matmul/kernels/int8_template.h"

#if defined(MU_EMULATE)
#define DOT_BYTES(S, B, A) _mm256_dpbusd_epi32(S, B, A)
#else
#define DOT_BYTES(S, B, A) _mm256_dpbusd_avx_epi32(S, B, A)
#endif
#define ADD_PRODUCTS(S, B, A) S = DOT_BYTES(S, B, A)
#define EACH_ROW                                                                                   \
    MU_UNROLLED                                                                                    \
    for (size_t i = 0; i < MR; i++)

static inline __m256i columns_at(const char *b)
{
    return _mm256_loadu_si256((const void *)b);
}

static void tile(int digits, size_t groups, const void *packed_a, const void *packed_b,
                 const int32_t *start, int32_t *c, const mu_meanwhile *meanwhile)
{
    (void)meanwhile;
    const int32_t *a = packed_a;
    const char *b = packed_b;
    __m256i s0[MR], s1[MR], s2[MR];
    EACH_ROW
    {
        s0[i] = _mm256_set1_epi32(start[i]);
        s1[i] = _mm256_set1_epi32(start[MR + i]);
        s2[i] = _mm256_set1_epi32(start[2 * MR + i]);
    }
    for (size_t g = 0; g < groups; g++, a += digits * MR, b += digits * 4 * NR) {
        __m256i b0 = columns_at(b), b1 = columns_at(b + 4 * NR);
        __m256i b2 = digits == 3 ? columns_at(b + 8 * NR) : _mm256_setzero_si256();
        EACH_ROW
        {
            __m256i a0 = _mm256_set1_epi32(a[i]), a1 = _mm256_set1_epi32(a[MR + i]);
            ADD_PRODUCTS(s0[i], b0, a0);
            ADD_PRODUCTS(s1[i], b1, a0);
            ADD_PRODUCTS(s1[i], b0, a1);
            ADD_PRODUCTS(s2[i], b1, a1);
            if (digits == 3) {
                ADD_PRODUCTS(s2[i], b2, a0);
                ADD_PRODUCTS(s2[i], b0, _mm256_set1_epi32(a[2 * MR + i]));
            }
        }
    }
    EACH_ROW
    {
        _mm256_storeu_si256((void *)(c + NR * i), s0[i]);
        _mm256_storeu_si256((void *)(c + NR * (MR + i)), s1[i]);
        _mm256_storeu_si256((void *)(c + NR * (2 * MR + i)), s2[i]);
    }
}

#include "matmul/kernels/int8_start.h"

MU_INT8_KERNEL(avx_vnni_int8_4x8, .start = start_of)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
