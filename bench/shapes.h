/*
 * shapes.h: lists of shapes as people write them.
 */
#ifndef BENCH_SHAPES_H
#define BENCH_SHAPES_H

#include <muonium.h>

enum { SHAPES_MOST = 64 };

/* Read "768x3072,24x128x512": rows by columns, after a batch or not, extents of at most 2^20,
 * separated by commas. False if it is none, or none of at most SHAPES_MOST. */
bool shapes_parse(const char *text, muonium_shape shapes[SHAPES_MOST], size_t *count);

#endif
