/*
 * emulated_tiles.h: the tile registers of AMX and the instructions that move them, in plain C. The
 * includer defines those that multiply.
 */
#ifndef MUONIUM_EMULATED_TILES_H
#define MUONIUM_EMULATED_TILES_H

#include <stdint.h>
#include <string.h>

#include "test.h"

enum { TILE_REGISTERS = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

static _Thread_local struct {
    int8_t byte[TILE_ROWS][TILE_ROW_BYTES];
} tiles[TILE_REGISTERS];

static _Thread_local bool tiles_configured;

static void configure_tiles(const void *config)
{
    const uint8_t *bytes = config;
    assert_int_equal(bytes[0], 1); /* palette */
    for (int i = 0; i < TILE_REGISTERS; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof row_bytes);
        assert_int_equal(row_bytes, TILE_ROW_BYTES);
        assert_int_equal(bytes[48 + i], TILE_ROWS);
    }
    tiles_configured = true;
}

static void zero_tile(int t)
{
    assert_true(tiles_configured);
    memset(&tiles[t], 0, sizeof tiles[t]);
}

static void load_tile(int t, const void *from, size_t stride)
{
    for (size_t r = 0; r < TILE_ROWS; r++) {
        memcpy(tiles[t].byte[r], (const char *)from + r * stride, TILE_ROW_BYTES);
    }
}

static void store_tile(int t, void *to, size_t stride)
{
    for (size_t r = 0; r < TILE_ROWS; r++) {
        memcpy((char *)to + r * stride, tiles[t].byte[r], TILE_ROW_BYTES);
    }
}

static void release_tiles(void)
{
    assert_true(tiles_configured);
    tiles_configured = false;
}

#define _tile_loadconfig(config) configure_tiles(config)
#define _tile_release() release_tiles()
#define _tile_zero(t) zero_tile(t)
#define _tile_loadd(t, from, stride) load_tile(t, from, stride)
#define _tile_stored(t, to, stride) store_tile(t, to, stride)

#endif
