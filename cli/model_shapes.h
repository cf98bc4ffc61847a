/*
 * model_shapes.h: the shapes of well-known models, for planning without having them.
 */
#ifndef CLI_MODEL_SHAPES_H
#define CLI_MODEL_SHAPES_H

#include <muonium.h>

/* The models by index, from 0; NULL past the last. */
const char *model_shapes_name(int index);

/* Add all parameters of a model to a description. Their addresses mean nothing. */
muonium_status model_shapes_add(int index, muonium_dtype dtype, muonium_optimizer *description);

#endif
