/*
 * options_text.c: options as text, for people who look into a checkpoint and for loading,
 * which tells what has changed. One table of the fields serves writing and comparing.
 *
 * The fields that a user tunes come first; the rest is what makes a recipe, and the
 * recipe of equal rest gives the text its name.
 */
#include "checkpoint/state.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

/* ---- the fields ---- */

typedef enum field_type {
    NUMBER,  /* double */
    INTEGER, /* int */
    SIZE,    /* size_t */
    SEED,    /* uint64_t */
    SWITCH,  /* bool */
    CHOICE,  /* an enumeration */
    NAME,    /* string, may be NULL */
    TABLE,   /* of coefficients */
    PATTERNS
} field_type;

typedef struct field {
    const char *name;
    field_type type;
    size_t offset;
    const char *const *choices; /* in the order of the enumeration */
} field;

static const char *const momentum_forms[] = {"lerp", "sum", "ema_corrected"};
static const char *const nesterov_forms[] = {"auto", "lerp", "sum"};
static const char *const scales[] = {"original", "match_rms_adamw", "rms_to_rms", "none"};
static const char *const decays[] = {"decoupled", "cautious", "independent"};
static const char *const normalizations[] = {"frobenius", "schatten", "aol", "spectral", "none"};
static const char *const eps_modes[] = {"none", "clamp", "add", "optax"};
static const char *const dtypes[] = {"f32", "f64", "bf16", "f16"};
static const char *const forms[] = {"auto", "standard", "gram", "direct", "quintic"};
static const char *const roundings[] = {"stored", "torch", "keller", "motif", "fp16"};
static const char *const policies[] = {"error", "skip", "propagate"};
static const char *const adam_kinds[] = {"adamw", "nadamw", "by_nesterov"};
static const char *const nadamw_forms[] = {"lookahead", "timm", "optax"};
static const char *const routes[] = {"auto", "muon", "adam"};
static const char *const routings[] = {"muonium", "timm",      "torch", "wrapper",
                                       "keller",  "moonlight", "motif"};
static const char *const layouts[] = {"auto", "flatten", "spatial", "experts", "fan"};

#define FIELD(name, type) #name, type, offsetof(muonium_options, name), NULL
#define CHOICE_FIELD(name, choices) #name, CHOICE, offsetof(muonium_options, name), choices
#define PLAN_FIELD(name, type) #name, type, offsetof(muonium_options, plan.name), NULL
#define PLAN_CHOICE_FIELD(name, choices)                                                           \
#name, CHOICE, offsetof(muonium_options, plan.name), choices

static const field tuned_fields[] = {
    {FIELD(lr, NUMBER)},
    {FIELD(weight_decay, NUMBER)},
    {FIELD(momentum, NUMBER)},
    {FIELD(adam_lr, NUMBER)},
    {FIELD(adam_lr_scale, NUMBER)},
    {FIELD(adam_weight_decay, NUMBER)},
    {CHOICE_FIELD(state_dtype, dtypes)},
    {FIELD(master, SWITCH)},
    {FIELD(stochastic_rounding, SWITCH)},
    {FIELD(seed, SEED)},
    {PLAN_CHOICE_FIELD(nonfinite, policies)},
    {PLAN_CHOICE_FIELD(form, forms)},
    {PLAN_FIELD(direct_set, NAME)},
};

