/*
 * adam.c: AdamW and NAdamW for all parameters that are not weight matrices, in one pass over
 * parameter, gradient and both moments.
 */
#include <math.h>

#include "optimizer/quantized.h"

/* The scalars of a step, with bias corrections and learning rate folded in, in double. */
static mu_adam_step step_of(const mu_parameter *p)
{
    const muonium_options *o = &p->group->options;
    double t = (double)p->steps; /* this step counted */
    double lr = mu_adam_lr(o), beta1 = o->adam_beta1, beta2 = o->adam_beta2;
    double of_m = lr / (1 - pow(beta1, t)), of_g = 0;
    if (mu_is_nadamw(o)) {
        double now = of_m, ahead = lr / (1 - pow(beta1, t + 1));
        of_m = beta1 * (o->nadamw_form == MUONIUM_NADAMW_TIMM ? now : ahead);
        of_g = (1 - beta1) * (o->nadamw_form == MUONIUM_NADAMW_LOOKAHEAD ? ahead : now);
    }
    double v_correction = 1 - pow(beta2, t), sign = o->maximize ? -1 : 1; /* of the gradient */
    mu_adam_step step = {
        .beta1 = (float)beta1,
        .one_minus_beta1 = (float)(sign * (1 - beta1)),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .decay = (float)(lr * mu_adam_weight_decay(o)),
        .of_m = (float)of_m,
        .of_g = (float)(sign * of_g),
        .v_scale = (float)(1 / sqrt(v_correction)),
        .root = (float)(o->adam_eps_root * v_correction),
        .eps = (float)mu_adam_eps(o),
        .g_limit = mu_propagates_nonfinite(p) ? INFINITY : MU_ADAM_G_LIMIT,
        .limit = mu_weight_limit(p),
    };
    return step;
}

/* The piece of the first moment that belongs to a piece of the parameter: in place, or of a block
 * in int8, which `block` has from its first piece on. */
static float *load_mean(const mu_schedule *schedule, const mu_parameter *p, const mu_piece *piece,
                        float *block, float *buffer)
{
    size_t within = piece->state % MUONIUM_STATE_BLOCK, first = piece->state - within;
    if (p->group->options.adam_state_dtype == MUONIUM_F32) {
        return mu_load_state(piece, p->state[MU_STATE_EXP_AVG], buffer);
    }
    if (within == 0) {
        size_t left = p->elements - first;
        const int8_t *q = p->state[MU_STATE_EXP_AVG];
        mu_dequantize(schedule->elementwise, q + first, p->state[MU_STATE_EXP_AVG_SCALE], first,
                      left < MUONIUM_STATE_BLOCK ? left : MUONIUM_STATE_BLOCK, block);
    }
    return block + within;
}

/* Blocks are rounded after their last piece. */
static void store_mean(const mu_schedule *schedule, const mu_parameter *p, const mu_piece *piece,
                       const float *block, const float *values)
{
    size_t end = piece->state + piece->count;
    if (p->group->options.adam_state_dtype == MUONIUM_F32) {
        mu_store_state(piece, p->state[MU_STATE_EXP_AVG], values);
    } else if (end % MUONIUM_STATE_BLOCK == 0 || end == p->elements) {
        size_t number = (end - 1) / MUONIUM_STATE_BLOCK, first = number * MUONIUM_STATE_BLOCK;
        mu_dither dither = mu_dither_of(p, MU_STATE_EXP_AVG, first);
        float *scales = p->state[MU_STATE_EXP_AVG_SCALE];
        scales[number] = mu_quantize(schedule->elementwise, block, end - first, &dither,
                                     (int8_t *)p->state[MU_STATE_EXP_AVG] + first);
    }
}

void mu_adam_chunk(void *context, size_t index, unsigned worker)
{
    const mu_schedule *schedule = context;
    const mu_chunk *chunk = &schedule->chunks[index];
    mu_parameter *p = chunk->parameter;
    (void)worker;
    if (p->muon || !schedule->active[p->number]) {
        return;
    }
    float g_buffer[MU_PIECE], m_buffer[MU_PIECE], v_buffer[MU_PIECE], w_buffer[MU_PIECE];
    float block[MUONIUM_STATE_BLOCK];
    mu_adam_step step = step_of(p);
    mu_offset start = {0, 0, 0};
    for (size_t done = 0; done < chunk->count;) {
        /* A piece ends with its block, of which MU_PIECE is a part. */
        size_t left = chunk->count - done, at = chunk->first + done;
        size_t in_piece = MU_PIECE - at % MU_PIECE, most = left < in_piece ? left : in_piece;
        mu_piece piece = mu_piece_at(p, start, &p->all, at, most);
        const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
        float *m = load_mean(schedule, p, &piece, block, m_buffer);
        float *v = mu_load_state(&piece, p->state[MU_STATE_EXP_AVG_SQ], v_buffer);
        float *w = mu_load_weights(schedule, p, &piece, w_buffer);
        schedule->elementwise->adam(&step, g, m, v, w, piece.count);
        store_mean(schedule, p, &piece, block, m);
        mu_store_state(&piece, p->state[MU_STATE_EXP_AVG_SQ], v);
        mu_store_weights(schedule, p, &piece, w);
        done += piece.count;
    }
}
