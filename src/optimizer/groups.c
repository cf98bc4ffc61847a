/*
 * groups.c: groups of parameters with common options, and the rates that can change later.
 */
#include <string.h>

#include "optimizer/optimizer.h"

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *keep_text(char **room, const char *text)
{
    size_t bytes = text_bytes(text);
    char *kept = text ? memcpy(*room, text, bytes) : NULL;
    *room += bytes;
    return kept;
}

/* A group with copies of the strings, tables and patterns of the options. */
muonium_status mu_make_group(const muonium_options *given, muonium_group **made)
{
    muonium_options options;
    muonium_status status = mu_read_options(given, &options);
    if (status != MUONIUM_OK) {
        return status;
    }
    size_t pointers = options.patterns ? options.pattern_count * sizeof(char *) : 0;
    size_t bytes =
        pointers + text_bytes(options.plan.coefficients) + text_bytes(options.plan.direct_set);
    for (size_t i = 0; options.patterns && i < options.pattern_count; i++) {
        bytes += text_bytes(options.patterns[i]);
    }
    muonium_group *group = mu_alloc_zeroed(sizeof *group);
    char *strings = mu_alloc(bytes);
    if (!group || !strings) {
        mu_free(group);
        mu_free(strings);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a group of parameters");
    }
    group->options = options;
    group->strings = strings;
    char *room = strings + pointers;
    if (options.patterns) {
        const char **patterns = (const char **)(void *)strings;
        for (size_t i = 0; i < options.pattern_count; i++) {
            patterns[i] = keep_text(&room, options.patterns[i]);
        }
        group->options.patterns = patterns;
    }
    group->options.plan.coefficients = keep_text(&room, options.plan.coefficients);
    group->options.plan.direct_set = keep_text(&room, options.plan.direct_set);
    if (options.plan.table) {
        /* No iteration uses rows beyond MUONIUM_MAX_STEPS. */
        size_t rows = options.plan.table_rows < MUONIUM_MAX_STEPS ? options.plan.table_rows
                                                                  : MUONIUM_MAX_STEPS;
        memcpy(group->table, options.plan.table, rows * sizeof group->table[0]);
        group->options.plan.table = (const double(*)[3])group->table;
        group->options.plan.table_rows = rows;
    }
    *made = group;
    return MUONIUM_OK;
}

void mu_free_group(muonium_group *group)
{
    if (group) {
        mu_free(group->strings);
        mu_free(group);
    }
}

static mu_extent address_of(const muonium_group *group)
{
    return (mu_extent){(uintptr_t)group, (uintptr_t)group + 1};
}

void mu_enter_group(muonium_optimizer *optimizer, muonium_group *group)
{
    optimizer->last_group = group;
    group->place.extent = address_of(group);
    mu_interval_insert(&optimizer->group_places, &group->place);
}

static muonium_status add_group(muonium_optimizer *optimizer, const muonium_options *options,
                                muonium_group **group)
{
    muonium_group *made;
    muonium_status status = group ? mu_check_unheld(optimizer, "muonium_add_group")
                                  : mu_fail(MUONIUM_INVALID, "group is NULL");
    if (status == MUONIUM_OK) {
        status = mu_make_group(options, &made);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    made->number = optimizer->last_group->number + 1;
    optimizer->last_group->next = made;
    mu_enter_group(optimizer, made);
    *group = made;
    return MUONIUM_OK;
}

muonium_status muonium_add_group(muonium_optimizer *optimizer, const muonium_options *options,
                                 muonium_group **group)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, add_group(optimizer, options, group))
                                : status;
}

/* Compares addresses alone: a group of another optimizer may have been freed. */
bool mu_owns_group(const muonium_optimizer *optimizer, const muonium_group *group)
{
    return mu_interval_find(optimizer->group_places, address_of(group)) != NULL;
}

/* ---- rates ---- */

typedef muonium_status setter(muonium_options *options, double value);

/* Change one group or all, if the changed options are valid for each. */
static muonium_status change_groups(muonium_optimizer *optimizer, muonium_group *group, setter *set,
                                    double value)
{
    if (group && !mu_owns_group(optimizer, group)) {
        return mu_fail(MUONIUM_INVALID, "the group belongs to another optimizer");
    }
    for (int apply = 0; apply < 2; apply++) {
        for (muonium_group *g = group ? group : optimizer->groups; g; g = group ? NULL : g->next) {
            muonium_options changed = g->options;
            muonium_status status = set(&changed, value);
            if (status == MUONIUM_OK) {
                status = mu_check_options(&changed);
            }
            if (status != MUONIUM_OK) {
                return status;
            }
            if (apply) {
                g->options = changed;
            }
        }
    }
    return MUONIUM_OK;
}

static muonium_status change(muonium_optimizer *optimizer, const char *call, muonium_group *group,
                             setter *set, double value)
{
    muonium_status status = mu_enter(optimizer, call);
    return status == MUONIUM_OK ? mu_leave(optimizer, change_groups(optimizer, group, set, value))
                                : status;
}

/* An absolute adam_lr becomes a multiple of lr, so that it follows lr even through 0. */
static muonium_status set_lr(muonium_options *options, double value)
{
    if (options->adam_lr >= 0) {
        if (options->lr == 0) {
            return mu_fail(MUONIUM_INVALID,
                           "lr is 0 while adam_lr is %g: a new lr cannot scale it; use "
                           "adam_lr_scale instead of adam_lr",
                           options->adam_lr);
        }
        options->adam_lr_scale = options->adam_lr / options->lr;
        options->adam_lr = -1;
    }
    options->lr = value;
    return MUONIUM_OK;
}

static muonium_status set_weight_decay(muonium_options *options, double value)
{
    options->weight_decay = value;
    return MUONIUM_OK;
}

static muonium_status set_momentum(muonium_options *options, double value)
{
    options->momentum = value;
    return MUONIUM_OK;
}

muonium_status muonium_set_lr(muonium_optimizer *optimizer, muonium_group *group, double lr)
{
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = change(optimizer, __func__, group, set_lr, lr);
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_set_weight_decay(muonium_optimizer *optimizer, muonium_group *group,
                                        double weight_decay)
{
    return change(optimizer, __func__, group, set_weight_decay, weight_decay);
}

muonium_status muonium_set_momentum(muonium_optimizer *optimizer, muonium_group *group,
                                    double momentum)
{
    return change(optimizer, __func__, group, set_momentum, momentum);
}
