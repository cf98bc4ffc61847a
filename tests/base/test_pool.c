/*
 * test_pool.c: the thread pool: every piece exactly once, private workers,
 * nesting, several callers, fork, the number of threads, the environment of
 * workers and the end of the process.
 */
#include "test.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

enum { MAX_LANES = 64, MAX_PIECES = 5000 };

static const int thread_counts[] = {1, 2, 3, 7, 16, 64};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof thread_counts[0] };

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_microseconds(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* ---- a run that checks itself ---- */

typedef struct ledger {
    unsigned workers;          /* allowed */
    unsigned done[MAX_PIECES]; /* how often; not atomic: the pool orders these */
    unsigned worker_of[MAX_PIECES];
    atomic_bool taken[MAX_LANES];
    atomic_uint collisions; /* a worker used twice at a time, or out of range */
} ledger;

static void enter_in_ledger(void *context, size_t index, unsigned worker)
{
    ledger *l = context;
    if (worker >= l->workers || atomic_exchange(&l->taken[worker], true)) {
        atomic_fetch_add(&l->collisions, 1);
        return;
    }
    l->done[index]++;
    l->worker_of[index] = worker;
    if (index % 16 == 0) {
        sched_yield(); /* give the others a chance to collide */
    }
    atomic_store(&l->taken[worker], false);
}

/* Run `count` pieces on at most `workers` workers: whether each was done exactly
 * once, in a worker of its own. */
static bool run_is_right(ledger *l, size_t count, unsigned workers)
{
    memset(l, 0, sizeof *l);
    l->workers = workers;
    mu_pool_run(enter_in_ledger, l, count, workers);
    bool right = atomic_load(&l->collisions) == 0;
    for (size_t i = 0; i < MAX_PIECES; i++) {
        right = right && l->done[i] == (i < count ? 1u : 0u);
    }
    return right;
}

static void every_piece_runs_exactly_once(void **state)
{
    (void)state;
    static ledger l;
    const size_t counts[] = {0, 1, 2, 3, 5, 16, 63, 64, 65, 100, 1000, MAX_PIECES};
    /* Up and down, so that the pool both grows and shrinks. */
    for (int t = 0; t < 2 * THREAD_COUNTS; t++) {
        int threads = thread_counts[t < THREAD_COUNTS ? t : 2 * THREAD_COUNTS - 1 - t];
        assert_ok(muonium_set_threads(threads));
        assert_int_equal(muonium_threads(), threads);
        assert_int_equal(mu_pool_workers(), threads);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            assert_true(run_is_right(&l, counts[c], (unsigned)threads));
            assert_true(run_is_right(&l, counts[c], threads > 2 ? 2 : 1));
        }
    }
}

static void many_short_runs_follow_each_other(void **state)
{
    (void)state;
    static ledger l;
    test_rng rng = test_rng_start("short runs");
    for (int i = 0; i < 1000; i++) {
        assert_ok(muonium_set_threads(thread_counts[test_below(&rng, THREAD_COUNTS)]));
        assert_true(run_is_right(&l, test_below(&rng, 40), 1 + (unsigned)test_below(&rng, 8)));
        if (i % 50 == 0) {
            sleep_microseconds(300); /* long enough for workers to fall asleep */
        }
    }
}

static void count_piece(void *context, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    ++*(int *)context;
}

static void no_lanes_and_no_pieces_are_harmless(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    int pieces = 0;
    mu_pool_run(count_piece, &pieces, 3, 0);
    mu_pool_run(count_piece, &pieces, 2, 1);
    mu_pool_run(count_piece, &pieces, 1, 4);
    mu_pool_run(count_piece, &pieces, 0, 4);
    mu_pool_run(NULL, NULL, 0, 4);
    assert_int_equal(pieces, 6);
}

/* ---- workers really run at the same time ---- */

typedef struct meeting {
    unsigned expected;
    atomic_uint present;
    atomic_bool failed;
} meeting;

static void meet(void *context, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    meeting *m = context;
    atomic_fetch_add(&m->present, 1);
    double deadline = seconds_now() + 20;
    while (atomic_load(&m->present) < m->expected) {
        if (seconds_now() > deadline) {
            atomic_store(&m->failed, true);
            return;
        }
        sched_yield();
    }
}

