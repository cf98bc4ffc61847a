/*
 * report.c: figures and text for people and for programs.
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/random.h"
#include "json.h"
#include "text.h"

enum { PROMPT = 40, LABEL = 32, COLUMN = 12, LINE = 75, WORD = 20 }; /* characters */

static const double temperature = 0.7;

/* ---- on the way ---- */

/* A count with commas between the thousands. */
static const char *grouped(char text[32], double count)
{
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%.0f", count);
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < 32; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

/* The report on the first matrix under Muon; false if there is none. */
static bool find_matrix(const gpt_run *run, muonium_parameter_report *matrix)
{
    for (size_t i = 0; i < run->model->parameter_count; i++) {
        if (muonium_report(run->optimizer, i, matrix) == MUONIUM_OK && matrix->muon) {
            return true;
        }
    }
    return false;
}

void gpt_report_start(FILE *out, const gpt_trainer *trainer, const char *text)
{
    const gpt_settings *settings = &trainer->settings;
    const gpt_shape *shape = &settings->shape;
    char weights[32], bytes[32];
    fprintf(out, "A GPT of %zu layer%s, width %zu, context %zu: %s weights.\n", shape->layers,
            shape->layers == 1 ? "" : "s", shape->width, shape->context,
            grouped(weights, gpt_weight_count(*shape)));
    text_line(out, "Text: %s, %s characters, the last tenth for validation.", text,
              grouped(bytes, (double)trainer->corpus->count));
    fprintf(out, "%zu steps of %zu x %zu characters, %d thread%s;", settings->steps,
            settings->sequences, shape->context, muonium_threads(),
            muonium_threads() == 1 ? "" : "s");
    for (size_t i = 0; i < settings->runs; i++) {
        fprintf(out, "%s %s at learning rate %g", i > 0 ? "," : "",
                gpt_label(&settings->entrants[i]), settings->entrants[i].lr);
    }
    fputs(".\n", out);
    muonium_cpu_info cpu;
    if (muonium_cpu(&cpu) == MUONIUM_OK) {
        fprintf(out, "Kernels: %s (%s).", cpu.kernel, cpu.reason);
    }
    for (size_t i = 0; i < settings->runs; i++) {
        muonium_parameter_report matrix;
        if (find_matrix(&trainer->runs[i], &matrix)) {
            fprintf(out, " %s: %s, %s form.", gpt_label(&settings->entrants[i]),
                    muonium_enum_name("muonium_dtype", (int)matrix.precision),
                    muonium_enum_name("muonium_form", (int)matrix.form));
        }
    }
    fputc('\n', out);
}

void gpt_report_line(FILE *out, const gpt_trainer *trainer, bool first)
{
    const gpt_settings *settings = &trainer->settings;
    if (first) {
        fprintf(out, "\n%6s", "step");
        for (size_t i = 0; i < settings->runs; i++) {
            fprintf(out, "   %8s: train    val", gpt_label(&settings->entrants[i]));
        }
        fputc('\n', out);
    }
    fprintf(out, "%6zu", trainer->step);
    for (size_t i = 0; i < settings->runs; i++) {
        if (trainer->step == 0) {
            fprintf(out, "   %15s", "");
        } else {
            fprintf(out, "   %15.4f", trainer->runs[i].history[trainer->step].train_loss);
        }
        fprintf(out, " %6.4f", gpt_final_loss(trainer, i));
    }
    fputc('\n', out);
    fflush(out);
}

/* ---- the result ---- */

double gpt_final_loss(const gpt_trainer *trainer, size_t run)
{
    return trainer->runs[run].history[gpt_trainer_last_evaluated(trainer)].validation_loss;
}

size_t gpt_adamw_run(const gpt_trainer *trainer)
{
    const gpt_settings *settings = &trainer->settings;
    size_t run = 0;
    while (run < settings->runs && strcmp(settings->entrants[run].recipe, GPT_ADAMW) != 0) {
        run++;
    }
    return settings->runs > 1 ? run : settings->runs;
}

size_t gpt_first_to_reach(const gpt_trainer *trainer, size_t *step)
{
    size_t first = trainer->settings.runs, at;
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        if (i != gpt_adamw_run(trainer) && gpt_reached(trainer, i, &at) &&
            (first == trainer->settings.runs || at < *step)) {
            first = i;
            *step = at;
        }
    }
    return first;
}

bool gpt_reached(const gpt_trainer *trainer, size_t run, size_t *step)
{
    const size_t adamw = gpt_adamw_run(trainer);
    if (adamw == trainer->settings.runs) {
        return false;
    }
    const double aim = gpt_final_loss(trainer, adamw);
    for (*step = 0; *step <= trainer->step; ++*step) {
        if (trainer->runs[run].history[*step].validation_loss <= aim) { /* false for NaN */
            return true;
        }
    }
    return false;
}

