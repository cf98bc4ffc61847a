/*
 * checkpoint.c: what a run consists of is written down once, as a function that visits
 * its arrays; saving describes and writes what is visited, loading reads it.
 */
#include "checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define KEY_SETTINGS "muonium_demo.settings"
#define KEY_TEXT "muonium_demo.text"
#define HISTORY_FIELDS (sizeof(gpt_record) / sizeof(double))

/* ---- settings as text ---- */

/* Doubles in hexadecimal, which loses nothing. */
#define SETTINGS(size, u64, x64)                                                                   \
    "version=1 layers=" size " width=" size " heads=" size " context=" size " vocabulary=" size    \
    " sequences=" size " steps=" size " seed=" u64 " adamw=%d adamw_lr=%la"                        \
    " adamw_momentum=%la muon=%d muon_lr=%la muon_momentum=%la form=%d text=" x64 " step=" size

static void format_settings(const gpt_trainer *trainer, char *text, size_t size)
{
    const gpt_settings *s = &trainer->settings;
    snprintf(text, size, SETTINGS("%zu", "%" PRIu64, "%" PRIx64), s->shape.layers, s->shape.width,
             s->shape.heads, s->shape.context, s->shape.vocabulary, s->sequences, s->steps, s->seed,
             s->with[GPT_ADAMW], s->lr[GPT_ADAMW], s->momentum[GPT_ADAMW], s->with[GPT_MUON],
             s->lr[GPT_MUON], s->momentum[GPT_MUON], (int)s->form, trainer->corpus->checksum,
             trainer->step);
}

/* A file may have been edited: what a training could not have is refused. */
static bool is_sound(const gpt_saved *saved)
{
    const gpt_settings *s = &saved->settings;
    const size_t most = 1 << 24;
    return s->shape.layers > 0 && s->shape.layers < most && s->shape.width > 0 &&
           s->shape.width < most && s->shape.heads > 0 &&
           s->shape.width % (2 * s->shape.heads) == 0 && s->shape.context > 0 &&
           s->shape.context < most && s->shape.vocabulary > 0 && s->shape.vocabulary <= 256 &&
           s->sequences > 0 && s->sequences < most && s->steps > 0 && s->steps < SIZE_MAX / 64 &&
           saved->step <= s->steps && (int)s->form >= 0 && s->form <= MUONIUM_FORM_QUINTIC &&
           (s->with[GPT_ADAMW] || s->with[GPT_MUON]);
}

static bool parse_settings(const char *text, gpt_saved *saved)
{
    gpt_settings *s = &saved->settings;
    int with[GPT_KINDS] = {0}, form = 0, used = 0;
    const int fields =
        sscanf(text, SETTINGS("%zu", "%" SCNu64, "%" SCNx64) "%n", &s->shape.layers,
               &s->shape.width, &s->shape.heads, &s->shape.context, &s->shape.vocabulary,
               &s->sequences, &s->steps, &s->seed, &with[GPT_ADAMW], &s->lr[GPT_ADAMW],
               &s->momentum[GPT_ADAMW], &with[GPT_MUON], &s->lr[GPT_MUON], &s->momentum[GPT_MUON],
               &form, &saved->text_checksum, &saved->step, &used);
    s->with[GPT_ADAMW] = with[GPT_ADAMW] != 0;
    s->with[GPT_MUON] = with[GPT_MUON] != 0;
    s->form = (muonium_form)form;
    return fields == 17 && text[used] == 0 && is_sound(saved);
}

/* ---- the arrays of a run ---- */

typedef struct array {
    char name[64];
    const char *dtype;
    size_t ndim;
    uint64_t shape[2];
    void *data;
    size_t bytes;
} array;

typedef muonium_status visitor(void *context, const array *visited);

/* Weights and history, in the order of the file. */
static muonium_status visit_run(const gpt_trainer *trainer, gpt_kind kind, size_t steps,
                                visitor *visit, void *context)
{
    const gpt_run *run = &trainer->runs[kind];
    const char *name = gpt_kind_names[kind];
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; i < run->model->parameter_count && status == MUONIUM_OK; i++) {
        const gpt_parameter *p = &run->model->parameters[i];
        array weights = {.dtype = "F32",
                         .ndim = p->ndim,
                         .shape = {p->rows, p->cols},
                         .data = run->model->weights + p->offset,
                         .bytes = p->rows * p->cols * sizeof(float)};
        snprintf(weights.name, sizeof weights.name, "%s.%s", name, p->name);
        status = visit(context, &weights);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    array history = {.dtype = "F64",
                     .ndim = 2,
                     .shape = {steps + 1, HISTORY_FIELDS},
                     .data = run->history,
                     .bytes = (steps + 1) * sizeof *run->history};
    snprintf(history.name, sizeof history.name, "%s.history", name);
    return visit(context, &history);
}

static void name_optimizer(char name[64], gpt_kind kind)
{
    snprintf(name, 64, "%s.optimizer", gpt_kind_names[kind]);
}

/* ---- saving ---- */

static bool count_bytes(void *context, const void *data, size_t bytes)
{
    (void)data;
    *(uint64_t *)context += bytes;
    return true;
}

static bool write_bytes(void *context, const void *data, size_t bytes)
{
    return muonium_writer_data(context, data, bytes) == MUONIUM_OK;
}

