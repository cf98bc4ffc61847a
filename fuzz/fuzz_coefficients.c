/*
 * fuzz_coefficients.c: a libFuzzer target for what gives coefficients: the generators with
 * any numbers, presets by any name, and tables of the caller in a plan. Each fails with a
 * message and writes nothing, or gives finite coefficients.
 */
#include "muonium.h"

#include <math.h>

#include "fuzz.h"

enum { UNTOUCHED = 12345 };

static void check(muonium_status status, int steps, double (*table)[3])
{
    if (status != MUONIUM_OK) {
        demand(status == MUONIUM_INVALID || status == MUONIUM_NOT_CONVERGED);
        demand(muonium_last_error()[0] != '\0');
    }
    for (int i = 0; i < MUONIUM_MAX_STEPS; i++) {
        for (int k = 0; k < 3; k++) {
            bool written = status == MUONIUM_OK && i < steps;
            demand(written ? isfinite(table[i][k]) : !(table[i][k] != UNTOUCHED));
        }
    }
}

static void clear(double (*table)[3])
{
    for (int i = 0; i < MUONIUM_MAX_STEPS; i++) {
        table[i][0] = table[i][1] = table[i][2] = UNTOUCHED;
    }
}

/* Steps of a plan: none, too many, and up to FUZZ_STEPS, which the planner treats in all the
 * ways that it has. */
static int take_steps(uint8_t number)
{
    int steps = number % (FUZZ_STEPS + 4) - 1;
    return steps <= FUZZ_STEPS ? steps : steps - FUZZ_STEPS + MUONIUM_MAX_STEPS;
}

/* A plan of the caller's own table, executed; what it makes of it is its own affair. */
static void use_table(input *in)
{
    double table[4][3];
    float matrix[2][3] = {{1, 2, 3}, {-1, 0, 2}};
    muonium_plan_options options;
    muonium_shape shape = {1, 2, 3};
    uint8_t numbers[4];
    take(in, numbers, sizeof numbers);
    take(in, table, sizeof table);
    muonium_plan_options_init(&options);
    options.steps = take_steps(numbers[0]);
    options.table = (const double(*)[3])table;
    options.table_rows = numbers[1] % 5;
    options.form = (muonium_form)(numbers[2] % 4);
    options.precision = (muonium_dtype)(numbers[3] % 8);
    muonium_view view = muonium_dense(MUONIUM_F32, shape, matrix);
    muonium_status status = muonium_orthogonalize(shape, &options, &view, &view, NULL);
    demand(status == MUONIUM_OK || muonium_last_error()[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    double table[MUONIUM_MAX_STEPS][3], numbers[3];
    int8_t steps;
    uint8_t kind;
    take(&in, &kind, sizeof kind);
    take(&in, &steps, sizeof steps);
    clear(table);
    if (kind % 4 == 0 || kind % 4 == 1) {
        take(&in, numbers, sizeof numbers);
        check(kind % 4 == 0
                  ? muonium_polar_express(steps, numbers[0], numbers[1], numbers[2], table)
                  : muonium_polar_cubic(steps, numbers[0], numbers[1], table),
              steps, table);
    } else if (kind % 4 == 2) {
        char *name = take_string(&in, '\0');
        check(muonium_coefficients(name, steps, table), steps, table);
        free(name);
    } else {
        use_table(&in);
    }
    return 0;
}
