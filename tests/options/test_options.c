/*
 * test_options.c: every field of every recipe, overriding, options of older programs, and
 * what follows from options.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "coefficients/coefficients.h"
#include "optimizer/optimizer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* C11 does not add the const of a row by itself. */
#define ROWS(table) ((const double(*)[3])(table))

static muonium_options recipe(const char *name)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, name));
    return options;
}

/* ---- recipes ---- */

enum { LERP, SUM, EMA };                            /* muonium_momentum_form */
enum { NONE, CLAMP, ADD, BY_NORM };                 /* muonium_eps_mode */
enum { ORIGINAL, MATCH_RMS, RMS_TO_RMS, UNSCALED }; /* muonium_scale */
enum { F32 = 0, BF16 = 2, F16 = 3, BY_SPEED = 6 };  /* muonium_dtype */
enum { AUTO, FLATTEN, EXPERTS = 3 };                /* muonium_layout */
enum { ADAMW = 0, BY_NESTEROV = 2 };                /* muonium_adam_kind */
enum { LOOKAHEAD, TIMM, OPTAX };                    /* muonium_nadamw_form */
enum { STORED, BY_TORCH, KELLER, MOTIF, FP16 };     /* muonium_rounding */

/* What the recipes differ in. Of AdamW: what "follow Muon" comes to. */
static const struct known {
    const char *name;
    int momentum_form;
    bool nesterov;
    int eps_mode;
    double eps;
    const char *coefficients;
    int scale, precision;
    double lr, weight_decay;
} known[] = {
    {"muonium", LERP, true, NONE, 1e-7, NULL, MATCH_RMS, BY_SPEED, 0.02, 0.01},
    {"motif", LERP, true, ADD, 1e-7, NULL, MATCH_RMS, BF16, 0.02, 0},
    {"fp16", SUM, true, ADD, 1e-7, NULL, MATCH_RMS, F16, 3e-4, 0.01},
    {"fp32", SUM, true, ADD, 1e-7, "original", MATCH_RMS, F32, 3e-4, 0.01},
    {"timm", LERP, false, CLAMP, 1e-7, "quintic", MATCH_RMS, BF16, 0.02, 0},
    {"optax", EMA, true, BY_NORM, 1e-8, "original", ORIGINAL, F32, NAN, 0},
    {"torch", LERP, true, CLAMP, 1e-7, "original", ORIGINAL, BF16, 1e-3, 0.1},
    {"keller", LERP, true, ADD, 1e-7, "original", ORIGINAL, BF16, 0.02, 0},
    {"moonlight", SUM, true, ADD, 1e-7, "original", MATCH_RMS, BF16, 1e-3, 0.1},
    {"nanochat", LERP, true, ADD, 1e-6, "polar_express_5", ORIGINAL, F32, 0.02, 0},
    {"dion2", SUM, false, ADD, 1e-8, "polar_express_5", RMS_TO_RMS, F32, 0.01, 0.01},
    {"nordion2", SUM, false, ADD, 1e-8, "polar_express_5", RMS_TO_RMS, F32, 0.01, 0.01},
    {"adamuon", LERP, false, CLAMP, 1e-7, "quintic", MATCH_RMS, BF16, 0.02, 0},
    {"muonh", LERP, true, NONE, 1e-7, NULL, UNSCALED, F32, 0.02, 0},
};

