/*
 * incoming.c: converts and checks loaded state, and hands it over.
 */
#include "checkpoint/incoming.h"

#include <string.h>

#include "base/half.h"
#include "checkpoint/crc32c.h"
#include "optimizer/blocks.h"

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

void mu_incoming_compute(mu_incoming *incoming, size_t parameter, const mu_state_array *array)
{
    mu_incoming_array *scales = mu_incoming_add(incoming, parameter, array, array->dtype, 1);
    for (mu_incoming_array *other = incoming->arrays; other < scales; other++) {
        if (other->parameter == scales->parameter && other->array.spec->scale == array->kind) {
            other->computes = scales;
            scales->computed = true;
        }
    }
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

/* Converted value i of those from `source` on in the file. */
static float value_at(const mu_incoming_array *array, const void *from, size_t source, size_t i)
{
    if (array->dtype == MUONIUM_INT8) {
        float scale = array->scales[(source + i) / MUONIUM_STATE_BLOCK];
        return (float)((double)scale * ((const int8_t *)from)[i] * array->factor);
    }
    return (float)(element_at(from, array->dtype, i) * array->factor);
}

static void quantize_values(const mu_incoming_array *array, size_t first, const void *from,
                            size_t count)
{
    enum { BLOCK = MUONIUM_STATE_BLOCK };
    const mu_elementwise *elementwise = mu_elementwise_for(mu_cpu_usable());
    const mu_dither nearest = {.on = false};
    float *scales = array->computes->values, values[BLOCK];
    int8_t *to = array->values;
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t left = count - done, n = left < BLOCK ? left : BLOCK;
        for (size_t i = 0; i < n; i++) {
            values[i] = value_at(array, from, 0, done + i); /* not int8 */
        }
        scales[(first + done) / BLOCK] =
            mu_quantize(elementwise, values, n, &nearest, to + first + done);
    }
}

void mu_incoming_convert(mu_incoming_array *array, size_t first, const void *from, size_t source,
                         size_t count)
{
    char *to = array->values;
    if (mu_incoming_is_plain(array)) {
        size_t bytes = muonium_dtype_size(array->dtype);
        memcpy(to + first * bytes, from, count * bytes);
        return;
    }
    if (array->array.dtype == MUONIUM_INT8) {
        quantize_values(array, first, from, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float value = value_at(array, from, source, i);
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
    if (!array->computes) {
        return mu_state_is_sound(&values);
    }
    size_t block = first / MUONIUM_STATE_BLOCK;
    return mu_incoming_is_sound(array->computes, block, mu_state_blocks(first + count) - block);
}

muonium_status mu_incoming_fault(const mu_incoming_array *array, const char *label)
{
    array = array->computes ? array->computes : array;
    mu_state_values values = mu_state_values_of(array->parameter, &array->array, array->values, 0,
                                                array->array.elements);
    mu_state_refusal refusal = {label, "nothing was loaded; load an earlier checkpoint",
                                MUONIUM_FORMAT, array->computed || !mu_incoming_is_plain(array)};
    return mu_state_fault(&values, &refusal);
}

/* ---- scales of a source ---- */

static muonium_status read_scales(mu_incoming_array *array, const muonium_reader *reader,
                                  const char *label, bool checksums)
{
    size_t blocks = mu_state_blocks(array->array.elements), bytes = blocks * sizeof(float);
    array->scales = mu_alloc(bytes);
    if (!array->scales) {
        return mu_state_no_memory();
    }
    muonium_status status =
        muonium_reader_read(reader, array->scale_entry, 0, array->scales, bytes);
    if (status != MUONIUM_OK) {
        return status;
    }
    uint32_t crc = checksums ? mu_crc32c(0, array->scales, bytes) : array->scale_crc;
    if (crc != array->scale_crc) {
        return mu_checksum_mismatch(reader, array->scale_entry, array->scale_crc, crc);
    }
    mu_state_values values = {.parameter = array->parameter,
                              .kind = array->array.spec->scale,
                              .dtype = MUONIUM_F32,
                              .data = array->scales,
                              .count = blocks};
    mu_state_refusal refusal = {label, "nothing was loaded; load an earlier checkpoint",
                                MUONIUM_FORMAT, false};
    return mu_state_is_sound(&values) ? MUONIUM_OK : mu_state_fault(&values, &refusal);
}

muonium_status mu_incoming_read_scales(mu_incoming *incoming, const muonium_reader *reader,
                                       const char *label, bool checksums)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < incoming->count; i++) {
        if (incoming->arrays[i].scale_entry) {
            status = read_scales(&incoming->arrays[i], reader, label, checksums);
        }
    }
    return status;
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
        mu_free(incoming->arrays[i].scales);
    }
    mu_free(incoming->arrays);
    mu_free(incoming->parameters);
    *incoming = (mu_incoming){0};
}
