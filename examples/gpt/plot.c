/*
 * plot.c: validation losses as curves, training losses faintly behind them; a dashed line
 * at AdamW's final loss shows where Muon passes it.
 *
 * Blue and vermilion differ for every kind of colour vision, and the curves are named
 * where they end.
 */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 900, HEIGHT = 520, LEFT = 64, TOP = 116, RIGHT = 130, BOTTOM = 90 };

static const char *const colours[GPT_KINDS] = {[GPT_ADAMW] = "#0072b2", [GPT_MUON] = "#d55e00"};
static const char *const faint[GPT_KINDS] = {[GPT_ADAMW] = "#bcd9ea", [GPT_MUON] = "#f5d3b8"};
static const char *const quiet = "#5f6c7b";

/* The axis leaves out most of the fall at the beginning, which is alike for all. */
static svg_axis loss_axis(const gpt_trainer *trainer)
{
    double low = INFINITY, high = -INFINITY;
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        for (size_t step = 0; trainer->settings.with[kind] && step <= trainer->step; step++) {
            const double loss = trainer->runs[kind].history[step].validation_loss;
            low = fmin(low, loss); /* the number, if the other is NaN */
            high = 20 * step >= trainer->step ? fmax(high, loss) : high;
        }
    }
    const double margin = 0.06 * (high - low) + 0.01;
    return (svg_axis){low - margin, high + margin, false, "loss, nats per character"};
}

static void draw_losses(const svg_panel *panel, const gpt_trainer *trainer, gpt_kind kind,
                        bool validation, svg_point *points)
{
    for (size_t step = 0; step <= trainer->step; step++) {
        const gpt_record *record = &trainer->runs[kind].history[step];
        points[step].x = (double)step;
        points[step].y = validation ? record->validation_loss : record->train_loss;
    }
    svg_curve(panel, points, trainer->step + 1,
              validation ? (svg_line){colours[kind], 2.4, false}
                         : (svg_line){faint[kind], 1, false});
}

/* Names and final losses at the right end, moved apart where they would touch. */
static void label_curves(const svg_panel *panel, const gpt_trainer *trainer)
{
    const double apart = 36;
    double y[GPT_KINDS] = {0};
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        if (trainer->settings.with[kind]) {
            y[kind] = svg_y(panel, gpt_final_loss(trainer, (gpt_kind)kind));
        }
    }
    if (trainer->settings.with[GPT_ADAMW] && trainer->settings.with[GPT_MUON]) {
        const double missing = apart - fabs(y[GPT_MUON] - y[GPT_ADAMW]);
        const double down = y[GPT_MUON] >= y[GPT_ADAMW] ? 1 : -1;
        if (missing > 0) {
            y[GPT_MUON] += down * missing / 2;
            y[GPT_ADAMW] -= down * missing / 2;
        }
    }
    for (int kind = 0; kind < GPT_KINDS; kind++) {
        if (trainer->settings.with[kind]) {
            const double x = panel->left + panel->width + 10;
            char number[32];
            snprintf(number, sizeof number, "%.2f", gpt_final_loss(trainer, (gpt_kind)kind));
            svg_text(panel->out, x, y[kind] - 1, SVG_HEADING, SVG_START, colours[kind],
                     gpt_kind_names[kind]);
            svg_text(panel->out, x, y[kind] + 15, SVG_NUMBER, SVG_START, colours[kind], number);
        }
    }
}

/* Where Muon passes AdamW's final loss. */
static void draw_crossing(const svg_panel *panel, const gpt_trainer *trainer)
{
    size_t reached;
    if (!trainer->settings.with[GPT_MUON] || !gpt_reached(trainer, GPT_MUON, &reached)) {
        return;
    }
    const double aim = gpt_final_loss(trainer, GPT_ADAMW), step = (double)reached;
    const svg_point corner[] = {{(double)trainer->step, aim}, {step, aim}, {step, panel->y.low}};
    svg_curve(panel, corner, 3, (svg_line){quiet, 1, true});
    char text[64];
    snprintf(text, sizeof text, "%zu steps: %.0f %%", reached, 100 * step / (double)trainer->step);
    svg_text(panel->out, svg_x(panel, step) + 8, panel->top + panel->height - 12, SVG_LABEL,
             SVG_START, NULL, text);
}

static void write_words(FILE *out, const gpt_trainer *trainer, const char *text)
{
    const gpt_settings *settings = &trainer->settings;
    const gpt_shape *shape = &settings->shape;
    char subtitle[160], caption[256];
    snprintf(subtitle, sizeof subtitle,
             "A GPT of %zu layers and width %zu, %.2f million weights, trained on %.60s",
             shape->layers, shape->width, gpt_weight_count(*shape) / 1e6, text);
    snprintf(caption, sizeof caption,
             "Validation loss; training loss faintly. Same initial weights, batches (%zu x %zu "
             "characters) and schedule",
             settings->sequences, shape->context);
    char title[96];
    size_t reached;
    if (!settings->with[GPT_ADAMW] || !settings->with[GPT_MUON]) {
        snprintf(title, sizeof title, "Training with %s",
                 gpt_kind_names[settings->with[GPT_MUON] ? GPT_MUON : GPT_ADAMW]);
    } else if (gpt_reached(trainer, GPT_MUON, &reached) && reached < trainer->step) {
        snprintf(title, sizeof title, "Muon gets where AdamW ends in %.0f %% of the steps",
                 100 * (double)reached / (double)trainer->step);
    } else {
        snprintf(title, sizeof title, "Muon and AdamW side by side");
    }
    svg_text(out, 34, 46, SVG_TITLE, SVG_START, NULL, title);
    svg_text(out, 34, 70, SVG_SUBTITLE, SVG_START, NULL, subtitle);
    svg_text(out, 34, HEIGHT - 16, SVG_CAPTION, SVG_START, NULL, caption);
}

void gpt_plot_write(FILE *out, const gpt_trainer *trainer, const char *text)
{
    const size_t room = trainer->settings.steps + 1;
    svg_point *points = calloc(room, sizeof *points);
    if (points == NULL) {
        return;
    }
    svg_panel panel = {out,
                       "losses",
                       LEFT,
                       TOP,
                       WIDTH - LEFT - RIGHT,
                       HEIGHT - TOP - BOTTOM,
                       {0, (double)trainer->step, false, "steps"},
                       loss_axis(trainer)};
    svg_begin(out, WIDTH, HEIGHT, "Muonium demo: loss curves",
              "Loss over training steps of the same model under each optimizer");
    write_words(out, trainer, text);
    svg_axes(&panel);
    for (int validation = 0; validation <= 1; validation++) {
        for (int kind = 0; kind < GPT_KINDS; kind++) {
            if (trainer->settings.with[kind]) {
                draw_losses(&panel, trainer, (gpt_kind)kind, validation == 1, points);
            }
        }
    }
    draw_crossing(&panel, trainer);
    label_curves(&panel, trainer);
    svg_end(out);
    free(points);
}