static const field recipe_fields[] = {
    {CHOICE_FIELD(momentum_form, momentum_forms)},
    {FIELD(nesterov, SWITCH)},
    {CHOICE_FIELD(nesterov_form, nesterov_forms)},
    {CHOICE_FIELD(scale, scales)},
    {FIELD(scale_factor, NUMBER)},
    {CHOICE_FIELD(decay, decays)},
    {FIELD(spatial_normalize, SWITCH)},
    {FIELD(maximize, SWITCH)},
    {FIELD(normuon, SWITCH)},
    {FIELD(normuon_beta2, NUMBER)},
    {FIELD(normuon_eps, NUMBER)},
    {PLAN_FIELD(steps, INTEGER)},
    {PLAN_FIELD(table, TABLE)},
    {PLAN_FIELD(coefficients, NAME)},
    {PLAN_FIELD(lower, NUMBER)},
    {PLAN_FIELD(safety, NUMBER)},
    {PLAN_FIELD(cushion, NUMBER)},
    {PLAN_FIELD(generated_rows, INTEGER)},
    {PLAN_CHOICE_FIELD(normalization, normalizations)},
    {PLAN_CHOICE_FIELD(eps_mode, eps_modes)},
    {PLAN_FIELD(eps, NUMBER)},
    {PLAN_FIELD(safety_factor, NUMBER)},
    {PLAN_CHOICE_FIELD(precision, dtypes)},
    {PLAN_CHOICE_FIELD(rounding, roundings)},
    {CHOICE_FIELD(adam, adam_kinds)},
    {CHOICE_FIELD(nadamw_form, nadamw_forms)},
    {FIELD(adam_beta1, NUMBER)},
    {FIELD(adam_beta2, NUMBER)},
    {FIELD(adam_eps, NUMBER)},
    {FIELD(adam_eps_root, NUMBER)},
    {CHOICE_FIELD(route, routes)},
    {CHOICE_FIELD(routing, routings)},
    {FIELD(patterns, PATTERNS)},
    {FIELD(only_patterns, SWITCH)},
    {FIELD(split_fused, SWITCH)},
    {FIELD(min_dim, SIZE)},
    {FIELD(max_aspect, NUMBER)},
    {FIELD(only_2d, SWITCH)},
    {FIELD(kernels_in_out, SWITCH)},
    {CHOICE_FIELD(layout_3d, layouts)},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- numbers ---- */

/* Decimal points, whatever the host has set. Returns what to go back to. */
static locale_t enter_c_locale(locale_t *c)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(*c);
}

static void leave_c_locale(locale_t c, locale_t before)
{
    uselocale(before);
    if (c) {
        freelocale(c);
    }
}

enum { NUMBER_BYTES = 32 };

/* The shortest of 15 to 17 digits that comes back equal. */
static void format_number(double value, char text[NUMBER_BYTES])
{
    locale_t c, before = enter_c_locale(&c);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_BYTES, "%.*g", digits, value);
        if (!(strtod(text, NULL) != value)) {
            break;
        }
    }
    leave_c_locale(c, before);
}

static bool parse_number(const char *text, size_t length, double *value)
{
    char copy[NUMBER_BYTES], *end;
    if (length == 0 || length >= sizeof copy || memchr("+-.0123456789", text[0], 13) == NULL) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    locale_t c, before = enter_c_locale(&c);
    *value = strtod(copy, &end);
    leave_c_locale(c, before);
    return *end == '\0';
}

/* ---- writing ---- */

static bool add(mu_text *text, const char *bytes, size_t count)
{
    if (!mu_text_reserve(text, count)) {
        return false;
    }
    mu_text_add(text, bytes, count);
    return true;
}

static bool add_string(mu_text *text, const char *string)
{
    return add(text, string, strlen(string));
}

static bool add_number(mu_text *text, double value)
{
    char digits[NUMBER_BYTES];
    format_number(value, digits);
    return add_string(text, digits);
}

static bool add_integer(mu_text *text, uint64_t value)
{
    if (!mu_text_reserve(text, 20)) {
        return false;
    }
    mu_text_add_integer(text, value);
    return true;
}

bool mu_add_escaped(mu_text *text, const char *string)
{
    static const char hexadecimal[] = "0123456789abcdef";
    for (; *string != '\0'; string++) {
        unsigned char c = (unsigned char)*string;
        char escape[3] = {'%', hexadecimal[c >> 4], hexadecimal[c & 15]};
        bool plain = c > ' ' && c < 0x7f && c != '%' && c != ',';
        if (!add(text, plain ? string : escape, plain ? 1 : sizeof escape)) {
            return false;
        }
    }
    return true;
}

