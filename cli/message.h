/*
 * message.h: how the command tells its user that something went wrong. Every
 * message goes to stderr as "muonium COMMAND: ..." and every function returns
 * the exit code that belongs to it, so that an error is one return statement.
 */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include <stdbool.h>

#include <muonium.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* `command` is the name of the subcommand, or NULL outside any. */
int message_failed(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a wrong command line: adds where to read about it. */
int message_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Report muonium_last_error() after a call returned `status`, not MUONIUM_OK: an
 * invalid argument is a usage error, all else a failure. */
int message_status(const char *command, muonium_status status);

/* What went wrong in a function that does not know which command it serves. */
typedef struct problem {
    char text[1024];
} problem;

/* Set the text and return false, so that a check reads
 *     return problem_set(what, "'%s' is empty", path);
 */
bool problem_set(problem *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
