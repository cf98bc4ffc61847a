/*
 * int8_portable.c: fixed-point products in portable C.
 */
#define VL 4
#include "vector/kernels/simd_portable.h"

#define MR 4
#define NR 8
#include "matmul/kernels/int8_template.h"

/* c[i][j] += the products of four k of MR rows and NR columns. */
static void add_products(const int8_t *a, const int8_t *b, int32_t *c)
{
    int16_t columns[4][NR];
    for (size_t j = 0; j < NR; j++) {
        for (size_t e = 0; e < 4; e++) {
            columns[e][j] = b[4 * j + e];
        }
    }
    for (size_t i = 0; i < MR; i++, a += 4) {
        for (size_t j = 0; j < NR; j++) {
            c[i * NR + j] += a[0] * columns[0][j] + a[1] * columns[1][j] + a[2] * columns[2][j] +
                             a[3] * columns[3][j];
        }
    }
}

static void tile(int digits, size_t groups, const void *a, const void *b, const int32_t *start,
                 int32_t *c, const mu_meanwhile *meanwhile)
{
    const int8_t *rows = a, *columns = b;
    (void)start;
    (void)meanwhile;
    memset(c, 0, MU_SUMS * MR * NR * sizeof *c);
    for (size_t g = 0; g < groups; g++) {
        for (int p = 0; p < digits; p++) {
            for (int q = 0; q < digits && p + q < MU_SUMS; q++) {
                add_products(rows + p * 4 * MR, columns + q * 4 * NR, c + (p + q) * MR * NR);
            }
        }
        rows += digits * 4 * MR;
        columns += digits * 4 * NR;
    }
}

MU_INT8_KERNEL(portable_int8_4x8, .start = NULL)
