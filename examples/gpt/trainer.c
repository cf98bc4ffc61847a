/*
 * trainer.c: the training loop. What adopts Muonium is make_optimizer and one call of
 * muonium_step.
 */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

enum {
    EVALUATIONS = 40,       /* during a run */
    VALIDATION_BATCHES = 2, /* each */
    WARM_UP = 20            /* steps; a tenth of a shorter run */
};

const char *gpt_label(const gpt_entrant *entrant)
{
    return strcmp(entrant->recipe, GPT_ADAMW) == 0   ? "AdamW"
           : strcmp(entrant->recipe, "muonium") == 0 ? "Muon"
                                                     : entrant->recipe;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the optimizer ---- */

/* The factor that `scale` puts on the update of a square matrix, in units of the factor that the
 * default recipe puts on it. */
static double relative_scale(muonium_scale scale, size_t width)
{
    const double usual = 0.2 * sqrt((double)width);
    return scale == MUONIUM_SCALE_MATCH_RMS_ADAMW ? 1
           : scale == MUONIUM_SCALE_RSQRT_IN      ? 1 / sqrt((double)width) / usual
                                                  : 1 / usual;
}

/* Muon for the matrices of the layers, AdamW for embedding, norms and head, recognised by their
 * names: the routing, the AdamW and the weight decay of the default recipe in every run, so that
 * recipes differ in what they do to matrices alone. What the learning rate of a recipe means
 * depends on its scale; AdamW gets the rate that it would have in the default recipe. For
 * comparison, the same with everything on AdamW. */
static muonium_status make_optimizer(const gpt_settings *settings, const gpt_entrant *entrant,
                                     gpt_run *run)
{
    const bool adamw = strcmp(entrant->recipe, GPT_ADAMW) == 0;
    muonium_options options, usual;
    muonium_status status = muonium_options_init(&usual, NULL);
    if (status == MUONIUM_OK) {
        status = muonium_options_init(&options, adamw ? NULL : entrant->recipe);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    options.lr = entrant->lr;
    options.adam_lr_scale = relative_scale(options.scale, settings->shape.width);
    options.adam_lr = usual.adam_lr;
    options.weight_decay = options.hyperball ? 0 : usual.weight_decay;
    options.adam_weight_decay = usual.adam_weight_decay;
    options.adam = usual.adam;
    options.adam_beta1 = adamw ? entrant->momentum : usual.adam_beta1;
    options.adam_beta2 = usual.adam_beta2;
    options.adam_eps = usual.adam_eps;
    options.routing = usual.routing;
    options.route = adamw ? MUONIUM_ROUTE_ADAM : MUONIUM_ROUTE_AUTO;
    *(options.fraction < 1 ? &options.ef_decay : &options.momentum) = entrant->momentum;
    if (settings->form != GPT_AS_RECIPE) {
        options.plan.form = (muonium_form)settings->form;
    }
    if (settings->precision != GPT_AS_RECIPE) {
        options.plan.precision = (muonium_dtype)settings->precision;
    }
    return muonium_create(&options, &run->optimizer);
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
    return gpt_pass_bytes(settings->shape, settings->sequences, muonium_threads()) +
           (double)settings->runs * per_run;
}

static muonium_status create_run(const gpt_settings *settings, size_t index, gpt_run *run)
{
    run->history = calloc(settings->steps + 1, sizeof *run->history);
    if (run->history == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the losses of %zu steps", settings->steps);
    }
    run->history[0] = (gpt_record){.train_loss = NAN, .validation_loss = NAN};
    muonium_status status = gpt_model_create(settings->shape, settings->seed, &run->model);
    if (status == MUONIUM_OK) {
        status = make_optimizer(settings, &settings->entrants[index], run);
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
    for (size_t i = 0; i < settings->runs && status == MUONIUM_OK; i++) {
        status = create_run(settings, i, &trainer->runs[i]);
    }
    if (status != MUONIUM_OK) {
        gpt_trainer_destroy(trainer);
    }
    return status;
}

void gpt_trainer_destroy(gpt_trainer *trainer)
{
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        gpt_run *run = &trainer->runs[i];
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

static muonium_status train_run(gpt_trainer *trainer, size_t index)
{
    const gpt_settings *settings = &trainer->settings;
    gpt_run *run = &trainer->runs[index];
    const double start = now();
    double loss =
        gpt_loss(trainer->pass, run->model, settings->sequences, trainer->tokens, trainer->targets);
    gpt_backward(trainer->pass, run->model);

    const double before_optimizer = now();
    const double lr = settings->entrants[index].lr * gpt_schedule(settings, trainer->step);
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

muonium_status gpt_trainer_step(gpt_trainer *trainer, size_t *failed)
{
    const gpt_settings *settings = &trainer->settings;
    gpt_corpus_draw(trainer->corpus, settings->seed, trainer->step, settings->sequences,
                    settings->shape.context, trainer->tokens, trainer->targets);
    for (size_t i = 0; i < settings->runs; i++) {
        muonium_status status = train_run(trainer, i);
        if (status != MUONIUM_OK) {
            *failed = i;
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

bool gpt_trainer_evaluate(gpt_trainer *trainer)
{
    const gpt_settings *settings = &trainer->settings;
    /* All runs are evaluated together, so the history of the first tells when. */
    if (!is_due(trainer) || !isnan(trainer->runs[0].history[trainer->step].validation_loss)) {
        return false;
    }
    double sum[GPT_RUNS_MOST] = {0};
    for (size_t i = 0; i < VALIDATION_BATCHES; i++) {
        gpt_corpus_validation(trainer->corpus, i, VALIDATION_BATCHES, settings->sequences,
                              settings->shape.context, trainer->tokens, trainer->targets);
        for (size_t r = 0; r < settings->runs; r++) {
            sum[r] += gpt_loss(trainer->pass, trainer->runs[r].model, settings->sequences,
                               trainer->tokens, trainer->targets);
        }
    }
    for (size_t r = 0; r < settings->runs; r++) {
        trainer->runs[r].history[trainer->step].validation_loss = sum[r] / VALIDATION_BATCHES;
    }
    return true;
}

size_t gpt_trainer_last_evaluated(const gpt_trainer *trainer)
{
    const gpt_record *history = trainer->runs[0].history;
    size_t step = trainer->step;
    while (step > 0 && isnan(history[step].validation_loss)) {
        step--;
    }
    return step;
}
