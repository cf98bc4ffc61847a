/*
 * precision.c: the table of precisions.
 */
#include "matmul/matmul.h"
#include "orthogonalize/plan.h"

static const mu_precision precisions[] = {
    [MUONIUM_F32] = {.real = MUONIUM_F32, .type = MUONIUM_F32, .unit = 0x1p-24},
    [MUONIUM_F64] = {.real = MUONIUM_F64, .type = MUONIUM_F64, .unit = 0x1p-53},
    [MUONIUM_BF16] = {.real = MUONIUM_F32, .type = MUONIUM_BF16, .half = true, .unit = 0x1p-9},
    [MUONIUM_F16] = {.real = MUONIUM_F32, .type = MUONIUM_F16, .half = true, .unit = 0x1p-12},
    [MUONIUM_FIXED23] = {.real = MUONIUM_F32, .type = MUONIUM_F32, .digits = 3, .unit = 0x1p-24},
    [MUONIUM_FIXED15] = {.real = MUONIUM_F32, .type = MUONIUM_F32, .digits = 2, .unit = 0x1p-16},
    [MUONIUM_AUTO] = {.real = MUONIUM_F32, .type = MUONIUM_F32, .unit = 0x1p-24},
};

const mu_precision *mu_precision_of(muonium_dtype id)
{
    size_t index = (size_t)id;
    return index < sizeof precisions / sizeof precisions[0] ? &precisions[index] : NULL;
}

muonium_status mu_block_of_precision(muonium_dtype id, size_t k, size_t *block)
{
    const mu_precision *precision = mu_precision_of(id);
    const mu_kernel *kernel = NULL;
    muonium_status status = mu_kernel_choose(precision->real, &kernel);
    if (status == MUONIUM_OK) {
        *block = precision->digits > 0 ? MU_FIXED_K : mu_block_columns(kernel, k);
    }
    return status;
}
