/*
 * kernels.h: the kernels as objects: one declaration per line of registry.h, and
 * the initialiser that the instantiating files share.
 */
#ifndef MU_KERNELS_H
#define MU_KERNELS_H

#include "matmul/kernel.h"
#include "vector/kernels/rows_kernels.h"

#define KERNEL(name)                                                                               \
    extern const mu_kernel mu_kernel_##name;                                                       \
    double mu_burst_##name(size_t rounds);
#include "matmul/kernels/registry.h"
#undef KERNEL

/* The objects of a kernel, from the parameters of kernel_template.h. `rows_` are the row
 * operations beside it. */
#define MU_KERNEL(name_, isa_, rows_)                                                              \
    const mu_kernel mu_kernel_##name_ = {                                                          \
        .name = #name_,                                                                            \
        .isa = isa_,                                                                               \
        .type = T_DTYPE,                                                                           \
        .operands = PAIRS ? MUONIUM_BF16 : T_DTYPE,                                                \
        .mr = MR,                                                                                  \
        .nr = NV * VL,                                                                             \
        .grain = NAME(grain),                                                                      \
        .kc = KC,                                                                                  \
        .plain_right = PLAIN_RIGHT,                                                                \
        .strip_bytes = STRIP_BYTES,                                                                \
        .tile = NAME(tile),                                                                        \
        .pack_a = NAME(pack_a),                                                                    \
        .pack_b = NAME(pack_b),                                                                    \
        .rows = &rows_,                                                                            \
    };                                                                                             \
    double mu_burst_##name_(size_t rounds)                                                         \
    {                                                                                              \
        return NAME(burst)(rounds);                                                                \
    }

#endif
