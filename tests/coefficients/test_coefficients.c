/*
 * test_coefficients.c: generators against references of 60 digits and against
 * the definition of the optimum, presets and their published behaviour, the
 * choice of a plan's table, and every error message.
 */
#include "test.h"

#include <fenv.h>
#include <math.h>

#include "coefficients/coefficients.h"

#include "data/polar_express_reference.h"

/* C11 does not add the const of a row by itself. */
#define ROWS(table) ((const double(*)[3])(table))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const double promised = 1e-12; /* relative accuracy that muonium.h promises */
static const double untouched = 12345.0;

static double relative_error(double found, double right)
{
    return right == 0.0 ? fabs(found) : fabs(found / right - 1.0);
}

/* Fails unless all numbers agree to `tolerance` relative. NaN does not agree. */
static void assert_rows_close(const double (*found)[3], const double (*right)[3], int steps,
                              double tolerance)
{
    for (int t = 0; t < steps; t++) {
        for (int k = 0; k < 3; k++) {
            if (!(relative_error(found[t][k], right[t][k]) <= tolerance)) {
                fail_msg("iteration %d, %c: found %.17g, right %.17g", t + 1, "abc"[k], found[t][k],
                         right[t][k]);
            }
        }
    }
}

static void assert_near(double found, double right, double tolerance)
{
    if (!(fabs(found - right) <= tolerance)) {
        fail_msg("found %.17g, expected %.17g within %g", found, right, tolerance);
    }
}

/* The call was refused as invalid, with a message that contains both words. */
static void assert_refused(muonium_status status, const char *name, const char *value)
{
    assert_status_message(status, MUONIUM_INVALID, name);
    assert_status_message(status, MUONIUM_INVALID, value);
}

static void mark(double (*table)[3])
{
    for (int i = 0; i < MUONIUM_MAX_STEPS * 3; i++) {
        table[i / 3][i % 3] = untouched;
    }
}

/* Fails unless the rows from `first` on are as mark() left them. */
static void assert_untouched(const double (*table)[3], int first)
{
    for (int i = first * 3; i < MUONIUM_MAX_STEPS * 3; i++) {
        assert_true(table[i / 3][i % 3] == untouched);
    }
}

/* ---- generators ---- */

static void test_reference_tables(void **state)
{
    (void)state;
    size_t row = 0;
    double worst = 0.0;
    for (size_t i = 0; i < COUNT(reference_cases); i++) {
        const int steps = reference_cases[i].steps;
        const double lower = reference_cases[i].lower;
        const double safety = reference_cases[i].safety;
        const double cushion = reference_cases[i].cushion;
        double table[MUONIUM_MAX_STEPS][3];
        mark(table);
        const muonium_status status =
            reference_cases[i].cubic ? muonium_polar_cubic(steps, lower, safety, table)
                                     : muonium_polar_express(steps, lower, safety, cushion, table);
        assert_ok(status);
        assert_rows_close(ROWS(table), reference_rows + row, steps, promised);
        assert_untouched(ROWS(table), steps);
        for (int k = 0; k < 3 * steps; k++) {
            const double right = reference_rows[row + (size_t)(k / 3)][k % 3];
            worst = fmax(worst, relative_error(table[k / 3][k % 3], right));
        }
        row += (size_t)steps;
    }
    assert_int_equal(row, COUNT(reference_rows));
    printf("%zu rows, largest relative error %.2g\n", row, worst);
}

/* The values that the documentation prints for the defaults and ten iterations. */
static void test_documented_table(void **state)
{
    (void)state;
    static const double documented[10][3] = {
        {8.2373124904955546, -23.157747414558191, 16.680568411445908},
        {4.0824419990648337, -2.8930477353325856, 0.52528492569756446},
        {3.926347992254652, -2.8547468034765262, 0.53180224228949824},
        {3.2982187133085161, -2.4245419810267084, 0.48632008358844114},
        {2.2970369434552582, -1.6366255812590318, 0.40026284559536307},
        {1.8763805351440404, -1.2347896577722244, 0.35891887501668474},
        {1.8564423485604249, -1.21324498809086, 0.35680034878126737},
        {1.8564356435863227, -1.2132376849334816, 0.35679963285487626},
        {1.8564356435704306, -1.2132376849161717, 0.35679963285317939},
        {1.8750000000061269, -1.2500000000068077, 0.37500000000068079},
    };
    double table[10][3];
    assert_ok(muonium_polar_express(10, 1e-3, 1e-2, 0.02, table));
    assert_rows_close(ROWS(table), documented, 10, promised);
}

