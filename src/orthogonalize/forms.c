/*
 * forms.c: the table of forms, and the choice among them.
 *
 * To add a form: its value in muonium.h, its name in options.def, a file with its mu_form
 * (run.h), a line of the table here, and a test.
 */
#include <string.h>

#include "orthogonalize/run.h"

/* One entry per value of muonium_form: a form, or a rule that takes the cheapest. */
typedef struct form_choice {
    const mu_form *form;
    bool by_cost;   /* the cheapest of standard and gram, */
    bool or_direct; /* and of direct if the polynomial is the default one */
} form_choice;

static const form_choice choices[] = {
    [MUONIUM_FORM_AUTO] = {.by_cost = true, .or_direct = true},
    [MUONIUM_FORM_STANDARD] = {.form = &mu_form_standard},
    [MUONIUM_FORM_GRAM] = {.form = &mu_form_gram},
    [MUONIUM_FORM_DIRECT] = {.form = &mu_form_direct},
    [MUONIUM_FORM_QUINTIC] = {.by_cost = true},
};

/* The entry for a value of the enum; NULL: unknown. */
static const form_choice *choice_of(muonium_form id)
{
    size_t index = (size_t)id;
    const form_choice *choice = index < sizeof choices / sizeof choices[0] ? &choices[index] : NULL;
    return choice && (choice->form || choice->by_cost) ? choice : NULL;
}

/* max |p(sigma) - 1| on [1e-3, 1] of the default quintics. A set of the direct form may replace
 * them only if it deviates no more. */
#define DEVIATION_OF_QUINTICS 0.1414

/* ---- the cost model ---- */

/* The speed of products, in units of the time of one operation of an f32 product. All are
 * constants: a measurement would make results depend on a clock. */
typedef struct speed {
    const char *instruction_set;
    double gram, symmul, apply; /* operations per unit of time */
    double per_move;            /* time to move one element */
} speed;

/* In f32, on all instruction sets. Forms and direct sets are chosen at this speed in every
 * precision: results in fixed point are the same on every CPU, so their form must be. per_move
 * decides only below some 32 rows, where forms hardly differ in time:
 * muonium bench --forms --threads 1 --shapes 8x8,16x16,24x24,32x32,48x48,64x64 */
static const speed in_f32 = {NULL, 1, 1, 1, 12};

/* In fixed23, where that can be faster than f32. per_move is the time to split elements into digits
 * and to combine sums. Figures: bench/results/fixed-point-sapphire-rapids.md. On sets that are not
 * listed `auto` is f32: with AVX512-VNNI fixed23 is slower, and no Arm CPU was measured. */
static const speed in_fixed23[] = {{"amx", 2.2, 1.7, 2.6, 34}};

static const speed *speed_of_fixed23(const char *instruction_set)
{
    for (size_t i = 0; i < MU_COUNT(in_fixed23); i++) {
        if (strcmp(in_fixed23[i].instruction_set, instruction_set) == 0) {
            return &in_fixed23[i];
        }
    }
    return NULL;
}

double mu_plan_flops(const muonium_plan *plan)
{
    mu_work work = plan->form->work(plan);
    return work.grams * mu_gram_flops(plan->m, plan->n) + work.symmuls * mu_symmul_flops(plan->m) +
           work.applies * mu_apply_flops(plan->m, plan->n) +
           work.general * mu_apply_flops(plan->m, plan->m);
}

/* Of a form, with the plan's direct set. */
static double cost(const muonium_plan *plan, const speed *s, const mu_form *form)
{
    size_t m = plan->m, n = plan->n;
    mu_work work = form->work(plan);
    return work.grams * (mu_gram_flops(m, n) / s->gram + s->per_move * mu_gram_moved(m, n)) +
           work.symmuls * (mu_symmul_flops(m) / s->symmul + s->per_move * mu_symmul_moved(m)) +
           work.applies * (mu_apply_flops(m, n) / s->apply + s->per_move * mu_apply_moved(m, n)) +
           s->per_move * work.moved;
}

