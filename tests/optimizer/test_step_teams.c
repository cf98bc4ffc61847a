/*
 * test_step_teams.c: a step by teams of threads: the same bits for every number of threads, with
 * one team and with many, for every recipe; scratch memory within its bound; fork during a step.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "optimizer/schedule.h"

typedef struct tensor_kind {
    size_t count, rows, cols; /* cols 0: a vector */
} tensor_kind;

static const tensor_kind kinds[] = {{5, 72, 130}, {3, 130, 72},  {3, 140, 140},
                                    {14, 12, 20}, {2, 70000, 0}, {1, 300, 0}};

/* Large enough for blocks of all sizes, and for products that stream from memory. */
static const tensor_kind large_kinds[] = {{1, 600, 600}, {1, 550, 1100}, {4, 72, 130}};

enum { STEPS = 2 };

typedef struct tensor_kinds {
    const tensor_kind *kind;
    size_t count;
} tensor_kinds;

static const tensor_kinds small = {kinds, MU_COUNT(kinds)};
static const tensor_kinds large = {large_kinds, MU_COUNT(large_kinds)};

typedef struct model {
    float *data, *grad;
    size_t elements;
    muonium_optimizer *optimizer;
} model;

static size_t elements_of(const tensor_kind *k)
{
    return k->rows * (k->cols > 0 ? k->cols : 1);
}

static model model_of(const tensor_kinds *of, const muonium_options *options)
{
    model m = {0};
    for (size_t k = 0; k < of->count; k++) {
        m.elements += of->kind[k].count * elements_of(&of->kind[k]);
    }
    m.data = calloc(2 * m.elements, sizeof *m.data);
    assert_non_null(m.data);
    m.grad = m.data + m.elements;
    for (size_t i = 0; i < 2 * m.elements; i++) {
        m.data[i] = (float)((i * 2654435761u >> 7) % 4096) / 2048 - 1;
    }
    assert_ok(muonium_create(options, &m.optimizer));
    size_t at = 0, number = 0;
    for (size_t k = 0; k < of->count; k++) {
        const tensor_kind *kind = &of->kind[k];
        for (size_t i = 0; i < kind->count; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%zu.weight", number++);
            muonium_tensor tensor = {.name = name,
                                     .ndim = kind->cols > 0 ? 2 : 1,
                                     .shape = {kind->rows, kind->cols},
                                     .data = m.data + at,
                                     .grad = m.grad + at};
            assert_ok(muonium_add(m.optimizer, &tensor, NULL));
            at += elements_of(kind);
        }
    }
    return m;
}

static model model_new(const muonium_options *options)
{
    return model_of(&small, options);
}

static void model_free(model *m)
{
    muonium_destroy(m->optimizer);
    free(m->data);
}

static void step(model *m)
{
    for (int i = 0; i < STEPS; i++) {
        assert_ok(muonium_step(m->optimizer));
    }
}

#if !defined(TEST_SANITIZED)
static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_numbers(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}
#endif

static void check_teams(muonium_dtype type)
{
    const int threads[] = {2, 3, 7, 16, 64, 128};
    const size_t bounds[] = {1, 0, SIZE_MAX};
    const char *recipe;
    unsigned most_teams = 0, most_width = 0;
    for (int r = 0; (recipe = muonium_recipe_name(r)) != NULL; r++) {
        muonium_options options;
        assert_ok(muonium_options_init(&options, recipe));
        options.lr = 0.01; /* optax has no default */
        options.state_dtype = options.adam_state_dtype = type;
        assert_ok(muonium_set_threads(1));
        model expected = model_new(&options);
        step(&expected);
        for (size_t t = 0; t < MU_COUNT(threads); t++) {
            /* All bounds with one recipe, one with each of the others. */
            for (size_t b = 0; b < MU_COUNT(bounds); b++) {
                if (r > 0 && (t + (size_t)r) % MU_COUNT(bounds) != b) {
                    continue;
                }
                assert_ok(muonium_set_threads(threads[t]));
                options.scratch_bytes = bounds[b];
                model m = model_new(&options);
                step(&m);
                const mu_schedule *schedule = m.optimizer->schedule;
                most_teams = schedule->teams > most_teams ? schedule->teams : most_teams;
                most_width = schedule->width > most_width ? schedule->width : most_width;
                if (memcmp(m.data, expected.data, m.elements * sizeof *m.data) != 0) {
                    fail_msg("%s with %d threads, %u teams of %u: other bits", recipe, threads[t],
                             schedule->teams, schedule->width);
                }
                model_free(&m);
            }
        }
        model_free(&expected);
    }
    assert_true(most_teams > 8);
    assert_true(most_width > 1);
    assert_ok(muonium_set_threads(0));
}

