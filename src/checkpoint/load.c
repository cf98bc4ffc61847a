/*
 * load.c: loads state by name. First the header is matched with the optimizer by names, shapes
 * and routes. Then the values are read and their checksums verified. Then the optimizer takes
 * them over.
 */
#include "checkpoint/incoming.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- lists for messages and reports ---- */

enum { LISTED = 3 }; /* items that a message names */

/* The first LISTED of `count` items. */
typedef struct listing {
    char text[640];
    size_t used;
    size_t count;
} listing;

MU_PRINTF(2, 3) static void list(listing *to, const char *format, ...)
{
    if (to->count++ >= LISTED) {
        return;
    }
    if (to->used > 0 && to->used + sizeof ", " < sizeof to->text) {
        memcpy(to->text + to->used, ", ", sizeof ", ");
        to->used += strlen(", ");
    }
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof to->text - to->used;
    size_t wrote = (size_t)vsnprintf(to->text + to->used, room, format, arguments);
    va_end(arguments);
    to->used += wrote < room ? wrote : room - 1;
}

/* ", and 5 more", or nothing. */
typedef struct more {
    char text[40];
} more;

static more more_of(const listing *from)
{
    more result = {""};
    if (from->count > LISTED) {
        snprintf(result.text, sizeof result.text, ", and %zu more", from->count - LISTED);
    }
    return result;
}

static void copy_listing(const listing *from, char text[256])
{
    more rest = more_of(from);
    snprintf(text, 256, "%.200s%s", from->text, rest.text);
    mu_clean(text); /* the cut may have split a character */
}

/* ---- matching ---- */

typedef struct loading {
    mu_incoming incoming;
    muonium_status (*take)(void *context, mu_incoming *incoming); /* NULL: read it here */
    void *take_context;
    const muonium_reader *reader;
    const char *label;
    muonium_load_options options;
    muonium_load_report report;
    bool *taken; /* per entry of the file */
    mu_text scratch;
    listing misfits, missing, left_over;
} loading;

/* The type of an entry of state. */
static bool state_dtype_of(const muonium_entry *entry, muonium_dtype *dtype)
{
    if (strcmp(entry->dtype, muonium_dtype_name(MUONIUM_INT8)) == 0) {
        *dtype = MUONIUM_INT8;
        return true;
    }
    return muonium_dtype_named(entry->dtype, dtype);
}

static bool is_int8(const muonium_entry *entry)
{
    muonium_dtype dtype;
    return entry && state_dtype_of(entry, &dtype) && dtype == MUONIUM_INT8;
}

/* The entry of an array of a parameter; NULL if the file has none. */
static muonium_status find_entry(loading *l, const mu_parameter *p, const mu_state_spec *spec,
                                 const muonium_entry **entry)
{
    const char *name = mu_join(&l->scratch, p->name, ".", spec->name);
    if (name == NULL) {
        return mu_state_no_memory();
    }
    *entry = muonium_reader_find(l->reader, name);
    return MUONIUM_OK;
}

static void miss(loading *l, const mu_parameter *p, const mu_state_spec *spec)
{
    mu_quoted name = mu_quote(p->name);
    list(&l->missing, "%s of %s", spec->name, name.text);
}

/* Whether shape and type of an entry suit the array; if not, lists why. */
static bool entry_fits(loading *l, const mu_state_array *array, const muonium_entry *entry,
                       muonium_dtype *dtype)
{
    mu_quoted name = mu_quote(entry->name);
    bool halves = array->spec->halves, integers = array->spec->scale != 0;
    if (!state_dtype_of(entry, dtype) ||
        !(*dtype == MUONIUM_F32 || (halves && *dtype == MUONIUM_BF16) ||
          (integers && *dtype == MUONIUM_INT8))) {
        list(&l->misfits, "%s is of type %.16s and not F32%s%s", name.text, entry->dtype,
             halves ? ", BF16" : "", integers ? " or I8" : "");
        return false;
    }
    if (entry->ndim != array->ndim ||
        (array->ndim > 0 &&
         memcmp(entry->shape, array->shape, array->ndim * sizeof array->shape[0]) != 0)) {
        mu_shape_text there = mu_format_shape(entry->ndim, entry->shape);
        mu_shape_text here = mu_format_shape(array->ndim, array->shape);
        list(&l->misfits, "%s has shape %s and not %s", name.text, there.text, here.text);
        return false;
    }
    return true;
}

