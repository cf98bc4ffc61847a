/*
 * save.c: writes the state of an optimizer. The header holds the checksums of the data, so these
 * are computed first; then the arrays are written. Nothing is copied. For a description, whose
 * arrays are on other ranks, a source provides the checksums and then the bytes in order.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>

/* The arrays of all parameters, in order. */
typedef struct saving {
    const char *call;
    const muonium_optimizer *optimizer;
    const mu_state_source *source; /* of a description; else NULL */
    struct saved_array {
        const mu_parameter *parameter;
        mu_state_array array;
        uint32_t crc;
        bool sound;
    } * arrays;
    size_t count;
    uint64_t bytes;
    muonium_progress *progress;
    void *progress_context;
} saving;

static const mu_state_refusal refusal = {
    "saving", "nothing was saved, since no load would take it; go back to an earlier checkpoint",
    MUONIUM_INVALID, false};

muonium_status mu_save_fault(const mu_state_values *values)
{
    return mu_state_fault(values, &refusal);
}

/* In pieces that are still in cache when they are checked. */
static void checksum_array(void *context, size_t index, unsigned worker)
{
    struct saved_array *saved = &((saving *)context)->arrays[index];
    size_t bytes = muonium_dtype_size(saved->array.dtype), most = MU_STATE_PIECE / bytes;
    (void)worker;
    saved->sound = true;
    for (size_t first = 0; first < saved->array.elements; first += most) {
        size_t left = saved->array.elements - first;
        mu_state_values piece = mu_state_values_of(
            saved->parameter, &saved->array, saved->array.data, first, left < most ? left : most);
        saved->crc = mu_crc32c(saved->crc, piece.data, piece.count * bytes);
        saved->sound = saved->sound && mu_state_is_sound(&piece);
    }
}

/* Do not save what a load would refuse. */
static muonium_status check_arrays(const saving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct saved_array *saved = &s->arrays[i];
        if (!saved->sound) {
            mu_state_values all = mu_state_values_of(saved->parameter, &saved->array,
                                                     saved->array.data, 0, saved->array.elements);
            return mu_save_fault(&all);
        }
    }
    return MUONIUM_OK;
}

static muonium_status list_arrays(saving *s)
{
    size_t room;
    const muonium_optimizer *optimizer = s->optimizer;
    bool fits = mu_mul(mu_count_state_arrays(optimizer), sizeof *s->arrays, &room);
    s->arrays = fits ? mu_alloc(room) : NULL;
    if (s->arrays == NULL) {
        return mu_state_no_memory();
    }
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        mu_state_array arrays[MU_STATE_KINDS];
        size_t count = mu_state_arrays(p, arrays);
        for (size_t k = 0; k < count; k++) {
            if (mu_state_has_values(p, &arrays[k])) {
                s->arrays[s->count++] = (struct saved_array){p, arrays[k], 0, true};
                s->bytes += mu_state_bytes(&arrays[k]);
            }
        }
    }
    if (!s->source) {
        mu_pool_run(checksum_array, s, s->count, mu_pool_workers());
        return check_arrays(s);
    }
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < s->count; i++) {
        struct saved_array *saved = &s->arrays[i];
        status = s->source->checksum(s->source->context, saved->parameter->number, &saved->array,
                                     &saved->crc);
    }
    return status;
}

/* ---- the header ---- */

static muonium_status describe_optimizer(const saving *s, muonium_writer *writer)
{
    const muonium_counters *counters = &s->optimizer->counters;
    char number[24], others[128];
    snprintf(number, sizeof number, "%d", MU_STATE_FORMAT);
    muonium_status status = mu_check_count(counters->steps, NULL, &refusal);
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, MU_KEY_FORMAT, number);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, MU_KEY_VERSION, muonium_version());
    }
    if (status == MUONIUM_OK) {
        snprintf(number, sizeof number, "%" PRIu64, counters->steps);
        status = muonium_writer_add_metadata(writer, MU_KEY_STEP, number);
    }
    if (status == MUONIUM_OK) {
        snprintf(others, sizeof others,
                 "matrices=%" PRIu64 " skipped=%" PRIu64 " rescued=%" PRIu64 " zero=%" PRIu64,
                 counters->matrices, counters->skipped, counters->rescued, counters->zero);
        status = muonium_writer_add_metadata(writer, MU_KEY_COUNTERS, others);
    }
    return status;
}

