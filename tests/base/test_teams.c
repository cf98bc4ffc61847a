/*
 * test_teams.c: jobs of teams: every job, every piece of their runs and every piece of the filler
 * exactly once, private teams and workers; more teams than jobs and the other way round; fork,
 * missing threads, binding, and the end of the process.
 */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"

enum { MOST_JOBS = 60, RUNS = 4, PIECES = 37, FILLERS = 90, MOST_TEAMS = 16, MOST_WIDTH = 64 };

typedef struct ledger {
    mu_jobs jobs;
    atomic_uint job_done[MOST_JOBS];
    atomic_uint piece_done[MOST_JOBS][RUNS][PIECES];
    atomic_uint filler_done[FILLERS];
    atomic_bool team_taken[MOST_TEAMS];
    atomic_uint wrong;
    atomic_uint most_workers; /* seen in a run */
} ledger;

typedef struct run_of_job {
    ledger *l;
    size_t job, run;
    atomic_bool taken[MOST_WIDTH];
    atomic_uint nested;
} run_of_job;

static void count_nested(void *context, size_t index, unsigned worker)
{
    run_of_job *r = context;
    (void)index;
    atomic_fetch_add(worker == 0 ? &r->nested : &r->l->wrong, 1);
}

static void do_piece(void *context, size_t index, unsigned worker)
{
    run_of_job *r = context;
    ledger *l = r->l;
    if (worker >= l->jobs.width || atomic_exchange(&r->taken[worker], true)) {
        atomic_fetch_add(&l->wrong, 1);
        return;
    }
    atomic_fetch_add(&l->piece_done[r->job][r->run][index], 1);
    atomic_fetch_add(&l->wrong, mu_pool_workers() != 1);
    if (index % 16 == 0) {
        mu_pool_run(count_nested, r, 3, 4);
        sched_yield();
    }
    unsigned most = atomic_load(&l->most_workers);
    while (worker + 1 > most &&
           !atomic_compare_exchange_weak(&l->most_workers, &most, worker + 1)) {
    }
    atomic_store(&r->taken[worker], false);
}

static void do_job(void *context, size_t index, unsigned team)
{
    ledger *l = context;
    if (team >= l->jobs.teams || atomic_exchange(&l->team_taken[team], true)) {
        atomic_fetch_add(&l->wrong, 1);
        return;
    }
    for (size_t run = 0; run < RUNS; run++) {
        run_of_job r = {.l = l, .job = index, .run = run};
        mu_pool_run(do_piece, &r, PIECES, mu_pool_workers());
        atomic_fetch_add(&l->wrong, atomic_load(&r.nested) != 3 * (1 + (PIECES - 1) / 16));
    }
    atomic_fetch_add(&l->job_done[index], 1);
    atomic_store(&l->team_taken[team], false);
}

static void do_filler(void *context, size_t index, unsigned worker)
{
    ledger *l = context;
    atomic_fetch_add(&l->filler_done[index], 1);
    atomic_fetch_add(&l->wrong, worker != 0 || mu_pool_workers() != 1);
}

static bool jobs_are_right(ledger *l, size_t count, unsigned teams, unsigned width, size_t fillers)
{
    memset(l, 0, sizeof *l);
    l->jobs = (mu_jobs){do_job, l, count, teams, width, do_filler, l, fillers};
    mu_pool_run_jobs(&l->jobs);
    bool right = atomic_load(&l->wrong) == 0;
    for (size_t i = 0; i < MOST_JOBS; i++) {
        unsigned expected = i < count;
        right = right && atomic_load(&l->job_done[i]) == expected;
        for (size_t k = 0; k < (size_t)RUNS * PIECES; k++) {
            right = right && atomic_load(&l->piece_done[i][k / PIECES][k % PIECES]) == expected;
        }
    }
    for (size_t i = 0; i < FILLERS; i++) {
        right = right && atomic_load(&l->filler_done[i]) == (i < fillers ? 1u : 0u);
    }
    return right;
}

static ledger shared;

static void every_job_is_done_once(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 3, 7, 16, 64, 2};
    const size_t counts[] = {0, 1, 2, 5, MOST_JOBS};
    const unsigned shapes[][2] = {{1, 1}, {1, 64}, {2, 1}, {3, 2}, {4, 16}, {16, 1}, {16, 8}};
    for (size_t t = 0; t < MU_COUNT(threads); t++) {
        assert_ok(muonium_set_threads(threads[t]));
        for (size_t c = 0; c < MU_COUNT(counts); c++) {
            for (size_t s = 0; s < MU_COUNT(shapes); s++) {
                assert_true(jobs_are_right(&shared, counts[c], shapes[s][0], shapes[s][1],
                                           c % 2 == 0 ? FILLERS : 0));
            }
        }
    }
}