static bool add_table(mu_text *text, const muonium_options *options)
{
    for (size_t i = 0; i < 3 * options->plan.table_rows; i++) {
        const char *separator = i == 0 ? "" : i % 3 == 0 ? ";" : ",";
        if (!add_string(text, separator) || !add_number(text, options->plan.table[i / 3][i % 3])) {
            return false;
        }
    }
    return true;
}

static bool add_patterns(mu_text *text, const muonium_options *options)
{
    for (size_t i = 0; i < options->pattern_count; i++) {
        if (!add_string(text, i > 0 ? "," : "") || !mu_add_escaped(text, options->patterns[i])) {
            return false;
        }
    }
    return true;
}

static bool add_value(mu_text *text, const field *f, const muonium_options *options)
{
    union {
        double number;
        int integer;
        size_t size;
        uint64_t seed;
        bool on;
        const char *name;
    } value;
    const char *from = (const char *)options + f->offset;
    switch (f->type) {
    case NUMBER:
        memcpy(&value.number, from, sizeof value.number);
        return add_number(text, value.number);
    case INTEGER:
        memcpy(&value.integer, from, sizeof value.integer);
        return add_integer(text, (uint64_t)value.integer);
    case SIZE:
        memcpy(&value.size, from, sizeof value.size);
        return add_integer(text, value.size);
    case SEED:
        memcpy(&value.seed, from, sizeof value.seed);
        return add_integer(text, value.seed);
    case SWITCH:
        memcpy(&value.on, from, sizeof value.on);
        return add_string(text, value.on ? "yes" : "no");
    case CHOICE:
        memcpy(&value.integer, from, sizeof value.integer);
        return add_string(text, f->choices[value.integer]);
    case NAME:
        memcpy(&value.name, from, sizeof value.name);
        return mu_add_escaped(text, value.name);
    case TABLE:
        return add_table(text, options);
    case PATTERNS:
        return add_patterns(text, options);
    }
    return false;
}

/* Pointers that are not set mean a default, and have no text. */
static bool is_absent(const field *f, const muonium_options *options)
{
    const char *name = NULL;
    if (f->type == NAME) {
        memcpy(&name, (const char *)options + f->offset, sizeof name);
    }
    return (f->type == NAME && name == NULL) || (f->type == TABLE && options->plan.table == NULL) ||
           (f->type == PATTERNS && options->patterns == NULL);
}

static bool add_fields(mu_text *text, const field *fields, size_t count,
                       const muonium_options *options)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_absent(&fields[i], options) &&
            !(add_string(text, " ") && add_string(text, fields[i].name) && add_string(text, "=") &&
              add_value(text, &fields[i], options))) {
            return false;
        }
    }
    return true;
}

/* The recipe whose fields, but for the tuned ones, have the text `fields`. */
static bool find_recipe(const mu_text *fields, const char **recipe)
{
    mu_text other = {0};
    bool good = true;
    *recipe = "none";
    for (int i = 0; good && muonium_recipe_name(i) != NULL; i++) {
        muonium_options options;
        muonium_options_init(&options, muonium_recipe_name(i));
        other.count = 0;
        good = add_fields(&other, recipe_fields, COUNT(recipe_fields), &options);
        if (good && other.count == fields->count &&
            memcmp(other.bytes, fields->bytes, other.count) == 0) {
            *recipe = muonium_recipe_name(i);
            break;
        }
    }
    mu_text_release(&other);
    return good;
}

