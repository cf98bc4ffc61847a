/*
 * text.h: strings from outside, made safe to print, and words that are nearly
 * right.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The code point at *cursor, which moves past it; 0 at the end of the string,
 * where the cursor stays. A byte that is no part of well-formed UTF-8 yields
 * U+FFFD, so that a file name of any bytes can go into JSON and XML. */
uint32_t text_next(const char **cursor);

/* The `index`th candidate, NULL past the last. */
typedef const char *text_candidate(const void *context, size_t index);

/* The candidate that `word` most likely means: one that it begins, or one a few
 * typing errors away. NULL if none is close. */
const char *text_nearest(const char *word, text_candidate *candidate, const void *context);

#endif
