/*
 * callback.c: in which of the caller's functions this thread is, for messages.
 */
#include "base/base.h"

static _Thread_local const char *current;

const char *mu_callback_begin(const char *name)
{
    const char *outer = current;
    current = name;
    return outer;
}

void mu_callback_end(const char *outer)
{
    current = outer;
}

const char *mu_callback_name(void)
{
    return current;
}
