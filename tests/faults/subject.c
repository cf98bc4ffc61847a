/*
 * subject.c: see subject.h.
 */
#include "subject.h"

#include "optimizer/optimizer.h"

/* ---- operations ---- */

static muonium_status create(subject *s)
{
    return muonium_create(&s->options, &s->m.optimizer);
}

static muonium_status add_group(subject *s)
{
    muonium_options options = s->options;
    options.lr = 0.5 * s->options.lr;
    return muonium_add_group(s->m.optimizer, &options, &s->group);
}

/* The next parameter that the optimizer lacks; every third to the second group. */
static muonium_status add(subject *s)
{
    size_t i = muonium_parameter_count(s->m.optimizer);
    muonium_tensor tensor = model_tensor(&s->m, i);
    return muonium_add(s->m.optimizer, &tensor, i % 3 == 2 ? s->group : NULL);
}

static void prepare_step(subject *s)
{
    model_set_grads(&s->m, s->next_step++);
    for (size_t i = 0; s->grad_scale != 1 && i < MODEL_PARAMETERS; i++) {
        for (size_t k = 0; k < model_elements(i); k++) {
            if (model_parameters[i].dtype == MUONIUM_F32) {
                s->m.grad[i][k] = (float)(s->grad_scale * (double)s->m.grad[i][k]);
            }
        }
    }
}

static muonium_status step(subject *s)
{
    return muonium_step(s->m.optimizer);
}

static muonium_status save_to_memory(subject *s)
{
    bytes saved = {0};
    muonium_status status = muonium_save_to(s->m.optimizer, bytes_append, &saved);
    if (status == MUONIUM_OK) {
        bytes_free(&s->saved);
        s->saved = saved;
    } else {
        bytes_free(&saved);
    }
    return status;
}

static bool read_bytes(void *context, uint64_t offset, void *buffer, size_t count)
{
    const bytes *from = context;
    memcpy(buffer, from->data + offset, count);
    return true;
}

static muonium_status load_from_memory(subject *s)
{
    muonium_source source = {read_bytes, &s->saved, s->saved.count};
    return muonium_load_from(s->m.optimizer, &source);
}

static muonium_status save_file(subject *s)
{
    return muonium_save(s->m.optimizer, s->path);
}

static muonium_status load_file(subject *s)
{
    return muonium_load(s->m.optimizer, s->path);
}

static muonium_status verify_file(subject *s)
{
    muonium_reader *reader = NULL;
    muonium_checkpoint_info info;
    muonium_status status = muonium_reader_open(s->path, &reader);
    if (status == MUONIUM_OK) {
        status = muonium_verify(reader, &info);
    }
    muonium_reader_close(reader);
    return status;
}

static muonium_status load_partially(subject *s)
{
    muonium_load_options options;
    muonium_load_report report;
    muonium_load_options_init(&options);
    options.partial = true;
    return model_load_with(&s->m, &s->saved, &options, &report);
}

static void hold(subject *s, const muonium_tensor *tensor, const void *data, muonium_dtype dtype)
{
    size_t elements = 1, i = s->buffer_count++;
    muonium_buffer *buffer = &s->buffers[i];
    *buffer = (muonium_buffer){.dtype = dtype, .ndim = tensor->ndim};
    for (size_t d = 0; d < tensor->ndim; d++) {
        buffer->shape[d] = tensor->shape[d];
        elements *= tensor->shape[d];
    }
    bytes_free(&s->held[i]);
    if (!bytes_append(&s->held[i], data, elements * muonium_dtype_size(dtype))) {
        abort();
    }
    buffer->data = s->held[i].data;
}

static void prepare_list(subject *s)
{
    s->buffer_count = 0;
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        muonium_state state;
        muonium_tensor tensor = model_tensor(&s->m, i);
        assert_ok(muonium_state_of(s->m.optimizer, i, &state));
        if (state.momentum != NULL) {
            hold(s, &tensor, state.momentum, state.momentum_dtype);
        } else {
            hold(s, &tensor, state.exp_avg, MUONIUM_F32);
            hold(s, &tensor, state.exp_avg_sq, MUONIUM_F32);
        }
    }
}

static muonium_status load_list(subject *s)
{
    muonium_positional_options options;
    muonium_positional_options_init(&options);
    options.steps = 5;
    return muonium_load_positional(s->m.optimizer, s->buffers, s->buffer_count, &options);
}

