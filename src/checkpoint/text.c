/*
 * text.c: arrays that grow, UTF-8, and names made fit for messages.
 */
#include "checkpoint/text.h"

#include <string.h>

void *mu_grow(void *array, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count <= *capacity && array != NULL) {
        return array;
    }
    size_t room = *capacity + *capacity / 2 + 16;
    if (room < count) {
        room = count;
    }
    size_t bytes;
    void *larger = mu_mul(room, item_bytes, &bytes) ? mu_alloc(bytes) : NULL;
    if (larger == NULL) {
        return NULL;
    }
    if (array != NULL) {
        memcpy(larger, array, *capacity * item_bytes);
        mu_free(array);
    }
    *capacity = room;
    return larger;
}

bool mu_text_reserve(mu_text *text, size_t more)
{
    size_t total;
    if (!mu_add(text->count, more, &total)) {
        return false;
    }
    char *bytes = mu_grow(text->bytes, &text->capacity, total, 1);
    if (bytes == NULL) {
        return false;
    }
    text->bytes = bytes;
    return true;
}

void mu_text_add(mu_text *text, const char *bytes, size_t count)
{
    if (count > 0) {
        memcpy(text->bytes + text->count, bytes, count);
        text->count += count;
    }
}

void mu_text_add_string(mu_text *text, const char *string)
{
    mu_text_add(text, string, strlen(string));
}

void mu_text_add_integer(mu_text *text, uint64_t value)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    mu_text_add(text, digits + first, sizeof digits - first);
}

void mu_text_release(mu_text *text)
{
    mu_free(text->bytes);
    *text = (mu_text){0};
}

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

mu_quoted mu_quote(const char *name)
{
    static const char cut[] = "\"...";
    mu_quoted quoted;
    char *out = quoted.text;
    const char *limit = quoted.text + sizeof quoted.text - sizeof cut;
    size_t left = strlen(name);
    *out++ = '"';
    while (left > 0) {
        size_t length = mu_utf8_length(name, left);
        /* U+0080 to U+009F are control characters too, in two bytes. */
        bool shown = length > 0 && (unsigned char)name[0] >= 0x20 && name[0] != 0x7f &&
                     !((unsigned char)name[0] == 0xc2 && (unsigned char)name[1] < 0xa0);
        if (out + (shown ? length : 1) > limit) {
            memcpy(out, cut, sizeof cut);
            return quoted;
        }
        size_t step = length > 0 ? length : 1;
        if (shown) {
            memcpy(out, name, length);
            out += length;
        } else {
            *out++ = '?';
        }
        name += step;
        left -= step;
    }
    *out++ = '"';
    *out = '\0';
    return quoted;
}