/* An odd polynomial is the best on [lower, 1] if and only if its deviation from 1
 * alternates between the same extreme values. One iteration has no safety. */
static void check_alternation(bool cubic, double lower)
{
    double table[1][3];
    const muonium_status status = cubic ? muonium_polar_cubic(1, lower, 0.3, table)
                                        : muonium_polar_express(1, lower, 0.3, 0.0, table);
    assert_ok(status);
    const double a = table[0][0];
    const double b = table[0][1];
    const double c = table[0][2];
    const double rounding = 16 * 0x1p-52 * (fabs(a) + fabs(b) + fabs(c));
    const double error = 1.0 - mu_quintic(table[0], lower);
    assert_true(error >= -rounding && error < 1.0);
    if (cubic) {
        assert_true(c == 0.0);
        assert_near(mu_quintic(table[0], 1.0) - 1.0, -error, rounding);
        assert_near(mu_quintic(table[0], sqrt(-a / (3.0 * b))) - 1.0, error, rounding);
        return;
    }
    const double root = sqrt(fmax(9.0 * b * b - 20.0 * a * c, 0.0));
    assert_near(mu_quintic(table[0], 1.0) - 1.0, error, rounding);
    assert_near(mu_quintic(table[0], sqrt((-3.0 * b - root) / (10.0 * c))) - 1.0, error, rounding);
    assert_near(mu_quintic(table[0], sqrt((-3.0 * b + root) / (10.0 * c))) - 1.0, -error, rounding);
}

static void test_alternation(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("alternation");
    for (int i = 0; i < 2000; i++) {
        const double spread = pow(10.0, test_uniform(&rng, -8.0, 0.0));
        check_alternation(i % 2 == 0, i % 4 < 2 ? spread : 1.0 - spread);
    }
}

static void test_random_arguments_give_finite_tables(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("finite tables");
    for (int i = 0; i < 2000; i++) {
        double table[MUONIUM_MAX_STEPS][3];
        const int steps = 1 + (int)test_below(&rng, MUONIUM_MAX_STEPS);
        const double lower = pow(10.0, test_uniform(&rng, i % 2 == 0 ? -10.0 : -300.0, 0.0));
        const double safety = pow(10.0, test_uniform(&rng, -16.0, 4.0));
        const double cushion = test_uniform(&rng, 0.0, 1.0);
        assert_ok(muonium_polar_express(steps, lower, safety, cushion, table));
        for (int k = 0; k < 3 * steps; k++) {
            assert_true(isfinite(table[k / 3][k % 3]));
        }
    }
}

static void test_extreme_arguments(void **state)
{
    (void)state;
    static const double extremes[][3] = {
        {0x1p-1074, 0.0, 0.0},     {0x1p-1022, 0.1, 0.0},
        {1.0, 0.0, 0.0},           {0.0, 0.0, 0x1p-1074},
        {0.0, 0.0, 1.0 - 0x1p-53}, {1.0 - 0x1p-53, 0.0, 0.0},
        {0.5, 1e300, 0.02},        {1e-3, 0x1.fffffffffffffp1023, 0.0},
        {1e-3, 0x1p-1074, 0.02},   {1e-300, 1e100, 0.5},
    };
    for (size_t i = 0; i < COUNT(extremes); i++) {
        double table[MUONIUM_MAX_STEPS][3];
        mark(table);
        assert_ok(muonium_polar_express(MUONIUM_MAX_STEPS, extremes[i][0], extremes[i][1],
                                        extremes[i][2], table));
        for (int k = 0; k < 3 * MUONIUM_MAX_STEPS; k++) {
            assert_true(isfinite(table[k / 3][k % 3]) && table[k / 3][k % 3] != untouched);
        }
        assert_true(table[MUONIUM_MAX_STEPS - 1][0] > 0.0);
    }
}

