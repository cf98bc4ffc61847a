/*
 * pieces.c: short runs of a parameter, its gradient and its state as consecutive f32,
 * whatever their types and strides. Arrays that are consecutive f32 are used in place.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "optimizer/quantized.h"

mu_piece mu_piece_at(const mu_parameter *parameter, mu_offset base, const mu_walk *walk,
                     size_t index, size_t most)
{
    size_t last = walk->levels - 1;
    mu_offset at = mu_walk_to(walk, index);
    size_t left = walk->count[last] - index % walk->count[last];
    const muonium_tensor *t = &parameter->tensor;
    ptrdiff_t data_bytes = (ptrdiff_t)muonium_dtype_size(t->dtype);
    ptrdiff_t grad_bytes = (ptrdiff_t)muonium_dtype_size(parameter->grad_dtype);
    mu_piece piece = {
        .data = (char *)t->data + (base.data + at.data) * data_bytes,
        .grad = t->grad ? (const char *)t->grad + (base.grad + at.grad) * grad_bytes : NULL,
        .state = (size_t)(base.state + at.state),
        .data_stride = walk->data[last],
        .grad_stride = walk->grad[last],
        .state_stride = walk->state[last],
        .count = left < most ? left : most,
    };
    return piece;
}

bool mu_propagates_nonfinite(const mu_parameter *parameter)
{
    return parameter->group->options.plan.nonfinite == MUONIUM_NONFINITE_PROPAGATE;
}

/* The largest finite number of a type of parameters. */
static float largest_of(muonium_dtype dtype)
{
    static const float largest[] = {
        [MUONIUM_F32] = FLT_MAX, [MUONIUM_BF16] = 0x1.fep127f, [MUONIUM_F16] = 65504.0f};
    return (size_t)dtype < MU_COUNT(largest) ? largest[dtype] : 0;
}

float mu_weight_limit(const mu_parameter *parameter)
{
    if (mu_propagates_nonfinite(parameter)) {
        return INFINITY;
    }
    float limit = largest_of(parameter->tensor.dtype);
    float of_copy = parameter->tensor.copy ? largest_of(parameter->tensor.copy_dtype) : FLT_MAX;
    return of_copy < limit ? of_copy : limit;
}

static mu_block as_block(const void *data, muonium_dtype dtype, ptrdiff_t stride, size_t count)
{
    mu_block block = {(void *)(uintptr_t)data, dtype, stride, stride, 1, count};
    return block;
}

const float *mu_load_grad(const mu_schedule *schedule, const mu_parameter *parameter,
                          const mu_piece *piece, float *buffer)
{
    bool scaled = schedule->grad_scale != 1;
    if (parameter->grad_dtype == MUONIUM_F32 && piece->grad_stride == 1 && !scaled) {
        return (const float *)(const void *)piece->grad;
    }
    mu_block from = as_block(piece->grad, parameter->grad_dtype, piece->grad_stride, piece->count);
    schedule->rows->load(&from, buffer, piece->count);
    if (scaled) {
        schedule->rows->scale(buffer, piece->count, schedule->grad_scale);
    }
    return buffer;
}

float *mu_load_state(const mu_piece *piece, float *state, float *buffer)
{
    float *from = state + piece->state;
    if (piece->state_stride == 1) {
        return from;
    }
    for (size_t i = 0; i < piece->count; i++) {
        buffer[i] = from[(ptrdiff_t)i * piece->state_stride];
    }
    return buffer;
}

void mu_store_state(const mu_piece *piece, float *state, const float *values)
{
    float *to = state + piece->state;
    if (values == to) {
        return;
    }
    for (size_t i = 0; i < piece->count; i++) {
        to[(ptrdiff_t)i * piece->state_stride] = values[i];
    }
}

/* The bf16 momentum of a piece as a block to convert. */
static mu_block half_momentum(const mu_parameter *parameter, const mu_piece *piece)
{
    muonium_dtype dtype = parameter->group->options.state_dtype;
    const char *first = (const char *)parameter->state[MU_STATE_MOMENTUM] +
                        piece->state * muonium_dtype_size(dtype);
    return as_block(first, dtype, piece->state_stride, piece->count);
}

