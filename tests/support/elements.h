/*
 * elements.h: elements of parameters of any type but f64, and how many a shape has.
 */
#ifndef MU_TEST_ELEMENTS_H
#define MU_TEST_ELEMENTS_H

#include "base/half.h"

static inline size_t elements_of(const size_t *shape, size_t ndim)
{
    size_t count = 1;
    for (size_t d = 0; d < ndim; d++) {
        count *= shape[d];
    }
    return count;
}

static inline void put_element(void *data, muonium_dtype dtype, size_t i, float value)
{
    if (dtype == MUONIUM_F32) {
        ((float *)data)[i] = value;
    } else {
        ((uint16_t *)data)[i] = mu_half_from_f32(dtype, value);
    }
}

static inline float get_element(const void *data, muonium_dtype dtype, size_t i)
{
    return dtype == MUONIUM_F32 ? ((const float *)data)[i]
                                : mu_f32_from_half(dtype, ((const uint16_t *)data)[i]);
}

#endif
