/*
 * choice.c: which table of coefficients a plan uses. What is given most
 * explicitly wins: rows, then a name, then the arguments of the generator.
 */
#include "coefficients/coefficients.h"

#include <math.h>
#include <string.h>

void mu_fill_table(const double (*rows)[3], size_t count, int steps, double (*table)[3])
{
    for (size_t step = 0; step < (size_t)steps; step++) {
        memcpy(table[step], rows[step < count ? step : count - 1], sizeof table[step]);
    }
}

/* Every row is checked, also those beyond `steps`: a table with a NaN in it is
 * a mistake wherever the NaN stands. */
static muonium_status check_rows(const double (*rows)[3], size_t count)
{
    if (count == 0) {
        return mu_fail(MUONIUM_INVALID, "table has 0 rows (table_rows): give at least one, or set "
                                        "table to NULL");
    }
    for (size_t row = 0; row < count; row++) {
        for (int column = 0; column < 3; column++) {
            if (!isfinite(rows[row][column])) {
                return mu_fail(MUONIUM_INVALID,
                               "table row %zu, column %d (%c) is %g: coefficients must be finite "
                               "(rows and columns count from 0)",
                               row, column, "abc"[column], rows[row][column]);
            }
        }
    }
    return MUONIUM_OK;
}

/* The table `aol` starts from a scaling that no other normalisation gives. */
static muonium_status check_normalization(const char *coefficients,
                                          muonium_normalization normalization)
{
    if (strcmp(coefficients, "aol") != 0 || normalization == MUONIUM_NORM_AOL) {
        return MUONIUM_OK;
    }
    const char *name = muonium_enum_name("muonium_normalization", (int)normalization);
    return mu_fail(MUONIUM_INVALID,
                   "coefficients \"aol\" with normalization %s (%d): they fit normalization aol "
                   "(%d) alone; change one of the two",
                   name ? name : "unknown", (int)normalization, (int)MUONIUM_NORM_AOL);
}

muonium_status mu_choose_coefficients(const muonium_plan_options *options, double (*table)[3])
{
    if (mu_check_steps(options->steps) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (options->table != NULL) {
        if (check_rows(options->table, options->table_rows) != MUONIUM_OK) {
            return MUONIUM_INVALID;
        }
        mu_fill_table(options->table, options->table_rows, options->steps, table);
        return MUONIUM_OK;
    }
    if (options->coefficients != NULL) {
        if (check_normalization(options->coefficients, options->normalization) != MUONIUM_OK) {
            return MUONIUM_INVALID;
        }
        return muonium_coefficients(options->coefficients, options->steps, table);
    }
    double generated[MUONIUM_MAX_STEPS][3];
    int rows = options->generated_rows > 0 ? options->generated_rows : options->steps;
    muonium_status status =
        muonium_polar_express(rows, options->lower, options->safety, options->cushion, generated);
    if (status == MUONIUM_OK) {
        mu_fill_table((const double(*)[3])generated, (size_t)rows, options->steps, table);
    }
    return status;
}
