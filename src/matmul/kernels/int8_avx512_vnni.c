/*
 * int8_avx512_vnni.c: fixed-point products with AVX512-VNNI. vpdpbusd multiplies unsigned by
 * signed bytes, so digits of B are stored plus 128; what that adds to a row, 128 times the sum of
 * its digits, is taken off where the sums start.
 */
#include "base/base.h"

#if defined(__x86_64__)

#define TARGET_AVX512_VNNI
#include "vector/kernels/target.h"

#if defined(MU_EMULATE)
#define VL 4
#include "vector/kernels/simd_portable.h"
#else
#define VL 16
#include "vector/kernels/simd_avx512.h"
#endif

#define MR 8
#define NR 16
#define BIAS 128
#define PACK_A pack_lanes_of_a
#define PACK_B pack_lanes_of_b
#define LARGEST largest_of_lanes
#include "matmul/kernels/int8_template.h"

#include "matmul/kernels/int8_lanes.h"

/* S += B times the words A. A word of A is loaded once for all its products: one load for each
 * product would be more than two in a cycle. */
#define ADD_PRODUCTS(S, B, A) S = _mm512_dpbusd_epi32(S, B, A)
#define EACH_ROW                                                                                   \
    MU_UNROLLED                                                                                    \
    for (size_t i = 0; i < MR; i++)

static void tile(int digits, size_t groups, const void *packed_a, const void *packed_b,
                 const int32_t *start, int32_t *c, const mu_meanwhile *meanwhile)
{
    (void)meanwhile;
    const int32_t *a = packed_a;
    const char *b = packed_b;
    __m512i s0[MR], s1[MR], s2[MR];
    EACH_ROW
    {
        s0[i] = _mm512_set1_epi32(start[i]);
        s1[i] = _mm512_set1_epi32(start[MR + i]);
        s2[i] = _mm512_set1_epi32(start[2 * MR + i]);
    }
    if (digits == 3) {
        for (size_t g = 0; g < groups; g++, a += 3 * MR, b += 3 * 4 * NR) {
            __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 4 * NR);
            __m512i b2 = _mm512_loadu_si512(b + 8 * NR);
            EACH_ROW
            {
                __m512i x = _mm512_set1_epi32(a[i]);
                ADD_PRODUCTS(s0[i], b0, x);
                ADD_PRODUCTS(s1[i], b1, x);
                ADD_PRODUCTS(s2[i], b2, x);
                x = _mm512_set1_epi32(a[MR + i]);
                ADD_PRODUCTS(s1[i], b0, x);
                ADD_PRODUCTS(s2[i], b1, x);
                x = _mm512_set1_epi32(a[2 * MR + i]);
                ADD_PRODUCTS(s2[i], b0, x);
            }
        }
    } else {
        for (size_t g = 0; g < groups; g++, a += 2 * MR, b += 2 * 4 * NR) {
            __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 4 * NR);
            EACH_ROW
            {
                __m512i x = _mm512_set1_epi32(a[i]);
                ADD_PRODUCTS(s0[i], b0, x);
                ADD_PRODUCTS(s1[i], b1, x);
                x = _mm512_set1_epi32(a[MR + i]);
                ADD_PRODUCTS(s1[i], b0, x);
                ADD_PRODUCTS(s2[i], b1, x);
            }
        }
    }
    EACH_ROW
    {
        _mm512_storeu_si512(c + NR * i, s0[i]);
        _mm512_storeu_si512(c + NR * (MR + i), s1[i]);
        _mm512_storeu_si512(c + NR * (2 * MR + i), s2[i]);
    }
}

#define DOT_BYTES(S, B, A) _mm256_dpbusd_epi32(S, B, A)
#include "matmul/kernels/int8_start.h"

MU_INT8_KERNEL(avx512_vnni_int8_8x16, .start = start_of)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
