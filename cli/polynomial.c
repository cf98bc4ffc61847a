/*
 * polynomial.c: values and images of odd quintics.
 *
 * The image of an interval under a continuous function is an interval, so the
 * band of a composition follows step by step from ends and extrema, without
 * sampling.
 */
#include "polynomial.h"

#include <math.h>
#include <stddef.h>

double polynomial_value(const double step[3], double x)
{
    double square = x * x;
    return x * (step[0] + square * (step[1] + square * step[2]));
}

static interval include_value(interval band, double value)
{
    return (interval){fmin(band.low, value), fmax(band.high, value)};
}

interval polynomial_image(const double step[3], interval from)
{
    double first = polynomial_value(step, from.low);
    interval band = include_value((interval){first, first}, polynomial_value(step, from.high));

    /* The squares at which p' = a + 3b s + 5c s^2 vanishes, in the form that does
     * not cancel; it also holds for c = 0, where one of them is not finite. */
    double a = step[0], b = 3 * step[1], c = 5 * step[2];
    double discriminant = b * b - 4 * a * c;
    if (discriminant < 0) {
        return band;
    }
    double q = -(b + copysign(sqrt(discriminant), b)) / 2;
    double squares[2] = {q / c, a / q};
    for (size_t i = 0; i < 2; i++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            double x = sign * sqrt(squares[i]);
            if (isfinite(x) && x > from.low && x < from.high) {
                band = include_value(band, polynomial_value(step, x));
            }
        }
    }
    return band;
}
