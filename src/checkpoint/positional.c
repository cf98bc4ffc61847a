/*
 * positional.c: loads state by position, from a list of buffers or from a file with one tensor
 * per position.
 */
#include "checkpoint/incoming.h"

#include <stdio.h>
#include <string.h>

/* The source at one position. */
typedef struct source {
    muonium_dtype dtype;
    size_t ndim;
    const uint64_t *shape;
    const void *data;           /* of a buffer, or */
    const muonium_entry *entry; /* of a file */
} source;

typedef struct list {
    const muonium_buffer *buffers; /* NULL: from the reader */
    const muonium_reader *reader;
    size_t count;
    const char *label;
    mu_text prefix, name; /* of the tensors of a file */
    uint64_t shape[MUONIUM_MAX_DIMS];
} list;

static void list_release(list *l)
{
    mu_text_release(&l->prefix);
    mu_text_release(&l->name);
}

/* ---- the sources ---- */

/* The common prefix of the names: the first name without its trailing digits. */
static muonium_status find_prefix(list *l)
{
    const muonium_entry *first = muonium_reader_entry(l->reader, 0);
    const char *name = first ? first->name : "";
    if (!mu_join(&l->prefix, name, "", "")) {
        return mu_state_no_memory();
    }
    size_t length = strlen(name);
    while (length > 0 && name[length - 1] >= '0' && name[length - 1] <= '9') {
        length--;
    }
    l->prefix.bytes[length] = '\0';
    return MUONIUM_OK;
}

static muonium_status entry_at(list *l, size_t index, source *found)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", index);
    const char *name = mu_join(&l->name, l->prefix.bytes, number, "");
    if (!name) {
        return mu_state_no_memory();
    }
    const muonium_entry *entry = muonium_reader_find(l->reader, name);
    if (!entry) {
        mu_quoted quoted = mu_quote(name),
                  first = mu_quote(muonium_reader_entry(l->reader, 0)->name);
        return mu_fail(MUONIUM_FORMAT,
                       "%s: no tensor is named %s, but there are %zu and the first is %s: name "
                       "them by their position, from 0, after a common prefix",
                       l->label, quoted.text, l->count, first.text);
    }
    if (!muonium_dtype_named(entry->dtype, &found->dtype)) {
        mu_quoted quoted = mu_quote(name);
        return mu_fail(MUONIUM_FORMAT, "%s: tensor %s is of type %.16s: use F32, BF16, F16 or F64",
                       l->label, quoted.text, entry->dtype);
    }
    found->ndim = entry->ndim;
    found->shape = entry->shape;
    found->entry = entry;
    return MUONIUM_OK;
}

static muonium_status buffer_at(list *l, size_t index, source *found)
{
    const muonium_buffer *buffer = &l->buffers[index];
    if (!buffer->data || muonium_dtype_size(buffer->dtype) == 0 || buffer->dtype == MUONIUM_INT8 ||
        buffer->ndim > MUONIUM_MAX_DIMS) {
        return mu_fail(MUONIUM_INVALID, "buffer %zu: %s", index,
                       !buffer->data                     ? "data is NULL"
                       : buffer->ndim > MUONIUM_MAX_DIMS ? "ndim is beyond MUONIUM_MAX_DIMS"
                       : buffer->dtype == MUONIUM_INT8
                           ? "dtype is int8, whose scales cannot be given: use f32"
                           : "dtype is none of muonium_dtype");
    }
    for (size_t d = 0; d < buffer->ndim; d++) {
        l->shape[d] = buffer->shape[d];
    }
    *found = (source){
        .dtype = buffer->dtype, .ndim = buffer->ndim, .shape = l->shape, .data = buffer->data};
    return MUONIUM_OK;
}

/* ---- fitting ---- */

static bool has_shape(const source *from, const mu_state_array *array)
{
    bool flat = from->ndim == 1 && from->shape[0] == array->elements;
    return flat || (from->ndim == array->ndim &&
                    (array->ndim == 0 ||
                     memcmp(from->shape, array->shape, array->ndim * sizeof array->shape[0]) == 0));
}

static muonium_status fit_array(list *l, size_t place, mu_incoming *incoming, size_t parameter,
                                const mu_state_array *array, double factor)
{
    source from = {0};
    muonium_status status = l->buffers ? buffer_at(l, place, &from) : entry_at(l, place, &from);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!has_shape(&from, array)) {
        mu_quoted name = mu_quote(incoming->optimizer->parameters[parameter]->name);
        mu_shape_text there = mu_format_shape(from.ndim, from.shape);
        mu_shape_text here = mu_format_shape(array->ndim, array->shape);
        return mu_fail(l->buffers ? MUONIUM_INVALID : MUONIUM_FORMAT,
                       "%s: position %zu, %s of %s, has shape %s and not %s: nothing was loaded",
                       l->label, place, array->spec->name, name.text, there.text, here.text);
    }
    mu_incoming_array *added = mu_incoming_add(incoming, parameter, array, from.dtype, factor);
    added->entry = from.entry;
    added->from = from.data;
    return MUONIUM_OK;
}