static void test_equal_ends_are_the_limit(void **state)
{
    (void)state;
    static const double quintic[1][3] = {{15.0 / 8.0, -10.0 / 8.0, 3.0 / 8.0}};
    static const double cubic[1][3] = {{1.5, -0.5, 0.0}};
    double table[1][3];
    assert_ok(muonium_polar_express(1, 1.0, 0.0, 0.0, table));
    assert_rows_close(ROWS(table), quintic, 1, 8 * 0x1p-52);
    assert_ok(muonium_polar_cubic(1, 1.0, 0.0, table));
    assert_rows_close(ROWS(table), cubic, 1, 8 * 0x1p-52);
}

static void test_rounding_mode_of_the_caller(void **state)
{
    (void)state;
    double nearest[10][3];
    double upward[10][3];
    assert_ok(muonium_polar_express(10, 1e-3, 1e-2, 0.02, nearest));
    assert_int_equal(fesetround(FE_UPWARD), 0);
    const muonium_status status = muonium_polar_express(10, 1e-3, 1e-2, 0.02, upward);
    const int mode = fegetround();
    fesetround(FE_TONEAREST);
    assert_ok(status);
    assert_int_equal(mode, FE_UPWARD);
    assert_memory_equal(nearest, upward, sizeof nearest);
}

static void test_search_reports_failure(void **state)
{
    (void)state;
    double tau[2];
    assert_true(mu_find_extrema(0.0, tau));
    assert_near(tau[0], -0.5, 4 * 0x1p-52);
    assert_near(tau[1], 0.5, 4 * 0x1p-52);
    assert_true(mu_find_extrema(1.0, tau));
    assert_false(mu_find_extrema((double)NAN, tau));
    assert_false(mu_find_extrema((double)INFINITY, tau));
}

static void test_generator_errors(void **state)
{
    (void)state;
    static const struct {
        int steps;
        double lower, safety, cushion;
        const char *name, *value;
    } wrong[] = {
        {0, 1e-3, 0.0, 0.0, "steps", "0"},         {-7, 1e-3, 0.0, 0.0, "steps", "-7"},
        {65, 1e-3, 0.0, 0.0, "steps", "65"},       {5, -0.25, 0.0, 0.0, "lower", "-0.25"},
        {5, 1.5, 0.0, 0.0, "lower", "1.5"},        {5, NAN, 0.0, 0.0, "lower", "nan"},
        {5, INFINITY, 0.0, 0.0, "lower", "inf"},   {5, 0.5, -0.125, 0.0, "safety", "-0.125"},
        {5, 0.5, NAN, 0.0, "safety", "nan"},       {5, 0.5, INFINITY, 0.0, "safety", "inf"},
        {5, 0.0, 0.0, 0.0, "lower", "0"},          {5, 0.5, 0.0, -0.5, "cushion", "-0.5"},
        {5, 0.5, 0.0, 1.0, "cushion", "1"},        {5, 0.5, 0.0, NAN, "cushion", "nan"},
        {5, 0.5, 0.0, INFINITY, "cushion", "inf"},
    };
    double table[MUONIUM_MAX_STEPS][3];
    mark(table);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_refused(muonium_polar_express(wrong[i].steps, wrong[i].lower, wrong[i].safety,
                                             wrong[i].cushion, table),
                       wrong[i].name, wrong[i].value);
        if (strcmp(wrong[i].name, "cushion") != 0) {
            assert_refused(
                muonium_polar_cubic(wrong[i].steps, wrong[i].lower, wrong[i].safety, table),
                wrong[i].name, wrong[i].value);
        }
    }
    assert_untouched(ROWS(table), 0);
    assert_refused(muonium_polar_express(5, 1e-3, 0.0, 0.0, NULL), "table", "NULL");
    assert_refused(muonium_polar_cubic(5, 1e-3, 0.0, NULL), "table", "NULL");
}

/* ---- presets ---- */

