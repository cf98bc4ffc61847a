/*
 * limits.c: the system gives the process little: one CPU, hardly any address space, no more
 * descriptors, files of a limited size. Calls succeed with the usual results or say what
 * they lack; afterwards everything is as it was and works.
 */
#include "faults.h"

#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- one CPU ---- */

void faults_of_affinity(void)
{
    cpu_set_t allowed, one;
    bytes expected[CONFIGURATIONS];
    files_without_sync();
    unsetenv("MUONIUM_NUM_THREADS"); /* which would go before the CPUs */
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        expected[i] = subject_whole_life(&configurations[i], "usual");
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        for (int threads = 0; threads <= 8; threads += 4) { /* the default, and too many */
            assert_ok(muonium_set_threads(threads));
            int found = muonium_threads() + (int)fault_sabotage(0, 1);
            for (size_t i = 0; i < CONFIGURATIONS; i++) {
                fault_where("CPU %zu alone, %d threads, %s", cpu, threads, configurations[i].name);
                if (fault_next()) {
                    bytes view = subject_whole_life(&configurations[i], "bound");
                    view.data[0] ^= fault_sabotage(0, 1);
                    fault_expect(bytes_equal(&view, &expected[i]), "the results differ");
                    fault_expect(threads > 0 || found == 1, "%d threads on one CPU", found);
                    bytes_free(&view);
                }
            }
        }
        assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    }
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        bytes_free(&expected[i]);
    }
}

/* ---- address space ---- */

enum { MATRICES = 3, SIDE = 160, LIMITS = 64, LIMIT_STEP = 8 * 1024, STACK = 512 * 1024 };

/* Matrices large enough that each allocation is felt. */
static struct {
    float data[MATRICES][SIDE * SIDE], start[MATRICES][SIDE * SIDE], grad[MATRICES][SIDE * SIDE];
    muonium_optimizer *optimizer;
    char path[128];
    long limited, refused; /* calls under a limit, and those for which there was no memory */
} large;

static muonium_status large_create(void)
{
    static const char *const names[] = {"a", "b", "c.bias"};
    muonium_optimizer *made = NULL;
    muonium_status status = muonium_create(NULL, &made);
    for (size_t i = 0; status == MUONIUM_OK && i < MATRICES; i++) {
        muonium_tensor tensor = {.name = names[i],
                                 .dtype = MUONIUM_F32,
                                 .ndim = 2,
                                 .shape = {SIDE, SIDE},
                                 .data = large.data[i],
                                 .grad = large.grad[i]};
        status = muonium_add(made, &tensor, NULL);
    }
    if (status == MUONIUM_OK) {
        large.optimizer = made;
    } else {
        muonium_destroy(made);
    }
    return status;
}

static muonium_status large_step(void)
{
    return muonium_step(large.optimizer);
}

static muonium_status large_save(void)
{
    return muonium_save(large.optimizer, large.path);
}

static muonium_status large_load(void)
{
    return muonium_load(large.optimizer, large.path);
}

static muonium_status large_orthogonalize(void)
{
    muonium_shape shape = {.batch = 1, .rows = SIDE, .cols = SIDE};
    muonium_view in = muonium_dense(MUONIUM_F32, shape, large.grad[0]);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, large.data[0]);
    return muonium_orthogonalize(shape, NULL, &in, &out, NULL);
}

typedef struct deed {
    const char *name;
    muonium_status (*run)(void);
} deed;

static const deed deeds[] = {
    {"create", large_create}, {"step", large_step}, {"save", large_save},
    {"step", large_step},     {"load", large_load}, {"orthogonalize", large_orthogonalize},
    {"step", large_step},
};

enum { DEEDS = sizeof deeds / sizeof deeds[0] };

static void large_begin(void)
{
    memcpy(large.data, large.start, sizeof large.data);
    remove(large.path);
}

static bytes large_end(void)
{
    bytes view = {0};
    assert_true(bytes_append(&view, large.data, sizeof large.data));
    muonium_destroy(large.optimizer);
    large.optimizer = NULL;
    return view;
}

