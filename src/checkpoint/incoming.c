/*
 * incoming.c: converts and checks loaded state, and hands it over.
 */
#include "checkpoint/incoming.h"

#include <string.h>

#include "base/half.h"

muonium_status mu_incoming_begin(mu_incoming *incoming, muonium_optimizer *optimizer)
{
    size_t count = optimizer->count, bytes;
    *incoming = (mu_incoming){.optimizer = optimizer};
    bool fits = mu_mul(mu_count_state_arrays(optimizer), sizeof *incoming->arrays, &bytes);
    incoming->arrays = fits ? mu_alloc_zeroed(bytes) : NULL;
    incoming->parameters = fits ? mu_alloc_zeroed(count * sizeof *incoming->parameters) : NULL;
    if (!incoming->arrays || !incoming->parameters) {
        return mu_state_no_memory();
    }
    return MUONIUM_OK;
}

mu_incoming_array *mu_incoming_add(mu_incoming *incoming, size_t parameter,
                                   const mu_state_array *array, muonium_dtype dtype, double factor)
{
    mu_incoming_array *added = &incoming->arrays[incoming->count++];
    added->parameter = incoming->optimizer->parameters[parameter];
    added->array = *array;
    added->dtype = dtype;
    added->factor = factor;
    return added;
}

muonium_status mu_incoming_allocate(mu_incoming *incoming)
{
    for (size_t i = 0; i < incoming->count; i++) {
        const mu_state_array *array = &incoming->arrays[i].array;
        size_t bytes = mu_state_bytes(array);
        incoming->arrays[i].values = mu_alloc(bytes);
        if (!incoming->arrays[i].values) {
            mu_quoted name = mu_quote(incoming->arrays[i].parameter->name);
            return mu_fail(MUONIUM_NO_MEMORY,
                           "no memory for %zu bytes of %s of %s: loading needs room for the state "
                           "a second time",
                           bytes, array->spec->name, name.text);
        }
    }
    return MUONIUM_OK;
}

/* ---- conversion ---- */

double mu_momentum_factor(muonium_momentum_form from, double momentum, muonium_momentum_form to)
{
    bool sum_from = from == MUONIUM_MOMENTUM_SUM, sum_to = to == MUONIUM_MOMENTUM_SUM;
    return sum_from == sum_to ? 1 : sum_from ? 1 - momentum : 1 / (1 - momentum);
}

bool mu_incoming_is_plain(const mu_incoming_array *array)
{
    return array->dtype == array->array.dtype && !(array->factor != 1);
}

static double element_at(const void *from, muonium_dtype dtype, size_t index)
{
    const char *at = (const char *)from + index * muonium_dtype_size(dtype);
    double wide;
    float single;
    uint16_t half;
    if (dtype == MUONIUM_F64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    if (dtype == MUONIUM_F32) {
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
    memcpy(&half, at, sizeof half);
    return (double)mu_f32_from_half(dtype, half);
}

void mu_incoming_convert(mu_incoming_array *array, size_t first, const void *from, size_t count)
{
    char *to = array->values;
    if (mu_incoming_is_plain(array)) {
        size_t bytes = muonium_dtype_size(array->dtype);
        memcpy(to + first * bytes, from, count * bytes);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float value = (float)(element_at(from, array->dtype, i) * array->factor);
        if (array->array.dtype == MUONIUM_BF16) {
            ((uint16_t *)(void *)to)[first + i] = mu_bf16_from_f32(value);
        } else {
            ((float *)(void *)to)[first + i] = value;
        }
    }
}

/* ---- values ---- */

bool mu_incoming_is_sound(const mu_incoming_array *array, size_t first, size_t count)
{
    mu_state_values values =
        mu_state_values_of(array->parameter, &array->array, array->values, first, count);
    return mu_state_is_sound(&values);
}

muonium_status mu_incoming_fault(const mu_incoming_array *array, const char *label)
{
    mu_state_values values = mu_state_values_of(array->parameter, &array->array, array->values, 0,
                                                array->array.elements);
    mu_state_refusal refusal = {label, "nothing was loaded; load an earlier checkpoint",
                                MUONIUM_FORMAT, !mu_incoming_is_plain(array)};
    return mu_state_fault(&values, &refusal);
}

/* ---- handing over ---- */

static void copy_piece(void *context, size_t index, unsigned worker)
{
    const mu_incoming_array *array = context;
    size_t first = index * MU_STATE_PIECE, left = mu_state_bytes(&array->array) - first;
    (void)worker;
    memcpy((char *)array->array.data + first, (const char *)array->values + first,
           left < MU_STATE_PIECE ? left : MU_STATE_PIECE);
}

void mu_incoming_adopt(mu_incoming *incoming)
{
    for (size_t i = 0; i < incoming->count; i++) {
        mu_incoming_array *array = &incoming->arrays[i];
        size_t pieces = (mu_state_bytes(&array->array) + MU_STATE_PIECE - 1) / MU_STATE_PIECE;
        if (array->array.data) { /* a description has none */
            mu_pool_run(copy_piece, array, pieces, mu_pool_workers());
        }
        if (array->array.spec->from_parameter) {
            array->parameter->has_master = true;
        }
    }
    for (size_t i = 0; i < incoming->optimizer->count; i++) {
        const mu_incoming_parameter *taken = &incoming->parameters[i];
        mu_parameter *p = incoming->optimizer->parameters[i];
        if (taken->matched) {
            p->steps = taken->steps;
            p->moderate = false;
            p->has_master = p->has_master && !taken->restart_master;
            p->certified = false;
        }
    }
}

void mu_incoming_release(mu_incoming *incoming)
{
    for (size_t i = 0; i < incoming->count; i++) {
        mu_free(incoming->arrays[i].values);
    }
    mu_free(incoming->arrays);
    mu_free(incoming->parameters);
    *incoming = (mu_incoming){0};
}