static void load_quantized(const mu_schedule *schedule, const mu_parameter *parameter,
                           const mu_piece *piece, float *buffer)
{
    const int8_t *q = (const int8_t *)parameter->state[MU_STATE_MOMENTUM] + piece->state;
    const float *scales = parameter->state[MU_STATE_MOMENTUM_SCALE];
    if (piece->state_stride == 1) {
        mu_dequantize(schedule->elementwise, q, scales, piece->state, piece->count, buffer);
        return;
    }
    for (size_t i = 0; i < piece->count; i++) {
        size_t skip = i * (size_t)piece->state_stride;
        buffer[i] = scales[(piece->state + skip) / MUONIUM_STATE_BLOCK] * (float)q[skip];
    }
}

float *mu_load_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                        const mu_piece *piece, float *buffer)
{
    if (parameter->group->options.state_dtype == MUONIUM_F32) {
        return mu_load_state(piece, parameter->state[MU_STATE_MOMENTUM], buffer);
    }
    if (parameter->group->options.state_dtype == MUONIUM_INT8) {
        load_quantized(schedule, parameter, piece, buffer);
        return buffer;
    }
    mu_block from = half_momentum(parameter, piece);
    schedule->rows->load(&from, buffer, piece->count);
    return buffer;
}

void mu_store_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, const float *values)
{
    if (parameter->group->options.state_dtype == MUONIUM_F32) {
        mu_store_state(piece, parameter->state[MU_STATE_MOMENTUM], values);
        return;
    }
    mu_block to = half_momentum(parameter, piece);
    schedule->rows->store(values, piece->count, &to);
}

float *mu_load_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, float *buffer)
{
    if (parameter->state[MU_STATE_MASTER]) {
        return mu_load_state(piece, parameter->state[MU_STATE_MASTER], buffer);
    }
    if (parameter->tensor.dtype == MUONIUM_F32 && piece->data_stride == 1) {
        return (float *)(void *)piece->data;
    }
    mu_block from =
        as_block(piece->data, parameter->tensor.dtype, piece->data_stride, piece->count);
    schedule->rows->load(&from, buffer, piece->count);
    return buffer;
}

/* Each element of each step of each parameter gets its own random bits, numbered by its index
 * in the state. Elements of a piece with a stride are rounded one by one. */
static void store_stochastic(const mu_schedule *schedule, const mu_parameter *parameter,
                             const mu_piece *piece, const float *values)
{
    uint64_t key = parameter->group->options.seed ^ parameter->random_key;
    muonium_dtype half = parameter->tensor.dtype;
    uint64_t first = parameter->random_first + piece->state;
    uint16_t rounded[MU_PIECE];
    if (piece->state_stride == 1) {
        schedule->elementwise->round_stochastic(values, piece->count, half, key, parameter->steps,
                                                first, rounded);
    } else {
        for (size_t i = 0; i < piece->count; i++) {
            uint64_t number = first + (uint64_t)((ptrdiff_t)i * piece->state_stride);
            schedule->elementwise->round_stochastic(&values[i], 1, half, key, parameter->steps,
                                                    number, &rounded[i]);
        }
    }
    for (size_t i = 0; i < piece->count; i++) {
        char *to = piece->data + (ptrdiff_t)i * piece->data_stride * (ptrdiff_t)sizeof *rounded;
        memcpy(to, &rounded[i], sizeof rounded[i]);
    }
}

void mu_store_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                      const mu_piece *piece, const float *values)
{
    const muonium_tensor *t = &parameter->tensor;
    if (t->copy) {
        size_t bytes = muonium_dtype_size(t->copy_dtype);
        mu_block copy = as_block((char *)t->copy + piece->state * bytes, t->copy_dtype,
                                 piece->state_stride, piece->count);
        schedule->rows->store(values, piece->count, &copy);
    }
    if (parameter->state[MU_STATE_MASTER]) {
        mu_store_state(piece, parameter->state[MU_STATE_MASTER], values);
    } else if ((const void *)values == (const void *)piece->data) {
        return;
    }
    if (t->dtype != MUONIUM_F32 && parameter->group->options.stochastic_rounding) {
        store_stochastic(schedule, parameter, piece, values);
        return;
    }
    mu_block to = as_block(piece->data, t->dtype, piece->data_stride, piece->count);
    schedule->rows->store(values, piece->count, &to);
}
