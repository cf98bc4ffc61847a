/*
 * json.h: the tokens of the JSON in a safetensors header, and no more: strings
 * and non-negative integers between punctuation. The grammar of the header has
 * a fixed depth, so its reader asks for the tokens that may come next and
 * neither recurses nor keeps a stack.
 *
 * Strings are unescaped in place, which never lengthens them, and end with a
 * NUL where their closing quote or an escape was: reading them costs no memory.
 */
#ifndef MU_JSON_H
#define MU_JSON_H

#include "base/base.h"

typedef struct mu_json {
    char *text; /* changed behind `at` as strings are read */
    size_t size;
    size_t at;           /* the next byte; after a failure, the byte at fault */
    const char *problem; /* after a failure: what is wrong, for a message */
} mu_json;

/* Skip white space; if `punctuation` comes next, step over it and return true. */
bool mu_json_take(mu_json *json, char punctuation);

/* The same, but anything else is a failure. For { } [ ] : , and ". */
bool mu_json_expect(mu_json *json, char punctuation);

/* A string: valid UTF-8, no raw control characters, no lone surrogates, and no
 * U+0000, which a C string cannot hold. */
bool mu_json_string(mu_json *json, char **string);

/* An integer from 0 to 2^63 - 1 without sign, leading zero, fraction, exponent. */
bool mu_json_integer(mu_json *json, uint64_t *value);

/* Nothing but spaces may follow. */
bool mu_json_end(mu_json *json);

#endif
