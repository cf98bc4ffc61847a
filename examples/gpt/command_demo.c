/*
 * command_demo.c: `muonium demo`: the same small GPT trained with AdamW and with Muon.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "command.h"
#include "file.h"
#include "plot.h"
#include "progress.h"
#include "report.h"
#include "settings.h"
#include "text.h"

enum {
    STEPS,
    SIZE,
    OPTIMIZER,
    COMPARE,
    LR,
    MOMENTUM,
    FORM,
    PRECISION,
    SEED,
    DATA,
    SAMPLE,
    PLOT,
    CSV,
    JSON,
    THREADS,
    CHECKPOINT,
    RESUME
};

/* What --optimizer names, and the same as --compare. */
static const char *const optimizers[] = {"both", "adamw", "muon", NULL};
static const char *const optimizer_runs[] = {GPT_ADAMW ",muonium", GPT_ADAMW, "muonium"};

static const char *form_name(int index)
{
    return muonium_enum_name("muonium_form", index);
}

static const char *precision_name(int index)
{
    return muonium_enum_name("muonium_dtype", index);
}

static const option options[] = {
    [STEPS] = {.name = "steps",
               .letter = 'n',
               .type = OPTION_INTEGER,
               .placeholder = "N",
               .fallback = "200",
               .least = 1,
               .most = 10000000,
               .help = "number of training steps"},
    [SIZE] = {.name = "size",
              .type = OPTION_TEXT,
              .placeholder = "SIZE",
              .fallback = "small",
              .choice_name = gpt_size_name,
              .help = "tiny, small, medium, large, or layers x width, such as 6x384, "
                      "or layers x width x context, such as 6x384x256"},
    [OPTIMIZER] = {.name = "optimizer",
                   .type = OPTION_CHOICE,
                   .placeholder = "NAME",
                   .fallback = "both",
                   .choices = optimizers,
                   .help = "AdamW, Muon, or both"},
    [COMPARE] = {.name = "compare",
                 .type = OPTION_TEXT,
                 .placeholder = "NAMES",
                 .help = "compare adamw and recipes, such as adamw,muonium,dion2"},
    [LR] = {.name = "lr",
            .type = OPTION_TEXT,
            .placeholder = "RATES",
            .help = "learning rate of each optimizer, such as 0.003,0.03; by default the tuned "
                    "ones, or those of the recipe"},
    [MOMENTUM] = {.name = "momentum",
                  .type = OPTION_TEXT,
                  .placeholder = "M",
                  .help = "momentum of each optimizer (beta1 of AdamW, ef_decay of dion2), such as "
                          "0.9,0.95; by default the tuned ones, or those of the recipe"},
    [FORM] = {.name = "form",
              .type = OPTION_CHOICE,
              .placeholder = "FORM",
              .choice_name = form_name,
              .help = "form of the iteration; by default that of the recipe"},
    [PRECISION] = {.name = "precision",
                   .type = OPTION_CHOICE,
                   .placeholder = "NAME",
                   .choice_name = precision_name,
                   .help = "precision of the iteration; by default that of the recipe"},
    [SEED] = {.name = "seed",
              .type = OPTION_INTEGER,
              .placeholder = "N",
              .fallback = "1",
              .least = 0,
              .most = 2147483647,
              .help = "seed of initial weights, batches and samples"},
    [DATA] = {.name = "data",
              .type = OPTION_FILE,
              .placeholder = "FILE",
              .help = "text to train on, any bytes; by default two novels by Jane "
                      "Austen"},
    [SAMPLE] = {.name = "sample",
                .type = OPTION_INTEGER,
                .placeholder = "N",
                .fallback = "400",
                .least = 0,
                .most = 1000000,
                .help = "number of characters that each model writes at the end"},
    [PLOT] = {.name = "plot",
              .type = OPTION_FILE,
              .placeholder = "FILE",
              .fallback = "demo.svg",
              .help = "write the loss curves to FILE"},
    [CSV] = {.name = "csv",
             .type = OPTION_FILE,
             .placeholder = "FILE",
             .help = "write the losses of every step to FILE"},
    [JSON] = {.name = "json",
              .type = OPTION_FLAG,
              .help = "print the result as JSON and nothing else"},
    [THREADS] = {.name = "threads",
                 .type = OPTION_INTEGER,
                 .placeholder = "N",
                 .least = 1,
                 .most = 1024,
                 .help = "number of threads, by default one per CPU; does not change "
                         "results"},
    [CHECKPOINT] = {.name = "checkpoint",
                    .type = OPTION_FILE,
                    .placeholder = "FILE",
                    .help = "file for an interrupted training; by default the file of "
                            "--resume, or demo.safetensors"},
    [RESUME] = {.name = "resume",
                .type = OPTION_FILE,
                .placeholder = "FILE",
                .help = "continue an interrupted training"},
};

