/*
 * kernel_amx_bf16.c: the micro-kernel that multiplies bf16 with AMX-BF16. A tile register holds 16
 * rows of 64 bytes; tdpbf16ps multiplies 16 rows by 32 k of A with 32 k by 16 columns of B. A tile
 * of C takes four registers for sums and four for operands. Operands are always packed. kernel.h
 * has the order of summation.
 *
 * Tests on CPUs without AMX define MU_EMULATE and provide the tile instructions.
 */
#include "base/base.h"

#if defined(MU_HAVE_AMX)

#define TARGET_AMX
#include "vector/kernels/target.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "matmul/kernels/amx.h"
#include "matmul/kernels/kernels.h"
#include "matmul/kernels/simd_avx512_bf16.h"
#include "vector/kernels/unroll.h"

#define PAIRS 1
#define K_GROUP 32
#define T float
#define T_DTYPE MUONIUM_F32
#define T_BITS 32
#define VEC(op) vf_##op
#define V vf_t
#define VL 16
#define MR 32
#define NV 2
#define NR (NV * VL)
#define NAME(f) f##_amx_bf16

enum { NAME(grain) = VL };

#include "vector/kernels/convert_template.h"

#include "matmul/kernels/pack_template.h"
#include "matmul/kernels/pack_k_groups.h"

enum {
    ROW = AMX_ROW_BYTES,
    B_ROW = 4 * NR,                /* from a row of a register to the next in a B-panel, */
    A_LOWER = 16 * ROW,            /* from the upper half of an A-panel to the lower, */
    GROUP_BYTES = K_GROUP * 2 * NR /* and from a k-group of a panel to the next */
};

/* to = the sums of so many k-groups, rows ld elements apart. Of less than 17 rows or columns only
 * the first half is computed. */
static void add_k_groups(size_t groups, const char *a, const char *b, bool lower, bool right,
                         float *to, size_t ld)
{
    MEMORY_BARRIER();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (lower && right) {
        for (; groups > 0; groups--, a += GROUP_BYTES, b += GROUP_BYTES) {
            _tile_loadd(6, b, B_ROW);
            _tile_loadd(4, a, ROW);
            _tile_loadd(7, b + ROW, B_ROW);
            _tile_loadd(5, a + A_LOWER, ROW);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    } else if (right) {
        for (; groups > 0; groups--, a += GROUP_BYTES, b += GROUP_BYTES) {
            _tile_loadd(4, a, ROW);
            _tile_loadd(6, b, B_ROW);
            _tile_loadd(7, b + ROW, B_ROW);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
    } else {
        for (; groups > 0; groups--, a += GROUP_BYTES, b += GROUP_BYTES) {
            _tile_loadd(6, b, B_ROW);
            _tile_loadd(4, a, ROW);
            _tile_loadd(5, a + A_LOWER, ROW);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(2, 5, 6);
        }
    }
    _tile_stored(0, to, 4 * ld);
    if (right) {
        _tile_stored(1, to + 16, 4 * ld);
    }
    if (lower) {
        _tile_stored(2, to + 16 * ld, 4 * ld);
        if (right) {
            _tile_stored(3, to + 16 * ld + 16, 4 * ld);
        }
    }
    MEMORY_BARRIER();
}

static void NAME(tile)(size_t k, size_t kc, const void *a, ptrdiff_t a_row, ptrdiff_t a_k,
                       const void *b, ptrdiff_t b_k, void *c, ptrdiff_t ldc, size_t rows,
                       size_t cols, bool accumulate)
{
    _Alignas(MU_ALIGNMENT) float sums[2][MR][NR];
    const char *left = a, *right = b;
    bool two = k > kc, whole = rows == MR && cols == NR;
    /* A panel of A has room for all rows, so that the lower half may be computed in vain. */
    bool lower = rows > 16 || cols <= 16, wide = cols > 16;
    (void)a_row;
    (void)a_k;
    (void)b_k;
    if (two) {
        size_t groups = (kc + K_GROUP - 1) / K_GROUP;
        add_k_groups(groups, left, right, lower, wide, sums[0][0], NR);
        left += groups * GROUP_BYTES;
        right += groups * GROUP_BYTES;
        k -= kc;
    }
    size_t groups = (k + K_GROUP - 1) / K_GROUP;
    if (whole && !two && !accumulate) {
        add_k_groups(groups, left, right, true, true, c, (size_t)ldc);
        return;
    }
    float(*first)[NR] = sums[0], (*last)[NR] = sums[1];
    add_k_groups(groups, left, right, lower, wide, last[0], NR);
    for (size_t i = 0; i < rows; i++) {
        float *restrict to = (float *)c + (ptrdiff_t)i * ldc;
        if (cols == NR) {
            MU_UNROLLED
            for (size_t j = 0; j < NR; j += VL) {
                V sum = VEC(load)(&last[i][j]);
                if (two || accumulate) {
                    V before = accumulate ? VEC(load)(to + j) : VEC(load)(&first[i][j]);
                    before = two && accumulate ? VEC(add)(before, VEC(load)(&first[i][j])) : before;
                    sum = VEC(add)(before, sum);
                }
                VEC(store)(to + j, sum);
            }
            continue;
        }
        for (size_t j = 0; j < cols; j++) {
            float before = accumulate ? to[j] : 0;
            before = two ? before + first[i][j] : before;
            to[j] = two || accumulate ? before + last[i][j] : last[i][j];
        }
    }
}

/* The products alone, of numbers that change from one to the next. */
static double NAME(burst)(size_t rounds)
{
    enum { REGISTERS = 4, PRODUCTS = 4 };
    _Alignas(MU_ALIGNMENT) uint16_t numbers[REGISTERS][K_GROUP * VL];
    uint32_t state = 1;
    for (size_t i = 0; i < REGISTERS * K_GROUP * VL; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(int32_t)state * 0x1p-31f;
        numbers[i / (K_GROUP * VL)][i % (K_GROUP * VL)] = mu_bf16_from_f32(x);
    }
    mu_amx_enter();
    MEMORY_BARRIER();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, numbers[0], ROW);
    _tile_loadd(5, numbers[1], ROW);
    _tile_loadd(6, numbers[2], ROW);
    _tile_loadd(7, numbers[3], ROW);
    for (size_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    MEMORY_BARRIER();
    mu_amx_leave();
    return 2.0 * PRODUCTS * VL * VL * K_GROUP * (double)rounds;
}

MU_KERNEL_WITH(amx_bf16_32x32, avx512_f32, .k_group = K_GROUP, .own_bits = true,
               .enter = mu_amx_enter, .leave = mu_amx_leave)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
