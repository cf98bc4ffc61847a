/*
 * callbacks.h: what the tests of callbacks share. A scene has all that calls need; an outer
 * call calls back, and the callback of a given number then makes an inner call on the same
 * optimizer, or fails.
 */
#ifndef MUONIUM_CALLBACKS_H
#define MUONIUM_CALLBACKS_H

#include "checkpoint_model.h"

typedef struct scene scene;

typedef struct inner_call {
    const char *name;
    muonium_status (*run)(scene *s);
    enum { READS, CHANGES, STEPS } kind; /* STEPS: not in `loss` either */
} inner_call;

struct scene {
    model m;
    bytes saved;            /* a state that differs from the optimizer's, and in lr too */
    muonium_reader *reader; /* of it, from a source that calls back */
    const char *path;       /* where files may go; of the state too */

    /* What is injected: */
    const char *callback;    /* into callbacks of this name; NULL: of any */
    long countdown;          /* into the one after so many */
    const inner_call *inner; /* NULL: it fails */

    bool injected;
    const char *where; /* in which callback */
    muonium_status status;
    char message[512];
    long calls; /* of callbacks, in all */
};

/* ---- callbacks ---- */

/* Called first in every callback; false if that is to fail. */
static inline bool callback_injects(scene *s, const char *name)
{
    if (s->callback != NULL && strcmp(s->callback, name) != 0) {
        return true;
    }
    s->calls++;
    if (s->injected || s->countdown-- != 0) {
        return true;
    }
    s->injected = true;
    s->where = name;
    if (s->inner == NULL) {
        return false;
    }
    s->status = s->inner->run(s);
    snprintf(s->message, sizeof s->message, "%s", muonium_last_error());
    return true;
}

static inline void callback_log(void *context, const char *line)
{
    (void)line;
    callback_injects(context, "log");
}

static inline void callback_progress(void *context, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    callback_injects(context, "progress");
}

static inline double callback_loss(void *context)
{
    callback_injects(context, "loss");
    return 0.5;
}

static inline bool callback_write(void *context, const void *data, size_t count)
{
    (void)data, (void)count;
    return callback_injects(context, "write");
}

static inline bool callback_read(void *context, uint64_t offset, void *buffer, size_t count)
{
    scene *s = context;
    memcpy(buffer, s->saved.data + offset, count);
    return callback_injects(s, "read");
}

/* ---- the scene ---- */

static inline muonium_source scene_source(scene *s)
{
    return (muonium_source){callback_read, s, s->saved.count};
}

static inline void scene_begin(scene *s, const char *path)
{
    muonium_options options;
    memset(s, 0, sizeof *s);
    s->path = path;
    s->countdown = -1;
    assert_ok(muonium_options_init(&options, NULL));
    options.lr = 0.5;
    assert_ok(model_create(&s->m, &options, 0, MODEL_PARAMETERS));
    assert_ok(model_steps(&s->m, 0, 3));
    s->saved = model_state(&s->m);
    model_destroy(&s->m);
    options.lr = 0.01;
    options.log = callback_log;
    options.log_context = s;
    assert_ok(model_create(&s->m, &options, 0, MODEL_PARAMETERS));
    model_set_grads(&s->m, 7);
    muonium_source source = scene_source(s);
    assert_ok(muonium_reader_open_source(&source, &s->reader));
    s->calls = 0;
}

static inline void scene_end(scene *s)
{
    muonium_reader_close(s->reader);
    model_destroy(&s->m);
    bytes_free(&s->saved);
    remove(s->path);
}

/* Parameters, gradients and state, complete. */
static inline bytes scene_view(const scene *s)
{
    bytes view = model_state(&s->m);
    bytes_append(&view, s->m.data, sizeof s->m.data);
    bytes_append(&view, s->m.grad, sizeof s->m.grad);
    return view;
}

/* ---- calls that call back ---- */

typedef struct outer_call {
    const char *name;
    muonium_status (*run)(scene *s);
} outer_call;

static inline muonium_status outer_step(scene *s)
{
    return muonium_step(s->m.optimizer);
}

static inline muonium_status outer_step_with(scene *s)
{
    return muonium_step_with(s->m.optimizer, callback_loss, s, NULL);
}

static inline muonium_status outer_save_to(scene *s)
{
    return muonium_save_to(s->m.optimizer, callback_write, s);
}

