/*
 * loading.c: every rank opens the file, reads the state of its parts into separate memory, and
 * verifies the checksums of its share of the tensors. When all ranks have succeeded, all take
 * over the state.
 */
#include "mpi/segments.h"

#include "checkpoint/crc32c.h"
#include "checkpoint/incoming.h"

#include <string.h>

static const char what[] = "loading";

typedef struct loading {
    muonium_mpi *d;
    const muonium_reader *reader;
    const char *path;
    char *buffer;
    void *(*values)[MU_STATE_KINDS]; /* of each of our parts */
    bool asked;                      /* mu_agree was called */
} loading;

/* ---- verifying ---- */

static muonium_status verify(const loading *l, const mu_incoming_array *array)
{
    const muonium_entry *entry = array->entry;
    uint32_t crc = 0;
    muonium_status status = MUONIUM_OK;
    for (uint64_t done = 0; status == MUONIUM_OK && done < entry->bytes;) {
        uint64_t left = entry->bytes - done;
        size_t piece = left < MU_STATE_PIECE ? (size_t)left : MU_STATE_PIECE;
        status = muonium_reader_read(l->reader, entry, done, l->buffer, piece);
        crc = status == MUONIUM_OK ? mu_crc32c(crc, l->buffer, piece) : crc;
        done += piece;
    }
    if (status == MUONIUM_OK && crc != array->crc) {
        status = mu_checksum_mismatch(l->reader, entry, array->crc, crc);
    }
    return status;
}

/* ---- reading ---- */

/* Read `count` elements from element `first` of the file's array, to element `to` of ours. */
static muonium_status read_run(const loading *l, mu_incoming_array *ours, size_t first, size_t to,
                               size_t count)
{
    size_t width = muonium_dtype_size(ours->dtype), most = MU_STATE_PIECE / width;
    muonium_status status = MUONIUM_OK;
    for (size_t done = 0; status == MUONIUM_OK && done < count;) {
        size_t piece = count - done < most ? count - done : most;
        status = muonium_reader_read(l->reader, ours->entry, (first + done) * width, l->buffer,
                                     piece * width);
        if (status == MUONIUM_OK) {
            mu_incoming_convert(ours, to + done, l->buffer, first + done, piece);
        }
        done += piece;
    }
    return status;
}

static muonium_status make_values(loading *l, size_t own, const mu_state_array *array,
                                  void **values)
{
    *values = l->values[own][array->kind] = mu_alloc(mu_state_bytes(array));
    return *values ? MUONIUM_OK
                   : mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu bytes of state",
                             mu_state_bytes(array));
}

/* Read the share of one of our parts in an array of the whole parameter. */
static muonium_status read_part(loading *l, size_t own, const mu_incoming_array *array)
{
    const muonium_mpi *d = l->d;
    size_t part = d->own_parts[own];
    const muonium_mpi_piece *piece = &d->plan->parts[part].piece;
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_own_arrays(d, part, arrays), k = 0;
    while (k < count && arrays[k].kind != array->array.kind) {
        k++;
    }
    mu_incoming_array ours = *array;
    ours.array = arrays[k];
    muonium_status status = make_values(l, own, &arrays[k], &ours.values);
    mu_incoming_array scales = {0};
    if (status == MUONIUM_OK && array->computes) {
        while (arrays[k].kind != array->computes->array.kind) {
            k++; /* after the values */
        }
        scales = *array->computes;
        scales.array = arrays[k];
        ours.computes = &scales;
        status = make_values(l, own, &arrays[k], &scales.values);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (d->plan->parts[part].cut == MU_CUT_WHOLE) {
        status = read_run(l, &ours, 0, 0, ours.array.elements);
    } else if (array->array.spec->per_block) {
        status = read_run(l, &ours, piece->first / MUONIUM_STATE_BLOCK, 0, ours.array.elements);
    } else if (array->array.spec->per_row) {
        size_t first, rows;
        mu_rows_of_part(d, part, &first, &rows);
        status = read_run(l, &ours, first, 0, rows);
    } else {
        for (size_t i = 0; status == MUONIUM_OK && i < piece->runs; i++) {
            status =
                read_run(l, &ours, piece->first + i * piece->stride, i * piece->run, piece->run);
        }
    }
    if (status == MUONIUM_OK && !mu_incoming_is_sound(&ours, 0, ours.array.elements)) {
        status = mu_incoming_fault(&ours, l->path);
    }
    return status;
}

static muonium_status read_all(loading *l, const mu_incoming *incoming)
{
    const muonium_mpi *d = l->d;
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < incoming->count; i++) {
        const mu_incoming_array *array = &incoming->arrays[i];
        size_t parameter = array->parameter->number;
        if (array->computed) {
            continue;
        }
        if (i % (size_t)d->ranks == (size_t)d->rank) {
            status = verify(l, array);
        }
        for (size_t own = 0; status == MUONIUM_OK && own < d->own_count; own++) {
            if (d->plan->parts[d->own_parts[own]].piece.parameter == parameter) {
                status = read_part(l, own, array);
            }
        }
    }
    return status;
}

