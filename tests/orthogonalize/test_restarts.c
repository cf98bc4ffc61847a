/*
 * test_restarts.c: the restarts of the Gram form. Their positions determine the bits of each
 * result in Gram form: a faster search must find the same ones.
 */
#include "test.h"

#include <math.h>
#include <time.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/plan.h"

enum { UNITS = 4 };

static const double units[UNITS] = {0x1p-24, 0x1p-53, 0x1p-9, 0x1p-12}; /* f32, f64, bf16, f16 */

/* Bit t: a restart before iteration t. An exhaustive evaluation of all candidates chose them; f32
 * and f64 have some more, for directions that stay zero.
 * Without a preset: Polar Express from 1e-3 with safety and cushion 0.02. */
static const struct {
    const char *preset;
    int steps;
    uint64_t restarts[UNITS];
} chosen[] = {
    {"original", 2, {0x0, 0x0, 0x2, 0x2}},
    {"original", 5, {0x8, 0x8, 0xe, 0xe}},
    {"original", 8, {0x28, 0x28, 0x7e, 0x7e}},
    {"original", 12, {0x3a8, 0x390, 0x5de, 0x6fc}},
    {"original", 16, {0x4ca8, 0x2948, 0x5dfe, 0x2afe}},
    {"original", 17, {0x94a6, 0x9290, 0xabfe, 0x55fe}},
    {"original", 40, {0x44444453fe, 0x15554abfe, 0xbffe, 0x5ffe}},
    {"original", 64, {0x1111111111144bfe, 0x18004071444bfe, 0xbffe, 0x5ffe}},
    {"quintic", 2, {0x2, 0x2, 0x2, 0x2}},
    {"quintic", 5, {0xa, 0xa, 0xe, 0xe}},
    {"quintic", 8, {0x24, 0x24, 0x5e, 0x6e}},
    {"quintic", 12, {0x530, 0x530, 0xaae, 0xade}},
    {"quintic", 16, {0x4948, 0x4948, 0xaafe, 0x6bbe}},
    {"quintic", 17, {0x9248, 0xaa90, 0x155fe, 0xdb7e}},
    {"quintic", 40, {0x108430c3fe, 0x494a51555e, 0x57ffe, 0x49ffe}},
    {"quintic", 64, {0x210842108430c3fe, 0x5010002002000ffe, 0x57ffe, 0x49ffe}},
    {"polar_express", 2, {0x2, 0x2, 0x2, 0x2}},
    {"polar_express", 5, {0xa, 0xa, 0xe, 0xe}},
    {"polar_express", 8, {0x14, 0x14, 0x5e, 0x3e}},
    {"polar_express", 12, {0x8cc, 0x1cc, 0x25e, 0x52e}},
    {"polar_express", 16, {0x2454, 0x2494, 0x555e, 0x552e}},
    {"polar_express", 17, {0x10a8, 0x10a8, 0xa55e, 0x952e}},
    {"polar_express", 40, {0x4201201fe, 0x9212490a8, 0x4043fffe, 0x8103ffe}},
    {"polar_express", 64, {0x20100804201201fe, 0x420844220408103e, 0x4043fffe, 0x8103ffe}},
    {"polar_express_safer", 5, {0xa, 0xa, 0xe, 0xe}},
    {"polar_express_safer", 8, {0x14, 0x14, 0x5e, 0x3e}},
    {"polar_express_safer", 16, {0x2454, 0x2494, 0x555e, 0x24be}},
    {"polar_express_safer", 17, {0x10a8, 0x10a8, 0xa55e, 0x952e}},
    {"polar_express_safer",
     64,
     {0x20100804201201fe, 0x408822020408413e, 0x100000000043fffe, 0x8103ffe}},
    {"polar_express_5", 5, {0xa, 0xa, 0xe, 0xe}},
    {"polar_express_5", 8, {0x14, 0x54, 0x5e, 0xae}},
    {"polar_express_5", 16, {0x8928, 0x2494, 0x52be, 0x5aae}},
    {"polar_express_5", 17, {0x9248, 0x2514, 0xa57e, 0xa55e}},
    {"polar_express_5", 64, {0x40810204090281fe, 0x8081104108421fe, 0x800000047ffe, 0x8000021ffe}},
    {"cans", 5, {0xe, 0xe, 0xe, 0xe}},
    {"cans", 8, {0x26, 0x26, 0x5e, 0x2e}},
    {"cans", 16, {0x2494, 0x2494, 0x52be, 0x54be}},
    {"cans", 17, {0x3248, 0x9114, 0x557e, 0xaa5e}},
    {"cans", 64, {0x20408102810281fe, 0x802a08220b01fe, 0x8000000047ffe, 0x200000021ffe}},
    {"aol", 5, {0x8, 0x8, 0xe, 0xe}},
    {"aol", 8, {0x48, 0x48, 0x6e, 0xde}},
    {"aol", 16, {0x4928, 0x4928, 0x56fe, 0x5554}},
    {"aol", 17, {0x9288, 0xa254, 0xadfe, 0xd55e}},
    {"aol", 64, {0x20820820828283fe, 0x8040201007fe, 0x24fffe, 0x223ffe}},
    {"cubic", 5, {0x4, 0x4, 0xc, 0xc}},
    {"cubic", 8, {0x10, 0x10, 0x2c, 0x5c}},
    {"cubic", 16, {0x24a0, 0x8c4, 0x2d5c, 0x35ac}},
    {"cubic", 17, {0x2248, 0x2228, 0x9b5e, 0x55d4}},
    {"cubic", 64, {0x4081020409314bfe, 0xfffc4ffffff91ffe, 0x53fffe, 0x947ffe}},
    {NULL, 2, {0x2, 0x2, 0x2, 0x2}},
    {NULL, 5, {0xa, 0xa, 0xe, 0xe}},
    {NULL, 8, {0x14, 0x14, 0x5e, 0x3e}},
    {NULL, 12, {0x24c, 0xac, 0x59e, 0x52e}},
    {NULL, 16, {0x2454, 0x2494, 0x515e, 0x24be}},
    {NULL, 17, {0x10a8, 0x10a8, 0xa95e, 0x952e}},
    {NULL, 40, {0x10802803fe, 0x8248490a8, 0x843fffe, 0x400207ffe}},
    {NULL, 64, {0x8080200802803fe, 0x111111111222245e, 0x843fffe, 0x400000000207ffe}},
};

