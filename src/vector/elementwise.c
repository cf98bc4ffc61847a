/*
 * elementwise.c: which element-wise kernels exist.
 */
#include "vector/kernels/elementwise_kernels.h"

static const mu_elementwise *const kernels[] = {
    &mu_elementwise_portable,
#if defined(__x86_64__)
    &mu_elementwise_avx2,
    &mu_elementwise_avx512,
#endif
};

enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

const mu_elementwise *mu_elementwise_for(mu_isa isa)
{
    size_t index = KERNEL_COUNT - 1;
    while (kernels[index]->isa > isa) {
        index--; /* the first is portable: never beyond what is asked for */
    }
    return kernels[index];
}

const mu_elementwise *mu_elementwise_at(size_t index)
{
    return index < KERNEL_COUNT ? kernels[index] : NULL;
}
