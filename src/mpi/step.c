/*
 * step.c: the distributed step. Parameters and state change only after the verdict. All errors
 * but a missing rank are found before.
 */
#include "mpi/distributed.h"
#include "optimizer/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static muonium_status check(const muonium_mpi *d)
{
    return d ? mu_usable(d) : mu_fail(MUONIUM_INVALID, "distributed is NULL");
}

/* The first and last round that carry the gradient of a part. */
static void rounds_of(const muonium_mpi *d, size_t part, size_t *first, size_t *last)
{
    size_t bytes = sizeof(uint32_t) +
                   d->plan->parts[part].elements * muonium_dtype_size(mu_wire_type(d, part, true));
    *first = d->grad_at[part] / d->gradients.slab;
    *last = (d->grad_at[part] + bytes - 1) / d->gradients.slab;
}

muonium_status muonium_mpi_begin(muonium_mpi *d)
{
    muonium_status status = check(d);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (d->begun) {
        return mu_fail(MUONIUM_INVALID,
                       "a step is in progress: call muonium_mpi_finish before the next begin");
    }
    memset(d->ready, 0, d->description->count * sizeof *d->ready);
    memset(d->pending, 0, d->gradients.rounds * sizeof *d->pending);
    for (size_t i = 0; i < d->plan->count; i++) {
        size_t first, last;
        rounds_of(d, i, &first, &last);
        for (size_t round = first; round <= last; round++) {
            d->pending[round]++;
        }
    }
    d->next_round = d->done_rounds = 0;
    d->begun = true;
    return MUONIUM_OK;
}

static void mark_ready(muonium_mpi *d, size_t parameter)
{
    for (size_t i = d->first_part[parameter]; i < d->first_part[parameter + 1]; i++) {
        size_t first, last;
        rounds_of(d, i, &first, &last);
        for (size_t round = first; !d->ready[parameter] && round <= last; round++) {
            d->pending[round]--;
        }
    }
    d->ready[parameter] = true;
}

static muonium_status check_begun(const muonium_mpi *d)
{
    return d->begun ? MUONIUM_OK
                    : mu_fail(MUONIUM_INVALID, "no step is in progress: call muonium_mpi_begin");
}

