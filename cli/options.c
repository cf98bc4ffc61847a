/*
 * options.c: strict parsing of a command line by its table.
 *
 * The command never calls setlocale, so strtod and printf use a decimal point
 * whatever the user's locale is.
 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "text.h"

typedef struct table {
    const char *command;
    const option *options;
    size_t count;
} table;

bool parse_integer(const char *text, long long *result)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == 0 || digits[strspn(digits, "0123456789")] != 0) {
        return false;
    }
    errno = 0;
    *result = strtoll(text, NULL, 10);
    return errno == 0;
}

bool parse_number(const char *text, double *result)
{
    static const char digits[] = "0123456789";
    const char *at = text + (*text == '-' || *text == '+');
    size_t whole = strspn(at, digits), fraction = 0;
    bool nonzero = strspn(at, "0") != whole;
    at += whole;
    if (*at == '.') {
        at++;
        fraction = strspn(at, digits);
        nonzero = nonzero || strspn(at, "0") < fraction;
        at += fraction;
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '-' || *at == '+';
        size_t exponent = strspn(at, digits);
        if (exponent == 0) {
            return false;
        }
        at += exponent;
    }
    *result = strtod(text, NULL);
    return *at == 0 && isfinite(*result) && (*result != 0 || !nonzero);
}

const char *option_choice(const option *entry, int index)
{
    static const char *const switches[] = {"off", "on"};
    if (entry->choices != NULL) {
        return entry->choices[index];
    }
    if (entry->choice_name != NULL) {
        return entry->choice_name(index);
    }
    if (entry->setting == NULL || entry->type != OPTION_CHOICE) {
        return NULL;
    }
    return entry->setting->type != MUONIUM_OPTION_SWITCH
               ? muonium_option_choice(entry->setting, index)
           : index < 2 ? switches[index]
                       : NULL;
}

static const char *choice_candidate(const void *context, size_t index)
{
    return option_choice(context, (int)index);
}

static const char *name_candidate(const void *context, size_t index)
{
    const table *t = context;
    return index < t->count ? t->options[index].name : index == t->count ? "help" : NULL;
}

/* Print the mistake and, if a name is close, the name; returns false. */
static bool wrong_choice(const char *command, const option *entry, const char *text)
{
    char names[512] = "";
    const char *name;
    for (int i = 0; (name = option_choice(entry, i)) != NULL; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", name);
    }
    const char *near = text_nearest(text, choice_candidate, entry);
    message_usage(command, "--%s is '%s': it must be one of %s%s%s%s", entry->name, text, names,
                  near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                  near != NULL ? "'?" : "");
    return false;
}

static bool set_value(const char *command, const option *entry, const char *text,
                      option_value *value)
{
    long long integer;
    switch (entry->type) {
    case OPTION_FLAG:
        break;
    case OPTION_INTEGER:
        if (!parse_integer(text, &integer) || integer < entry->least || integer > entry->most) {
            message_usage(command, "--%s is '%s': it must be a whole number from %d to %d",
                          entry->name, text, entry->least, entry->most);
            return false;
        }
        value->integer = (int)integer;
        break;
    case OPTION_NUMBER:
        if (!parse_number(text, &value->number)) {
            message_usage(command,
                          "--%s is '%s': it must be a finite decimal number such as 0.02 or 1e-3",
                          entry->name, text);
            return false;
        }
        break;
    case OPTION_CHOICE:
        for (int i = 0; option_choice(entry, i) != NULL; i++) {
            if (strcmp(text, option_choice(entry, i)) == 0) {
                value->choice = i;
            }
        }
        if (value->choice < 0) {
            return wrong_choice(command, entry, text);
        }
        break;
    case OPTION_TEXT:
    case OPTION_LIST:
    case OPTION_FILE:
        if (*text == 0) {
            message_usage(command, "--%s is empty: it needs a %s", entry->name, entry->placeholder);
            return false;
        }
        if (entry->type == OPTION_LIST) {
            if (value->listed == OPTION_LIST_MOST) {
                message_usage(command, "--%s is given more than %d times", entry->name,
                              OPTION_LIST_MOST);
                return false;
            }
            value->list[value->listed++] = text;
        }
        break;
    }
    value->text = text;
    return true;
}

