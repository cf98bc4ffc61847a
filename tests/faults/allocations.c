/*
 * allocations.c: every allocation of every operation fails in turn, once or from there on.
 * The call says that there is no memory, nothing leaks, nothing has changed, and the same
 * call succeeds afterwards and leads to what a life without faults leads to.
 */
#include "faults.h"

enum { AFTERWARDS = 3, LONGEST_LIFE = 64 }; /* operations */

/* Break what was handled well; the self-check alone. */
static muonium_status spoil(subject *s, muonium_status status)
{
    if (fault_sabotage(0, 4)) {
        ((unsigned char *)s->m.data)[7] ^= 1;
    } else if (fault_sabotage(1, 4)) {
        test_memory.alive++;
    } else if (fault_sabotage(2, 4)) {
        s->m.grad[0][0] += 1;
    }
    return fault_sabotage(3, 4) ? MUONIUM_OK : status;
}

/* One fault in operation `index`, in a life of its own; `views` has what is to be seen
 * after each operation. */
static void fail_one(const configuration *c, size_t index, long call, bool persistent,
                     const bytes *views)
{
    static subject s;
    long alive = test_memory.alive;
    subject_begin(&s, c, "state");
    if (subject_live(&s, 0, index) != MUONIUM_OK) {
        fault_expect(false, "the operations before it fail: %s", muonium_last_error());
        subject_end(&s);
        return;
    }
    if (life[index].prepare != NULL) {
        life[index].prepare(&s);
    }
    bytes before = subject_view(&s);
    size_t logged = s.log.count;
    test_fail_allocation(call, persistent);
    muonium_status status = life[index].run(&s);
    test_fail_allocation(0, false);
    status = spoil(&s, status);
    bytes after = subject_view(&s);
    /* A log that is short of details, for want of memory, is no reason to fail. */
    if (status != MUONIUM_OK || s.log.count == logged) {
        fault_expect_status(status, MUONIUM_NO_MEMORY);
        fault_expect(muonium_last_error()[0] != '\0', "no message");
        fault_expect(bytes_equal(&before, &after), "something has changed");
    }
    fault_expect(files_remove_temporaries() == 0, "a temporary file is left");
    if (status == MUONIUM_NO_MEMORY) {
        status = life[index].run(&s);
        fault_expect(status == MUONIUM_OK, "a second try fails: %s", muonium_last_error());
    }
    size_t end = index + 1 + AFTERWARDS < life_length ? index + 1 + AFTERWARDS : life_length;
    if (status == MUONIUM_OK && subject_live(&s, index + 1, end) == MUONIUM_OK) {
        bytes view = subject_view(&s);
        fault_expect(bytes_equal(&view, &views[end - 1]),
                     "what follows differs from a life without faults");
        bytes_free(&view);
    } else {
        fault_expect(false, "what follows fails: %s", muonium_last_error());
    }
    bytes_free(&before);
    bytes_free(&after);
    subject_end(&s);
    fault_expect(test_memory.alive == alive, "%ld allocations leak", test_memory.alive - alive);
}

/* A life without faults: what is seen, and how often each operation allocates. */
static void count_allocations(const configuration *c, bytes *views, long *calls)
{
    static subject s;
    subject_begin(&s, c, "state");
    for (size_t i = 0; i < life_length; i++) {
        test_fail_allocation(0, false);
        assert_ok(subject_live(&s, i, i + 1));
        calls[i] = test_memory.calls;
        views[i] = subject_view(&s);
    }
    subject_end(&s);
}

static void fail_all(const configuration *c, size_t index, long calls, const bytes *views)
{
    for (long call = 1; call <= calls; call++) {
        for (int persistent = 0; persistent < 2; persistent++) {
            fault_where("%s, %s, allocation %ld of %ld%s", c->name, life[index].name, call, calls,
                        persistent ? " and all after it" : "");
            if (fault_next()) {
                fail_one(c, index, call, persistent == 1, views);
            }
        }
    }
}

void faults_of_allocations(void)
{
    /* Those that allocate differently: with and without moments, means and copies. */
    static const char *const names[] = {"muonium",       "torch",         "normuon",
                                        "bf16 momentum", "master copies", "everything"};
    test_count_memory();
    files_without_sync();
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        const configuration *c = subject_configuration(names[k]);
        bytes views[LONGEST_LIFE];
        long calls[LONGEST_LIFE];
        assert_true(life_length <= LONGEST_LIFE);
        assert_ok(muonium_set_threads(k % 2 == 0 ? 1 : 2));
        count_allocations(c, views, calls);
        for (size_t i = 0; i < life_length; i++) {
            if (strcmp(life[i].name, "step") != 0) {
                fail_all(c, i, calls[i], views);
            } else if (fault_next()) {
                calls[i] += fault_sabotage(0, 1);
                fault_expect(calls[i] == 0, "a later step allocates %ld times", calls[i]);
            }
        }
        for (size_t i = 0; i < life_length; i++) {
            bytes_free(&views[i]);
        }
    }
}
