/*
 * test_step_teams.c: a step by teams of threads: the same bits for every number of threads, with
 * one team and with many, for every recipe; scratch memory within its bound; fork during a step.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "optimizer/schedule.h"

typedef struct tensor_kind {
    size_t count, rows, cols; /* cols 0: a vector */
} tensor_kind;

static const tensor_kind kinds[] = {{5, 72, 130}, {3, 130, 72},  {3, 140, 140},
                                    {14, 12, 20}, {2, 70000, 0}, {1, 300, 0}};

enum { KINDS = sizeof kinds / sizeof kinds[0], MOST_TENSORS = 40, STEPS = 2 };

typedef struct model {
    float *data, *grad;
    size_t elements;
    muonium_optimizer *optimizer;
} model;

static size_t elements_of(const tensor_kind *k)
{
    return k->rows * (k->cols > 0 ? k->cols : 1);
}

static model model_new(const muonium_options *options)
{
    model m = {0};
    for (size_t k = 0; k < KINDS; k++) {
        m.elements += kinds[k].count * elements_of(&kinds[k]);
    }
    m.data = calloc(2 * m.elements, sizeof *m.data);
    assert_non_null(m.data);
    m.grad = m.data + m.elements;
    for (size_t i = 0; i < 2 * m.elements; i++) {
        m.data[i] = (float)((i * 2654435761u >> 7) % 4096) / 2048 - 1;
    }
    assert_ok(muonium_create(options, &m.optimizer));
    size_t at = 0, number = 0;
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < kinds[k].count; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%zu.weight", number++);
            muonium_tensor tensor = {.name = name,
                                     .ndim = kinds[k].cols > 0 ? 2 : 1,
                                     .shape = {kinds[k].rows, kinds[k].cols},
                                     .data = m.data + at,
                                     .grad = m.grad + at};
            assert_ok(muonium_add(m.optimizer, &tensor, NULL));
            at += elements_of(&kinds[k]);
        }
    }
    return m;
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

static void teams_change_no_bit(void **state)
{
    (void)state;
    const int threads[] = {2, 3, 7, 16, 64, 128};
    const size_t bounds[] = {1, 0, SIZE_MAX};
    const char *recipe;
    unsigned most_teams = 0, most_width = 0;
    for (int r = 0; (recipe = muonium_recipe_name(r)) != NULL; r++) {
        muonium_options options;
        assert_ok(muonium_options_init(&options, recipe));
        options.lr = 0.01; /* optax has no default */
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

/* ---- fork ---- */

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
        cmocka_unit_test(scratch_is_bounded_by_the_parameters),
        cmocka_unit_test(fork_during_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