/* What the newer members of the family add. */
static const struct known_rules {
    const char *name;
    int decay;
    double safety_factor, adam_beta1, normuon_beta2, normuon_eps, fraction;
    bool normuon, equilibrate, renormalize, adamuon, hyperball;
    int normuon_axis, normuon_form, selection;
} known_rules[] = {
    {"nanochat", MUONIUM_DECAY_CAUTIOUS_SCALED, 1.01, 0.8, 0.9, 1e-10, 1, true, true, true, false,
     false, MUONIUM_NORMUON_SHAPE, MUONIUM_NORMUON_CLAMP, MUONIUM_SELECT_SHORTER},
    {"dion2", MUONIUM_DECAY_DECOUPLED, 1.02, 0.9, 0.95, 1e-10, 0.25, false, false, false, false,
     false, MUONIUM_NORMUON_ROWS, MUONIUM_NORMUON_ADD, MUONIUM_SELECT_SHORTER},
    {"nordion2", MUONIUM_DECAY_DECOUPLED, 1.02, 0.9, 0.95, 1e-8, 0.25, true, false, false, false,
     false, MUONIUM_NORMUON_ROWS, MUONIUM_NORMUON_ADD, MUONIUM_SELECT_ROWS},
    {"adamuon", MUONIUM_DECAY_DECOUPLED, 1, 0.9, 0.95, 1e-10, 1, false, false, false, true, false,
     MUONIUM_NORMUON_ROWS, MUONIUM_NORMUON_ADD, MUONIUM_SELECT_SHORTER},
    {"muonh", MUONIUM_DECAY_DECOUPLED, 1, 0.9, 0.95, 1e-10, 1, false, false, false, false, true,
     MUONIUM_NORMUON_ROWS, MUONIUM_NORMUON_ADD, MUONIUM_SELECT_SHORTER},
};
static const struct known_rules no_rules = {NULL,
                                            MUONIUM_DECAY_DECOUPLED,
                                            1,
                                            0.9,
                                            0.95,
                                            1e-10,
                                            1,
                                            false,
                                            false,
                                            false,
                                            false,
                                            false,
                                            MUONIUM_NORMUON_ROWS,
                                            MUONIUM_NORMUON_ADD,
                                            MUONIUM_SELECT_SHORTER};

static const struct known_rest {
    const char *name;
    double safety;
    int generated_rows, table_rows;
    int routing;
    int layout_3d, rounding, adam, nadamw_form;
    double adam_lr, adam_beta2, adam_eps, adam_weight_decay;
} known_rest[] = {
    {"muonium", 2e-2, 0, 0, MUONIUM_ROUTING_MUONIUM, AUTO, STORED, ADAMW, LOOKAHEAD, 0.02, 0.95,
     1e-8, 0.01},
    {"motif", 1e-2, 10, 0, MUONIUM_ROUTING_MOTIF, EXPERTS, MOTIF, ADAMW, LOOKAHEAD, 0.02, 0.95,
     1e-8, 0},
    {"fp16", 2e-2, 0, 1, MUONIUM_ROUTING_WRAPPER, FLATTEN, FP16, ADAMW, LOOKAHEAD, 3e-4, 0.95, 1e-8,
     0.01},
    {"fp32", 2e-2, 0, 0, MUONIUM_ROUTING_WRAPPER, FLATTEN, STORED, ADAMW, LOOKAHEAD, 3e-4, 0.95,
     1e-8, 0.01},
    {"timm", 2e-2, 0, 0, MUONIUM_ROUTING_TIMM, FLATTEN, BY_TORCH, BY_NESTEROV, TIMM, 0.02, 0.95,
     1e-7, 0},
    {"optax", 2e-2, 0, 0, MUONIUM_ROUTING_TORCH, FLATTEN, STORED, BY_NESTEROV, OPTAX, NAN, 0.999,
     1e-8, 0},
    {"torch", 2e-2, 0, 0, MUONIUM_ROUTING_TORCH, FLATTEN, BY_TORCH, ADAMW, LOOKAHEAD, 1e-3, 0.95,
     1e-8, 0.1},
    {"keller", 2e-2, 0, 0, MUONIUM_ROUTING_KELLER, EXPERTS, KELLER, ADAMW, LOOKAHEAD, 3e-4, 0.95,
     1e-10, 0},
    {"moonlight", 2e-2, 0, 0, MUONIUM_ROUTING_MOONLIGHT, FLATTEN, KELLER, ADAMW, LOOKAHEAD, 1e-3,
     0.95, 1e-8, 0.1},
    {"nanochat", 2e-2, 0, 0, MUONIUM_ROUTING_MUONIUM, EXPERTS, STORED, ADAMW, LOOKAHEAD, 0.02, 0.95,
     1e-10, 0},
    {"dion2", 2e-2, 0, 0, MUONIUM_ROUTING_MUONIUM, EXPERTS, STORED, ADAMW, LOOKAHEAD, 0.01, 0.95,
     1e-8, 0.01},
    {"nordion2", 2e-2, 0, 0, MUONIUM_ROUTING_MUONIUM, EXPERTS, STORED, ADAMW, LOOKAHEAD, 0.01, 0.95,
     1e-8, 0.01},
    {"adamuon", 2e-2, 0, 0, MUONIUM_ROUTING_TIMM, FLATTEN, BY_TORCH, BY_NESTEROV, TIMM, 0.02, 0.95,
     1e-7, 0},
    {"muonh", 2e-2, 0, 0, MUONIUM_ROUTING_MUONIUM, AUTO, STORED, ADAMW, LOOKAHEAD, 0.02, 0.95, 1e-8,
     0},
};