static muonium_status move(muonium_mpi *d, bool all)
{
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = mu_move_gradients(d, all);
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_mpi_ready(muonium_mpi *d, size_t parameter)
{
    muonium_status status = check(d);
    if (status == MUONIUM_OK) {
        status = check_begun(d);
    }
    if (status == MUONIUM_OK && parameter >= d->description->count) {
        status = mu_fail(MUONIUM_INVALID, "parameter is %zu: there are %zu, counted from 0",
                         parameter, d->description->count);
    }
    if (status == MUONIUM_OK && d->ready[parameter]) {
        status = mu_fail(MUONIUM_INVALID, "the gradient of %s was announced before",
                         d->description->parameters[parameter]->name);
    }
    if (status == MUONIUM_OK) {
        mark_ready(d, parameter);
        status = move(d, false);
    }
    return status;
}

muonium_status muonium_mpi_progress(muonium_mpi *d)
{
    muonium_status status = check(d);
    return status == MUONIUM_OK && d->begun ? move(d, false) : status;
}

/* ---- the owner's part ---- */

/* Copy the rates of the description, which may have changed since the last step. */
static void follow_rates(muonium_mpi *d)
{
    const muonium_group *from = d->description->groups;
    for (size_t g = 0; d->own && from; g++, from = from->next) {
        muonium_options *to = &d->own_groups[g]->options;
        to->lr = from->options.lr;
        to->adam_lr = from->options.adam_lr;
        to->adam_lr_scale = from->options.adam_lr_scale;
        to->weight_decay = from->options.weight_decay;
        to->momentum = from->options.momentum;
    }
}

/* Copy the addresses of the description, which may have changed too. */
static void follow_places(muonium_mpi *d)
{
    for (size_t i = 0; i < d->own_count; i++) {
        const mu_part *part = &d->plan->parts[d->own_parts[i]];
        size_t parameter = part->piece.parameter;
        mu_part_tensor as;
        mu_tensor_of_part(d->description->parameters[parameter], part, &as);
        d->own_data[i] = as.tensor.data;
        d->own_grads[i] = d->active[parameter] ? d->sums[i] : NULL;
        d->idle += !d->active[parameter];
    }
}

static void keep_before(muonium_mpi *d)
{
    for (size_t i = 0; d->before && i < d->own_count; i++) {
        size_t part = d->own_parts[i];
        mu_span all = {.part = part, .count = d->plan->parts[part].elements};
        mu_pack_data(d, &all, MUONIUM_F32, d->before + (d->sums[i] - d->sum_memory));
    }
}

static void count_step(muonium_mpi *d)
{
    for (size_t i = 0; i < d->description->count; i++) {
        mu_parameter *p = d->description->parameters[i];
        p->steps += d->active[i];
        p->has_master = p->has_master || (d->active[i] && mu_keeps_master(p));
        d->skipped += !d->active[i];
    }
    d->description->counters.steps++;
}

static muonium_status finish_step(muonium_mpi *d)
{
    for (size_t i = 0; i < d->description->count; i++) {
        mark_ready(d, i);
    }
    muonium_status status = mu_move_gradients(d, true);
    if (status == MUONIUM_OK) {
        follow_rates(d);
        status = mu_reach_verdict(d);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    follow_places(d);
    if (d->own) {
        status = mu_step_prepare_at(d->own, d->own_data, d->own_grads, d->own_count);
    }
    status = mu_agree(d, status, "stepping"); /* no rank has changed anything yet */
    if (status != MUONIUM_OK) {
        return status;
    }
    keep_before(d);
    if (d->own) {
        mu_step_commit(d->own);
    }
    if (d->broken) { /* a sum over columns failed */
        return mu_usable(d);
    }
    count_step(d);
    return mu_return_updates(d);
}

muonium_status muonium_mpi_finish(muonium_mpi *d)
{
    muonium_status status = check(d);
    if (status == MUONIUM_OK) {
        status = check_begun(d);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_fenv environment = mu_fenv_enter();
    status = finish_step(d);
    mu_fenv_leave(environment);
    d->begun = false;
    return status;
}

muonium_status muonium_mpi_step(muonium_mpi *d)
{
    muonium_status status = muonium_mpi_begin(d);
    return status == MUONIUM_OK ? muonium_mpi_finish(d) : status;
}

/* ---- reports ---- */

double muonium_mpi_grad_norm(const muonium_mpi *d)
{
    return d ? d->norm : 0;
}

const muonium_mpi_plan *muonium_mpi_plan_of(const muonium_mpi *d)
{
    return d ? d->plan : NULL;
}

muonium_status muonium_mpi_report(const muonium_mpi *d, muonium_log *line, void *context)
{
    char text[512];
    if (!d || !line) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", d ? "line" : "distributed");
    }
    const muonium_mpi_plan_info *info = &d->plan->info;
    muonium_mpi *marked = (muonium_mpi *)(uintptr_t)d;
    const char *outer = d->user;
    marked->user = __func__;
    snprintf(text, sizeof text,
             "%d ranks, %zu pieces, %zu matrices cut by columns, %" PRIu64
             " elements, max/mean %.4f, plan %016" PRIx64,
             info->ranks, info->pieces, info->split, info->elements, info->largest / info->mean,
             info->hash);
    line(context, text);
    for (int r = 0; r < info->ranks; r++) {
        const muonium_mpi_share *load = &d->plan->loads[r];
        snprintf(text, sizeof text,
                 "rank %d: %zu pieces, %" PRIu64 " elements, %" PRIu64
                 " bytes of state, %.4g s; sends %" PRIu64 " bytes of gradients, receives %" PRIu64
                 " of updates",
                 r, load->pieces, load->elements, load->state_bytes, load->seconds,
                 load->gradient_bytes, load->update_bytes);
        line(context, text);
    }
    for (size_t i = 0; i < d->plan->count; i++) {
        const mu_part *part = &d->plan->parts[i];
        const mu_parameter *p = d->description->parameters[part->piece.parameter];
        snprintf(text, sizeof text, "%.200s [%zu, +%zu]: %s, rank %d, %.4g s", p->name,
                 part->piece.first, part->elements, p->muon ? "Muon" : "AdamW", part->piece.owner,
                 part->piece.seconds);
        line(context, text);
    }
    marked->user = outer;
    return MUONIUM_OK;
}

muonium_status muonium_mpi_count_sized(muonium_mpi *d, muonium_counters *counters, size_t size)
{
    enum { SUMMED = 4 };
    static const char what[] = "adding up counters";
    muonium_status status = check(d);
    if (status != MUONIUM_OK || !counters) {
        return counters ? status : mu_fail(MUONIUM_INVALID, "counters is NULL");
    }
    muonium_counters own = {0}, all;
    status = d->own ? muonium_count(d->own, &own) : MUONIUM_OK;
    status = mu_agree(d, status, what);
    if (status == MUONIUM_OK) {
        status = muonium_count(d->description, &all); /* the same status on all ranks */
    }
    uint64_t *sums = mu_alloc(2 * SUMMED * sizeof *sums);
    status = mu_agree(d, sums ? status : mu_fail(MUONIUM_NO_MEMORY, "no memory for sums"), what);
    if (status == MUONIUM_OK) {
        MPI_Request request;
        int64_t least;
        sums[0] = own.matrices;
        sums[1] = own.rescued;
        sums[2] = own.zero;
        sums[3] = own.skipped - d->idle;
        status = mu_mpi_ok(
            d,
            MPI_Iallreduce(sums, sums + SUMMED, SUMMED, MPI_UINT64_T, MPI_SUM, d->comm, &request),
            what);
        status = status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
        status = status == MUONIUM_OK ? mu_smallest(d, -(int64_t)own.scratch_bytes, &least, what)
                                      : status;
        if (status == MUONIUM_OK) {
            all.matrices += sums[SUMMED];
            all.rescued += sums[SUMMED + 1];
            all.zero += sums[SUMMED + 2];
            all.skipped += sums[SUMMED + 3] + d->skipped;
            all.scratch_bytes = (size_t)-least;
            mu_sized_write(counters, size, &all, sizeof all);
        }
    }
    mu_release(d, sums);
    return status;
}
