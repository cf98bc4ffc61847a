/*
 * optimizer_options.h: the options by which commands configure an optimizer. A command
 * writes OPTIMIZER_OPTION_TABLE at the head of its table and counts its own options from
 * OPTIMIZER_OPTION_COUNT on.
 */
#ifndef CLI_OPTIMIZER_OPTIONS_H
#define CLI_OPTIMIZER_OPTIONS_H

#include <muonium.h>

#include "choices.h"
#include "iteration_options.h"
#include "options.h"

enum {
    OPTIMIZER_RECIPE,
    OPTIMIZER_LR,
    OPTIMIZER_WEIGHT_DECAY,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_MOMENTUM_FORM,
    OPTIMIZER_NESTEROV,
    OPTIMIZER_SCALE,
    OPTIMIZER_SCALE_FACTOR,
    OPTIMIZER_DECAY,
    OPTIMIZER_NORMUON,
    OPTIMIZER_STEPS,
    OPTIMIZER_COEFFICIENTS,
    OPTIMIZER_NORMALIZE,
    OPTIMIZER_EPS,
    OPTIMIZER_EPS_MODE,
    OPTIMIZER_PRECISION,
    OPTIMIZER_ROUNDING,
    OPTIMIZER_FORM,
    OPTIMIZER_DIRECT_SET,
    OPTIMIZER_NONFINITE,
    OPTIMIZER_ADAM_LR,
    OPTIMIZER_ADAM_BETA1,
    OPTIMIZER_ADAM_BETA2,
    OPTIMIZER_ADAM_EPS,
    OPTIMIZER_ADAM_WEIGHT_DECAY,
    OPTIMIZER_ROUTE,
    OPTIMIZER_ROUTING,
    OPTIMIZER_PATTERN,
    OPTIMIZER_ONLY_PATTERNS,
    OPTIMIZER_SPLIT,
    OPTIMIZER_ONLY_2D,
    OPTIMIZER_EXPERTS,
    OPTIMIZER_STATE_DTYPE,
    OPTIMIZER_MASTER,
    OPTIMIZER_STOCHASTIC,
    OPTIMIZER_SEED,
    OPTIMIZER_OPTION_COUNT
};

/* clang-format off */
#define OPTIMIZER_NUMBER(option_name, sentence)                                                   \
    {.name = option_name, .type = OPTION_NUMBER, .placeholder = "X", .help = sentence}
#define OPTIMIZER_CHOICE(option_name, value, names, sentence)                                     \
    {.name = option_name, .type = OPTION_CHOICE, .placeholder = value, .choices = names,          \
     .help = sentence}

