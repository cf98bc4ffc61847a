/*
 * test_replay.c: the replay of a recorded step, on recordings whose time is known.
 */
#include "test.h"

#include <math.h>

#include "bench/replay.h"

enum { MOST = 512 };

/* A recording of up to MOST pieces, runs and jobs. All numbers are seconds that add up exactly. */
typedef struct made {
    replay_recording r;
    double pieces[MOST];
    replay_run runs[MOST];
    replay_job jobs[MOST];
    size_t queue[MOST];
} made;

static made *start(unsigned teams, unsigned width)
{
    static made m;
    memset(&m, 0, sizeof m);
    m.r = (replay_recording){.pieces = m.pieces,
                             .runs = m.runs,
                             .jobs = m.jobs,
                             .queue = m.queue,
                             .teams = teams,
                             .width = width};
    return &m;
}

static replay_run run_of(made *m, size_t count, double seconds, double gap, unsigned workers)
{
    replay_run run = {.gap = gap, .first = m->r.piece_count, .count = count, .workers = workers};
    for (size_t i = 0; i < count; i++) {
        m->pieces[m->r.piece_count++] = seconds;
    }
    return run;
}

static void add_run(made *m, size_t count, double seconds, double gap, unsigned workers)
{
    m->runs[m->r.run_count++] = run_of(m, count, seconds, gap, workers);
}

/* A job of the runs that were added since the last one. */
static void add_job(made *m, size_t from, double tail)
{
    m->jobs[m->r.job_count] = (replay_job){from, m->r.run_count - from, tail};
    m->queue[m->r.queue_count++] = m->r.job_count++;
}

/* Without any cost but the pieces. */
static replay_machine free_machine(unsigned workers)
{
    return (replay_machine){.workers = workers, .spin = 1e9, .bandwidth = 1e9, .slowdown = 1};
}

static replay_result play(const made *m, const replay_machine *machine)
{
    replay_result found;
    assert_true(replay(&m->r, machine, &found));
    double all = found.seconds * machine->workers;
    double sum = found.busy + found.idle + found.barriers + found.stalled;
    if (fabs(sum - all) > 1e-9 * all) {
        fail_msg("busy %g, idle %g, barriers %g, stalled %g: together %g, not %g", found.busy,
                 found.idle, found.barriers, found.stalled, sum, all);
    }
    return found;
}

static void assert_near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * (1 + fabs(expected))) {
        fail_msg("%.12g instead of %.12g", found, expected);
    }
}

static void one_piece_takes_its_time(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 8; workers *= 2) {
        made *m = start(1, workers);
        add_run(m, 1, 3, 0.5, workers);
        add_job(m, 0, 0.25);
        replay_machine machine = free_machine(workers);
        replay_result found = play(m, &machine);
        assert_near(found.seconds, 3.75);
        assert_near(found.busy, 3.75);
        assert_near(found.idle, 3.75 * (workers - 1));
    }
}

/* n equal pieces on P workers: as many rounds as it takes. */
static void equal_pieces_are_divided(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 9; workers++) {
        for (size_t count = 1; count <= 40; count += 3) {
            made *m = start(1, workers);
            add_run(m, count, 2, 0, workers);
            add_job(m, 0, 0);
            replay_machine machine = free_machine(workers);
            size_t rounds = (count + workers - 1) / workers;
            assert_near(play(m, &machine).seconds, 2 * (double)rounds);
        }
    }
    made *m = start(1, 4); /* no more workers than the run, or the team, may have */
    add_run(m, 12, 1, 0, 3);
    add_job(m, 0, 0);
    replay_machine machine = free_machine(8);
    assert_near(play(m, &machine).seconds, 4);
    m->r.width = 2;
    assert_near(play(m, &machine).seconds, 6);
}

static void a_chain_does_not_get_faster(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 64; workers *= 4) {
        made *m = start(1, workers);
        for (int i = 0; i < 10; i++) {
            add_run(m, 1, 1, 0.5, workers);
        }
        add_job(m, 0, 0);
        replay_machine machine = free_machine(workers);
        assert_near(play(m, &machine).seconds, 15);
    }
}

/* As many jobs at a time as there are teams; jobs of one piece need no more than one worker. */
static void teams_take_jobs(void **state)
{
    (void)state;
    for (unsigned teams = 1; teams <= 4; teams++) {
        made *m = start(teams, 1);
        add_run(m, 1, 1, 0, 1);
        for (int i = 0; i < 12; i++) {
            add_job(m, 0, 0);
        }
        replay_machine machine = free_machine(4);
        assert_near(play(m, &machine).seconds, 12.0 / teams);
    }
}

static void filler_fills(void **state)
{
    (void)state;
    made *m = start(1, 4);
    m->r.filler = run_of(m, 40, 1, 0, 4);
    replay_machine machine = free_machine(4);
    assert_near(play(m, &machine).seconds, 10);
    add_run(m, 1, 6, 0, 4); /* a job for one, while the others fill, and it helps them then */
    add_job(m, 0, 0);
    assert_near(play(m, &machine).seconds, 12);
    m->r.filler.count = 6;
    assert_near(play(m, &machine).seconds, 6);
}

