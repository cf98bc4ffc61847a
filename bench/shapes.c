/*
 * shapes.c: lists of shapes as people write them.
 */
#include "shapes.h"

#include <stdlib.h>

bool shapes_parse(const char *text, muonium_shape shapes[SHAPES_MOST], size_t *count)
{
    *count = 0;
    while (*text) {
        size_t numbers[3], found = 0;
        do {
            char *end;
            if (*text < '1' || *text > '9' || found == 3) {
                return false;
            }
            unsigned long long value = strtoull(text, &end, 10);
            if (value > 1u << 20) {
                return false;
            }
            numbers[found++] = (size_t)value;
            text = end;
        } while (*text == 'x' && *++text);
        if (found < 2 || *count == SHAPES_MOST || (*text != ',' && *text != 0)) {
            return false;
        }
        size_t batch = found == 3 ? numbers[0] : 1;
        shapes[(*count)++] = (muonium_shape){batch, numbers[found - 2], numbers[found - 1]};
        text += *text == ',';
    }
    return *count > 0;
}