#define OPTIMIZER_OPTION_TABLE                                                                    \
    [OPTIMIZER_RECIPE] = {.name = "recipe", .letter = 'r', .type = OPTION_CHOICE,                 \
                          .placeholder = "NAME", .fallback = "muonium",                           \
                          .choice_name = muonium_recipe_name,                                     \
                          .help = "whose optimizer; it sets all options that are not given"},     \
    [OPTIMIZER_LR] = OPTIMIZER_NUMBER("lr", "learning rate"),                                     \
    [OPTIMIZER_WEIGHT_DECAY] = OPTIMIZER_NUMBER("weight-decay", "weight decay"),                  \
    [OPTIMIZER_MOMENTUM] = OPTIMIZER_NUMBER("momentum", "momentum, from 0 to below 1"),           \
    [OPTIMIZER_MOMENTUM_FORM] = OPTIMIZER_CHOICE("momentum-form", "FORM",                         \
                                                 choices_momentum_form, "how it accumulates"),    \
    [OPTIMIZER_NESTEROV] = OPTIMIZER_CHOICE("nesterov", "SWITCH", choices_switch,                 \
                                            "Nesterov's look ahead"),                             \
    [OPTIMIZER_SCALE] = OPTIMIZER_CHOICE("scale", "RULE", choices_scale,                          \
                                         "the factor on orthogonal matrices"),                    \
    [OPTIMIZER_SCALE_FACTOR] = OPTIMIZER_NUMBER("scale-factor", "a factor on that"),              \
    [OPTIMIZER_DECAY] = OPTIMIZER_CHOICE("decay", "RULE", choices_decay,                          \
                                         "how weights decay"),                                    \
    [OPTIMIZER_NORMUON] = OPTIMIZER_CHOICE("normuon", "SWITCH", choices_switch,                   \
                                           "divide rows by their running size"),                  \
    [OPTIMIZER_STEPS] = {.name = "steps", .letter = 'n', .type = OPTION_INTEGER,                  \
                         .placeholder = "N", .least = 1, .most = MUONIUM_MAX_STEPS,               \
                         .help = "steps of the iteration"},                                       \
    [OPTIMIZER_COEFFICIENTS] = {.name = "coefficients", .letter = 'c', .type = OPTION_CHOICE,     \
                                .placeholder = "NAME", .choice_name = muonium_preset_name,        \
                                .help = "a published table"},                                     \
    [OPTIMIZER_NORMALIZE] = OPTIMIZER_CHOICE("normalize", "NORM", choices_normalization,          \
                                             "what a matrix is divided by first"),                \
    [OPTIMIZER_EPS] = OPTIMIZER_NUMBER("eps", "guards the divisor"),                              \
    [OPTIMIZER_EPS_MODE] = OPTIMIZER_CHOICE("eps-mode", "MODE", choices_eps_mode, "and how"),     \
    [OPTIMIZER_PRECISION] = OPTIMIZER_CHOICE("precision", "TYPE", choices_dtype,                  \
                                             "what intermediates are stored in"),                 \
    [OPTIMIZER_ROUNDING] = OPTIMIZER_CHOICE("rounding", "RULE", choices_rounding,                 \
                                            "which of them bf16 and f16 round"),                  \
    [OPTIMIZER_FORM] = OPTIMIZER_CHOICE("form", "FORM", choices_form,                             \
                                        "how the polynomial is evaluated"),                       \
    [OPTIMIZER_DIRECT_SET] = OPTION_DIRECT_SET,                                                   \
    [OPTIMIZER_NONFINITE] = OPTIMIZER_CHOICE("nonfinite", "POLICY", choices_nonfinite,            \
                                             "for gradients with NaN or infinity"),               \
    [OPTIMIZER_ADAM_LR] = OPTIMIZER_NUMBER("adam-lr", "learning rate of AdamW"),                  \
    [OPTIMIZER_ADAM_BETA1] = OPTIMIZER_NUMBER("adam-beta1", "decay of its first moment"),         \
    [OPTIMIZER_ADAM_BETA2] = OPTIMIZER_NUMBER("adam-beta2", "decay of its second moment"),        \
    [OPTIMIZER_ADAM_EPS] = OPTIMIZER_NUMBER("adam-eps", "its eps"),                               \
    [OPTIMIZER_ADAM_WEIGHT_DECAY] = OPTIMIZER_NUMBER("adam-weight-decay", "its weight decay"),    \
    [OPTIMIZER_ROUTE] = OPTIMIZER_CHOICE("route", "ROUTE", choices_route,                         \
                                         "Muon or AdamW for all tensors, or by name and shape"),  \
    [OPTIMIZER_ROUTING] = {.name = "routing", .type = OPTION_CHOICE, .placeholder = "RULE",       \
                           .choice_name = muonium_routing_name,                                   \
                           .help = "which names and shapes get Muon"},                            \
    [OPTIMIZER_PATTERN] = {.name = "pattern", .type = OPTION_LIST, .placeholder = "NAME",         \
                           .help = "AdamW for tensors with this part of a name between dots; "    \
                                   "may hold * and ?, and may be repeated"},                      \
    [OPTIMIZER_ONLY_PATTERNS] = {.name = "only-patterns", .type = OPTION_FLAG,                    \
                                 .help = "these patterns replace the names of the rule, and do "  \
                                         "not add to them"},                                      \
    [OPTIMIZER_SPLIT] = {.name = "split", .type = OPTION_FLAG,                                    \
                         .help = "split fused QKV, gate and up that are known by their names"},   \
    [OPTIMIZER_ONLY_2D] = OPTIMIZER_CHOICE("only-2d", "SWITCH", choices_switch,                   \
                                           "AdamW for tensors that are not 2-D"),                 \
    [OPTIMIZER_EXPERTS] = OPTIMIZER_CHOICE("experts", "SWITCH", choices_switch,                   \
                                           "3-D tensors are a matrix per first index, or are "    \
                                           "flattened to one"),                                   \
    [OPTIMIZER_STATE_DTYPE] = OPTIMIZER_CHOICE("state-dtype", "TYPE", choices_state_dtype,        \
                                               "what momentum is kept in"),                       \
    [OPTIMIZER_MASTER] = OPTIMIZER_CHOICE("master", "SWITCH", choices_switch,                     \
                                          "keep f32 copies of half-precision parameters"),        \
    [OPTIMIZER_STOCHASTIC] = OPTIMIZER_CHOICE("stochastic-rounding", "SWITCH", choices_switch,    \
                                              "round half-precision parameters at random"),       \
    [OPTIMIZER_SEED] = {.name = "seed", .type = OPTION_INTEGER, .placeholder = "N", .least = 0,   \
                        .most = 2147483647, .help = "of stochastic rounding"}
/* clang-format on */

/* The recipe with what was given, to which it points. Its validity is for whoever uses it to
 * find out. */
muonium_status optimizer_options(const option_value *value, muonium_options *options);

#endif
