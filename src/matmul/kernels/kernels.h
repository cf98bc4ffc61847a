/*
 * kernels.h: the kernels as objects: one declaration per line of registry.h, and
 * the initialiser that the instantiating files share.
 */
#ifndef MU_KERNELS_H
#define MU_KERNELS_H

#include "matmul/kernel.h"

#define KERNEL(name) extern const mu_kernel name;
#include "matmul/kernels/registry.h"
#undef KERNEL

#define MU_KERNEL(isa_, name_)                                                                     \
    {                                                                                              \
        .name = name_, .isa = isa_, .type = T_DTYPE, .operands = PAIRS ? MUONIUM_BF16 : T_DTYPE,   \
        .mr = MR, .nr = NV * VL, .grain = NAME(grain), .kc = KC, .plain_right = PLAIN_RIGHT,       \
        .strip_bytes = STRIP_BYTES, .tile = NAME(tile), .pack_a = NAME(pack_a),                    \
        .pack_b = NAME(pack_b), .mirror = NAME(mirror), .finish = NAME(finish),                    \
        .load = NAME(load), .store = NAME(store), .row_stats = NAME(row_stats),                    \
        .row_squares = NAME(row_squares), .row_abs_sum = NAME(row_abs_sum),                        \
        .row_scale = NAME(row_scale), .row_add = NAME(row_add), .row_round = NAME(row_round),      \
        .row_combine = NAME(row_combine), .burst = NAME(burst),                                    \
    }

#endif
