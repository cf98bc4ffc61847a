/*
 * text.h: strings from outside, made safe to print, and words that are nearly
 * right.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The code point at *cursor, which moves past it; 0 at the end of the string,
 * where the cursor stays. A byte that is no part of well-formed UTF-8 yields
 * U+FFFD, so that a file name of any bytes can go into JSON and XML. */
uint32_t text_next(const char **cursor);

/* Whether a code point may be shown on a terminal as it is: no control character (C0, DEL,
 * C1), line separator or bidirectional control, nor U+FFFD, which stands for other bytes. */
bool text_is_shown(uint32_t code);

/* Print a line and a newline. Names, paths and arguments come from anywhere, so whatever
 * may not be shown becomes '?', newlines included. Everything that the command prints and
 * that is not its own goes through here or, as JSON, through json.h. */
void text_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vline(FILE *out, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* The `index`th candidate, NULL past the last. */
typedef const char *text_candidate(const void *context, size_t index);

/* The candidate that `word` most likely means: one that it begins, or one a few
 * typing errors away. NULL if none is close. */
const char *text_nearest(const char *word, text_candidate *candidate, const void *context);

#endif
