/*
 * message.c: error messages and the exit codes that go with them.
 */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>

#include "text.h"

static void print_prefixed(const char *command, const char *format, va_list arguments)
{
    fflush(stdout); /* so that the message follows what was printed before it */
    fprintf(stderr, "muonium%s%s: ", command != NULL ? " " : "", command != NULL ? command : "");
    text_vline(stderr, format, arguments);
}

int message_failed(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_prefixed(command, format, arguments);
    va_end(arguments);
    return EXIT_FAILED;
}

int message_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_prefixed(command, format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'muonium%s%s --help'.\n", command != NULL ? " " : "",
            command != NULL ? command : "");
    return EXIT_USAGE;
}

int message_status(const char *command, muonium_status status)
{
    message_failed(command, "%s", muonium_last_error());
    return status == MUONIUM_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

bool problem_set(problem *what, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what->text, sizeof what->text, format, arguments);
    va_end(arguments);
    return false;
}
