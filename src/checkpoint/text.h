/*
 * text.h: arrays that grow, UTF-8, and names made fit for messages.
 */
#ifndef MU_TEXT_H
#define MU_TEXT_H

#include "base/base.h"

/* Make room for `count` items of `item_bytes` in an array (NULL at first) that
 * has room for *capacity. Returns the array, moved or not, or NULL, with the
 * array as it was, if there is no memory. Growth is geometric. */
void *mu_grow(void *array, size_t *capacity, size_t count, size_t item_bytes);

typedef struct mu_text {
    char *bytes;
    size_t count;
    size_t capacity;
} mu_text;

/* Room for `more` further bytes, which the additions below rely on. */
MU_SHARED bool mu_text_reserve(mu_text *text, size_t more);
MU_SHARED void mu_text_add(mu_text *text, const char *bytes, size_t count);
MU_SHARED void mu_text_add_string(mu_text *text, const char *string);
void mu_text_add_integer(mu_text *text, uint64_t value); /* at most 20 bytes */
MU_SHARED void mu_text_release(mu_text *text);

/* Length of the UTF-8 sequence that begins at `bytes`, of which `available`
 * (at least 1) exist; 0 if it is none: cut short, overlong, a surrogate or
 * beyond U+10FFFF. */
size_t mu_utf8_length(const char *bytes, size_t available);
bool mu_utf8_valid(const char *string);

/* A name in double quotes for a message: control characters and bytes that are
 * not UTF-8 as '?', and a long name cut, so that a hostile one can neither hide
 * the rest of the message nor speak to a terminal. */
typedef struct mu_quoted {
    char text[128];
} mu_quoted;

MU_SHARED mu_quoted mu_quote(const char *name);

#endif