static size_t address_space_used(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_address_space(rlim_t bytes_allowed)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = bytes_allowed < limit.rlim_max ? bytes_allowed : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* A stack that cannot grow is no error that a function could return, so it grows first. */
static void grow_stack(void)
{
    unsigned char room[STACK];
    memset(room, 0, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory"); /* or it would be optimised away */
}

/* All deeds, number `limited` of them with `spare` bytes of address space to be had. */
static void fail_deed(size_t limited, size_t spare, const bytes *expected)
{
    large_begin();
    for (size_t i = 0; i < DEEDS; i++) {
        muonium_status status = MUONIUM_OK;
        if (i == limited) {
            float before = large.data[0][0];
            limit_address_space(address_space_used() + spare);
            status = deeds[i].run();
            limit_address_space(RLIM_INFINITY);
            large.limited++;
            large.refused += status == MUONIUM_NO_MEMORY;
            status = fault_sabotage(0, 1) ? MUONIUM_FORMAT : status;
            fault_expect(status == MUONIUM_OK || status == MUONIUM_NO_MEMORY, "gave %s: %s",
                         muonium_status_name(status), muonium_last_error());
            fault_expect(status == MUONIUM_OK || memcmp(&before, &large.data[0][0], 4) == 0,
                         "something has changed");
        }
        if (i != limited || status != MUONIUM_OK) {
            status = deeds[i].run();
            fault_expect(status == MUONIUM_OK, "%s fails without a limit: %s", deeds[i].name,
                         muonium_last_error());
        }
    }
    bytes view = large_end();
    fault_expect(bytes_equal(&view, expected), "the results differ from those without a limit");
    bytes_free(&view);
}

void faults_of_address_space(void)
{
    if (fault_sanitized()) {
        fault_skip("a sanitizer needs all of the address space");
        return;
    }
    test_rng rng = test_rng_start("address space");
    files_without_sync();
    grow_stack();
    /* What is released goes back to the system at once, lest it hide the limit. */
    mallopt(M_MMAP_THRESHOLD, 1 << 14);
    mallopt(M_TRIM_THRESHOLD, 0);
    snprintf(large.path, sizeof large.path, "%s/state", files_directory());
    test_fill_normal_f32(&rng, large.start[0], MATRICES * SIDE * SIDE);
    test_fill_normal_f32(&rng, large.grad[0], MATRICES * SIDE * SIDE);
    large_begin();
    for (size_t i = 0; i < DEEDS; i++) {
        assert_ok(deeds[i].run());
    }
    bytes expected = large_end();
    for (size_t i = 0; i < DEEDS; i++) {
        for (size_t k = 0; k < LIMITS; k++) {
            fault_where("%s with %zu KB of address space to spare", deeds[i].name,
                        k * LIMIT_STEP / 1024);
            if (fault_next()) {
                fail_deed(i, k * LIMIT_STEP, &expected);
            }
        }
    }
    fault_where("all %ld calls under a limit", large.limited);
    if (fault_next()) {
        bool some = large.limited < 100 || large.refused > large.limited / 10;
        fault_expect(some && !fault_sabotage(0, 1), "only %ld of them lacked memory",
                     large.refused);
    }
    bytes_free(&expected);
}

/* ---- files ---- */

/* What a call under a limit on files must come to. */
static void judge_files(subject *s, muonium_status status, const bytes *before, const char *reason)
{
    bytes after = subject_view(s);
    status = fault_sabotage(0, 1) ? MUONIUM_OK : status;
    fault_expect_status(status, MUONIUM_IO);
    fault_expect(strstr(muonium_last_error(), reason) != NULL, "the message gives no reason: %s",
                 muonium_last_error());
    fault_expect(bytes_equal(before, &after), "the file or something else has changed");
    fault_expect(files_remove_temporaries() == 0, "a temporary file is left");
    bytes_free(&after);
}

static void set_soft_limit(int resource, rlim_t value)
{
    struct rlimit limit;
    assert_int_equal(getrlimit((__rlimit_resource_t)resource, &limit), 0);
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    assert_int_equal(setrlimit((__rlimit_resource_t)resource, &limit), 0);
}

/* The lowest descriptor that is free, and so the limit that allows no more of them. */
static rlim_t no_more_descriptors(void)
{
    int lowest = dup(0);
    assert_true(lowest >= 0);
    close(lowest);
    return (rlim_t)lowest;
}

void faults_of_file_limits(void)
{
    static subject s;
    enum { STEPPED = 14 };
    files_without_sync();
    signal(SIGXFSZ, SIG_IGN); /* whose default ends the process before a call can fail */
    subject_begin(&s, subject_configuration("everything"), "state");
    assert_ok(subject_live(&s, 0, STEPPED));
    assert_ok(muonium_save(s.m.optimizer, s.path));
    bytes file = file_content(s.path);
    s.next_step = 9;
    assert_ok(subject_live(&s, STEPPED - 1, STEPPED));
    bytes before = subject_view(&s);
    for (size_t size = 0; size < file.count; size += 16) {
        fault_where("save with files of at most %zu bytes, of %zu", size, file.count);
        if (fault_next()) {
            set_soft_limit(RLIMIT_FSIZE, size);
            muonium_status status = muonium_save(s.m.optimizer, s.path);
            set_soft_limit(RLIMIT_FSIZE, RLIM_INFINITY);
            judge_files(&s, status, &before, "File too large");
        }
    }
    for (int more = 0; more < 3; more++) {
        struct rlimit usual;
        bool load = more == 2;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
        fault_where("%s with %d descriptors to be had", load ? "load" : "save", more % 2);
        if (fault_next()) {
            set_soft_limit(RLIMIT_NOFILE, no_more_descriptors() + (rlim_t)(more % 2));
            muonium_status status =
                load ? muonium_load(s.m.optimizer, s.path) : muonium_save(s.m.optimizer, s.path);
            set_soft_limit(RLIMIT_NOFILE, usual.rlim_cur);
            judge_files(&s, status, &before, "Too many open files");
        }
    }
    bytes_free(&before);
    bytes_free(&file);
    subject_end(&s);
}
