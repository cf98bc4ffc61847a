/*
 * status.c: the names of statuses, and the message of the last error.
 *
 * Each thread has one buffer of fixed size, so that reporting an error needs no
 * memory: the most frequent reason to report one is that there is none left.
 */
#include "base/base.h"

#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char last_error[MESSAGE_BYTES];

/* The locale in which 0.5 is written with a point. Null if it cannot be had;
 * uselocale then changes nothing, and numbers look as the host has set. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Mark a message that fills `message` as cut, without leaving half of a
 * multi-byte UTF-8 character before the dots. */
static void mark_as_cut(char message[MESSAGE_BYTES])
{
    static const char dots[] = "...";
    size_t end = MESSAGE_BYTES - sizeof dots;
    while (end > 0 && ((unsigned char)message[end] & 0xc0u) == 0x80u) {
        end--;
    }
    memcpy(message + end, dots, sizeof dots);
}

muonium_status mu_fail(muonium_status status, const char *format, ...)
{
    int saved_errno = errno;
    pthread_once(&c_locale_once, make_c_locale);

    /* Arguments may point into the previous message, which is why the new one
     * is composed elsewhere. */
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    locale_t callers = uselocale(c_locale);
    mu_fenv environment = mu_fenv_enter(); /* digits depend on the rounding */
    int length = vsnprintf(message, sizeof message, format, arguments);
    mu_fenv_leave(environment);
    uselocale(callers);
    va_end(arguments);

    if (length < 0) {
        snprintf(message, sizeof message, "%s (the details could not be formatted)",
                 muonium_status_name(status));
    } else if ((size_t)length >= sizeof message) {
        mark_as_cut(message);
    }
    mu_clean(message); /* names and paths come from anywhere */
    memcpy(last_error, message, strlen(message) + 1);
    errno = saved_errno;
    return status;
}

const char *muonium_last_error(void)
{
    return last_error;
}

const char *muonium_status_name(muonium_status status)
{
    switch (status) {
    case MUONIUM_OK:
        return "MUONIUM_OK";
    case MUONIUM_INVALID:
        return "MUONIUM_INVALID";
    case MUONIUM_NO_MEMORY:
        return "MUONIUM_NO_MEMORY";
    case MUONIUM_NON_FINITE:
        return "MUONIUM_NON_FINITE";
    case MUONIUM_NOT_CONVERGED:
        return "MUONIUM_NOT_CONVERGED";
    case MUONIUM_IO:
        return "MUONIUM_IO";
    case MUONIUM_FORMAT:
        return "MUONIUM_FORMAT";
    case MUONIUM_PEER:
        return "MUONIUM_PEER";
    }
    return "unknown status";
}

const char *muonium_version(void)
{
    return MUONIUM_VERSION_STRING;
}

size_t muonium_dtype_size(muonium_dtype dtype)
{
    switch (dtype) {
    case MUONIUM_F32:
        return 4;
    case MUONIUM_F64:
        return 8;
    case MUONIUM_BF16:
        return 2;
    case MUONIUM_F16:
        return 2;
    case MUONIUM_INT8:
        return 1;
    case MUONIUM_FIXED23:
    case MUONIUM_FIXED15:
    case MUONIUM_AUTO:
        break;
    }
    return 0;
}