static const struct {
    const char *name;
    int rows;
    double first_a, last_c;
    double low, high; /* range of five iterations on [1e-3, 1]; 0 if none is published */
    double edge;      /* the first multiple of 5e-4 above 1 at which five iterations reach 2 */
} published[] = {
    {"original", 1, 3.4445, 2.0315, 0.471, 1.202, 1.264},
    {"quintic", 5, 4.0848, 1.2012, 0.475, 1.145, 1.325},
    {"polar_express", 8, 8.237312490495555, 0.3749994008546422, 0.0, 0.0, 0.0},
    {"polar_express_safer", 8, 8.156554524902461, 0.374999991275876, 0.0, 0.0, 0.0},
    {"polar_express_5", 5, 8.156554524902461, 0.42323551169305323, 0.859, 1.141, 1.022},
    {"cans", 5, 8.4703, 0.4162, 0.884, 1.120, 1.0005},
    {"aol", 4, 4.6051, 0.8193, 0.0, 0.0, 0.0},
    {"cubic", 5, 3.3656576, 0.0, 0.119, 1.300, 0.0},
};

static void test_presets(void **state)
{
    (void)state;
    for (int i = 0; i < (int)COUNT(published); i++) {
        assert_string_equal(muonium_preset_name(i), published[i].name);
        const int rows = muonium_preset_rows(i);
        assert_int_equal(rows, published[i].rows);

        double table[MUONIUM_MAX_STEPS][3];
        mark(table);
        assert_ok(muonium_coefficients(published[i].name, rows + 2, table));
        assert_untouched(ROWS(table), rows + 2);
        assert_true(table[0][0] == published[i].first_a);
        assert_true(table[rows - 1][2] == published[i].last_c);
        assert_memory_equal(table[rows], table[rows - 1], sizeof table[0]);
        assert_memory_equal(table[rows + 1], table[rows - 1], sizeof table[0]);
        for (int t = 0; t < rows; t++) {
            assert_true(table[t][0] > 0.0 && table[t][1] < 0.0 && table[t][2] >= 0.0);
        }

        mark(table);
        assert_ok(muonium_coefficients(published[i].name, 1, table));
        assert_true(table[0][0] == published[i].first_a);
        assert_untouched(ROWS(table), 1);
    }
    assert_null(muonium_preset_name((int)COUNT(published)));
    assert_null(muonium_preset_name(-1));
    assert_int_equal(muonium_preset_rows((int)COUNT(published)), 0);
    assert_int_equal(muonium_preset_rows(-1), 0);
}

/* The published tables of the generator are its results up to the rounding of
 * whoever published them; rows near convergence lost up to ten digits. */
static void test_generated_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int steps;
        double safety;
    } origin[] = {
        {"polar_express", 8, 1e-2}, {"polar_express_safer", 8, 2e-2}, {"polar_express_5", 5, 2e-2}};
    for (size_t i = 0; i < COUNT(origin); i++) {
        double preset[8][3];
        double generated[8][3];
        assert_ok(muonium_coefficients(origin[i].name, origin[i].steps, preset));
        assert_int_equal(
            muonium_polar_express(origin[i].steps, 1e-3, origin[i].safety, 0.02, generated),
            MUONIUM_OK);
        assert_rows_close(ROWS(preset), ROWS(generated), 5, 1e-13);
        assert_rows_close(ROWS(preset), ROWS(generated), origin[i].steps, 1e-5);
    }
}

static void test_bands(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(published); i++) {
        if (published[i].high == 0.0) {
            continue;
        }
        double table[5][3];
        assert_ok(muonium_coefficients(published[i].name, 5, table));
        double low = INFINITY;
        double high = -INFINITY;
        const int samples = 200000;
        for (int k = 0; k <= samples; k++) {
            const double x = mu_compose(ROWS(table), 0, 5, pow(10.0, -3.0 * k / samples));
            low = fmin(low, x);
            high = fmax(high, x);
        }
        assert_near(low, published[i].low, 6e-4);
        assert_near(high, published[i].high, 6e-4);
    }
}

