/*
 * kills.c: a process that saves is killed, at a random point of its system calls or at a
 * random time. The file then is the complete old one or the complete new one, it loads,
 * and the next save works in spite of the temporary file that the dead one left.
 */
#include "faults.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/file.h"

enum {
    AT_CALLS = 600,
    AT_TIMES = 450,
    SIDE = 500, /* of the matrix whose state is a megabyte */
    PIECE = 32768
};

/* An optimizer of one large matrix in two states, and the files of these. */
static struct {
    float data[SIDE * SIDE], grad[SIDE * SIDE];
    muonium_optimizer *optimizer[2];
    bytes file[2];
    char path[128];
    double seconds;                /* that a save takes */
    struct mu_file_system syncing; /* the children's; the parent does not wait for the disk */
} scene;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static muonium_optimizer *make_optimizer(void)
{
    muonium_optimizer *made;
    muonium_tensor tensor = {.name = "w",
                             .dtype = MUONIUM_F32,
                             .ndim = 2,
                             .shape = {SIDE, SIDE},
                             .data = scene.data,
                             .grad = scene.grad};
    assert_ok(muonium_create(NULL, &made));
    assert_ok(muonium_add(made, &tensor, NULL));
    return made;
}

static void set_scene(void)
{
    test_rng rng = test_rng_start("kills");
    test_fill_normal_f32(&rng, scene.grad, SIDE * SIDE);
    snprintf(scene.path, sizeof scene.path, "%s/state", files_directory());
    for (int i = 0; i < 2; i++) {
        scene.optimizer[i] = make_optimizer();
        for (int steps = 0; steps <= i; steps++) {
            assert_ok(muonium_step(scene.optimizer[i]));
        }
        double begin = seconds_now();
        assert_ok(muonium_save(scene.optimizer[i], scene.path));
        scene.seconds = seconds_now() - begin;
        scene.file[i] = file_content(scene.path);
    }
    assert_false(bytes_equal(&scene.file[0], &scene.file[1]));
}

/* ---- dying at a system call ---- */

static struct {
    struct mu_file_system real;
    long calls, last; /* the call, from 1, at which the process dies */
    bool performed;   /* after it instead of before */
} death;

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void die_before(void)
{
    if (++death.calls == death.last && !death.performed) {
        die();
    }
}

static void die_after(void)
{
    if (death.calls == death.last) {
        die();
    }
}

static int dying_openat(int at, const char *path, int flags, mode_t mode)
{
    die_before();
    int result = death.real.openat(at, path, flags, mode);
    die_after();
    return result;
}

static ssize_t dying_write(int file, const void *data, size_t count)
{
    die_before();
    ssize_t result = death.real.write(file, data, count < PIECE ? count : PIECE);
    die_after();
    return result;
}

static int dying_fchmod(int file, mode_t mode)
{
    die_before();
    int result = death.real.fchmod(file, mode);
    die_after();
    return result;
}

static int dying_fsync(int file)
{
    die_before();
    int result = death.real.fsync(file);
    die_after();
    return result;
}

static int dying_close(int file)
{
    die_before();
    int result = death.real.close(file);
    die_after();
    return result;
}

static int dying_renameat(int from, const char *old_path, int to, const char *new_path)
{
    die_before();
    int result = death.real.renameat(from, old_path, to, new_path);
    die_after();
    return result;
}

static void let_die(long last, bool performed)
{
    death.real = mu_file_system;
    death.calls = 0;
    death.last = last;
    death.performed = performed;
    mu_file_system.openat = dying_openat;
    mu_file_system.write = dying_write;
    mu_file_system.fchmod = dying_fchmod;
    mu_file_system.fsync = dying_fsync;
    mu_file_system.close = dying_close;
    mu_file_system.renameat = dying_renameat;
}

/* How many calls a save makes that a process can die at. */
static long count_calls(void)
{
    let_die(0, false);
    assert_ok(muonium_save(scene.optimizer[0], scene.path));
    mu_file_system = death.real;
    return death.calls;
}

/* ---- the faults ---- */

/* What a save that is not atomic would leave; the self-check alone. */
static void save_in_place(const bytes *content)
{
    FILE *file = fopen(scene.path, "wb");
    if (file != NULL) {
        fwrite(content->data, 1, content->count / 2, file);
        fclose(file);
    }
    die();
}

static pid_t start_child(long last, bool performed, bool again)
{
    pid_t child = fork();
    if (child != 0) {
        assert_true(child > 0);
        return child;
    }
    if (fault_sabotage(0, 1)) {
        save_in_place(&scene.file[1]);
    }
    mu_file_system = scene.syncing;
    if (last > 0) {
        let_die(last, performed);
    }
    do { /* the file holds state 0 */
        if (muonium_save(scene.optimizer[1], scene.path) != MUONIUM_OK ||
            (again && muonium_save(scene.optimizer[0], scene.path) != MUONIUM_OK)) {
            _exit(1);
        }
    } while (again);
    _exit(0);
}

static void judge(pid_t child)
{
    int status = 0;
    muonium_reader *reader = NULL;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    fault_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                 "it was not killed but ended with status %d", status);
    bytes file = file_content(scene.path);
    fault_expect(bytes_equal(&file, &scene.file[0]) || bytes_equal(&file, &scene.file[1]),
                 "a file of %zu bytes that is neither the old nor the new one", file.count);
    bytes_free(&file);
    bool sound = muonium_reader_open(scene.path, &reader) == MUONIUM_OK &&
                 muonium_verify(reader, NULL) == MUONIUM_OK;
    fault_expect(sound, "the file does not load: %s", muonium_last_error());
    muonium_reader_close(reader);
    /* Back to state 0, beside what the dead process left. */
    if (muonium_save(scene.optimizer[0], scene.path) != MUONIUM_OK) {
        fault_expect(false, "the next save fails: %s", muonium_last_error());
    }
}

void faults_of_kills(void)
{
    test_rng rng = test_rng_start("points");
    set_scene();
    scene.syncing = mu_file_system;
    files_without_sync();
    long calls = count_calls();
    for (int i = 0; i < AT_CALLS; i++) {
        long last = 1 + (long)test_below(&rng, (size_t)calls);
        bool performed = test_below(&rng, 2) == 1;
        fault_where("killed %s system call %ld of %ld", performed ? "after" : "before", last,
                    calls);
        if (fault_next()) {
            judge(start_child(last, performed, false));
        }
        if (i % 64 == 63) {
            files_remove_temporaries();
        }
    }
    for (int i = 0; i < AT_TIMES; i++) {
        double wait = test_uniform(&rng, 0, 2.5 * scene.seconds);
        fault_where("killed after %.6f s, of %.6f s that a save takes", wait, scene.seconds);
        if (fault_next()) {
            pid_t child = start_child(0, false, true);
            struct timespec pause = {(time_t)wait, (long)(1e9 * (wait - (double)(time_t)wait))};
            nanosleep(&pause, NULL);
            kill(child, SIGKILL);
            judge(child);
        }
        if (i % 64 == 63) {
            files_remove_temporaries();
        }
    }
    for (int i = 0; i < 2; i++) {
        muonium_destroy(scene.optimizer[i]);
        bytes_free(&scene.file[i]);
    }
}