/* Whether `workers` pieces, none of which ends before all have begun, all end. */
static bool workers_meet(unsigned workers)
{
    meeting m = {.expected = workers};
    mu_pool_run(meet, &m, workers, workers);
    return !atomic_load(&m.failed);
}

static void all_lanes_run_at_a_time(void **state)
{
    (void)state;
    for (int t = 0; t < THREAD_COUNTS; t++) {
        assert_ok(muonium_set_threads(thread_counts[t]));
        for (int i = 0; i < 20; i++) {
            assert_true(workers_meet((unsigned)thread_counts[t]));
        }
        sleep_microseconds(1000);
        assert_true(workers_meet((unsigned)thread_counts[t]));
    }
}

/* ---- nesting ---- */

typedef struct nest {
    atomic_uint inner_pieces;
    atomic_uint wrong;
} nest;

typedef struct inner {
    nest *n;
    pthread_t thread;
    size_t next;
} inner;

static void run_inner(void *context, size_t index, unsigned worker)
{
    inner *i = context;
    bool right = worker == 0 && index == i->next && pthread_equal(i->thread, pthread_self());
    i->next++;
    atomic_fetch_add(right ? &i->n->inner_pieces : &i->n->wrong, 1);
}

static void run_outer(void *context, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    nest *n = context;
    inner i = {n, pthread_self(), 0};
    if (mu_pool_workers() != 1) {
        atomic_fetch_add(&n->wrong, 1);
    }
    mu_pool_run(run_inner, &i, 10, 8);
    if (mu_pool_workers() != 1) {
        atomic_fetch_add(&n->wrong, 1);
    }
}

static void nested_runs_stay_in_their_thread(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    const size_t counts[] = {1, 2, 100};
    for (size_t c = 0; c < 3; c++) {
        nest n = {.inner_pieces = 0};
        mu_pool_run(run_outer, &n, counts[c], 4);
        assert_int_equal(atomic_load(&n.wrong), 0);
        assert_int_equal(atomic_load(&n.inner_pieces), 10 * counts[c]);
        assert_int_equal(mu_pool_workers(), 4);
    }
}

/* ---- several callers ---- */

static void *call_many_times(void *wrong)
{
    ledger *l = malloc(sizeof *l);
    for (size_t i = 0; l != NULL && i < 100; i++) {
        if (!run_is_right(l, i, 4)) {
            atomic_fetch_add((atomic_uint *)wrong, 1);
        }
    }
    free(l);
    return NULL;
}

static void several_callers_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { CALLERS = 8 };
    assert_ok(muonium_set_threads(4));
    pthread_t callers[CALLERS];
    atomic_uint wrong = 0;
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&callers[i], NULL, call_many_times, &wrong), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
}

/* ---- fork ---- */

/* In a child: a checked run, workers that meet, and a grandchild that does the same. */
static int child_uses_pool(void *generations)
{
    static ledger l;
    int left = *(int *)generations;
    bool right = muonium_threads() == 4 && run_is_right(&l, 200, 4) && workers_meet(4) &&
                 run_is_right(&l, 200, 4);
    if (right && left > 1) {
        int fewer = left - 1;
        test_child child = test_fork(child_uses_pool, &fewer, NULL, NULL, 20);
        right = child.exit_code == 0;
    }
    return right ? 0 : 1;
}

#if !defined(TEST_SANITIZED) /* their own work at exit knows the parent's threads only */
static int child_exits(void *unused)
{
    (void)unused;
    exit(workers_meet(4) ? 0 : 1); /* with handlers and destructors, unlike _exit */
}
#endif

/* To be run before any other test, while this process has no workers. */
static void fork_before_first_use(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    int generations = 2;
    assert_child_ok(test_fork(child_uses_pool, &generations, NULL, NULL, 30));
}

static void children_start_their_own_workers(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    int generations = 2;
    assert_true(workers_meet(4));
    assert_child_ok(test_fork(child_uses_pool, &generations, NULL, NULL, 30));
    sleep_microseconds(2000); /* workers asleep */
    assert_child_ok(test_fork(child_uses_pool, &generations, NULL, NULL, 30));
#if !defined(TEST_SANITIZED)
    assert_child_ok(test_fork(child_exits, NULL, NULL, NULL, 30));
#endif
    assert_true(workers_meet(4));
}

typedef struct background {
    atomic_bool stop;
    atomic_uint wrong;
    pthread_t thread;
} background;

