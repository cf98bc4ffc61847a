/*
 * json.c: the JSON writer.
 */
#include "json.h"

#include <math.h>
#include <stdint.h>

#include "text.h"
#include "units.h"

enum { SPREAD_DEPTH = 2 }; /* members of the outer levels get lines of their own */

static void new_line(json *writer)
{
    fprintf(writer->out, "\n%*s", 2 * writer->depth, "");
}

static void print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *next = text;;) {
        const char *start = next;
        uint32_t code = text_next(&next);
        if (code == 0) {
            break;
        }
        if (code == '"' || code == '\\') {
            fprintf(out, "\\%c", (int)code);
        } else if (code == 0xFFFD) {
            fputs("\xEF\xBF\xBD", out);    /* the bytes themselves may be malformed */
        } else if (!text_is_shown(code)) { /* none of these is beyond U+FFFF */
            fprintf(out, "\\u%04x", (unsigned)code);
        } else {
            fprintf(out, "%.*s", (int)(next - start), start);
        }
    }
    fputc('"', out);
}

static void begin_member(json *writer, const char *key)
{
    if (writer->has_members) {
        fputc(',', writer->out);
    }
    if (writer->depth > 0 && writer->depth <= SPREAD_DEPTH) {
        new_line(writer);
    } else if (writer->has_members) {
        fputc(' ', writer->out);
    }
    if (key != NULL) {
        print_string(writer->out, key);
        fputs(": ", writer->out);
    }
    writer->has_members = true;
}

static void begin_group(json *writer, const char *key, char bracket)
{
    begin_member(writer, key);
    fputc(bracket, writer->out);
    writer->depth++;
    writer->has_members = false;
}

static void end_group(json *writer, char bracket)
{
    writer->depth--;
    if (writer->has_members && writer->depth < SPREAD_DEPTH) {
        new_line(writer);
    }
    fputc(bracket, writer->out);
    writer->has_members = true;
    if (writer->depth == 0) {
        fputc('\n', writer->out);
    }
}

void json_object(json *writer, const char *key)
{
    begin_group(writer, key, '{');
}

void json_object_end(json *writer)
{
    end_group(writer, '}');
}

void json_array(json *writer, const char *key)
{
    begin_group(writer, key, '[');
}

void json_array_end(json *writer)
{
    end_group(writer, ']');
}

static void print_number(FILE *out, double value)
{
    if (isfinite(value)) {
        fputs(units_shortest(value).text, out);
    } else {
        fputs("null", out);
    }
}

void json_number(json *writer, const char *key, double value)
{
    begin_member(writer, key);
    print_number(writer->out, value);
}

void json_integer(json *writer, const char *key, long long value)
{
    begin_member(writer, key);
    fprintf(writer->out, "%lld", value);
}

void json_bool(json *writer, const char *key, bool value)
{
    begin_member(writer, key);
    fputs(value ? "true" : "false", writer->out);
}

void json_string(json *writer, const char *key, const char *value)
{
    begin_member(writer, key);
    if (value != NULL) {
        print_string(writer->out, value);
    } else {
        fputs("null", writer->out);
    }
}

void json_numbers(json *writer, const char *key, const double *values, size_t count)
{
    begin_member(writer, key);
    fputc('[', writer->out);
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", writer->out);
        print_number(writer->out, values[i]);
    }
    fputc(']', writer->out);
}