static inline muonium_status outer_save_prepare(scene *s)
{
    muonium_writer *writer = NULL;
    muonium_status status =
        muonium_save_prepare(s->m.optimizer, s->path, callback_progress, s, &writer);
    muonium_writer_destroy(writer);
    return status;
}

static inline muonium_status outer_load_from(scene *s)
{
    muonium_source source = scene_source(s);
    return muonium_load_from(s->m.optimizer, &source);
}

static inline muonium_status outer_load_reader(scene *s)
{
    muonium_load_options options;
    muonium_load_options_init(&options);
    options.progress = callback_progress;
    options.progress_context = s;
    return muonium_load_reader(s->m.optimizer, s->reader, &options, NULL);
}

/* A file with a zero buffer for every place in the list; `saved` is no longer needed. */
static inline void scene_make_positional(scene *s)
{
    static const float zeros[MODEL_LARGEST];
    muonium_writer *writer = NULL;
    bytes_free(&s->saved);
    assert_ok(muonium_writer_create(&writer));
    for (int write = 0; write < 2; write++) {
        size_t place = 0;
        for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
            muonium_parameter_report report;
            assert_ok(muonium_report(s->m.optimizer, i, &report));
            for (int k = 0; k < (report.muon ? 1 : 2); k++) {
                char name[8];
                uint64_t elements = model_elements(i);
                snprintf(name, sizeof name, "%zu", place++);
                assert_ok(write ? muonium_writer_data(writer, zeros, elements * sizeof zeros[0])
                                : muonium_writer_add(writer, name, "F32", 1, &elements));
            }
        }
        if (!write) {
            assert_ok(muonium_writer_begin_sink(writer, bytes_append, &s->saved));
        }
    }
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
}

static inline muonium_status outer_load_positional_reader(scene *s)
{
    long countdown = s->countdown; /* opening reads too, and is not what is tested */
    s->countdown = -1;
    scene_make_positional(s);
    muonium_source source = scene_source(s);
    muonium_reader *reader = NULL;
    assert_ok(muonium_reader_open_source(&source, &reader));
    s->countdown = countdown;
    s->calls = 0;
    muonium_status status = muonium_load_positional_reader(s->m.optimizer, reader, NULL);
    muonium_reader_close(reader);
    return status;
}

static const outer_call outer_calls[] = {
    {"muonium_step", outer_step},
    {"muonium_step_with", outer_step_with},
    {"muonium_save_to", outer_save_to},
    {"muonium_save_prepare", outer_save_prepare},
    {"muonium_load_from", outer_load_from},
    {"muonium_load_reader", outer_load_reader},
    {"muonium_load_positional_reader", outer_load_positional_reader},
};

enum { OUTER_CALLS = sizeof outer_calls / sizeof outer_calls[0] };

/* ---- calls within callbacks ---- */

static inline muonium_status inner_add(scene *s)
{
    static float more[16];
    return muonium_add(s->m.optimizer,
                       &(muonium_tensor){.name = "more", .ndim = 1, .shape = {16}, .data = more},
                       NULL);
}

static inline muonium_status inner_add_group(scene *s)
{
    muonium_group *group;
    return muonium_add_group(s->m.optimizer, NULL, &group);
}

static inline muonium_status inner_set_data(scene *s)
{
    return muonium_set_data(s->m.optimizer, 0, s->m.data[0]);
}

static inline muonium_status inner_set_grad(scene *s)
{
    return muonium_set_grad(s->m.optimizer, 0, s->m.grad[0]);
}

static inline muonium_status inner_set_lr(scene *s)
{
    return muonium_set_lr(s->m.optimizer, NULL, 0.25);
}

static inline muonium_status inner_set_weight_decay(scene *s)
{
    return muonium_set_weight_decay(s->m.optimizer, NULL, 0.25);
}

static inline muonium_status inner_set_momentum(scene *s)
{
    return muonium_set_momentum(s->m.optimizer, NULL, 0.25);
}

static inline muonium_status inner_step_at(scene *s)
{
    void *grads[MODEL_PARAMETERS] = {s->m.grad[0]};
    return muonium_step_at(s->m.optimizer, NULL, grads, MODEL_PARAMETERS);
}

static inline muonium_status inner_clip_grads(scene *s)
{
    return muonium_clip_grads(s->m.optimizer, 1e-3, false, NULL, NULL);
}

