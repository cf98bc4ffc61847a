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
    }
    return status;
}

/* An array given, and the place that it goes to. */
typedef struct copy {
    const char *name;
    void *to;
    const void *from;
    size_t bytes;
} copy;

enum { ARRAYS = 5 };

static muonium_status check_state(const mu_parameter *p, const muonium_state *given,
                                  const muonium_state *own, const copy copies[ARRAYS])
{
    for (int i = 0; i < ARRAYS; i++) {
        if (copies[i].from && !copies[i].to) {
            return mu_fail(MUONIUM_INVALID,
                           "%s has no %s: it is stepped by %s (%s), and keeps what its options "
                           "ask for",
                           p->name, copies[i].name, p->muon ? "Muon" : "AdamW", p->reason);
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

static muonium_status set_state(muonium_optimizer *optimizer, size_t parameter,
                                const muonium_state *state)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status != MUONIUM_OK || !state) {
        return state ? status : mu_fail(MUONIUM_INVALID, "state is NULL: pass what to set");
    }
    muonium_state own = state_of(p);
    size_t floats = own.elements * sizeof(float);
    const copy copies[ARRAYS] = {
        {"momentum", own.momentum, state->momentum,
         own.elements * muonium_dtype_size(own.momentum_dtype)},
        {"exp_avg", own.exp_avg, state->exp_avg, floats},
        {"exp_avg_sq", own.exp_avg_sq, state->exp_avg_sq, floats},
        {"normuon", own.normuon, state->normuon, own.rows * sizeof(float)},
        {"master", p->master, state->master, floats},
    };
    status = check_state(p, state, &own, copies);
    if (status != MUONIUM_OK) {
        return status;
    }
    for (int i = 0; i < ARRAYS; i++) {
        if (copies[i].from) {
            memmove(copies[i].to, copies[i].from, copies[i].bytes);
        } else if (copies[i].to) {
            memset(copies[i].to, 0, copies[i].bytes);
        }
    }
    p->has_master = state->master != NULL;
    p->steps = state->steps;
    return MUONIUM_OK;
}

muonium_status muonium_set_state(muonium_optimizer *optimizer, size_t parameter,
                                 const muonium_state *state)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, set_state(optimizer, parameter, state))
                                : status;
}
