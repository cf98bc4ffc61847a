/*
 * rows.c: which row operations exist, and which this process uses.
 */
#include "vector/kernels/rows_kernels.h"

static const mu_rows *const all[] = {
#define ROWS(name) &name,
#include "vector/kernels/rows_list.h"
#undef ROWS
};

enum { COUNT = sizeof all / sizeof all[0] };

const mu_rows *mu_rows_at(size_t index)
{
    return index < COUNT ? all[index] : NULL;
}

muonium_status mu_rows_choose(muonium_dtype type, const mu_rows **rows)
{
    muonium_dtype wanted = type == MUONIUM_F64 ? MUONIUM_F64 : MUONIUM_F32;
    mu_isa isa;
    muonium_status status = mu_cpu_choose(&isa);
    for (size_t i = 0; status == MUONIUM_OK && i < COUNT; i++) {
        if (all[i]->type == wanted && all[i]->isa <= isa) {
            *rows = all[i];
        }
    }
    return status;
}
