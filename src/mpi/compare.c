/*
 * compare.c: checks that all ranks have the same configuration. It is described in lines: the
 * options of this library, those of each group, each parameter, the plan. Rank 0 broadcasts
 * the hashes of its lines. The first line that differs on any rank is then exchanged as text,
 * so that all ranks report the same error.
 */
#include "mpi/distributed.h"

#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 3072 };

static const char what[] = "comparing parameters and options";

/* Lines: 0 this library's options, then groups, then parameters, then the plan. */
typedef struct lines {
    size_t groups, parameters;
} lines;

static lines count_lines(const muonium_mpi *d)
{
    return (lines){d->description->last_group->number + 1, d->description->count};
}

static void write_own_options(const muonium_mpi *d, char text[LINE])
{
    const muonium_mpi_options *o = &d->options;
    snprintf(text, LINE,
             "sum=%d half_gradients=%d half_updates=%d max_norm=%a deadline=%a bucket_bytes=%zu "
             "chunk_bytes=%zu plan.flops=%a plan.bandwidth=%a plan.split=%d",
             o->sum, o->half_gradients, o->half_updates, o->max_norm, o->deadline, o->bucket_bytes,
             o->chunk_bytes, o->plan.flops, o->plan.bandwidth, o->plan.split);
}

static bool write_group(const muonium_mpi *d, size_t index, char text[LINE])
{
    const muonium_group *g = d->description->groups;
    mu_text options = {0};
    for (size_t i = 0; i < index; i++) {
        g = g->next;
    }
    bool added = mu_add_options(&options, &g->options);
    if (added) {
        snprintf(text, LINE, "%.*s", (int)options.count, options.bytes);
    }
    mu_text_release(&options);
    return added;
}

static void write_parameter(const muonium_mpi *d, size_t index, char text[LINE])
{
    const mu_parameter *p = d->description->parameters[index];
    const muonium_tensor *t = &p->tensor;
    mu_quoted name = mu_quote(p->name);
    size_t used =
        (size_t)snprintf(text, LINE, "%s %s shape", name.text, muonium_dtype_name(t->dtype));
    for (size_t i = 0; i < t->ndim; i++) {
        used += (size_t)snprintf(text + used, LINE - used, " %zu", t->shape[i]);
    }
    used += (size_t)snprintf(text + used, LINE - used,
                             " gradients %s route %s group %zu layout %d axes %x/%x blocks %zu",
                             muonium_dtype_name(p->grad_dtype), p->muon ? "muon" : "adam",
                             p->group->number, (int)t->layout, (unsigned)t->out_axes,
                             (unsigned)t->in_axes, p->matrices.blocks);
    for (size_t i = 0; i < t->row_split_count && used + 24 < LINE; i++) {
        used += (size_t)snprintf(text + used, LINE - used, " %zu", t->row_splits[i]);
    }
}

static muonium_status write_line(const muonium_mpi *d, const lines *l, size_t index,
                                 char text[LINE])
{
    memset(text, 0, LINE);
    if (index == 0) {
        write_own_options(d, text);
    } else if (index <= l->groups) {
        if (!write_group(d, index - 1, text)) {
            return mu_state_no_memory();
        }
    } else if (index <= l->groups + l->parameters) {
        write_parameter(d, index - 1 - l->groups, text);
    } else {
        snprintf(text, LINE, "plan=%016" PRIx64 " version=%s", d->plan->info.hash,
                 muonium_version());
    }
    return MUONIUM_OK;
}

/* ---- the message ---- */

typedef struct difference {
    char key[64], theirs[96], ours[96];
    bool found;
} difference;

static void keep_first(void *context, const char *key, const char *saved, size_t saved_length,
                       const char *current, size_t current_length)
{
    difference *d = context;
    if (d->found) {
        return;
    }
    d->found = true;
    snprintf(d->key, sizeof d->key, "%s", key);
    snprintf(d->theirs, sizeof d->theirs, "%.*s", (int)(saved_length < 90 ? saved_length : 90),
             saved_length > 0 ? saved : "");
    snprintf(d->ours, sizeof d->ours, "%.*s", (int)(current_length < 90 ? current_length : 90),
             current_length > 0 ? current : "");
}

static muonium_status tell(const lines *l, size_t index, const char *zero, const char *other,
                           int rank)
{
    difference found = {.found = false};
    if (index <= l->groups) {
        char where[48] = "of muonium_mpi_options";
        mu_compare_options(zero, other, keep_first, &found);
        if (index > 0) {
            snprintf(where, sizeof where, "of group %zu", index - 1);
        }
        return mu_fail(MUONIUM_INVALID,
                       "%s %s is %s on rank 0 and %s on rank %d: all ranks must have the same",
                       found.key, where, found.theirs, found.ours, rank);
    }
    if (index <= l->groups + l->parameters) {
        return mu_fail(MUONIUM_INVALID,
                       "parameter %zu is %.200s on rank 0 and %.200s on rank %d: all ranks must "
                       "have the same",
                       index - 1 - l->groups, zero, other, rank);
    }
    return mu_fail(MUONIUM_INVALID,
                   "ranks 0 and %d plan differently (%.60s, %.60s): they run different versions, "
                   "or on processors of different kinds; set MUONIUM_CPU to what all have",
                   rank, zero, other);
}