static void assert_same(double found, double expected)
{
    if (found != expected && !(isnan(found) && isnan(expected))) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

static void assert_name(const char *found, const char *expected)
{
    assert_int_equal(found == NULL, expected == NULL);
    if (expected != NULL) {
        assert_string_equal(found, expected);
    }
}

/* What all recipes have in common. */
static void assert_common(const muonium_options *o, bool own)
{
    assert_int_equal(o->struct_size, sizeof *o);
    assert_same(o->momentum, 0.95);
    assert_int_equal(o->nesterov_form, MUONIUM_NESTEROV_AUTO);
    assert_same(o->scale_factor, 1);
    assert_true(o->spatial_normalize);
    assert_false(o->maximize);
    assert_int_equal(o->plan.steps, 5);
    assert_same(o->plan.lower, 1e-3);
    assert_same(o->plan.cushion, 0.02);
    assert_int_equal(o->plan.normalization, MUONIUM_NORM_FROBENIUS);
    assert_int_equal(o->plan.form, own ? MUONIUM_FORM_AUTO : MUONIUM_FORM_QUINTIC);
    assert_int_equal(o->plan.nonfinite, MUONIUM_NONFINITE_ERROR);
    assert_same(o->adam_lr_scale, 1);
    assert_same(o->adam_eps_root, 0);
    assert_int_equal(o->route, MUONIUM_ROUTE_AUTO);
    assert_null(o->patterns);
    assert_int_equal(o->pattern_count, 0);
    assert_int_equal(o->min_dim, 4);
    assert_same(o->max_aspect, 128);
    assert_false(o->only_2d);
    assert_false(o->only_patterns);
    assert_false(o->split_fused);
    assert_int_equal(o->state_dtype, MUONIUM_F32);
    assert_false(o->master);
    assert_false(o->stochastic_rounding);
    assert_int_equal(o->seed, 0);
    assert_int_equal(o->scratch_bytes, 0);
    assert_true(o->log == NULL);
    assert_null(o->log_context);
}

static void assert_rules(const muonium_options *o, const char *name)
{
    const struct known_rules *k = &no_rules;
    for (size_t i = 0; i < COUNT(known_rules); i++) {
        k = strcmp(name, known_rules[i].name) == 0 ? &known_rules[i] : k;
    }
    assert_int_equal(o->decay, k->decay);
    assert_same(o->plan.safety_factor, k->safety_factor);
    assert_same(o->adam_beta1, k->adam_beta1);
    assert_int_equal(o->normuon, k->normuon);
    assert_same(o->normuon_beta2, k->normuon_beta2);
    assert_same(o->normuon_eps, k->normuon_eps);
    assert_int_equal(o->normuon_axis, k->normuon_axis);
    assert_int_equal(o->normuon_form, k->normuon_form);
    assert_int_equal(o->equilibrate, k->equilibrate);
    assert_same(o->equilibrate_eps, k->equilibrate ? 1e-6 : 0);
    assert_int_equal(o->renormalize, k->renormalize);
    assert_same(o->renormalize_eps, k->renormalize ? 1e-6 : 0);
    assert_int_equal(o->adamuon, k->adamuon);
    assert_same(o->adamuon_beta2, 0.95);
    assert_same(o->adamuon_eps, k->adamuon ? -1 : 1e-8);
    assert_int_equal(o->hyperball, k->hyperball);
    assert_same(o->fraction, k->fraction);
    assert_same(o->ef_decay, 0.95);
    assert_int_equal(o->selection, k->selection);
}

/* Rules that exclude each other are refused, and the message names both. */
static void test_rules_that_exclude_each_other(void **state)
{
    static const struct {
        const char *recipe, *name, *value, *message;
    } cases[] = {
        {"nanochat", "adaptive", "yes", "adaptive with equilibrate"},
        {"adamuon", "adaptive", "yes", "adaptive with adamuon"},
        {"muonh", "adaptive", "yes", "adaptive with hyperball"},
        {"dion2", "adaptive", "yes", "adaptive with a fraction below 1"},
        {"dion2", "nesterov", "yes", "fraction is 0.25 with nesterov"},
        {"dion2", "momentum_form", "lerp", "fraction is 0.25 with another momentum_form"},
        {"dion2", "adamuon", "yes", "fraction is 0.25 with adamuon"},
        {"dion2", "normuon", "yes", "set selection and normuon_axis to rows"},
        {"nordion2", "normuon_axis", "columns", "set selection and normuon_axis to rows"},
        {"muonium", "fraction", "0.5", "fraction is 0.5 with nesterov"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        muonium_options o = recipe(cases[i].recipe), read;
        assert_ok(muonium_option_set(&o, cases[i].name, cases[i].value));
        assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, cases[i].message);
    }
    muonium_options o = recipe("dion2");
    assert_status_message(muonium_option_set(&o, "fraction", "0"), MUONIUM_INVALID,
                          "a number above 0, at most 1");
}

static void test_every_field(void **state)
{
    (void)state;
    assert_int_equal(COUNT(known), COUNT(known_rest));
    for (size_t i = 0; i < COUNT(known); i++) {
        const struct known *k = &known[i];
        const struct known_rest *r = &known_rest[i];
        assert_string_equal(muonium_recipe_name((int)i), k->name);
        assert_string_equal(r->name, k->name);
        muonium_options o;
        memset(&o, 0xa5, sizeof o);
        assert_ok(muonium_options_init(&o, k->name));
        assert_common(&o, strcmp(k->name, "muonium") == 0 || strcmp(k->name, "muonh") == 0);
        assert_rules(&o, k->name);
        assert_int_equal(o.momentum_form, k->momentum_form);
        assert_int_equal(o.nesterov, k->nesterov);
        assert_int_equal(o.plan.eps_mode, k->eps_mode);
        assert_same(o.plan.eps, k->eps);
        assert_name(o.plan.coefficients, k->coefficients);
        assert_int_equal(o.scale, k->scale);
        assert_int_equal(o.plan.precision, k->precision);
        assert_same(o.lr, k->lr);
        assert_same(o.weight_decay, k->weight_decay);

        assert_same(o.plan.safety, r->safety);
        assert_int_equal(o.plan.rounding, r->rounding);
        assert_int_equal(o.plan.generated_rows, r->generated_rows);
        assert_int_equal(o.plan.table_rows, r->table_rows);
        assert_int_equal(o.plan.table != NULL, r->table_rows > 0);
        assert_int_equal(o.routing, r->routing);
        assert_int_equal(o.kernels_in_out, strcmp(k->name, "optax") == 0);
        assert_int_equal(o.layout_3d, r->layout_3d);
        assert_int_equal(o.adam, r->adam);
        assert_int_equal(o.nadamw_form, r->nadamw_form);
        assert_int_equal(mu_is_nadamw(&o), r->adam == BY_NESTEROV && k->nesterov);
        assert_same(mu_adam_lr(&o), r->adam_lr);
        assert_same(o.adam_beta2, r->adam_beta2);
        assert_same(mu_adam_eps(&o), r->adam_eps);
        assert_same(mu_adam_weight_decay(&o), r->adam_weight_decay);
    }
    assert_null(muonium_recipe_name((int)COUNT(known)));
    assert_null(muonium_recipe_name(-1));
}

/* Every recipe is valid as it is, but for the learning rate that optax lacks. */
static void test_recipes_are_valid(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        muonium_options o = recipe(known[i].name), read;
        if (isnan(o.lr)) {
            assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, "lr is NaN");
            assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, "optax");
            o.lr = 0.01;
        }
        assert_ok(mu_read_options(&o, &read));
        assert_memory_equal(&read, &o, sizeof read);
    }
    muonium_options o = recipe(NULL), read;
    assert_ok(mu_read_options(NULL, &read));
    assert_memory_equal(&read, &o, sizeof read);
}

