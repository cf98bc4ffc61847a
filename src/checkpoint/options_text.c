/*
 * options_text.c: options as text, for people who look into a checkpoint and for loading,
 * which tells what has changed. The fields and their text are those of src/options.
 *
 * The fields that a user tunes come first; the rest is what makes a recipe, and the
 * recipe of equal rest gives the text its name.
 */
#include "checkpoint/state.h"

#include <string.h>

#include "options/options.h"

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

bool mu_add_escaped(mu_text *text, const char *string)
{
    size_t length = mu_escape(string, NULL, 0);
    if (!mu_text_reserve(text, length + 1)) {
        return false;
    }
    mu_escape(string, text->bytes + text->count, length + 1);
    text->count += length;
    return true;
}

/* The options of a kind that have a value, as " name=value" each. */
static bool add_fields(mu_text *text, mu_saved kind, const muonium_options *options)
{
    const mu_option *o;
    for (int i = 0; (o = mu_option_at(i)) != NULL; i++) {
        if (o->saved != kind || !mu_option_is_set(o, options)) {
            continue;
        }
        size_t length = mu_option_text(o, options, NULL, 0);
        if (!add_string(text, " ") || !add_string(text, o->shown.name) || !add_string(text, "=") ||
            !mu_text_reserve(text, length + 1)) {
            return false;
        }
        mu_option_text(o, options, text->bytes + text->count, length + 1);
        text->count += length;
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
        good = add_fields(&other, MU_RECIPE, &options);
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
    bool good = add_fields(&fields, MU_RECIPE, options) && find_recipe(&fields, &recipe) &&
                add_string(text, "recipe=") && add_string(text, recipe) &&
                add_fields(text, MU_TUNED, options) && add(text, fields.bytes, fields.count);
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
    const char *known;
    int found = 0;
    while ((known = muonium_enum_name("muonium_momentum_form", found)) != NULL &&
           !(name != NULL && strlen(known) == length && memcmp(known, name, length) == 0)) {
        found++;
    }
    const char *number = mu_find_value(text, "momentum", &length);
    double value = -1;
    if (known == NULL || number == NULL || !mu_parse_number(number, length, &value) ||
        !(value >= 0 && value < 1)) {
        return mu_fail(
            MUONIUM_FORMAT, "%s: a group's options tell no %s: it is damaged or was made by hand",
            label, known == NULL ? "momentum_form that is known" : "momentum from 0 to below 1");
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

/* What a saved text without a key means. A file of a version that did not have the option
 * means its default; but that patterns once replaced the names of the rule, and f32 was the only
 * precision. */
static void value_before(const char *key, const char *saved, char before[64])
{
    size_t length;
    const mu_option *option = mu_option_named(key);
    before[0] = '\0';
    if (strcmp(key, "only_patterns") == 0) {
        strcpy(before, mu_find_value(saved, "patterns", &length) != NULL ? "yes" : "no");
    } else if (strcmp(key, "precision") == 0) {
        strcpy(before, "f32");
    } else if (option != NULL) {
        mu_option_text(option, &mu_default_options, before, 64);
    }
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
                char before[64];
                value_before(key, other, before);
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
