/*
 * options.c: what follows from options, and the checks that concern several of them. The
 * range of each is that of the table, src/options/options.def.
 */
#include "optimizer/optimizer.h"

#include <math.h>
#include <string.h>

#include "coefficients/coefficients.h"
#include "options/options.h"
#include "orthogonalize/plan.h"

/* ---- what follows from options ---- */

double mu_adam_lr(const muonium_options *options)
{
    return options->adam_lr < 0 ? options->adam_lr_scale * options->lr : options->adam_lr;
}

double mu_adam_eps(const muonium_options *options)
{
    return options->adam_eps < 0 ? options->plan.eps : options->adam_eps;
}

double mu_adam_weight_decay(const muonium_options *options)
{
    return options->adam_weight_decay < 0 ? options->weight_decay : options->adam_weight_decay;
}

bool mu_is_nadamw(const muonium_options *options)
{
    return options->adam == MUONIUM_NADAMW ||
           (options->adam == MUONIUM_ADAM_BY_NESTEROV && options->nesterov);
}

double mu_scale_of(const muonium_options *options, size_t out, size_t in)
{
    double rows = (double)out, cols = (double)in, scale = 1;
    switch (options->scale) {
    case MUONIUM_SCALE_ORIGINAL:
        scale = sqrt(fmax(1, rows / cols));
        break;
    case MUONIUM_SCALE_MATCH_RMS_ADAMW:
        scale = 0.2 * sqrt(fmax(rows, cols));
        break;
    case MUONIUM_SCALE_RMS_TO_RMS:
        scale = sqrt(rows / cols);
        break;
    case MUONIUM_SCALE_RSQRT_IN:
        scale = 1 / sqrt(cols);
        break;
    case MUONIUM_SCALE_NONE:
        break;
    }
    return scale * options->scale_factor;
}

/* ---- validation ---- */

/* Chosen as a plan chooses them, so that a plan finds nothing left to refuse. */
static muonium_status check_coefficients(const muonium_options *o)
{
    double table[MUONIUM_MAX_STEPS][3];
    muonium_status status = mu_choose_coefficients(&o->plan, table);
    return status == MUONIUM_OK ? mu_check_methods(&o->plan) : status;
}

static muonium_status check_patterns(const muonium_options *o)
{
    enum { LONGEST = MU_REASON_SIZE - sizeof "name_pattern:" };
    if (o->patterns == NULL) {
        return o->pattern_count == 0
                   ? MUONIUM_OK
                   : mu_fail(MUONIUM_INVALID,
                             "pattern_count is %zu, but patterns is NULL: set patterns, or "
                             "pattern_count to 0 for none",
                             o->pattern_count);
    }
    for (size_t i = 0; i < o->pattern_count; i++) {
        const char *pattern = o->patterns[i];
        if (pattern == NULL) {
            return mu_fail(MUONIUM_INVALID,
                           "patterns[%zu] is NULL: give a pattern, or fewer than the %zu of "
                           "pattern_count",
                           i, o->pattern_count);
        }
        if (strpbrk(pattern, "./") != NULL) {
            return mu_fail(MUONIUM_INVALID,
                           "patterns[%zu] is \"%s\": it would match nothing, since it is compared "
                           "with the parts of a name between dots and slashes; leave those out",
                           i, pattern);
        }
        if (strlen(pattern) > LONGEST) {
            return mu_fail(MUONIUM_INVALID,
                           "patterns[%zu] is \"%s\": use at most %d bytes, * and ? for the rest", i,
                           pattern, (int)LONGEST);
        }
    }
    return MUONIUM_OK;
}

/* Rules that exclude each other. */
static muonium_status check_rules(const muonium_options *o)
{
    const struct {
        bool on;
        const char *name;
    } rules[] = {{o->equilibrate, "equilibrate"},
                 {o->renormalize, "renormalize"},
                 {o->adamuon, "adamuon"},
                 {o->hyperball, "hyperball"},
                 {o->fraction < 1, "a fraction below 1"}};
    for (size_t i = 0; o->adaptive && i < MU_COUNT(rules); i++) {
        if (rules[i].on) {
            return mu_fail(MUONIUM_INVALID,
                           "adaptive with %s: the dual norm belongs to the direction before that "
                           "rule; turn one of them off",
                           rules[i].name);
        }
    }
    if (o->state_stochastic && o->state_dtype != MUONIUM_INT8 &&
        o->adam_state_dtype != MUONIUM_INT8) {
        return mu_fail(MUONIUM_INVALID,
                       "state_stochastic rounds int8 state, and there is none: set state_dtype or "
                       "adam_state_dtype to int8, or state_stochastic to no");
    }
    if (!(o->fraction < 1)) {
        return MUONIUM_OK;
    }
    if (o->nesterov || o->momentum_form != MUONIUM_MOMENTUM_SUM) {
        return mu_fail(MUONIUM_INVALID,
                       "fraction is %g with %s: a fraction below 1 orthogonalises a sum of "
                       "gradients, so set momentum_form to sum and nesterov to no",
                       o->fraction, o->nesterov ? "nesterov" : "another momentum_form");
    }
    if (o->adamuon || o->hyperball) {
        return mu_fail(MUONIUM_INVALID,
                       "fraction is %g with %s: that rule needs an update of the whole matrix; set "
                       "fraction to 1",
                       o->fraction, o->adamuon ? "adamuon" : "hyperball");
    }
    if (o->normuon &&
        (o->selection != MUONIUM_SELECT_ROWS || o->normuon_axis != MUONIUM_NORMUON_ROWS)) {
        return mu_fail(MUONIUM_INVALID,
                       "fraction is %g with normuon: the means of rows need whole rows; set "
                       "selection and normuon_axis to rows",
                       o->fraction);
    }
    return MUONIUM_OK;
}

muonium_status mu_check_options(const muonium_options *options)
{
    static muonium_status (*const checks[])(const muonium_options *) = {
        mu_check_ranges, check_coefficients, check_patterns, check_rules};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        muonium_status status = checks[i](options);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    return MUONIUM_OK;
}

muonium_status mu_read_options(const muonium_options *given, muonium_options *options)
{
    muonium_options read;
    muonium_status status = mu_copy_options(given, &read);
    if (status == MUONIUM_OK) {
        status = mu_check_options(&read);
    }
    if (status == MUONIUM_OK) {
        *options = read;
    }
    return status;
}