static muonium_status describe_groups(const saving *s, muonium_writer *writer, mu_text *scratch)
{
    size_t number = 0;
    for (const muonium_group *group = s->optimizer->groups; group; group = group->next) {
        char key[sizeof MU_KEY_GROUP + 20];
        snprintf(key, sizeof key, MU_KEY_GROUP "%zu", number++);
        scratch->count = 0;
        if (!mu_add_options(scratch, &group->options) || !mu_text_reserve(scratch, 1)) {
            return mu_state_no_memory();
        }
        mu_text_add(scratch, "", 1);
        muonium_status status = muonium_writer_add_metadata(writer, key, scratch->bytes);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    return MUONIUM_OK;
}

static muonium_status describe_parameters(const saving *s, muonium_writer *writer, mu_text *key,
                                          mu_text *record)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < s->optimizer->count; i++) {
        const mu_parameter *p = s->optimizer->parameters[i];
        char numbers[96];
        status = mu_check_count(p->steps, p->name, &refusal);
        if (status != MUONIUM_OK) {
            return status;
        }
        snprintf(numbers, sizeof numbers, "route=%s steps=%" PRIu64 " group=%zu master=%s reason=",
                 p->muon ? "muon" : "adam", p->steps, p->group->number,
                 !mu_keeps_master(p) ? "no"
                 : p->has_master     ? "yes"
                                     : "later");
        record->count = 0;
        if (!mu_join(key, MU_KEY_PARAMETER, p->name, "") ||
            !mu_text_reserve(record, sizeof numbers)) {
            return mu_state_no_memory();
        }
        mu_text_add_string(record, numbers);
        if (!mu_add_escaped(record, p->reason) || !mu_text_reserve(record, 1)) {
            return mu_state_no_memory();
        }
        mu_text_add(record, "", 1);
        status = muonium_writer_add_metadata(writer, key->bytes, record->bytes);
    }
    return status;
}

static muonium_status describe_array(const struct saved_array *saved, muonium_writer *writer,
                                     mu_text *name, mu_text *scratch)
{
    const mu_state_array *array = &saved->array;
    char digits[9];
    snprintf(digits, sizeof digits, "%08" PRIx32, saved->crc);
    const char *tensor = mu_join(name, saved->parameter->name, ".", array->spec->name);
    const char *key = tensor ? mu_join(scratch, MU_KEY_CRC, tensor, "") : NULL;
    if (key == NULL) {
        return mu_state_no_memory();
    }
    muonium_status status = muonium_writer_add_metadata(writer, key, digits);
    if (status == MUONIUM_OK) {
        status = muonium_writer_add(writer, tensor, muonium_dtype_name(array->dtype), array->ndim,
                                    array->shape);
    }
    return status;
}

static muonium_status describe_state(const saving *s, muonium_writer *writer)
{
    mu_text name = {0}, scratch = {0};
    muonium_status status = describe_optimizer(s, writer);
    if (status == MUONIUM_OK) {
        status = describe_groups(s, writer, &scratch);
    }
    if (status == MUONIUM_OK) {
        status = describe_parameters(s, writer, &name, &scratch);
    }
    for (size_t i = 0; status == MUONIUM_OK && i < s->count; i++) {
        status = describe_array(&s->arrays[i], writer, &name, &scratch);
    }
    if (status == MUONIUM_OK) {
        status = mu_writer_seal(writer, MU_KEY_SEAL);
    }
    mu_text_release(&name);
    mu_text_release(&scratch);
    return status;
}

/* ---- the data ---- */

/* Some bytes of an array: in place, or fetched into `buffer`. */
static muonium_status find_bytes(const saving *s, const struct saved_array *saved, size_t first,
                                 size_t bytes, void *buffer, const void **found)
{
    if (!s->source) {
        *found = (const char *)saved->array.data + first;
        return MUONIUM_OK;
    }
    *found = buffer;
    return s->source->fetch(s->source->context, saved->parameter->number, &saved->array, first,
                            buffer, bytes);
}

static muonium_status stream_through(const saving *s, muonium_writer *writer, void *buffer)
{
    uint64_t done = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t total = mu_state_bytes(&s->arrays[i].array);
        for (size_t first = 0; first < total;) {
            size_t piece = total - first < MU_STATE_PIECE ? total - first : MU_STATE_PIECE;
            const void *from = NULL;
            mu_tell_progress(s->progress, s->progress_context, done, s->bytes);
            muonium_status status = find_bytes(s, &s->arrays[i], first, piece, buffer, &from);
            if (status == MUONIUM_OK) {
                status = muonium_writer_data(writer, from, piece);
            }
            if (status != MUONIUM_OK) {
                return status;
            }
            first += piece;
            done += piece;
        }
    }
    mu_tell_progress(s->progress, s->progress_context, done, s->bytes);
    return MUONIUM_OK;
}

