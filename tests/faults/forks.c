/*
 * forks.c: a process that uses the library forks: before it has done any work, with its
 * threads at rest, in the middle of a step of another thread, and from a callback of the
 * library. The child goes on with the library, or destroys what it inherited, without
 * hanging and with the same results.
 */
#include "faults.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS = 4,
    BEFORE = 16,
    AFTER = 48,
    DURING = 160,
    WITHIN = 32,
    SIDE = 160,  /* of the matrix that another thread steps all the time */
    STEPPED = 14 /* operations after which all parameters are there and stepped */
};

static const char configuration_name[] = "everything";

static double deadline(void)
{
    return fault_sabotage(1, 2) ? 0.2 : 60;
}

/* What a child returns; spoilt in the self-check. */
static int verdict(bool right)
{
    if (fault_sabotage(1, 2)) {
        pause();
    }
    return right && !fault_sabotage(0, 2) ? 0 : 1;
}

static void judge(test_child child)
{
    fault_expect(!child.timed_out, "the child hangs");
    fault_expect(child.timed_out || child.signal == 0, "the child is ended by signal %d",
                 child.signal);
    fault_expect(child.timed_out || child.signal != 0 || child.exit_code == 0,
                 "the child's results are wrong (exit status %d)", child.exit_code);
}

/* A life in a child, against the view that the parent had at the end of one. */
static bool lives_as(const bytes *expected)
{
    char name[32];
    snprintf(name, sizeof name, "child-%ld", (long)getpid());
    bytes view = subject_whole_life(subject_configuration(configuration_name), name);
    bool right = bytes_equal(&view, expected);
    bytes_free(&view);
    return right;
}

static int live(void *context)
{
    return verdict(lives_as(context));
}

/* The same, and the end of the process with all that a library does then. */
static int live_and_exit(void *context)
{
    int code = verdict(lives_as(context));
    if (!fault_sanitized()) { /* a sanitizer would look for leaks of threads that are no more */
        exit(code);
    }
    return code;
}

/* ---- with the threads at rest ---- */

static subject inherited;
static bytes next_view; /* what the parent sees after one step more */

static int step_inherited(void *context)
{
    (void)context;
    bool right = subject_live(&inherited, STEPPED, STEPPED + 2) == MUONIUM_OK;
    bytes view = subject_view(&inherited);
    right = right && bytes_equal(&view, &next_view);
    bytes_free(&view);
    return verdict(right);
}

static int destroy_inherited(void *context)
{
    muonium_destroy(inherited.m.optimizer);
    return verdict(lives_as(context));
}

typedef int child_function(void *context);

static void fork_at_rest(bytes *expected)
{
    static child_function *const functions[] = {step_inherited, destroy_inherited, live_and_exit};
    const configuration *c = subject_configuration(configuration_name);
    subject_begin(&inherited, c, "inherited");
    assert_ok(subject_live(&inherited, 0, STEPPED + 2));
    next_view = subject_view(&inherited);
    subject_end(&inherited);
    subject_begin(&inherited, c, "inherited");
    assert_ok(subject_live(&inherited, 0, STEPPED));
    for (int i = 0; i < AFTER; i++) {
        fault_where("fork number %d after steps", i);
        if (fault_next()) {
            judge(test_fork(functions[i % 3], expected, NULL, NULL, deadline()));
        }
    }
    subject_end(&inherited);
    bytes_free(&next_view);
}

/* ---- in the middle of a step ---- */

static struct {
    float data[SIDE * SIDE], grad[SIDE * SIDE];
    muonium_optimizer *optimizer;
    atomic_bool stop;
    atomic_long steps;
} busy;

static void *step_all_the_time(void *unused)
{
    (void)unused;
    while (!atomic_load(&busy.stop)) {
        assert_ok(muonium_step(busy.optimizer));
        atomic_fetch_add(&busy.steps, 1);
    }
    return NULL;
}

/* Its step will never end in this process. */
static int destroy_busy(void *context)
{
    muonium_destroy(busy.optimizer);
    return verdict(lives_as(context));
}

