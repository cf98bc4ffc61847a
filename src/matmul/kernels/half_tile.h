/*
 * half_tile.h: a tile of one vector that is half as long as those of the kernel, which uses it for
 * its last columns as HALF_TILE. Parameters: VEC, VL and NAME, which it undefines, and those that
 * it shares with that kernel. No include guard, on purpose.
 */
#define NV 1
#include "matmul/kernels/tile_template.h"
#undef V
#undef NR
#undef VEC
#undef VL
#undef NV
#undef NAME
