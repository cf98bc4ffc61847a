/*
 * int8_amx.c: fixed-point products with AMX-INT8. A tile register holds 16 rows of 64 bytes;
 * tdpbssd multiplies 16 rows by 64 k of A with 64 k by 16 columns of B.
 *
 * S_0 of a 32 x 32 tile takes four registers for sums and four for operands. S_1 and S_2 are then
 * computed together on halves of 16 columns, ten products for nine loads.
 *
 * Tests on CPUs without AMX define MU_EMULATE and provide the tile instructions.
 */
#include "base/base.h"

#if defined(MU_HAVE_AMX)

#define TARGET_AMX
#include "vector/kernels/target.h"

#if defined(MU_EMULATE)
#define VL 4
#include "vector/kernels/simd_portable.h"
#else
#define VL 16
#include "vector/kernels/simd_avx512.h"
#endif
#include "vector/kernels/transpose_avx512.h"

#define MR 32
#define NR 32
#define A_LINES 1
#define B_LINES 16
#define GROUPS 16
#define PACK_A pack_rows
#define PACK_B pack_b
#define LARGEST largest_of_rows
#define COMBINE combine
#include "matmul/kernels/int8_template.h"

#include "matmul/kernels/int8_rows.h"

#include "matmul/kernels/amx.h"

enum {
    REGISTER = 1024, /* bytes of a tile register */
    ROW = AMX_ROW_BYTES
};

/* What is left to do beside the products, a part at a time. */
typedef struct rest {
    const mu_tile_end *end;
    size_t next, each; /* rows of the end */
    bool whole;
    const char *ahead;
    size_t bytes, part; /* ahead, and of that at a time */
} rest;

static rest rest_of(const mu_meanwhile *meanwhile, size_t parts)
{
    rest r = {.end = meanwhile->end, .ahead = meanwhile->ahead, .bytes = meanwhile->bytes};
    r.each = (MR + parts - 1) / parts;
    r.part = r.bytes / parts;
    if (r.end) {
        r.whole = is_whole(r.end);
        prefetch_rows(r.end, 0, 2 * r.each + 4);
    }
    return r;
}

INLINE void go_on(rest *r)
{
    if (r->end) {
        end_rows(r->end, r->next, r->next + r->each, r->whole);
        prefetch_rows(r->end, r->next + 2 * r->each + 4, r->next + 3 * r->each + 4);
        r->next += r->each;
    }
    for (size_t at = 0; at < r->part; at += ROW) {
        __builtin_prefetch(r->ahead + at, 0, 2);
    }
    r->ahead += r->part;
}

static void tile(int digits, size_t groups, const void *packed_a, const void *packed_b,
                 const int32_t *start, int32_t *c, const mu_meanwhile *meanwhile)
{
    size_t blocks = groups / GROUPS, block = (size_t)digits * 2 * REGISTER;
    rest r = rest_of(meanwhile, 2 * blocks);
    (void)start;
    MEMORY_BARRIER();
    const char *a = packed_a, *b = packed_b;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < blocks; k++, a += block, b += block) {
        _tile_loadd(4, a, ROW);
        _tile_loadd(6, b, ROW);
        _tile_loadd(5, a + REGISTER, ROW);
        _tile_loadd(7, b + REGISTER, ROW);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, c, 4 * NR);
    _tile_stored(1, c + 16, 4 * NR);
    _tile_stored(2, c + 16 * NR, 4 * NR);
    _tile_stored(3, c + 16 * NR + 16, 4 * NR);
    for (int half = 0; half < 2; half++) {
        a = packed_a;
        b = (const char *)packed_b + half * REGISTER;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t k = 0; k < blocks; k++, a += block, b += block) {
            if (digits == 3) {
                _tile_loadd(4, a, ROW);
                _tile_loadd(6, b + 2 * REGISTER, ROW);
                _tile_loadd(5, a + REGISTER, ROW);
                _tile_dpbssd(0, 4, 6);
                _tile_dpbssd(1, 5, 6);
                _tile_loadd(7, b + 4 * REGISTER, ROW);
                _tile_dpbssd(2, 4, 7);
                _tile_dpbssd(3, 5, 7);
                _tile_loadd(4, a + 2 * REGISTER, ROW);
                _tile_loadd(5, a + 3 * REGISTER, ROW);
                _tile_dpbssd(2, 4, 6);
                _tile_dpbssd(3, 5, 6);
                _tile_loadd(7, b, ROW);
                _tile_dpbssd(0, 4, 7);
                _tile_dpbssd(1, 5, 7);
                _tile_loadd(4, a + 4 * REGISTER, ROW);
                _tile_loadd(5, a + 5 * REGISTER, ROW);
                _tile_dpbssd(2, 4, 7);
                _tile_dpbssd(3, 5, 7);
            } else {
                _tile_loadd(4, a, ROW);
                _tile_loadd(6, b + 2 * REGISTER, ROW);
                _tile_loadd(5, a + REGISTER, ROW);
                _tile_dpbssd(0, 4, 6);
                _tile_dpbssd(1, 5, 6);
                _tile_loadd(4, a + 2 * REGISTER, ROW);
                _tile_loadd(5, a + 3 * REGISTER, ROW);
                _tile_dpbssd(2, 4, 6);
                _tile_dpbssd(3, 5, 6);
                _tile_loadd(7, b, ROW);
                _tile_dpbssd(0, 4, 7);
                _tile_dpbssd(1, 5, 7);
            }
            go_on(&r);
        }
        int32_t *to = c + MR * NR + half * 16;
        _tile_stored(0, to, 4 * NR);
        _tile_stored(1, to + 16 * NR, 4 * NR);
        to += MR * NR;
        _tile_stored(2, to, 4 * NR);
        _tile_stored(3, to + 16 * NR, 4 * NR);
    }
    MEMORY_BARRIER();
}

MU_INT8_KERNEL(amx_int8_32x32, .by_rows = true, .interleaved = true, .transpose = transpose_panel,
               .enter = mu_amx_enter, .leave = mu_amx_leave)

#include "vector/kernels/target_end.h"

#else

typedef int mu_no_kernel_here; /* a translation unit must not be empty */

#endif