static const option_clash clashes[] = {
    {RESUME, STEPS},     {RESUME, SIZE},       {RESUME, OPTIMIZER}, {RESUME, COMPARE},
    {RESUME, LR},        {RESUME, MOMENTUM},   {RESUME, SEED},      {RESUME, FORM},
    {RESUME, PRECISION}, {COMPARE, OPTIMIZER},
};

/* What a run of the command holds, released in one place. */
typedef struct demo {
    const command *self;
    const option_value *value;
    gpt_settings settings;
    muonium_reader *reader; /* with --resume */
    gpt_saved saved;
    const char *text_path; /* "" for the built-in text */
    const char *text_name;
    const char *checkpoint;
    gpt_corpus corpus;
    gpt_trainer trainer;
} demo;

/* ---- before training ---- */

static int read_settings(demo *d)
{
    const option_value *value = d->value;
    gpt_settings *settings = &d->settings;
    problem what;
    settings->steps = (size_t)value[STEPS].integer;
    settings->seed = (uint64_t)value[SEED].integer;
    settings->form = value[FORM].given ? value[FORM].choice : GPT_AS_RECIPE;
    settings->precision = value[PRECISION].given ? value[PRECISION].choice : GPT_AS_RECIPE;
    const char *runs =
        value[COMPARE].given ? value[COMPARE].text : optimizer_runs[value[OPTIMIZER].choice];
    const bool parsed =
        gpt_parse_size(value[SIZE].text, settings, &what) &&
        gpt_parse_runs(runs, settings, &what) &&
        (!value[LR].given || gpt_parse_rates(value[LR].text, settings, &what)) &&
        (!value[MOMENTUM].given || gpt_parse_momenta(value[MOMENTUM].text, settings, &what));
    return parsed ? EXIT_OK : message_usage(d->self->name, "%s", what.text);
}

static int open_checkpoint(demo *d)
{
    muonium_status status = gpt_checkpoint_open(d->value[RESUME].text, &d->reader, &d->saved);
    if (status != MUONIUM_OK) {
        return message_failed(d->self->name, "%s", muonium_last_error());
    }
    d->settings = d->saved.settings;
    return EXIT_OK;
}

static int read_text(demo *d)
{
    d->text_path = d->value[DATA].given ? d->value[DATA].text
                   : d->reader != NULL  ? d->saved.text_path
                                        : "";
    const bool builtin = d->text_path[0] == 0;
    d->text_name = builtin ? "two novels by Jane Austen" : d->text_path;
    size_t size;
    problem what;
    unsigned char *read = builtin ? NULL : file_read(d->text_path, &size, &what);
    if (!builtin && read == NULL) {
        return message_failed(d->self->name, "%s", what.text);
    }
    const unsigned char *text = builtin ? gpt_corpus_builtin(&size) : read;
    const bool made = gpt_corpus_create(text, size, d->settings.shape.context, &d->corpus, &what);
    free(read);
    if (!made) {
        return message_failed(d->self->name, "'%s': %s", d->text_name, what.text);
    }
    if (d->reader != NULL && d->corpus.checksum != d->saved.text_checksum) {
        return message_failed(d->self->name,
                              "'%s' is not the text that the training in '%s' started with",
                              d->text_name, d->value[RESUME].text);
    }
    d->settings.shape.vocabulary = d->corpus.vocabulary;
    return EXIT_OK;
}