/* The option that an argument such as "--steps=8" or "-n8" names; NULL, after a
 * message, if there is none. *inlined points at the value within the argument,
 * or is NULL. */
static const option *find_option(const table *t, const char *argument, const char **inlined)
{
    *inlined = NULL;
    if (argument[1] != '-') {
        for (size_t i = 0; i < t->count; i++) {
            if (t->options[i].letter == argument[1]) {
                *inlined = argument[2] != 0 ? argument + 2 : NULL;
                return &t->options[i];
            }
        }
        message_usage(t->command, "unknown option '%s'", argument);
        return NULL;
    }
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    for (size_t i = 0; i < t->count; i++) {
        if (strlen(t->options[i].name) == length &&
            strncmp(t->options[i].name, name, length) == 0) {
            *inlined = name[length] == '=' ? name + length + 1 : NULL;
            return &t->options[i];
        }
    }
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(length < 60 ? length : 60), name);
    const char *near = text_nearest(typed, name_candidate, t);
    message_usage(t->command, "unknown option '--%s'%s%s%s", typed,
                  near != NULL ? "; did you mean '--" : "", near != NULL ? near : "",
                  near != NULL ? "'?" : "");
    return NULL;
}

/* Take the option at argv[*at], and its value, which may be the next one. */
static bool take_option(const table *t, int argc, char **argv, int *at, option_value *values)
{
    const char *text;
    const option *entry = find_option(t, argv[*at], &text);
    if (entry == NULL) {
        return false;
    }
    option_value *value = &values[entry - t->options];
    if (value->given && entry->type != OPTION_LIST) {
        message_usage(t->command, "--%s is given twice: give it once", entry->name);
        return false;
    }
    value->given = true;
    if (entry->type == OPTION_FLAG) {
        if (text != NULL) {
            message_usage(t->command, "--%s takes no value, but '%s' gives it one", entry->name,
                          argv[*at]);
            return false;
        }
        return true;
    }
    if (text == NULL) {
        const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
        if (next == NULL || strncmp(next, "--", 2) == 0) {
            message_usage(t->command, "--%s needs a value: --%s=%s", entry->name, entry->name,
                          entry->placeholder);
            return false;
        }
        text = next;
        *at += 1;
    }
    value->choice = -1;
    return set_value(t->command, entry, text, value);
}

size_t options_count(const option *options, size_t room)
{
    size_t count = 0;
    while (count < room && options[count].name != NULL) {
        count++;
    }
    return count;
}

bool options_parse(const char *command, const option *options, size_t count, int argc, char **argv,
                   option_value *value, arguments *out)
{
    table t = {command, options, count};
    *out = (arguments){.value = value, .operand = argv};
    for (size_t i = 0; i < count; i++) {
        value[i] = (option_value){.choice = -1};
        if (options[i].fallback != NULL &&
            !set_value(command, &options[i], options[i].fallback, &value[i])) {
            return false;
        }
    }
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        if (only_operands || argument[0] != '-' || argument[1] == 0) {
            out->operand[out->operands++] = argv[i];
        } else if (strcmp(argument, "--") == 0) {
            only_operands = true;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            out->help = true;
            return true;
        } else if (!take_option(&t, argc, argv, &i, value)) {
            return false;
        }
    }
    return true;
}

bool options_agree(const char *command, const option *options, const option_value *value,
                   const option_clash *clashes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (value[clashes[i].option].given && value[clashes[i].without].given) {
            message_usage(command, "--%s has no effect with --%s: leave one out",
                          options[clashes[i].without].name, options[clashes[i].option].name);
            return false;
        }
    }
    return true;
}
