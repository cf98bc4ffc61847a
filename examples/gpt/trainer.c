/*
 * trainer.c: the training loop. What adopts Muonium is make_optimizer and one call of
 * muonium_step.
 */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"

enum {
    EVALUATIONS = 40,       /* during a run */
    VALIDATION_BATCHES = 2, /* each */
    WARM_UP = 20            /* steps; a tenth of a shorter run */
};

const char *const gpt_kind_names[GPT_KINDS] = {[GPT_ADAMW] = "AdamW", [GPT_MUON] = "Muon"};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the optimizer ---- */

/* The default recipe of Muonium: Muon for the matrices of the layers, AdamW for
 * embedding, norms and head, recognised by their names. For comparison, the same with
 * everything on AdamW. */
static muonium_status make_optimizer(const gpt_settings *settings, gpt_kind kind,
                                     muonium_optimizer **optimizer)
{
    muonium_options options;
    muonium_status status = muonium_options_init(&options, NULL);
    if (status != MUONIUM_OK) {
        return status;
    }
    options.lr = settings->lr[kind];
    if (kind == GPT_ADAMW) {
        options.route = MUONIUM_ROUTE_ADAM;
        options.adam_beta1 = settings->momentum[kind];
    } else {
        options.momentum = settings->momentum[kind];
        options.plan.form = settings->form;
    }
    return muonium_create(&options, optimizer);
}

static muonium_status add_parameters(muonium_optimizer *optimizer, gpt_model *model)
{
    for (size_t i = 0; i < model->parameter_count; i++) {
        const gpt_parameter *p = &model->parameters[i];
        const size_t third = p->rows / 3, thirds[] = {third, third, third};
        muonium_tensor tensor = {
            .name = p->name,
            .dtype = MUONIUM_F32,
            .ndim = p->ndim,
            .shape = {p->rows, p->cols},
            .data = model->weights + p->offset,
            .grad = model->gradients + p->offset,
            .row_splits = p->fused ? thirds : NULL,
            .row_split_count = p->fused ? 3 : 0,
        };
        muonium_status status = muonium_add(optimizer, &tensor, NULL);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    return MUONIUM_OK;
}

/* ---- creation ---- */

double gpt_trainer_bytes(const gpt_settings *settings)
{
    /* Weights, gradients, and at most two arrays of optimizer state. */
    const double per_run = 4 * sizeof(float) * gpt_weight_count(settings->shape) +
                           sizeof(gpt_record) * (double)settings->steps;
    double bytes = gpt_pass_bytes(settings->shape, settings->sequences, muonium_threads());
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        bytes += settings->with[kind] ? per_run : 0;
    }
    return bytes;
}

static muonium_status create_run(const gpt_settings *settings, gpt_kind kind, gpt_run *run)
{
    run->history = calloc(settings->steps + 1, sizeof *run->history);
    if (run->history == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the losses of %zu steps", settings->steps);
    }
    run->history[0] = (gpt_record){.train_loss = NAN, .validation_loss = NAN};
    muonium_status status = gpt_model_create(settings->shape, settings->seed, &run->model);
    if (status == MUONIUM_OK) {
        status = make_optimizer(settings, kind, &run->optimizer);
    }
    return status == MUONIUM_OK ? add_parameters(run->optimizer, run->model) : status;
}

muonium_status gpt_trainer_create(const gpt_settings *settings, const gpt_corpus *corpus,
                                  gpt_trainer *trainer)
{
    *trainer = (gpt_trainer){.settings = *settings, .corpus = corpus};
    muonium_status status = gpt_pass_create(settings->shape, settings->sequences, &trainer->pass);
    const size_t batch = settings->sequences * settings->shape.context;
    trainer->tokens = malloc(batch);
    trainer->targets = malloc(batch);
    if (status == MUONIUM_OK && (trainer->tokens == NULL || trainer->targets == NULL)) {
        status = mu_fail(MUONIUM_NO_MEMORY, "no memory for a batch of %zu tokens", batch);
    }
    for (int kind = 0; kind < GPT_KINDS && status == MUONIUM_OK; kind++) {
        if (settings->with[kind]) {
            status = create_run(settings, (gpt_kind)kind, &trainer->runs[kind]);
        }
    }
    if (status != MUONIUM_OK) {
        gpt_trainer_destroy(trainer);
    }
    return status;
}

