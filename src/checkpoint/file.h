/*
 * file.h: files that are read by position and replaced atomically. Every system
 * call of the library's input and output goes through one table, so that a test
 * can make each of them fail.
 */
#ifndef MU_FILE_H
#define MU_FILE_H

#include "base/base.h"

#include <sys/stat.h>
#include <sys/types.h>

struct mu_file_system {
    int (*openat)(int directory, const char *path, int flags, mode_t mode);
    int (*fstat)(int file, struct stat *status);
    int (*fstatat)(int directory, const char *path, struct stat *status, int flags);
    ssize_t (*readlink)(const char *path, char *target, size_t bytes);
    ssize_t (*pread)(int file, void *buffer, size_t bytes, off_t offset);
    ssize_t (*write)(int file, const void *data, size_t bytes);
    int (*fchmod)(int file, mode_t mode);
    int (*fsync)(int file);
    int (*close)(int file);
    int (*renameat)(int from, const char *old_path, int to, const char *new_path);
    int (*unlinkat)(int directory, const char *path, int flags);
};

/* POSIX semantics. Changed by tests alone, while nothing else runs. */
extern struct mu_file_system mu_file_system;

/* Open a regular file and learn its size. `path` need not be quoted. */
muonium_status mu_file_open(const char *path, int *file, uint64_t *size);

/* Read exactly `bytes` bytes at `offset`. `label` names the file in messages. */
muonium_status mu_file_read(int file, uint64_t offset, void *buffer, size_t bytes,
                            const char *label);

/* Tell the system that these bytes will be read soon. */
void mu_file_expect(int file, uint64_t offset, size_t bytes);

void mu_file_close(int file);

/* A file that appears under its path complete or not at all. */
typedef struct mu_atomic_file {
    int directory;    /* kept open, so that a change of working directory does not matter */
    int file;         /* the temporary, -1 when there is none */
    char *path;       /* of the target, symbolic links resolved, owned */
    const char *base; /* its last component */
    char temporary[256];
    uint64_t written, started; /* bytes so far, and those that start_writing has submitted */
} mu_atomic_file;

/* Begin replacing `path`. On failure there is nothing to undo. */
muonium_status mu_atomic_open(mu_atomic_file *atomic, const char *path);
muonium_status mu_atomic_write(mu_atomic_file *atomic, const void *data, size_t bytes);

/* Make the file durable under its temporary name, before it becomes visible. Use this for a file
 * that must not be lost once another is committed. On failure *atomic is released. */
muonium_status mu_atomic_prepare(mu_atomic_file *atomic);

/* Make the file durable, then visible, then its name durable. mu_atomic_abandon
 * leaves the path as it was. Both release *atomic. A prepared file that cannot be
 * renamed stays under its temporary name. */
muonium_status mu_atomic_commit(mu_atomic_file *atomic);
void mu_atomic_abandon(mu_atomic_file *atomic);

#endif