static void test_unknown_recipe(void **state)
{
    (void)state;
    muonium_options o = recipe("timm"), before = o;
    assert_status_message(muonium_options_init(&o, "tim"), MUONIUM_INVALID,
                          "recipe is \"tim\": use one of muonium, motif, fp16, fp32, timm, optax, "
                          "torch, keller, moonlight, nanochat, dion2, nordion2, adamuon, muonh");
    assert_memory_equal(&o, &before, sizeof o);
    assert_status_message(muonium_options_init(NULL, NULL), MUONIUM_INVALID, "options is NULL");
}

/* ---- coefficients ---- */

/* The table that a plan made from these options would use. */
static void table_of(const muonium_options *o, double (*table)[3])
{
    assert_ok(mu_choose_coefficients(&o->plan, table));
}

static void assert_rows(const double (*found)[3], const double (*expected)[3], int rows,
                        double tolerance)
{
    for (int i = 0; i < 3 * rows; i++) {
        double a = found[i / 3][i % 3], b = expected[i / 3][i % 3];
        if (!(fabs(a - b) <= tolerance * fabs(b))) {
            fail_msg("row %d, column %d: found %.17g, expected %.17g", i / 3, i % 3, a, b);
        }
    }
}

static void test_coefficients_of_recipes(void **state)
{
    (void)state;
    static const double motif_rows[5][3] = {
        {8.2373124904955546, -23.157747414558191, 16.680568411445908},
        {4.0824419990648337, -2.8930477353325856, 0.52528492569756446},
        {3.926347992254652, -2.8547468034765262, 0.53180224228949824},
        {3.2982187133085161, -2.4245419810267084, 0.48632008358844114},
        {2.2970369434552582, -1.6366255812590318, 0.40026284559536307},
    };
    static const double own_rows[5][3] = {
        {8.156554524902461, -22.48329292557795, 15.878769915207462},
        {4.042929935166739, -2.808917465908714, 0.5000178451051316},
        {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
        {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
        {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
    };
    static const double slip[1][3] = {{3.4445 / 1.02, -4.7750 / 1.02, 2.0315 / 1.02}};
    double table[MUONIUM_MAX_STEPS][3], expected[MUONIUM_MAX_STEPS][3];

    muonium_options o = recipe(NULL);
    table_of(&o, table);
    assert_rows(ROWS(table), own_rows, 5, 1e-11); /* published with the errors of double */

    o = recipe("motif");
    table_of(&o, table);
    assert_rows(ROWS(table), motif_rows, 5, 1e-12);
    o.plan.steps = 12; /* beyond the table the last row repeats */
    table_of(&o, table);
    assert_ok(muonium_polar_express(10, 1e-3, 1e-2, 0.02, expected));
    assert_rows(ROWS(table), ROWS(expected), 10, 0);
    assert_rows(ROWS(table) + 10, ROWS(expected) + 9, 1, 0);
    assert_rows(ROWS(table) + 11, ROWS(expected) + 9, 1, 0);

    o = recipe("fp16");
    table_of(&o, table);
    for (int i = 0; i < o.plan.steps; i++) {
        assert_rows(ROWS(table) + i, slip, 1, 2 * DBL_EPSILON);
    }
}

static void test_what_goes_before_what(void **state)
{
    (void)state;
    static const double own[2][3] = {{2, -1.5, 0.5}, {1.5, -0.5, 0}};
    double table[MUONIUM_MAX_STEPS][3], expected[MUONIUM_MAX_STEPS][3];
    muonium_options read;

    muonium_options o = recipe("motif");
    o.plan.coefficients = "quintic";
    assert_ok(mu_read_options(&o, &read));
    table_of(&read, table);
    assert_ok(muonium_coefficients("quintic", 5, expected));
    assert_rows(ROWS(table), ROWS(expected), 5, 0);

    o = recipe("fp16"); /* a name set by the caller, against the table of the recipe */
    o.plan.coefficients = "quintic";
    assert_ok(mu_read_options(&o, &read));
    table_of(&read, table);
    assert_rows(ROWS(table), ROWS(expected), 5, 0);

    o.plan.table = own; /* a table set by the caller */
    o.plan.table_rows = 2;
    assert_ok(mu_read_options(&o, &read));
    table_of(&read, table);
    assert_rows(ROWS(table), own, 2, 0);
    assert_rows(ROWS(table) + 4, own + 1, 1, 0);
}

/* What a plan is made from is the options' own part, whole. */
static void test_plan_options(void **state)
{
    (void)state;
    muonium_options o = recipe("timm"), read;
    o.plan.steps = 7;
    o.plan.lower = 0.25;
    o.plan.safety = 0.5;
    o.plan.cushion = 0.125;
    o.plan.normalization = MUONIUM_NORM_SPECTRAL;
    o.plan.eps = 3e-5;
    o.plan.safety_factor = 1.5;
    o.plan.form = MUONIUM_FORM_GRAM;
    o.plan.nonfinite = MUONIUM_NONFINITE_SKIP;
    assert_ok(mu_read_options(&o, &read));
    assert_memory_equal(&read.plan, &o.plan, sizeof o.plan);
    assert_int_equal(read.plan.struct_size, sizeof read.plan);
    assert_string_equal(read.plan.coefficients, "quintic");
    assert_int_equal(read.plan.eps_mode, MUONIUM_EPS_CLAMP);
    assert_int_equal(read.plan.precision, MUONIUM_BF16);
    assert_int_equal(read.plan.rounding, MUONIUM_ROUNDING_TORCH);

    o = recipe("motif");
    assert_int_equal(o.plan.generated_rows, 10);
    o.plan.safety = -1;
    assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, "safety is -1");
}

/* ---- what follows from options ---- */

static void test_following_muon(void **state)
{
    (void)state;
    muonium_options o = recipe(NULL);
    o.adam_lr_scale = 0.5;
    o.adam_eps = -1;
    o.plan.eps = 3e-6;
    assert_same(mu_adam_lr(&o), 0.01);
    assert_same(mu_adam_eps(&o), 3e-6);
    assert_same(mu_adam_weight_decay(&o), 0.01);
    o.adam_lr = o.adam_eps = o.adam_weight_decay = 0;
    assert_same(mu_adam_lr(&o), 0);
    assert_same(mu_adam_eps(&o), 0);
    assert_same(mu_adam_weight_decay(&o), 0);

    for (int kind = MUONIUM_ADAMW; kind <= MUONIUM_ADAM_BY_NESTEROV; kind++) {
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            o.adam = (muonium_adam_kind)kind;
            o.nesterov = nesterov != 0;
            assert_int_equal(mu_is_nadamw(&o), kind == MUONIUM_NADAMW ||
                                                   (kind == MUONIUM_ADAM_BY_NESTEROV && nesterov));
        }
    }
}

static void test_scale(void **state)
{
    (void)state;
    static const struct {
        muonium_scale scale;
        double tall, wide; /* of 64 x 16, of 16 x 64 */
    } cases[] = {
        {MUONIUM_SCALE_ORIGINAL, 2, 1},
        {MUONIUM_SCALE_MATCH_RMS_ADAMW, 1.6, 1.6},
        {MUONIUM_SCALE_RMS_TO_RMS, 2, 0.5},
        {MUONIUM_SCALE_NONE, 1, 1},
    };
    muonium_options o = recipe(NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        o.scale = cases[i].scale;
        o.scale_factor = 1;
        assert_same(mu_scale_of(&o, 64, 16), cases[i].tall);
        assert_same(mu_scale_of(&o, 16, 64), cases[i].wide);
        o.scale_factor = 4;
        assert_same(mu_scale_of(&o, 64, 16), 4 * cases[i].tall);
        o.scale_factor = 0;
        assert_same(mu_scale_of(&o, 64, 16), 0);
    }
}

/* What plan.exact_certificate asks for is in the certificates of a step. */
static void test_exact_certificates(void **state)
{
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6}, grad[6] = {3, 1, 2, 1, 4, 1};
    for (int exact = 0; exact < 2; exact++) {
        muonium_options o = recipe(NULL);
        muonium_optimizer *optimizer;
        muonium_certificate certificate;
        size_t count = 0;
        muonium_tensor w = {.ndim = 2, .shape = {2, 3}, .data = data, .grad = grad};
        w.route = MUONIUM_ROUTE_MUON;
        o.plan.exact_certificate = exact == 1;
        assert_ok(muonium_create(&o, &optimizer));
        assert_ok(muonium_add(optimizer, &w, NULL));
        assert_ok(muonium_step(optimizer));
        assert_ok(muonium_certificates(optimizer, 0, &certificate, 1, &count));
        assert_int_equal(count, 1);
        assert_int_equal(isnan(certificate.orthogonality_error), exact == 0);
        assert_true(exact == 0 || (certificate.sigma_min > 0.8 && certificate.sigma_max < 1.2));
        muonium_destroy(optimizer);
    }
}

