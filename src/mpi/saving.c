/*
 * saving.c: saves one file for all ranks. Owners compute the checksums of their segments; rank 0
 * joins them to those of whole arrays for the header. Then rank 0 receives the arrays in the
 * order of the file, a piece at a time, from their owners. If rank 0 fails, it still receives
 * all pieces, so that no rank waits for it, and all ranks agree on the error at the end.
 */
#include "mpi/segments.h"

#include "checkpoint/crc32c.h"

#include <string.h>

enum { SAVE_TAG = 5 };

static const char what[] = "saving";

typedef struct saving {
    muonium_mpi *d;
    char *buffer;   /* a piece that is sent or received, and another */
    uint32_t *crcs; /* of all segments, in the order of the file */
    size_t crc_count, crc_next;
    size_t at;             /* first element of the visited segment in its array */
    muonium_status status; /* of the check of our segments */
    /* The position of rank 0 in the file: */
    size_t parameter, array, first;
    bool drained;
} saving;

/* The bytes of a segment in one of our parts. */
static const char *own_bytes(const muonium_mpi *d, const mu_segment *s, mu_state_kind kind)
{
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_own_arrays(d, s->part, arrays);
    for (size_t k = 0; k < count; k++) {
        if (arrays[k].kind == kind) {
            return (const char *)arrays[k].data + s->offset * muonium_dtype_size(arrays[k].dtype);
        }
    }
    return NULL;
}

static int owner_of(const muonium_mpi *d, const mu_segment *s)
{
    return d->plan->parts[s->part].piece.owner;
}

/* ---- checksums ---- */

/* Visit the segments of all saved arrays, in the order of the file. */
static void visit_segments(saving *s, void (*visit)(saving *s, const mu_state_array *array,
                                                    const mu_segment *segment))
{
    const muonium_optimizer *o = s->d->description;
    for (size_t i = 0; i < o->count; i++) {
        mu_state_array arrays[MU_STATE_KINDS];
        size_t count = mu_state_arrays(o->parameters[i], arrays);
        for (size_t k = 0; k < count; k++) {
            for (size_t at = 0; at < arrays[k].elements;) {
                mu_segment segment = mu_segment_at(s->d, i, arrays[k].kind, at);
                s->at = at;
                if (mu_state_has_values(o->parameters[i], &arrays[k])) {
                    visit(s, &arrays[k], &segment);
                }
                at += segment.count;
            }
        }
    }
}

static void count_segment(saving *s, const mu_state_array *array, const mu_segment *segment)
{
    (void)array, (void)segment;
    s->crc_count++;
}

/* Do not save what a load would refuse. */
static void check_segment(saving *s, const mu_state_array *array, const mu_segment *segment)
{
    const muonium_mpi *d = s->d;
    const mu_parameter *whole =
        d->description->parameters[d->plan->parts[segment->part].piece.parameter];
    mu_state_values values = {whole,          array->kind,
                              array->dtype,   own_bytes(d, segment, array->kind),
                              segment->count, s->at};
    if (s->status == MUONIUM_OK && !mu_state_is_sound(&values)) {
        s->status = mu_save_fault(&values);
    }
}

/* The checksum of a segment of another rank is 0 here, so that the sum over ranks is the
 * checksum. */
static void checksum_segment(saving *s, const mu_state_array *array, const mu_segment *segment)
{
    uint32_t *crc = &s->crcs[s->crc_next++];
    *crc = 0;
    if (owner_of(s->d, segment) == s->d->rank) {
        *crc = mu_crc32c(0, own_bytes(s->d, segment, array->kind),
                         segment->count * muonium_dtype_size(array->dtype));
        check_segment(s, array, segment);
    }
}