/* The entries of an array. */
typedef struct found_array {
    const muonium_entry *values; /* NULL: the file has none */
    const muonium_entry *scales; /* of int8 values that become another type */
    bool computed;               /* scales that conversion to int8 will compute */
} found_array;

/* Whether an entry suits as scales; if not, lists why. */
static bool scales_fit(loading *l, const mu_state_array *array, const muonium_entry *scales)
{
    uint64_t blocks = mu_state_blocks(array->elements);
    if (strcmp(scales->dtype, "F32") == 0 && scales->ndim == 1 && scales->shape[0] == blocks) {
        return true;
    }
    mu_quoted name = mu_quote(scales->name);
    mu_shape_text there = mu_format_shape(scales->ndim, scales->shape);
    list(&l->misfits, "%s has type %.16s and shape %s and not F32 and [%" PRIu64 "]", name.text,
         scales->dtype, there.text, blocks);
    return false;
}

static void mark_taken(loading *l, const muonium_entry *entry)
{
    l->taken[entry - muonium_reader_entry(l->reader, 0)] = true;
}

static muonium_status take_array(loading *l, size_t parameter, const mu_state_array *array,
                                 const found_array *found, double factor)
{
    muonium_dtype dtype;
    muonium_status status = MUONIUM_OK;
    mark_taken(l, found->values);
    if (found->scales) {
        mark_taken(l, found->scales);
    }
    if (!entry_fits(l, array, found->values, &dtype) ||
        (found->scales && !scales_fit(l, array, found->scales))) {
        return MUONIUM_OK; /* continue, to list all misfits */
    }
    bool kept_integers = dtype == MUONIUM_INT8 && array->dtype == MUONIUM_INT8;
    bool scaled = array->spec->scaled_with_form && !kept_integers; /* else their scales are */
    mu_incoming_array *added =
        mu_incoming_add(&l->incoming, parameter, array, dtype, scaled ? factor : 1);
    added->entry = found->values;
    added->scale_entry = found->scales;
    l->report.converted += !mu_incoming_is_plain(added);
    if (found->scales) {
        status = mu_read_checksum(l->reader, found->scales, &l->scratch, &added->scale_crc);
    }
    return status == MUONIUM_OK
               ? mu_read_checksum(l->reader, found->values, &l->scratch, &added->crc)
               : status;
}

/* The factor between the momentum conventions of a record and of the parameter. */
static muonium_status factor_of(const loading *l, const mu_parameter *p, const mu_record *record,
                                double *factor)
{
    muonium_momentum_form form;
    double momentum;
    muonium_status status = mu_read_momentum(record->group, l->label, &form, &momentum);
    if (status == MUONIUM_OK) {
        *factor = mu_momentum_factor(form, momentum, p->group->options.momentum_form);
    }
    return status;
}

/* Whether int8 values become another type. */
static bool loses_scales(const mu_state_array *array, const muonium_entry *entry)
{
    return array->spec->scale != 0 && array->dtype != MUONIUM_INT8 && is_int8(entry);
}

static bool lacks_scales(const mu_state_array *array, const found_array *found)
{
    return loses_scales(array, found->values) && !found->scales;
}

/* Find the entries of all arrays of a parameter. */
static muonium_status find_arrays(loading *l, const mu_parameter *p, const mu_state_array *arrays,
                                  size_t count, found_array *found)
{
    muonium_status status = MUONIUM_OK;
    bool integers = false;
    for (size_t k = 0; status == MUONIUM_OK && k < count; k++) {
        const mu_state_spec *spec = arrays[k].spec;
        status = find_entry(l, p, spec, &found[k].values);
        integers = integers || (spec->scale != 0 && is_int8(found[k].values));
        if (status == MUONIUM_OK && loses_scales(&arrays[k], found[k].values)) {
            status = find_entry(l, p, mu_state_spec_of(spec->scale), &found[k].scales);
        }
        if (spec->per_block && !integers) { /* they follow their values in the table */
            found[k] = (found_array){.computed = true};
        }
    }
    return status;
}

