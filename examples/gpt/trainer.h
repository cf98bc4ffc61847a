/*
 * trainer.h: training runs side by side: models that start from the same weights, see the
 * same batches under the same schedule, and differ in their optimizer alone.
 */
#ifndef GPT_TRAINER_H
#define GPT_TRAINER_H

#include "corpus.h"
#include "model.h"

enum { GPT_RUNS_MOST = 8, GPT_RECIPE_SIZE = 32 };

#define GPT_ADAMW "adamw" /* AdamW for all parameters, beside the names of recipes */

/* An optimizer that takes part. */
typedef struct gpt_entrant {
    char recipe[GPT_RECIPE_SIZE]; /* GPT_ADAMW or a recipe of the library */
    double lr;
    double momentum; /* AdamW: beta1; recipes that apply a fraction: ef_decay */
} gpt_entrant;

/* What people read: "AdamW", "Muon" for the default recipe, else the name of the recipe. */
const char *gpt_label(const gpt_entrant *entrant);

/* All that decides what a training computes. */
typedef struct gpt_settings {
    gpt_shape shape; /* vocabulary: that of the corpus */
    size_t sequences;
    size_t steps;
    uint64_t seed;
    size_t runs; /* 1 to GPT_RUNS_MOST, with different recipes */
    gpt_entrant entrants[GPT_RUNS_MOST];
    int form;      /* a muonium_form for Muon's orthogonalisation, or GPT_AS_RECIPE */
    int precision; /* a muonium_dtype for the same, or GPT_AS_RECIPE */
} gpt_settings;

#define GPT_AS_RECIPE (-1)

/* Where a run stood after some number of steps. */
typedef struct gpt_record {
    double train_loss;        /* of the batch of the last step; NaN before the first */
    double validation_loss;   /* NaN where it was not evaluated */
    double seconds;           /* of training so far, evaluations left out */
    double optimizer_seconds; /* the part of it spent in the optimizer */
} gpt_record;

typedef struct gpt_run {
    gpt_model *model;
    muonium_optimizer *optimizer;
    gpt_record *history; /* by steps taken, from 0 */
} gpt_run;

typedef struct gpt_trainer {
    gpt_settings settings;
    const gpt_corpus *corpus;
    gpt_pass *pass;
    unsigned char *tokens, *targets; /* of a batch */
    size_t step;                     /* steps taken */
    gpt_run runs[GPT_RUNS_MOST];     /* settings.runs of them */
} gpt_trainer;

/* The memory that a training takes, about, in bytes. */
double gpt_trainer_bytes(const gpt_settings *settings);

/* Make the models and optimizers. The corpus must outlive the trainer. */
muonium_status gpt_trainer_create(const gpt_settings *settings, const gpt_corpus *corpus,
                                  gpt_trainer *trainer);
void gpt_trainer_destroy(gpt_trainer *trainer);

/* One step of every run. On failure, which the last error explains, `failed` is the run. */
muonium_status gpt_trainer_step(gpt_trainer *trainer, size_t *failed);

/* Evaluate the runs if they are to be evaluated after this number of steps and have not
 * been; whether that was so. */
bool gpt_trainer_evaluate(gpt_trainer *trainer);

/* The last step at which the runs were evaluated. */
size_t gpt_trainer_last_evaluated(const gpt_trainer *trainer);

/* The factor on the learning rates at a step: a short linear warm-up, then a straight
 * line to zero at the end. */
double gpt_schedule(const gpt_settings *settings, size_t step);

#endif
