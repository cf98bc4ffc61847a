/*
 * file.c: reading and atomic replacement of files.
 *
 * A replacement is written beside its target, synchronised, renamed over it,
 * and then the directory is synchronised, because a rename that the disk has
 * not seen is lost with the power.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_all(int file, unsigned char *data, size_t size, size_t *got)
{
    *got = 0;
    while (*got < size) {
        ssize_t n = read(file, data + *got, size - *got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        if (n == 0) {
            break;
        }
        *got += (size_t)n;
    }
    return true;
}

static bool write_all(int file, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(file, data, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static unsigned char *read_open_file(int file, const char *path, size_t *size, problem *what)
{
    struct stat status;
    if (fstat(file, &status) != 0) {
        problem_set(what, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(status.st_mode)) {
        problem_set(what, "cannot read '%s': it is %s, not a regular file", path,
                    S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
        return NULL;
    }
    if (status.st_size < 0 || (uintmax_t)status.st_size >= PTRDIFF_MAX) {
        problem_set(what, "cannot read '%s': it is too large for this system", path);
        return NULL;
    }
    /* One byte more than the file has, to notice one that grows meanwhile. */
    size_t room = (size_t)status.st_size + 1;
    unsigned char *data = malloc(room);
    if (data == NULL) {
        problem_set(what, "cannot read '%s': no memory for its %zu bytes", path, room - 1);
        return NULL;
    }
    if (!read_all(file, data, room, size)) {
        problem_set(what, "cannot read '%s': %s", path, strerror(errno));
        free(data);
        return NULL;
    }
    if (*size != room - 1) {
        problem_set(what, "cannot read '%s': its size changed while it was read", path);
        free(data);
        return NULL;
    }
    return data;
}

unsigned char *file_read(const char *path, size_t *size, problem *what)
{
    /* Without O_NONBLOCK opening a pipe would wait for its writer. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        problem_set(what, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    unsigned char *data = read_open_file(file, path, size, what);
    close(file);
    return data;
}

/* The directory of `path`, with a final slash or empty, into `directory`. */
static bool directory_of(const char *path, char directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(directory, path, length);
    directory[length] = 0;
    return true;
}

/* Create a file of a name not in use in `directory`; -1 with errno on failure. */
static int create_beside(const char *directory, char name[PATH_MAX], mode_t mode)
{
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        int length =
            snprintf(name, PATH_MAX, "%s.muonium-%ld-%u.tmp", directory, (long)getpid(), attempt);
        if (length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (file >= 0 || errno != EEXIST) {
            return file;
        }
    }
    return -1;
}

/* The permissions of the file that is replaced, but for those that belong to its owner:
 * setuid and setgid would lend our identity, and what its group may do, another group may
 * only if everyone may. */
static bool copy_permissions(int file, const struct stat *old)
{
    struct stat own;
    if (fstat(file, &own) != 0) {
        return false;
    }
    mode_t mode = old->st_mode & 0777;
    if (own.st_gid != old->st_gid) {
        mode &= (mode << 3 & 070) | 0707;
    }
    return fchmod(file, mode) == 0;
}

/* Wait until a loss of power would not lose the file, or the names in a directory. */
static bool synchronise(int file)
{
#if defined(F_FULLFSYNC)
    /* fsync of macOS leaves data in the cache of the disk. Not every file system has the other. */
    if (fcntl(file, F_FULLFSYNC) == 0) {
        return true;
    }
    if (errno == EIO || errno == EINTR) {
        return false;
    }
#endif
    return fsync(file) == 0;
}

/* Write and synchronise; closes `file` in every case. */
static bool fill(int file, const struct stat *old, const file_piece *pieces, size_t count)
{
    bool good = old == NULL || copy_permissions(file, old);
    for (size_t i = 0; good && i < count; i++) {
        good = write_all(file, pieces[i].data, pieces[i].size);
    }
    good = good && synchronise(file);
    int reason = errno;
    if (close(file) != 0 && good) {
        return false;
    }
    errno = reason;
    return good;
}

/* Some file systems cannot synchronise a directory; the rename stands anyway. */
static void synchronise_directory(const char *directory)
{
    int file = open(*directory != 0 ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        (void)synchronise(file);
        close(file);
    }
}

static bool replace_resolved(const char *path, const char *target, const struct stat *old,
                             const file_piece *pieces, size_t count, problem *what)
{
    char directory[PATH_MAX], temporary[PATH_MAX];
    if (!directory_of(target, directory)) {
        return problem_set(what, "cannot write '%s': %s", path, strerror(errno));
    }
    int file = create_beside(directory, temporary, old != NULL ? 0600 : 0666);
    if (file < 0) {
        return problem_set(what, "cannot write '%s': no file can be created in '%s': %s", path,
                           *directory != 0 ? directory : ".", strerror(errno));
    }
    if (!fill(file, old, pieces, count) || rename(temporary, target) != 0) {
        int reason = errno;
        unlink(temporary);
        return problem_set(what, "cannot write '%s': %s", path, strerror(reason));
    }
    synchronise_directory(directory);
    return true;
}

bool file_replace(const char *path, const file_piece *pieces, size_t count, problem *what)
{
    struct stat status;
    if (lstat(path, &status) != 0) {
        if (errno != ENOENT) {
            return problem_set(what, "cannot write '%s': %s", path, strerror(errno));
        }
        return replace_resolved(path, path, NULL, pieces, count, what);
    }
    char *resolved = realpath(path, NULL);
    if (resolved == NULL || stat(resolved, &status) != 0) {
        int reason = errno;
        free(resolved);
        return problem_set(what, "cannot write '%s': %s", path, strerror(reason));
    }
    /* Renaming over a device such as /dev/null would remove it. */
    bool good = S_ISREG(status.st_mode)
                    ? replace_resolved(path, resolved, &status, pieces, count, what)
                    : problem_set(what, "cannot write '%s': it is %s, not a regular file", path,
                                  S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
    free(resolved);
    return good;
}
