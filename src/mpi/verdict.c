/*
 * verdict.c: which parameters are stepped. Owners examine their sums of gradients and send their
 * findings to all ranks, which draw the same conclusions. Sums of squares are formed by units
 * that do not depend on the number of ranks, and added in order.
 */
#include "mpi/distributed.h"
#include "optimizer/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char what[] = "agreeing on the gradients";

/* ---- the findings of owners ---- */

/* Sixteen partial sums, so that the compiler vectorises; added in order. */
static double squares_of(const float *x, size_t n)
{
    enum { SUMS = 16 };
    double sums[SUMS] = {0}, total = 0;
    size_t whole = n / SUMS * SUMS;
    for (size_t i = 0; i < whole; i += SUMS) {
        for (size_t k = 0; k < SUMS; k++) {
            sums[k] += (double)x[i + k] * (double)x[i + k];
        }
    }
    for (size_t i = whole; i < n; i++) {
        sums[i - whole] += (double)x[i] * (double)x[i];
    }
    for (size_t k = 0; k < SUMS; k++) {
        total += sums[k];
    }
    return total;
}

/* The sum of squares of one unit of one of our parts. */
static double unit_squares(const mu_part *part, const float *sum, size_t unit)
{
    if (part->rows == 0) {
        return squares_of(sum, part->elements);
    }
    bool tall = part->rows > part->cols;
    size_t m = tall ? part->cols : part->rows, n = part->col_count;
    size_t first = unit * part->block, cols = n - first < part->block ? n - first : part->block;
    double total = 0;
    if (tall) {
        return squares_of(sum + first * m, cols * m);
    }
    for (size_t row = 0; row < m; row++) {
        total += squares_of(sum + row * n + first, cols);
    }
    return total;
}

/* Check whether a finite sum of gradients makes the momentum of a part overflow. `total` is the
 * sum of squares of the gradients. */
static void examine_momentum(const muonium_mpi *d, size_t index, double total, mu_finding *f)
{
    mu_parameter p = *d->own->parameters[index];
    bool moderate;
    p.tensor.grad = d->sums[index];
    if (!p.muon || p.group->options.plan.nonfinite == MUONIUM_NONFINITE_PROPAGATE ||
        (p.moderate && total < ldexp(1, 2 * MU_MODERATE_EXPONENT))) {
        return;
    }
    mu_bad_value bad = mu_examine(d->own->schedule, &p, 0, p.elements, &moderate);
    if (bad.what) {
        f->flags |= MU_BAD | MU_OVERFLOW;
        f->bad_at = bad.index;
        f->bad_value = bad.value;
    }
}

static void examine_part(void *context, size_t index, unsigned worker)
{
    const muonium_mpi *d = context;
    size_t part = d->own_parts[index];
    mu_finding *f = &d->found[d->found_at[part]];
    const float *sum = d->sums[index];
    (void)worker;
    *f = (mu_finding){.flags = 0};
    double *squares = &d->squares[d->squares_at[part]], total = 0;
    for (int r = 0; r < d->ranks; r++) {
        f->flags |= d->present[index * (size_t)d->ranks + (size_t)r] ? MU_PRESENT : 0;
    }
    if (!(f->flags & MU_PRESENT)) {
        return;
    }
    for (size_t unit = 0; unit < mu_units_of_part(&d->plan->parts[part]); unit++) {
        squares[unit] = unit_squares(&d->plan->parts[part], sum, unit);
        total += squares[unit];
    }
    if (isfinite(total)) { /* sums of f32 squares do not overflow in double */
        examine_momentum(d, index, total, f);
        return;
    }
    f->flags |= MU_BAD;
    while (isfinite(sum[f->bad_at])) {
        f->bad_at++;
    }
    f->bad_value = sum[f->bad_at];
}

/* Complete an array of which every rank has a part, as the counts of the first window say. */
static muonium_status gather_from_all(muonium_mpi *d, void *array, MPI_Datatype type)
{
    mu_window *w = &d->windows[0];
    muonium_status status =
        mu_mpi_ok(d,
                  MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, array, w->receive_counts,
                                  w->receive_at, type, d->comm, &w->request),
                  what);
    return status == MUONIUM_OK ? mu_wait(d, &w->request, what) : status;
}

static muonium_status gather_findings(muonium_mpi *d)
{
    mu_window *w = &d->windows[0]; /* idle: its counts serve as scratch */
    size_t at = 0;
    for (int r = 0; r < d->ranks; r++) {
        size_t bytes = (1 + d->plan->loads[r].pieces) * sizeof *d->found;
        if (r == d->rank) {
            d->found[at / sizeof *d->found] = (mu_finding){.bad_at = mu_hash_rates(d)};
        }
        w->receive_counts[r] = (int)bytes;
        w->receive_at[r] = (int)at;
        at += bytes;
    }
    return gather_from_all(d, d->found, MPI_BYTE);
}

/* ---- concluding ---- */

/* The index of an element of a part in its parameter, as "3, 14". */
static void write_place(const mu_parameter *p, const mu_part *part, size_t element, char *text,
                        size_t room)
{
    const muonium_mpi_piece *piece = &part->piece;
    size_t index = piece->first + element / piece->run * piece->stride + element % piece->run;
    size_t rest = p->elements, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < p->tensor.ndim && used < room; i++) {
        rest /= p->tensor.shape[i];
        int wrote = snprintf(text + used, room - used, "%s%zu", i ? ", " : "", index / rest);
        used += wrote > 0 ? (size_t)wrote : 0;
        index %= rest;
    }
}

