/*
 * system_calls.c: every system call of saving and of loading fails in turn, in every way
 * that it can. An interrupted or short call is gone on with; any other failure is an error
 * that names the file and the reason, and leaves the old file and the optimizer as they
 * were. After each, no descriptor and no temporary file is left.
 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/file.h"

typedef enum way { FAILS, INTERRUPTED, SHORT, NOTHING } way;

typedef struct manner {
    const char *name;
    way way;
    int error;
    int times; /* in a row */
} manner;

enum { FOR_EVER = 1 << 30, PIECE = 256 };

static const manner manners[] = {
    {"EIO", FAILS, EIO, 1},
    {"ENOSPC", FAILS, ENOSPC, 1},
    {"EDQUOT from there on", FAILS, EDQUOT, FOR_EVER},
    {"EACCES", FAILS, EACCES, 1},
    {"EINTR", INTERRUPTED, EINTR, 1},
    {"EINTR, 50 times", INTERRUPTED, EINTR, 50},
    {"EINTR from there on", FAILS, EINTR, FOR_EVER},
    {"one byte", SHORT, 0, 1},
    {"one byte from there on", SHORT, 0, FOR_EVER},
    {"no byte", NOTHING, 0, FOR_EVER},
};

/* ---- the calls ---- */

static struct {
    struct mu_file_system real;
    manner manner;
    long calls, fault_at; /* counted from 1; 0: no fault */
    int temporary;        /* descriptor of the temporary file, or -1 */
    bool unsynced;        /* it has data that is not on the disk */
    bool renamed, early;  /* ... and was renamed so */
    bool harmless;        /* the fault hit a call whose result does not matter */
} layer;

static bool due(void)
{
    layer.calls++;
    return layer.fault_at > 0 && layer.calls >= layer.fault_at &&
           layer.calls - layer.fault_at < layer.manner.times;
}

/* Whether a call that transfers no data fails now, with errno. */
static bool fails(void)
{
    bool now = due() && (layer.manner.way == FAILS || layer.manner.way == INTERRUPTED);
    errno = now ? layer.manner.error : errno;
    return now;
}

/* How many of `count` bytes to transfer; -1 with errno to fail. */
static ssize_t allowed(size_t count)
{
    size_t piece = count < PIECE ? count : PIECE; /* many calls, hence many faults */
    if (!due()) {
        return (ssize_t)piece;
    }
    errno = layer.manner.error;
    return layer.manner.way == SHORT ? 1 : layer.manner.way == NOTHING ? 0 : -1;
}

static int faulty_openat(int at, const char *path, int flags, mode_t mode)
{
    int file = fails() ? -1 : layer.real.openat(at, path, flags, mode);
    if (file >= 0 && (flags & O_CREAT) != 0) {
        layer.temporary = file;
    }
    return file;
}

static int faulty_fstat(int file, struct stat *status)
{
    return fails() ? -1 : layer.real.fstat(file, status);
}

static int faulty_fstatat(int at, const char *path, struct stat *status, int flags)
{
    return fails() ? -1 : layer.real.fstatat(at, path, status, flags);
}

static ssize_t faulty_readlink(const char *path, char *target, size_t count)
{
    return fails() ? -1 : layer.real.readlink(path, target, count);
}

static ssize_t faulty_pread(int file, void *buffer, size_t count, off_t offset)
{
    ssize_t piece = allowed(count);
    return piece <= 0 ? piece : layer.real.pread(file, buffer, (size_t)piece, offset);
}

static ssize_t faulty_write(int file, const void *data, size_t count)
{
    ssize_t piece = allowed(count);
    layer.unsynced = true;
    return piece <= 0 ? piece : layer.real.write(file, data, (size_t)piece);
}

static int faulty_fchmod(int file, mode_t mode)
{
    return fails() ? -1 : layer.real.fchmod(file, mode);
}

static int faulty_fsync(int file)
{
    if (fails()) {
        return -1;
    }
    layer.unsynced = layer.unsynced && file != layer.temporary;
    return 0;
}