void gpt_trainer_destroy(gpt_trainer *trainer)
{
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        gpt_run *run = &trainer->runs[kind];
        muonium_destroy(run->optimizer);
        gpt_model_destroy(run->model);
        free(run->history);
    }
    gpt_pass_destroy(trainer->pass);
    free(trainer->tokens);
    free(trainer->targets);
    *trainer = (gpt_trainer){.step = 0};
}

/* ---- training ---- */

double gpt_schedule(const gpt_settings *settings, size_t step)
{
    const double tenth = (double)settings->steps / 10;
    const double warm_up = tenth < WARM_UP ? tenth : WARM_UP;
    const double rising = (double)(step + 1) / warm_up;
    const double falling = 1 - (double)step / (double)settings->steps;
    return rising < falling ? rising : falling;
}

static muonium_status train_run(gpt_trainer *trainer, gpt_kind kind)
{
    const gpt_settings *settings = &trainer->settings;
    gpt_run *run = &trainer->runs[kind];
    const double start = now();
    double loss =
        gpt_loss(trainer->pass, run->model, settings->sequences, trainer->tokens, trainer->targets);
    gpt_backward(trainer->pass, run->model);

    const double before_optimizer = now();
    const double lr = settings->lr[kind] * gpt_schedule(settings, trainer->step);
    muonium_status status = muonium_set_lr(run->optimizer, NULL, lr);
    if (status == MUONIUM_OK) {
        status = muonium_step(run->optimizer);
    }
    const double end = now();
    if (status == MUONIUM_OK) {
        const gpt_record *before = &run->history[trainer->step];
        run->history[trainer->step + 1] = (gpt_record){
            .train_loss = loss,
            .validation_loss = NAN,
            .seconds = before->seconds + (end - start),
            .optimizer_seconds = before->optimizer_seconds + (end - before_optimizer),
        };
    }
    return status;
}

muonium_status gpt_trainer_step(gpt_trainer *trainer, gpt_kind *failed)
{
    const gpt_settings *settings = &trainer->settings;
    gpt_corpus_draw(trainer->corpus, settings->seed, trainer->step, settings->sequences,
                    settings->shape.context, trainer->tokens, trainer->targets);
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        muonium_status status =
            settings->with[kind] ? train_run(trainer, (gpt_kind)kind) : MUONIUM_OK;
        if (status != MUONIUM_OK) {
            *failed = (gpt_kind)kind;
            return status;
        }
    }
    trainer->step++;
    return MUONIUM_OK;
}

static bool is_due(const gpt_trainer *trainer)
{
    const size_t steps = trainer->settings.steps;
    const size_t interval = steps > EVALUATIONS ? steps / EVALUATIONS : 1;
    return trainer->step % interval == 0 || trainer->step == steps;
}

/* All runs are evaluated together, so the history of any tells when. */
static const gpt_record *any_history(const gpt_trainer *trainer)
{
    return trainer->runs[trainer->settings.with[GPT_ADAMW] ? GPT_ADAMW : GPT_MUON].history;
}

bool gpt_trainer_evaluate(gpt_trainer *trainer)
{
    const gpt_settings *settings = &trainer->settings;
    if (!is_due(trainer) || !isnan(any_history(trainer)[trainer->step].validation_loss)) {
        return false;
    }
    double sum[GPT_KINDS] = {0};
    for (size_t i = 0; i < VALIDATION_BATCHES; i++) {
        gpt_corpus_validation(trainer->corpus, i, VALIDATION_BATCHES, settings->sequences,
                              settings->shape.context, trainer->tokens, trainer->targets);
        for (int kind = 0; kind < GPT_KINDS; kind++) {
            if (settings->with[kind]) {
                sum[kind] += gpt_loss(trainer->pass, trainer->runs[kind].model, settings->sequences,
                                      trainer->tokens, trainer->targets);
            }
        }
    }
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        if (settings->with[kind]) {
            trainer->runs[kind].history[trainer->step].validation_loss =
                sum[kind] / VALIDATION_BATCHES;
        }
    }
    return true;
}

size_t gpt_trainer_last_evaluated(const gpt_trainer *trainer)
{
    const gpt_record *history = any_history(trainer);
    size_t step = trainer->step;
    while (step > 0 && isnan(history[step].validation_loss)) {
        step--;
    }
    return step;
}