static void fork_during_steps(bytes *expected)
{
    static child_function *const functions[] = {live, destroy_busy, live_and_exit};
    test_rng rng = test_rng_start("forks");
    muonium_tensor tensor = {.name = "w",
                             .dtype = MUONIUM_F32,
                             .ndim = 2,
                             .shape = {SIDE, SIDE},
                             .data = busy.data,
                             .grad = busy.grad};
    test_fill_normal_f32(&rng, busy.grad, SIDE * SIDE);
    assert_ok(muonium_create(NULL, &busy.optimizer));
    assert_ok(muonium_add(busy.optimizer, &tensor, NULL));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_all_the_time, NULL), 0);
    while (atomic_load(&busy.steps) == 0) {
        sched_yield();
    }
    for (int i = 0; i < DURING; i++) {
        struct timespec pause = {.tv_nsec = (long)test_below(&rng, 3000000)};
        fault_where("fork number %d during a step of another thread", i);
        if (fault_next()) {
            nanosleep(&pause, NULL);
            judge(test_fork(functions[i % 3], expected, NULL, NULL, deadline()));
        }
    }
    atomic_store(&busy.stop, true);
    pthread_join(thread, NULL);
    muonium_destroy(busy.optimizer);
}

/* ---- from a callback ---- */

static void fork_once(void *context, const char *line)
{
    bytes **expected = context;
    (void)line;
    if (*expected != NULL) {
        judge(test_fork(live, *expected, NULL, NULL, deadline()));
        *expected = NULL;
    }
}

static void fork_within_calls(bytes *expected)
{
    for (int i = 0; i < WITHIN; i++) {
        fault_where("fork number %d from a callback within a step", i);
        if (!fault_next()) {
            continue;
        }
        bytes *pending = expected;
        model m;
        muonium_options options;
        assert_ok(muonium_options_init(&options, NULL));
        options.log = fork_once;
        options.log_context = &pending;
        assert_ok(model_create(&m, &options, 0, MODEL_PARAMETERS));
        fault_expect(model_steps(&m, 0, 2) == MUONIUM_OK, "the parent's step fails: %s",
                     muonium_last_error());
        fault_expect(pending == NULL, "nothing was logged, so nothing forked");
        model_destroy(&m);
    }
}

/* ---- before any work ---- */

/* A life whose view goes to a file: the parent has none to compare with yet. */
static int live_first(void *context)
{
    bytes view = subject_whole_life(subject_configuration(configuration_name), "first");
    FILE *file = fopen(context, "wb");
    bool written = file != NULL && fwrite(view.data, 1, view.count, file) == view.count;
    written = file != NULL && fclose(file) == 0 && written;
    bytes_free(&view);
    return verdict(written);
}

/* The parent works for the first time after all of these; returns what it then sees. */
static bytes fork_first(void)
{
    char path[BEFORE][160];
    bool forked[BEFORE];
    bytes views[BEFORE] = {{0}};
    for (int i = 0; i < BEFORE; i++) {
        snprintf(path[i], sizeof path[i], "%s/view-%d", files_directory(), i);
        fault_where("fork number %d before any work", i);
        forked[i] = fault_next();
        if (forked[i]) {
            judge(test_fork(live_first, path[i], NULL, NULL, deadline()));
            views[i] = file_content(path[i]);
        }
    }
    bytes expected = subject_whole_life(subject_configuration(configuration_name), "parent");
    for (int i = 0; i < BEFORE; i++) {
        fault_expect(!forked[i] || bytes_equal(&views[i], &expected),
                     "child %d, forked before any work, saw other results than the parent", i);
        bytes_free(&views[i]);
    }
    return expected;
}

void faults_of_forks(void)
{
    files_without_sync();
    assert_ok(muonium_set_threads(THREADS));
    bytes expected = fork_first();
    fork_at_rest(&expected);
    fork_during_steps(&expected);
    fork_within_calls(&expected);
    bytes_free(&expected);
}
