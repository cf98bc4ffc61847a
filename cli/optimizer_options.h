/*
 * optimizer_options.h: command-line options that set options of the library. They are made
 * from the library's own list, so that a new one needs nothing here.
 *
 * A command that takes them leaves room for SETTINGS_MOST entries behind its own options and
 * has them appended when the program starts:
 *
 *     enum { JSON, OWN };
 *     static option options[OWN + SETTINGS_MOST] = {
 *         [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
 *     };
 *     static void prepare(void)
 *     {
 *         settings_append(options + OWN);
 *     }
 */
#ifndef CLI_OPTIMIZER_OPTIONS_H
#define CLI_OPTIMIZER_OPTIONS_H

#include <muonium.h>

#include "options.h"

enum { SETTINGS_MOST = 96 };

/* --recipe, and every option of the library that changes results. */
void settings_append(option *table);

/* Those of the orthogonalisation alone, with their defaults. */
void settings_append_plan(option *table);

/* One of them, with its default. */
option setting_named(const char *name);

/* The value of an option of the table that must be there, by the library's name. */
const option_value *setting_value(const option *table, const option_value *value, const char *name);

/* The recipe with all that was given, to which it points. Fails if the library refuses a
 * value; whether they fit together is for whoever uses them to find out. */
muonium_status optimizer_options(const option *table, const option_value *value,
                                 muonium_options *options);

#endif
