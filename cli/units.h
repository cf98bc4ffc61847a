/*
 * units.h: sizes and operations as people read them.
 */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include <stdint.h>

/* A short text, by value, so that several fit into one printf. */
typedef struct unit_text {
    char text[32];
} unit_text;

unit_text units_bytes(uint64_t bytes); /* "512 bytes", "1.5 KiB", "3.2 GiB" */
unit_text units_flops(double flops);   /* "3.5 MFLOP", "12 GFLOP" */

/* The fewest digits that read back as the same number. */
unit_text units_shortest(double value);

#endif