static muonium_status fit_all(list *l, mu_incoming *incoming,
                              const muonium_positional_options *options)
{
    muonium_status status = MUONIUM_OK;
    const muonium_optimizer *optimizer = incoming->optimizer;
    size_t place = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        mu_state_array arrays[MU_STATE_KINDS];
        size_t count = mu_state_arrays(p, arrays);
        double factor = 1;
        if (p->muon && options->convert) {
            factor = mu_momentum_factor(options->momentum_form, options->momentum,
                                        p->group->options.momentum_form);
        }
        for (size_t k = 0; status == MUONIUM_OK && k < count; k++) {
            if (arrays[k].spec->per_block) {
                mu_incoming_compute(incoming, i, &arrays[k]);
            } else if (!arrays[k].spec->unlisted) {
                status = fit_array(l, place++, incoming, i, &arrays[k],
                                   arrays[k].spec->scaled_with_form ? factor : 1);
            } else if (!arrays[k].spec->from_parameter) {
                mu_incoming_add(incoming, i, &arrays[k], arrays[k].dtype, 1);
            }
        }
        incoming->parameters[i] = (mu_incoming_parameter){
            .matched = true, .steps = options->steps, .restart_master = true};
    }
    return status;
}

static muonium_status check_count(const list *l, const muonium_optimizer *optimizer)
{
    size_t needed = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_state_array arrays[MU_STATE_KINDS];
        for (size_t k = 0, kept = mu_state_arrays(optimizer->parameters[i], arrays); k < kept;
             k++) {
            needed += !arrays[k].spec->unlisted;
        }
    }
    if (l->count == needed) {
        return MUONIUM_OK;
    }
    return mu_fail(l->buffers || !l->reader ? MUONIUM_INVALID : MUONIUM_FORMAT,
                   "%s: %zu buffers, but the optimizer needs %zu: one for each of its %zu Muon "
                   "parameters (momentum), two for each of its %zu AdamW parameters (first and "
                   "second moment)",
                   l->label, l->count, needed, (size_t)optimizer->counters.muon,
                   (size_t)optimizer->counters.adam);
}

/* ---- all of it ---- */

void muonium_positional_options_init_sized(muonium_positional_options *options, size_t size)
{
    const muonium_positional_options defaults = {
        .struct_size = sizeof defaults, .momentum_form = MUONIUM_MOMENTUM_LERP, .momentum = 0.95};
    mu_versioned_init(options, size, &defaults, sizeof defaults);
}

static muonium_status read_positional_options(const muonium_positional_options *given,
                                              muonium_positional_options *options)
{
    muonium_positional_options read;
    muonium_positional_options_init(&read);
    muonium_status status =
        mu_versioned_read("muonium_positional_options", given, &read, sizeof read);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (read.momentum_form < MUONIUM_MOMENTUM_LERP ||
        read.momentum_form > MUONIUM_MOMENTUM_EMA_CORRECTED ||
        !(read.momentum >= 0 && read.momentum < 1)) {
        return mu_fail(MUONIUM_INVALID,
                       "momentum_form %d, momentum %g: use a form of muonium_momentum_form and a "
                       "momentum from 0 to below 1",
                       (int)read.momentum_form, read.momentum);
    }
    mu_state_refusal refusal = {"muonium_positional_options", "nothing was loaded", MUONIUM_INVALID,
                                false};
    *options = read;
    return mu_check_count(read.steps, NULL, &refusal);
}

static muonium_status load_by_position(muonium_optimizer *optimizer, list *l,
                                       const muonium_positional_options *given)
{
    muonium_positional_options options = {0};
    mu_incoming incoming = {0};
    muonium_status status = mu_need_state(optimizer, "load");
    if (status == MUONIUM_OK) {
        status = read_positional_options(given, &options);
    }
    if (status == MUONIUM_OK) {
        status = check_count(l, optimizer);
    }
    if (status == MUONIUM_OK && l->reader) {
        status = find_prefix(l);
    }
    if (status == MUONIUM_OK) {
        status = mu_incoming_begin(&incoming, optimizer);
    }
    if (status == MUONIUM_OK) {
        status = fit_all(l, &incoming, &options);
    }
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter();
        mu_reading reading = {.reader = l->reader, .label = l->label};
        status = mu_incoming_read(&incoming, &reading);
        mu_fenv_leave(environment);
    }
    if (status == MUONIUM_OK) {
        mu_incoming_adopt(&incoming);
        optimizer->counters.steps = options.steps;
    }
    mu_incoming_release(&incoming);
    list_release(l);
    return status;
}

muonium_status muonium_load_positional(muonium_optimizer *optimizer, const muonium_buffer *buffers,
                                       size_t count, const muonium_positional_options *options)
{
    if (optimizer && !buffers && count > 0) {
        return mu_fail(MUONIUM_INVALID, "buffers is NULL");
    }
    list l = {.buffers = buffers, .count = count, .label = "list of buffers"};
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, load_by_position(optimizer, &l, options))
                                : status;
}

muonium_status muonium_load_positional_reader(muonium_optimizer *optimizer,
                                              const muonium_reader *reader,
                                              const muonium_positional_options *options)
{
    if (!optimizer || !reader) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", optimizer ? "reader" : "optimizer");
    }
    list l = {
        .reader = reader, .count = muonium_reader_count(reader), .label = mu_reader_label(reader)};
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, load_by_position(optimizer, &l, options))
                                : status;
}