static muonium_status fail_on_set(const char *name)
{
    char names[96] = "";
    for (int i = 0; muonium_direct_set_name(i); i++) {
        strcat(strcat(names, i > 0 ? ", " : ""), muonium_direct_set_name(i));
    }
    return mu_fail(MUONIUM_INVALID, "direct_set is \"%s\": use one of %s", name, names);
}

muonium_status mu_check_methods(const muonium_plan_options *o)
{
    const form_choice *choice = choice_of(o->form);
    if (!choice) {
        return mu_fail(MUONIUM_INVALID, "form is %d: use one of the values of muonium_form",
                       (int)o->form);
    }
    muonium_status status = mu_check_normalization(o);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!mu_direct_set_of(o)) {
        return fail_on_set(o->direct_set);
    }
    return choice->form && choice->form->check ? choice->form->check(o) : MUONIUM_OK;
}

/* ---- the choice ---- */

/* The cheapest set that may replace the quintics, or NULL. `wanted`: that one only. */
static const mu_direct_set *cheapest_set(muonium_plan *plan, const mu_direct_set *wanted)
{
    const mu_direct_set *best = NULL, *set;
    double least = 0;
    char reason[256];
    for (size_t i = 0; (set = mu_direct_set_at(i)) != NULL; i++) {
        if ((wanted && set != wanted) || set->deviation > DEVIATION_OF_QUINTICS ||
            mu_direct_refuses(&plan->options, set, reason, sizeof reason)) {
            continue;
        }
        plan->direct = set;
        double price = cost(plan, &in_f32, &mu_form_direct);
        if (!best || price < least) {
            best = set;
            least = price;
        }
    }
    return best;
}

/* The cheapest form that evaluates the plan's quintics. */
static const mu_form *cheapest_quintic(const muonium_plan *plan)
{
    /* In the half types other implementations compute the standard form, and these modes
     * reproduce their rounding. On square matrices the Gram form saves no operations. */
    bool gram = !plan->half && plan->m < plan->n &&
                cost(plan, &in_f32, &mu_form_gram) < cost(plan, &in_f32, &mu_form_standard);
    return gram ? &mu_form_gram : &mu_form_standard;
}

/* Set form and direct. */
static void choose_form(muonium_plan *plan)
{
    const muonium_plan_options *o = &plan->options;
    const form_choice *choice = choice_of(o->form);
    plan->form = choice->form;
    if (plan->form) {
        plan->direct = plan->form == &mu_form_direct ? mu_direct_set_of(o) : NULL;
        return;
    }
    plan->form = cheapest_quintic(plan);
    if (choice->or_direct && !mu_other_polynomial(o)) {
        plan->direct = cheapest_set(plan, o->direct_set ? mu_direct_set_of(o) : NULL);
        if (plan->direct &&
            cost(plan, &in_f32, &mu_form_direct) < cost(plan, &in_f32, plan->form)) {
            plan->form = &mu_form_direct;
        } else {
            plan->direct = NULL;
        }
    }
}

void mu_choose_form(muonium_plan *plan, const char *instruction_set)
{
    muonium_plan_options *o = &plan->options;
    const form_choice *choice = choice_of(o->form);
    plan->precision = mu_precision_of(o->precision);
    plan->half = plan->precision->half;
    if (choice->form ? choice->form->restarts : plan->m < plan->n) {
        mu_choose_restarts((const double(*)[3])plan->table, o->steps, plan->precision->unit,
                           plan->restart);
    }
    choose_form(plan);
    if (o->precision == MUONIUM_AUTO) {
        const speed *fixed = speed_of_fixed23(instruction_set);
        bool pays = fixed && cost(plan, fixed, plan->form) < cost(plan, &in_f32, plan->form);
        o->precision = pays ? MUONIUM_FIXED23 : MUONIUM_F32;
        plan->precision = mu_precision_of(o->precision);
    }
}