static uint64_t restarts_of(const double (*table)[3], int steps, double unit)
{
    bool restart[MUONIUM_MAX_STEPS];
    uint64_t bits = 0;
    mu_choose_restarts(table, steps, unit, restart);
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        bits |= (uint64_t)restart[t] << t;
    }
    return bits;
}

static void test_positions_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        double table[MUONIUM_MAX_STEPS][3];
        const char *preset = chosen[i].preset;
        int steps = chosen[i].steps;
        assert_int_equal(preset ? muonium_coefficients(preset, steps, table)
                                : muonium_polar_express(steps, 1e-3, 0.02, 0.02, table),
                         MUONIUM_OK);
        for (int u = 0; u < UNITS; u++) {
            uint64_t found = restarts_of((const double(*)[3])table, steps, units[u]);
            if (found != chosen[i].restarts[u]) {
                fail_msg("%s, %d steps, unit %g: %#llx, not %#llx", preset ? preset : "generated",
                         steps, units[u], (unsigned long long)found,
                         (unsigned long long)chosen[i].restarts[u]);
            }
        }
    }
}

/* Tables whose numbers leave the range of double: no choice helps, so there is a restart before
 * each iteration but the first. */
static void test_overflow(void **state)
{
    (void)state;
    static const int lengths[] = {2, 3, 16, 17, 64};
    double table[MUONIUM_MAX_STEPS][3];
    for (int t = 0; t < MUONIUM_MAX_STEPS; t++) {
        table[t][0] = 1e300;
        table[t][1] = -1e300;
        table[t][2] = 1e300;
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int steps = lengths[i];
        uint64_t every = UINT64_MAX >> (MUONIUM_MAX_STEPS - steps) & ~(uint64_t)1;
        assert_true(restarts_of((const double(*)[3])table, steps, 0x1p-24) == every);
    }
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* This table maps large values beyond the range of double, but not small ones: a NaN must not be
 * replaced by the finite error of another largest value. */
static void test_overflow_of_some_values(void **state)
{
    (void)state;
    static const double table[4][3] = {
        {8.5, -0.5, 102.4}, {8.5, -0.5, 102.4}, {8.5, -0.5, 102.4}, {8.5, -0.5, 102.4}};
    assert_true(restarts_of(table, 4, 0x1p-24) == 0xe);
}

/* The unit of time is one application of the table to a number, so that sanitizers slow down both
 * sides. An exhaustive evaluation takes 460,000 units, the search 18,000. */
static void test_long_tables_are_planned_quickly(void **state)
{
    (void)state;
    enum { NUMBERS = 2000 };
    double table[MUONIUM_MAX_STEPS][3], best = INFINITY, applied = INFINITY;
    for (int round = 0; round < 5; round++) {
        double lower = 1e-3 * (1 + 0.01 * round); /* differs each time: results are cached */
        volatile double sum = 0;
        assert_int_equal(muonium_polar_express(64, lower, 0.02, 0.02, table), MUONIUM_OK);
        const double(*rows)[3] = (const double(*)[3])table;
        double start = cpu_seconds();
        restarts_of(rows, 64, 0x1p-24);
        best = fmin(best, cpu_seconds() - start);
        start = cpu_seconds();
        for (int i = 0; i < NUMBERS; i++) {
            sum = sum + mu_compose(rows, 0, 64, (double)i / NUMBERS);
        }
        applied = fmin(applied, (cpu_seconds() - start) / NUMBERS);
    }
    printf("64 steps: restarts chosen in %.2f ms, as long as to apply them to %.0f numbers\n",
           1e3 * best, best / applied);
    assert_true(best < 200e3 * applied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions_stay),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_overflow_of_some_values),
        cmocka_unit_test(test_long_tables_are_planned_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
