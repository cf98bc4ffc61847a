/*
 * plot.c: validation losses as curves, training losses faintly behind them; a dashed line
 * at AdamW's final loss shows where the first of the others passes it.
 *
 * The first colours differ for every kind of colour vision, and the curves are named where they
 * end.
 */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 900, HEIGHT = 520, LEFT = 64, TOP = 116, RIGHT = 130, BOTTOM = 90 };

/* Of the runs in their order: a curve, and its training loss. */
static const struct colours {
    const char *strong, *faint;
} colours[] = {
    {"#0072b2", "#bcd9ea"}, {"#d55e00", "#f5d3b8"}, {"#009e73", "#b8e2d7"}, {"#cc79a7", "#f1dbe7"},
    {"#b58900", "#ebdfb8"}, {"#56b4e9", "#d2eaf9"}, {"#7a5195", "#d9cde1"}, {"#444444", "#cccccc"},
};
_Static_assert(sizeof colours / sizeof colours[0] == GPT_RUNS_MOST, "a colour for each run");

static const char *const quiet = "#5f6c7b";

/* The axis leaves out most of the fall at the beginning, which is alike for all. */
static svg_axis loss_axis(const gpt_trainer *trainer)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < trainer->settings.runs; i++) {
        for (size_t step = 0; step <= trainer->step; step++) {
            const double loss = trainer->runs[i].history[step].validation_loss;
            low = fmin(low, loss); /* the number, if the other is NaN */
            high = 20 * step >= trainer->step ? fmax(high, loss) : high;
        }
    }
    const double margin = 0.06 * (high - low) + 0.01;
    return (svg_axis){low - margin, high + margin, false, "loss, nats per character"};
}

static void draw_losses(const svg_panel *panel, const gpt_trainer *trainer, size_t run,
                        bool validation, svg_point *points)
{
    for (size_t step = 0; step <= trainer->step; step++) {
        const gpt_record *record = &trainer->runs[run].history[step];
        points[step].x = (double)step;
        points[step].y = validation ? record->validation_loss : record->train_loss;
    }
    svg_curve(panel, points, trainer->step + 1,
              validation ? (svg_line){colours[run].strong, 2.4, false}
                         : (svg_line){colours[run].faint, 1, false});
}

/* Names and final losses at the right end, moved apart where they would touch. */
static void label_curves(const svg_panel *panel, const gpt_trainer *trainer)
{
    enum { APART = 36 };
    const size_t runs = trainer->settings.runs;
    double y[GPT_RUNS_MOST];
    size_t order[GPT_RUNS_MOST]; /* from the top of the picture down */
    for (size_t i = 0; i < runs; i++) {
        y[i] = svg_y(panel, gpt_final_loss(trainer, i));
        size_t place = i;
        for (; place > 0 && y[order[place - 1]] > y[i]; place--) {
            order[place] = order[place - 1];
        }
        order[place] = i;
    }
    /* Push both of a pair by half of what is missing until no pair touches, above the axis. */
    const double lowest = panel->top + panel->height - 18;
    for (size_t round = 0; round < 100; round++) {
        y[order[runs - 1]] = fmin(y[order[runs - 1]], lowest);
        for (size_t k = 1; k < runs; k++) {
            const double missing = APART - (y[order[k]] - y[order[k - 1]]);
            if (missing > 0) {
                y[order[k]] += missing / 2;
                y[order[k - 1]] -= missing / 2;
            }
        }
    }
    for (size_t i = 0; i < runs; i++) {
        const double x = panel->left + panel->width + 10;
        char number[32];
        snprintf(number, sizeof number, "%.2f", gpt_final_loss(trainer, i));
        svg_text(panel->out, x, y[i] - 1, SVG_HEADING, SVG_START, colours[i].strong,
                 gpt_label(&trainer->settings.entrants[i]));
        svg_text(panel->out, x, y[i] + 15, SVG_NUMBER, SVG_START, colours[i].strong, number);
    }
}

/* Where the first run passes AdamW's final loss. */
static void draw_crossing(const svg_panel *panel, const gpt_trainer *trainer)
{
    size_t reached = 0;
    if (gpt_first_to_reach(trainer, &reached) == trainer->settings.runs) {
        return;
    }
    const double aim = gpt_final_loss(trainer, gpt_adamw_run(trainer)), step = (double)reached;
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
    size_t reached = 0;
    const size_t first = gpt_first_to_reach(trainer, &reached);
    if (settings->runs == 1) {
        snprintf(title, sizeof title, "Training with %s", gpt_label(&settings->entrants[0]));
    } else if (first < settings->runs && reached < trainer->step) {
        snprintf(title, sizeof title, "%s gets where AdamW ends in %.0f %% of the steps",
                 gpt_label(&settings->entrants[first]),
                 100 * (double)reached / (double)trainer->step);
    } else {
        snprintf(title, sizeof title, "%zu optimizers side by side", settings->runs);
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
        for (size_t i = 0; i < trainer->settings.runs; i++) {
            draw_losses(&panel, trainer, i, validation == 1, points);
        }
    }
    draw_crossing(&panel, trainer);
    label_curves(&panel, trainer);
    svg_end(out);
    free(points);
}