static muonium_status describe_array(void *context, const array *visited)
{
    return muonium_writer_add(context, visited->name, visited->dtype, visited->ndim,
                              visited->shape);
}

static muonium_status write_array(void *context, const array *visited)
{
    return muonium_writer_data(context, visited->data, visited->bytes);
}

static muonium_status describe_run(const gpt_trainer *trainer, gpt_kind kind,
                                   muonium_writer *writer)
{
    muonium_status status = visit_run(trainer, kind, trainer->step, describe_array, writer);
    uint64_t bytes = 0;
    if (status == MUONIUM_OK) {
        status = muonium_save_to(trainer->runs[kind].optimizer, count_bytes, &bytes);
    }
    char name[64];
    name_optimizer(name, kind);
    return status == MUONIUM_OK ? muonium_writer_add(writer, name, "U8", 1, &bytes) : status;
}

static muonium_status write_run(const gpt_trainer *trainer, gpt_kind kind, muonium_writer *writer)
{
    muonium_status status = visit_run(trainer, kind, trainer->step, write_array, writer);
    return status == MUONIUM_OK
               ? muonium_save_to(trainer->runs[kind].optimizer, write_bytes, writer)
               : status;
}

static muonium_status for_each_run(const gpt_trainer *trainer, muonium_writer *writer,
                                   muonium_status (*act)(const gpt_trainer *trainer, gpt_kind kind,
                                                         muonium_writer *writer))
{
    muonium_status status = MUONIUM_OK;
    for (int kind = 0; kind < GPT_KINDS && status == MUONIUM_OK; kind++) {
        if (trainer->settings.with[kind]) {
            status = act(trainer, (gpt_kind)kind, writer);
        }
    }
    return status;
}

muonium_status gpt_checkpoint_save(const gpt_trainer *trainer, const char *text_path,
                                   const char *path)
{
    char settings[512];
    format_settings(trainer, settings, sizeof settings);
    muonium_writer *writer = NULL;
    muonium_status status = muonium_writer_create(&writer);
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, KEY_SETTINGS, settings);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, KEY_TEXT, text_path);
    }
    if (status == MUONIUM_OK) {
        status = for_each_run(trainer, writer, describe_run);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_begin(writer, path);
    }
    if (status == MUONIUM_OK) {
        status = for_each_run(trainer, writer, write_run);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_finish(writer);
    }
    muonium_writer_destroy(writer);
    return status;
}

/* ---- loading ---- */

muonium_status gpt_checkpoint_open(const char *path, muonium_reader **reader, gpt_saved *saved)
{
    muonium_status status = muonium_reader_open(path, reader);
    if (status != MUONIUM_OK) {
        return status;
    }
    const char *settings = muonium_reader_metadata(*reader, KEY_SETTINGS);
    saved->text_path = muonium_reader_metadata(*reader, KEY_TEXT);
    if (settings == NULL || saved->text_path == NULL || !parse_settings(settings, saved)) {
        muonium_reader_close(*reader);
        *reader = NULL;
        return mu_fail(MUONIUM_FORMAT, "'%s' is not a checkpoint that this demo saved", path);
    }
    return MUONIUM_OK;
}

static muonium_status read_array(void *context, const array *visited)
{
    const muonium_reader *reader = context;
    const muonium_entry *entry = muonium_reader_find(reader, visited->name);
    if (entry == NULL || strcmp(entry->dtype, visited->dtype) != 0 ||
        entry->bytes != visited->bytes) {
        return mu_fail(MUONIUM_FORMAT, "the checkpoint has no %s of %zu bytes of %s", visited->name,
                       visited->bytes, visited->dtype);
    }
    return muonium_reader_read(reader, entry, 0, visited->data, visited->bytes);
}

/* The optimizer's checkpoint, as the file that it is, within ours. */
typedef struct nested {
    const muonium_reader *reader;
    const muonium_entry *entry;
} nested;

static bool read_nested(void *context, uint64_t offset, void *buffer, size_t bytes)
{
    const nested *file = context;
    return muonium_reader_read(file->reader, file->entry, offset, buffer, bytes) == MUONIUM_OK;
}

static muonium_status load_optimizer(const muonium_reader *reader, gpt_kind kind,
                                     muonium_optimizer *optimizer)
{
    char name[64];
    name_optimizer(name, kind);
    nested file = {reader, muonium_reader_find(reader, name)};
    if (file.entry == NULL || strcmp(file.entry->dtype, "U8") != 0) {
        return mu_fail(MUONIUM_FORMAT, "the checkpoint has no %s", name);
    }
    muonium_source source = {read_nested, &file, file.entry->bytes};
    return muonium_load_from(optimizer, &source);
}

muonium_status gpt_checkpoint_load(const muonium_reader *reader, const gpt_saved *saved,
                                   gpt_trainer *trainer)
{
    muonium_status status = MUONIUM_OK;
    for (int kind = 0; kind < GPT_KINDS && status == MUONIUM_OK; kind++) {
        if (!trainer->settings.with[kind]) {
            continue;
        }
        status =
            visit_run(trainer, (gpt_kind)kind, saved->step, read_array, (void *)(uintptr_t)reader);
        if (status == MUONIUM_OK) {
            status = load_optimizer(reader, (gpt_kind)kind, trainer->runs[kind].optimizer);
        }
    }
    if (status == MUONIUM_OK) {
        trainer->step = saved->step;
    }
    return status;
}