static muonium_status gather_checksums(saving *s)
{
    muonium_mpi *d = s->d;
    visit_segments(s, count_segment);
    s->crcs = mu_alloc(s->crc_count * sizeof *s->crcs);
    s->buffer = mu_alloc(2 * MU_STATE_PIECE);
    muonium_status status =
        s->crcs && s->buffer ? MUONIUM_OK : mu_fail(MUONIUM_NO_MEMORY, "no memory to save");
    status = mu_agree(d, status, what);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_fenv environment = mu_fenv_enter();
    visit_segments(s, checksum_segment);
    mu_fenv_leave(environment);
    status = mu_agree(d, s->status, what);
    s->crc_next = 0;
    size_t most = d->options.chunk_bytes / sizeof *s->crcs;
    for (size_t done = 0; status == MUONIUM_OK && done < s->crc_count;) {
        size_t piece = s->crc_count - done < most ? s->crc_count - done : most;
        MPI_Request request;
        status = mu_mpi_ok(d,
                           MPI_Iallreduce(MPI_IN_PLACE, s->crcs + done, (int)piece, MPI_UINT32_T,
                                          MPI_SUM, d->comm, &request),
                           what);
        status = status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
        done += piece;
    }
    return status;
}

static muonium_status join_checksums(void *context, size_t parameter, const mu_state_array *array,
                                     uint32_t *crc)
{
    saving *s = context;
    *crc = 0;
    for (size_t at = 0; at < array->elements;) {
        mu_segment segment = mu_segment_at(s->d, parameter, array->kind, at);
        size_t bytes = segment.count * muonium_dtype_size(array->dtype);
        *crc = mu_crc32c_join(*crc, s->crcs[s->crc_next++], bytes);
        at += segment.count;
    }
    return MUONIUM_OK;
}

/* ---- data ---- */

/* Visits the segments of a piece of an array: bytes [first, first + bytes). */
typedef struct passing {
    const muonium_mpi *d;
    size_t parameter;
    const mu_state_array *array;
    size_t at, end; /* elements */
    mu_segment segment;
    size_t bytes; /* of the segment */
} passing;

static passing pass(const muonium_mpi *d, size_t parameter, const mu_state_array *array,
                    size_t first, size_t bytes)
{
    size_t width = muonium_dtype_size(array->dtype);
    return (passing){d, parameter, array, first / width, (first + bytes) / width, {0}, 0};
}

static bool next_segment(passing *p)
{
    if (p->at >= p->end) {
        return false;
    }
    p->segment = mu_segment_at(p->d, p->parameter, p->array->kind, p->at);
    if (p->segment.count > p->end - p->at) {
        p->segment.count = p->end - p->at;
    }
    p->at += p->segment.count;
    p->bytes = p->segment.count * muonium_dtype_size(p->array->dtype);
    return true;
}

/* The bytes of a piece that one rank owns. */
static size_t bytes_of_owner(passing p, int owner)
{
    size_t sum = 0;
    while (next_segment(&p)) {
        sum += owner_of(p.d, &p.segment) == owner ? p.bytes : 0;
    }
    return sum;
}

static muonium_status send_piece(saving *s, passing p)
{
    size_t filled = 0;
    muonium_mpi *d = s->d;
    MPI_Request request;
    while (next_segment(&p)) {
        if (owner_of(d, &p.segment) == d->rank) {
            memcpy(s->buffer + filled, own_bytes(d, &p.segment, p.array->kind), p.bytes);
            filled += p.bytes;
        }
    }
    if (filled == 0) {
        return MUONIUM_OK;
    }
    muonium_status status = mu_mpi_ok(
        d, MPI_Isend(s->buffer, (int)filled, MPI_BYTE, 0, SAVE_TAG, d->comm, &request), what);
    return status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
}

/* On rank 0: receive a piece. The buffer holds what each owner sent, owner after owner. */
static muonium_status receive_piece(saving *s, passing piece, char *to)
{
    muonium_mpi *d = s->d;
    muonium_status status = MUONIUM_OK;
    size_t filled = 0;
    for (int owner = 0; status == MUONIUM_OK && owner < d->ranks; owner++) {
        size_t bytes = bytes_of_owner(piece, owner), taken = 0;
        MPI_Request request;
        if (bytes == 0) {
            continue;
        }
        char *from = s->buffer + filled;
        if (owner != 0) {
            status = mu_mpi_ok(
                d, MPI_Irecv(from, (int)bytes, MPI_BYTE, owner, SAVE_TAG, d->comm, &request), what);
            status = status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
        }
        char *place = to;
        for (passing p = piece; status == MUONIUM_OK && next_segment(&p); place += p.bytes) {
            if (owner_of(d, &p.segment) != owner) {
                continue;
            }
            memcpy(place, owner == 0 ? own_bytes(d, &p.segment, p.array->kind) : from + taken,
                   p.bytes);
            taken += p.bytes;
        }
        filled += bytes;
    }
    return status;
}

