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
#define KEY_RUNS "muonium_demo.runs"
#define KEY_TEXT "muonium_demo.text"
#define HISTORY_FIELDS (sizeof(gpt_record) / sizeof(double))

/* ---- settings as text ---- */

/* Doubles in hexadecimal, which loses nothing. */
#define SETTINGS(size, u64, x64)                                                                   \
    "version=2 layers=" size " width=" size " heads=" size " context=" size " vocabulary=" size    \
    " sequences=" size " steps=" size " seed=" u64 " form=%d precision=%d text=" x64 " step=" size
#define RUN "%31[a-z0-9_] lr=%la momentum=%la;%n" /* of every run; the number is GPT_RECIPE_SIZE */

static void format_settings(const gpt_trainer *trainer, char *text, size_t size)
{
    const gpt_settings *s = &trainer->settings;
    snprintf(text, size, SETTINGS("%zu", "%" PRIu64, "%" PRIx64), s->shape.layers, s->shape.width,
             s->shape.heads, s->shape.context, s->shape.vocabulary, s->sequences, s->steps, s->seed,
             s->form, s->precision, trainer->corpus->checksum, trainer->step);
}

static void format_runs(const gpt_settings *settings, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < settings->runs && used < size; i++) {
        const gpt_entrant *entrant = &settings->entrants[i];
        used += (size_t)snprintf(text + used, size - used, "%s lr=%la momentum=%la;",
                                 entrant->recipe, entrant->lr, entrant->momentum);
    }
}

static bool parse_runs(const char *text, gpt_settings *settings)
{
    for (settings->runs = 0; text[0] != 0; settings->runs++) {
        int used = 0;
        gpt_entrant *entrant = &settings->entrants[settings->runs];
        if (settings->runs == GPT_RUNS_MOST ||
            sscanf(text, RUN, entrant->recipe, &entrant->lr, &entrant->momentum, &used) != 3 ||
            used == 0) {
            return false;
        }
        text += used;
    }
    return settings->runs > 0;
}

static bool is_choice(const char *type, int value)
{
    return value == GPT_AS_RECIPE || (value >= 0 && muonium_enum_name(type, value) != NULL);
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
           saved->step <= s->steps && is_choice("muonium_form", s->form) &&
           is_choice("muonium_dtype", s->precision);
}

static bool parse_settings(const char *text, gpt_saved *saved)
{
    gpt_settings *s = &saved->settings;
    int used = 0;
    const int fields = sscanf(text, SETTINGS("%zu", "%" SCNu64, "%" SCNx64) "%n", &s->shape.layers,
                              &s->shape.width, &s->shape.heads, &s->shape.context,
                              &s->shape.vocabulary, &s->sequences, &s->steps, &s->seed, &s->form,
                              &s->precision, &saved->text_checksum, &saved->step, &used);
    return fields == 12 && text[used] == 0 && is_sound(saved);
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
static muonium_status visit_run(const gpt_trainer *trainer, size_t index, size_t steps,
                                visitor *visit, void *context)
{
    const gpt_run *run = &trainer->runs[index];
    const char *name = trainer->settings.entrants[index].recipe;
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

static void name_optimizer(char name[64], const gpt_trainer *trainer, size_t index)
{
    snprintf(name, 64, "%s.optimizer", trainer->settings.entrants[index].recipe);
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

static muonium_status describe_run(const gpt_trainer *trainer, size_t index, muonium_writer *writer)
{
    muonium_status status = visit_run(trainer, index, trainer->step, describe_array, writer);
    uint64_t bytes = 0;
    if (status == MUONIUM_OK) {
        status = muonium_save_to(trainer->runs[index].optimizer, count_bytes, &bytes);
    }
    char name[64];
    name_optimizer(name, trainer, index);
    return status == MUONIUM_OK ? muonium_writer_add(writer, name, "U8", 1, &bytes) : status;
}

static muonium_status write_run(const gpt_trainer *trainer, size_t index, muonium_writer *writer)
{
    muonium_status status = visit_run(trainer, index, trainer->step, write_array, writer);
    return status == MUONIUM_OK
               ? muonium_save_to(trainer->runs[index].optimizer, write_bytes, writer)
               : status;
}

static muonium_status for_each_run(const gpt_trainer *trainer, muonium_writer *writer,
                                   muonium_status (*act)(const gpt_trainer *trainer, size_t index,
                                                         muonium_writer *writer))
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; i < trainer->settings.runs && status == MUONIUM_OK; i++) {
        status = act(trainer, i, writer);
    }
    return status;
}

muonium_status gpt_checkpoint_save(const gpt_trainer *trainer, const char *text_path,
                                   const char *path)
{
    char settings[512], runs[GPT_RUNS_MOST * 128];
    format_settings(trainer, settings, sizeof settings);
    format_runs(&trainer->settings, runs, sizeof runs);
    muonium_writer *writer = NULL;
    muonium_status status = muonium_writer_create(&writer);
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, KEY_SETTINGS, settings);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, KEY_RUNS, runs);
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
    const char *runs = muonium_reader_metadata(*reader, KEY_RUNS);
    saved->text_path = muonium_reader_metadata(*reader, KEY_TEXT);
    if (settings == NULL || runs == NULL || saved->text_path == NULL ||
        !parse_settings(settings, saved) || !parse_runs(runs, &saved->settings)) {
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

static muonium_status load_optimizer(const muonium_reader *reader, const gpt_trainer *trainer,
                                     size_t index)
{
    char name[64];
    name_optimizer(name, trainer, index);
    nested file = {reader, muonium_reader_find(reader, name)};
    if (file.entry == NULL || strcmp(file.entry->dtype, "U8") != 0) {
        return mu_fail(MUONIUM_FORMAT, "the checkpoint has no %s", name);
    }
    muonium_source source = {read_nested, &file, file.entry->bytes};
    return muonium_load_from(trainer->runs[index].optimizer, &source);
}

muonium_status gpt_checkpoint_load(const muonium_reader *reader, const gpt_saved *saved,
                                   gpt_trainer *trainer)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; i < trainer->settings.runs && status == MUONIUM_OK; i++) {
        status = visit_run(trainer, i, saved->step, read_array, (void *)(uintptr_t)reader);
        if (status == MUONIUM_OK) {
            status = load_optimizer(reader, trainer, i);
        }
    }
    if (status == MUONIUM_OK) {
        trainer->step = saved->step;
    }
    return status;
}