/* All that can be known to fail later fails here, before minutes are spent. */
static int check_feasible(demo *d)
{
    const option_value *value = d->value;
    d->checkpoint = value[CHECKPOINT].given ? value[CHECKPOINT].text
                    : value[RESUME].given   ? value[RESUME].text
                                            : "demo.safetensors";
    problem what;
    if (!gpt_check_memory(&d->settings, &what)) {
        return message_failed(d->self->name, "%s", what.text);
    }
    const struct {
        int option;
        const char *path;
    } outputs[] = {{PLOT, value[PLOT].text}, {CHECKPOINT, d->checkpoint}, {CSV, value[CSV].text}};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (outputs[i].path != NULL && !gpt_check_writable(outputs[i].path, &what)) {
            return message_failed(d->self->name, "%s; choose another place with --%s", what.text,
                                  options[outputs[i].option].name);
        }
    }
    return EXIT_OK;
}

static int prepare(demo *d)
{
    if (d->value[THREADS].given) {
        muonium_status status = muonium_set_threads(d->value[THREADS].integer);
        if (status != MUONIUM_OK) {
            return message_status(d->self->name, status);
        }
    }
    int code = d->value[RESUME].given ? open_checkpoint(d) : read_settings(d);
    code = code == EXIT_OK ? read_text(d) : code;
    code = code == EXIT_OK ? check_feasible(d) : code;
    if (code != EXIT_OK) {
        return code;
    }
    muonium_status status = gpt_trainer_create(&d->settings, &d->corpus, &d->trainer);
    if (status == MUONIUM_OK && d->reader != NULL) {
        status = gpt_checkpoint_load(d->reader, &d->saved, &d->trainer);
    }
    return status == MUONIUM_OK ? EXIT_OK
                                : message_failed(d->self->name, "%s", muonium_last_error());
}

/* ---- training ---- */

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* The first signal ends the training after its step; a second one ends the program. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL); /* the terminal is closed */
}

/* What follows the training has nothing to save, and a signal ends it at once. */
static void release_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static int save_and_stop(demo *d)
{
    const gpt_trainer *trainer = &d->trainer;
    if (gpt_checkpoint_save(trainer, d->text_path, d->checkpoint) != MUONIUM_OK) {
        return message_failed(d->self->name, "interrupted after step %zu, and not saved: %s",
                              trainer->step, muonium_last_error());
    }
    return message_failed(d->self->name,
                          "interrupted after step %zu of %zu and saved; go on with\n"
                          "    muonium demo --resume '%s'",
                          trainer->step, trainer->settings.steps, d->checkpoint);
}

static int explain_failure(const demo *d, muonium_status status, size_t failed)
{
    const size_t step = d->trainer.step + 1;
    const char *label = gpt_label(&d->settings.entrants[failed]);
    if (status == MUONIUM_NON_FINITE) {
        return message_failed(d->self->name,
                              "%s diverged: in step %zu its gradients are no longer finite; try a "
                              "smaller --lr",
                              label, step);
    }
    return message_failed(d->self->name, "%s failed in step %zu: %s", label, step,
                          muonium_last_error());
}

/* A line stays on the screen for every tenth of the steps. */
static bool deserves_line(const gpt_trainer *trainer)
{
    const size_t steps = trainer->settings.steps;
    return trainer->step == 0 || trainer->step * 10 / steps > (trainer->step - 1) * 10 / steps;
}

static int train(demo *d)
{
    gpt_trainer *trainer = &d->trainer;
    const bool talkative = !d->value[JSON].given;
    bool heading = true;
    gpt_progress progress;
    gpt_progress_start(&progress, trainer);
    catch_signals();
    for (;;) {
        gpt_trainer_evaluate(trainer);
        if (talkative && gpt_trainer_last_evaluated(trainer) == trainer->step &&
            deserves_line(trainer)) {
            gpt_progress_clear(&progress);
            gpt_report_line(stdout, trainer, heading);
            heading = false;
        }
        if (trainer->step == trainer->settings.steps) {
            break;
        }
        gpt_progress_draw(&progress, trainer);
        if (interrupted) {
            gpt_progress_clear(&progress);
            return save_and_stop(d);
        }
        size_t failed;
        const muonium_status status = gpt_trainer_step(trainer, &failed);
        if (status != MUONIUM_OK) {
            gpt_progress_clear(&progress);
            return explain_failure(d, status, failed);
        }
    }
    gpt_progress_clear(&progress);
    return EXIT_OK;
}

