/*
 * svg.c: the SVG writer.
 */
#include "svg.h"

#include <math.h>
#include <stdint.h>

#include "text.h"

#define INK "#1f2933"
#define QUIET "#5f6c7b"
#define GRID "#e7ebef"
#define FONT "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"

#define TOLERANCE 0.1 /* pixels by which a curve may be off */

enum { BADGE_RADIUS = 8, LEGEND_PITCH = 19, OUTSIDE = 50 };

static const struct {
    const char *name, *look, *colour;
} styles[] = {
    [SVG_TITLE] = {"title", "font-size: 22px; font-weight: 600", INK},
    [SVG_SUBTITLE] = {"subtitle", "font-size: 14px", QUIET},
    [SVG_HEADING] = {"heading", "font-size: 14px; font-weight: 600", INK},
    [SVG_LABEL] = {"label", "font-size: 12.5px", INK},
    [SVG_NUMBER] = {"number", "font-size: 12px", QUIET},
    [SVG_CAPTION] = {"caption", "font-size: 12.5px", QUIET},
};

/* Text with markup escaped and what XML 1.0 forbids replaced. */
static void print_escaped(FILE *out, const char *text)
{
    for (const char *next = text;;) {
        const char *start = next;
        uint32_t code = text_next(&next);
        if (code == 0) {
            return;
        }
        bool forbidden = (code < 0x20 && code != '\t' && code != '\n' && code != '\r') ||
                         code == 0xFFFD || code == 0xFFFE || code == 0xFFFF;
        if (code == '&' || code == '<' || code == '>' || code == '"') {
            fprintf(out, "&#%u;", (unsigned)code);
        } else if (forbidden) {
            fputs("&#xFFFD;", out);
        } else {
            fprintf(out, "%.*s", (int)(next - start), start);
        }
    }
}

void svg_begin(FILE *out, double width, double height, const char *title, const char *description)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
            "viewBox=\"0 0 %g %g\" role=\"img\" font-family=\"" FONT "\">\n<title>",
            width, height, width, height);
    print_escaped(out, title);
    fputs("</title>\n<desc>", out);
    print_escaped(out, description);
    fputs("</desc>\n<style>\n", out);
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        fprintf(out, ".%s { %s; fill: %s }\n", styles[i].name, styles[i].look, styles[i].colour);
    }
    fprintf(out, "</style>\n<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", width, height);
}

void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

void svg_text(FILE *out, double x, double y, svg_style style, svg_anchor anchor, const char *colour,
              const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" class=\"%s\" text-anchor=\"%s\"", x, y,
            styles[style].name, anchors[anchor]);
    if (colour != NULL) { /* an attribute would yield to the style sheet */
        fprintf(out, " style=\"fill: %s\"", colour);
    }
    fputc('>', out);
    print_escaped(out, text);
    fputs("</text>\n", out);
}

/* Where a value lies on an axis: 0 at its low end, 1 at its high end. */
static double position(const svg_axis *axis, double value)
{
    return axis->logarithmic ? log(value / axis->low) / log(axis->high / axis->low)
                             : (value - axis->low) / (axis->high - axis->low);
}

double svg_x(const svg_panel *panel, double x)
{
    return panel->left + panel->width * position(&panel->x, x);
}

double svg_y(const svg_panel *panel, double y)
{
    return panel->top + panel->height * (1 - position(&panel->y, y));
}

