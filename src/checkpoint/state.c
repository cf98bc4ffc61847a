/*
 * state.c: which arrays the state of a parameter consists of, by name, type and shape.
 */
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void *data_of(const mu_parameter *parameter, mu_state_kind kind)
{
    void *const data[MU_STATE_KINDS] = {
        [MU_STATE_MOMENTUM] = parameter->momentum,     [MU_STATE_EXP_AVG] = parameter->exp_avg,
        [MU_STATE_EXP_AVG_SQ] = parameter->exp_avg_sq, [MU_STATE_NORMUON] = parameter->normuon,
        [MU_STATE_MASTER] = parameter->master,
    };
    return data[kind];
}

/* By what its options say: a description has the arrays, but not their data. */
static bool keeps(const mu_parameter *p, mu_state_kind kind)
{
    switch (kind) {
    case MU_STATE_MOMENTUM:
        return p->muon;
    case MU_STATE_EXP_AVG:
    case MU_STATE_EXP_AVG_SQ:
        return !p->muon;
    case MU_STATE_NORMUON:
        return p->muon && p->group->options.normuon;
    case MU_STATE_MASTER:
        return mu_keeps_master(p);
    case MU_STATE_KINDS:
        break;
    }
    return false;
}

static mu_state_array describe(const mu_parameter *parameter, mu_state_kind kind)
{
    mu_state_array array = {
        .kind = kind,
        .data = data_of(parameter, kind),
        .dtype = kind == MU_STATE_MOMENTUM ? parameter->group->options.state_dtype : MUONIUM_F32,
        .ndim = parameter->tensor.ndim,
        .elements = parameter->elements,
    };
    if (kind == MU_STATE_NORMUON) {
        array.ndim = 2;
        array.shape[0] = parameter->matrices.batch.total;
        array.shape[1] = parameter->matrices.rows.total;
        array.elements = parameter->matrices.batch.total * parameter->matrices.rows.total;
        return array;
    }
    for (size_t d = 0; d < array.ndim; d++) {
        array.shape[d] = parameter->tensor.shape[d];
    }
    return array;
}

size_t mu_state_arrays(const mu_parameter *parameter, mu_state_array arrays[MU_STATE_KINDS])
{
    size_t count = 0;
    for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
        if (keeps(parameter, kind)) {
            arrays[count++] = describe(parameter, kind);
        }
    }
    return count;
}

bool mu_state_is_saved(const mu_parameter *parameter, const mu_state_array *array)
{
    return array->kind != MU_STATE_MASTER || parameter->has_master;
}

size_t mu_state_bytes(const mu_state_array *array)
{
    return array->elements * muonium_dtype_size(array->dtype);
}

const char *mu_join(mu_text *text, const char *first, const char *second, const char *third)
{
    text->count = 0;
    if (!mu_text_reserve(text, strlen(first) + strlen(second) + strlen(third) + 1)) {
        return NULL;
    }
    mu_text_add_string(text, first);
    mu_text_add_string(text, second);
    mu_text_add_string(text, third);
    mu_text_add(text, "", 1);
    return text->bytes;
}

mu_shape_text mu_format_shape(size_t ndim, const uint64_t *shape)
{
    static const char cut[] = ", ...";
    mu_shape_text result = {"["};
    size_t used = 1;
    for (size_t d = 0; d < ndim; d++) {
        if (used + 24 + sizeof cut > sizeof result.text) {
            memcpy(result.text + used, cut, sizeof cut);
            used += sizeof cut - 1;
            break;
        }
        used += (size_t)snprintf(result.text + used, 24, "%s%" PRIu64, d > 0 ? ", " : "", shape[d]);
    }
    memcpy(result.text + used, "]", 2);
    return result;
}

muonium_status mu_state_no_memory(void)
{
    return mu_fail(MUONIUM_NO_MEMORY, "no memory for the description of an optimizer's state");
}
