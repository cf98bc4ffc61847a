/*
 * choice.c: choose the table of coefficients of a plan: rows if given, else a preset if named,
 * else the generator.
 */
#include "coefficients/coefficients.h"

#include <math.h>
#include <string.h>

void mu_fill_table(const double (*rows)[3], size_t count, int steps, double (*table)[3])
{
    for (size_t t = 0; t < (size_t)steps; t++) {
        memcpy(table[t], rows[t < count ? t : count - 1], sizeof table[t]);
    }
}

/* Rows beyond `steps` are checked too: a NaN is a mistake wherever it is. */
static muonium_status check_table(const double (*rows)[3], size_t count)
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

muonium_status mu_choose_coefficients(const muonium_plan_options *options, double (*table)[3])
{
    if (mu_check_steps(options->steps) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (options->table != NULL) {
        if (check_table(options->table, options->table_rows) != MUONIUM_OK) {
            return MUONIUM_INVALID;
        }
        mu_fill_table(options->table, options->table_rows, options->steps, table);
        return MUONIUM_OK;
    }
    if (options->coefficients != NULL) {
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
