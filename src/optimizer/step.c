/*
 * step.c: one step. What can fail comes first: making the schedule, and the search for NaN
 * and infinities. The rest is arithmetic.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimizer/quantized.h"

/* ---- non-finite values ---- */

static mu_bad_value first_bad(const char *what, const float *values, size_t count, size_t first)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return (mu_bad_value){what, values[i], first + i};
        }
    }
    return (mu_bad_value){0};
}

/* Gradient, momentum and direction of `count` elements from `at` on. */
static mu_bad_value examine_values(const mu_schedule *schedule, const float *g, const float *m,
                                   const float *d, size_t at, size_t count, bool *moderate)
{
    mu_bad_value bad = first_bad("grad", g, count, at);
    if (!bad.what && m) {
        *moderate = *moderate &&
                    schedule->elementwise->all_below(m, MUONIUM_F32, MU_MODERATE_EXPONENT, count);
        bad = first_bad("momentum", m, count, at);
        bad = bad.what ? bad : first_bad("direction", d, count, at);
    }
    return bad;
}

static mu_bad_value examine_blocks(const mu_schedule *schedule, const mu_parameter *p, size_t first,
                                   size_t count, bool *moderate)
{
    float g[MUONIUM_STATE_BLOCK], m[MUONIUM_STATE_BLOCK], d[MUONIUM_STATE_BLOCK];
    mu_bad_value bad = {0};
    *moderate = true;
    for (size_t done = 0; done < count && !bad.what;) {
        size_t at = first + done, skip = at % MUONIUM_STATE_BLOCK, left = count - done;
        size_t most = mu_preview_block(schedule, p, at - skip, g, m, d) - skip;
        most = most < left ? most : left;
        bad = examine_values(schedule, g + skip, m + skip, d + skip, at, most, moderate);
        done += most;
    }
    return bad;
}

mu_bad_value mu_examine(const mu_schedule *schedule, const mu_parameter *p, size_t first,
                        size_t count, bool *moderate)
{
    if (mu_has_blocks(p)) {
        return examine_blocks(schedule, p, first, count, moderate);
    }
    const mu_elementwise *elementwise = schedule->elementwise;
    float g_buffer[MU_PIECE], m[MU_PIECE], d[MU_PIECE];
    mu_momentum_step step = mu_momentum_of(p, p->steps + 1);
    bool bf16 = p->muon && p->group->options.state_dtype == MUONIUM_BF16;
    mu_bad_value bad = {0};
    *moderate = true;
    for (size_t done = 0; done < count && !bad.what;) {
        mu_offset start = {0, 0, 0};
        size_t at = first + done, left = count - done;
        mu_piece piece = mu_piece_at(p, start, &p->all, at, left < MU_PIECE ? left : MU_PIECE);
        const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
        if (p->muon) {
            const float *before = mu_load_momentum(schedule, p, &piece, m);
            if (before != m) {
                memcpy(m, before, piece.count * sizeof *m);
            }
            elementwise->momentum(&step, g, m, d, piece.count);
            if (bf16) {
                schedule->rows->round(m, piece.count, MUONIUM_BF16);
                elementwise->direction(&step, g, m, d, piece.count);
            }
        }
        bad = examine_values(schedule, g, p->muon ? m : NULL, d, at, piece.count, moderate);
        done += piece.count;
    }
    return bad;
}

static void check_chunk(void *context, size_t index, unsigned worker)
{
    mu_schedule *schedule = context;
    const mu_chunk *chunk = &schedule->chunks[index];
    const mu_parameter *p = chunk->parameter;
    (void)worker;
    schedule->unsound[index] = false;
    schedule->moderate[index] = true;
    if (!schedule->active[p->number] || mu_propagates_nonfinite(p)) {
        return;
    }
    float buffer[MU_PIECE];
    mu_offset start = {0, 0, 0};
    bool moderate = p->moderate;
    for (size_t done = 0; done < chunk->count && moderate;) {
        size_t left = chunk->count - done;
        mu_piece piece = mu_piece_at(p, start, &p->all, chunk->first + done, left);
        const void *g = piece.grad;
        muonium_dtype dtype = p->grad_dtype;
        if (piece.grad_stride != 1 || schedule->grad_scale > 1) { /* a smaller one keeps it below */
            piece.count = piece.count < MU_PIECE ? piece.count : MU_PIECE;
            g = mu_load_grad(schedule, p, &piece, buffer);
            dtype = MUONIUM_F32;
        }
        moderate = schedule->elementwise->all_below(g, dtype, MU_MODERATE_EXPONENT, piece.count);
        done += piece.count;
    }
    if (!moderate) {
        mu_bad_value bad = mu_examine(schedule, p, chunk->first, chunk->count, &moderate);
        schedule->unsound[index] = bad.what != NULL;
        schedule->moderate[index] = moderate;
    }
}

