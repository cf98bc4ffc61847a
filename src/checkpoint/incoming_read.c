/*
 * incoming_read.c: reads state, and converts and checks it. The work is cut into pieces that stay
 * in cache from the read to the check. All threads work on a round of pieces; then the caller's
 * thread combines their checksums and errors in order.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/incoming.h"

#include <stdio.h>
#include <string.h>

enum {
    ROUND = 32,                        /* pieces; progress is reported between rounds */
    WORTH_THREADS = 8 * MU_STATE_PIECE /* bytes from which several threads are used */
};

_Static_assert(MU_STATE_PIECE % (sizeof(double) * MUONIUM_STATE_BLOCK) == 0,
               "a piece of any type has whole blocks of int8 state");

typedef struct piece {
    mu_incoming_array *array;
    size_t first, count; /* elements */
    uint32_t crc;        /* of the bytes as read */
    bool sound;
    muonium_status status;
    char message[256]; /* of a failure, since muonium_last_error is per thread */
} piece;

typedef struct read_round {
    const mu_reading *reading;
    char *buffers; /* a piece per worker, for conversions; NULL if there are none */
    piece pieces[ROUND];
    size_t count;
} read_round;

/* ---- one piece ---- */

static muonium_status fetch_piece(const read_round *r, piece *p, unsigned worker)
{
    mu_incoming_array *array = p->array;
    size_t element = muonium_dtype_size(array->dtype);
    if (!array->entry) {
        if (array->from) {
            mu_incoming_convert(array, p->first, (const char *)array->from + p->first * element,
                                p->first, p->count);
        } else {
            memset((char *)array->values + p->first * element, 0, p->count * element);
        }
        return MUONIUM_OK;
    }
    /* The system does not recognise parallel reads as sequential. Announce the bytes that the
     * next round will read. */
    mu_reader_expect(r->reading->reader,
                     array->entry->offset + p->first * element + (uint64_t)ROUND * MU_STATE_PIECE,
                     p->count * element);
    bool plain = mu_incoming_is_plain(array);
    size_t own = muonium_dtype_size(array->array.dtype);
    mu_populate((char *)array->values + p->first * own, p->count * own);
    char *to = plain ? (char *)array->values + p->first * element
                     : r->buffers + (size_t)worker * MU_STATE_PIECE;
    muonium_status status = muonium_reader_read(r->reading->reader, array->entry,
                                                p->first * element, to, p->count * element);
    if (status == MUONIUM_OK && r->reading->checksums) {
        p->crc = mu_crc32c(0, to, p->count * element);
    }
    if (status == MUONIUM_OK && !plain) {
        mu_incoming_convert(array, p->first, to, p->first, p->count);
    }
    return status;
}

static void run_piece(void *context, size_t index, unsigned worker)
{
    const read_round *r = context;
    piece *p = &((read_round *)context)->pieces[index];
    p->status = fetch_piece(r, p, worker);
    if (p->status == MUONIUM_OK) {
        p->sound = mu_incoming_is_sound(p->array, p->first, p->count);
    } else {
        snprintf(p->message, sizeof p->message, "%.255s", muonium_last_error());
    }
}

/* ---- combining pieces ---- */

/* Progress, and the checksum of the current array so far. */
typedef struct progress {
    uint32_t crc;
    bool sound;
    uint64_t done; /* bytes of all arrays */
} progress;

static muonium_status finish_array(const read_round *r, const mu_incoming_array *array,
                                   const progress *so_far)
{
    if (array->entry && r->reading->checksums && so_far->crc != array->crc) {
        return mu_checksum_mismatch(r->reading->reader, array->entry, array->crc, so_far->crc);
    }
    /* After the checksum: of a damaged file, its message says more. */
    return so_far->sound ? MUONIUM_OK : mu_incoming_fault(array, r->reading->label);
}

static muonium_status take_piece(const read_round *r, const piece *p, progress *so_far)
{
    size_t bytes = p->count * muonium_dtype_size(p->array->dtype);
    if (p->status != MUONIUM_OK) {
        return mu_fail(p->status, "%s", p->message);
    }
    if (p->first == 0) {
        so_far->crc = 0;
        so_far->sound = true;
    }
    so_far->crc = mu_crc32c_join(so_far->crc, p->crc, bytes);
    so_far->sound = so_far->sound && p->sound;
    so_far->done += bytes;
    bool last = p->first + p->count == p->array->array.elements;
    return last ? finish_array(r, p->array, so_far) : MUONIUM_OK;
}

static muonium_status run_round(read_round *r, unsigned workers, uint64_t total, progress *so_far)
{
    muonium_status status = MUONIUM_OK;
    mu_tell_progress(r->reading->progress, r->reading->progress_context, so_far->done, total);
    mu_pool_run(run_piece, r, r->count, workers);
    for (size_t i = 0; status == MUONIUM_OK && i < r->count; i++) {
        status = take_piece(r, &r->pieces[i], so_far);
    }
    r->count = 0;
    return status;
}

static muonium_status run_all(mu_incoming *incoming, read_round *r, unsigned workers,
                              uint64_t total)
{
    progress so_far = {0};
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; i < incoming->count; i++) {
        mu_incoming_array *array = &incoming->arrays[i];
        size_t most = MU_STATE_PIECE / muonium_dtype_size(array->dtype);
        if (array->computed) {
            continue;
        }
        for (size_t first = 0; status == MUONIUM_OK && first < array->array.elements;
             first += most) {
            size_t left = array->array.elements - first;
            r->pieces[r->count++] =
                (piece){.array = array, .first = first, .count = left < most ? left : most};
            if (r->count == ROUND) {
                status = run_round(r, workers, total, &so_far);
            }
        }
    }
    if (status == MUONIUM_OK && r->count > 0) {
        status = run_round(r, workers, total, &so_far);
    }
    if (status == MUONIUM_OK) {
        mu_tell_progress(r->reading->progress, r->reading->progress_context, total, total);
    }
    return status;
}

muonium_status mu_incoming_read(mu_incoming *incoming, const mu_reading *reading)
{
    muonium_status status = mu_incoming_allocate(incoming);
    if (status == MUONIUM_OK) {
        status =
            mu_incoming_read_scales(incoming, reading->reader, reading->label, reading->checksums);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    uint64_t total = 0;
    bool converts = false;
    for (size_t i = 0; i < incoming->count; i++) {
        const mu_incoming_array *array = &incoming->arrays[i];
        total += array->computed ? 0 : array->array.elements * muonium_dtype_size(array->dtype);
        converts = converts || (array->entry && !mu_incoming_is_plain(array));
    }
    bool alone =
        total < WORTH_THREADS || (reading->reader && !mu_reader_is_concurrent(reading->reader));
    unsigned workers = alone ? 1 : mu_pool_workers();
    read_round *r = mu_alloc_zeroed(sizeof *r);
    char *buffers = converts ? mu_alloc((size_t)workers * MU_STATE_PIECE) : NULL;
    if (!r || (converts && !buffers)) {
        status = mu_state_no_memory();
    } else {
        r->reading = reading;
        r->buffers = buffers;
        status = run_all(incoming, r, workers, total);
    }
    mu_free(r);
    mu_free(buffers);
    return status;
}
