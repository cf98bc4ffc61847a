/*
 * file.c: reads files by position, and replaces files atomically: write a
 * temporary file in the same directory, sync it, rename it over the target,
 * sync the directory. A crash at any instant leaves the old file or the new.
 */
#include "checkpoint/file.h"

#include "base/platform.h"

#include "checkpoint/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Most repetitions of an interrupted call. Signals that arrive faster than a
 * call can finish must not cause a hang. */
#define INTERRUPTIONS 1000

#define LARGEST_PIECE ((size_t)1 << 30) /* systems limit one call to about 2^31 bytes */
#define LINKS_FOLLOWED 40               /* as many as Linux does */
#define TEMPORARIES_TRIED 1000

static int system_openat(int directory, const char *path, int flags, mode_t mode)
{
    return openat(directory, path, flags, mode);
}

struct mu_file_system mu_file_system = {
    .openat = system_openat,
    .fstat = fstat,
    .fstatat = fstatat,
    .readlink = readlink,
    .pread = pread,
    .write = write,
    .fchmod = fchmod,
    .fsync = mu_platform_sync,
    .close = close,
    .renameat = renameat,
    .unlinkat = unlinkat,
};

/* Whether a call that returned `result` is to be repeated. */
static bool interrupted(intmax_t result, int *times)
{
    return result < 0 && errno == EINTR && ++*times < INTERRUPTIONS;
}

/* result = call, again while a signal interrupts it. */
#define REPEAT(result, call)                                                                       \
    do {                                                                                           \
        int times = 0;                                                                             \
        do {                                                                                       \
            (result) = (call);                                                                     \
        } while (interrupted(result, &times));                                                     \
    } while (0)

static int open_file(int directory, const char *path, int flags, mode_t mode)
{
    int file;
    REPEAT(file, mu_file_system.openat(directory, path, flags | O_CLOEXEC | O_NOCTTY, mode));
    return file;
}

static int sync_file(int file)
{
    int result;
    REPEAT(result, mu_file_system.fsync(file));
    return result;
}

static int change_mode(int file, mode_t mode)
{
    int result;
    REPEAT(result, mu_file_system.fchmod(file, mode));
    return result;
}

static int examine_file(int file, struct stat *status)
{
    int result;
    REPEAT(result, mu_file_system.fstat(file, status));
    return result;
}

static int examine_entry(int directory, const char *name, struct stat *status)
{
    int result;
    REPEAT(result, mu_file_system.fstatat(directory, name, status, AT_SYMLINK_NOFOLLOW));
    return result;
}

static ssize_t read_link(const char *path, char *target, size_t bytes)
{
    ssize_t result;
    REPEAT(result, mu_file_system.readlink(path, target, bytes));
    return result;
}

static int rename_entry(int directory, const char *from, const char *to)
{
    int result;
    REPEAT(result, mu_file_system.renameat(directory, from, directory, to));
    return result;
}

static int remove_entry(int directory, const char *name)
{
    int result;
    REPEAT(result, mu_file_system.unlinkat(directory, name, 0));
    return result;
}

/* Close once whatever happens: on Linux an interrupted close has closed. */
static int close_file(int file)
{
    return mu_file_system.close(file) < 0 && errno != EINTR ? -1 : 0;
}

static muonium_status fail_path(const char *action, const char *path)
{
    int code = errno;
    mu_quoted quoted = mu_quote(path);
    return mu_fail(MUONIUM_IO, "cannot %s %s: %s", action, quoted.text, strerror(code));
}

static muonium_status fail_irregular(const char *path, mode_t mode)
{
    mu_quoted quoted = mu_quote(path);
    return mu_fail(MUONIUM_IO, "%s is %s: a regular file is needed", quoted.text,
                   S_ISDIR(mode) ? "a directory" : "a device, pipe or socket");
}

/* ---- reading ---- */

