/*
 * step.c: one step. All that can fail comes first: making the schedule and looking for
 * NaN and infinities; after that only arithmetic is left.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimizer/schedule.h"

/* ---- gradients that are not finite ---- */

static void check_chunk(void *context, size_t index, unsigned lane)
{
    mu_schedule *schedule = context;
    const mu_chunk *chunk = &schedule->chunks[index];
    const mu_parameter *p = chunk->parameter;
    (void)lane;
    schedule->unsound[index] = false;
    if (!schedule->active[p->number] ||
        p->group->options.nonfinite == MUONIUM_NONFINITE_PROPAGATE) {
        return;
    }
    float buffer[MU_PIECE];
    mu_offset start = {0, 0, 0};
    for (size_t done = 0; done < chunk->count && !schedule->unsound[index];) {
        size_t left = chunk->count - done;
        mu_piece piece = mu_piece_at(p, start, &p->all, chunk->first + done, left);
        bool finite;
        if (piece.grad_stride == 1) {
            finite = schedule->elementwise->finite(piece.grad, p->grad_dtype, piece.count);
        } else {
            piece.count = piece.count < MU_PIECE ? piece.count : MU_PIECE;
            const float *g = mu_load_grad(schedule, p, &piece, buffer);
            finite = schedule->elementwise->finite(g, MUONIUM_F32, piece.count);
        }
        schedule->unsound[index] = !finite;
        done += piece.count;
    }
}

/* The place of the first bad element of a parameter, as "(3, 14)". */
static muonium_status report_nonfinite(const mu_schedule *schedule, const mu_parameter *p)
{
    const muonium_tensor *t = &p->tensor;
    mu_offset start = {0, 0, 0};
    for (size_t i = 0; i < p->elements; i++) {
        float value;
        mu_piece piece = mu_piece_at(p, start, &p->all, i, 1);
        value = *mu_load_grad(schedule, p, &piece, &value);
        if (isfinite(value)) {
            continue;
        }
        char place[MUONIUM_MAX_DIMS * 24] = "";
        size_t used = 0, rest = p->elements, index = i;
        for (size_t d = 0; d < t->ndim; d++) {
            rest /= t->shape[d];
            int wrote =
                snprintf(place + used, sizeof place - used, "%s%zu", d ? ", " : "", index / rest);
            used += wrote > 0 ? (size_t)wrote : 0;
            index %= rest;
        }
        return mu_fail(MUONIUM_NON_FINITE,
                       "grad of %s is %g at (%s): nothing was changed; set nonfinite to skip or "
                       "propagate to go on",
                       p->name, (double)value, place);
    }
    return mu_fail(MUONIUM_NON_FINITE, "grad of %s was not finite, and changed while being read",
                   p->name);
}

static muonium_status check_gradients(muonium_optimizer *optimizer)
{
    mu_schedule *schedule = optimizer->schedule;
    mu_pool_run(check_chunk, schedule, schedule->chunk_count, mu_pool_lanes());
    for (size_t i = 0; i < schedule->chunk_count; i++) {
        const mu_parameter *p = schedule->chunks[i].parameter;
        if (schedule->unsound[i] && p->group->options.nonfinite == MUONIUM_NONFINITE_ERROR) {
            return report_nonfinite(schedule, p);
        }
    }
    for (size_t i = 0; i < schedule->chunk_count; i++) {
        if (schedule->unsound[i]) {
            schedule->active[schedule->chunks[i].parameter->number] = false;
        }
    }
    return MUONIUM_OK;
}

/* ---- the step ---- */

/* A master copy starts as what the parameter is when first stepped. */
static void begin_master(const mu_schedule *schedule, mu_parameter *p)
{
    mu_offset start = {0, 0, 0};
    for (size_t done = 0; done < p->elements;) {
        mu_piece piece = mu_piece_at(p, start, &p->all, done, MU_PIECE);
        mu_block from = {piece.data, p->tensor.dtype, piece.data_stride, piece.data_stride,
                         1,          piece.count};
        schedule->kernel->load(&from, p->master + piece.state, piece.count);
        done += piece.count;
    }
    p->has_master = true;
}

static muonium_status take_step(muonium_optimizer *optimizer)
{
    muonium_status status = mu_schedule_make(optimizer);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!optimizer->logged) {
        mu_log_routes(optimizer);
        optimizer->logged = true;
    }
    mu_schedule *schedule = optimizer->schedule;
    for (size_t i = 0; i < optimizer->count; i++) {
        schedule->active[i] = optimizer->parameters[i]->tensor.grad != NULL;
    }
    status = check_gradients(optimizer);
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_parameter *p = optimizer->parameters[i];
        if (!schedule->active[i]) {
            optimizer->counters.skipped++;
            continue;
        }
        p->steps++;
        if (p->master && !p->has_master) {
            begin_master(schedule, p);
        }
    }
    mu_step_muon(optimizer);
    mu_step_adam(optimizer);
    optimizer->counters.steps++;
    return MUONIUM_OK;
}

muonium_status mu_step(muonium_optimizer *optimizer)
{
    if (optimizer->count == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "the optimizer has no parameters: add some with muonium_add");
    }
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = take_step(optimizer);
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_step(muonium_optimizer *optimizer)
{
    muonium_status status = mu_enter_alone(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, mu_step(optimizer)) : status;
}

muonium_status muonium_step_with(muonium_optimizer *optimizer, double (*loss)(void *context),
                                 void *context, double *value)
{
    if (!optimizer || !loss) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", optimizer ? "loss" : "optimizer");
    }
    muonium_status status = mu_enter_alone(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    atomic_store(&optimizer->in_loss, true); /* in place of the mark, which forbids more */
    mu_leave(optimizer, MUONIUM_OK);
    const char *outer = mu_callback_begin("loss");
    double found = loss(context);
    mu_callback_end(outer);
    status = mu_enter(optimizer, __func__);
    atomic_store(&optimizer->in_loss, false);
    if (status == MUONIUM_OK) {
        status = mu_leave(optimizer, mu_step(optimizer));
    }
    if (status == MUONIUM_OK && value) {
        *value = found;
    }
    return status;
}