static muonium_status stream(const saving *s, muonium_writer *writer)
{
    void *buffer = s->source ? mu_alloc(MU_STATE_PIECE) : NULL;
    if (s->source && !buffer) {
        return mu_state_no_memory();
    }
    muonium_status status = stream_through(s, writer, buffer);
    mu_free(buffer);
    return status;
}

/* The destination: a path, or a function. */
typedef struct target {
    const char *path;
    bool (*write)(void *context, const void *data, size_t bytes);
    void *context;
} target;

static muonium_status write_all(saving *s, const target *to, muonium_writer **made)
{
    muonium_writer *writer = NULL;
    muonium_status status = s->source ? MUONIUM_OK : mu_need_state(s->optimizer, "save");
    if (status == MUONIUM_OK) {
        status = muonium_writer_create(&writer);
    }
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter(); /* the digits of options depend on the rounding */
        status = list_arrays(s);
        status = status == MUONIUM_OK ? describe_state(s, writer) : status;
        mu_fenv_leave(environment);
    }
    if (status == MUONIUM_OK) {
        status = to->path ? muonium_writer_begin(writer, to->path)
                          : muonium_writer_begin_sink(writer, to->write, to->context);
    }
    if (status == MUONIUM_OK) {
        status = stream(s, writer);
    }
    mu_free(s->arrays);
    if (status != MUONIUM_OK) {
        muonium_writer_destroy(writer);
        return status;
    }
    *made = writer;
    return MUONIUM_OK;
}

/* Write all data, but do not finish the file. */
static muonium_status save(saving *s, const target *to, muonium_writer **made)
{
    muonium_status status = mu_enter(s->optimizer, s->call);
    return status == MUONIUM_OK ? mu_leave(s->optimizer, write_all(s, to, made)) : status;
}

static muonium_status finish_file(muonium_status status, muonium_writer *writer)
{
    if (status == MUONIUM_OK) {
        status = muonium_writer_finish(writer);
        muonium_writer_destroy(writer);
    }
    return status;
}

static muonium_status save_to_path(saving *s, const char *path, muonium_writer **writer)
{
    const muonium_optimizer *optimizer = s->optimizer;
    if (!optimizer || !path || !writer) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL",
                       !optimizer ? "optimizer"
                       : !path    ? "path"
                                  : "writer");
    }
    return save(s, &(target){.path = path}, writer);
}

muonium_status muonium_save_prepare(const muonium_optimizer *optimizer, const char *path,
                                    muonium_progress *progress, void *progress_context,
                                    muonium_writer **writer)
{
    saving s = {.call = __func__,
                .optimizer = optimizer,
                .progress = progress,
                .progress_context = progress_context};
    muonium_writer *made = NULL;
    muonium_status status = save_to_path(&s, path, writer ? &made : NULL);
    if (status == MUONIUM_OK) {
        status = muonium_writer_prepare(made);
    }
    if (status != MUONIUM_OK) {
        muonium_writer_destroy(made);
        return status;
    }
    *writer = made;
    return MUONIUM_OK;
}

muonium_status muonium_save(const muonium_optimizer *optimizer, const char *path)
{
    saving s = {.call = __func__, .optimizer = optimizer};
    muonium_writer *writer = NULL;
    muonium_status status = save_to_path(&s, path, &writer);
    return finish_file(status, writer);
}

muonium_status muonium_save_to(const muonium_optimizer *optimizer,
                               bool (*write)(void *context, const void *data, size_t bytes),
                               void *context)
{
    if (!optimizer || !write) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", optimizer ? "write" : "optimizer");
    }
    saving s = {.call = __func__, .optimizer = optimizer};
    muonium_writer *writer = NULL;
    muonium_status status = save(&s, &(target){.write = write, .context = context}, &writer);
    return finish_file(status, writer);
}

muonium_status mu_save_from(const muonium_optimizer *description, const mu_state_source *source,
                            const char *path)
{
    saving s = {.call = "muonium_mpi_save", .optimizer = description, .source = source};
    muonium_writer *writer = NULL;
    muonium_status status = save(&s, &(target){.path = path}, &writer);
    return finish_file(status, writer);
}