static muonium_status refuse_gradient(const muonium_mpi *d, size_t index)
{
    const mu_part *part = &d->plan->parts[index];
    const mu_parameter *p = d->description->parameters[part->piece.parameter];
    const mu_finding *f = &d->found[d->found_at[index]];
    char place[MUONIUM_MAX_DIMS * 24];
    write_place(p, part, f->bad_at, place, sizeof place);
    bool overflow = f->flags & MU_OVERFLOW;
    return mu_fail(MUONIUM_NON_FINITE,
                   "%s of %s, %s over ranks, %s %g at (%s): nothing was changed; %sset nonfinite "
                   "to skip or propagate to go on",
                   overflow ? "momentum" : "grad", p->name, d->options.sum ? "summed" : "averaged",
                   overflow ? "would become" : "is", (double)f->bad_value, place,
                   overflow ? "scale gradients down, or " : "");
}

/* Fail, naming the difference, unless all ranks have the rates of rank 0. */
static muonium_status compare_rates(muonium_mpi *d)
{
    size_t at = 0;
    for (int r = 0; r < d->ranks; r++) {
        if (d->found[at].bad_at != d->found[0].bad_at) {
            muonium_status status = mu_compare_ranks(d);
            return status != MUONIUM_OK
                       ? status
                       : mu_fail(MUONIUM_INVALID, "rates differ between ranks 0 and %d", r);
        }
        at += 1 + d->plan->loads[r].pieces;
    }
    return MUONIUM_OK;
}

static muonium_status judge_parameters(muonium_mpi *d)
{
    const muonium_optimizer *o = d->description;
    memset(d->active, 0, o->count * sizeof *d->active);
    for (size_t i = 0; i < d->plan->count; i++) {
        bool present = d->found[d->found_at[i]].flags & MU_PRESENT;
        d->active[d->plan->parts[i].piece.parameter] |= present;
    }
    for (size_t i = 0; i < d->plan->count; i++) {
        size_t parameter = d->plan->parts[i].piece.parameter;
        muonium_nonfinite policy = o->parameters[parameter]->group->options.plan.nonfinite;
        if (!(d->found[d->found_at[i]].flags & MU_BAD)) {
            continue;
        }
        if (policy == MUONIUM_NONFINITE_ERROR) {
            return refuse_gradient(d, i);
        }
        if (policy == MUONIUM_NONFINITE_SKIP) {
            d->active[parameter] = false;
        }
    }
    return MUONIUM_OK;
}

/* ---- clipping ---- */

static muonium_status gather_squares(muonium_mpi *d)
{
    mu_window *w = &d->windows[0];
    for (int r = 0; r < d->ranks; r++) {
        w->receive_counts[r] = 0;
    }
    for (size_t i = 0; i < d->plan->count; i++) {
        w->receive_counts[d->plan->parts[i].piece.owner] +=
            (int)mu_units_of_part(&d->plan->parts[i]);
    }
    for (int r = 0, at = 0; r < d->ranks; r++) {
        w->receive_at[r] = at;
        at += w->receive_counts[r];
    }
    return gather_from_all(d, d->squares, MPI_DOUBLE);
}

static muonium_status find_norm(muonium_mpi *d, double *norm)
{
    double sum = 0;
    muonium_status status = gather_squares(d);
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t i = 0; i < d->plan->count; i++) {
        const double *squares = &d->squares[d->squares_at[i]];
        size_t units = mu_units_of_part(&d->plan->parts[i]);
        for (size_t k = 0; d->active[d->plan->parts[i].piece.parameter] && k < units; k++) {
            sum += squares[k];
        }
    }
    *norm = sqrt(sum);
    if (!isfinite(*norm)) {
        return mu_fail(MUONIUM_NON_FINITE, "the norm of the gradients is %g: nothing was changed",
                       *norm);
    }
    return MUONIUM_OK;
}

typedef struct clipping {
    const muonium_mpi *d;
    double factor;
} clipping;

static void clip_sums(void *context, size_t index, unsigned worker)
{
    const clipping *c = context;
    size_t part = c->d->own_parts[index];
    (void)worker;
    if (c->d->active[c->d->plan->parts[part].piece.parameter]) {
        c->d->rows->scale(c->d->sums[index], c->d->plan->parts[part].elements, c->factor);
    }
}

muonium_status mu_reach_verdict(muonium_mpi *d)
{
    double norm = 0;
    mu_pool_run(examine_part, d, d->own_count, mu_pool_workers());
    muonium_status status = gather_findings(d);
    if (status == MUONIUM_OK) {
        status = compare_rates(d);
    }
    if (status == MUONIUM_OK) {
        status = judge_parameters(d);
    }
    if (status == MUONIUM_OK && d->options.max_norm > 0) {
        status = find_norm(d, &norm);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    d->norm = norm;
    if (norm > d->options.max_norm && d->options.max_norm > 0) {
        clipping c = {d, d->options.max_norm / norm};
        mu_pool_run(clip_sums, &c, d->own_count, mu_pool_workers());
    }
    return MUONIUM_OK;
}
