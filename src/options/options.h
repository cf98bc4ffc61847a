/*
 * options.h: the table of options, for the rooms that read, check, save and obey them.
 */
#ifndef MU_OPTIONS_H
#define MU_OPTIONS_H

#include "base/base.h"

/* For the fields of AdamW that may follow Muon's. */
enum { MU_FOLLOW_MUON = -1 };

/* What an option is in a checkpoint; see options.def. */
typedef enum mu_saved { MU_UNSAVED, MU_TUNED, MU_RECIPE } mu_saved;

/* One line of the table. */
typedef struct mu_option {
    muonium_option shown;
    mu_saved saved;
    unsigned allowed; /* choice: bit i stands for value i */
    const char *hint; /* choice: the end of the message about a wrong one; number: about NaN */
    const char *(*names)(int index); /* choice: by value; name: all that there are */
    bool is_signed;                  /* integer */
} mu_option;

/* ---- table.c ---- */

/* The options in the order of options.def; NULL past the last. And by name, or NULL. */
const mu_option *mu_option_at(int index);
const mu_option *mu_option_named(const char *name);

/* The place of its field, in options or in options->plan. */
void *mu_option_place(const mu_option *option, const muonium_options *options);

/* Fail, naming field and value, unless every field is in its range. What depends on several
 * fields is not checked. */
muonium_status mu_check_range(const mu_option *option, const muonium_options *options);
muonium_status mu_check_ranges(const muonium_options *options);
muonium_status mu_check_plan_ranges(const muonium_plan_options *options);

/* ---- text.c ---- */

/* Whether an option has a value: a pointer that is NULL has none. */
bool mu_option_is_set(const mu_option *option, const muonium_options *options);

/* Its value as text, cut to `size` bytes with the NUL; "" if it has none. Returns the length of
 * the whole text. */
size_t mu_option_text(const mu_option *option, const muonium_options *options, char *text,
                      size_t size);

/* A string without separators and control characters, these as %xx, cut and counted likewise. */
size_t mu_escape(const char *string, char *text, size_t size);

/* ---- recipes.c ---- */

/* The defaults: those of the table, which are the recipe "muonium". */
extern const muonium_options mu_default_options;

/* Options over the defaults, as far as the caller's version of the struct goes; NULL: the
 * defaults. Pointers in *options are those given. Nothing but the sizes is checked. */
muonium_status mu_copy_options(const muonium_options *given, muonium_options *options);
muonium_status mu_copy_plan_options(const muonium_plan_options *given,
                                    muonium_plan_options *options);

/* Write options back to where they were copied from. Fails, and writes nothing, if the caller's
 * version of the struct does not have the option that has changed. */
muonium_status mu_return_options(const mu_option *changed, const muonium_options *options,
                                 muonium_options *given);

#endif