static muonium_status generate_coefficients(subject *s)
{
    muonium_status status = muonium_polar_express(SUBJECT_STEPS, 1e-3, 1e-2, 0.02, s->table[0]);
    return status == MUONIUM_OK ? muonium_polar_cubic(SUBJECT_STEPS, 1e-2, 0, s->table[1]) : status;
}

static void prepare_matrix(subject *s)
{
    memcpy(s->matrix, s->m.data[0], sizeof s->matrix);
}

static muonium_status orthogonalize_to(subject *s, int place, muonium_dtype precision)
{
    muonium_shape shape = {.batch = 1, .rows = SUBJECT_ROWS, .cols = SUBJECT_COLS};
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.precision = precision;
    muonium_view in = muonium_dense(MUONIUM_F32, shape, s->matrix);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, s->polar[place]);
    return muonium_orthogonalize(shape, &options, &in, &out, NULL);
}

static muonium_status orthogonalize(subject *s)
{
    return orthogonalize_to(s, 0, MUONIUM_F32);
}

static muonium_status orthogonalize_in_bf16(subject *s)
{
    return orthogonalize_to(s, 1, MUONIUM_BF16);
}

static muonium_status clip(subject *s)
{
    return muonium_clip_grads(s->m.optimizer, 0.5, false, &s->norm, &s->factor);
}

static muonium_status report(subject *s)
{
    muonium_counters counters;
    muonium_parameter_report reports[MODEL_PARAMETERS];
    muonium_status status = muonium_count(s->m.optimizer, &counters);
    for (size_t i = 0; status == MUONIUM_OK && i < MODEL_PARAMETERS; i++) {
        status = muonium_report(s->m.optimizer, i, &reports[i]);
    }
    if (status == MUONIUM_OK) {
        s->counters = counters;
        s->counters.scratch_bytes = s->counters.teams = s->counters.team_width =
            0; /* they depend on the threads */
        memcpy(s->reports, reports, sizeof reports);
    }
    return status;
}

/* A refusal, whose message has a number that is rounded. */
static muonium_status be_refused(subject *s)
{
    muonium_status status = muonium_set_momentum(s->m.optimizer, NULL, 1.0 + 1.0 / 3);
    snprintf(s->message, sizeof s->message, "%s", muonium_last_error());
    return status == MUONIUM_INVALID ? MUONIUM_OK : MUONIUM_INVALID;
}

static muonium_status change_options(subject *s)
{
    muonium_status status = muonium_set_lr(s->m.optimizer, NULL, 0.03);
    return status == MUONIUM_OK ? muonium_set_momentum(s->m.optimizer, s->group, 0.9) : status;
}

const operation life[] = {
    {"create", NULL, create},
    {"add a group", NULL, add_group},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"add", NULL, add},
    {"the first step", prepare_step, step},
    {"add after a step", NULL, add},
    {"a step with one more parameter", prepare_step, step},
    {"step", prepare_step, step},
    {"save to memory", NULL, save_to_memory},
    {"step", prepare_step, step},
    {"load from memory", NULL, load_from_memory},
    {"step", prepare_step, step},
    {"save a new file", NULL, save_file},
    {"step", prepare_step, step},
    {"replace a file", NULL, save_file},
    {"step", prepare_step, step},
    {"load a file", NULL, load_file},
    {"verify a file", NULL, verify_file},
    {"step", prepare_step, step},
    {"load partially", NULL, load_partially},
    {"load by position", prepare_list, load_list},
    {"step", prepare_step, step},
    {"coefficients", NULL, generate_coefficients},
    {"orthogonalize", prepare_matrix, orthogonalize},
    {"orthogonalize in bf16", prepare_matrix, orthogonalize_in_bf16},
    {"clip", NULL, clip},
    {"change options", NULL, change_options},
    {"report", NULL, report},
    {"be refused", NULL, be_refused},
    {"the last step", prepare_step, step},
};

const size_t life_length = sizeof life / sizeof life[0];

/* ---- the subject ---- */

const configuration *subject_configuration(const char *name)
{
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        if (strcmp(configurations[i].name, name) == 0) {
            return &configurations[i];
        }
    }
    fprintf(stderr, "no configuration is named %s\n", name);
    exit(2);
}

