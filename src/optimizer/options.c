/*
 * options.c: the recipes, and the validation of options.
 *
 * A recipe is what it changes of our own defaults, written as a function that changes
 * it. What is in force is always a whole muonium_options; nothing remembers by which
 * recipe it was filled.
 */
#include "optimizer/optimizer.h"

#include <math.h>
#include <string.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/plan.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { FOLLOW_MUON = -1 }; /* for the fields of AdamW that may */

/* ---- recipes ---- */

static const muonium_options defaults = {
    .struct_size = sizeof(muonium_options),

    .lr = 0.02,
    .weight_decay = 0.01,
    .momentum = 0.95,
    .momentum_form = MUONIUM_MOMENTUM_LERP,
    .nesterov = true,
    .nesterov_form = MUONIUM_NESTEROV_AUTO,
    .scale = MUONIUM_SCALE_MATCH_RMS_ADAMW,
    .scale_factor = 1,
    .decay = MUONIUM_DECAY_DECOUPLED,
    .spatial_normalize = true,
    .maximize = false,

    .normuon = false,
    .normuon_beta2 = 0.95,
    .normuon_eps = 1e-10,

    .adam = MUONIUM_ADAMW,
    .nadamw_form = MUONIUM_NADAMW_LOOKAHEAD,
    .adam_lr = FOLLOW_MUON,
    .adam_lr_scale = 1,
    .adam_beta1 = 0.9,
    .adam_beta2 = 0.95,
    .adam_eps = 1e-8,
    .adam_eps_root = 0,
    .adam_weight_decay = FOLLOW_MUON,

    .route = MUONIUM_ROUTE_AUTO,
    .routing = MUONIUM_ROUTING_MUONIUM,
    .patterns = NULL,
    .pattern_count = 0,
    .only_patterns = false,
    .split_fused = false,
    .min_dim = 4,
    .max_aspect = 128,
    .only_2d = false,
    .kernels_in_out = false,
    .layout_3d = MUONIUM_LAYOUT_AUTO,

    .state_dtype = MUONIUM_F32,
    .master = false,
    .stochastic_rounding = false,
    .seed = 0,

    .scratch_bytes = 0,
    .log = NULL,
    .log_context = NULL,

};

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
    o->adam_eps = FOLLOW_MUON;
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
    o->adam_eps = FOLLOW_MUON;
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
};

const char *muonium_recipe_name(int index)
{
    return index >= 0 && (size_t)index < COUNT(recipes) ? recipes[index].name : NULL;
}

static const mu_nested versions = {"muonium_options", ".plan", sizeof(muonium_options),
                                   sizeof(muonium_plan_options)};

_Static_assert(offsetof(muonium_options, plan) == sizeof(size_t) &&
                   offsetof(muonium_options, lr) == sizeof(size_t) + sizeof(muonium_plan_options),
               "struct_size, plan and the rest lie without gaps: see versioned.c");

static muonium_options our_defaults(void)
{
    muonium_options options = defaults;
    muonium_plan_options_init(&options.plan);
    return options;
}

static muonium_status fail_on_recipe(const char *name)
{
    char names[128] = "";
    for (size_t i = 0; i < COUNT(recipes); i++) {
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
    for (size_t i = 0; i < COUNT(recipes); i++) {
        if (strcmp(recipes[i].name, recipe != NULL ? recipe : "muonium") == 0) {
            muonium_options filled = our_defaults();
            recipes[i].change(&filled);
            mu_nested_write(&versions, options, size, plan_size, &filled);
            return MUONIUM_OK;
        }
    }
    return fail_on_recipe(recipe);
}

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
    case MUONIUM_SCALE_NONE:
        break;
    }
    return scale * options->scale_factor;
}

/* ---- validation ---- */

