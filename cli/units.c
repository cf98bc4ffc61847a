/*
 * units.c: sizes and operations as people read them.
 */
#include "units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unit_text units_bytes(uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB"};
    unit_text result;
    double value = (double)bytes / 1024;
    size_t i = 0;
    if (bytes < 1024) {
        snprintf(result.text, sizeof result.text, "%u bytes", (unsigned)bytes);
        return result;
    }
    for (; value >= 1024 && i + 1 < sizeof names / sizeof names[0]; i++) {
        value /= 1024;
    }
    snprintf(result.text, sizeof result.text, "%.1f %s", value, names[i]);
    return result;
}

unit_text units_flops(double flops)
{
    unit_text result;
    double unit = flops >= 1e12 ? 1e12 : flops >= 1e9 ? 1e9 : 1e6;
    snprintf(result.text, sizeof result.text, "%.4g %s", flops / unit,
             unit > 1e9   ? "TFLOP"
             : unit > 1e6 ? "GFLOP"
                          : "MFLOP");
    return result;
}

unit_text units_shortest(double value)
{
    unit_text result;
    /* As many digits as stand before the point: 200 and not 2e+02. */
    int digits = fabs(value) >= 1 && fabs(value) < 1e15 ? 1 + (int)log10(fabs(value)) : 1;
    do {
        snprintf(result.text, sizeof result.text, "%.*g", digits, value);
    } while (digits++ < 17 &&
             memcmp(&(double){strtod(result.text, NULL)}, &value, sizeof value) != 0);
    return result;
}