static muonium_status take_parameter(loading *l, size_t index, const mu_record *record,
                                     const mu_state_array *arrays, size_t count)
{
    mu_parameter *p = l->incoming.optimizer->parameters[index];
    found_array found[MU_STATE_KINDS] = {0};
    bool complete = true, restart = false;
    /* A parameter that was never stepped has no master copy in the file. */
    bool no_master = record->steps == 0 || record->master_later;
    muonium_status status = find_arrays(l, p, arrays, count, found);
    for (size_t k = 0; status == MUONIUM_OK && k < count; k++) {
        const mu_state_spec *spec = arrays[k].spec;
        if (!found[k].values && spec->from_parameter && no_master) {
            restart = true;
        } else if (!found[k].values && !found[k].computed) {
            miss(l, p, spec);
            complete = complete && spec->optional;
        } else if (lacks_scales(&arrays[k], &found[k])) {
            miss(l, p, mu_state_spec_of(spec->scale));
            complete = false;
        }
    }
    double factor = 1;
    if (status == MUONIUM_OK && p->muon) {
        status = factor_of(l, p, record, &factor);
    }
    for (size_t k = 0; status == MUONIUM_OK && complete && k < count; k++) {
        if (found[k].values) {
            status = take_array(l, index, &arrays[k], &found[k], factor);
        } else if (found[k].computed) {
            mu_incoming_compute(&l->incoming, index, &arrays[k]);
        }
    }
    l->incoming.parameters[index] = (mu_incoming_parameter){
        .matched = complete, .steps = record->steps, .restart_master = restart};
    l->report.matched += complete;
    return status;
}

static muonium_status fit_parameter(loading *l, size_t index)
{
    const mu_parameter *p = l->incoming.optimizer->parameters[index];
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_state_arrays(p, arrays);
    mu_record record;
    bool found;
    muonium_status status = mu_read_record(l->reader, p->name, &l->scratch, &found, &record);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!found) {
        for (size_t k = 0; k < count; k++) {
            miss(l, p, arrays[k].spec);
        }
        return MUONIUM_OK;
    }
    if (record.muon != p->muon) {
        mu_quoted name = mu_quote(p->name);
        list(&l->misfits, "%s was stepped by %s and is now by %s (%s)", name.text,
             record.muon ? "Muon" : "AdamW", p->muon ? "Muon" : "AdamW", p->reason);
        return MUONIUM_OK;
    }
    return take_parameter(l, index, &record, arrays, count);
}

/* Fail if the lists say that the file does not fit. */
static muonium_status check_lists(loading *l)
{
    for (size_t i = 0; i < muonium_reader_count(l->reader); i++) {
        if (!l->taken[i]) {
            mu_quoted name = mu_quote(muonium_reader_entry(l->reader, i)->name);
            list(&l->left_over, "%s", name.text);
        }
    }
    if (l->misfits.count > 0) {
        more rest = more_of(&l->misfits);
        return mu_fail(MUONIUM_FORMAT, "%s does not fit the optimizer: %s%s; nothing was loaded",
                       l->label, l->misfits.text, rest.text);
    }
    if (!l->options.partial && (l->missing.count > 0 || l->left_over.count > 0)) {
        more rest_missing = more_of(&l->missing), rest_left = more_of(&l->left_over);
        return mu_fail(
            MUONIUM_FORMAT,
            "%s does not fit the optimizer: %s%s%s%s%s%s%s; nothing was loaded (partial loading "
            "loads what fits)",
            l->label, l->missing.count > 0 ? "it lacks " : "", l->missing.text, rest_missing.text,
            l->missing.count > 0 && l->left_over.count > 0 ? "; " : "",
            l->left_over.count > 0 ? "no parameter uses " : "", l->left_over.text, rest_left.text);
    }
    if (l->options.partial && l->report.matched == 0 && l->incoming.optimizer->count > 0) {
        more rest = more_of(&l->missing);
        return mu_fail(MUONIUM_FORMAT,
                       "%s has nothing for any parameter of the optimizer, not even %s%s: is it of "
                       "another model?",
                       l->label, l->missing.text, rest.text);
    }
    return MUONIUM_OK;
}

