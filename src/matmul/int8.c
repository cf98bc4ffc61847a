/*
 * int8.c: which int8 kernels exist, and which one this process uses.
 */
#include "matmul/int8.h"

#define INT8_KERNEL(name, ...) extern const mu_int8_kernel mu_int8_##name;
#include "matmul/kernels/int8.def"
#undef INT8_KERNEL

static const mu_int8_kernel *const kernels[] = {
#define INT8_KERNEL(name, ...) &mu_int8_##name,
#include "matmul/kernels/int8.def"
#undef INT8_KERNEL
};

enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

const mu_int8_kernel *mu_int8_at(size_t index)
{
    return index < KERNEL_COUNT ? kernels[index] : NULL;
}

muonium_status mu_int8_choose(const mu_int8_kernel **kernel)
{
    muonium_status status = mu_cpu_choose();
    for (size_t i = 0; status == MUONIUM_OK && i < KERNEL_COUNT; i++) {
        if (mu_includes(mu_cpu_usable(), kernels[i]->needs)) {
            *kernel = kernels[i];
        }
    }
    return status;
}