static void test_preset_errors(void **state)
{
    (void)state;
    double table[MUONIUM_MAX_STEPS][3];
    mark(table);
    assert_refused(muonium_coefficients("polar", 5, table), "\"polar\"", "polar_express_5");
    for (size_t i = 0; i < COUNT(published); i++) {
        assert_non_null(strstr(muonium_last_error(), published[i].name));
    }
    assert_refused(muonium_coefficients("", 5, table), "\"\"", "original");
    assert_refused(muonium_coefficients(NULL, 5, table), "NULL", "original");
    assert_refused(muonium_coefficients("cans", 0, table), "steps", "0");
    assert_refused(muonium_coefficients("cans", 65, table), "steps", "65");
    assert_refused(muonium_coefficients("cans", 5, NULL), "table", "NULL");
    assert_untouched(ROWS(table), 0);
}

/* ---- one number ---- */

static void test_compose(void **state)
{
    (void)state;
    static const double table[3][3] = {{1.0, 2.0, 3.0}, {2.0, 0.0, 0.0}, {0.0, 1.0, 0.0}};
    assert_true(mu_quintic(table[0], 2.0) == 2.0 + 16.0 + 96.0);
    assert_true(mu_quintic(table[0], -2.0) == -114.0);
    assert_true(mu_compose(ROWS(table), 0, 3, 1.0) == 1728.0);
    assert_true(mu_compose(ROWS(table), 1, 3, 1.0) == 8.0);
    assert_true(mu_compose(ROWS(table), 2, 3, 3.0) == 27.0);
    assert_true(mu_compose(ROWS(table), 3, 3, 3.0) == 3.0);
}

static void test_published_edges(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(published); i++) {
        double table[5][3];
        assert_ok(muonium_coefficients(published[i].name, 5, table));
        const double edge = mu_stable_edge(ROWS(table), 0, 5);
        if (published[i].edge != 0.0) {
            assert_true(edge <= published[i].edge && edge > published[i].edge - 5e-4);
        }
        /* From each iteration on: 2 is reached at the edge and at no sample before. */
        for (int first = 0; first < 5; first++) {
            const double partial = mu_stable_edge(ROWS(table), first, 5);
            assert_true(partial >= 1.0 && partial < MU_STABLE_EDGE_MAX);
            assert_near(fabs(mu_compose(ROWS(table), first, 5, partial)), 2.0, 1e-9);
            for (int k = 0; k < 20000; k++) {
                const double x = 1.0 + (partial - 1.0) * k / 20000.0;
                assert_true(fabs(mu_compose(ROWS(table), first, 5, x)) < 2.0);
            }
        }
    }
}

static void test_edge_cases(void **state)
{
    (void)state;
    static const double doubling[2][3] = {{2.0, 0.0, 0.0}, {1.0, 0.0, 0.0}};
    static const double cube[1][3] = {{0.0, 1.0, 0.0}};
    static const double vanishing[1][3] = {{0.0, 0.0, 0.0}};
    static const double huge[2][3] = {{1e300, 0.0, 0.0}, {1.0, -1.0, 1e300}};
    static const double falling[1][3] = {{0.0, -1.0, 0.0}};

    assert_true(mu_stable_edge(doubling, 0, 2) == 1.0);
    assert_true(mu_stable_edge(doubling, 1, 2) == 2.0);
    assert_true(mu_stable_edge(doubling, 2, 2) == 2.0);
    assert_near(mu_stable_edge(cube, 0, 1), cbrt(2.0), 4 * 0x1p-52);
    assert_near(mu_stable_edge(falling, 0, 1), cbrt(2.0), 4 * 0x1p-52);
    assert_true(mu_stable_edge(vanishing, 0, 1) == MU_STABLE_EDGE_MAX);
    assert_true(mu_stable_edge(huge, 0, 2) == 1.0);
}

/* 3.03 x - x^3 has a maximum at sqrt(1.01). Scaled so that it passes 2 by a hair,
 * over a width of 2e-6, it counts; scaled to stay below, it does not, and the
 * edge is where the cubic falls to -2. */
static void test_edge_at_a_narrow_peak(void **state)
{
    (void)state;
    const double top = sqrt(1.01);
    double table[2][3] = {{3.03, -1.0, 0.0}, {0.0, 0.0, 0.0}};
    table[1][0] = 2.0 * (1.0 + 1e-12) / mu_quintic(table[0], top);
    assert_near(mu_stable_edge(ROWS(table), 0, 2), top, 2e-6);
    table[1][0] = 2.0 * (1.0 - 1e-12) / mu_quintic(table[0], top);
    assert_near(mu_stable_edge(ROWS(table), 0, 2), 2.0 * top, 1e-9);
}

