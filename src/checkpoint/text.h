/*
 * text.h: arrays that grow.
 */
#ifndef MU_TEXT_H
#define MU_TEXT_H

#include "base/base.h"

/* Grow an array (NULL at first) of *capacity items of `item_bytes` to at least
 * `count` items. Returns the array, which may have moved, or NULL if there is no
 * memory; the array is then unchanged. Growth is geometric. */
void *mu_grow(void *array, size_t *capacity, size_t count, size_t item_bytes);

typedef struct mu_text {
    char *bytes;
    size_t count;
    size_t capacity;
} mu_text;

/* Reserve room for `more` bytes. The additions below do not check. */
bool mu_text_reserve(mu_text *text, size_t more);
void mu_text_add(mu_text *text, const char *bytes, size_t count);
void mu_text_add_string(mu_text *text, const char *string);
void mu_text_add_integer(mu_text *text, uint64_t value); /* at most 20 bytes */
void mu_text_release(mu_text *text);

#endif
