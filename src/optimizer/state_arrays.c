/*
 * state_arrays.c: see state_arrays.h.
 */
#include "optimizer/optimizer.h"

static bool is_muon(const mu_parameter *p)
{
    return p->muon;
}

static bool is_adam(const mu_parameter *p)
{
    return !p->muon;
}

static bool is_normuon(const mu_parameter *p)
{
    return p->muon && p->group->options.normuon;
}

static bool is_adamuon(const mu_parameter *p)
{
    return p->muon && p->group->options.adamuon;
}

static bool is_hyperball(const mu_parameter *p)
{
    return p->muon && p->group->options.hyperball;
}

static bool is_int8_momentum(const mu_parameter *p)
{
    return p->muon && p->group->options.state_dtype == MUONIUM_INT8;
}

static bool is_int8_adam(const mu_parameter *p)
{
    return !p->muon && p->group->options.adam_state_dtype == MUONIUM_INT8;
}

static muonium_dtype momentum_dtype(const muonium_options *o)
{
    return o->state_dtype;
}

static muonium_dtype exp_avg_dtype(const muonium_options *o)
{
    return o->adam_state_dtype;
}

bool mu_keeps_master(const mu_parameter *p)
{
    return p->group->options.master && p->tensor.dtype != MUONIUM_F32;
}

static const mu_state_spec specs[] = {
    [MU_STATE_MOMENTUM] = {.name = "momentum",
                           .kept = is_muon,
                           .field = offsetof(muonium_state, momentum),
                           .dtype = momentum_dtype,
                           .scale = MU_STATE_MOMENTUM_SCALE,
                           .halves = true,
                           .scaled_with_form = true},
    [MU_STATE_EXP_AVG] = {.name = "exp_avg",
                          .kept = is_adam,
                          .field = offsetof(muonium_state, exp_avg),
                          .dtype = exp_avg_dtype,
                          .scale = MU_STATE_EXP_AVG_SCALE},
    [MU_STATE_EXP_AVG_SQ] = {.name = "exp_avg_sq",
                             .kept = is_adam,
                             .field = offsetof(muonium_state, exp_avg_sq),
                             .non_negative = true,
                             .may_overflow = true},
    [MU_STATE_NORMUON] = {.name = "normuon",
                          .kept = is_normuon,
                          .field = offsetof(muonium_state, normuon),
                          .per_row = true,
                          .non_negative = true,
                          .optional = true,
                          .unlisted = true},
    [MU_STATE_MASTER] = {.name = "master",
                         .kept = mu_keeps_master,
                         .field = offsetof(muonium_state, master),
                         .from_parameter = true,
                         .optional = true,
                         .unlisted = true},
    [MU_STATE_ADAMUON] = {.name = "adamuon",
                          .kept = is_adamuon,
                          .field = offsetof(muonium_state, adamuon),
                          .non_negative = true,
                          .optional = true,
                          .unlisted = true},
    [MU_STATE_RADIUS] = {.name = "radius",
                         .kept = is_hyperball,
                         .field = offsetof(muonium_state, radius),
                         .per_matrix = true,
                         .non_negative = true,
                         .optional = true,
                         .unlisted = true},
    [MU_STATE_MOMENTUM_SCALE] = {.name = "momentum_scale",
                                 .kept = is_int8_momentum,
                                 .field = offsetof(muonium_state, momentum_scale),
                                 .per_block = true,
                                 .non_negative = true,
                                 .unlisted = true,
                                 .scaled_with_form = true},
    [MU_STATE_EXP_AVG_SCALE] = {.name = "exp_avg_scale",
                                .kept = is_int8_adam,
                                .field = offsetof(muonium_state, exp_avg_scale),
                                .per_block = true,
                                .non_negative = true,
                                .unlisted = true},
};

_Static_assert(sizeof specs / sizeof specs[0] == MU_STATE_KINDS, "an entry for each kind");

const mu_state_spec *mu_state_spec_of(mu_state_kind kind)
{
    return &specs[kind];
}

static mu_state_array array_of(const mu_parameter *p, mu_state_kind kind)
{
    const mu_state_spec *spec = &specs[kind];
    mu_state_array array = {
        .kind = kind,
        .spec = spec,
        .data = p->state[kind],
        .dtype = spec->dtype ? spec->dtype(&p->group->options) : MUONIUM_F32,
        .ndim = p->tensor.ndim,
        .elements = p->elements,
    };
    if (spec->per_row) {
        array.ndim = 2;
        array.shape[0] = p->matrices.batch.total;
        array.elements = mu_normuon_slices(p, p->matrices.count);
        array.shape[1] = array.elements / p->matrices.batch.total;
        return array;
    }
    if (spec->per_matrix) {
        array.ndim = 2;
        array.shape[0] = p->matrices.batch.total;
        array.shape[1] = p->matrices.blocks;
        array.elements = p->matrices.count;
        return array;
    }
    if (spec->per_block) {
        array.ndim = 1;
        array.elements = mu_state_blocks(p->elements);
        array.shape[0] = array.elements;
        return array;
    }
    for (size_t d = 0; d < array.ndim; d++) {
        array.shape[d] = p->tensor.shape[d];
    }
    return array;
}

size_t mu_state_arrays(const mu_parameter *parameter, mu_state_array arrays[MU_STATE_KINDS])
{
    size_t count = 0;
    for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
        if (specs[kind].kept(parameter)) {
            arrays[count++] = array_of(parameter, kind);
        }
    }
    return count;
}

size_t mu_count_state_arrays(const muonium_optimizer *optimizer)
{
    size_t count = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
            count += specs[kind].kept(optimizer->parameters[i]);
        }
    }
    return count;
}

size_t mu_state_length(const mu_parameter *p, mu_state_kind kind)
{
    return array_of(p, kind).elements;
}

size_t mu_state_bytes(const mu_state_array *array)
{
    return array->elements * muonium_dtype_size(array->dtype);
}

bool mu_state_has_values(const mu_parameter *parameter, const mu_state_array *array)
{
    return !array->spec->from_parameter || parameter->has_master;
}

bool mu_allocate_state(mu_parameter *p)
{
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_state_arrays(p, arrays);
    for (size_t k = 0; k < count; k++) {
        size_t bytes = mu_state_bytes(&arrays[k]);
        void *data = arrays[k].spec->from_parameter ? mu_alloc(bytes) : mu_alloc_zeroed(bytes);
        p->state[arrays[k].kind] = data;
        if (!data) {
            return false;
        }
    }
    return true;
}

void mu_free_state(mu_parameter *p)
{
    for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
        mu_free(p->state[kind]);
    }
}
