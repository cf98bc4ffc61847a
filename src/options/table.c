/*
 * table.c: the table of options.def as data, the names of enums, and ranges.
 */
#include "options/options.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- enums ---- */

/* A function per enum: a switch without default, so that the compiler warns of an enumerator
 * that has no name. */
#define ENUM(type)                                                                                 \
    static const char *type##_names(int value)                                                     \
    {                                                                                              \
        switch ((type)value) {
#define VALUE(enumerator, name)                                                                    \
    case enumerator:                                                                               \
        return name;
#define END(type)                                                                                  \
    }                                                                                              \
    return NULL;                                                                                   \
    }
#include "options/options.def"

static const struct named_enum {
    const char *type;
    const char *(*names)(int value);
} enums[] = {
#define ENUM(type) {#type, type##_names},
#define VALUE(enumerator, name)
#define END(type)
#include "options/options.def"
};

const char *muonium_enum_name(const char *type, int value)
{
    for (size_t i = 0; type && i < sizeof enums / sizeof enums[0]; i++) {
        if (strcmp(enums[i].type, type) == 0) {
            return enums[i].names(value);
        }
    }
    return NULL;
}

const char *muonium_routing_name(int index)
{
    return muonium_routing_names(index);
}

/* ---- options ---- */

/* Ranges include both ends. */
#define RANGE(from, to, words) .shown.least = (from), .shown.most = (to), .shown.range = words
#define RANGE_AT_LEAST_0 RANGE(0, DBL_MAX, "a finite number of at least 0")
#define RANGE_LR RANGE_AT_LEAST_0, .hint = "set the learning rate (the recipe optax has no default)"
#define RANGE_ABOVE_0 RANGE(0x1p-1074, DBL_MAX, "a finite number above 0")
#define RANGE_BELOW_1 RANGE(0, 1 - DBL_EPSILON / 2, "a number from 0 to below 1")
#define RANGE_UNIT RANGE(0, 1, "a number from 0 to 1")
#define RANGE_FOLLOW RANGE(-DBL_MAX, DBL_MAX, "a finite number; negative means to follow Muon")
#define RANGE_FRACTION RANGE(0x1p-20, 1, "a number above 0, at most 1")
#define RANGE_STEPS RANGE(1, MUONIUM_MAX_STEPS, "1 to 64")
#define RANGE_GENERATED                                                                            \
    RANGE(0, MUONIUM_MAX_STEPS, "0 for a table of as many rows as steps, or 1 to 64")
#define RANGE_MIN_DIM RANGE(1, 0x1p64, "at least 1, which excludes nothing")
#define RANGE_MAX_ASPECT RANGE(1, INFINITY, "at least 1; infinity excludes nothing")
#define RANGE_ANY_SIZE RANGE(0, 0x1p64, "a whole number of at least 0")
#define RANGE_ALL .allowed = ~0u
#define RANGE_ONLY(values, words) .allowed = (values), .hint = words
#define RANGE_NAMES(function) .names = function

_Static_assert(MUONIUM_MAX_STEPS == 64, "said in the ranges");

#define TYPE_NUMBER .shown.type = MUONIUM_OPTION_NUMBER
#define TYPE_INTEGER .shown.type = MUONIUM_OPTION_INTEGER, .is_signed = true
#define TYPE_SIZE .shown.type = MUONIUM_OPTION_INTEGER
#define TYPE_SEED .shown.type = MUONIUM_OPTION_INTEGER
#define TYPE_SWITCH .shown.type = MUONIUM_OPTION_SWITCH
#define TYPE_CHOICE(type_)                                                                         \
    .shown.type = MUONIUM_OPTION_CHOICE, .shown.enum_type = #type_, .names = type_##_names
#define TYPE_NAME .shown.type = MUONIUM_OPTION_NAME
#define TYPE_TABLE .shown.type = MUONIUM_OPTION_TABLE
#define TYPE_LIST .shown.type = MUONIUM_OPTION_LIST
#define TYPE_CALLBACK .shown.type = MUONIUM_OPTION_CALLBACK

#define PART_OWN(field)                                                                            \
    .shown.offset = offsetof(muonium_options, field),                                              \
    .shown.size = sizeof(((muonium_options *)0)->field)
#define PART_PLAN(field)                                                                           \
    .shown.plan = true, .shown.offset = offsetof(muonium_plan_options, field),                     \
    .shown.size = sizeof(((muonium_plan_options *)0)->field)

#define SAVED_TUNED .saved = MU_TUNED, .shown.saved = true
#define SAVED_RECIPE .saved = MU_RECIPE, .shown.saved = true
#define SAVED_UNSAVED .saved = MU_UNSAVED

