/*
 * progress.c: see progress.h. What was expected is corrected by how long things took so far.
 */
#include "progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "measure.h"

enum { QUIET = 30 }; /* seconds between lines that stay */

static struct {
    double start, total, done, current, said;
} progress;

void progress_begin(double seconds)
{
    progress.start = progress.said = seconds_now();
    progress.total = seconds;
    progress.done = progress.current = 0;
}

void progress_next(double seconds, const char *format, ...)
{
    progress.done += progress.current;
    progress.current = seconds;
    double now = seconds_now(), elapsed = now - progress.start;
    /* As if ten seconds had gone as expected: the first figures tell little. */
    double pace = (elapsed + 10) / (progress.done + 10);
    double left = fmax(progress.total - progress.done, seconds) * pace;
    bool terminal = isatty(STDERR_FILENO);
    if (!terminal && now - progress.said < QUIET) {
        return;
    }
    progress.said = now;
    char what[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fprintf(stderr,
            terminal ? "\rmeasuring %s; about %.0f s left\033[K"
                     : "measuring %s; about %.0f s left\n",
            what, ceil(left));
    fflush(stderr);
}

void progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}
