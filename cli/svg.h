/*
 * svg.h: diagrams as SVG: panels with axes, curves, shaded areas, labels.
 *
 * Everything is written in the order of the calls, so what comes later lies on
 * top. Positions are pixels from the upper left corner, or data of a panel.
 * Colours are SVG's, as "#0072b2". Text may be any string.
 */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The whole picture; `title` and `description` are what a screen reader says. */
void svg_begin(FILE *out, double width, double height, const char *title, const char *description);
void svg_end(FILE *out);

typedef enum svg_style {
    SVG_TITLE, /* of the picture */
    SVG_SUBTITLE,
    SVG_HEADING, /* of a panel */
    SVG_LABEL,   /* of an axis or of something in a panel */
    SVG_NUMBER,  /* at a tick */
    SVG_CAPTION
} svg_style;

typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

/* One line of text whose baseline starts, has its middle or ends at (x, y).
 * `colour` NULL takes the style's. */
void svg_text(FILE *out, double x, double y, svg_style style, svg_anchor anchor, const char *colour,
              const char *text);

typedef struct svg_axis {
    double low, high; /* low < high; a logarithmic axis needs low > 0 */
    bool logarithmic;
    const char *label;
} svg_axis;

typedef struct svg_panel {
    FILE *out;
    const char *id; /* unique in the picture: a letter, then letters or digits */
    double left, top, width, height;
    svg_axis x, y;
} svg_panel;

/* Pixels of a value of the panel's data. */
double svg_x(const svg_panel *panel, double x);
double svg_y(const svg_panel *panel, double y);

/* Grid, ticks, numbers and labels. */
void svg_axes(const svg_panel *panel);

/* A shaded rectangle. */
void svg_area(const svg_panel *panel, double x0, double y0, double x1, double y1,
              const char *colour);

typedef struct svg_line {
    const char *colour;
    double width;
    bool dashed;
} svg_line;

typedef struct svg_point {
    double x, y;
} svg_point;

/* A line through points of the panel's data, cut off at the panel's edge; NaNs are left
 * out. */
void svg_curve(const svg_panel *panel, const svg_point *points, size_t count, svg_line line);

/* A short label in a disc on a curve. */
void svg_badge(const svg_panel *panel, double x, double y, const char *colour, const char *text);

/* A key: strokes with their meaning, one below the other from (x, y). */
typedef struct svg_key {
    svg_line line;
    const char *text;
} svg_key;
void svg_legend(FILE *out, double x, double y, const svg_key *keys, size_t count);

#endif
