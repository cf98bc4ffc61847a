/*
 * choices.h: what the enumerations of muonium.h are called on the command line, in their
 * order, NULL after the last.
 */
#ifndef CLI_CHOICES_H
#define CLI_CHOICES_H

extern const char *const choices_normalization[];
extern const char *const choices_eps_mode[];
extern const char *const choices_dtype[];
extern const char *const choices_rounding[];
extern const char *const choices_form[];
extern const char *const choices_nonfinite[];
extern const char *const choices_momentum_form[];
extern const char *const choices_scale[];
extern const char *const choices_decay[];
extern const char *const choices_route[];

/* Of these, the types that momentum is kept in. */
extern const char *const choices_state_dtype[];

/* Off is 0 and on is 1. */
extern const char *const choices_switch[];

#endif
