/*
 * kernels.h: the kernels as objects: one declaration per line of kernels.def, and
 * the initialiser that the instantiating files share.
 */
#ifndef MU_KERNELS_H
#define MU_KERNELS_H

#include "matmul/kernel.h"
#include "vector/kernels/kernels.h"

#define KERNEL(name, set, mr, nr, grain, kc, unpacked_b, b_pass_bytes)                             \
    extern const mu_kernel mu_kernel_##name;                                                       \
    double mu_burst_##name(size_t rounds);                                                         \
    enum {                                                                                         \
        name##_needs = MU_NEEDS_##set,                                                             \
        name##_mr = mr,                                                                            \
        name##_nr = nr,                                                                            \
        name##_grain = grain,                                                                      \
        name##_kc = kc,                                                                            \
        name##_unpacked_b = unpacked_b,                                                            \
        name##_b_pass_bytes = b_pass_bytes                                                         \
    };
#include "matmul/kernels/kernels.def"
#undef KERNEL

/* The objects of a line KERNEL(name_, ...), from the functions of kernel_template.h. `rows_` are
 * the row operations of the same type and instruction set. */
#define MU_KERNEL(name_, rows_) MU_KERNEL_WITH(name_, rows_, .k_group = 1 + PAIRS)

/* The same with further members. */
#define MU_KERNEL_WITH(name_, rows_, ...)                                                          \
    _Static_assert((int)name_##_mr == MR && (int)name_##_nr == NV * VL &&                          \
                       (int)name_##_grain == (int)NAME(grain),                                     \
                   "blocksizes differ from the tile");                                             \
    const mu_kernel mu_kernel_##name_ = {.name = #name_,                                           \
                                         .needs = name_##_needs,                                   \
                                         .type = T_DTYPE,                                          \
                                         .operands = PAIRS ? MUONIUM_BF16 : T_DTYPE,               \
                                         .mr = MR,                                                 \
                                         .nr = NV * VL,                                            \
                                         .grain = NAME(grain),                                     \
                                         .kc = name_##_kc,                                         \
                                         .unpacked_b = name_##_unpacked_b,                         \
                                         .b_pass_bytes = name_##_b_pass_bytes,                     \
                                         .tile = NAME(tile),                                       \
                                         .pack_a = NAME(pack_a),                                   \
                                         .pack_b = NAME(pack_b),                                   \
                                         .rows = &mu_rows_##rows_,                                 \
                                         __VA_ARGS__};                                             \
    double mu_burst_##name_(size_t rounds)                                                         \
    {                                                                                              \
        return NAME(burst)(rounds);                                                                \
    }

#endif
