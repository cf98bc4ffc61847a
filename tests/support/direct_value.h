/*
 * direct_value.h: the polynomials of the direct form, evaluated at one singular value.
 */
#ifndef TEST_DIRECT_VALUE_H
#define TEST_DIRECT_VALUE_H

#include "coefficients/direct.h"

static inline double weighted_sum(const double *factors, const double *y, int last)
{
    double sum = 0;
    for (int i = 0; i <= last; i++) {
        sum += factors[i] * y[i];
    }
    return sum;
}

/* sigma h(sigma^2), the image of one singular value. */
static inline double direct_value(const mu_direct_set *set, double sigma)
{
    double y[MU_MAX_PRODUCTS + 2] = {1, sigma * sigma};
    for (int j = 1; j <= set->products; j++) {
        y[j + 1] = weighted_sum(mu_direct_left(set, j), y, j) *
                   weighted_sum(mu_direct_right(set, j), y, j);
    }
    return sigma * weighted_sum(mu_direct_sum(set), y, set->products + 1);
}

#endif
