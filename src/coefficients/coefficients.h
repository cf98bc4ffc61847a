/*
 * coefficients.h: the polynomials of the iteration, for the rooms that run it.
 *
 * A step is a row {a, b, c}: it maps every singular value x to
 * a x + b x^3 + c x^5. A table is an array of rows, one per step. Generators
 * and presets are public (muonium.h); here are the rule by which a plan chooses
 * its table and the behaviour of a table on a single number.
 */
#ifndef MU_COEFFICIENTS_H
#define MU_COEFFICIENTS_H

#include "base/base.h"

/* ---- polar_express.c ---- */

/* Fails, naming the value, unless 1 <= steps <= MUONIUM_MAX_STEPS. */
muonium_status mu_check_steps(int steps);

/* The extrema of the best odd quintic on [1 - width, 1 + width], 0 <= width <= 1:
 * they lie at 1 + width * tau[0] and 1 + width * tau[1]. False, with tau
 * undefined, if the search does not converge, as for a width of NaN. */
bool mu_find_extrema(double width, double tau[2]);

/* ---- choice.c ---- */

/* The first `steps` of `count` >= 1 rows, the last repeated where they end. */
void mu_fill_table(const double (*rows)[3], size_t count, int steps, double (*table)[3]);

/* Write the options->steps rows that these options choose: an explicit table
 * (the last row repeats), else a preset by name, else generated. Reads steps,
 * table, table_rows, coefficients, lower, safety, cushion, generated_rows and normalization. */
muonium_status mu_choose_coefficients(const muonium_plan_options *options, double (*table)[3]);

/* ---- scalar.c ---- */

/* One step on one number. */
double mu_quintic(const double abc[3], double x);

/* Steps first, first + 1, ..., count - 1 on one number; x if there are none. */
double mu_compose(const double (*table)[3], int first, int count, double x);

/* The largest magnitude that steps first, ..., count - 1 give to any number in
 * [0, x]; infinite if it leaves the range of double. */
double mu_reach(const double (*table)[3], int first, int count, double x);

/* The largest magnitude that any run of consecutive steps gives to any number in [0, 1]:
 * all that an iteration can come to which may be rescaled to [0, 1] before every step. */
double mu_greatest_reach(const double (*table)[3], int count);

#define MU_STABLE_EDGE_MAX 1e3 /* where the search for an edge ends */

/* The stable edge of the steps first, ..., count - 1: the smallest x >= 1 at
 * which the magnitude of their composition reaches 2, or leaves the range of
 * double on the way. MU_STABLE_EDGE_MAX if it does not do so up to there. */
double mu_stable_edge(const double (*table)[3], int first, int count);

#endif