static const mu_option table[] = {
#define OPTION(part, type, field, initial, range, kept, sentence)                                  \
    {.shown.name = #field,                                                                         \
     .shown.help = sentence,                                                                       \
     PART_##part(field),                                                                           \
     TYPE_##type,                                                                                  \
     RANGE_##range,                                                                                \
     SAVED_##kept},
#include "options/options.def"
};

enum { OPTION_COUNT = sizeof table / sizeof table[0] };

const mu_option *mu_option_at(int index)
{
    return index >= 0 && index < OPTION_COUNT ? &table[index] : NULL;
}

const mu_option *mu_option_named(const char *name)
{
    for (int i = 0; name && i < OPTION_COUNT; i++) {
        if (strcmp(table[i].shown.name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

const muonium_option *muonium_option_at(int index)
{
    const mu_option *option = mu_option_at(index);
    return option ? &option->shown : NULL;
}

const muonium_option *muonium_option_find(const char *name)
{
    const mu_option *option = mu_option_named(name);
    return option ? &option->shown : NULL;
}

const char *muonium_option_choice(const muonium_option *option, int index)
{
    const mu_option *o = option ? mu_option_named(option->name) : NULL;
    if (!o || !o->names || index < 0) {
        return NULL;
    }
    if (o->shown.type == MUONIUM_OPTION_NAME) {
        return o->names(index);
    }
    const char *name;
    for (int value = 0; (name = o->names(value)) != NULL; value++) {
        if (o->allowed >> value & 1 && index-- == 0) {
            return name;
        }
    }
    return NULL;
}

void *mu_option_place(const mu_option *option, const muonium_options *options)
{
    const char *base = option->shown.plan ? (const char *)&options->plan : (const char *)options;
    return (char *)(uintptr_t)base + option->shown.offset;
}

/* ---- ranges ---- */

static muonium_status fail_on_choice(const mu_option *o, int value)
{
    char values[512] = "";
    const char *name;
    size_t used = 0;
    for (int i = 0; (name = o->names(i)) != NULL; i++) {
        if (o->allowed >> i & 1) {
            used += (size_t)snprintf(values + used, sizeof values - used, "%s%d (%s)",
                                     used > 0 ? ", " : "", i, name);
        }
    }
    return mu_fail(MUONIUM_INVALID, "%s is %d: use a value of %s: %s%s", o->shown.name, value,
                   o->shown.enum_type, values, o->hint ? o->hint : "");
}

static muonium_status check_number(const mu_option *o, double value)
{
    if (isnan(value) && o->hint) {
        return mu_fail(MUONIUM_INVALID, "%s is NaN: %s", o->shown.name, o->hint);
    }
    return value >= o->shown.least && value <= o->shown.most
               ? MUONIUM_OK
               : mu_fail(MUONIUM_INVALID, "%s is %g: use %s", o->shown.name, value, o->shown.range);
}

static muonium_status check_integer(const mu_option *o, const void *at)
{
    int number = 0;
    size_t size = 0;
    if (o->is_signed) {
        memcpy(&number, at, sizeof number);
        return number >= o->shown.least && number <= o->shown.most
                   ? MUONIUM_OK
                   : mu_fail(MUONIUM_INVALID, "%s is %d: use %s", o->shown.name, number,
                             o->shown.range);
    }
    memcpy(&size, at, sizeof size);
    return (double)size >= o->shown.least
               ? MUONIUM_OK
               : mu_fail(MUONIUM_INVALID, "%s is %zu: use %s", o->shown.name, size, o->shown.range);
}

static muonium_status check_field(const mu_option *o, const void *at)
{
    double number;
    int value;
    muonium_status status;
    mu_fenv environment;
    switch (o->shown.type) {
    case MUONIUM_OPTION_NUMBER:
        memcpy(&number, at, sizeof number);
        environment = mu_fenv_enter(); /* a bound may be denormal */
        status = check_number(o, number);
        mu_fenv_leave(environment);
        return status;
    case MUONIUM_OPTION_INTEGER:
        return check_integer(o, at);
    case MUONIUM_OPTION_CHOICE:
        memcpy(&value, at, sizeof value);
        return value >= 0 && o->names(value) && o->allowed >> value & 1 ? MUONIUM_OK
                                                                        : fail_on_choice(o, value);
    case MUONIUM_OPTION_SWITCH:
    case MUONIUM_OPTION_NAME:
    case MUONIUM_OPTION_TABLE:
    case MUONIUM_OPTION_LIST:
    case MUONIUM_OPTION_CALLBACK:
        break;
    }
    return MUONIUM_OK;
}

muonium_status mu_check_range(const mu_option *option, const muonium_options *options)
{
    return check_field(option, mu_option_place(option, options));
}

muonium_status mu_check_ranges(const muonium_options *options)
{
    muonium_status status = MUONIUM_OK;
    for (int i = 0; status == MUONIUM_OK && i < OPTION_COUNT; i++) {
        status = mu_check_range(&table[i], options);
    }
    return status;
}

muonium_status mu_check_plan_ranges(const muonium_plan_options *options)
{
    muonium_status status = MUONIUM_OK;
    for (int i = 0; status == MUONIUM_OK && i < OPTION_COUNT; i++) {
        if (table[i].shown.plan) {
            status = check_field(&table[i], (const char *)options + table[i].shown.offset);
        }
    }
    return status;
}