static muonium_status report_bad(const mu_schedule *schedule, const mu_parameter *p)
{
    const muonium_tensor *t = &p->tensor;
    bool moderate;
    mu_bad_value bad = mu_examine(schedule, p, 0, p->elements, &moderate);
    if (!bad.what) {
        return mu_fail(MUONIUM_NON_FINITE, "grad of %s changed while it was being read", p->name);
    }
    char place[MUONIUM_MAX_DIMS * 24] = ""; /* as "3, 14" */
    size_t used = 0, rest = p->elements, index = bad.index;
    for (size_t d = 0; d < t->ndim; d++) {
        rest /= t->shape[d];
        int wrote =
            snprintf(place + used, sizeof place - used, "%s%zu", d ? ", " : "", index / rest);
        used += wrote > 0 ? (size_t)wrote : 0;
        index %= rest;
    }
    bool of_grad = strcmp(bad.what, "grad") == 0;
    return mu_fail(MUONIUM_NON_FINITE,
                   "%s of %s %s %g at (%s): nothing was changed; %sset nonfinite to skip or "
                   "propagate to go on",
                   bad.what, p->name, of_grad ? "is" : "would become", (double)bad.value, place,
                   of_grad ? "" : "scale gradients down, or ");
}

/* Check gradients and the momentum that follows from them. Fails under MUONIUM_NONFINITE_ERROR;
 * under MUONIUM_NONFINITE_SKIP the parameter is made inactive. */
static muonium_status check_gradients(muonium_optimizer *optimizer)
{
    mu_schedule *schedule = optimizer->schedule;
    mu_pool_run(check_chunk, schedule, schedule->chunk_count, mu_pool_workers());
    for (size_t i = 0; i < schedule->chunk_count; i++) {
        const mu_parameter *p = schedule->chunks[i].parameter;
        if (schedule->unsound[i] && p->group->options.plan.nonfinite == MUONIUM_NONFINITE_ERROR) {
            return report_bad(schedule, p);
        }
    }
    for (size_t i = 0; i < schedule->chunk_count; i++) {
        if (schedule->unsound[i]) {
            schedule->active[schedule->chunks[i].parameter->number] = false;
        }
    }
    return MUONIUM_OK;
}

/* Set `moderate` of the parameters for the next step. */
static void note_moderate(const muonium_optimizer *optimizer)
{
    const mu_schedule *schedule = optimizer->schedule;
    for (size_t i = 0; i < schedule->chunk_count; i++) {
        mu_parameter *p = schedule->chunks[i].parameter;
        if (schedule->active[p->number]) {
            p->moderate = schedule->moderate[i] && (schedule->chunks[i].first == 0 || p->moderate);
        }
    }
}

/* ---- the step ---- */

/* A master copy starts as the value of the parameter in its first step. */
static void begin_master(const mu_schedule *schedule, mu_parameter *p)
{
    mu_offset start = {0, 0, 0};
    float *master = p->state[MU_STATE_MASTER];
    for (size_t done = 0; done < p->elements;) {
        mu_piece piece = mu_piece_at(p, start, &p->all, done, MU_PIECE);
        mu_block from = {piece.data, p->tensor.dtype, piece.data_stride, piece.data_stride,
                         1,          piece.count};
        schedule->rows->load(&from, master + piece.state, piece.count);
        done += piece.count;
    }
    p->has_master = true;
}

muonium_status mu_step_prepare(muonium_optimizer *optimizer)
{
    if (optimizer->count == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "the optimizer has no parameters: add some with muonium_add");
    }
    muonium_status status = mu_schedule_make(optimizer, 1);
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
    schedule->grad_scale = optimizer->grad_scale;
    return check_gradients(optimizer);
}

void mu_step_commit(muonium_optimizer *optimizer)
{
    const mu_schedule *schedule = optimizer->schedule;
    note_moderate(optimizer);
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_parameter *p = optimizer->parameters[i];
        if (!schedule->active[i]) {
            optimizer->counters.skipped++;
            continue;
        }
        p->steps++;
        if (p->state[MU_STATE_MASTER] && !p->has_master) {
            begin_master(schedule, p);
        }
    }
    mu_step_update(optimizer);
    optimizer->counters.steps++;
}

/* To be called between mu_enter and mu_leave. */
static muonium_status step(muonium_optimizer *optimizer)
{
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = mu_step_prepare(optimizer);
    if (status == MUONIUM_OK) {
        mu_step_commit(optimizer);
    }
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_step(muonium_optimizer *optimizer)
{
    muonium_status status = mu_enter_alone(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, step(optimizer)) : status;
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
        status = mu_leave(optimizer, step(optimizer));
    }
    if (status == MUONIUM_OK && value) {
        *value = found;
    }
    return status;
}
