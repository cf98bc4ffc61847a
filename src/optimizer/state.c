/*
 * state.c: what the optimizer remembers of a parameter, for callers that keep it
 * elsewhere, in a checkpoint of their own or in another process.
 */
#include <string.h>

#include "optimizer/optimizer.h"

static muonium_state state_of(const mu_parameter *p)
{
    return (muonium_state){
        .steps = p->steps,
        .elements = p->elements,
        .momentum = p->momentum,
        .momentum_dtype = p->group->options.state_dtype,
        .exp_avg = p->exp_avg,
        .exp_avg_sq = p->exp_avg_sq,
        .normuon = p->normuon,
        .rows = p->normuon ? p->matrices.batch.total * p->matrices.rows.total : 0,
        .master = p->has_master ? p->master : NULL,
    };
}

muonium_status muonium_state_of(const muonium_optimizer *optimizer, size_t parameter,
                                muonium_state *state)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status == MUONIUM_OK && !state) {
        status = mu_fail(MUONIUM_INVALID, "state is NULL: pass a muonium_state to fill");
    }
    if (status == MUONIUM_OK) {
        *state = state_of(p);
        p->moderate = false; /* the caller may write it */
    }
    return status;
}

/* An array given, and the place that it goes to. */
typedef struct copy {
    void *to;
    const void *from;
    size_t elements;
    muonium_dtype dtype;
} copy;

static muonium_status check_places(const mu_parameter *p, const muonium_state *given,
                                   const muonium_state *own, const copy copies[MU_STATE_KINDS])
{
    for (mu_state_kind i = 0; i < MU_STATE_KINDS; i++) {
        if (copies[i].from && !copies[i].to) {
            return mu_fail(MUONIUM_INVALID,
                           "%s has no %s: it is stepped by %s (%s), and keeps what its options "
                           "ask for",
                           p->name, mu_state_name(i), p->muon ? "Muon" : "AdamW", p->reason);
        }
    }
    if (given->elements != own->elements || (given->normuon && given->rows != own->rows)) {
        return mu_fail(MUONIUM_INVALID,
                       "the state given for %s has %zu elements and %zu rows: it needs %zu and "
                       "%zu",
                       p->name, given->elements, given->rows, own->elements, own->rows);
    }
    if (given->momentum && given->momentum_dtype != own->momentum_dtype) {
        return mu_fail(MUONIUM_INVALID,
                       "momentum_dtype of the state given for %s is %d: its group keeps %d",
                       p->name, (int)given->momentum_dtype, (int)own->momentum_dtype);
    }
    return MUONIUM_OK;
}

static muonium_status check_values(const mu_parameter *p, uint64_t steps,
                                   const copy copies[MU_STATE_KINDS])
{
    static const mu_state_refusal refusal = {
        "muonium_set_state", "nothing was set; give finite values", MUONIUM_INVALID, false};
    muonium_status status = mu_check_count(steps, p->name, &refusal);
    for (mu_state_kind i = 0; status == MUONIUM_OK && i < MU_STATE_KINDS; i++) {
        mu_state_values values = {p, i, copies[i].dtype, copies[i].from, copies[i].elements, 0};
        if (copies[i].from && !mu_state_is_sound(&values)) {
            status = mu_state_fault(&values, &refusal);
        }
    }
    return status;
}

static muonium_status set_state(muonium_optimizer *optimizer, size_t parameter,
                                const muonium_state *state)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status != MUONIUM_OK || !state) {
        return state ? status : mu_fail(MUONIUM_INVALID, "state is NULL: pass what to set");
    }
    muonium_state own = state_of(p);
    const copy copies[MU_STATE_KINDS] = {
        [MU_STATE_MOMENTUM] = {own.momentum, state->momentum, own.elements, own.momentum_dtype},
        [MU_STATE_EXP_AVG] = {own.exp_avg, state->exp_avg, own.elements, MUONIUM_F32},
        [MU_STATE_EXP_AVG_SQ] = {own.exp_avg_sq, state->exp_avg_sq, own.elements, MUONIUM_F32},
        [MU_STATE_NORMUON] = {own.normuon, state->normuon, own.rows, MUONIUM_F32},
        [MU_STATE_MASTER] = {p->master, state->master, own.elements, MUONIUM_F32},
    };
    status = check_places(p, state, &own, copies);
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter();
        status = check_values(p, state->steps, copies);
        mu_fenv_leave(environment);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    for (mu_state_kind i = 0; i < MU_STATE_KINDS; i++) {
        size_t bytes = copies[i].elements * muonium_dtype_size(copies[i].dtype);
        if (copies[i].from) {
            memmove(copies[i].to, copies[i].from, bytes);
        } else if (copies[i].to) {
            memset(copies[i].to, 0, bytes);
        }
    }
    p->has_master = state->master != NULL;
    p->steps = state->steps;
    p->moderate = false;
    return MUONIUM_OK;
}

muonium_status muonium_set_state(muonium_optimizer *optimizer, size_t parameter,
                                 const muonium_state *state)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, set_state(optimizer, parameter, state))
                                : status;
}