/* A close that reports an error has closed all the same. */
static int faulty_close(int file)
{
    bool now = fails();
    int error = errno;
    layer.harmless = layer.harmless || (now && file != layer.temporary);
    layer.temporary = file == layer.temporary ? -1 : layer.temporary;
    int result = layer.real.close(file);
    errno = now ? error : errno;
    return now ? -1 : result;
}

static int faulty_renameat(int from, const char *old_path, int to, const char *new_path)
{
    int result = fails() ? -1 : layer.real.renameat(from, old_path, to, new_path);
    layer.renamed = layer.renamed || result == 0;
    layer.early = layer.early || (result == 0 && layer.unsynced);
    return result;
}

static int faulty_unlinkat(int at, const char *path, int flags)
{
    return fails() ? -1 : layer.real.unlinkat(at, path, flags);
}

static const struct mu_file_system faulty = {
    .openat = faulty_openat,
    .fstat = faulty_fstat,
    .fstatat = faulty_fstatat,
    .readlink = faulty_readlink,
    .pread = faulty_pread,
    .write = faulty_write,
    .fchmod = faulty_fchmod,
    .fsync = faulty_fsync,
    .close = faulty_close,
    .renameat = faulty_renameat,
    .unlinkat = faulty_unlinkat,
};

/* ---- what is done with them ---- */

typedef struct scene {
    subject s;
    const char *path;      /* that is given to the library: of the file, or of a link to it */
    bytes old_file, fresh; /* what is there, and what a save makes */
    bytes before;          /* the view */
} scene;

static scene stage;

static muonium_status save(void)
{
    return muonium_save(stage.s.m.optimizer, stage.path);
}

static muonium_status load(void)
{
    return muonium_load(stage.s.m.optimizer, stage.path);
}

static muonium_status with_faults(muonium_status (*call)(void), const manner *m, long fault_at)
{
    layer.manner = *m;
    layer.calls = 0;
    layer.fault_at = fault_at;
    layer.temporary = -1;
    layer.unsynced = layer.renamed = layer.early = layer.harmless = false;
    mu_file_system = faulty;
    muonium_status status = call();
    mu_file_system = layer.real;
    return status;
}

static void put_file(const char *path, const bytes *content)
{
    remove(path);
    if (content->count > 0) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(content->data, 1, content->count, file), content->count);
        assert_int_equal(fclose(file), 0);
    }
}

/* What holds for saving and loading alike. Whether the call had to go on. */
static bool judge_status(muonium_status status, const manner *m)
{
    bool transfers = m->way == SHORT || m->way == NOTHING;
    bool must_succeed = m->way == INTERRUPTED || m->way == SHORT;
    bool may_succeed = must_succeed || layer.harmless || (transfers && status == MUONIUM_OK);
    if (status == MUONIUM_OK) {
        fault_expect(may_succeed, "the failure goes unnoticed");
    } else {
        const char *message = muonium_last_error();
        const char *reason = m->way == NOTHING ? "" : strerror(m->error);
        fault_expect(!must_succeed, "is not gone on with: %s", message);
        fault_expect_status(status, MUONIUM_IO);
        fault_expect(strstr(message, files_directory()) != NULL, "the message names no file: %s",
                     message);
        fault_expect(strstr(message, reason) != NULL, "the message gives no reason: %s", message);
    }
    return status == MUONIUM_OK;
}

static void judge_save(muonium_status status, const manner *m)
{
    bool done = judge_status(status, m);
    bytes file = file_content(stage.s.path);
    bool is_old = bytes_equal(&file, &stage.old_file), is_new = bytes_equal(&file, &stage.fresh);
    fault_expect(is_old || is_new, "the file is neither the old nor the new one");
    fault_expect(is_new == layer.renamed, "the file is not what it was renamed to");
    fault_expect(!done || is_new, "success, but the file is the old one");
    fault_expect(!layer.early, "renamed before its data was on the disk");
    if (!done && is_new) {
        fault_expect(strstr(muonium_last_error(), "is written, but") != NULL,
                     "an error hides that the file is replaced: %s", muonium_last_error());
    }
    /* Who cannot even remove a file must leave it. */
    size_t left = files_remove_temporaries();
    fault_expect(left == 0 || m->times == FOR_EVER, "%zu temporary files are left", left);
    bytes_free(&file);
    put_file(stage.s.path, &stage.old_file);
}