static void note_line(void *context, const char *line)
{
    subject *s = context;
    if (!bytes_append(&s->log, line, strlen(line) + 1)) {
        abort();
    }
}

void subject_begin(subject *s, const configuration *c, const char *file)
{
    memset(s, 0, sizeof *s);
    s->options = configure(c);
    s->options.log = note_line;
    s->options.log_context = s;
    s->grad_scale = 1;
    model_fill(&s->m);
    snprintf(s->path, sizeof s->path, "%s/%s", files_directory(), file);
    remove(s->path);
}

void subject_end(subject *s)
{
    model_destroy(&s->m);
    bytes_free(&s->saved);
    bytes_free(&s->log);
    for (size_t i = 0; i < sizeof s->held / sizeof s->held[0]; i++) {
        bytes_free(&s->held[i]);
    }
    remove(s->path);
}

muonium_status subject_live(subject *s, size_t from, size_t to)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = from; status == MUONIUM_OK && i < to; i++) {
        if (life[i].prepare != NULL) {
            life[i].prepare(s);
        }
        status = life[i].run(s);
    }
    return status;
}

/* ---- what can be seen ---- */

static void see(bytes *view, const void *data, size_t count)
{
    if (data != NULL && count > 0 && !bytes_append(view, data, count)) {
        abort();
    }
}

static void see_text(bytes *view, const char *text)
{
    see(view, text, strlen(text) + 1);
}

static void see_state(bytes *view, const muonium_optimizer *optimizer, size_t parameter)
{
    muonium_state state;
    muonium_certificate certificates[16];
    size_t count = 0;
    assert_ok(muonium_state_of(optimizer, parameter, &state));
    size_t floats = state.elements * sizeof(float), scales = state.blocks * sizeof(float);
    see(view, &state.steps, sizeof state.steps);
    see(view, state.momentum, state.elements * muonium_dtype_size(state.momentum_dtype));
    see(view, state.momentum_scale, scales);
    see(view, state.exp_avg, state.elements * muonium_dtype_size(state.exp_avg_dtype));
    see(view, state.exp_avg_scale, scales);
    see(view, state.exp_avg_sq, floats);
    see(view, state.normuon, state.rows * sizeof(float));
    see(view, state.master, floats);
    assert_ok(muonium_certificates(optimizer, parameter, certificates, 16, &count));
    see(view, certificates, (count < 16 ? count : 16) * sizeof certificates[0]);
}

static void see_report(bytes *view, const muonium_parameter_report *report)
{
    const double numbers[] = {
        (double)report->matrices,    (double)report->rows, (double)report->cols,
        (double)report->form,        report->restarts,     report->flops,
        (double)report->state_bytes, report->step_rms,     report->lr};
    see_text(view, report->reason);
    see(view, numbers, sizeof numbers);
}

bytes subject_view(const subject *s)
{
    bytes view = {0};
    see(&view, s->m.data, sizeof s->m.data);
    see(&view, s->m.grad, sizeof s->m.grad);
    see(&view, s->saved.data, s->saved.count);
    see(&view, s->table, sizeof s->table);
    see(&view, s->polar, sizeof s->polar);
    see(&view, &s->norm, sizeof s->norm);
    see(&view, &s->factor, sizeof s->factor);
    see(&view, &s->counters, sizeof s->counters);
    see_text(&view, s->message);
    for (size_t i = 0; i < MODEL_PARAMETERS && s->reports[i].reason != NULL; i++) {
        see_report(&view, &s->reports[i]);
    }
    bytes file = file_content(s->path);
    see(&view, file.data, file.count);
    bytes_free(&file);
    if (s->m.optimizer != NULL) {
        see(&view, &s->m.optimizer->counters, sizeof s->m.optimizer->counters);
        for (size_t i = 0; i < muonium_parameter_count(s->m.optimizer); i++) {
            see_state(&view, s->m.optimizer, i);
        }
    }
    return view;
}

bytes subject_whole_life(const configuration *c, const char *file)
{
    subject *s = malloc(sizeof *s);
    assert_non_null(s);
    subject_begin(s, c, file);
    assert_ok(subject_live(s, 0, life_length));
    bytes view = subject_view(s);
    see(&view, s->log.data, s->log.count);
    subject_end(s);
    free(s);
    return view;
}
