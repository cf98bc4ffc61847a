/*
 * int8_start.h: where the sums of a row start if digits of B are stored plus 128: every product
 * A_p B_q then adds 128 times the sum of the digits A_p. Needs DOT_BYTES(s, unsigned, signed), and
 * micropanels of A with MR lines, 4 or 8, adjacent.
 */
static void start_of(int digits, size_t groups, const void *packed, int32_t *start)
{
    const int32_t *a = packed;
    int32_t sums[MU_MAX_DIGITS][8];
    for (int d = 0; d < digits; d++) {
        __m256i sum = _mm256_setzero_si256(), ones = _mm256_set1_epi8(1);
        for (size_t g = 0; g < groups; g++) {
            const int32_t *words = a + (g * (size_t)digits + (size_t)d) * MR;
            __m256i some = MR == 8 ? _mm256_loadu_si256((const void *)words)
                                   : _mm256_castsi128_si256(_mm_loadu_si128((const void *)words));
            sum = DOT_BYTES(sum, ones, some);
        }
        _mm256_storeu_si256((void *)sums[d], sum);
    }
    for (int w = 0; w < MU_SUMS; w++) {
        for (int i = 0; i < MR; i++) {
            int32_t sum = 0;
            for (int p = 0; p < digits; p++) {
                sum += w - p >= 0 && w - p < digits ? sums[p][i] : 0;
            }
            start[w * MR + i] = -128 * sum;
        }
    }
}