/* ---- logging changed options ---- */

typedef struct comparison {
    const muonium_optimizer *optimizer;
    const char *name; /* of a parameter of the group */
} comparison;

static void log_difference(void *context, const char *key, const char *saved, size_t saved_length,
                           const char *current, size_t current_length)
{
    enum { SHOWN = 100 };
    const comparison *c = context;
    char line[512], was[SHOWN + 1] = "unset", is[SHOWN + 1] = "unset";
    mu_quoted name = mu_quote(c->name);
    if (saved_length > 0) {
        snprintf(was, sizeof was, "%.*s", (int)(saved_length < SHOWN ? saved_length : SHOWN),
                 saved);
    }
    if (current_length > 0) {
        snprintf(is, sizeof is, "%.*s", (int)(current_length < SHOWN ? current_length : SHOWN),
                 current);
    }
    snprintf(line, sizeof line, "%s of the group of %s was %s when its state was saved, is %s", key,
             name.text, was, is);
    mu_log(c->optimizer, line);
}

/* Log how the options of a group differ from those that its parameter p was saved with. */
static muonium_status log_group(loading *l, const mu_parameter *p, mu_text *current)
{
    comparison c = {l->incoming.optimizer, p->name};
    mu_record record = {0};
    bool found;
    current->count = 0;
    if (!mu_add_options(current, &p->group->options) || !mu_text_reserve(current, 1)) {
        return mu_state_no_memory();
    }
    mu_text_add(current, "", 1);
    muonium_status status = mu_read_record(l->reader, c.name, &l->scratch, &found, &record);
    if (status == MUONIUM_OK) {
        mu_compare_options(record.group, current->bytes, log_difference, &c);
    }
    return status;
}

/* One comparison per group, with its first parameter that the file has. */
static muonium_status log_changes(loading *l)
{
    const muonium_optimizer *optimizer = l->incoming.optimizer;
    size_t groups = optimizer->last_group->number + 1;
    const mu_parameter **first = mu_alloc_zeroed(groups * sizeof *first);
    mu_text current = {0};
    muonium_status status = first ? MUONIUM_OK : mu_state_no_memory();
    for (size_t i = optimizer->count; first && i-- > 0;) {
        const mu_parameter *p = optimizer->parameters[i];
        if (l->incoming.parameters[i].matched) {
            first[p->group->number] = p;
        }
    }
    for (size_t g = 0; status == MUONIUM_OK && g < groups; g++) {
        status = first[g] ? log_group(l, first[g], &current) : MUONIUM_OK;
    }
    mu_text_release(&current);
    mu_free(first);
    return status;
}

/* ---- all of it ---- */

static muonium_status read_values(loading *l)
{
    mu_reading reading = {.reader = l->reader,
                          .label = l->label,
                          .checksums = true,
                          .progress = l->options.progress,
                          .progress_context = l->options.progress_context};
    return l->take ? l->take(l->take_context, &l->incoming)
                   : mu_incoming_read(&l->incoming, &reading);
}

static muonium_status read_state(loading *l, muonium_optimizer *optimizer,
                                 muonium_counters *counters)
{
    muonium_status status = l->take ? MUONIUM_OK : mu_need_state(optimizer, "load");
    if (status == MUONIUM_OK) {
        status = mu_check_state_file(l->reader);
    }
    if (status == MUONIUM_OK) {
        status = mu_read_counters(l->reader, counters);
    }
    if (status == MUONIUM_OK) {
        status = mu_incoming_begin(&l->incoming, optimizer);
    }
    if (status == MUONIUM_OK) {
        l->taken = mu_alloc_zeroed(muonium_reader_count(l->reader));
        status = l->taken ? MUONIUM_OK : mu_state_no_memory();
    }
    for (size_t i = 0; status == MUONIUM_OK && i < optimizer->count; i++) {
        status = fit_parameter(l, i);
    }
    if (status == MUONIUM_OK) {
        status = check_lists(l);
    }
    if (status == MUONIUM_OK && optimizer->log) {
        status = log_changes(l);
    }
    if (status == MUONIUM_OK) {
        status = read_values(l);
    }
    return status;
}