static void *run_in_background(void *context)
{
    background *b = context;
    static ledger l;
    for (size_t i = 0; !atomic_load(&b->stop); i++) {
        if (!run_is_right(&l, 1 + i % 300, 4)) {
            atomic_fetch_add(&b->wrong, 1);
        }
    }
    return NULL;
}

static void fork_during_the_run_of_another_thread(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    background b = {.stop = false};
    int generations = 1;
    assert_int_equal(pthread_create(&b.thread, NULL, run_in_background, &b), 0);
    bool right = true;
    for (int i = 0; i < 40 && right; i++) {
        sleep_microseconds(i * 17 % 500);
        test_child child = test_fork(child_uses_pool, &generations, NULL, NULL, 30);
        right = child.exit_code == 0;
    }
    atomic_store(&b.stop, true);
    pthread_join(b.thread, NULL);
    assert_true(right);
    assert_int_equal(atomic_load(&b.wrong), 0);
}

static int child_of_task_runs_alone(void *unused)
{
    (void)unused;
    static ledger l;
    return mu_pool_workers() == 1 && run_is_right(&l, 200, 4) && l.worker_of[199] == 0 ? 0 : 1;
}

static void fork_in_task(void *context, size_t index, unsigned worker)
{
    (void)worker;
    if (index % 10 == 0) {
        test_child child = test_fork(child_of_task_runs_alone, NULL, NULL, NULL, 30);
        atomic_fetch_add((atomic_uint *)context, child.exit_code == 0);
    }
}

static void fork_inside_a_task(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    atomic_uint right = 0;
    mu_pool_run(fork_in_task, &right, 100, 4);
    assert_int_equal(atomic_load(&right), 10);
}

/* ---- the number of threads ---- */

static void wrong_numbers_of_threads_are_refused(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(5));
    assert_status_message(muonium_set_threads(-1), MUONIUM_INVALID, "threads is -1");
    assert_status_message(muonium_set_threads(1025), MUONIUM_INVALID, "threads is 1025");
    assert_int_equal(muonium_threads(), 5);
    assert_ok(muonium_set_threads(1024));
    assert_int_equal(muonium_threads(), 1024);
    assert_ok(muonium_set_threads(0));
    assert_in_range(muonium_threads(), 1, 1024);
}

static int allowed_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

static void environment_variable_sets_the_default(void **state)
{
    (void)state;
    const struct {
        const char *value;
        int threads; /* 0: it is refused */
    } cases[] = {
        {"3", 3},
        {"1", 1},
        {"1024", 1024},
        {"007", 7},
        {"0", 0},
        {"-1", 0},
        {"1025", 0},
        {"abc", 0},
        {"4x", 0},
        {" 4", 0},
        {"4 ", 0},
        {"+4", 0},
        {"4.0", 0},
        {"all", 0},
        {"18446744073709551620", 0},
        {"4294967300", 0},
        {"000000000000000000000002", 2},
    };
    const char *found = getenv("MUONIUM_NUM_THREADS");
    char *kept = found != NULL ? strdup(found) : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("MUONIUM_NUM_THREADS", cases[i].value, 1);
        int before = muonium_threads();
        if (cases[i].threads == 0) {
            assert_status_message(muonium_set_threads(0), MUONIUM_INVALID, cases[i].value);
            assert_non_null(strstr(muonium_last_error(), "MUONIUM_NUM_THREADS"));
        } else {
            assert_ok(muonium_set_threads(0));
        }
        int expected = cases[i].threads != 0 ? cases[i].threads : before;
        if (muonium_threads() != expected) {
            fail_msg("MUONIUM_NUM_THREADS=\"%s\" gives %d threads, not %d", cases[i].value,
                     muonium_threads(), expected);
        }
    }
    setenv("MUONIUM_NUM_THREADS", "", 1); /* as if unset */
    assert_ok(muonium_set_threads(0));
    assert_int_equal(muonium_threads(), allowed_cpus());
    unsetenv("MUONIUM_NUM_THREADS");
    assert_ok(muonium_set_threads(0));
    assert_int_equal(muonium_threads(), allowed_cpus());
    if (kept != NULL) {
        setenv("MUONIUM_NUM_THREADS", kept, 1);
        free(kept);
    }
}