static void teams_change_no_bit(void **state)
{
    (void)state;
    check_teams(MUONIUM_F32);
}

static void teams_change_no_bit_of_int8_state(void **state)
{
    (void)state;
    check_teams(MUONIUM_INT8);
}

/* Matrices of more than 512 rows are divided otherwise than small ones, and fixed-point products
 * otherwise than those of f32. */
static void threads_change_no_bit_of_large_matrices(void **state)
{
    (void)state;
    const int threads[] = {2, 16, 64, 128};
    const muonium_dtype precisions[] = {MUONIUM_F32, MUONIUM_FIXED23, MUONIUM_FIXED15};
    for (size_t p = 0; p < MU_COUNT(precisions); p++) {
        muonium_options options;
        assert_ok(muonium_options_init(&options, NULL));
        options.plan.precision = precisions[p];
        assert_ok(muonium_set_threads(1));
        model expected = model_of(&large, &options);
        assert_ok(muonium_step(expected.optimizer));
        for (size_t t = 0; t < MU_COUNT(threads); t++) {
            assert_ok(muonium_set_threads(threads[t]));
            options.scratch_bytes = t % 2 ? SIZE_MAX : 1;
            model m = model_of(&large, &options);
            assert_ok(muonium_step(m.optimizer));
            if (memcmp(m.data, expected.data, m.elements * sizeof *m.data) != 0) {
                fail_msg("precision %d with %d threads: other bits", (int)precisions[p],
                         threads[t]);
            }
            model_free(&m);
        }
        model_free(&expected);
    }
    assert_ok(muonium_set_threads(0));
}

/* By default at most what one matrix needs, with as many threads, and half of the parameters'
 * bytes or 2 MB. */
static void scratch_is_bounded_by_the_parameters(void **state)
{
    (void)state;
    enum { COUNT = 12, SIDE = 512 };
    float *memory = calloc(2 * (size_t)COUNT * SIDE * SIDE, sizeof *memory);
    assert_non_null(memory);
    const int threads[] = {1, 2, 8, 64, 128};
    size_t half = (size_t)COUNT * SIDE * SIDE * sizeof(float) / 2, before = 0;
    for (size_t t = 0; t < MU_COUNT(threads); t++) {
        assert_ok(muonium_set_threads(threads[t]));
        muonium_counters one, all;
        for (size_t count = 1; count <= COUNT; count += COUNT - 1) {
            muonium_optimizer *optimizer;
            muonium_options options;
            assert_ok(muonium_options_init(&options, NULL));
            options.scratch_bytes = count == 1;
            assert_ok(muonium_create(&options, &optimizer));
            for (size_t i = 0; i < count; i++) {
                muonium_tensor tensor = {.ndim = 2,
                                         .shape = {SIDE, SIDE},
                                         .data = memory + 2 * i * SIDE * SIDE,
                                         .grad = memory + (2 * i + 1) * SIDE * SIDE};
                assert_ok(muonium_add(optimizer, &tensor, NULL));
            }
            assert_ok(muonium_step(optimizer));
            assert_ok(muonium_count(optimizer, count == 1 ? &one : &all));
            muonium_destroy(optimizer);
        }
        assert_true(all.scratch_bytes <= one.scratch_bytes + half);
        assert_true(threads[t] != 2 || all.scratch_bytes > before); /* two teams */
        before = all.scratch_bytes;
    }
    free(memory);
    assert_ok(muonium_set_threads(0));
}

/* Twice as many threads as CPUs take turns with as many: what they cost more is bounded. Other
 * programs disturb both, hence the median of the ratios, and several attempts. */
