/*
 * state_values.c: which state an optimizer accepts. muonium_save, muonium_load, positional
 * loading and muonium_set_state share these checks, so that whatever was saved can be loaded.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/half.h"
#include "optimizer/optimizer.h"

/* Loops without early exit, so that compilers vectorise them. */

static bool all_finite_f32(const float *x, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !(fabsf(x[i]) <= FLT_MAX);
    }
    return !bad;
}

static bool all_finite_bf16(const uint16_t *x, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= (x[i] & 0x7f80) == 0x7f80;
    }
    return !bad;
}

static bool any_below_range(const int8_t *x, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        found |= x[i] == INT8_MIN;
    }
    return found != 0;
}

static bool any_negative(const float *x, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        found |= x[i] < 0;
    }
    return found != 0;
}

static bool any_nan(const float *x, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        found |= isnan(x[i]) != 0;
    }
    return found != 0;
}

bool mu_state_is_sound(const mu_state_values *values)
{
    bool any = values->parameter->group->options.plan.nonfinite == MUONIUM_NONFINITE_PROPAGATE;
    if (values->dtype == MUONIUM_INT8) {
        return !any_below_range(values->data, values->count);
    }
    if (values->dtype == MUONIUM_BF16) {
        return any || all_finite_bf16(values->data, values->count);
    }
    const float *x = values->data;
    const mu_state_spec *spec = mu_state_spec_of(values->kind);
    if (spec->non_negative && any_negative(x, values->count)) {
        return false;
    }
    return any ||
           (spec->may_overflow ? !any_nan(x, values->count) : all_finite_f32(x, values->count));
}

muonium_status mu_state_fault(const mu_state_values *values, const mu_state_refusal *refusal)
{
    size_t bytes = muonium_dtype_size(values->dtype), at = 0;
    mu_state_values one = *values;
    one.count = 1;
    while (mu_state_is_sound(&one)) {
        at++;
        one.data = (const char *)values->data + at * bytes;
    }
    mu_quoted name = mu_quote(values->parameter->name);
    if (values->dtype == MUONIUM_INT8) {
        return mu_fail(
            refusal->status, "%s: %s of %s is -128 at element %zu: int8 state is from -127 to 127",
            refusal->source, mu_state_spec_of(values->kind)->name, name.text, values->first + at);
    }
    double value = values->dtype == MUONIUM_BF16
                       ? (double)mu_f32_from_bf16(*(const uint16_t *)one.data)
                       : (double)*(const float *)one.data;
    if (isfinite(value) && mu_state_spec_of(values->kind)->per_block) {
        return mu_fail(refusal->status,
                       "%s: %s of %s is %g at element %zu: a scale is not negative",
                       refusal->source, mu_state_spec_of(values->kind)->name, name.text, value,
                       values->first + at);
    }
    if (isfinite(value)) {
        return mu_fail(refusal->status,
                       "%s: %s of %s is %g at element %zu: a mean of squares is not negative",
                       refusal->source, mu_state_spec_of(values->kind)->name, name.text, value,
                       values->first + at);
    }
    return mu_fail(MUONIUM_NON_FINITE,
                   "%s: %s of %s is %g at element %zu%s: %s, or set nonfinite to propagate",
                   refusal->source, mu_state_spec_of(values->kind)->name, name.text, value,
                   values->first + at, refusal->converted ? ", after conversion" : "",
                   refusal->outcome);
}

muonium_status mu_check_count(uint64_t steps, const char *name, const mu_state_refusal *refusal)
{
    if (steps <= MU_MOST_STEPS) {
        return MUONIUM_OK;
    }
    mu_quoted quoted = mu_quote(name ? name : "");
    return mu_fail(refusal->status, "%s: %" PRIu64 " steps of %s: at most 2^53 can be counted",
                   refusal->source, steps, name ? quoted.text : "the optimizer");
}
