/*
 * number.c: numbers as text that does not depend on the locale.
 */
#include "base/base.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

/* Decimal points, whatever the host has set. Returns what to go back to. */
static locale_t enter_c_locale(locale_t *c)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(*c);
}

static void leave_c_locale(locale_t c, locale_t before)
{
    uselocale(before);
    if (c) {
        freelocale(c);
    }
}

void mu_format_number(double value, char text[MU_NUMBER_BYTES])
{
    locale_t c, before = enter_c_locale(&c);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, MU_NUMBER_BYTES, "%.*g", digits, value);
        if (!(strtod(text, NULL) != value)) {
            break;
        }
    }
    leave_c_locale(c, before);
}

bool mu_parse_number(const char *text, size_t length, double *value)
{
    char copy[MU_NUMBER_BYTES], *end;
    if (length == 0 || length >= sizeof copy || memchr("+-.0123456789", text[0], 13) == NULL) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    locale_t c, before = enter_c_locale(&c);
    *value = strtod(copy, &end);
    leave_c_locale(c, before);
    return *end == '\0';
}