/* One job, many workers: others do come to help. */
static void idle_workers_help(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    unsigned most = 0;
    for (int i = 0; i < 200 && most < 3; i++) {
        assert_true(jobs_are_right(&shared, 3, 1 + (unsigned)i % 2, 4, 0));
        unsigned found = atomic_load(&shared.most_workers);
        most = found > most ? found : most;
    }
    assert_true(most >= 3);
}

static int child_does_jobs(void *unused)
{
    (void)unused;
    static ledger own;
    return jobs_are_right(&own, 9, 3, 2, 20) ? 0 : 1;
}

typedef struct background {
    atomic_bool stop;
    atomic_uint wrong;
} background;

static void *do_jobs_in_background(void *context)
{
    background *b = context;
    static ledger own;
    while (!atomic_load(&b->stop)) {
        atomic_fetch_add(&b->wrong, !jobs_are_right(&own, 12, 3, 3, 30));
    }
    return NULL;
}

static void fork_during_the_jobs_of_another_thread(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    background b = {.stop = false};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, do_jobs_in_background, &b), 0);
    bool right = true;
    for (int i = 0; i < 25 && right; i++) {
        right = test_fork(child_does_jobs, NULL, NULL, NULL, 60).exit_code == 0;
        right = right && jobs_are_right(&shared, 5, 2, 2, 10); /* whoever has the pool */
    }
    atomic_store(&b.stop, true);
    pthread_join(thread, NULL);
    assert_true(right);
    assert_int_equal(atomic_load(&b.wrong), 0);
}

static void fork_in_job(void *context, size_t index, unsigned team)
{
    (void)team;
    if (index % 4 == 0) {
        test_child child = test_fork(child_does_jobs, NULL, NULL, NULL, 60);
        atomic_fetch_add((atomic_uint *)context, child.exit_code == 0);
    }
}

static void fork_inside_a_job(void **state)
{
    (void)state;
    assert_ok(muonium_set_threads(4));
    atomic_uint right = 0;
    mu_jobs jobs = {.job = fork_in_job, .context = &right, .count = 16, .teams = 3, .width = 2};
    mu_pool_run_jobs(&jobs);
    assert_int_equal(atomic_load(&right), 4);
}

#if !defined(TEST_SANITIZED) /* sanitizers start threads of their own */
/* In a child that may start no threads at all: the limit counts those of the user, and root is
 * not limited, hence another user. */
static int works_without_threads(void *unused)
{
    (void)unused;
    static ledger own;
    struct rlimit none = {0, 0};
    pthread_t thread;
    background b = {.stop = true};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(54321) != 0)) {
        return 2;
    }
    if (pthread_create(&thread, NULL, do_jobs_in_background, &b) == 0) {
        return 3; /* the limit had no effect, so this tested nothing */
    }
    if (muonium_set_threads(16) != MUONIUM_OK) {
        return 4;
    }
    return jobs_are_right(&own, MOST_JOBS, 8, 2, FILLERS) && jobs_are_right(&own, 1, 1, 16, FILLERS)
               ? 0
               : 1;
}

static void threads_that_cannot_start_are_done_without(void **state)
{
    (void)state;
    assert_child_ok(test_fork(works_without_threads, NULL, NULL, NULL, 60));
}
#endif

#if defined(__linux__)
enum { BOUND_THREADS = 6 };

typedef struct bound {
    cpu_set_t masks[BOUND_THREADS]; /* of the workers */
    atomic_uint present, missing;
} bound;

/* Each worker notes its mask and waits for the others, so that each does one piece. */
static void look_at_mask(void *context, size_t index, unsigned worker)
{
    bound *b = context;
    (void)index;
    if (sched_getaffinity(0, sizeof b->masks[worker], &b->masks[worker]) != 0) {
        atomic_fetch_add(&b->missing, 1);
    }
    atomic_fetch_add(&b->present, 1);
    for (int i = 0; i < 2000000 && atomic_load(&b->present) < BOUND_THREADS; i++) {
        sched_yield();
    }
    atomic_fetch_add(&b->missing, atomic_load(&b->present) < BOUND_THREADS);
}

/* In a child: whether all workers are bound to one CPU each, of those in the mask of the caller,
 * and to different ones where there are enough; or none is bound. */
