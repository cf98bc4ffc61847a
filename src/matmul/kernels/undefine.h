/*
 * undefine.h: the end of an instantiation of kernel_template.h: what another one of the same file
 * defines for itself. No include guard, on purpose.
 */
#undef T
#undef T_DTYPE
#undef T_BITS
#undef VEC
#undef VL
#undef MR
#undef NV
#undef UNROLL
#undef HALF_TILE
#undef KC
#undef CHAINS
#undef NAME
