/*
 * coeffs_plot.c: draws what each step of a table does.
 *
 * The steps run from light to dark blue and the result is vermilion: the order
 * shows in lightness and the result in hue, for every kind of colour vision.
 * What matters of a composition is the front where it lifts small values to 1;
 * beyond its first peak it oscillates ever faster, and is drawn faintly there.
 */
#include "coeffs_plot.h"

#include <math.h>
#include <muonium.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "svg.h"

#define RESULT_COLOUR "#d55e00"
#define BAND_COLOUR "#fcebdd"
#define BAND_EDGE_COLOUR "#f0b48c"
#define TARGET_COLOUR "#5f6c7b"
#define BADGE_HEIGHT 0.62 /* where the compositions are numbered */

enum {
    WIDTH = 1040,
    HEIGHT = 580,
    POINTS = 1600,          /* per curve: closer than pixels, for the oscillations */
    BADGE_SPACING = 19,     /* pixels below which two badges would touch */
    OSCILLATIONS_MOST = 10, /* with more steps they would fill the panel */
    LEGEND_MOST = 9
};

static const double plot_high = 1.12;
static const double tallest = 2.2; /* values beyond are cut off */

typedef struct colour {
    char text[8];
} colour;

static colour mix(const double from[3], const double to[3], double part)
{
    unsigned rgb[3];
    for (int i = 0; i < 3; i++) {
        rgb[i] = (unsigned)(from[i] + part * (to[i] - from[i])) & 0xFF;
    }
    colour mixed;
    snprintf(mixed.text, sizeof mixed.text, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
    return mixed;
}

static colour step_colour(int step, int steps)
{
    static const double light[3] = {0x62, 0xa8, 0xdc}, dark[3] = {0x0b, 0x2f, 0x5c};
    if (step == steps - 1) {
        return (colour){RESULT_COLOUR};
    }
    return mix(light, dark, steps > 2 ? (double)step / (steps - 2) : 1);
}

static colour faint_colour(int step, int steps)
{
    static const double light[3] = {0xd3, 0xe5, 0xf3}, dark[3] = {0xa9, 0xbd, 0xd6};
    return mix(light, dark, steps > 2 ? (double)step / (steps - 2) : 1);
}

static svg_line step_line(int step, int steps, const colour *stroke)
{
    return (svg_line){.colour = stroke->text, .width = step == steps - 1 ? 2.2 : 1.5};
}

static double panel_top(const coeffs_plot *plot)
{
    double high = 1.2;
    for (int i = 0; i < plot->steps; i++) {
        high = fmax(high, plot->bands[i].high);
    }
    return fmin(high * 1.06, tallest);
}

static void draw_target(const svg_panel *panel)
{
    const svg_point ends[] = {{panel->x.low, 1}, {panel->x.high, 1}};
    svg_curve(panel, ends, 2, (svg_line){TARGET_COLOUR, 1, true});
}

/* Where the shaded range of singular values starts. */
static void draw_lower_end(const svg_panel *panel, double lower)
{
    if (lower <= panel->x.low || lower >= 1) {
        return;
    }
    const svg_point ends[] = {{lower, panel->y.low}, {lower, panel->y.high}};
    svg_curve(panel, ends, 2, (svg_line){BAND_EDGE_COLOUR, 1, false});
    char text[64];
    snprintf(text, sizeof text, "from σ = %g", lower);
    double x = svg_x(panel, lower);
    bool room = x < panel->left + panel->width / 2;
    svg_text(panel->out, x + (room ? 6 : -6), panel->top + 12, SVG_NUMBER,
             room ? SVG_START : SVG_END, RESULT_COLOUR, text);
}

static void sample_composition(const svg_panel *panel, const coeffs_plot *plot, int step,
                               svg_point points[POINTS])
{
    for (size_t i = 0; i < POINTS; i++) {
        double t = (double)i / (POINTS - 1);
        points[i].x = panel->x.low * pow(panel->x.high / panel->x.low, t);
        points[i].y = points[i].x;
        for (int k = 0; k <= step; k++) {
            points[i].y = polynomial_value(plot->table[k], points[i].y);
        }
    }
}

/* How many points belong to the front: to where the curve first comes back to 1
 * after its peak. None if it peaks left of the panel. */
static size_t front_length(const svg_panel *panel, const coeffs_plot *plot, int step,
                           const svg_point points[POINTS])
{
    double start = panel->x.low; /* of the tangent at 0, which lies above the front */
    for (int k = 0; k <= step; k++) {
        start *= plot->table[k][0];
    }
    if (!(start < 1.5)) {
        return 0;
    }
    size_t i = 1;
    while (i < POINTS && (points[i].y >= points[i - 1].y || points[i].y >= 1)) {
        i++;
    }
    return i;
}

static void draw_composition(const svg_panel *panel, const coeffs_plot *plot, int step,
                             bool faintly)
{
    svg_point points[POINTS];
    sample_composition(panel, plot, step, points);
    bool is_result = step == plot->steps - 1;
    size_t front = is_result ? POINTS : front_length(panel, plot, step, points);
    if (!faintly) {
        colour stroke = step_colour(step, plot->steps);
        svg_curve(panel, points, front, step_line(step, plot->steps, &stroke));
    } else if (!is_result) {
        size_t from = front > 0 ? front - 1 : 0;
        colour stroke = faint_colour(step, plot->steps);
        svg_curve(panel, points + from, POINTS - from, (svg_line){stroke.text, 0.8, false});
    }
}

/* Number the curve where it first climbs through a height, unless another
 * number is there or it starts above. */
static void label_composition(const svg_panel *panel, const coeffs_plot *plot, int step,
                              double *last_x)
{
    svg_point points[POINTS];
    sample_composition(panel, plot, step, points);
    size_t front = front_length(panel, plot, step, points);
    size_t at = 0;
    while (at < front && !(points[at].y >= BADGE_HEIGHT)) {
        at++;
    }
    if (at == 0 || at == front || fabs(svg_x(panel, points[at].x) - *last_x) < BADGE_SPACING) {
        return;
    }
    *last_x = svg_x(panel, points[at].x);
    char number[16];
    snprintf(number, sizeof number, "%d", step + 1);
    svg_badge(panel, points[at].x, points[at].y, step_colour(step, plot->steps).text, number);
}

static void draw_compositions(const svg_panel *panel, const coeffs_plot *plot)
{
    const int steps = plot->steps;
    const interval band = plot->bands[steps - 1];
    svg_axes(panel);
    svg_area(panel, fmax(plot->lower, panel->x.low), fmax(band.low, 0), 1, fmin(band.high, tallest),
             BAND_COLOUR);
    for (int k = 0; k < steps && steps <= OSCILLATIONS_MOST; k++) {
        draw_composition(panel, plot, k, true);
    }
    draw_lower_end(panel, plot->lower);
    draw_target(panel);
    for (int k = 0; k < steps; k++) {
        draw_composition(panel, plot, k, false);
    }
    double last_x = -BADGE_SPACING;
    for (int k = steps - 1; k >= 0; k--) { /* the result first: it keeps its number */
        label_composition(panel, plot, k, &last_x);
    }
}

static void draw_polynomials(const svg_panel *panel, const coeffs_plot *plot)
{
    const int steps = plot->steps;
    svg_point points[POINTS];
    svg_axes(panel);
    draw_target(panel);
    for (int k = 0; k < steps; k++) {
        double end = fmin(k > 0 ? plot->bands[k - 1].high : 1, tallest);
        for (size_t i = 0; i < POINTS; i++) {
            points[i].x = end * (double)i / (POINTS - 1);
            points[i].y = polynomial_value(plot->table[k], points[i].x);
        }
        colour stroke = step_colour(k, steps);
        svg_curve(panel, points, POINTS, step_line(k, steps, &stroke));
    }
}

/* Equal steps that follow each other share a line, since the last hides the
 * others. Of more lines than fit, every second, third, ... is shown, and the
 * last. */
static void draw_legend(FILE *out, double x, double y, const coeffs_plot *plot)
{
    int first[MUONIUM_MAX_STEPS], last[MUONIUM_MAX_STEPS], groups = 0;
    for (int k = 0; k < plot->steps; k++) {
        if (k == 0 || memcmp(plot->table[k], plot->table[k - 1], sizeof plot->table[k]) != 0) {
            first[groups++] = k;
        }
        last[groups - 1] = k;
    }
    int stride = (groups + LEGEND_MOST - 1) / LEGEND_MOST;
    svg_key keys[LEGEND_MOST];
    char text[LEGEND_MOST][32];
    colour strokes[LEGEND_MOST];
    size_t count = 0;
    for (int g = (groups - 1) % stride; g < groups; g += stride) {
        bool several = last[g] > first[g];
        snprintf(text[count], sizeof text[count], several ? "%d–%d" : "%d", first[g] + 1,
                 last[g] + 1);
        strokes[count] = step_colour(last[g], plot->steps);
        keys[count] = (svg_key){step_line(last[g], plot->steps, &strokes[count]), text[count]};
        count++;
    }
    svg_text(out, x, y - 18, SVG_LABEL, SVG_START, NULL, "iteration");
    svg_legend(out, x, y, keys, count);
}

/* The left end of the logarithmic axis: below the singular values asked about. */
static double plot_low(double lower)
{
    return lower > 0 && lower < 2e-4 ? fmax(lower / 2, 1e-16) : 1e-4;
}

void coeffs_plot_write(FILE *out, const coeffs_plot *plot)
{
    const interval band = plot->bands[plot->steps - 1];
    double top = panel_top(plot);
    char caption[256], description[512];
    snprintf(caption, sizeof caption,
             "Shaded: after %d iteration%s every σ from %g to 1 is within %.2g of 1. "
             "Earlier iterations are faint beyond their first peak.",
             plot->steps, plot->steps == 1 ? "" : "s", plot->lower,
             fmax(1 - band.low, band.high - 1));
    snprintf(description, sizeof description, "%s, %s. %s", plot->title, plot->subtitle, caption);

    svg_begin(out, WIDTH, HEIGHT, plot->title, description);
    svg_text(out, 34, 46, SVG_TITLE, SVG_START, NULL, plot->title);
    svg_text(out, 34, 70, SVG_SUBTITLE, SVG_START, NULL, plot->subtitle);

    svg_panel left = {
        out,
        "compositions",
        64,
        140,
        530,
        336,
        {plot_low(plot->lower), plot_high, true, "singular value σ of the scaled matrix"},
        {0, top, false, "σ after the iterations so far"}};
    svg_text(out, 34, 106, SVG_HEADING, SVG_START, NULL, "All iterations together");
    draw_compositions(&left, plot);

    svg_panel right = {out,
                       "polynomials",
                       684,
                       140,
                       232,
                       336,
                       {0, top, false, "σ before the iteration"},
                       {0, top, false, "σ after it"}};
    svg_text(out, 654, 106, SVG_HEADING, SVG_START, NULL, "Each iteration alone");
    draw_polynomials(&right, plot);
    draw_legend(out, 936, 150, plot);

    svg_text(out, 34, 546, SVG_CAPTION, SVG_START, NULL, caption);
    svg_text(out, 34, 564, SVG_CAPTION, SVG_START, NULL,
             "Each iteration maps σ to aσ + bσ³ + cσ⁵. The right panel shows it over its possible "
             "inputs. The dashed line is the target, 1.");
    svg_end(out);
}
