/*
 * text.h: arrays that grow.
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

#endif
