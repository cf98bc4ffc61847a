/*
 * warnings.c: warnings about routes that look wrong, each with a remedy, before the first step.
 *
 * Only routes that the rules chose are questioned, never those that the caller gave. Each kind
 * of warning is one line that names the first parameter and counts the others.
 */
#include "optimizer/optimizer.h"

#include "optimizer/names.h"

#include <stdio.h>
#include <string.h>

static bool was_chosen(const mu_parameter *p)
{
    return p->tensor.route == MUONIUM_ROUTE_AUTO && p->group->options.route == MUONIUM_ROUTE_AUTO;
}

/* ---- vocabularies ---- */

/* The smallest vocabularies of subwords have about 4096 entries. Layers of transformers are at
 * most 8 times as long as wide, 16 times with gate and up in one; and a model has many layers
 * of a shape, but one embedding and one head. So a matrix looks like a vocabulary if it is
 * alone or with one other of its shape, has a side of 4096 or more, is at least 4 times as
 * long as wide, and either twice as long as every other matrix or more than 16 times as long
 * as wide. */
enum { VOCABULARY = 4096, MOST_ALIKE = 2, TALL = 4, VERY_TALL = 16 };

typedef struct sides {
    size_t small, large;
} sides;

static bool is_one_matrix(const mu_parameter *p)
{
    return p->muon && p->tensor.ndim == 2 && p->matrices.count == 1;
}

static sides sides_of(const mu_parameter *p)
{
    const size_t rows = p->tensor.shape[0], cols = p->tensor.shape[1];
    return rows < cols ? (sides){rows, cols} : (sides){cols, rows};
}

/* Of all single matrices under Muon: the two longest of different shapes. */
typedef struct longest {
    sides first;
    size_t first_count;
    size_t second; /* the longest side of all other shapes */
} longest;

static longest find_longest(const muonium_optimizer *optimizer)
{
    longest l = {{0, 0}, 0, 0};
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        if (!is_one_matrix(p)) {
            continue;
        }
        const sides s = sides_of(p);
        if (s.large == l.first.large && s.small == l.first.small) {
            l.first_count++;
        } else if (s.large > l.first.large) {
            l.second = l.first.large;
            l.first = s;
            l.first_count = 1;
        } else if (s.large > l.second) {
            l.second = s.large;
        }
    }
    return l;
}

static size_t count_alike(const muonium_optimizer *optimizer, sides s)
{
    size_t count = 0;
    for (size_t i = 0; i < optimizer->count && count <= MOST_ALIKE; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        if (is_one_matrix(p)) {
            const sides other = sides_of(p);
            count += other.small == s.small && other.large == s.large;
        }
    }
    return count;
}

static bool is_vocabulary(const muonium_optimizer *optimizer, const mu_parameter *p,
                          const longest *l)
{
    if (!is_one_matrix(p) || !was_chosen(p) || mu_fusion_of(p->name, &p->tensor).kind != NULL) {
        return false;
    }
    const sides s = sides_of(p);
    if (s.large < VOCABULARY || s.large / s.small < TALL) {
        return false;
    }
    const bool is_first = s.large == l->first.large && s.small == l->first.small;
    return ((is_first && s.large / 2 >= l->second) || s.large / s.small >= VERY_TALL) &&
           count_alike(optimizer, s) <= MOST_ALIKE;
}

/* ---- the lines ---- */

/* The parameters of one warning: their number, and the first. */
typedef struct doubted {
    size_t count;
    const mu_parameter *first;
} doubted;

static void doubt(doubted *d, const mu_parameter *p)
{
    d->first = d->count == 0 ? p : d->first;
    d->count++;
}

/* The first name, shortened if it is long, and the number of others. */
static const char *who(const doubted *d, char text[160])
{
    enum { SHOWN = 100 };
    const bool cut = strlen(d->first->name) > SHOWN;
    int used = snprintf(text, 160, "%.*s%s", SHOWN, d->first->name, cut ? "..." : "");
    if (d->count > 1) {
        snprintf(text + used, 160 - (size_t)used, " and %zu more", d->count - 1);
    }
    return text;
}

