/*
 * json.h: writes JSON to a stream, laid out for people: one member per line at
 * the outer two levels, the rest in one line. Numbers have 17 significant
 * digits, so that reading them back gives the same double; NaN and infinities,
 * which JSON lacks, become null. Characters that may not be shown on a terminal are written
 * as \uXXXX, and bytes that are not UTF-8 as U+FFFD: the output is always valid.
 *
 * A key is NULL for the elements of an array and for the outermost value.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    int depth;
    bool has_members; /* of the innermost object or array, so far */
} json;

/* A writer starts as {.out = stream}. Ending the outermost value ends the line. */
void json_object(json *writer, const char *key);
void json_object_end(json *writer);
void json_array(json *writer, const char *key);
void json_array_end(json *writer);

void json_number(json *writer, const char *key, double value);
void json_integer(json *writer, const char *key, long long value);
void json_bool(json *writer, const char *key, bool value);
void json_string(json *writer, const char *key, const char *value); /* NULL gives null */

/* An array of numbers, in one line. */
void json_numbers(json *writer, const char *key, const double *values, size_t count);

#endif