static inline muonium_status inner_zero_grads(scene *s)
{
    return muonium_zero_grads(s->m.optimizer);
}

static inline muonium_status inner_qk_clip(scene *s)
{
    const float logits[1] = {200};
    return muonium_qk_clip(
        s->m.optimizer,
        &(muonium_qk){
            .key_row = 4, .heads = 1, .head_dim = 4, .max_logits = logits, .threshold = 100},
        NULL);
}

static inline muonium_status inner_set_state(scene *s)
{
    return muonium_set_state(s->m.optimizer, 0, &(muonium_state){.elements = model_elements(0)});
}

static inline muonium_status inner_save(scene *s)
{
    return muonium_save(s->m.optimizer, s->path);
}

static inline muonium_status inner_load(scene *s)
{
    return muonium_load(s->m.optimizer, s->path);
}

static inline muonium_status inner_load_positional(scene *s)
{
    return muonium_load_positional(s->m.optimizer, NULL, 0, NULL);
}

static inline muonium_status inner_load_positional_reader(scene *s)
{
    return muonium_load_positional_reader(s->m.optimizer, s->reader, NULL);
}

/* It returns nothing: what it says is in the message. */
static inline muonium_status inner_destroy(scene *s)
{
    muonium_destroy(s->m.optimizer);
    return MUONIUM_INVALID;
}

static inline muonium_status inner_find(scene *s)
{
    size_t index;
    return muonium_find(s->m.optimizer, "ln.bias", &index);
}

static inline muonium_status inner_report(scene *s)
{
    muonium_parameter_report report;
    return muonium_report(s->m.optimizer, muonium_parameter_count(s->m.optimizer) - 1, &report);
}

static inline muonium_status inner_count(scene *s)
{
    muonium_counters counters;
    return muonium_count(s->m.optimizer, &counters);
}

static inline muonium_status inner_certificates(scene *s)
{
    muonium_certificate certificate;
    size_t count;
    return muonium_certificates(s->m.optimizer, 0, &certificate, 1, &count);
}

static inline muonium_status inner_state_of(scene *s)
{
    muonium_state state;
    return muonium_state_of(s->m.optimizer, 0, &state);
}

static inline muonium_status inner_grad_norm(scene *s)
{
    double norm;
    return muonium_grad_norm(s->m.optimizer, false, &norm);
}

static const inner_call inner_calls[] = {
    {"muonium_add", inner_add, CHANGES},
    {"muonium_add_group", inner_add_group, CHANGES},
    {"muonium_set_data", inner_set_data, CHANGES},
    {"muonium_set_grad", inner_set_grad, CHANGES},
    {"muonium_set_lr", inner_set_lr, CHANGES},
    {"muonium_set_weight_decay", inner_set_weight_decay, CHANGES},
    {"muonium_set_momentum", inner_set_momentum, CHANGES},
    {"muonium_clip_grads", inner_clip_grads, CHANGES},
    {"muonium_zero_grads", inner_zero_grads, CHANGES},
    {"muonium_qk_clip", inner_qk_clip, CHANGES},
    {"muonium_set_state", inner_set_state, CHANGES},
    {"muonium_save", inner_save, CHANGES},
    {"muonium_save_to", outer_save_to, CHANGES},
    {"muonium_save_prepare", outer_save_prepare, CHANGES},
    {"muonium_load", inner_load, CHANGES},
    {"muonium_load_from", outer_load_from, CHANGES},
    {"muonium_load_reader", outer_load_reader, CHANGES},
    {"muonium_load_positional", inner_load_positional, CHANGES},
    {"muonium_load_positional_reader", inner_load_positional_reader, CHANGES},
    {"muonium_step", outer_step, STEPS},
    {"muonium_step_at", inner_step_at, STEPS},
    {"muonium_step_with", outer_step_with, STEPS},
    {"muonium_destroy", inner_destroy, STEPS},
    {"muonium_find", inner_find, READS},
    {"muonium_report", inner_report, READS},
    {"muonium_count", inner_count, READS},
    {"muonium_certificates", inner_certificates, READS},
    {"muonium_state_of", inner_state_of, READS},
    {"muonium_grad_norm", inner_grad_norm, READS},
};

enum { INNER_CALLS = sizeof inner_calls / sizeof inner_calls[0] };

#endif
