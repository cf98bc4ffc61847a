/*
 * optimizer_options.c: from option values to muonium_options.
 */
#include "optimizer_options.h"

static void set_number(double *field, const option_value *value)
{
    if (value->given) {
        *field = value->number;
    }
}

static void set_switch(bool *field, const option_value *value)
{
    if (value->given) {
        *field = value->choice == 1;
    }
}

static int chosen(const option_value *value, int otherwise)
{
    return value->given ? value->choice : otherwise;
}

static void set_choices(const option_value *value, muonium_options *o)
{
    o->momentum_form =
        (muonium_momentum_form)chosen(&value[OPTIMIZER_MOMENTUM_FORM], (int)o->momentum_form);
    o->scale = (muonium_scale)chosen(&value[OPTIMIZER_SCALE], (int)o->scale);
    o->decay = (muonium_decay)chosen(&value[OPTIMIZER_DECAY], (int)o->decay);
    o->plan.normalization =
        (muonium_normalization)chosen(&value[OPTIMIZER_NORMALIZE], (int)o->plan.normalization);
    o->plan.eps_mode = (muonium_eps_mode)chosen(&value[OPTIMIZER_EPS_MODE], (int)o->plan.eps_mode);
    o->plan.precision = (muonium_dtype)chosen(&value[OPTIMIZER_PRECISION], (int)o->plan.precision);
    o->plan.rounding = (muonium_rounding)chosen(&value[OPTIMIZER_ROUNDING], (int)o->plan.rounding);
    o->plan.form = (muonium_form)chosen(&value[OPTIMIZER_FORM], (int)o->plan.form);
    o->plan.nonfinite =
        (muonium_nonfinite)chosen(&value[OPTIMIZER_NONFINITE], (int)o->plan.nonfinite);
    o->route = (muonium_route)chosen(&value[OPTIMIZER_ROUTE], (int)o->route);
    o->routing = (muonium_routing)chosen(&value[OPTIMIZER_ROUTING], (int)o->routing);
    if (value[OPTIMIZER_STATE_DTYPE].given) {
        o->state_dtype = value[OPTIMIZER_STATE_DTYPE].choice == 1 ? MUONIUM_BF16 : MUONIUM_F32;
    }
    if (value[OPTIMIZER_EXPERTS].given) {
        o->layout_3d =
            value[OPTIMIZER_EXPERTS].choice == 1 ? MUONIUM_LAYOUT_EXPERTS : MUONIUM_LAYOUT_FLATTEN;
    }
}

muonium_status optimizer_options(const option_value *value, muonium_options *o)
{
    muonium_status status = muonium_options_init(o, value[OPTIMIZER_RECIPE].text);
    if (status != MUONIUM_OK) {
        return status;
    }
    set_number(&o->lr, &value[OPTIMIZER_LR]);
    set_number(&o->weight_decay, &value[OPTIMIZER_WEIGHT_DECAY]);
    set_number(&o->momentum, &value[OPTIMIZER_MOMENTUM]);
    set_number(&o->scale_factor, &value[OPTIMIZER_SCALE_FACTOR]);
    set_number(&o->plan.eps, &value[OPTIMIZER_EPS]);
    set_number(&o->adam_lr, &value[OPTIMIZER_ADAM_LR]);
    set_number(&o->adam_beta1, &value[OPTIMIZER_ADAM_BETA1]);
    set_number(&o->adam_beta2, &value[OPTIMIZER_ADAM_BETA2]);
    set_number(&o->adam_eps, &value[OPTIMIZER_ADAM_EPS]);
    set_number(&o->adam_weight_decay, &value[OPTIMIZER_ADAM_WEIGHT_DECAY]);
    set_switch(&o->nesterov, &value[OPTIMIZER_NESTEROV]);
    set_switch(&o->normuon, &value[OPTIMIZER_NORMUON]);
    set_switch(&o->only_2d, &value[OPTIMIZER_ONLY_2D]);
    set_switch(&o->master, &value[OPTIMIZER_MASTER]);
    set_switch(&o->stochastic_rounding, &value[OPTIMIZER_STOCHASTIC]);
    set_choices(value, o);
    if (value[OPTIMIZER_PATTERN].given) {
        o->patterns = value[OPTIMIZER_PATTERN].list;
        o->pattern_count = value[OPTIMIZER_PATTERN].listed;
    }
    o->only_patterns = value[OPTIMIZER_ONLY_PATTERNS].given;
    o->split_fused = value[OPTIMIZER_SPLIT].given;
    if (value[OPTIMIZER_STEPS].given) {
        o->plan.steps = value[OPTIMIZER_STEPS].integer;
    }
    if (value[OPTIMIZER_SEED].given) {
        o->seed = (uint64_t)value[OPTIMIZER_SEED].integer;
    }
    if (value[OPTIMIZER_DIRECT_SET].given) {
        o->plan.direct_set = value[OPTIMIZER_DIRECT_SET].text;
    }
    if (value[OPTIMIZER_COEFFICIENTS].given) {
        /* A table that the recipe brought goes before a name otherwise. */
        o->plan.table = NULL;
        o->plan.table_rows = 0;
        o->plan.coefficients = value[OPTIMIZER_COEFFICIENTS].text;
    }
    return MUONIUM_OK;
}
