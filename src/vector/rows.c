/*
 * rows.c: which row operations exist, and which this process uses.
 */
#include "vector/kernels/kernels.h"

static const mu_rows *const all[] = {
#define ROWS(name, set) &mu_rows_##name,
#define ELEMENTWISE(name, set)
#include "vector/kernels/kernels.def"
};

muonium_status mu_rows_choose(muonium_dtype type, const mu_rows **rows)
{
    muonium_dtype wanted = type == MUONIUM_F64 ? MUONIUM_F64 : MUONIUM_F32;
    muonium_status status = mu_cpu_choose();
    for (size_t i = 0; status == MUONIUM_OK && i < MU_COUNT(all); i++) {
        if (all[i]->type == wanted && mu_includes(mu_cpu_usable(), all[i]->needs)) {
            *rows = all[i];
        }
    }
    return status;
}
