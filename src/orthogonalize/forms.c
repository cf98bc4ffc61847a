/*
 * forms.c: which form a plan takes.
 */
#include <stdio.h>
#include <string.h>

#include "orthogonalize/plan.h"

/* The forms that a plan chooses from. At equal cost the earlier wins. */
static const mu_form *const forms[] = {&mu_form_standard, &mu_form_gram, &mu_form_direct};

enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

/* No set that strays further from 1 over [1e-3, 1] may take the place of the default
 * quintics: so far do these. */
#define QUINTICS_STRAY 0.1414

/* What is between the largest singular value that rounding can make of 1 and a set's
 * edge. */
#define ROOM_FOR_ROUNDING 1.001

/* Floating-point operations in the time in which an element is moved. Only the choice of
 * form depends on it, and only below some 32 rows, where forms hardly differ in time:
 * muonium bench --forms --threads 1 --shapes 8x8,16x16,24x24,32x32,48x48,64x64 */
#define FLOPS_PER_MOVE 12

/* Writes into `reason` why a set cannot run under these options; false if it can. */
static bool excludes_direct(const muonium_plan_options *o, const mu_direct_set *set, char *reason,
                            size_t size)
{
    if (o->precision == MUONIUM_BF16 || o->precision == MUONIUM_F16) {
        return snprintf(reason, size, "it computes in f32 or f64; change precision") > 0;
    }
    if (o->normalization == MUONIUM_NORM_NONE) {
        return snprintf(reason, size,
                        "without a normalization nothing keeps singular values below %g, where "
                        "its polynomial explodes; choose one, such as frobenius",
                        set->edge) > 0;
    }
    if (!(ROOM_FOR_ROUNDING / o->safety_factor < set->edge)) {
        return snprintf(reason, size,
                        "safety_factor %g lets singular values grow to %g, and its polynomial "
                        "explodes above %g; use a factor of at least 1",
                        o->safety_factor, 1 / o->safety_factor, set->edge) > 0;
    }
    return false;
}

static muonium_status fail_on_set(const char *name)
{
    char names[96] = "";
    for (int i = 0; muonium_direct_set_name(i); i++) {
        strcat(strcat(names, i > 0 ? ", " : ""), muonium_direct_set_name(i));
    }
    return mu_fail(MUONIUM_INVALID, "direct_set is \"%s\": use one of %s", name, names);
}

/* The option that asks for other quintics than the default ones; NULL if none does. */
static const char *own_polynomial(const muonium_plan_options *o)
{
    muonium_plan_options defaults;
    muonium_plan_options_init(&defaults);
    return o->table                         ? "table"
           : o->coefficients                ? "coefficients"
           : o->steps != defaults.steps     ? "steps"
           : o->lower != defaults.lower     ? "lower"
           : o->safety != defaults.safety   ? "safety"
           : o->cushion != defaults.cushion ? "cushion"
           : o->generated_rows != 0         ? "generated_rows"
                                            : NULL;
}

/* In units of floating-point operations. */
static double cost(const muonium_plan *plan, const mu_form *form)
{
    return form->flops(plan) + FLOPS_PER_MOVE * form->moved(plan);
}

/* The cheapest set that may stand for the quintics, or NULL. `wanted`: that one only. */
static const mu_direct_set *cheapest_set(muonium_plan *plan, const mu_direct_set *wanted)
{
    const mu_direct_set *best = NULL, *set;
    double least = 0;
    char reason[256];
    for (size_t i = 0; (set = mu_direct_set_at(i)) != NULL; i++) {
        if ((wanted && set != wanted) || set->deviation > QUINTICS_STRAY ||
            excludes_direct(&plan->options, set, reason, sizeof reason)) {
            continue;
        }
        plan->direct = set;
        double price = cost(plan, &mu_form_direct);
        if (!best || price < least) {
            best = set;
            least = price;
        }
    }
    return best;
}

/* Among those that evaluate the plan's quintics. */
static const mu_form *cheapest_quintic(const muonium_plan *plan)
{
    /* In the half types others compute the standard form, and its rounding is what these
     * modes are for. Square matrices need no fewer operations in Gram form. */
    bool gram = !plan->half && plan->m < plan->n &&
                cost(plan, &mu_form_gram) < cost(plan, &mu_form_standard);
    return gram ? &mu_form_gram : &mu_form_standard;
}

/* The set that the options name, or what MUONIUM_FORM_DIRECT alone means. */
static const mu_direct_set *named_set(const muonium_plan_options *o)
{
    return mu_direct_set_named(o->direct_set ? o->direct_set : "P12");
}

muonium_status mu_check_direct(const muonium_plan_options *o)
{
    char reason[256];
    const mu_direct_set *set = named_set(o);
    if (!set) {
        return fail_on_set(o->direct_set);
    }
    if (o->form != MUONIUM_FORM_DIRECT) {
        return MUONIUM_OK;
    }
    if (excludes_direct(o, set, reason, sizeof reason)) {
        return mu_fail(MUONIUM_INVALID, "form is direct: %s", reason);
    }
    const char *ignored = own_polynomial(o);
    return ignored ? mu_fail(MUONIUM_INVALID,
                             "form is direct: its polynomials are those of direct_set, and %s "
                             "would be ignored; leave %s at its default, or choose the form "
                             "auto, standard or gram",
                             ignored, ignored)
                   : MUONIUM_OK;
}

muonium_status mu_choose_form(muonium_plan *plan)
{
    const muonium_plan_options *o = &plan->options;
    muonium_status status = mu_check_direct(o);
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t i = 0; i < FORM_COUNT; i++) {
        if (o->form == forms[i]->id) {
            plan->form = forms[i];
            plan->direct = o->form == MUONIUM_FORM_DIRECT ? named_set(o) : NULL;
            return MUONIUM_OK;
        }
    }
    plan->form = cheapest_quintic(plan);
    if (o->form == MUONIUM_FORM_AUTO && !own_polynomial(o)) {
        plan->direct = cheapest_set(plan, o->direct_set ? named_set(o) : NULL);
        if (plan->direct && cost(plan, &mu_form_direct) < cost(plan, plan->form)) {
            plan->form = &mu_form_direct;
        } else {
            plan->direct = NULL;
        }
    }
    return MUONIUM_OK;
}
