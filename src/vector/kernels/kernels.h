/*
 * kernels.h: the objects that kernels.def lists, and the initialiser of row operations.
 */
#ifndef MU_VECTOR_KERNELS_H
#define MU_VECTOR_KERNELS_H

#include "vector/elementwise.h"
#include "vector/kernels/unroll.h"
#include "vector/rows.h"

#define ROWS(name, set)                                                                            \
    extern const mu_rows mu_rows_##name;                                                           \
    enum { mu_rows_##name##_needs = MU_NEEDS_##set };
#define ELEMENTWISE(name, set)                                                                     \
    extern const mu_elementwise mu_elementwise_##name;                                             \
    enum { mu_elementwise_##name##_needs = MU_NEEDS_##set };
#include "vector/kernels/kernels.def"
#undef ROWS
#undef ELEMENTWISE

/* The object of a line ROWS(name_, ...), from the functions of rows_template.h. */
#define MU_ROWS(name_)                                                                             \
    const mu_rows mu_rows_##name_ = {                                                              \
        .needs = mu_rows_##name_##_needs,                                                          \
        .type = T_DTYPE,                                                                           \
        .load = NAME(load),                                                                        \
        .store = NAME(store),                                                                      \
        .stats = NAME(row_stats),                                                                  \
        .squares = NAME(row_squares),                                                              \
        .abs_sum = NAME(row_abs_sum),                                                              \
        .scale = NAME(row_scale),                                                                  \
        .add = NAME(row_add),                                                                      \
        .round = NAME(row_round),                                                                  \
        .combine = NAME(row_combine),                                                              \
        .mirror = NAME(mirror),                                                                    \
        .epilogue = NAME(epilogue),                                                                \
    };

/* See mu_elementwise; the same code for every instruction set, in round_stochastic.c. */
void mu_round_stochastic(const float *x, size_t n, muonium_dtype half, uint64_t key,
                         uint64_t stream, uint64_t first, uint16_t *to);

#endif