/* ---- versions of the struct ---- */

static void test_older_struct(void **state)
{
    (void)state;
    const size_t older = offsetof(muonium_options, scratch_bytes);
    muonium_options o = recipe("timm"), read;
    o.seed = 77;
    memset((char *)&o + older, 0xa5, sizeof o - older); /* not there in the older version */
    o.struct_size = older;
    assert_ok(mu_read_options(&o, &read));
    assert_int_equal(read.struct_size, sizeof read);
    assert_int_equal(read.adam, MUONIUM_ADAM_BY_NESTEROV);
    assert_int_equal(read.seed, 77);
    assert_int_equal(read.scratch_bytes, 0);
    assert_true(read.log == NULL);
    assert_null(read.log_context);

    /* Nothing beyond the older struct is read. */
    char *guarded = test_guarded_alloc(older, 0);
    memcpy(guarded, &o, older);
    assert_ok(mu_read_options((const muonium_options *)(void *)guarded, &read));
    assert_int_equal(read.seed, 77);
    test_guarded_free(guarded);

    /* The default recipe fills the rest, whatever recipe the beginning came from. */
    o = recipe("optax");
    o.lr = 0.5;
    o.struct_size = offsetof(muonium_options, weight_decay);
    assert_ok(mu_read_options(&o, &read));
    assert_same(read.lr, 0.5);
    assert_same(read.weight_decay, 0.01);
    assert_int_equal(read.only_2d, false);
}

static void test_impossible_struct(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   sizeof(size_t),
                                   offsetof(muonium_options, weight_decay) + 1,
                                   sizeof(muonium_options) - 1,
                                   sizeof(muonium_options) + 8};
    muonium_options read = recipe("torch"), before = read;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        muonium_options o = recipe(NULL);
        o.struct_size = sizes[i];
        char part[64];
        snprintf(part, sizeof part, "struct_size of muonium_options is %zu", sizes[i]);
        assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, part);
        assert_status_message(mu_read_options(&o, &read), MUONIUM_INVALID, "muonium_options_init");
    }
    assert_memory_equal(&read, &before, sizeof read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_rules_that_exclude_each_other),
        cmocka_unit_test(test_recipes_are_valid),
        cmocka_unit_test(test_unknown_recipe),
        cmocka_unit_test(test_coefficients_of_recipes),
        cmocka_unit_test(test_what_goes_before_what),
        cmocka_unit_test(test_plan_options),
        cmocka_unit_test(test_exact_certificates),
        cmocka_unit_test(test_following_muon),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_older_struct),
        cmocka_unit_test(test_impossible_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
