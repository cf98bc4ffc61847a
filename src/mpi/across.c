/*
 * across.c: sums over the columns of a matrix that several ranks share. A partial sum travels
 * along the ranks in the order of their columns. Each rank adds its blocks in order and sends
 * the sum on; the last rank sends the result back the same way. The array travels in segments,
 * so that all ranks work at once. Every rank sends the array at most twice, as in an
 * all-reduce. The sum is that of one process, bit for bit.
 */
#include "mpi/sharing.h"

#include <string.h>

enum { SEGMENT = 1 << 18 /* bytes */, ACROSS_TAG = 9 };

typedef struct mu_sharing sharing;

static const char what[] = "summing over the columns of a matrix";

/* ---- passing ---- */

static muonium_status receive(muonium_mpi *d, void *data, size_t bytes, int from)
{
    MPI_Request request;
    muonium_status status = mu_mpi_ok(
        d, MPI_Irecv(data, (int)bytes, MPI_BYTE, from, ACROSS_TAG, d->comm, &request), what);
    return status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
}

static muonium_status send(muonium_mpi *d, void *data, size_t bytes, int to, MPI_Request *request)
{
    return mu_mpi_ok(d, MPI_Isend(data, (int)bytes, MPI_BYTE, to, ACROSS_TAG, d->comm, request),
                     what);
}

/* An array that is being summed. */
typedef struct journey {
    const sharing *s;
    mu_across_operation operation;
    muonium_dtype type;
    const char *parts;
    size_t part_count, bytes; /* of each part */
} journey;

static muonium_status go_on(const journey *j, size_t at, size_t bytes, MPI_Request *request)
{
    const sharing *s = j->s;
    char *sum = s->memory + at;
    size_t first = 0, count = bytes / muonium_dtype_size(j->type);
    muonium_status status = MUONIUM_OK;
    if (s->before >= 0) {
        status = receive(s->d, sum, bytes, s->before);
    } else {
        memcpy(sum, j->parts + at, bytes);
        first = 1;
    }
    for (size_t k = first; status == MUONIUM_OK && k < j->part_count; k++) {
        mu_combine_into(j->operation, j->type, sum, j->parts + k * j->bytes + at, count);
    }
    return status == MUONIUM_OK && s->after >= 0 ? send(s->d, sum, bytes, s->after, request)
                                                 : status;
}

static muonium_status come_back(const journey *j, size_t at, size_t bytes, MPI_Request *request)
{
    const sharing *s = j->s;
    muonium_status status = MUONIUM_OK;
    if (s->after >= 0) {
        status = mu_wait(s->d, request, what); /* its buffer is used again */
        if (status == MUONIUM_OK) {
            status = receive(s->d, s->memory + at, bytes, s->after);
        }
    }
    return status == MUONIUM_OK && s->before >= 0
               ? send(s->d, s->memory + at, bytes, s->before, request)
               : status;
}

static muonium_status pass_along(const journey *j)
{
    const sharing *s = j->s;
    muonium_status status = MUONIUM_OK;
    for (int way = 0; way < 3; way++) {
        for (size_t at = 0; status == MUONIUM_OK && at < j->bytes; at += SEGMENT) {
            size_t bytes = j->bytes - at < SEGMENT ? j->bytes - at : SEGMENT;
            MPI_Request *request = &s->requests[at / SEGMENT];
            if (way == 0) {
                status = go_on(j, at, bytes, request);
            } else if (way == 1) {
                status = come_back(j, at, bytes, request);
            } else if (s->before >= 0) {
                status = mu_wait(s->d, request, what);
            }
        }
    }
    return status;
}

static void combine_along_ranks(void *context, mu_across_operation operation, muonium_dtype type,
                                const void *parts, size_t part_count, size_t count, void *result)
{
    const sharing *s = context;
    journey j = {s, operation, type, parts, part_count, count * muonium_dtype_size(type)};
    if (!s->d->broken) {
        pass_along(&j); /* mu_usable reports a failure */
    }
    memcpy(result, s->memory, j.bytes);
}

/* ---- making ---- */

muonium_status mu_sharing_make(muonium_mpi *d, size_t rows, size_t cols, size_t columns,
                               size_t block, const mu_kernel *kernel, sharing *s)
{
    size_t m = rows < cols ? rows : cols;
    size_t longest = m * (m + 1) / 2 * muonium_dtype_size(kernel->type) + m * sizeof(double);
    *s = (sharing){
        .across = {.rows = rows,
                   .cols = cols,
                   .block = block,
                   .memory = mu_alloc(mu_across_bytes(m, columns, block, kernel->type)),
                   .combine = combine_along_ranks,
                   .context = s},
        .d = d,
        .requests = mu_alloc((longest / SEGMENT + 1) * sizeof(MPI_Request)),
        .memory = mu_alloc(longest),
    };
    if (!s->across.memory || !s->requests || !s->memory) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu shared columns of %zu x %zu", columns,
                       rows, cols);
    }
    return MUONIUM_OK;
}

void mu_sharing_free(sharing *s)
{
    mu_free(s->across.memory);
    mu_free(s->requests);
    mu_free(s->memory);
}

static muonium_status share(muonium_mpi *d, size_t own, sharing *s)
{
    const mu_part *part = &d->plan->parts[d->own_parts[own]];
    mu_parameter *p = d->own->parameters[own];
    bool wide = p->group->options.plan.precision == MUONIUM_F64;
    const mu_kernel *kernel = NULL;
    muonium_status status = mu_kernel_choose(wide ? MUONIUM_F64 : MUONIUM_F32, &kernel);
    if (status == MUONIUM_OK) {
        status =
            mu_sharing_make(d, part->rows, part->cols, part->col_count, part->block, kernel, s);
        s->across.first = part->sibling == 0;
        s->before = part->sibling > 0 ? part[-1].piece.owner : -1;
        s->after = part->sibling + 1 < part->siblings ? part[1].piece.owner : -1;
        p->across = &s->across;
    }
    return status;
}

muonium_status mu_share_columns(muonium_mpi *d)
{
    size_t count = 0;
    for (size_t i = 0; i < d->own_count; i++) {
        count += d->plan->parts[d->own_parts[i]].cut == MU_CUT_COLUMNS;
    }
    d->sharings = mu_alloc_zeroed(count * sizeof *d->sharings);
    if (!d->sharings) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu shared matrices", count);
    }
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < d->own_count; i++) {
        if (d->plan->parts[d->own_parts[i]].cut == MU_CUT_COLUMNS) {
            status = share(d, i, &d->sharings[d->sharing_count++]);
        }
    }
    return status;
}

void mu_unshare_columns(muonium_mpi *d)
{
    for (size_t i = 0; i < d->sharing_count; i++) {
        mu_sharing_free(&d->sharings[i]);
    }
    mu_free(d->sharings);
}
