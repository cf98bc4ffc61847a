/*
 * text.c: arrays that grow.
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