/* The optimizer has steps that the file has not; a load takes them back. */
static void judge_load(muonium_status status, const manner *m)
{
    bool done = judge_status(status, m);
    bytes after = subject_view(&stage.s);
    fault_expect(bytes_equal(&stage.before, &after) == !done,
                 done ? "success, but nothing was loaded" : "something has changed");
    bytes_free(&after);
    if (done) {
        bytes state = model_state(&stage.s.m);
        fault_expect(bytes_equal(&state, &stage.old_file), "what was loaded is not what was saved");
        bytes_free(&state);
        stage.s.next_step = 7;
        assert_ok(subject_live(&stage.s, 13, 14)); /* a step */
        bytes_free(&stage.before);
        stage.before = subject_view(&stage.s);
    }
}

/* Each call in every manner. */
static void fail_all(const char *configuration_name, const char *what, muonium_status (*call)(void),
                     void (*judge)(muonium_status, const manner *))
{
    static const manner none = {"nothing", FAILS, 0, 0};
    assert_ok(with_faults(call, &none, 0));
    long calls = layer.calls;
    judge(MUONIUM_OK, &(manner){"nothing", SHORT, 0, 0});
    size_t descriptors = open_descriptors();
    for (size_t k = 0; k < sizeof manners / sizeof manners[0]; k++) {
        for (long at = 1; at <= calls; at++) {
            fault_where("%s, %s, system call %ld of %ld, %s", configuration_name, what, at, calls,
                        manners[k].name);
            if (!fault_next()) {
                continue;
            }
            muonium_status status = with_faults(call, &manners[k], at);
            size_t opened = open_descriptors();
            if (fault_sabotage(0, 3)) {
                status = status == MUONIUM_OK ? MUONIUM_IO : MUONIUM_OK;
            } else if (fault_sabotage(1, 3)) {
                opened++;
            } else if (fault_sabotage(2, 3)) {
                status = MUONIUM_FORMAT;
            }
            judge(status, &manners[k]);
            fault_expect(opened == descriptors, "descriptors leak: %zu before, %zu after",
                         descriptors, opened);
        }
    }
}

void faults_of_system_calls(void)
{
    static const char *const names[] = {"muonium", "everything"};
    char link_path[160];
    files_without_sync();
    layer.real = mu_file_system;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        subject_begin(&stage.s, subject_configuration(names[i]), "state");
        stage.path = stage.s.path;
        assert_ok(subject_live(&stage.s, 0, 14)); /* all parameters are there and stepped */
        assert_ok(muonium_save(stage.s.m.optimizer, stage.path));
        stage.old_file = file_content(stage.path);
        stage.s.next_step = 7;
        assert_ok(subject_live(&stage.s, 13, 14));
        stage.fresh = model_state(&stage.s.m);
        stage.before = subject_view(&stage.s);
        fail_all(names[i], "replace a file", save, judge_save);
        fail_all(names[i], "load", load, judge_load);

        snprintf(link_path, sizeof link_path, "%s/link-to-state", files_directory());
        remove(link_path);
        assert_int_equal(symlink("state", link_path), 0);
        stage.path = link_path;
        bytes_free(&stage.fresh);
        stage.fresh = model_state(&stage.s.m);
        fail_all(names[i], "replace through a link", save, judge_save);
        stage.path = stage.s.path;
        bytes_free(&stage.old_file);
        put_file(stage.path, &stage.old_file);
        fail_all(names[i], "save a new file", save, judge_save);
        bytes_free(&stage.fresh);
        bytes_free(&stage.before);
        subject_end(&stage.s);
    }
}