static muonium_status fetch_from_owners(void *context, size_t parameter,
                                        const mu_state_array *array, size_t first, void *to,
                                        size_t bytes)
{
    saving *s = context;
    s->parameter = parameter;
    s->array = array->kind;
    s->first = first + bytes;
    s->drained = true;
    return receive_piece(s, pass(s->d, parameter, array, first, bytes), to);
}

/* Send or receive all pieces of the file that come after the last that rank 0 fetched. */
static muonium_status pass_all(saving *s, bool receive)
{
    const muonium_optimizer *o = s->d->description;
    muonium_status status = MUONIUM_OK;
    for (size_t i = s->parameter; status == MUONIUM_OK && i < o->count; i++) {
        mu_state_array arrays[MU_STATE_KINDS];
        size_t count = mu_state_arrays(o->parameters[i], arrays);
        for (size_t k = 0; k < count; k++) {
            bool here = s->drained && i == s->parameter;
            size_t total = mu_state_bytes(&arrays[k]), first = 0;
            if ((here && arrays[k].kind < s->array) ||
                !mu_state_has_values(o->parameters[i], &arrays[k])) {
                continue;
            }
            first = here && arrays[k].kind == s->array ? s->first : 0;
            while (status == MUONIUM_OK && first < total) {
                size_t bytes = total - first < MU_STATE_PIECE ? total - first : MU_STATE_PIECE;
                passing p = pass(s->d, i, &arrays[k], first, bytes);
                status =
                    receive ? receive_piece(s, p, s->buffer + MU_STATE_PIECE) : send_piece(s, p);
                first += bytes;
            }
        }
    }
    return status;
}

static muonium_status write_file(saving *s, const char *path, const muonium_counters *counters)
{
    muonium_mpi *d = s->d;
    muonium_counters own = d->description->counters;
    mu_state_source source = {s, join_checksums, fetch_from_owners};
    d->description->counters = *counters;
    muonium_status status = mu_save_from(d->description, &source, path);
    d->description->counters = own;
    if (status != MUONIUM_OK && !d->broken) {
        char message[400];
        strncpy(message, muonium_last_error(), sizeof message - 1);
        message[sizeof message - 1] = '\0';
        muonium_status drained = pass_all(s, true);
        status = drained == MUONIUM_OK ? mu_fail(status, "%s", message) : drained;
    }
    return status;
}

muonium_status muonium_mpi_save(muonium_mpi *d, const char *path)
{
    muonium_counters counters;
    saving s = {.d = d};
    if (!d) {
        return mu_fail(MUONIUM_INVALID, "distributed is NULL");
    }
    muonium_status status = mu_usable(d);
    if (status == MUONIUM_OK && d->begun) {
        status = mu_fail(MUONIUM_INVALID, "a step is in progress: call muonium_mpi_finish first");
    }
    if (status == MUONIUM_OK && !path) {
        status = mu_fail(MUONIUM_INVALID, "path is NULL");
    }
    if (!d->broken) {
        status = mu_agree(d, status, what);
    }
    if (status == MUONIUM_OK) {
        status = muonium_mpi_count(d, &counters);
    }
    if (status == MUONIUM_OK) {
        status = gather_checksums(&s);
    }
    if (status == MUONIUM_OK) {
        status = d->rank == 0 ? write_file(&s, path, &counters) : pass_all(&s, false);
        status = d->broken ? status : mu_agree(d, status, what);
    }
    mu_release(d, s.crcs);
    mu_release(d, s.buffer);
    return status;
}
