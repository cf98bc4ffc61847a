/*
 * recipes.c: the defaults, the recipes, and copies of options in the caller's version.
 *
 * A recipe is a function that changes the defaults, and a line of the list below. What is in
 * force is always a whole muonium_options; nothing remembers by which recipe it was filled.
 */
#include "options/options.h"

#include <math.h>
#include <string.h>

/* ---- defaults ---- */

#define OWN_OWN(field, initial) .field = initial,
#define OWN_PLAN(field, initial)
#define PLAN_OWN(field, initial)
#define PLAN_PLAN(field, initial) .field = initial,

const muonium_options mu_default_options = {
    .struct_size = sizeof(muonium_options),
    .plan =
        {
            .struct_size = sizeof(muonium_plan_options),
#define OPTION(part, type, field, initial, range, saved, help) PLAN_##part(field, initial)
#include "options/options.def"
        },
#define OPTION(part, type, field, initial, range, saved, help) OWN_##part(field, initial)
#include "options/options.def"
};

void muonium_plan_options_init_sized(muonium_plan_options *options, size_t size)
{
    mu_versioned_init(options, size, &mu_default_options.plan, sizeof mu_default_options.plan);
}

/* ---- recipes ---- */

/* The preset `original` with a, b and c all divided by 1.02. That reproduces a known
 * slip: room for singular values up to 1.02 takes divisors 1.02, 1.02^3 and 1.02^5;
 * one divisor for all three scales the output of each step, not its input. */
static const double fp16_table[1][3] = {{3.4445 / 1.02, -4.7750 / 1.02, 2.0315 / 1.02}};

static void change_nothing(muonium_options *o)
{
    (void)o;
}

static void motif(muonium_options *o)
{
    o->weight_decay = 0;
    o->plan.safety = 1e-2;
    o->plan.generated_rows = 10;
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->plan.precision = MUONIUM_BF16;
    o->plan.rounding = MUONIUM_ROUNDING_MOTIF;
    o->layout_3d = MUONIUM_LAYOUT_EXPERTS;
    o->routing = MUONIUM_ROUTING_MOTIF;
}

static void fp32(muonium_options *o)
{
    o->lr = 3e-4;
    o->momentum_form = MUONIUM_MOMENTUM_SUM;
    o->plan.coefficients = "original";
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->layout_3d = MUONIUM_LAYOUT_FLATTEN;
    o->routing = MUONIUM_ROUTING_WRAPPER;
}

static void fp16(muonium_options *o)
{
    fp32(o);
    o->plan.coefficients = NULL;
    o->plan.table = fp16_table;
    o->plan.table_rows = 1;
    o->plan.precision = MUONIUM_F16;
    o->plan.rounding = MUONIUM_ROUNDING_FP16;
}

static void timm(muonium_options *o)
{
    o->weight_decay = 0;
    o->nesterov = false;
    o->plan.coefficients = "quintic";
    o->plan.eps_mode = MUONIUM_EPS_CLAMP;
    o->plan.precision = MUONIUM_BF16;
    o->plan.rounding = MUONIUM_ROUNDING_TORCH;
    o->adam = MUONIUM_ADAM_BY_NESTEROV;
    o->nadamw_form = MUONIUM_NADAMW_TIMM;
    o->adam_eps = MU_FOLLOW_MUON;
    o->layout_3d = MUONIUM_LAYOUT_FLATTEN;
    o->routing = MUONIUM_ROUTING_TIMM;
}

static void optax(muonium_options *o)
{
    o->lr = NAN; /* it has no default: the check demands that one is set */
    o->weight_decay = 0;
    o->momentum_form = MUONIUM_MOMENTUM_EMA_CORRECTED;
    o->scale = MUONIUM_SCALE_ORIGINAL;
    o->plan.coefficients = "original";
    o->plan.eps_mode = MUONIUM_EPS_OPTAX;
    o->plan.eps = 1e-8;
    o->adam = MUONIUM_ADAM_BY_NESTEROV;
    o->nadamw_form = MUONIUM_NADAMW_OPTAX;
    o->adam_beta2 = 0.999;
    o->adam_eps = MU_FOLLOW_MUON;
    o->adam_weight_decay = 0;
    o->kernels_in_out = true;
    o->layout_3d = MUONIUM_LAYOUT_FLATTEN;
    o->routing = MUONIUM_ROUTING_TORCH;
}