static muonium_status check_choices(const muonium_options *o)
{
    const struct {
        const char *field, *type;
        int value, last;
    } choices[] = {
        {"momentum_form", "muonium_momentum_form", (int)o->momentum_form,
         MUONIUM_MOMENTUM_EMA_CORRECTED},
        {"nesterov_form", "muonium_nesterov_form", (int)o->nesterov_form, MUONIUM_NESTEROV_SUM},
        {"scale", "muonium_scale", (int)o->scale, MUONIUM_SCALE_NONE},
        {"decay", "muonium_decay", (int)o->decay, MUONIUM_DECAY_INDEPENDENT},
        {"normalization", "muonium_normalization", (int)o->plan.normalization, MUONIUM_NORM_NONE},
        {"eps_mode", "muonium_eps_mode", (int)o->plan.eps_mode, MUONIUM_EPS_OPTAX},
        {"precision", "muonium_dtype", (int)o->plan.precision, MUONIUM_F16},
        {"form", "muonium_form", (int)o->plan.form, MUONIUM_FORM_QUINTIC},
        {"rounding", "muonium_rounding", (int)o->plan.rounding, MUONIUM_ROUNDING_FP16},
        {"nonfinite", "muonium_nonfinite", (int)o->plan.nonfinite, MUONIUM_NONFINITE_PROPAGATE},
        {"adam", "muonium_adam_kind", (int)o->adam, MUONIUM_ADAM_BY_NESTEROV},
        {"nadamw_form", "muonium_nadamw_form", (int)o->nadamw_form, MUONIUM_NADAMW_OPTAX},
        {"route", "muonium_route", (int)o->route, MUONIUM_ROUTE_ADAM},
        {"routing", "muonium_routing", (int)o->routing, MUONIUM_ROUTING_MOTIF},
    };
    for (size_t i = 0; i < COUNT(choices); i++) {
        if (choices[i].value < 0 || choices[i].value > choices[i].last) {
            return mu_fail(MUONIUM_INVALID, "%s is %d: use a value of %s, 0 to %d",
                           choices[i].field, choices[i].value, choices[i].type, choices[i].last);
        }
    }
    if (o->layout_3d != MUONIUM_LAYOUT_AUTO && o->layout_3d != MUONIUM_LAYOUT_FLATTEN &&
        o->layout_3d != MUONIUM_LAYOUT_EXPERTS) {
        return mu_fail(
            MUONIUM_INVALID,
            "layout_3d is %d: use MUONIUM_LAYOUT_AUTO (0), MUONIUM_LAYOUT_FLATTEN (%d) or "
            "MUONIUM_LAYOUT_EXPERTS (%d); give other layouts to the tensor itself",
            (int)o->layout_3d, (int)MUONIUM_LAYOUT_FLATTEN, (int)MUONIUM_LAYOUT_EXPERTS);
    }
    if (o->state_dtype != MUONIUM_F32 && o->state_dtype != MUONIUM_BF16) {
        return mu_fail(MUONIUM_INVALID,
                       "state_dtype is %d: momentum is kept as MUONIUM_F32 (%d) or MUONIUM_BF16 "
                       "(%d)",
                       (int)o->state_dtype, (int)MUONIUM_F32, (int)MUONIUM_BF16);
    }
    return MUONIUM_OK;
}

static muonium_status check_numbers(const muonium_options *o)
{
    enum range { AT_LEAST_0, BELOW_1, ANY }; /* all finite; BELOW_1 is in [0, 1) */
    static const char *const demands[] = {"a finite number of at least 0",
                                          "a number from 0 to below 1",
                                          "a finite number; negative means to follow Muon"};
    const struct {
        const char *field;
        double value;
        enum range range;
    } numbers[] = {
        {"lr", o->lr, AT_LEAST_0},
        {"weight_decay", o->weight_decay, AT_LEAST_0},
        {"momentum", o->momentum, BELOW_1},
        {"scale_factor", o->scale_factor, AT_LEAST_0},
        {"normuon_beta2", o->normuon_beta2, BELOW_1},
        {"normuon_eps", o->normuon_eps, AT_LEAST_0},
        {"eps", o->plan.eps, AT_LEAST_0},
        {"adam_lr", o->adam_lr, ANY},
        {"adam_lr_scale", o->adam_lr_scale, AT_LEAST_0},
        {"adam_beta1", o->adam_beta1, BELOW_1},
        {"adam_beta2", o->adam_beta2, BELOW_1},
        {"adam_eps", o->adam_eps, ANY},
        {"adam_eps_root", o->adam_eps_root, AT_LEAST_0},
        {"adam_weight_decay", o->adam_weight_decay, ANY},
    };
    if (isnan(o->lr)) {
        return mu_fail(MUONIUM_INVALID,
                       "lr is NaN: set the learning rate (the recipe optax has no default)");
    }
    for (size_t i = 0; i < COUNT(numbers); i++) {
        double value = numbers[i].value;
        enum range range = numbers[i].range;
        if (!isfinite(value) || (range != ANY && value < 0) || (range == BELOW_1 && value >= 1)) {
            return mu_fail(MUONIUM_INVALID, "%s is %g: use %s", numbers[i].field, value,
                           demands[range]);
        }
    }
    if (!(o->plan.safety_factor > 0) || isinf(o->plan.safety_factor)) {
        return mu_fail(MUONIUM_INVALID, "safety_factor is %g: use a finite number above 0",
                       o->plan.safety_factor);
    }
    if (o->min_dim < 1) {
        return mu_fail(MUONIUM_INVALID, "min_dim is %zu: use at least 1, which excludes nothing",
                       o->min_dim);
    }
    if (!(o->max_aspect >= 1)) {
        return mu_fail(MUONIUM_INVALID,
                       "max_aspect is %g: use at least 1; infinity excludes nothing",
                       o->max_aspect);
    }
    return MUONIUM_OK;
}

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

muonium_status mu_check_options(const muonium_options *options)
{
    static muonium_status (*const checks[])(const muonium_options *) = {
        check_choices, check_numbers, check_coefficients, check_patterns};
    for (size_t i = 0; i < COUNT(checks); i++) {
        muonium_status status = checks[i](options);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    return MUONIUM_OK;
}

muonium_status mu_read_options(const muonium_options *given, muonium_options *options)
{
    muonium_options read = our_defaults();
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
    status = mu_check_options(&read);
    if (status == MUONIUM_OK) {
        *options = read;
    }
    return status;
}
