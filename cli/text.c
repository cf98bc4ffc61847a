/*
 * text.c: UTF-8 decoding that never fails, lines for a terminal, and "did you mean".
 */
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT 0xFFFDu
#define LONGEST_WORD 40 /* longer ones get no suggestion */

uint32_t text_next(const char **cursor)
{
    const unsigned char *s = (const unsigned char *)*cursor;
    if (s[0] == 0) {
        return 0;
    }
    static const struct {
        unsigned char mask, mark;
        uint32_t least; /* below this the encoding is longer than it needs to be */
    } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t more = 0; more < 4; more++) {
        if ((s[0] & forms[more].mask) != forms[more].mark) {
            continue;
        }
        uint32_t code = s[0] & (unsigned char)~forms[more].mask;
        size_t read = 1;
        while (read <= more && (s[read] & 0xC0) == 0x80) {
            code = code << 6 | (s[read] & 0x3Fu);
            read++;
        }
        bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        if (read <= more || code < forms[more].least || surrogate || code > 0x10FFFF) {
            break;
        }
        *cursor += read;
        return code;
    }
    *cursor += 1;
    return REPLACEMENT;
}

bool text_is_shown(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    bool separator = code == 0x2028 || code == 0x2029;
    bool bidirectional = code == 0x061C || code == 0x200E || code == 0x200F ||
                         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return !control && !separator && !bidirectional && code != REPLACEMENT;
}

void text_vline(FILE *out, const char *format, va_list arguments)
{
    char *line = NULL;
    if (vasprintf(&line, format, arguments) < 0) {
        fputs("(no memory to print this line)\n", out);
        return;
    }
    for (const char *next = line; *next != 0;) {
        const char *start = next;
        if (text_is_shown(text_next(&next))) {
            fwrite(start, 1, (size_t)(next - start), out);
        } else {
            fputc('?', out);
        }
    }
    fputc('\n', out);
    free(line);
}

void text_line(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_vline(out, format, arguments);
    va_end(arguments);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of insertions, deletions, replacements and swaps of neighbours
 * that turn one word into the other (optimal string alignment). */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows = strlen(a), cols = strlen(b);
    if (rows > LONGEST_WORD || cols > LONGEST_WORD) {
        return LONGEST_WORD;
    }
    size_t d[LONGEST_WORD + 1][LONGEST_WORD + 1];
    for (size_t i = 0; i <= rows; i++) {
        for (size_t j = 0; j <= cols; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = smaller(d[i - 1][j], d[i][j - 1]) + 1;
            d[i][j] = smaller(d[i][j], d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[rows][cols];
}

const char *text_nearest(const char *word, text_candidate *candidate, const void *context)
{
    size_t length = strlen(word);
    const char *best = NULL;
    size_t best_distance = length < 4 ? 2 : length / 3 + 2; /* the first that is too far */
    const char *name;
    for (size_t i = 0; (name = candidate(context, i)) != NULL; i++) {
        bool begins = length >= 2 && strncmp(word, name, length) == 0;
        size_t distance = begins ? 1 : edit_distance(word, name);
        if (distance < best_distance && distance < strlen(name)) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}