static void describe_split(const muonium_fusion *fusion, char text[128])
{
    int used = snprintf(text, 128, "%s", fusion->columns ? "columns " : "rows ");
    for (size_t i = 0; i < fusion->count; i++) {
        used +=
            snprintf(text + used, 128 - (size_t)used, "%s%zu", i > 0 ? " + " : "", fusion->rows[i]);
    }
}

static bool is_fused_whole(const mu_parameter *p, muonium_fusion *fusion)
{
    *fusion = mu_fusion_of(p->name, &p->tensor);
    return p->muon && fusion->kind != NULL && p->matrices.blocks == 1;
}

void mu_warn(const muonium_optimizer *optimizer, muonium_log *line, void *context)
{
    char text[MU_WARNING_SIZE], name[160], split[128];
    const longest l = find_longest(optimizer);
    doubted vocabulary = {0, NULL}, unnamed = {0, NULL}, split_known = {0, NULL},
            split_unknown = {0, NULL};
    size_t muon = 0, chosen = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        muonium_fusion fusion;
        muon += p->muon;
        chosen += was_chosen(p);
        if (is_vocabulary(optimizer, p, &l)) {
            doubt(&vocabulary, p);
        }
        if (p->unnamed && p->muon && was_chosen(p) && mu_routes_by_name(&p->group->options)) {
            doubt(&unnamed, p);
        }
        if (is_fused_whole(p, &fusion)) {
            doubt(fusion.count > 0 ? &split_known : &split_unknown, p);
        }
    }
    if (unnamed.count > 0) {
        snprintf(text, sizeof text,
                 "%zu matri%s without a name get%s Muon: embeddings and output heads among them "
                 "cannot be recognised; give names, or the route of each parameter",
                 unnamed.count, unnamed.count == 1 ? "x" : "ces", unnamed.count == 1 ? "s" : "");
        line(context, text);
    }
    if (vocabulary.count > 0) {
        snprintf(text, sizeof text,
                 "%s (%zu x %zu) looks like an embedding or an output head, but gets Muon: send it "
                 "to AdamW by its route or a pattern, or confirm Muon by its route",
                 who(&vocabulary, name), vocabulary.first->tensor.shape[0],
                 vocabulary.first->tensor.shape[1]);
        line(context, text);
    }
    if (muon == 0 && chosen > 0) {
        snprintf(text, sizeof text,
                 "no parameter gets Muon, all %zu get AdamW (%.100s: %s): see the reasons, and set "
                 "routes, patterns or routing",
                 optimizer->count, optimizer->parameters[0]->name,
                 optimizer->parameters[0]->reason);
        line(context, text);
    }
    if (split_known.count > 0) {
        const muonium_fusion fusion =
            mu_fusion_of(split_known.first->name, &split_known.first->tensor);
        describe_split(&fusion, split);
        snprintf(text, sizeof text,
                 "%s: %s in one tensor, orthogonalised whole: split_fused, or --split, would split "
                 "it (%s), and so do row_splits",
                 who(&split_known, name), fusion.kind, split);
        line(context, text);
    }
    if (split_unknown.count > 0) {
        snprintf(text, sizeof text,
                 "%s: %s in one tensor, orthogonalised whole: name and shape do not tell how to "
                 "split it; give row_splits or heads",
                 who(&split_unknown, name),
                 mu_fusion_of(split_unknown.first->name, &split_unknown.first->tensor).kind);
        line(context, text);
    }
}

/* ---- asking for them ---- */

typedef struct asked {
    muonium_log *line;
    void *context;
} asked;

static void pass_on(void *context, const char *line)
{
    const asked *a = context;
    char text[MU_WARNING_SIZE];
    strcpy(text, line);
    mu_clean(text);
    const char *outer = mu_callback_begin("line");
    a->line(a->context, text);
    mu_callback_end(outer);
}

muonium_status muonium_warnings(const muonium_optimizer *optimizer, muonium_log *line,
                                void *context)
{
    if (optimizer != NULL && line == NULL) {
        return mu_fail(MUONIUM_INVALID, "line is NULL: pass a function that takes a warning");
    }
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    asked a = {line, context};
    mu_warn(optimizer, pass_on, &a);
    return mu_leave(optimizer, MUONIUM_OK);
}
