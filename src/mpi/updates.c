/*
 * updates.c: sends updated parts from their owners to all ranks, slab by slab. The parameters
 * travel in their own type. Under half_updates their changes travel, rounded to bf16, and the
 * owner applies the rounded changes as all other ranks do.
 */
#include "mpi/distributed.h"

#include <string.h>

#include "base/half.h"

static const char what[] = "returning updates";

static bool by_change(const muonium_mpi *d, size_t part)
{
    const mu_parameter *p = d->description->parameters[d->plan->parts[part].piece.parameter];
    return d->options.half_updates && p->tensor.dtype == MUONIUM_F32;
}

/* The values of a run of one of our parts before the step. `before` holds our parts one after
 * the other, as sum_memory does. */
static float *before_of(const muonium_mpi *d, const mu_span *run)
{
    return d->before + (d->sums[run->index] - d->sum_memory) + run->first;
}

static void pack_changes(const muonium_mpi *d, const mu_span *run, uint16_t *to)
{
    float after[MU_PIECE];
    const float *before = before_of(d, run);
    for (size_t done = 0; done < run->count;) {
        mu_span some = *run;
        some.first += done;
        some.count = run->count - done < MU_PIECE ? run->count - done : MU_PIECE;
        mu_pack_data(d, &some, MUONIUM_F32, after);
        for (size_t i = 0; i < some.count; i++) {
            to[done + i] = mu_bf16_from_f32(after[i] - before[done + i]);
        }
        done += some.count;
    }
}

static void pack_updates(const muonium_mpi *d, size_t round, char *to)
{
    size_t from, end, origin;
    mu_span run;
    mu_round_range(&d->updates, round, d->rank, &from, &end);
    origin = from;
    while (mu_next_span(d, &d->updates, d->rank, origin, &from, end, &run)) {
        if (by_change(d, run.part)) {
            pack_changes(d, &run, (uint16_t *)(void *)(to + run.bytes));
        } else {
            mu_pack_data(d, &run, mu_wire_type(d, run.part, false), to + run.bytes);
        }
    }
}

static void unpack_slab(const muonium_mpi *d, size_t round, int owner, const char *from_bytes)
{
    size_t from, end, origin;
    mu_span run;
    mu_round_range(&d->updates, round, owner, &from, &end);
    origin = from;
    while (mu_next_span(d, &d->updates, owner, origin, &from, end, &run)) {
        const void *values = from_bytes + run.bytes;
        if (by_change(d, run.part)) {
            mu_add_change(d, &run, values, owner == d->rank ? before_of(d, &run) : NULL);
        } else if (owner != d->rank) {
            mu_unpack_data(d, &run, mu_wire_type(d, run.part, false), values);
        }
    }
}

static muonium_status start_updates(muonium_mpi *d, size_t round)
{
    mu_window *w = &d->windows[round % MU_WINDOWS];
    size_t from, to, at = 0;
    for (int r = 0; r < d->ranks; r++) {
        mu_round_range(&d->updates, round, r, &from, &to);
        w->receive_counts[r] = (int)(to - from);
        w->receive_at[r] = (int)at;
        at += to - from;
    }
    pack_updates(d, round, w->send);
    w->round = round;
    return mu_mpi_ok(d,
                     MPI_Iallgatherv(w->send, w->receive_counts[d->rank], MPI_BYTE, w->receive,
                                     w->receive_counts, w->receive_at, MPI_BYTE, d->comm,
                                     &w->request),
                     what);
}

typedef struct unpacking {
    const muonium_mpi *d;
    const mu_window *w;
} unpacking;

static void unpack_task(void *context, size_t index, unsigned worker)
{
    const unpacking *u = context;
    (void)worker;
    unpack_slab(u->d, u->w->round, (int)index, u->w->receive + u->w->receive_at[index]);
}

muonium_status mu_return_updates(muonium_mpi *d)
{
    muonium_status status = MUONIUM_OK;
    size_t started = 0;
    for (size_t done = 0; status == MUONIUM_OK && done < d->updates.rounds; done++) {
        while (status == MUONIUM_OK && started < d->updates.rounds && started - done < MU_WINDOWS) {
            status = start_updates(d, started++);
        }
        mu_window *w = &d->windows[done % MU_WINDOWS];
        if (status == MUONIUM_OK) {
            status = mu_wait(d, &w->request, what);
        }
        if (status == MUONIUM_OK) {
            unpacking u = {d, w};
            mu_pool_run(unpack_task, &u, (size_t)d->ranks, mu_pool_workers());
        }
    }
    return status;
}
