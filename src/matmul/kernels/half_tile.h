/*
 * half_tile.h: a tile of one vector, half as long as those of the kernel that takes it for its
 * last columns as HALF_TILE. Of VEC, VL and NAME, which it undefines, and the parameters that it
 * has in common with that kernel. No include guard, on purpose.
 */
#define NV 1
#include "matmul/kernels/tile_template.h"
#undef V
#undef NR
#undef VEC
#undef VL
#undef NV
#undef NAME