static muonium_status exchange_line(muonium_mpi *d, const lines *l, size_t index, int rank)
{
    char *texts = mu_alloc_zeroed(2 * LINE);
    muonium_status status = texts ? write_line(d, l, index, texts + (d->rank == rank ? LINE : 0))
                                  : mu_fail(MUONIUM_NO_MEMORY, "no memory for two lines");
    status = mu_agree(d, status, what);
    if (status == MUONIUM_OK) {
        status = mu_broadcast(d, texts, LINE, 0, what);
    }
    if (status == MUONIUM_OK) {
        status = mu_broadcast(d, texts + LINE, LINE, rank, what);
    }
    if (status == MUONIUM_OK) {
        status = tell(l, index, texts, texts + LINE, rank);
    }
    mu_release(d, texts);
    return status;
}

/* ---- comparing ---- */

static muonium_status compare_counts(muonium_mpi *d, const lines *l)
{
    uint64_t *counts = d->counts, zero[2];
    int64_t rank;
    counts[0] = l->groups;
    counts[1] = l->parameters;
    muonium_status status = mu_broadcast(d, counts, sizeof d->counts, 0, what);
    memcpy(zero, counts, sizeof zero);
    if (status == MUONIUM_OK) {
        bool same = zero[0] == l->groups && zero[1] == l->parameters;
        status = mu_smallest(d, same ? d->ranks : d->rank, &rank, what);
    }
    if (status != MUONIUM_OK || rank == d->ranks) {
        return status;
    }
    counts[0] = l->groups;
    counts[1] = l->parameters;
    status = mu_broadcast(d, counts, sizeof d->counts, (int)rank, what);
    return status != MUONIUM_OK
               ? status
               : mu_fail(MUONIUM_INVALID,
                         "rank 0 has %llu parameters in %llu groups, rank %d %llu in %llu: all "
                         "ranks must add the same",
                         (unsigned long long)zero[1], (unsigned long long)zero[0], (int)rank,
                         (unsigned long long)counts[1], (unsigned long long)counts[0]);
}

static muonium_status find_difference(muonium_mpi *d, const lines *l, uint64_t *own, uint64_t *zero,
                                      size_t count)
{
    int64_t first = INT64_MAX;
    muonium_status status = mu_broadcast(d, zero, count * sizeof *zero, 0, what);
    for (size_t i = count; status == MUONIUM_OK && i-- > 0;) {
        first = own[i] != zero[i] ? (int64_t)i * d->ranks + d->rank : first;
    }
    if (status == MUONIUM_OK) {
        status = mu_smallest(d, first, &first, what);
    }
    if (status != MUONIUM_OK || first == INT64_MAX) {
        return status;
    }
    return exchange_line(d, l, (size_t)(first / d->ranks), (int)(first % d->ranks));
}

muonium_status mu_compare_ranks(muonium_mpi *d)
{
    lines l = count_lines(d);
    size_t count = l.groups + l.parameters + 2;
    muonium_status status = compare_counts(d, &l);
    if (status != MUONIUM_OK) {
        return status;
    }
    uint64_t *own = mu_alloc(count * sizeof *own), *zero = mu_alloc(count * sizeof *zero);
    char *text = mu_alloc(LINE);
    if (!own || !zero || !text) {
        status = mu_fail(MUONIUM_NO_MEMORY, "no memory to compare %zu lines", count);
    }
    for (size_t i = 0; status == MUONIUM_OK && i < count; i++) {
        status = write_line(d, &l, i, text);
        own[i] = zero[i] = status == MUONIUM_OK ? mu_hash_text(text) : 0;
    }
    status = mu_agree(d, status, what);
    if (status == MUONIUM_OK) {
        status = find_difference(d, &l, own, zero, count);
    }
    mu_free(own);
    mu_release(d, zero);
    mu_free(text);
    return status;
}

/* FNV-1a. Options other than rates cannot have changed since the ranks were compared. */
uint64_t mu_hash_rates(const muonium_mpi *d)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const muonium_group *g = d->description->groups; g; g = g->next) {
        const muonium_options *o = &g->options;
        const double rates[] = {o->lr, o->adam_lr, o->adam_lr_scale, o->weight_decay, o->momentum};
        unsigned char bytes[sizeof rates];
        memcpy(bytes, rates, sizeof rates);
        for (size_t i = 0; i < sizeof bytes; i++) {
            hash = (hash ^ bytes[i]) * 0x100000001b3u;
        }
    }
    return hash;
}