/* What a row of the table shows of a run. */
typedef enum figure { FINAL_LOSS, STEPS_TO, SECONDS_TO, STEP_TIME, SHARE } figure;

static void format_figure(char *text, size_t size, figure which, const gpt_trainer *trainer,
                          size_t run)
{
    const gpt_record *last = &trainer->runs[run].history[trainer->step];
    size_t step = 0;
    const bool reached = gpt_reached(trainer, run, &step);
    switch (which) {
    case FINAL_LOSS:
        snprintf(text, size, "%.4f", gpt_final_loss(trainer, run));
        break;
    case STEPS_TO:
        snprintf(text, size, reached ? "%zu" : "never", step);
        break;
    case SECONDS_TO:
        snprintf(text, size, reached ? "%.1f" : "never",
                 reached ? trainer->runs[run].history[step].seconds : 0);
        break;
    case STEP_TIME:
        snprintf(text, size, "%.1f", 1e3 * last->seconds / (double)trainer->step);
        break;
    case SHARE:
        snprintf(text, size, "%.1f %%", 100 * last->optimizer_seconds / last->seconds);
        break;
    }
}

static void print_row(FILE *out, const gpt_trainer *trainer, const char *label, figure which)
{
    fprintf(out, "%-*s", LABEL, label);
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        char text[32];
        format_figure(text, sizeof text, which, trainer, i);
        fprintf(out, "%*s", COLUMN, text);
    }
    fputc('\n', out);
}

void gpt_report_table(FILE *out, const gpt_trainer *trainer)
{
    fprintf(out, "\n%-*s", LABEL, "");
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        fprintf(out, "%*s", COLUMN, gpt_label(&trainer->settings.entrants[i]));
    }
    fputc('\n', out);
    print_row(out, trainer, "final validation loss", FINAL_LOSS);
    const size_t adamw = gpt_adamw_run(trainer), runs = trainer->settings.runs;
    if (adamw < runs) {
        print_row(out, trainer, "steps to AdamW's final loss", STEPS_TO);
        print_row(out, trainer, "seconds to AdamW's final loss", SECONDS_TO);
    }
    print_row(out, trainer, "milliseconds per step", STEP_TIME);
    print_row(out, trainer, "of which the optimizer", SHARE);

    size_t step = 0;
    const size_t first = gpt_first_to_reach(trainer, &step);
    if (first < runs) {
        const double seconds = trainer->runs[first].history[step].seconds;
        fprintf(out,
                "\n%s reached AdamW's final loss after %.0f %% of the steps and %.0f %% of the "
                "time.\n",
                gpt_label(&trainer->settings.entrants[first]),
                100 * (double)step / (double)trainer->step,
                100 * seconds / trainer->runs[adamw].history[trainer->step].seconds);
    }
}

void gpt_report_json(FILE *out, const gpt_trainer *trainer, const char *text)
{
    const gpt_settings *settings = &trainer->settings;
    json writer = {.out = out};
    json_object(&writer, NULL);
    json_string(&writer, "text", text);
    json_integer(&writer, "layers", (long long)settings->shape.layers);
    json_integer(&writer, "width", (long long)settings->shape.width);
    json_integer(&writer, "context", (long long)settings->shape.context);
    json_number(&writer, "weights", gpt_weight_count(settings->shape));
    json_integer(&writer, "steps", (long long)settings->steps);
    json_integer(&writer, "seed", (long long)settings->seed);
    json_integer(&writer, "threads", muonium_threads());
    muonium_cpu_info cpu;
    if (muonium_cpu(&cpu) == MUONIUM_OK) {
        json_string(&writer, "kernel", cpu.kernel);
    }
    json_array(&writer, "runs");
    for (size_t i = 0; i < settings->runs; i++) {
        const gpt_run *run = &trainer->runs[i];
        const gpt_entrant *entrant = &settings->entrants[i];
        json_object(&writer, NULL);
        json_string(&writer, "optimizer", gpt_label(entrant));
        json_number(&writer, "lr", entrant->lr);
        json_number(&writer, "momentum", entrant->momentum);
        muonium_parameter_report matrix;
        if (find_matrix(run, &matrix)) {
            json_string(&writer, "precision",
                        muonium_enum_name("muonium_dtype", (int)matrix.precision));
            json_string(&writer, "form", muonium_enum_name("muonium_form", (int)matrix.form));
        }
        json_number(&writer, "final_validation_loss", gpt_final_loss(trainer, i));
        if (gpt_adamw_run(trainer) < settings->runs) {
            size_t step;
            const bool reached = gpt_reached(trainer, i, &step);
            json_number(&writer, "steps_to_adamw_final_loss", reached ? (double)step : NAN);
            json_number(&writer, "seconds_to_adamw_final_loss",
                        reached ? run->history[step].seconds : NAN);
        }
        const gpt_record *last = &run->history[trainer->step];
        json_number(&writer, "seconds_per_step", last->seconds / (double)trainer->step);
        json_number(&writer, "optimizer_share", last->optimizer_seconds / last->seconds);
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_object_end(&writer);
}

/* A number, or nothing for NaN. */
static void print_field(FILE *out, double value)
{
    if (!isnan(value)) {
        fprintf(out, "%.6f", value);
    }
    fputc(',', out);
}

void gpt_report_csv(FILE *out, const gpt_trainer *trainer)
{
    fputs("optimizer,step,train_loss,validation_loss,seconds\n", out);
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        for (size_t step = 0; step <= trainer->step; step++) {
            const gpt_record *record = &trainer->runs[i].history[step];
            fprintf(out, "%s,%zu,", gpt_label(&trainer->settings.entrants[i]), step);
            print_field(out, record->train_loss);
            print_field(out, record->validation_loss);
            fprintf(out, "%.4f\n", record->seconds);
        }
    }
}

