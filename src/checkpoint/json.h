/*
 * json.h: tokens of the JSON in a safetensors header: punctuation, strings and
 * non-negative integers. The grammar of the header has a fixed depth, so that the
 * parser asks for the token that may come next and needs no recursion and no stack.
 *
 * Strings are unescaped in place, which never lengthens them. A NUL replaces the
 * closing quote or an escape, so that strings need no memory of their own.
 */
#ifndef MU_JSON_H
#define MU_JSON_H

#include "base/base.h"

typedef struct mu_json {
    char *text; /* strings before `at` are unescaped */
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