/* In a child, to which the variable is new. */
static int bad_variable_stops_what_computes(void *unused)
{
    (void)unused;
    muonium_cpu_info info;
    unsetenv("MUONIUM_NUM_THREADS");
    muonium_status before = muonium_set_threads(0);
    setenv("MUONIUM_NUM_THREADS", "abc", 1);
    muonium_status refused = muonium_cpu(&info);
    bool named = strstr(muonium_last_error(), "MUONIUM_NUM_THREADS is \"abc\"") != NULL;
    muonium_status chosen = muonium_set_threads(2); /* then nobody asks the variable */
    return !(before == MUONIUM_OK && refused == MUONIUM_INVALID && named && chosen == MUONIUM_OK &&
             muonium_cpu(&info) == MUONIUM_OK);
}

static void a_bad_variable_is_an_error(void **state)
{
    (void)state;
    assert_child_ok(test_fork(bad_variable_stops_what_computes, NULL, NULL, NULL, 60));
}

/* In a child, whose mask does not matter to the other tests. */
static int one_cpu_is_one_thread(void *unused)
{
    (void)unused;
    static ledger l;
    cpu_set_t set;
    if (muonium_set_threads(4) != MUONIUM_OK || !workers_meet(4) ||
        sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    for (size_t cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set) && kept++ > 0) {
            CPU_CLR(cpu, &set);
        }
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0 || muonium_set_threads(0) != MUONIUM_OK ||
        muonium_threads() != 1 || !run_is_right(&l, 100, 8)) {
        return 2;
    }
    /* More threads than CPUs still all run. */
    return muonium_set_threads(7) == MUONIUM_OK && workers_meet(7) ? 0 : 3;
}

static void affinity_mask_is_respected(void **state)
{
    (void)state;
    assert_child_ok(test_fork(one_cpu_is_one_thread, NULL, "MUONIUM_NUM_THREADS", NULL, 60));
}

#if !defined(TEST_SANITIZED) /* sanitizers need more address space than any limit leaves */
/* In a child that has address space for a few stacks only. */
static int works_with_fewer_threads(void *unused)
{
    (void)unused;
    static ledger l;
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL || fscanf(statm, "%ld", &pages) != 1) {
        return 1;
    }
    fclose(statm);
    rlim_t limit = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (5 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){limit, RLIM_INFINITY}) != 0 ||
        muonium_set_threads(MAX_LANES) != MUONIUM_OK) {
        return 2;
    }
    for (int i = 0; i < 20; i++) {
        if (!run_is_right(&l, 1000, MAX_LANES)) {
            return 3;
        }
    }
    unsigned used = 0;
    for (size_t i = 0; i < 1000; i++) {
        used = l.worker_of[i] > used ? l.worker_of[i] : used;
    }
    if (used >= 10) {
        return 4; /* the limit had no effect, so this tested nothing */
    }
    /* Once there is memory again, there are threads again, if not at once. */
    if (setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) != 0) {
        return 5;
    }
    for (int i = 0; i < 2000; i++) {
        if (!run_is_right(&l, 100, MAX_LANES)) {
            return 6;
        }
    }
    return workers_meet(MAX_LANES) ? 0 : 7;
}

/* To be run while this process has no workers, whose stacks a child would use again. */
static void threads_that_cannot_start_are_done_without(void **state)
{
    (void)state;
    if (getenv("MUONIUM_EMULATOR") != NULL) {
        skip(); /* qemu lets its programs have any address space */
    }
    assert_child_ok(test_fork(works_with_fewer_threads, NULL, NULL, NULL, 60));
}
#endif

/* ---- the environment of workers ---- */

typedef struct surroundings {
    atomic_uint wrong_environment;
    atomic_uint open_to_signals;
    meeting m;
} surroundings;

static void inspect(void *context, size_t index, unsigned worker)
{
    surroundings *s = context;
    if (worker > 0) {
        volatile float smallest = 0x1p-126f, one = 1.0f, tiny = 0x1p-30f;
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        bool open = !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGALRM) ||
                    !sigismember(&blocked, SIGUSR1) || !sigismember(&blocked, SIGCHLD);
        bool wrong = smallest * 0.5f == 0.0f || one + tiny != one || fegetround() != FE_TONEAREST;
#if defined(__x86_64__)
        wrong = wrong || (__builtin_ia32_stmxcsr() & ~0x3fu) != 0x1f80u;
#endif
        atomic_fetch_add(&s->wrong_environment, wrong);
        atomic_fetch_add(&s->open_to_signals, open);
    }
    meet(&s->m, index, worker); /* so that every worker is inspected */
}