/* ---- taking over ---- */

static void adopt(const loading *l, const mu_incoming *incoming)
{
    muonium_mpi *d = l->d;
    for (size_t own = 0; own < d->own_count; own++) {
        size_t part = d->own_parts[own];
        const mu_incoming_parameter *taken =
            &incoming->parameters[d->plan->parts[part].piece.parameter];
        mu_parameter *p = d->own->parameters[own];
        mu_state_array arrays[MU_STATE_KINDS];
        size_t count = mu_own_arrays(d, part, arrays);
        for (size_t k = 0; k < count; k++) {
            const void *values = l->values[own][arrays[k].kind];
            if (values) {
                memcpy(arrays[k].data, values, mu_state_bytes(&arrays[k]));
            }
        }
        p->steps = taken->steps;
        p->moderate = false;
        p->has_master = l->values[own][MU_STATE_MASTER] != NULL;
        p->certified = false;
    }
    if (d->own) {
        d->own->counters.matrices = d->own->counters.rescued = 0;
        d->own->counters.zero = d->own->counters.skipped = 0;
    }
    d->idle = d->skipped = 0;
}

static muonium_status take(void *context, mu_incoming *incoming)
{
    loading *l = context;
    muonium_mpi *d = l->d;
    l->buffer = mu_alloc(MU_STATE_PIECE);
    l->values = mu_alloc_zeroed(d->own_count * sizeof *l->values);
    muonium_status status = l->buffer && l->values
                                ? mu_incoming_read_scales(incoming, l->reader, l->path, true)
                                : mu_fail(MUONIUM_NO_MEMORY, "no memory to load");
    if (status == MUONIUM_OK) {
        status = read_all(l, incoming);
    }
    l->asked = true;
    status = mu_agree(d, status, what);
    if (status == MUONIUM_OK) {
        adopt(l, incoming);
    }
    for (size_t own = 0; l->values && own < d->own_count; own++) {
        for (int k = 0; k < MU_STATE_KINDS; k++) {
            mu_free(l->values[own][k]);
        }
    }
    mu_free(l->values);
    mu_free(l->buffer);
    return status;
}

muonium_status muonium_mpi_load(muonium_mpi *d, const char *path)
{
    loading l = {.d = d, .path = path};
    muonium_reader *reader = NULL;
    if (!d) {
        return mu_fail(MUONIUM_INVALID, "distributed is NULL");
    }
    muonium_status status = mu_usable(d);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (d->begun) {
        status = mu_fail(MUONIUM_INVALID, "a step is in progress: call muonium_mpi_finish first");
    }
    if (status == MUONIUM_OK) {
        status =
            path ? muonium_reader_open(path, &reader) : mu_fail(MUONIUM_INVALID, "path is NULL");
    }
    if (status == MUONIUM_OK) {
        l.reader = reader;
        d->user = __func__; /* the description may call its log */
        status = mu_load_into(d->description, reader, take, &l);
        d->user = NULL;
    }
    if (!l.asked) {
        status = mu_agree(d, status, what);
    }
    muonium_reader_close(reader);
    return status;
}
