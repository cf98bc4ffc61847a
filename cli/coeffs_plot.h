/*
 * coeffs_plot.h: the picture of a table of steps.
 */
#ifndef CLI_COEFFS_PLOT_H
#define CLI_COEFFS_PLOT_H

#include <stdio.h>

#include "polynomial.h"

typedef struct coeffs_plot {
    const char *title, *subtitle;
    const double (*table)[3];
    int steps;
    double lower;          /* the band is that of singular values from here to 1 */
    const interval *bands; /* after each step */
} coeffs_plot;

/* Write the picture as SVG: the compositions on the left, the single steps on
 * the right. */
void coeffs_plot_write(FILE *out, const coeffs_plot *plot);

#endif
