/*
 * state.c: the state of a parameter in memory, for callers that keep it themselves, in a
 * checkpoint of their own or in another process.
 */
#include <string.h>

#include "optimizer/optimizer.h"

/* The pointer of an array in a muonium_state. */
static void *get_pointer(const muonium_state *state, const mu_state_spec *spec)
{
    void *pointer;
    memcpy(&pointer, (const char *)state + spec->field, sizeof pointer);
    return pointer;
}

static void set_pointer(muonium_state *state, const mu_state_spec *spec, void *pointer)
{
    memcpy((char *)state + spec->field, &pointer, sizeof pointer);
}

static muonium_state state_of(const mu_parameter *p)
{
    mu_state_array arrays[MU_STATE_KINDS];
    muonium_state state = {.steps = p->steps,
                           .elements = p->elements,
                           .momentum_dtype = p->group->options.state_dtype,
                           .exp_avg_dtype = p->group->options.adam_state_dtype};
    for (size_t k = 0, kept = mu_state_arrays(p, arrays); k < kept; k++) {
        set_pointer(&state, arrays[k].spec,
                    mu_state_has_values(p, &arrays[k]) ? arrays[k].data : NULL);
        if (arrays[k].spec->per_row && arrays[k].data) {
            state.rows = arrays[k].elements;
        }
        if (arrays[k].spec->per_matrix && arrays[k].data) {
            state.matrices = arrays[k].elements;
        }
        if (arrays[k].spec->per_block && arrays[k].data) {
            state.blocks = arrays[k].elements;
        }
    }
    return state;
}

muonium_status muonium_state_of_sized(const muonium_optimizer *optimizer, size_t parameter,
                                      muonium_state *state, size_t size)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status == MUONIUM_OK && !state) {
        status = mu_fail(MUONIUM_INVALID, "state is NULL: pass a muonium_state to fill");
    }
    if (status == MUONIUM_OK) {
        muonium_state found = state_of(p);
        mu_sized_write(state, size, &found, sizeof found);
        p->moderate = false; /* the caller may write it */
    }
    return status;
}

/* Integers and their scales come together. */
static muonium_status check_given_scales(const mu_parameter *p, const muonium_state *given,
                                         const muonium_state *own)
{
    const struct {
        const void *kept, *integers, *scales;
        const char *names[2];
    } pairs[] = {
        {own->momentum_scale,
         given->momentum,
         given->momentum_scale,
         {"momentum", "momentum_scale"}},
        {own->exp_avg_scale, given->exp_avg, given->exp_avg_scale, {"exp_avg", "exp_avg_scale"}},
    };
    for (size_t i = 0; i < MU_COUNT(pairs); i++) {
        if (pairs[i].kept && !pairs[i].integers != !pairs[i].scales) {
            return mu_fail(MUONIUM_INVALID,
                           "the state given for %s has %s without %s: int8 state needs both",
                           p->name, pairs[i].names[pairs[i].scales != NULL],
                           pairs[i].names[pairs[i].scales == NULL]);
        }
        if (pairs[i].kept && pairs[i].scales && given->blocks != own->blocks) {
            return mu_fail(MUONIUM_INVALID,
                           "the state given for %s has %zu blocks: it needs %zu, one for each %d "
                           "elements",
                           p->name, given->blocks, own->blocks, MUONIUM_STATE_BLOCK);
        }
    }
    return MUONIUM_OK;
}

/* Fail unless the given arrays are among those that the parameter keeps, of their sizes and
 * type. */
static muonium_status check_given_arrays(const mu_parameter *p, const muonium_state *given)
{
    muonium_state own = state_of(p);
    bool has_rows = false, has_matrices = false;
    for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
        const mu_state_spec *spec = mu_state_spec_of(kind);
        if (get_pointer(given, spec) && !p->state[kind]) {
            return mu_fail(MUONIUM_INVALID, "%s has no %s: %s (%s) under its options keeps none",
                           p->name, spec->name, p->muon ? "Muon" : "AdamW", p->reason);
        }
        has_rows = has_rows || (spec->per_row && get_pointer(given, spec));
        has_matrices = has_matrices || (spec->per_matrix && get_pointer(given, spec));
    }
    if (given->elements != own.elements || (has_rows && given->rows != own.rows)) {
        return mu_fail(MUONIUM_INVALID,
                       "the state given for %s has %zu elements and %zu rows: it needs %zu and "
                       "%zu",
                       p->name, given->elements, given->rows, own.elements, own.rows);
    }
    if (has_matrices && given->matrices != own.matrices) {
        return mu_fail(MUONIUM_INVALID, "the state given for %s has %zu matrices: it needs %zu",
                       p->name, given->matrices, own.matrices);
    }
    if (given->momentum && given->momentum_dtype != own.momentum_dtype) {
        return mu_fail(MUONIUM_INVALID,
                       "momentum_dtype of the state given for %s is %d: its group keeps %d",
                       p->name, (int)given->momentum_dtype, (int)own.momentum_dtype);
    }
    if (given->exp_avg && given->exp_avg_dtype != own.exp_avg_dtype) {
        return mu_fail(MUONIUM_INVALID,
                       "exp_avg_dtype of the state given for %s is %d: its group keeps %d", p->name,
                       (int)given->exp_avg_dtype, (int)own.exp_avg_dtype);
    }
    return check_given_scales(p, given, &own);
}

static muonium_status check_given_values(const mu_parameter *p, const muonium_state *given,
                                         const mu_state_array *arrays, size_t count)
{
    static const mu_state_refusal refusal = {
        "muonium_set_state", "nothing was set; give finite values", MUONIUM_INVALID, false};
    muonium_status status = mu_check_count(given->steps, p->name, &refusal);
    for (size_t k = 0; status == MUONIUM_OK && k < count; k++) {
        const void *data = get_pointer(given, arrays[k].spec);
        if (!data) {
            continue;
        }
        mu_state_values values = mu_state_values_of(p, &arrays[k], data, 0, arrays[k].elements);
        if (!mu_state_is_sound(&values)) {
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
        return state ? status : mu_fail(MUONIUM_INVALID, "state is NULL: pass a muonium_state");
    }
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_state_arrays(p, arrays);
    status = check_given_arrays(p, state);
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter();
        status = check_given_values(p, state, arrays, count);
        mu_fenv_leave(environment);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t k = 0; k < count; k++) {
        const void *from = get_pointer(state, arrays[k].spec);
        if (from) {
            memmove(arrays[k].data, from, mu_state_bytes(&arrays[k]));
        } else if (arrays[k].data) {
            memset(arrays[k].data, 0, mu_state_bytes(&arrays[k]));
        }
        if (arrays[k].spec->from_parameter) {
            p->has_master = from != NULL;
        }
    }
    p->steps = state->steps;
    p->moderate = false;
    return MUONIUM_OK;
}

muonium_status muonium_set_state_sized(muonium_optimizer *optimizer, size_t parameter,
                                       const muonium_state *state, size_t size)
{
    muonium_state read;
    muonium_status status = mu_enter(optimizer, "muonium_set_state");
    if (status != MUONIUM_OK) {
        return status;
    }
    if (state) {
        status = mu_sized_read("state", state, size, &read, sizeof read);
    }
    if (status == MUONIUM_OK) {
        status = set_state(optimizer, parameter, state ? &read : NULL);
    }
    return mu_leave(optimizer, status);
}