/* ---- after training ---- */

static void write_csv(FILE *out, const gpt_trainer *trainer, const char *text_name)
{
    (void)text_name;
    gpt_report_csv(out, trainer);
}

/* Make a file of what `write` prints. */
static int write_file(const demo *d, const char *path,
                      void (*write)(FILE *out, const gpt_trainer *trainer, const char *text_name))
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory == NULL) {
        return message_failed(d->self->name, "out of memory for '%s'", path);
    }
    write(memory, &d->trainer, d->text_name);
    bool complete = !ferror(memory);
    complete = fclose(memory) == 0 && complete;
    problem what;
    int code = EXIT_OK;
    if (!complete) {
        code = message_failed(d->self->name, "out of memory for '%s'", path);
    } else if (!file_replace(path, &(file_piece){text, size}, 1, &what)) {
        code = message_failed(d->self->name, "%s", what.text);
    }
    free(text);
    return code;
}

static int print_samples(demo *d)
{
    const int length = d->value[SAMPLE].integer;
    for (size_t i = 0; i < d->settings.runs && length > 0; i++) {
        printf("\nWritten by the model trained with %s:\n\n", gpt_label(&d->settings.entrants[i]));
        if (gpt_report_sample(stdout, &d->trainer, i, (size_t)length) != MUONIUM_OK) {
            return message_failed(d->self->name, "%s", muonium_last_error());
        }
    }
    return EXIT_OK;
}

/* Files first: whatever happens to the rest, they are there. */
static int finish(demo *d)
{
    int code = write_file(d, d->value[PLOT].text, gpt_plot_write);
    if (d->value[CSV].given) {
        const int written = write_file(d, d->value[CSV].text, write_csv);
        code = code == EXIT_OK ? written : code;
    }
    release_signals();
    if (d->value[JSON].given) {
        gpt_report_json(stdout, &d->trainer, d->text_name);
        return code;
    }
    gpt_report_table(stdout, &d->trainer);
    const int sampled = print_samples(d);
    if (code == EXIT_OK) {
        printf("\n");
        text_line(stdout, "The loss curves are in %s.", d->value[PLOT].text);
    }
    gpt_report_adoption(stdout);
    return code == EXIT_OK ? sampled : code;
}

static int run(const command *self, const arguments *given)
{
    if (!options_agree(self->name, options, given->value, clashes,
                       sizeof clashes / sizeof clashes[0])) {
        return EXIT_USAGE;
    }
    demo d = {.self = self, .value = given->value};
    int code = prepare(&d);
    if (code == EXIT_OK) {
        if (!given->value[JSON].given) {
            gpt_report_start(stdout, &d.trainer, d.text_name);
        }
        code = train(&d);
    }
    if (code == EXIT_OK) {
        code = finish(&d);
    }
    gpt_trainer_destroy(&d.trainer);
    gpt_corpus_destroy(&d.corpus);
    muonium_reader_close(d.reader);
    return code;
}

const command command_demo = {
    .name = "demo",
    .summary = "train a small GPT with AdamW and with Muon, side by side",
    .description =
        "Trains one small language model twice, from the same initial weights and on the same "
        "batches of text: with AdamW for all parameters, and with Muon for the matrices. Prints "
        "the losses. At the end it prints how long each run took to reach the final loss of AdamW, "
        "and the optimizer's share of the time. Both models then write a few lines, and the loss "
        "curves are drawn. --compare takes recipes of Muon too.\n\n"
        "The learning rates were tuned for the default size, in the same way for each optimizer: "
        "see examples/gpt/README.md. Ctrl-C saves the training; --resume continues it to the same "
        "result. The same seed gives the same losses with any number of threads.",
    .example = "muonium demo\n"
               "muonium demo --data novel.txt --size 6x384x256 --steps 3000\n"
               "muonium demo --compare muonium,dion2,nanochat,adamw\n"
               "muonium demo --optimizer muon --lr 0.01 --csv losses.csv",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