static bool workers_are_bound(bool expected)
{
    static bound b;
    memset(&b, 0, sizeof b);
    if (muonium_set_threads(BOUND_THREADS) != MUONIUM_OK) {
        return false;
    }
    mu_pool_run(look_at_mask, &b, BOUND_THREADS, BOUND_THREADS);
    cpu_set_t mine, all, within;
    if (atomic_load(&b.missing) > 0 || sched_getaffinity(0, sizeof mine, &mine) != 0) {
        return false;
    }
    CPU_ZERO(&all);
    for (int worker = 1; worker < BOUND_THREADS; worker++) {
        const cpu_set_t *mask = &b.masks[worker];
        if (expected ? CPU_COUNT(mask) != 1 : !CPU_EQUAL(mask, &mine)) {
            return false;
        }
        CPU_OR(&all, &all, mask);
    }
    CPU_AND(&within, &all, &mine);
    int most = CPU_COUNT(&mine) < BOUND_THREADS - 1 ? CPU_COUNT(&mine) : BOUND_THREADS - 1;
    return CPU_EQUAL(&all, &within) && (!expected || CPU_COUNT(&all) == most);
}

static int binds(void *expected)
{
    return workers_are_bound(*(bool *)expected) ? 0 : 1;
}

/* In a child: one worker starts. Then the mask shrinks to the first CPU, and the workers that start
 * later are bound to that. */
static int binds_anew(void *unused)
{
    (void)unused;
    static bound b;
    cpu_set_t mask;
    if (muonium_set_threads(2) != MUONIUM_OK) {
        return 2;
    }
    atomic_store(&b.present, BOUND_THREADS); /* nobody waits */
    mu_pool_run(look_at_mask, &b, 2, 2);
    size_t first = 0;
    sched_getaffinity(0, sizeof mask, &mask);
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &mask)) {
        first++;
    }
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0 ||
        muonium_set_threads(BOUND_THREADS) != MUONIUM_OK) {
        return 3;
    }
    atomic_store(&b.present, 0);
    mu_pool_run(look_at_mask, &b, BOUND_THREADS, BOUND_THREADS);
    int there = 0;
    for (int worker = 1; worker < BOUND_THREADS; worker++) {
        there += CPU_EQUAL(&b.masks[worker], &mask);
    }
    return atomic_load(&b.missing) == 0 && there >= BOUND_THREADS - 2 ? 0 : 1;
}

static void threads_are_bound_only_on_request(void **state)
{
    (void)state;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) < 2) {
        skip();
    }
    bool yes = true, no = false;
    assert_child_ok(test_fork(binds, &yes, "MUONIUM_PIN", "1", 60));
    assert_child_ok(test_fork(binds, &no, "MUONIUM_PIN", "0", 60));
    assert_child_ok(test_fork(binds, &no, "MUONIUM_PIN", NULL, 60));
    assert_child_ok(test_fork(binds_anew, NULL, "MUONIUM_PIN", "1", 60));
}
#endif

/* ---- the end of the process ---- */

static const char ending_variable[] = "TEST_TEAMS_ENDING";

static void *do_jobs_forever(void *unused)
{
    (void)unused;
    static ledger own;
    for (;;) {
        jobs_are_right(&own, 12, 3, 3, 30);
    }
    return NULL;
}

static int end_during_jobs(void)
{
    pthread_t thread;
    if (muonium_set_threads(4) != MUONIUM_OK ||
        pthread_create(&thread, NULL, do_jobs_forever, NULL) != 0) {
        return 1;
    }
    pthread_detach(thread);
    sched_yield();
    return jobs_are_right(&shared, 12, 3, 3, 30) ? 0 : 1;
}

static void the_process_may_end_during_jobs(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_child_ok(test_run_again(ending_variable, "now", 60));
    }
}

int main(void)
{
    if (test_is_again()) {
        return end_during_jobs();
    }
    const struct CMUnitTest tests[] = {
#if !defined(TEST_SANITIZED)
        cmocka_unit_test(threads_that_cannot_start_are_done_without),
#endif
#if defined(__linux__)
        cmocka_unit_test(threads_are_bound_only_on_request),
#endif
        cmocka_unit_test(every_job_is_done_once),
        cmocka_unit_test(idle_workers_help),
        cmocka_unit_test(fork_during_the_jobs_of_another_thread),
        cmocka_unit_test(fork_inside_a_job),
        cmocka_unit_test(the_process_may_end_during_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
