/*
 * elementwise.c: which element-wise updates exist.
 */
#include "vector/kernels/kernels.h"

static const mu_elementwise *const all[] = {
#define ROWS(name, set)
#define ELEMENTWISE(name, set) &mu_elementwise_##name,
#include "vector/kernels/kernels.def"
};

const mu_elementwise *mu_elementwise_for(mu_features usable)
{
    size_t index = MU_COUNT(all) - 1;
    while (!mu_includes(usable, all[index]->needs)) {
        index--; /* the first needs nothing */
    }
    return all[index];
}

const mu_elementwise *mu_elementwise_at(size_t index)
{
    return index < MU_COUNT(all) ? all[index] : NULL;
}