static void torch(muonium_options *o)
{
    o->lr = 1e-3;
    o->weight_decay = 0.1;
    o->scale = MUONIUM_SCALE_ORIGINAL;
    o->plan.coefficients = "original";
    o->plan.eps_mode = MUONIUM_EPS_CLAMP;
    o->plan.precision = MUONIUM_BF16;
    o->plan.rounding = MUONIUM_ROUNDING_TORCH;
    o->layout_3d = MUONIUM_LAYOUT_FLATTEN;
    o->routing = MUONIUM_ROUTING_TORCH;
}

static void keller(muonium_options *o)
{
    o->weight_decay = 0;
    o->scale = MUONIUM_SCALE_ORIGINAL;
    o->plan.coefficients = "original";
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->plan.precision = MUONIUM_BF16;
    o->plan.rounding = MUONIUM_ROUNDING_KELLER;
    o->adam_lr = 3e-4;
    o->adam_eps = 1e-10;
    o->adam_weight_decay = 0;
    o->layout_3d = MUONIUM_LAYOUT_EXPERTS;
    o->routing = MUONIUM_ROUTING_KELLER;
}

static void moonlight(muonium_options *o)
{
    o->lr = 1e-3;
    o->weight_decay = 0.1;
    o->momentum_form = MUONIUM_MOMENTUM_SUM;
    o->plan.coefficients = "original";
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->plan.precision = MUONIUM_BF16;
    o->plan.rounding = MUONIUM_ROUNDING_KELLER;
    o->layout_3d = MUONIUM_LAYOUT_FLATTEN;
    o->routing = MUONIUM_ROUTING_MOONLIGHT;
}

static void nanochat(muonium_options *o)
{
    o->weight_decay = 0;
    o->scale = MUONIUM_SCALE_ORIGINAL;
    o->decay = MUONIUM_DECAY_CAUTIOUS_SCALED;
    o->plan.coefficients = "polar_express_5";
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->plan.eps = 1e-6;
    o->plan.safety_factor = 1.01;
    o->equilibrate = true;
    o->equilibrate_eps = 1e-6;
    o->renormalize = true;
    o->renormalize_eps = 1e-6;
    o->normuon = true;
    o->normuon_axis = MUONIUM_NORMUON_SHAPE;
    o->normuon_form = MUONIUM_NORMUON_CLAMP;
    o->normuon_beta2 = 0.9;
    o->adam_beta1 = 0.8;
    o->adam_eps = 1e-10;
    o->layout_3d = MUONIUM_LAYOUT_EXPERTS;
}

/* Its learning rates of Muon and AdamW are alike under match_rms_adamw alone. */
static void dion2(muonium_options *o)
{
    o->lr = 0.01;
    o->momentum_form = MUONIUM_MOMENTUM_SUM;
    o->nesterov = false;
    o->scale = MUONIUM_SCALE_RMS_TO_RMS;
    o->plan.coefficients = "polar_express_5";
    o->plan.eps_mode = MUONIUM_EPS_ADD;
    o->plan.eps = 1e-8;
    o->plan.safety_factor = 1.02;
    o->fraction = 0.25;
    o->ef_decay = 0.95;
    o->layout_3d = MUONIUM_LAYOUT_EXPERTS;
}

static void nordion2(muonium_options *o)
{
    dion2(o);
    o->selection = MUONIUM_SELECT_ROWS;
    o->normuon = true;
    o->normuon_beta2 = 0.95;
    o->normuon_eps = 1e-8;
}

static void adamuon(muonium_options *o)
{
    timm(o);
    o->adamuon = true;
    o->adamuon_beta2 = 0.95;
    o->adamuon_eps = MU_FOLLOW_MUON;
}

