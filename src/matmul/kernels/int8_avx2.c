/*
 * int8_avx2.c: fixed-point products with AVX2. Digits are widened to 16 bits, because the
 * instruction that multiplies bytes saturates its sums.
 */
#include "base/base.h"

#if defined(__x86_64__)

#define TARGET_AVX2
#include "vector/kernels/target.h"

#define VL 8
#include "vector/kernels/simd_avx2.h"

#define MR 4
#define NR 8
#include "matmul/kernels/int8_template.h"

/* Four lines of B by four k, and four k of a row of A for all of them, as 16 bits. */
static inline __m256i widen_lines(const int8_t *b)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)b));
}
static inline __m256i widen_row(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm256_cvtepi8_epi16(_mm_set1_epi32(word));
}

/* S += A B for four k, pairs of which stay apart. */
#define ADD_PRODUCTS(S, A, B) S = _mm256_add_epi32(S, _mm256_madd_epi16(A, B))
#define EACH_ROW                                                                                   \
    MU_UNROLLED                                                                                    \
    for (size_t i = 0; i < MR; i++)

/* Four columns of a tile. */
static void half_tile(int digits, size_t groups, const int8_t *a, const int8_t *b, int32_t *c)
{
    __m256i s0[MR], s1[MR], s2[MR];
    EACH_ROW
    {
        s0[i] = s1[i] = s2[i] = _mm256_setzero_si256();
    }
    for (size_t g = 0; g < groups;
         g++, a += 4 * MR * (size_t)digits, b += 4 * NR * (size_t)digits) {
        __m256i b0 = widen_lines(b), b1 = widen_lines(b + 4 * NR);
        if (digits == 3) {
            __m256i b2 = widen_lines(b + 8 * NR);
            EACH_ROW
            {
                __m256i x = widen_row(a + 4 * i);
                ADD_PRODUCTS(s0[i], x, b0);
                ADD_PRODUCTS(s1[i], x, b1);
                ADD_PRODUCTS(s2[i], x, b2);
                x = widen_row(a + 4 * (MR + i));
                ADD_PRODUCTS(s1[i], x, b0);
                ADD_PRODUCTS(s2[i], x, b1);
                x = widen_row(a + 4 * (2 * MR + i));
                ADD_PRODUCTS(s2[i], x, b0);
            }
        } else {
            EACH_ROW
            {
                __m256i x = widen_row(a + 4 * i);
                ADD_PRODUCTS(s0[i], x, b0);
                ADD_PRODUCTS(s1[i], x, b1);
                x = widen_row(a + 4 * (MR + i));
                ADD_PRODUCTS(s1[i], x, b0);
                ADD_PRODUCTS(s2[i], x, b1);
            }
        }
    }
    /* Each line has two sums side by side. */
    EACH_ROW
    {
        __m256i s01 = _mm256_permute4x64_epi64(_mm256_hadd_epi32(s0[i], s1[i]), 0xd8);
        __m256i s2x = _mm256_permute4x64_epi64(_mm256_hadd_epi32(s2[i], s2[i]), 0xd8);
        _mm_storeu_si128((void *)(c + i * NR), _mm256_castsi256_si128(s01));
        _mm_storeu_si128((void *)(c + (MR + i) * NR), _mm256_extracti128_si256(s01, 1));
        _mm_storeu_si128((void *)(c + (2 * MR + i) * NR), _mm256_castsi256_si128(s2x));
    }
}

static void tile(int digits, size_t groups, const void *a, const void *b, const int32_t *start,
                 int32_t *c, const mu_meanwhile *meanwhile)
{
    (void)start;
    (void)meanwhile;
    half_tile(digits, groups, a, b, c);
    half_tile(digits, groups, a, (const int8_t *)b + 16, c + 4);
}

MU_INT8_KERNEL(avx2_int8_4x8, .start = NULL)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
