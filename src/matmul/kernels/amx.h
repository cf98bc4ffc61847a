/*
 * amx.h: what kernels for the matrix unit share. Included after target.h, for the functions are of
 * its instruction set.
 */
#ifndef MU_AMX_H
#define MU_AMX_H

/* Compilers do not know that tile instructions read and write memory: nothing may be moved past
 * this. */
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

enum { AMX_ROW_BYTES = 64 };

/* All eight registers as 16 rows of 64 bytes. */
static void mu_amx_enter(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

static void mu_amx_leave(void)
{
    _tile_release();
}

#endif