static void muonh(muonium_options *o)
{
    o->weight_decay = 0;
    o->scale = MUONIUM_SCALE_NONE;
    o->hyperball = true;
    o->plan.form = MUONIUM_FORM_AUTO; /* no particular polynomials */
}

static const struct recipe {
    const char *name;
    void (*change)(muonium_options *options);
} recipes[] = {
    {"muonium", change_nothing},
    {"motif", motif},
    {"fp16", fp16},
    {"fp32", fp32},
    {"timm", timm},
    {"optax", optax},
    {"torch", torch},
    {"keller", keller},
    {"moonlight", moonlight},
    {"nanochat", nanochat},
    {"dion2", dion2},
    {"nordion2", nordion2},
    {"adamuon", adamuon},
    {"muonh", muonh},
};

const char *muonium_recipe_name(int index)
{
    return index >= 0 && (size_t)index < MU_COUNT(recipes) ? recipes[index].name : NULL;
}

/* ---- versions of the struct ---- */

static const mu_nested versions = {"muonium_options", ".plan", sizeof(muonium_options),
                                   sizeof(muonium_plan_options)};

_Static_assert(offsetof(muonium_options, plan) == sizeof(size_t) &&
                   offsetof(muonium_options, lr) == sizeof(size_t) + sizeof(muonium_plan_options),
               "struct_size, plan and the rest lie without gaps: see versioned.c");

static muonium_status fail_on_recipe(const char *name)
{
    char names[256] = "";
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        strcat(strcat(names, i > 0 ? ", " : ""), recipes[i].name);
    }
    return mu_fail(MUONIUM_INVALID, "recipe is \"%s\": use one of %s", name, names);
}

muonium_status muonium_options_init_sized(muonium_options *options, size_t size, size_t plan_size,
                                          const char *recipe)
{
    if (options == NULL) {
        return mu_fail(MUONIUM_INVALID,
                       "options is NULL: pass the address of a muonium_options to fill");
    }
    muonium_status status = mu_nested_check(&versions, size, plan_size);
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        if (strcmp(recipes[i].name, recipe != NULL ? recipe : "muonium") == 0) {
            muonium_options filled = mu_default_options;
            if (recipes[i].change != change_nothing) {
                filled.plan.form = MUONIUM_FORM_QUINTIC; /* the polynomials of the original, */
                filled.plan.precision = MUONIUM_F32;     /* and its rounding */
            }
            recipes[i].change(&filled);
            mu_nested_write(&versions, options, size, plan_size, &filled);
            return MUONIUM_OK;
        }
    }
    return fail_on_recipe(recipe);
}

muonium_status mu_copy_options(const muonium_options *given, muonium_options *options)
{
    muonium_options read = mu_default_options;
    muonium_status status = mu_nested_read(&versions, given, &read);
    if (status != MUONIUM_OK) {
        return status;
    }
    /* A table goes before a name, but one that the recipe brought along must not hide
     * the name that the caller has set since. */
    if (read.plan.table == fp16_table && read.plan.coefficients != NULL) {
        read.plan.table = NULL;
        read.plan.table_rows = 0;
    }
    *options = read;
    return MUONIUM_OK;
}

muonium_status mu_copy_plan_options(const muonium_plan_options *given,
                                    muonium_plan_options *options)
{
    *options = mu_default_options.plan;
    return mu_versioned_read("muonium_plan_options", given, options, sizeof *options);
}

muonium_status mu_return_options(const mu_option *changed, const muonium_options *options,
                                 muonium_options *given)
{
    size_t size = given->struct_size, inner = given->plan.struct_size;
    size_t end = changed->shown.offset + changed->shown.size;
    bool known = changed->shown.plan ? end <= inner : end - sizeof options->plan <= size - inner;
    if (!known) {
        return mu_fail(MUONIUM_INVALID,
                       "%s is not in the struct of this program, which was compiled with an older "
                       "muonium.h: compile it again",
                       changed->shown.name);
    }
    mu_nested_write(&versions, given, size, inner, options);
    return MUONIUM_OK;
}