static void too_many_threads_cost_little(void **state)
{
    (void)state;
#if defined(TEST_SANITIZED)
    skip();
#else
    enum { TURNS = 15, ATTEMPTS = 5 };
    assert_ok(muonium_set_threads(0));
    int cpus = muonium_threads();
    double ratio = 2;
    for (int attempt = 0; attempt < ATTEMPTS && ratio > 1.5; attempt++) {
        double ratios[TURNS];
        model m[2];
        for (int crowded = 0; crowded < 2; crowded++) {
            m[crowded] = model_new(NULL);
        }
        for (int turn = 0; turn < TURNS; turn++) {
            double seconds[2];
            for (int crowded = 0; crowded < 2; crowded++) {
                assert_ok(muonium_set_threads(cpus << crowded));
                double start = seconds_now();
                step(&m[crowded]);
                seconds[crowded] = seconds_now() - start;
            }
            ratios[turn] = seconds[1] / seconds[0];
        }
        qsort(ratios, TURNS, sizeof *ratios, compare_numbers);
        ratio = ratios[TURNS / 2];
        model_free(&m[0]);
        model_free(&m[1]);
    }
    assert_true(ratio <= 1.5);
    assert_ok(muonium_set_threads(0));
#endif
}

/* ---- fork, and threads that cannot be had ---- */

static model reference;

static int child_steps(void *unused)
{
    (void)unused;
    model m = model_new(NULL);
    step(&m);
    bool right = memcmp(m.data, reference.data, m.elements * sizeof *m.data) == 0;
    model_free(&m);
    return right ? 0 : 1;
}

typedef struct background {
    model m;
    atomic_bool stop, failed;
} background;

static void *step_in_background(void *context)
{
    background *b = context;
    while (!atomic_load(&b->stop)) {
        if (muonium_step(b->m.optimizer) != MUONIUM_OK) {
            atomic_store(&b->failed, true);
        }
    }
    return NULL;
}

#if !defined(TEST_SANITIZED) /* sanitizers start threads of their own */
static void *nothing(void *unused)
{
    return unused;
}

/* In a child that may start no threads: the limit counts those of the user, and root is not
 * limited, hence another user. */
static int steps_without_threads(void *unused)
{
    struct rlimit none = {0, 0};
    pthread_t thread;
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(54321) != 0)) {
        return 2;
    }
    if (pthread_create(&thread, NULL, nothing, NULL) == 0) {
        return 3; /* the limit had no effect, so this tested nothing */
    }
    if (muonium_set_threads(16) != MUONIUM_OK) {
        return 4;
    }
    return child_steps(unused);
}
#endif

static void a_step_needs_no_threads(void **state)
{
    (void)state;
#if defined(TEST_SANITIZED)
    skip();
#else
    assert_ok(muonium_set_threads(1));
    reference = model_new(NULL);
    step(&reference);
    assert_child_ok(test_fork(steps_without_threads, NULL, NULL, NULL, 60));
    model_free(&reference);
    assert_ok(muonium_set_threads(0));
#endif
}

static void fork_during_a_step(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(1));
    reference = model_new(NULL);
    step(&reference);
    assert_ok(muonium_set_threads(4));
    background b = {.m = model_new(NULL)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_in_background, &b), 0);
    bool right = true;
    for (int i = 0; i < 8 && right; i++) {
        right = test_fork(child_steps, NULL, NULL, NULL, 60).exit_code == 0;
    }
    atomic_store(&b.stop, true);
    pthread_join(thread, NULL);
    assert_true(right);
    assert_false(atomic_load(&b.failed));
    model_free(&b.m);
    model_free(&reference);
    assert_ok(muonium_set_threads(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_change_no_bit),
        cmocka_unit_test(teams_change_no_bit_of_int8_state),
        cmocka_unit_test(threads_change_no_bit_of_large_matrices),
        cmocka_unit_test(too_many_threads_cost_little),
        cmocka_unit_test(a_step_needs_no_threads),
        cmocka_unit_test(scratch_is_bounded_by_the_parameters),
        cmocka_unit_test(fork_during_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
