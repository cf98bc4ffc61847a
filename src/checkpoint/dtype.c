/*
 * dtype.c: the element types of safetensors files and the size of a tensor.
 */
#include "checkpoint/safetensors.h"

#include <string.h>

/* Bits rather than bytes, since the format has packed types below a byte. */
static const struct {
    const char *name;
    unsigned bits;
} types[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

static const char *const computed[] = {
    [MUONIUM_F32] = "F32", [MUONIUM_F64] = "F64", [MUONIUM_BF16] = "BF16",
    [MUONIUM_F16] = "F16", [MUONIUM_INT8] = "I8",
};

unsigned mu_dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) == 0) {
            return types[i].bits;
        }
    }
    return 0;
}

bool mu_tensor_bytes(unsigned bits, size_t ndim, const uint64_t *shape, uint64_t *bytes)
{
    size_t elements = 1;
    bool empty = false;
    for (size_t i = 0; i < ndim; i++) {
        if (shape[i] == 0) {
            empty = true;
        } else if (shape[i] > SIZE_MAX || !mu_mul(elements, (size_t)shape[i], &elements)) {
            return false;
        }
    }
    /* In units of eight elements: the number of bits may overflow where bytes do not. */
    size_t total;
    size_t rest = elements % 8 * bits;
    if (!mu_mul(elements / 8, bits, &total) || !mu_add(total, rest / 8, &total)) {
        return false;
    }
    *bytes = empty ? 0 : total;
    return empty || rest % 8 == 0;
}

const char *muonium_dtype_name(muonium_dtype dtype)
{
    size_t index = (size_t)dtype;
    return index < sizeof computed / sizeof computed[0] ? computed[index] : NULL;
}

bool muonium_dtype_named(const char *name, muonium_dtype *dtype)
{
    for (size_t i = 0; i <= MUONIUM_F16; i++) {
        if (name != NULL && strcmp(computed[i], name) == 0) {
            *dtype = (muonium_dtype)i;
            return true;
        }
    }
    return false;
}