/* In a child, so that the workers are started here, under these settings. */
static int start_workers_under_odd_settings(void *unused)
{
    (void)unused;
    surroundings s = {.m = {.expected = 4}};
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    if (muonium_set_threads(4) != MUONIUM_OK || fesetround(FE_UPWARD) != 0) {
        return 1;
    }
#if defined(__x86_64__)
    unsigned odd = __builtin_ia32_stmxcsr() | 0x8040u; /* flush to zero, denormals are zero */
    __builtin_ia32_ldmxcsr(odd);
#endif
    mu_pool_run(inspect, &s, 4, 4);
    bool kept = fegetround() == FE_UPWARD;
#if defined(__x86_64__)
    kept = kept && (__builtin_ia32_stmxcsr() & ~0x3fu) == (odd & ~0x3fu);
#endif
    fesetenv(FE_DFL_ENV);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        kept = kept && sigismember(&before, number) == sigismember(&after, number);
    }
    return atomic_load(&s.m.failed)                 ? 2
           : atomic_load(&s.wrong_environment) != 0 ? 3
           : atomic_load(&s.open_to_signals) != 0   ? 4
           : !kept                                  ? 5
                                                    : 0;
}

static void workers_have_a_default_environment(void **state)
{
    (void)state;
    assert_child_ok(test_fork(start_workers_under_odd_settings, NULL, NULL, NULL, 30));
}

/* ---- the end of the process ---- */

/* How the program, when started again, is to end. */
static const char ending_variable[] = "TEST_POOL_ENDING";

static void *run_forever(void *unused)
{
    (void)unused;
    static ledger l;
    for (;;) {
        run_is_right(&l, 100, 4);
    }
    return NULL;
}

static void exit_in_task(void *context, size_t index, unsigned worker)
{
    (void)index;
    if (worker > 0 && !atomic_exchange((atomic_bool *)context, true)) {
        exit(0);
    }
    sleep_microseconds(1000);
}

static int end_as_told(void)
{
    const char *ending = getenv(ending_variable);
    if (ending == NULL || muonium_set_threads(4) != MUONIUM_OK || !workers_meet(4)) {
        return 1;
    }
    if (strcmp(ending, "spinning") == 0) {
        return 0;
    }
    if (strcmp(ending, "asleep") == 0) {
        sleep_microseconds(2000);
        return 0;
    }
    if (strcmp(ending, "during a run") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, run_forever, NULL);
        pthread_detach(thread);
        sleep_microseconds(2000);
        return 0;
    }
    if (strcmp(ending, "inside a task") == 0) {
        atomic_bool exited = false;
        mu_pool_run(exit_in_task, &exited, 20000, 4);
    }
    return 1;
}

static void the_process_may_end_at_any_time(void **state)
{
    (void)state;
    const char *const endings[] = {"spinning", "asleep", "during a run", "inside a task"};
    for (int i = 0; i < 12; i++) {
        assert_child_ok(test_run_again(ending_variable, endings[i % 4], 60));
    }
}

int main(void)
{
    if (test_is_again()) {
        return end_as_told();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_before_first_use),
#if !defined(TEST_SANITIZED)
        cmocka_unit_test(threads_that_cannot_start_are_done_without),
#endif
        cmocka_unit_test(every_piece_runs_exactly_once),
        cmocka_unit_test(many_short_runs_follow_each_other),
        cmocka_unit_test(no_lanes_and_no_pieces_are_harmless),
        cmocka_unit_test(all_lanes_run_at_a_time),
        cmocka_unit_test(nested_runs_stay_in_their_thread),
        cmocka_unit_test(several_callers_do_not_disturb_each_other),
        cmocka_unit_test(children_start_their_own_workers),
        cmocka_unit_test(fork_during_the_run_of_another_thread),
        cmocka_unit_test(fork_inside_a_task),
        cmocka_unit_test(wrong_numbers_of_threads_are_refused),
        cmocka_unit_test(environment_variable_sets_the_default),
        cmocka_unit_test(a_bad_variable_is_an_error),
        cmocka_unit_test(affinity_mask_is_respected),
        cmocka_unit_test(workers_have_a_default_environment),
        cmocka_unit_test(the_process_may_end_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
