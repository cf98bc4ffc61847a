/*
 * coefficients.h: the polynomials of the iteration.
 *
 * A row {a, b, c} is one iteration: it maps each singular value x to a x + b x^3 + c x^5. A table
 * has one row per iteration. Generators and presets are public (muonium.h). This header has the
 * rule by which a plan chooses its table, and the effect of a table on a single number.
 */
#ifndef MU_COEFFICIENTS_H
#define MU_COEFFICIENTS_H

#include "base/base.h"

/* ---- polar_express.c ---- */

/* Fails, naming the value, unless 1 <= steps <= MUONIUM_MAX_STEPS. */
muonium_status mu_check_steps(int steps);

/* The extrema of the best odd quintic on [1 - width, 1 + width], 0 <= width <= 1:
 * 1 + width * tau[0] and 1 + width * tau[1]. Returns false, with tau undefined, if the search does
 * not converge, as for a width of NaN. */
bool mu_find_extrema(double width, double tau[2]);

/* ---- choice.c ---- */

/* Copy `steps` of `count` >= 1 rows; the last row repeats if there are too few. */
void mu_fill_table(const double (*rows)[3], size_t count, int steps, double (*table)[3]);

/* Write options->steps rows: from options->table (the last row repeats), else from the preset of
 * that name, else generated. Reads steps, table, table_rows, coefficients, lower, safety,
 * cushion and generated_rows. */
muonium_status mu_choose_coefficients(const muonium_plan_options *options, double (*table)[3]);

/* ---- scalar.c ---- */

/* One iteration on one number. */
double mu_quintic(const double abc[3], double x);

/* Iterations first, ..., count - 1 on one number; x if there are none. */
double mu_compose(const double (*table)[3], int first, int count, double x);

/* The largest magnitude of iterations first, ..., count - 1 on [0, x]; infinite if it exceeds the
 * range of double. */
double mu_reach(const double (*table)[3], int first, int count, double x);

/* The largest magnitude of any consecutive iterations on [0, 1]. It bounds a computation that may
 * be rescaled to [0, 1] before each iteration. */
double mu_greatest_reach(const double (*table)[3], int count);

#define MU_STABLE_EDGE_MAX 1e3 /* the search for an edge ends here */

/* The stable edge of iterations first, ..., count - 1: the smallest x >= 1 at which the magnitude
 * of their composition reaches 2 or leaves the range of double. At most MU_STABLE_EDGE_MAX. */
double mu_stable_edge(const double (*table)[3], int first, int count);

#endif
