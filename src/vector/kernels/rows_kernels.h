/*
 * rows_kernels.h: the row operations as objects: one declaration per line of rows_list.h, and the
 * initialiser that the instantiating files share.
 */
#ifndef MU_ROWS_KERNELS_H
#define MU_ROWS_KERNELS_H

#include "vector/kernels/unroll.h"
#include "vector/rows.h"

#define ROWS(name) extern const mu_rows name;
#include "vector/kernels/rows_list.h"
#undef ROWS

#define MU_ROWS(isa_)                                                                              \
    {                                                                                              \
        .isa = isa_, .type = T_DTYPE, .load = NAME(load), .store = NAME(store),                    \
        .stats = NAME(row_stats), .squares = NAME(row_squares), .abs_sum = NAME(row_abs_sum),      \
        .scale = NAME(row_scale), .add = NAME(row_add), .round = NAME(row_round),                  \
        .combine = NAME(row_combine), .mirror = NAME(mirror), .epilogue = NAME(epilogue),          \
    }

#endif