/* ---- choice ---- */

static muonium_plan_options plan_options(int steps)
{
    muonium_plan_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.steps = steps;
    options.lower = 1e-3;
    options.safety = 2e-2;
    options.cushion = 0.02;
    options.normalization = MUONIUM_NORM_FROBENIUS;
    return options;
}

static void test_choice(void **state)
{
    (void)state;
    static const double rows[2][3] = {{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}};
    static const double repeated[4][3] = {
        {1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}, {4.0, 5.0, 6.0}, {4.0, 5.0, 6.0}};
    double table[MUONIUM_MAX_STEPS][3];
    double expected[5][3];
    muonium_plan_options options = plan_options(5);

    mark(table);
    assert_ok(mu_choose_coefficients(&options, table));
    assert_ok(muonium_polar_express(5, 1e-3, 2e-2, 0.02, expected));
    assert_memory_equal(table, expected, sizeof expected);
    assert_untouched(ROWS(table), 5);

    options.coefficients = "quintic";
    assert_ok(mu_choose_coefficients(&options, table));
    assert_ok(muonium_coefficients("quintic", 5, expected));
    assert_memory_equal(table, expected, sizeof expected);

    options.table = rows;
    options.table_rows = 2;
    options.steps = 4;
    mark(table);
    assert_ok(mu_choose_coefficients(&options, table));
    assert_memory_equal(table, repeated, sizeof repeated);
    assert_untouched(ROWS(table), 4);
    options.steps = 1;
    mark(table);
    assert_ok(mu_choose_coefficients(&options, table));
    assert_memory_equal(table, repeated, sizeof repeated[0]);
    assert_untouched(ROWS(table), 1);

    options = plan_options(4);
    options.coefficients = "aol";
    options.normalization = MUONIUM_NORM_AOL;
    assert_ok(mu_choose_coefficients(&options, table));
    assert_near(table[3][1], -2.2861, 0x1p-52);
}

static void test_choice_errors(void **state)
{
    (void)state;
    double rows[3][3] = {{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}, {7.0, 8.0, 9.0}};
    double table[MUONIUM_MAX_STEPS][3];
    mark(table);

    muonium_plan_options options = plan_options(0);
    assert_refused(mu_choose_coefficients(&options, table), "steps", "0");
    options = plan_options(65);
    options.coefficients = "cans";
    assert_refused(mu_choose_coefficients(&options, table), "steps", "65");

    options = plan_options(2);
    options.table = ROWS(rows);
    assert_refused(mu_choose_coefficients(&options, table), "table_rows", "0 rows");
    options.table_rows = 3;
    rows[1][2] = NAN;
    assert_refused(mu_choose_coefficients(&options, table), "row 1, column 2 (c)", "nan");
    rows[1][2] = 6.0;
    rows[2][0] = -INFINITY;
    assert_refused(mu_choose_coefficients(&options, table), "row 2, column 0 (a)", "-inf");

    options = plan_options(5);
    options.coefficients = "nonesuch";
    assert_refused(mu_choose_coefficients(&options, table), "\"nonesuch\"", "cans");

    options = plan_options(5);
    options.lower = 2.5;
    assert_refused(mu_choose_coefficients(&options, table), "lower", "2.5");
    assert_untouched(ROWS(table), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_tables),
        cmocka_unit_test(test_documented_table),
        cmocka_unit_test(test_alternation),
        cmocka_unit_test(test_random_arguments_give_finite_tables),
        cmocka_unit_test(test_extreme_arguments),
        cmocka_unit_test(test_equal_ends_are_the_limit),
        cmocka_unit_test(test_rounding_mode_of_the_caller),
        cmocka_unit_test(test_search_reports_failure),
        cmocka_unit_test(test_generator_errors),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_generated_presets),
        cmocka_unit_test(test_bands),
        cmocka_unit_test(test_preset_errors),
        cmocka_unit_test(test_compose),
        cmocka_unit_test(test_published_edges),
        cmocka_unit_test(test_edge_cases),
        cmocka_unit_test(test_edge_at_a_narrow_peak),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
