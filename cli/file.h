/*
 * file.h: whole files, read and replaced in one piece.
 */
#ifndef CLI_FILE_H
#define CLI_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "message.h"

/* Read a regular file into memory that the caller frees; NULL, and what went
 * wrong, on failure. The memory is aligned for every type. */
unsigned char *file_read(const char *path, size_t *size, problem *what);

typedef struct file_piece {
    const void *data;
    size_t size;
} file_piece;

/* Make the pieces, one after the other, the content of `path`, so that at every
 * instant, crashes included, there is the whole old file or the whole new one.
 * An existing file keeps its permissions; a symbolic link is followed; what is
 * not a regular file is refused. On failure nothing has changed. */
bool file_replace(const char *path, const file_piece *pieces, size_t count, problem *what);

#endif
