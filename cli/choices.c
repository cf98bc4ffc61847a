/*
 * choices.c: names of enumerations.
 */
#include "choices.h"

#include <stddef.h>

const char *const choices_normalization[] = {"frobenius", "schatten", "aol",
                                             "spectral",  "none",     NULL};
const char *const choices_eps_mode[] = {"none", "clamp", "add", "optax", NULL};
const char *const choices_dtype[] = {"f32", "f64", "bf16", "f16", NULL};
const char *const choices_rounding[] = {"stored", "torch", "keller", "motif", "fp16", NULL};
const char *const choices_form[] = {"auto", "standard", "gram", "direct", "quintic", NULL};
const char *const choices_nonfinite[] = {"error", "skip", "propagate", NULL};
const char *const choices_momentum_form[] = {"lerp", "sum", "ema_corrected", NULL};
const char *const choices_scale[] = {"original", "match_rms_adamw", "rms_to_rms", "none", NULL};
const char *const choices_decay[] = {"decoupled", "cautious", "independent", NULL};
const char *const choices_route[] = {"auto", "muon", "adam", NULL};
const char *const choices_switch[] = {"off", "on", NULL};
const char *const choices_state_dtype[] = {"f32", "bf16", NULL};
