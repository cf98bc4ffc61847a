/*
 * gradients.c: sends gradients to their owners, which sum them. Rounds start in order, each when
 * all of its gradients are ready, a few at a time. Owners sum in the order of ranks, in f32. A
 * rank without a gradient says so in the word before it, and nothing is added, not even zero.
 */
#include "mpi/distributed.h"

#include <string.h>

#include "optimizer/schedule.h"

static const char what[] = "reducing gradients";

/* ---- sending ---- */

static void pack_gradients(const muonium_mpi *d, size_t round, int owner, char *to)
{
    size_t from, end, origin;
    mu_span run;
    mu_round_range(&d->gradients, round, owner, &from, &end);
    origin = from;
    while (mu_next_span(d, &d->gradients, owner, origin, &from, end, &run)) {
        size_t parameter = d->plan->parts[run.part].piece.parameter;
        bool present = d->description->parameters[parameter]->tensor.grad != NULL;
        muonium_dtype type = mu_wire_type(d, run.part, true);
        uint32_t word = present;
        if (run.starts) {
            memcpy(to + run.word, &word, sizeof word);
        }
        if (present) {
            mu_pack_gradient(d, &run, type, to + run.bytes);
        } else {
            memset(to + run.bytes, 0, run.count * muonium_dtype_size(type));
        }
    }
}

static void pack_task(void *context, size_t index, unsigned worker)
{
    const muonium_mpi *d = context;
    const mu_window *w = &d->windows[d->next_round % MU_WINDOWS];
    (void)worker;
    pack_gradients(d, d->next_round, (int)index, w->send + w->send_at[index]);
}

static muonium_status start_gradients(muonium_mpi *d)
{
    mu_window *w = &d->windows[d->next_round % MU_WINDOWS];
    size_t from, to, sent = 0, mine;
    mu_round_range(&d->gradients, d->next_round, d->rank, &from, &to);
    mine = to - from;
    for (int r = 0; r < d->ranks; r++) {
        mu_round_range(&d->gradients, d->next_round, r, &from, &to);
        w->send_counts[r] = (int)(to - from);
        w->send_at[r] = (int)sent;
        w->receive_counts[r] = (int)mine;
        w->receive_at[r] = (int)((size_t)r * mine);
        sent += to - from;
    }
    mu_pool_run(pack_task, d, (size_t)d->ranks, mu_pool_workers());
    w->round = d->next_round++;
    w->busy = true;
    return mu_mpi_ok(d,
                     MPI_Ialltoallv(w->send, w->send_counts, w->send_at, MPI_BYTE, w->receive,
                                    w->receive_counts, w->receive_at, MPI_BYTE, d->comm,
                                    &w->request),
                     what);
}

/* ---- summing ---- */

static void add_rank(const muonium_mpi *d, const void *from, muonium_dtype type, bool first,
                     float *sum, size_t count)
{
    float buffer[MU_PIECE];
    size_t bytes = muonium_dtype_size(type);
    for (size_t done = 0; done < count;) {
        size_t piece = count - done < MU_PIECE ? count - done : MU_PIECE;
        mu_block row = {(char *)(uintptr_t)from + done * bytes, type, 1, 1, 1, piece};
        d->rows->load(&row, first ? sum + done : buffer, piece);
        for (size_t i = 0; !first && i < piece; i++) {
            sum[done + i] += buffer[i];
        }
        done += piece;
    }
}

static void divide(float *sum, size_t count, float by)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] /= by;
    }
}

/* The index in own_parts of part `index` of our stream of gradients, whose order is reversed. */
static size_t own_index(const muonium_mpi *d, size_t index)
{
    return d->own_count - 1 - index;
}

/* Elements that one task sums. */
enum { STRETCH = 1 << 15 };

typedef struct summing {
    const muonium_mpi *d;
    const mu_window *w;
    mu_span run;
} summing;

static void sum_task(void *context, size_t index, unsigned worker)
{
    const summing *s = context;
    const muonium_mpi *d = s->d;
    (void)worker;
    size_t own = own_index(d, s->run.index), done = index * STRETCH;
    size_t count = s->run.count - done < STRETCH ? s->run.count - done : STRETCH;
    const uint8_t *present = d->present + own * (size_t)d->ranks;
    muonium_dtype type = mu_wire_type(d, s->run.part, true);
    size_t skip = s->run.bytes + done * muonium_dtype_size(type);
    float *sum = d->sums[own] + s->run.first + done;
    bool first = true;
    for (int r = 0; r < d->ranks; r++) {
        if (present[r]) {
            add_rank(d, s->w->receive + s->w->receive_at[r] + skip, type, first, sum, count);
            first = false;
        }
    }
    if (!first && !d->options.sum && d->ranks > 1) {
        divide(sum, count, (float)d->ranks);
    }
}

static void sum_round(const muonium_mpi *d, const mu_window *w)
{
    size_t from, to, origin;
    summing s = {.d = d, .w = w};
    mu_round_range(&d->gradients, w->round, d->rank, &from, &to);
    origin = from;
    while (mu_next_span(d, &d->gradients, d->rank, origin, &from, to, &s.run)) {
        for (int r = 0; s.run.starts && r < d->ranks; r++) {
            uint32_t word;
            memcpy(&word, w->receive + w->receive_at[r] + s.run.word, sizeof word);
            d->present[own_index(d, s.run.index) * (size_t)d->ranks + (size_t)r] = word != 0;
        }
        mu_pool_run(sum_task, &s, (s.run.count + STRETCH - 1) / STRETCH, mu_pool_workers());
    }
}

/* ---- moving on ---- */

/* Rounds are received in order, since the word before a gradient is valid for later rounds. */
static muonium_status take_rounds(muonium_mpi *d, bool wait_for_one)
{
    muonium_status status = MUONIUM_OK;
    while (status == MUONIUM_OK && d->done_rounds < d->next_round) {
        mu_window *w = &d->windows[d->done_rounds % MU_WINDOWS];
        bool done = true;
        status =
            wait_for_one ? mu_wait(d, &w->request, what) : mu_test(d, &w->request, what, &done);
        if (status != MUONIUM_OK || !done) {
            return status;
        }
        wait_for_one = false;
        sum_round(d, w);
        w->busy = false;
        d->done_rounds++;
    }
    return status;
}

muonium_status mu_move_gradients(muonium_mpi *d, bool all)
{
    muonium_status status = take_rounds(d, false);
    while (status == MUONIUM_OK && d->next_round < d->gradients.rounds &&
           d->pending[d->next_round] == 0) {
        bool full = d->next_round - d->done_rounds == MU_WINDOWS;
        if (full && !all) {
            return MUONIUM_OK;
        }
        if (full) {
            status = take_rounds(d, true);
        }
        if (status == MUONIUM_OK) {
            status = start_gradients(d);
        }
        if (status == MUONIUM_OK) {
            status = take_rounds(d, false);
        }
    }
    while (all && status == MUONIUM_OK && d->done_rounds < d->gradients.rounds) {
        status = take_rounds(d, true);
    }
    return status;
}
