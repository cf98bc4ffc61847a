/*
 * utf8.c: UTF-8, and text from outside made fit to be shown.
 */
#include "base/base.h"

#include <string.h>

size_t mu_utf8_length(const char *bytes, size_t available)
{
    const unsigned char *b = (const unsigned char *)bytes;
    if (b[0] < 0x80) {
        return 1;
    }
    size_t length = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    if (b[0] < 0xc2 || b[0] > 0xf4 || available < length) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xf0 && b[1] < 0x90);
    bool surrogate = b[0] == 0xed && b[1] >= 0xa0;
    bool beyond = b[0] == 0xf4 && b[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

bool mu_utf8_valid(const char *string)
{
    size_t left = strlen(string);
    while (left > 0) {
        size_t length = mu_utf8_length(string, left);
        if (length == 0) {
            return false;
        }
        string += length;
        left -= length;
    }
    return true;
}

/* The code point of a valid sequence of `length` bytes. */
static uint32_t code_point(const char *bytes, size_t length)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)bytes[0] & masks[length];
    for (size_t i = 1; i < length; i++) {
        code = code << 6 | ((unsigned char)bytes[i] & 0x3fu);
    }
    return code;
}

static bool is_shown(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    bool separator = code == 0x2028 || code == 0x2029;
    /* Unicode's property Bidi_Control: text after these may be drawn anywhere in the line. */
    bool bidirectional = code == 0x061c || code == 0x200e || code == 0x200f ||
                         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return !control && !separator && !bidirectional;
}

/* Step over the character at *from, of which *left bytes exist. Its length if it may be
 * shown, else 0. */
static size_t next_shown(const char **from, size_t *left)
{
    const char *start = *from;
    size_t length = mu_utf8_length(start, *left);
    size_t step = length > 0 ? length : 1;
    *from += step;
    *left -= step;
    return length > 0 && is_shown(code_point(start, length)) ? length : 0;
}

void mu_clean(char *text)
{
    const char *from = text;
    char *to = text;
    for (size_t left = strlen(text); left > 0;) {
        const char *start = from;
        size_t length = next_shown(&from, &left);
        if (length > 0) {
            memmove(to, start, length);
            to += length;
        } else {
            *to++ = '?';
        }
    }
    *to = '\0';
}

mu_quoted mu_quote(const char *name)
{
    static const char cut[] = "\"...";
    mu_quoted quoted;
    char *out = quoted.text;
    const char *limit = quoted.text + sizeof quoted.text - sizeof cut;
    *out++ = '"';
    for (size_t left = strlen(name); left > 0;) {
        const char *start = name;
        size_t length = next_shown(&name, &left);
        if (out + (length > 0 ? length : 1) > limit) {
            memcpy(out, cut, sizeof cut);
            return quoted;
        }
        if (length > 0) {
            memcpy(out, start, length);
            out += length;
        } else {
            *out++ = '?';
        }
    }
    *out++ = '"';
    *out = '\0';
    return quoted;
}