/* A distance between ticks, 1, 2 or 5 times a power of ten, for about `count`. */
static double tick_distance(const svg_axis *axis, double count)
{
    double rough = (axis->high - axis->low) / count;
    double power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* A power of ten as people write it, "10⁻³"; those near 1 in full. */
static void format_power(int exponent, char *text, size_t size)
{
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    if (exponent >= -1 && exponent <= 1) {
        snprintf(text, size, "%g", pow(10, exponent));
        return;
    }
    int magnitude = exponent < 0 ? -exponent : exponent;
    snprintf(text, size, "10%s%s%s", exponent < 0 ? "⁻" : "",
             magnitude > 9 ? raised[magnitude / 10 % 10] : "", raised[magnitude % 10]);
}

/* A grid line at one value, and its number if there is one. */
static void print_tick(const svg_panel *panel, bool horizontal, double value, const char *number)
{
    double right = panel->left + panel->width, bottom = panel->top + panel->height;
    if (horizontal) {
        double x = svg_x(panel, value);
        double start = number != NULL ? panel->top : bottom - 4;
        fprintf(panel->out, "<path d=\"M%.2f %.2fV%.2f\" stroke=\"%s\"/>\n", x, start, bottom,
                number != NULL ? GRID : "#b8c2cc");
        if (number != NULL) {
            svg_text(panel->out, x, bottom + 19, SVG_NUMBER, SVG_MIDDLE, NULL, number);
        }
    } else {
        double y = svg_y(panel, value);
        fprintf(panel->out, "<path d=\"M%.2f %.2fH%.2f\" stroke=\"" GRID "\"/>\n", panel->left, y,
                right);
        svg_text(panel->out, panel->left - 9, y + 4, SVG_NUMBER, SVG_END, NULL, number);
    }
}

static void print_linear_ticks(const svg_panel *panel, bool horizontal)
{
    const svg_axis *axis = horizontal ? &panel->x : &panel->y;
    double distance = tick_distance(axis, (horizontal ? panel->width : panel->height) / 70);
    for (double n = ceil(axis->low / distance - 1e-9); n * distance <= axis->high * (1 + 1e-9);
         n++) {
        char number[32];
        double value = n * distance + 0.0; /* -0 would show its sign */
        snprintf(number, sizeof number, "%.6g", value);
        print_tick(panel, horizontal, value, number);
    }
}

static void print_decades(const svg_panel *panel)
{
    int first = (int)floor(log10(panel->x.low)), last = (int)floor(log10(panel->x.high));
    int stride = 1 + (last - first) / 8; /* more numbers would not be read */
    for (int e = first; e <= last; e++) {
        char number[32];
        format_power(e, number, sizeof number);
        for (int digit = 1; digit <= (stride == 1 ? 9 : 1); digit++) {
            double value = digit * pow(10, e);
            if (value >= panel->x.low * (1 - 1e-9) && value <= panel->x.high * (1 + 1e-9)) {
                print_tick(panel, true, value, digit == 1 && e % stride == 0 ? number : NULL);
            }
        }
    }
}

void svg_axes(const svg_panel *panel)
{
    double right = panel->left + panel->width, bottom = panel->top + panel->height;
    fprintf(panel->out,
            "<clipPath id=\"%s\"><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>"
            "</clipPath>\n",
            panel->id, panel->left, panel->top, panel->width, panel->height);
    print_linear_ticks(panel, false);
    if (panel->x.logarithmic) {
        print_decades(panel);
    } else {
        print_linear_ticks(panel, true);
    }
    fprintf(panel->out, "<path d=\"M%.2f %.2fH%.2f\" stroke=\"#8795a1\"/>\n", panel->left, bottom,
            right);
    svg_text(panel->out, (panel->left + right) / 2, bottom + 42, SVG_LABEL, SVG_MIDDLE, NULL,
             panel->x.label);
    /* Beside the topmost number rather than turned: it reads without tilting the head. */
    svg_text(panel->out, panel->left - 30, panel->top - 14, SVG_LABEL, SVG_START, NULL,
             panel->y.label);
}

void svg_area(const svg_panel *panel, double x0, double y0, double x1, double y1,
              const char *colour)
{
    double left = svg_x(panel, x0), top = svg_y(panel, y1);
    fprintf(panel->out,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
            "clip-path=\"url(#%s)\"/>\n",
            left, top, svg_x(panel, x1) - left, fmax(svg_y(panel, y0) - top, 1), colour, panel->id);
}

static void print_stroke(FILE *out, svg_line line)
{
    fprintf(out, "fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-linejoin=\"round\"%s",
            line.colour, line.width, line.dashed ? " stroke-dasharray=\"5 4\"" : "");
}

/* Pixels of a point, kept near the panel: viewers need not cope with
 * coordinates of any size. */
static svg_point pixels(const svg_panel *panel, svg_point data)
{
    double right = panel->left + panel->width, bottom = panel->top + panel->height;
    return (svg_point){fmin(fmax(svg_x(panel, data.x), panel->left - OUTSIDE), right + OUTSIDE),
                       fmin(fmax(svg_y(panel, data.y), panel->top - OUTSIDE), bottom + OUTSIDE)};
}

void svg_curve(const svg_panel *panel, const svg_point *points, size_t count, svg_line line)
{
    fputs("<polyline ", panel->out);
    print_stroke(panel->out, line);
    fprintf(panel->out, " clip-path=\"url(#%s)\" points=\"", panel->id);

    /* A point is left out while one straight line from the last one written
     * passes all since within TOLERANCE: `low` and `high` are its slopes. */
    svg_point last = {NAN, NAN}, before = {NAN, NAN};
    double low = -INFINITY, high = INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (isnan(points[i].x) || isnan(points[i].y)) {
            continue;
        }
        svg_point p = pixels(panel, points[i]);
        double across = p.x - last.x, slope = (p.y - last.y) / across;
        if (!isnan(before.x) && !(across > 0 && slope >= low && slope <= high)) {
            fprintf(panel->out, "%.1f,%.1f ", before.x, before.y);
            last = before;
            low = -INFINITY;
            high = INFINITY;
            across = p.x - last.x;
        }
        if (across > 0) {
            low = fmax(low, (p.y - TOLERANCE - last.y) / across);
            high = fmin(high, (p.y + TOLERANCE - last.y) / across);
        }
        before = p;
    }
    if (!isnan(before.x)) {
        fprintf(panel->out, "%.1f,%.1f", before.x, before.y);
    }
    fputs("\"/>\n", panel->out);
}

void svg_badge(const svg_panel *panel, double x, double y, const char *colour, const char *text)
{
    double cx = svg_x(panel, x), cy = svg_y(panel, y);
    fprintf(panel->out,
            "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%d\" fill=\"%s\" stroke=\"#ffffff\" "
            "stroke-width=\"2\"/>\n<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" "
            "font-size=\"10.5\" font-weight=\"600\" fill=\"#ffffff\">",
            cx, cy, BADGE_RADIUS, colour, cx, cy + 3.8);
    print_escaped(panel->out, text);
    fputs("</text>\n", panel->out);
}

void svg_legend(FILE *out, double x, double y, const svg_key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double middle = y + (double)i * LEGEND_PITCH;
        fprintf(out, "<path d=\"M%.2f %.2fh18\" ", x, middle);
        print_stroke(out, keys[i].line);
        fputs("/>\n", out);
        svg_text(out, x + 25, middle + 4, SVG_LABEL, SVG_START, NULL, keys[i].text);
    }
}
