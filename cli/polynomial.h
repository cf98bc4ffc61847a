/*
 * polynomial.h: what a table of steps does to singular values.
 */
#ifndef CLI_POLYNOMIAL_H
#define CLI_POLYNOMIAL_H

typedef struct interval {
    double low, high;
} interval;

/* p(x) = a x + b x^3 + c x^5 for step = {a, b, c}. */
double polynomial_value(const double step[3], double x);

/* The exact set of values, up to rounding, that p takes on an interval. */
interval polynomial_image(const double step[3], interval from);

#endif