/* ---- text ---- */

/* A token drawn from softmax(logits / temperature). */
static unsigned char draw(const float *logits, size_t count, double uniform)
{
    double sum = 0, largest = (double)logits[0];
    for (size_t i = 1; i < count; i++) {
        const double logit = (double)logits[i];
        largest = logit > largest ? logit : largest; /* by fmax, gcc 12 for aarch64 fails */
    }
    for (size_t i = 0; i < count; i++) {
        sum += exp(((double)logits[i] - largest) / temperature);
    }
    double left = uniform * sum;
    for (size_t i = 0; i + 1 < count; i++) {
        left -= exp(((double)logits[i] - largest) / temperature);
        if (left < 0) {
            return (unsigned char)i;
        }
    }
    return (unsigned char)(count - 1);
}

/* The text may be anything; a terminal should get neither its control characters nor
 * broken UTF-8. Lines are indented, and broken where they are too long. */
static void print_safely(FILE *out, const char *text)
{
    size_t column = 0;
    fputs("    ", out);
    for (const char *next = text;; column++) {
        const char *start = next;
        const uint32_t code = text_next(&next);
        if (code == 0) {
            break;
        }
        if (code == '\n' || (code == ' ' && column >= LINE) || column >= LINE + WORD) {
            fputs("\n    ", out);
            column = 0;
        }
        if (code == '\n' || (code == ' ' && column == 0)) {
            continue;
        }
        if (text_is_shown(code)) {
            fwrite(start, 1, (size_t)(next - start), out);
        } else {
            fputc('?', out);
        }
    }
    fputc('\n', out);
}

/* Where the validation part has its first whole line, if that is near. */
static const unsigned char *prompt_of(const gpt_corpus *corpus, size_t length)
{
    const unsigned char *start = corpus->tokens + corpus->train_count;
    const unsigned char *end = corpus->tokens + corpus->count - length;
    for (const unsigned char *next = start; next < end && next < start + 1000; next++) {
        if (corpus->byte_of[*next] == '\n') {
            return next + 1;
        }
    }
    return start;
}

muonium_status gpt_report_sample(FILE *out, gpt_trainer *trainer, size_t run, size_t length)
{
    const gpt_corpus *corpus = trainer->corpus;
    const size_t context = trainer->settings.shape.context;
    const size_t prompt = context < PROMPT ? context : PROMPT, total = prompt + length;
    unsigned char *tokens = malloc(total);
    char *text = malloc(total + 1);
    if (tokens == NULL || text == NULL) {
        free(tokens);
        free(text);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a sample of %zu characters", total);
    }
    memcpy(tokens, prompt_of(corpus, prompt), prompt);
    for (size_t i = prompt; i < total; i++) {
        const size_t visible = i < context ? i : context;
        uint32_t words[4];
        const float *logits =
            gpt_next(trainer->pass, trainer->runs[run].model, tokens + i - visible, visible);
        mu_random(trainer->settings.seed, i, UINT64_MAX - 1, words);
        tokens[i] = draw(logits, corpus->vocabulary, mu_random_unit(words[0]));
    }
    for (size_t i = 0; i < total; i++) {
        const unsigned char byte = corpus->byte_of[tokens[i]];
        text[i] = (char)(byte != 0 ? byte : '?');
    }
    text[total] = 0;
    print_safely(out, text);
    free(tokens);
    free(text);
    return MUONIUM_OK;
}

/* ---- the reader's own trainer ---- */

void gpt_report_adoption(FILE *out)
{
    fputc('\n', out);
    fputs("In your own trainer:\n\n"
          "    muonium_create(NULL, &optimizer);           /* the default recipe */\n"
          "    muonium_add(optimizer, &tensor, NULL);      /* every parameter and its gradient */\n"
          "    muonium_step(optimizer);                    /* after every backward pass */\n",
          out);
}