static void take_over(loading *l, const muonium_counters *counters, muonium_load_report *report,
                      size_t report_size)
{
    muonium_counters *own = &l->incoming.optimizer->counters;
    mu_incoming_adopt(&l->incoming);
    own->steps = counters->steps;
    own->matrices = counters->matrices;
    own->skipped = counters->skipped;
    own->rescued = counters->rescued;
    own->zero = counters->zero;
    if (report) {
        l->report.missing = l->missing.count;
        l->report.left_over = l->left_over.count;
        copy_listing(&l->missing, l->report.missing_names);
        copy_listing(&l->left_over, l->report.left_over_names);
        mu_sized_write(report, report_size, &l->report, sizeof l->report);
    }
}

static muonium_status load_by_name(loading *l, muonium_optimizer *optimizer,
                                   muonium_load_report *report, size_t report_size)
{
    muonium_counters counters = {0};
    mu_reader_hold(l->reader);
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = read_state(l, optimizer, &counters);
    mu_fenv_leave(environment);
    if (status == MUONIUM_OK) {
        take_over(l, &counters, report, report_size);
    }
    mu_incoming_release(&l->incoming);
    mu_reader_release(l->reader);
    mu_free(l->taken);
    mu_text_release(&l->scratch);
    return status;
}

void muonium_load_options_init_sized(muonium_load_options *options, size_t size)
{
    const muonium_load_options defaults = {.struct_size = sizeof defaults};
    mu_versioned_init(options, size, &defaults, sizeof defaults);
}

static muonium_status load_reader(muonium_optimizer *optimizer, const muonium_reader *reader,
                                  const muonium_load_options *options, muonium_load_report *report,
                                  size_t report_size)
{
    if (!reader) {
        return mu_fail(MUONIUM_INVALID, "reader is NULL");
    }
    loading l = {.reader = reader, .label = mu_reader_label(reader)};
    muonium_status status =
        mu_versioned_read("muonium_load_options", options, &l.options, sizeof l.options);
    return status == MUONIUM_OK ? load_by_name(&l, optimizer, report, report_size) : status;
}

muonium_status muonium_load_reader_sized(muonium_optimizer *optimizer, const muonium_reader *reader,
                                         const muonium_load_options *options,
                                         muonium_load_report *report, size_t size)
{
    muonium_status status = mu_enter(optimizer, "muonium_load_reader");
    if (status == MUONIUM_OK) {
        status = load_reader(optimizer, reader, options, report, size);
        mu_leave(optimizer, status);
    }
    return status;
}

muonium_status mu_load_into(muonium_optimizer *description, const muonium_reader *reader,
                            muonium_status (*take)(void *context, mu_incoming *incoming),
                            void *context)
{
    loading l = {
        .reader = reader, .label = mu_reader_label(reader), .take = take, .take_context = context};
    muonium_status status = mu_enter(description, "muonium_mpi_load");
    return status == MUONIUM_OK ? mu_leave(description, load_by_name(&l, description, NULL, 0))
                                : status;
}

static muonium_status load_and_close(muonium_optimizer *optimizer, muonium_reader *reader)
{
    muonium_status status = load_reader(optimizer, reader, NULL, NULL, 0);
    muonium_reader_close(reader);
    return status;
}

muonium_status muonium_load(muonium_optimizer *optimizer, const char *path)
{
    muonium_reader *reader = NULL;
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = muonium_reader_open(path, &reader);
    return mu_leave(optimizer, status == MUONIUM_OK ? load_and_close(optimizer, reader) : status);
}

muonium_status muonium_load_from(muonium_optimizer *optimizer, const muonium_source *source)
{
    muonium_reader *reader = NULL;
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = muonium_reader_open_source(source, &reader);
    return mu_leave(optimizer, status == MUONIUM_OK ? load_and_close(optimizer, reader) : status);
}
