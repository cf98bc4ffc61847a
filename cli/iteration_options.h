/*
 * iteration_options.h: entries of option tables that mean the same in every
 * command that runs or describes the iteration.
 */
#ifndef CLI_ITERATION_OPTIONS_H
#define CLI_ITERATION_OPTIONS_H

#include <muonium.h>

#include "options.h"

/* clang-format off */
#define OPTION_STEPS                                                                              \
    {.name = "steps", .letter = 'n', .type = OPTION_INTEGER, .placeholder = "N", .fallback = "5", \
     .least = 1, .most = MUONIUM_MAX_STEPS, .help = "number of steps"}
#define OPTION_LOWER                                                                              \
    {.name = "lower", .type = OPTION_NUMBER, .placeholder = "X", .fallback = "1e-3",              \
     .help = "smallest singular value to bring to 1, from 0 to 1"}
#define OPTION_SAFETY                                                                             \
    {.name = "safety", .type = OPTION_NUMBER, .placeholder = "X", .fallback = "0.02",             \
     .help = "room for values above 1 in every step but the last"}
#define OPTION_CUSHION                                                                            \
    {.name = "cushion", .type = OPTION_NUMBER, .placeholder = "X", .fallback = "0.02",            \
     .help = "a step never optimises below this part of the largest value"}
#define OPTION_DIRECT_SET                                                                         \
    {.name = "direct-set", .type = OPTION_CHOICE, .placeholder = "SET",                           \
     .choice_name = muonium_direct_set_name,                                                      \
     .help = "the polynomial of the direct form; without it P12, and for auto the fastest"}
/* clang-format on */

#endif
