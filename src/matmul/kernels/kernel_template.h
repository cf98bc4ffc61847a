/*
 * kernel_template.h: a micro-kernel: tile and packing, included once per instruction set and
 * real type by the files beside it. No include guard, on purpose. Parameters:
 *
 *   T             float or double
 *   T_DTYPE       MUONIUM_F32 or MUONIUM_F64
 *   T_BITS        32 or 64
 *   VEC(op)       the vector vocabulary: VEC(t) the type and, as functions,
 *                 load, store (unaligned), set1, zero, add, mul,
 *                 fma(a, b, c) = a*b + c, transpose(VL vectors),
 *                 choose(n, a, b), which is n lanes of a and then those of b,
 *                 widen(dtype, source) and, for f32, narrow(vector, half dtype, target)
 *   VL            lanes per vector
 *   PAIRS         1 if tiles multiply pairs of bf16, which take the place of elements of T, f32, in
 *                 micropanels; there are then fma_pairs and the operations of pack_pairs.h
 *   BY_HAND       1 if VEC(eights) is the loop of the tile (see tile_avx2.h); UNROLL is then 8
 *   MR, NV        rows of a tile, and vectors in each, 2 to 4: NR = NV*VL columns
 *   CHAINS        independent sums of the burst that measures the peak; 12 if not defined
 *   UNROLL        the loop over k is unrolled so often; 1: not
 *   HALF_TILE     if defined, a tile of MR rows by up to VL/2 columns, from tile_template.h with
 *                 vectors half as long
 *   NAME(f)       f with the suffix of this instantiation
 *
 * Tested combinations: those in the files beside this one and no others.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "matmul/kernel.h"

#include "matmul/kernels/tile_template.h"

_Static_assert(MU_BLOCK % MR == 0 && MU_BLOCK % NR == 0,
               "tiles must not cross the edge of a block");
_Static_assert(MR <= NR, "a staging buffer for NR lines serves MR lines");

#ifdef HALF_TILE
enum { NAME(grain) = VL / 2 };
#else
enum { NAME(grain) = VL };
#endif

#include "vector/kernels/convert_template.h"

#include "matmul/kernels/pack_template.h"

#include "matmul/kernels/burst_template.h"

#undef PACK
#undef STAGE
#undef RUN
#undef NR
#undef V
