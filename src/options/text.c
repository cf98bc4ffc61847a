/*
 * text.c: one option as text, for checkpoints and for whoever knows options by name.
 */
#include "options/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- from a value ---- */

/* Text that may be longer than its place: what does not fit is counted all the same. */
typedef struct writer {
    char *text;
    size_t size, count;
} writer;

static void put(writer *w, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++, w->count++) {
        if (w->count + 1 < w->size) {
            w->text[w->count] = bytes[i];
        }
    }
}

static void put_string(writer *w, const char *string)
{
    put(w, string, strlen(string));
}

static void put_number(writer *w, double value)
{
    char digits[MU_NUMBER_BYTES];
    mu_format_number(value, digits);
    put_string(w, digits);
}

static void put_escaped(writer *w, const char *string)
{
    static const char hexadecimal[] = "0123456789abcdef";
    for (; *string != '\0'; string++) {
        unsigned char c = (unsigned char)*string;
        char escape[3] = {'%', hexadecimal[c >> 4], hexadecimal[c & 15]};
        bool plain = c > ' ' && c < 0x7f && c != '%' && c != ',';
        put(w, plain ? string : escape, plain ? 1 : sizeof escape);
    }
}

static size_t finish(writer *w)
{
    if (w->size > 0) {
        w->text[w->count < w->size ? w->count : w->size - 1] = '\0';
    }
    return w->count;
}

size_t mu_escape(const char *string, char *text, size_t size)
{
    writer w = {text, size, 0};
    put_escaped(&w, string);
    return finish(&w);
}

bool mu_option_is_set(const mu_option *option, const muonium_options *options)
{
    const char *pointer;
    switch (option->shown.type) {
    case MUONIUM_OPTION_NAME:
        memcpy(&pointer, mu_option_place(option, options), sizeof pointer);
        return pointer != NULL;
    case MUONIUM_OPTION_TABLE:
        return options->plan.table != NULL;
    case MUONIUM_OPTION_LIST:
        return options->patterns != NULL;
    case MUONIUM_OPTION_CALLBACK:
        return options->log != NULL;
    case MUONIUM_OPTION_NUMBER:
    case MUONIUM_OPTION_INTEGER:
    case MUONIUM_OPTION_SWITCH:
    case MUONIUM_OPTION_CHOICE:
        break;
    }
    return true;
}

static void put_integer(writer *w, const mu_option *option, const void *from)
{
    char digits[24];
    int number = 0;
    uint64_t size = 0;
    if (option->is_signed) {
        memcpy(&number, from, sizeof number);
        snprintf(digits, sizeof digits, "%d", number);
    } else {
        memcpy(&size, from, option->shown.size);
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
    }
    put_string(w, digits);
}

static void put_table(writer *w, const muonium_plan_options *plan)
{
    for (size_t i = 0; i < 3 * plan->table_rows; i++) {
        put_string(w, i == 0 ? "" : i % 3 == 0 ? ";" : ",");
        put_number(w, plan->table[i / 3][i % 3]);
    }
}

static void put_patterns(writer *w, const muonium_options *options)
{
    for (size_t i = 0; i < options->pattern_count; i++) {
        put_string(w, i > 0 ? "," : "");
        put_escaped(w, options->patterns[i]);
    }
}

size_t mu_option_text(const mu_option *option, const muonium_options *options, char *text,
                      size_t size)
{
    writer w = {text, size, 0};
    const void *from = mu_option_place(option, options);
    union {
        double number;
        int choice;
        bool on;
        const char *name;
    } value;
    if (!mu_option_is_set(option, options)) {
        return finish(&w);
    }
    switch (option->shown.type) {
    case MUONIUM_OPTION_NUMBER:
        memcpy(&value.number, from, sizeof value.number);
        put_number(&w, value.number);
        break;
    case MUONIUM_OPTION_INTEGER:
        put_integer(&w, option, from);
        break;
    case MUONIUM_OPTION_SWITCH:
        memcpy(&value.on, from, sizeof value.on);
        put_string(&w, value.on ? "yes" : "no");
        break;
    case MUONIUM_OPTION_CHOICE:
        memcpy(&value.choice, from, sizeof value.choice);
        const char *name = option->names(value.choice);
        put_string(&w, name ? name : "?");
        break;
    case MUONIUM_OPTION_NAME:
        memcpy(&value.name, from, sizeof value.name);
        put_escaped(&w, value.name);
        break;
    case MUONIUM_OPTION_TABLE:
        put_table(&w, &options->plan);
        break;
    case MUONIUM_OPTION_LIST:
        put_patterns(&w, options);
        break;
    case MUONIUM_OPTION_CALLBACK:
        put_string(&w, "set");
        break;
    }
    return finish(&w);
}

/* ---- to a value ---- */

/* Fails with all that a choice, a name or a switch may be. */
static muonium_status fail_on_text(const mu_option *option, const char *text)
{
    char names[512];
    writer w = {names, sizeof names, 0};
    const char *name;
    for (int i = 0; (name = muonium_option_choice(&option->shown, i)) != NULL; i++) {
        put_string(&w, i > 0 ? ", " : "");
        put_string(&w, name);
    }
    finish(&w);
    return mu_fail(MUONIUM_INVALID, "%s is \"%s\": use %s%s", option->shown.name, text,
                   option->names         ? "one of "
                   : option->shown.range ? option->shown.range
                                         : "yes or no",
                   names);
}