/* Runs before the jobs are for all workers. */
static void the_beginning_is_shared_by_all(void **state)
{
    (void)state;
    made *m = start(2, 1);
    add_run(m, 16, 1, 0, 8);
    m->r.before = (replay_job){0, 1, 0.5};
    add_run(m, 1, 3, 0, 8);
    add_job(m, 1, 0);
    replay_machine machine = free_machine(8);
    assert_near(play(m, &machine).seconds, 2 + 0.5 + 3);
}

/* Pieces that move bytes take no less time than the bandwidth allows all of them. */
static void bandwidth_is_shared(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 16; workers *= 2) {
        made *m = start(1, workers);
        add_run(m, 64, 1, 0, workers);
        m->runs[0].bytes = 10;
        add_job(m, 0, 0);
        replay_machine machine = free_machine(workers);
        machine.bandwidth = 20; /* of two workers */
        replay_result found = play(m, &machine);
        /* The first pieces start one after the other, and those before count fewer at work. */
        double least = workers < 2 ? 64 : 32;
        assert_true(found.seconds >= 0.75 * least && found.seconds <= 1.01 * least);
        assert_true(workers > 2 ? found.stalled > 0 : found.stalled < 1e-9);
        machine.bandwidth = 1e9;
        machine.slowdown = 1.5;
        assert_near(play(m, &machine).seconds, 1.5 * 64 / workers);
    }
}

/* Workers that spin come after `handover`, one after the other; those that sleep after `wakeup`,
 * and who wakes them is late by as much. */
static void waiting_costs(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    made *m = start(1, WORKERS);
    add_run(m, WORKERS, 1, 8, WORKERS);
    add_job(m, 0, 0);
    replay_machine machine = {.workers = WORKERS,
                              .spin = 1000,
                              .handover = 0.125,
                              .per_worker = 0.0625,
                              .wakeup = 0.5,
                              .per_sleeper = 0.25,
                              .bandwidth = 1e9,
                              .slowdown = 1};
    /* The last worker comes after all have been called, and ends last; then all are told. */
    double spinning = 8 + 0.125 + 2 * 0.0625 + 1 + 0.125;
    replay_result found = play(m, &machine);
    assert_true(found.barriers > 0);
    assert_near(found.seconds, spinning + 0.125 + 2 * 0.0625);
    machine.spin = 4;
    double sleeping = 8 + 0.5 + 2 * 0.25 + 1 + 0.125;
    assert_near(play(m, &machine).seconds, sleeping + 0.125 + 2 * 0.0625);
}

/* What a real step looks like: the parts always add up, and more workers are never slower by more
 * than what waking them costs. */
static void the_parts_add_up(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("replay");
    for (int i = 0; i < 300; i++) {
        unsigned workers = 1 + (unsigned)test_below(&rng, 40);
        made *m = start(1 + (unsigned)test_below(&rng, workers), 1 + (unsigned)test_below(&rng, 9));
        size_t jobs = 1 + test_below(&rng, 12);
        double work = 0, longest = 0;
        for (size_t job = 0; job < jobs; job++) {
            size_t from = m->r.run_count;
            for (size_t run = 1 + test_below(&rng, 6); run > 0; run--) {
                size_t count = test_below(&rng, 6);
                double seconds = test_uniform(&rng, 1e-6, 1e-3);
                add_run(m, count, seconds, test_uniform(&rng, 0, 1e-5), workers);
                m->runs[m->r.run_count - 1].bytes = run == 1 ? 1000 : 0;
                work += (double)count * seconds;
                longest = count > 0 && seconds > longest ? seconds : longest;
            }
            add_job(m, from, 1e-6);
        }
        m->r.filler = run_of(m, test_below(&rng, 40), 1e-4, 0, workers);
        work += 1e-4 * (double)m->r.filler.count;
        replay_machine machine = {.workers = workers,
                                  .spin = 5e-5,
                                  .handover = 1e-6,
                                  .per_worker = 6e-8,
                                  .wakeup = 3e-5,
                                  .per_sleeper = 2e-6,
                                  .bandwidth = 3e7,
                                  .slowdown = 1};
        replay_result found = play(m, &machine);
        assert_true(found.seconds * (1 + 1e-12) >= work / workers && found.seconds >= longest);
        assert_true(found.busy >= work * (1 - 1e-12));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_piece_takes_its_time),
        cmocka_unit_test(equal_pieces_are_divided),
        cmocka_unit_test(a_chain_does_not_get_faster),
        cmocka_unit_test(teams_take_jobs),
        cmocka_unit_test(filler_fills),
        cmocka_unit_test(the_beginning_is_shared_by_all),
        cmocka_unit_test(bandwidth_is_shared),
        cmocka_unit_test(waiting_costs),
        cmocka_unit_test(the_parts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
