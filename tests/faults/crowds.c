/*
 * crowds.c: many users of the library in one process: 64 threads with their own optimizers
 * at a time, and 10,000 optimizers side by side. Each gets what it would get alone.
 */
#include "faults.h"

#include <dirent.h>
#include <pthread.h>

/* ---- threads ---- */

enum { THREADS = 64, ROUNDS = 4 };

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    const configuration *configuration;
    char name[32];
    bytes view;
    char message[64]; /* of an error of its own */
} worker;

static void *live_alone(void *context)
{
    worker *w = context;
    muonium_optimizer *optimizer = NULL;
    size_t index;
    pthread_barrier_wait(w->start);
    w->view = subject_whole_life(w->configuration, w->name);
    if (muonium_create(NULL, &optimizer) == MUONIUM_OK) {
        muonium_find(optimizer, w->name, &index); /* fails and says what there is none of */
    }
    pthread_barrier_wait(w->start); /* all others have failed, too */
    snprintf(w->message, sizeof w->message, "%s", muonium_last_error());
    muonium_destroy(optimizer);
    return NULL;
}

static void run_round(int round, const bytes *alone)
{
    static worker workers[THREADS];
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        *w = (worker){.start = &start, .configuration = &configurations[i % CONFIGURATIONS]};
        snprintf(w->name, sizeof w->name, "thread-%d", i);
        assert_int_equal(pthread_create(&w->thread, NULL, live_alone, w), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        fault_where("round %d, thread %d of %d, %s", round, i, THREADS, w->configuration->name);
        if (fault_next()) {
            if (fault_sabotage(0, 2)) {
                w->view.data[w->view.count / 2] ^= 1;
            } else if (fault_sabotage(1, 2)) {
                snprintf(w->message, sizeof w->message, "that of another");
            }
            fault_expect(bytes_equal(&w->view, &alone[i % CONFIGURATIONS]),
                         "the results are not those of a thread alone");
            fault_expect(strstr(w->message, w->name) != NULL, "its last error is \"%s\"",
                         w->message);
        }
        bytes_free(&w->view);
    }
    pthread_barrier_destroy(&start);
}

void faults_of_threads(void)
{
    bytes alone[CONFIGURATIONS];
    files_without_sync();
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        alone[i] = subject_whole_life(&configurations[i], "alone");
    }
    for (int round = 0; round < ROUNDS; round++) {
        assert_ok(muonium_set_threads(1 + 2 * round));
        run_round(round, alone);
    }
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        bytes_free(&alone[i]);
    }
}

/* ---- optimizers ---- */

enum { OPTIMIZERS = 10000, STEPS = 3, ROWS = 6, COLS = 8 };

typedef struct little {
    float data[ROWS * COLS], bias[ROWS];
    muonium_optimizer *optimizer;
} little;

static float shared_grad[ROWS * COLS];

static void little_begin(little *l)
{
    muonium_tensor matrix = {.name = "w",
                             .dtype = MUONIUM_F32,
                             .ndim = 2,
                             .shape = {ROWS, COLS},
                             .data = l->data,
                             .grad = shared_grad};
    muonium_tensor vector = {.name = "b",
                             .dtype = MUONIUM_F32,
                             .ndim = 1,
                             .shape = {ROWS},
                             .data = l->bias,
                             .grad = shared_grad};
    memset(l, 0, sizeof *l);
    assert_ok(muonium_create(NULL, &l->optimizer));
    assert_ok(muonium_add(l->optimizer, &matrix, NULL));
    assert_ok(muonium_add(l->optimizer, &vector, NULL));
}

static size_t threads_of_process(void)
{
    size_t count = 0;
    DIR *listing = opendir("/proc/self/task");
    assert_non_null(listing);
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        count += item->d_name[0] != '.';
    }
    closedir(listing);
    return count;
}

void faults_of_many_optimizers(void)
{
    static little alone, many[OPTIMIZERS];
    test_rng rng = test_rng_start("many");
    test_count_memory();
    assert_ok(muonium_set_threads(2));
    test_fill_normal_f32(&rng, shared_grad, ROWS * COLS);
    little_begin(&alone);
    for (int step = 0; step < STEPS; step++) {
        assert_ok(muonium_step(alone.optimizer));
    }
    size_t threads = threads_of_process(), descriptors = open_descriptors();
    long alive = test_memory.alive;
    for (size_t i = 0; i < OPTIMIZERS; i++) {
        little_begin(&many[i]);
    }
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < OPTIMIZERS; i++) {
            assert_ok(muonium_step(many[i].optimizer));
        }
    }
    size_t more_threads = threads_of_process(), more_descriptors = open_descriptors();
    for (size_t i = 0; i < OPTIMIZERS; i++) {
        fault_where("optimizer %zu of %d", i, OPTIMIZERS);
        if (fault_next()) {
            many[i].data[0] += fault_sabotage(0, 1) ? 1.0f : 0.0f;
            fault_expect(memcmp(many[i].data, alone.data, sizeof alone.data) == 0 &&
                             memcmp(many[i].bias, alone.bias, sizeof alone.bias) == 0,
                         "its results are not those of an optimizer alone");
        }
    }
    /* In an order that has nothing to do with that of their making. */
    for (size_t i = OPTIMIZERS; i > 0; i--) {
        size_t other = test_below(&rng, i);
        muonium_destroy(many[other].optimizer);
        many[other].optimizer = many[i - 1].optimizer;
    }
    fault_where("all %d optimizers", OPTIMIZERS);
    if (fault_next()) {
        fault_expect(!fault_sabotage(0, 1), "broken on purpose");
        fault_expect(more_threads <= threads + 1, "%zu threads became %zu", threads, more_threads);
        fault_expect(more_descriptors == descriptors, "%zu descriptors became %zu", descriptors,
                     more_descriptors);
        fault_expect(test_memory.alive == alive, "%ld allocations leak", test_memory.alive - alive);
    }
    muonium_destroy(alone.optimizer);
}