static muonium_status parse_double(const mu_option *option, const char *text, void *to)
{
    double value;
    if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0 || strcmp(text, "nan") == 0) {
        value = text[0] == 'n' ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
    } else if (strpbrk(text, "xX") || !mu_parse_number(text, strlen(text), &value)) {
        return fail_on_text(option, text);
    }
    memcpy(to, &value, sizeof value);
    return MUONIUM_OK;
}

static muonium_status parse_whole(const mu_option *option, const char *text, void *to)
{
    uint64_t value = 0, most = option->is_signed ? INT32_MAX : UINT64_MAX;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || value > (most - (uint64_t)(*c - '0')) / 10) {
            return fail_on_text(option, text);
        }
        value = 10 * value + (uint64_t)(*c - '0');
    }
    int number = (int)value;
    if (text[0] == '\0' || (option->shown.size < sizeof value && value > SIZE_MAX)) {
        return fail_on_text(option, text);
    }
    memcpy(to, option->is_signed ? (const void *)&number : (const void *)&value,
           option->shown.size);
    return MUONIUM_OK;
}

static muonium_status parse_switch(const mu_option *option, const char *text, void *to)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            bool on = i % 2 == 1;
            memcpy(to, &on, sizeof on);
            return MUONIUM_OK;
        }
    }
    return fail_on_text(option, text);
}

/* A choice by its name. A name is stored as a pointer to the library's own string. */
static muonium_status parse_name(const mu_option *option, const char *text, void *to)
{
    const char *name;
    bool is_choice = option->shown.type == MUONIUM_OPTION_CHOICE;
    for (int i = 0; (name = option->names(i)) != NULL; i++) {
        if (strcmp(name, text) == 0 && (!is_choice || option->allowed >> i & 1)) {
            memcpy(to, is_choice ? (const void *)&i : (const void *)&name, option->shown.size);
            return MUONIUM_OK;
        }
    }
    return fail_on_text(option, text);
}

#define PAIRED(type, first, second)                                                                \
    _Static_assert(offsetof(type, second) == offsetof(type, first) + sizeof(void *) &&             \
                       sizeof(size_t) == sizeof(void *),                                           \
                   "an option of two fields")
PAIRED(muonium_plan_options, table, table_rows);
PAIRED(muonium_options, patterns, pattern_count);
PAIRED(muonium_options, log, log_context);

/* Set what `options`, of this library's version, has under this name. */
static muonium_status parse(const mu_option *option, const char *text, muonium_options *options)
{
    void *to = mu_option_place(option, options);
    switch (option->shown.type) {
    case MUONIUM_OPTION_NUMBER:
        return parse_double(option, text, to);
    case MUONIUM_OPTION_INTEGER:
        return parse_whole(option, text, to);
    case MUONIUM_OPTION_SWITCH:
        return parse_switch(option, text, to);
    case MUONIUM_OPTION_CHOICE:
        return parse_name(option, text, to);
    case MUONIUM_OPTION_NAME:
    case MUONIUM_OPTION_TABLE:
    case MUONIUM_OPTION_LIST:
    case MUONIUM_OPTION_CALLBACK:
        break;
    }
    if (text[0] == '\0') {
        bool pair = option->shown.type != MUONIUM_OPTION_NAME;
        memset(to, 0, pair ? 2 * sizeof(void *) : sizeof(void *));
        return MUONIUM_OK;
    }
    return option->shown.type == MUONIUM_OPTION_NAME
               ? parse_name(option, text, to)
               : mu_fail(MUONIUM_INVALID,
                         "%s cannot be set from text, since it points to memory of the caller: "
                         "set its fields in the struct, or \"\" for none",
                         option->shown.name);
}

/* ---- public ---- */

static muonium_status find(const char *name, const mu_option **option)
{
    *option = mu_option_named(name);
    return *option
               ? MUONIUM_OK
               : mu_fail(MUONIUM_INVALID, "there is no option \"%s\": muonium_option_at lists them",
                         name ? name : "(null)");
}

muonium_status muonium_option_get(const muonium_options *options, const char *name, char *text,
                                  size_t size)
{
    const mu_option *option;
    muonium_options read;
    muonium_status status = find(name, &option);
    if (status == MUONIUM_OK) {
        status = mu_copy_options(options, &read);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    size_t length = mu_option_text(option, &read, NULL, 0);
    if (!text || length >= size) {
        return mu_fail(MUONIUM_INVALID, "the value of %s takes %zu bytes, text has %zu", name,
                       length + 1, text ? size : 0);
    }
    mu_option_text(option, &read, text, size);
    return MUONIUM_OK;
}

muonium_status muonium_option_set(muonium_options *options, const char *name, const char *text)
{
    const mu_option *option;
    muonium_options changed;
    if (!options || !text) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", options ? "text" : "options");
    }
    muonium_status status = find(name, &option);
    if (status == MUONIUM_OK) {
        status = mu_copy_options(options, &changed);
    }
    if (status == MUONIUM_OK) {
        status = parse(option, text, &changed);
    }
    if (status == MUONIUM_OK) {
        status = mu_check_range(option, &changed);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    /* A table would go before the name. */
    if (strcmp(name, "coefficients") == 0) {
        changed.plan.table = NULL;
        changed.plan.table_rows = 0;
    }
    return mu_return_options(option, &changed, options);
}