bool mu_add_options(mu_text *text, const muonium_options *options)
{
    mu_text fields = {0};
    const char *recipe;
    bool good = add_fields(&fields, recipe_fields, COUNT(recipe_fields), options) &&
                find_recipe(&fields, &recipe) && add_string(text, "recipe=") &&
                add_string(text, recipe) &&
                add_fields(text, tuned_fields, COUNT(tuned_fields), options) &&
                add(text, fields.bytes, fields.count);
    mu_text_release(&fields);
    return good;
}

/* ---- reading ---- */

const char *mu_find_value(const char *text, const char *key, size_t *length)
{
    size_t key_length = strlen(key);
    while (*text != '\0') {
        size_t token = strcspn(text, " ");
        if (token > key_length && text[key_length] == '=' && memcmp(text, key, key_length) == 0) {
            *length = token - key_length - 1;
            return text + key_length + 1;
        }
        text += token + (text[token] == ' ' ? 1 : 0);
    }
    return NULL;
}

muonium_status mu_read_momentum(const char *text, const char *label, muonium_momentum_form *form,
                                double *momentum)
{
    size_t length;
    const char *name = mu_find_value(text, "momentum_form", &length);
    size_t found = COUNT(momentum_forms);
    for (size_t i = 0; name != NULL && i < COUNT(momentum_forms); i++) {
        if (strlen(momentum_forms[i]) == length && memcmp(momentum_forms[i], name, length) == 0) {
            found = i;
        }
    }
    const char *number = mu_find_value(text, "momentum", &length);
    double value = -1;
    if (found == COUNT(momentum_forms) || number == NULL || !parse_number(number, length, &value) ||
        !(value >= 0 && value < 1)) {
        return mu_fail(MUONIUM_FORMAT,
                       "%s: a group's options tell no %s: it is damaged or was made by hand", label,
                       found == COUNT(momentum_forms) ? "momentum_form that is known"
                                                      : "momentum from 0 to below 1");
    }
    *form = (muonium_momentum_form)found;
    *momentum = value;
    return MUONIUM_OK;
}

/* The key of the token at `text`, NUL-terminated; false if it is none that we write. */
static bool copy_key(const char *text, size_t token, char key[64])
{
    const char *equals = memchr(text, '=', token);
    size_t length = equals == NULL ? 64 : (size_t)(equals - text);
    if (length >= 64) {
        return false;
    }
    memcpy(key, text, length);
    key[length] = '\0';
    return true;
}

/* What a saved text without a key means: files of versions that did not have the option. */
static const char *value_before(const char *key, const char *saved)
{
    size_t length;
    if (strcmp(key, "routing") == 0) {
        return "muonium";
    }
    if (strcmp(key, "only_patterns") == 0) {
        return mu_find_value(saved, "patterns", &length) != NULL ? "yes" : "no";
    }
    return strcmp(key, "split_fused") == 0 ? "no" : "";
}

/* Report the keys of the saved text that the current one has differently, or those of the
 * current one that the saved one lacks. */
static void compare(const char *text, const char *other, bool text_is_saved,
                    mu_report_difference *report, void *context)
{
    while (*text != '\0') {
        size_t token = strcspn(text, " ");
        char key[64];
        if (copy_key(text, token, key)) {
            size_t key_length = strlen(key), length = token - key_length - 1, other_length = 0;
            const char *value = text + key_length + 1;
            const char *there = mu_find_value(other, key, &other_length);
            bool equal =
                there != NULL && other_length == length && memcmp(value, there, length) == 0;
            if (text_is_saved && !equal) {
                report(context, key, value, length, there ? there : "", other_length);
            } else if (!text_is_saved && there == NULL) {
                const char *before = value_before(key, other);
                if (strlen(before) != length || memcmp(before, value, length) != 0) {
                    report(context, key, before, strlen(before), value, length);
                }
            }
        }
        text += token + (text[token] == ' ' ? 1 : 0);
    }
}

void mu_compare_options(const char *saved, const char *current, mu_report_difference *report,
                        void *context)
{
    compare(saved, current, true, report, context);
    compare(current, saved, false, report, context);
}
