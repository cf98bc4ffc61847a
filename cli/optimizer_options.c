/*
 * optimizer_options.c: from the library's list of options to the command line, and from there
 * to muonium_options.
 */
#include "optimizer_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is not called as in the library, with dashes for underscores. */
static const struct spelling {
    const char *setting, *name;
    char letter;
    bool flag; /* given or not, instead of on or off */
} spellings[] = {
    {"steps", "steps", 'n', false},
    {"coefficients", "coefficients", 'c', false},
    {"normalization", "normalize", 0, false},
    {"patterns", "pattern", 0, false},
    {"only_patterns", "only-patterns", 0, true},
    {"split_fused", "split", 0, true},
};

/* --experts is layout_3d by two of its names. */
static const char *const experts[] = {"off", "on", NULL};
static const char *const layouts[] = {"flatten", "experts"};

enum { NAME_BYTES = 32, TEXT_BYTES = 160 };

/* A copy that lives on. Equal texts share one. */
static const char *kept(const char *text)
{
    static char copies[3 * SETTINGS_MOST][TEXT_BYTES];
    static size_t count;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(copies[i], text) == 0) {
            return copies[i];
        }
    }
    if (count == 3 * SETTINGS_MOST) {
        abort(); /* the library has more options than there is room for */
    }
    return strcpy(copies[count++], text);
}

/* The same with dashes, as options are written here. */
static const char *dashed(const char *text)
{
    char copy[TEXT_BYTES];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; (c = strchr(c, '_')) != NULL; *c = '-') {
    }
    return kept(copy);
}

static void set_range(option *entry, const muonium_option *setting)
{
    entry->type = OPTION_INTEGER;
    entry->placeholder = "N";
    entry->least = (int)setting->least;
    entry->most = setting->most < 2147483647 ? (int)setting->most : 2147483647;
}

static option entry_of(const muonium_option *setting)
{
    option entry = {.name = dashed(setting->name),
                    .help = dashed(setting->help),
                    .type = OPTION_CHOICE,
                    .placeholder = "NAME",
                    .setting = setting};
    if (setting->type == MUONIUM_OPTION_NUMBER) {
        entry.type = OPTION_NUMBER;
        entry.placeholder = "X";
    } else if (setting->type == MUONIUM_OPTION_INTEGER) {
        set_range(&entry, setting);
    } else if (setting->type == MUONIUM_OPTION_SWITCH) {
        entry.placeholder = "SWITCH";
    } else if (setting->type == MUONIUM_OPTION_LIST) {
        entry.type = OPTION_LIST;
    } else if (strcmp(setting->name, "layout_3d") == 0) {
        entry.name = "experts";
        entry.placeholder = "SWITCH";
        entry.choices = experts;
        entry.help = "3-D tensors hold one matrix per first index, or are flattened to one; by "
                     "default their names decide";
    }
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        if (strcmp(spellings[i].setting, setting->name) == 0) {
            entry.name = spellings[i].name;
            entry.letter = spellings[i].letter;
            entry.type = spellings[i].flag ? OPTION_FLAG : entry.type;
            entry.placeholder = spellings[i].flag ? NULL : entry.placeholder;
        }
    }
    return entry;
}

option setting_named(const char *name)
{
    char initial[NAME_BYTES];
    const muonium_option *setting = muonium_option_find(name);
    option entry = entry_of(setting);
    if (muonium_option_get(NULL, name, initial, sizeof initial) == MUONIUM_OK && initial[0] != 0) {
        entry.fallback = kept(initial);
    }
    return entry;
}

static bool is_offered(const muonium_option *setting)
{
    return setting->saved && setting->type != MUONIUM_OPTION_TABLE;
}

void settings_append(option *table)
{
    const muonium_option *setting;
    *table++ = (option){.name = "recipe",
                        .letter = 'r',
                        .type = OPTION_CHOICE,
                        .placeholder = "NAME",
                        .fallback = "muonium",
                        .choice_name = muonium_recipe_name,
                        .help = "implementation to reproduce; it sets every option that is not "
                                "given"};
    for (int i = 0; (setting = muonium_option_at(i)) != NULL; i++) {
        if (is_offered(setting)) {
            *table++ = entry_of(setting);
        }
    }
}

void settings_append_plan(option *table)
{
    const muonium_option *setting;
    for (int i = 0; (setting = muonium_option_at(i)) != NULL; i++) {
        if (is_offered(setting) && setting->plan) {
            *table++ = setting_named(setting->name);
        }
    }
}

const option_value *setting_value(const option *table, const option_value *value, const char *name)
{
    while (table->setting == NULL || strcmp(table->setting->name, name) != 0) {
        table++;
        value++;
    }
    return value;
}

static muonium_status set(const option *entry, const option_value *value, muonium_options *o)
{
    const char *text = entry->type == OPTION_FLAG  ? "yes"
                       : entry->choices == experts ? layouts[value->choice]
                                                   : value->text;
    if (entry->type == OPTION_LIST) {
        o->patterns = value->list;
        o->pattern_count = value->listed;
        return MUONIUM_OK;
    }
    return muonium_option_set(o, entry->setting->name, text);
}

muonium_status optimizer_options(const option *table, const option_value *value,
                                 muonium_options *options)
{
    const char *recipe = NULL;
    for (size_t i = 0; table[i].name != NULL; i++) {
        if (table[i].choice_name == muonium_recipe_name) {
            recipe = value[i].text;
        }
    }
    muonium_status status = muonium_options_init(options, recipe);
    for (size_t i = 0; status == MUONIUM_OK && table[i].name != NULL; i++) {
        if (table[i].setting != NULL && value[i].given) {
            status = set(&table[i], &value[i], options);
        }
    }
    return status;
}