muonium_status mu_file_open(const char *path, int *file, uint64_t *size)
{
    /* Non-blocking: to open a named pipe without a writer would hang. */
    int opened = open_file(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    if (opened < 0) {
        return fail_path("open", path);
    }
    struct stat status;
    muonium_status result = MUONIUM_OK;
    if (examine_file(opened, &status) < 0) {
        result = fail_path("examine", path);
    } else if (!S_ISREG(status.st_mode)) {
        result = fail_irregular(path, status.st_mode);
    }
    if (result != MUONIUM_OK) {
        close_file(opened);
        return result;
    }
    *file = opened;
    *size = (uint64_t)status.st_size;
    return MUONIUM_OK;
}

muonium_status mu_file_read(int file, uint64_t offset, void *buffer, size_t bytes,
                            const char *label)
{
    char *to = buffer;
    int times = 0;
    while (bytes > 0) {
        size_t piece = bytes < LARGEST_PIECE ? bytes : LARGEST_PIECE;
        ssize_t got = mu_file_system.pread(file, to, piece, (off_t)offset);
        if (interrupted(got, &times)) {
            continue;
        }
        if (got < 0) {
            int code = errno;
            return mu_fail(MUONIUM_IO, "%s: cannot read byte %" PRIu64 ": %s", label, offset,
                           strerror(code));
        }
        if (got == 0) {
            return mu_fail(MUONIUM_IO,
                           "%s: ends at byte %" PRIu64 ": it was cut short after it was opened",
                           label, offset);
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
        times = 0;
    }
    return MUONIUM_OK;
}

void mu_file_expect(int file, uint64_t offset, size_t bytes)
{
#if defined(POSIX_FADV_WILLNEED)
    posix_fadvise(file, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
#else
    (void)file;
    (void)offset;
    (void)bytes;
#endif
}

void mu_file_close(int file)
{
    close_file(file);
}

/* ---- replacing ---- */

static const char *last_component(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The path that a symbolic link at `path` leads to, link after link, whether
 * or not a file is there; a copy of `path` if it is no link. */
static muonium_status follow_links(const char *path, char **resolved)
{
    char *current = mu_alloc(strlen(path) + 1);
    if (current == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a path");
    }
    memcpy(current, path, strlen(path) + 1);
    for (int links = 0; links <= LINKS_FOLLOWED; links++) {
        char target[PATH_MAX];
        ssize_t length = read_link(current, target, sizeof target);
        if (length < 0 && (errno == EINVAL || errno == ENOENT)) {
            *resolved = current;
            return MUONIUM_OK;
        }
        if (length < 0 || length >= PATH_MAX) {
            errno = length < 0 ? errno : ENAMETOOLONG;
            muonium_status status = fail_path("examine", path);
            mu_free(current);
            return status;
        }
        size_t before = target[0] == '/' ? 0 : (size_t)(last_component(current) - current);
        char *next = mu_alloc(before + (size_t)length + 1);
        if (next == NULL) {
            mu_free(current);
            return mu_fail(MUONIUM_NO_MEMORY, "no memory for a path");
        }
        memcpy(next, current, before);
        memcpy(next + before, target, (size_t)length);
        next[before + (size_t)length] = '\0';
        mu_free(current);
        current = next;
    }
    mu_free(current);
    errno = ELOOP;
    return fail_path("examine", path);
}

static muonium_status open_directory(mu_atomic_file *atomic)
{
    char *path = atomic->path;
    size_t length = (size_t)(atomic->base - path);
    char saved = path[length];
    path[length] = '\0';
    const char *name = length == 0 ? "." : path;
    atomic->directory = open_file(AT_FDCWD, name, O_RDONLY | O_DIRECTORY, 0);
    muonium_status status = atomic->directory < 0 ? fail_path("open directory", name) : MUONIUM_OK;
    path[length] = saved;
    return status;
}

/* Give the temporary the permissions of the file that it replaces, except those that depend on
 * the owner. setuid and setgid would grant the rights of another owner. If the group changes,
 * it gets only the rights that everyone has. */
static int copy_permissions(int file, const struct stat *old)
{
    struct stat own;
    if (examine_file(file, &own) < 0) {
        return -1;
    }
    mode_t mode = old->st_mode & 0777;
    if (own.st_gid != old->st_gid) {
        mode &= (mode << 3 & 070) | 0707;
    }
    return change_mode(file, mode);
}

/* Create the temporary under a name that no other writer uses. O_EXCL fails if the name exists,
 * even as a link. A file that replaces another stays private until its permissions are set. */
static muonium_status open_temporary(mu_atomic_file *atomic)
{
    struct stat old;
    bool exists = examine_entry(atomic->directory, atomic->base, &old) == 0;
    if (!exists && errno != ENOENT) {
        return fail_path("examine", atomic->path);
    }
    if (exists && !S_ISREG(old.st_mode)) {
        return fail_irregular(atomic->path, old.st_mode);
    }
    for (int i = 0; i < TEMPORARIES_TRIED; i++) {
        snprintf(atomic->temporary, sizeof atomic->temporary, "%.200s.tmp-%ld-%d", atomic->base,
                 (long)getpid(), i);
        atomic->file = open_file(atomic->directory, atomic->temporary,
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, exists ? 0600 : 0666);
        if (atomic->file >= 0 || errno != EEXIST) {
            break;
        }
    }
    if (atomic->file < 0) {
        atomic->temporary[0] = '\0'; /* the file of that name is not ours to remove */
        return fail_path("create a temporary file beside", atomic->path);
    }
    if (exists && copy_permissions(atomic->file, &old) < 0) {
        return fail_path("set the permissions of a temporary file beside", atomic->path);
    }
    return MUONIUM_OK;
}

muonium_status mu_atomic_open(mu_atomic_file *atomic, const char *path)
{
    *atomic = (mu_atomic_file){.directory = -1, .file = -1};
    muonium_status status = follow_links(path, &atomic->path);
    if (status != MUONIUM_OK) {
        return status;
    }
    atomic->base = last_component(atomic->path);
    if (atomic->base[0] == '\0') {
        mu_quoted quoted = mu_quote(path);
        status = mu_fail(MUONIUM_INVALID, "the path %s names no file", quoted.text);
    }
    if (status == MUONIUM_OK) {
        status = open_directory(atomic);
    }
    if (status == MUONIUM_OK) {
        status = open_temporary(atomic);
    }
    if (status != MUONIUM_OK) {
        mu_atomic_abandon(atomic);
    }
    return status;
}

/* Start writing to the disk early, so that the final sync is short. The sync reports errors. */
static void start_writing(mu_atomic_file *atomic)
{
    enum { WORTH_STARTING = 8 << 20 };
    uint64_t bytes = atomic->written - atomic->started;
    if (bytes >= WORTH_STARTING) {
#if defined(SYNC_FILE_RANGE_WRITE)
        sync_file_range(atomic->file, (off_t)atomic->started, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
#endif
        atomic->started = atomic->written;
    }
}

muonium_status mu_atomic_write(mu_atomic_file *atomic, const void *data, size_t bytes)
{
    const char *from = data;
    int times = 0;
    while (bytes > 0) {
        size_t piece = bytes < LARGEST_PIECE ? bytes : LARGEST_PIECE;
        ssize_t put = mu_file_system.write(atomic->file, from, piece);
        if (interrupted(put, &times)) {
            continue;
        }
        if (put <= 0) {
            errno = put == 0 ? ENOSPC : errno; /* no progress without an error code */
            return fail_path("write", atomic->path);
        }
        from += put;
        bytes -= (size_t)put;
        atomic->written += (uint64_t)put;
        times = 0;
    }
    start_writing(atomic);
    return MUONIUM_OK;
}

static void release(mu_atomic_file *atomic)
{
    if (atomic->directory >= 0) {
        close_file(atomic->directory);
    }
    mu_free(atomic->path);
    *atomic = (mu_atomic_file){.directory = -1, .file = -1};
}

/* Sync the data and close the file. On failure *atomic is released. */
static muonium_status sync_data(mu_atomic_file *atomic)
{
    const char *action = NULL;
    if (sync_file(atomic->file) < 0) {
        action = "sync the file that replaces";
    } else {
        int file = atomic->file;
        atomic->file = -1;
        if (close_file(file) < 0) {
            action = "close what replaces";
        }
    }
    if (action != NULL) {
        muonium_status status = fail_path(action, atomic->path);
        mu_atomic_abandon(atomic);
        return status;
    }
    return MUONIUM_OK;
}

/* File systems that cannot sync a directory return EINVAL. Nothing more can be
 * done for the name there. */
static bool sync_directory(const mu_atomic_file *atomic)
{
    return sync_file(atomic->directory) == 0 || errno == EINVAL;
}

muonium_status mu_atomic_prepare(mu_atomic_file *atomic)
{
    muonium_status status = sync_data(atomic);
    if (status == MUONIUM_OK && !sync_directory(atomic)) {
        status = fail_path("sync the directory entry of the file that replaces", atomic->path);
        mu_atomic_abandon(atomic);
    }
    return status;
}

muonium_status mu_atomic_commit(mu_atomic_file *atomic)
{
    bool prepared = atomic->file < 0;
    muonium_status status = prepared ? MUONIUM_OK : sync_data(atomic);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (rename_entry(atomic->directory, atomic->temporary, atomic->base) < 0) {
        if (prepared) { /* another file that depends on it may have been committed */
            int code = errno;
            mu_quoted path = mu_quote(atomic->path), temporary = mu_quote(atomic->temporary);
            status = mu_fail(MUONIUM_IO, "cannot rename %s to %s (it keeps its name): %s",
                             temporary.text, path.text, strerror(code));
            release(atomic);
            return status;
        }
        status = fail_path("rename a temporary file to", atomic->path);
        mu_atomic_abandon(atomic);
        return status;
    }
    if (!sync_directory(atomic)) {
        int code = errno;
        mu_quoted quoted = mu_quote(atomic->path);
        status = mu_fail(MUONIUM_IO,
                         "%s is written, but its directory could not be synced (%s): "
                         "after a power failure the old file may be back",
                         quoted.text, strerror(code));
    }
    release(atomic);
    return status;
}

void mu_atomic_abandon(mu_atomic_file *atomic)
{
    if (atomic->file >= 0) {
        close_file(atomic->file);
    }
    if (atomic->temporary[0] != '\0') {
        remove_entry(atomic->directory, atomic->temporary);
    }
    release(atomic);
}
