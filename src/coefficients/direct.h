/*
 * direct.h: programs for the direct form. With Y0 = I and Y1 = R,
 *
 *     Y(j+1) = (sum_i a_j[i] Y_i) (sum_i b_j[i] Y_i),  i = 0..j,  j = 1..products
 *     H = sum_i c[i] Y_i,  i = 0..products+1;  the result is H X.
 *
 * docs/direct.md explains how they were found; tools/direct/verify.py checks the figures of each.
 */
#ifndef MU_DIRECT_H
#define MU_DIRECT_H

#include <stddef.h>

enum { MU_MAX_PRODUCTS = 13 };

typedef struct mu_direct_set {
    const char *name;
    int products;
    double deviation; /* max |sigma h(sigma^2) - 1| on [1e-3, 1] */
    double edge;      /* above this sigma, results leave [0.7, 1.3] */
    /* a_1[0..1], b_1[0..1], a_2[0..2], b_2[0..2], ..., c[0..products+1] */
    const double *coefficients;
} mu_direct_set;

/* The sets by index, from 0; NULL past the last. */
const mu_direct_set *mu_direct_set_at(size_t index);

/* The set of that name, or NULL. */
const mu_direct_set *mu_direct_set_named(const char *name);

/* a_j and b_j, j from 1: j + 1 numbers each; c: products + 2 numbers. */
const double *mu_direct_left(const mu_direct_set *set, int j);
const double *mu_direct_right(const mu_direct_set *set, int j);
const double *mu_direct_sum(const mu_direct_set *set);

#endif
