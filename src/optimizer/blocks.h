/*
 * blocks.h: state of MUONIUM_INT8. Each block of MUONIUM_STATE_BLOCK consecutive elements has an
 * f32 scale, a 127th of its largest magnitude. An element is its integer times that scale.
 */
#ifndef MU_BLOCKS_H
#define MU_BLOCKS_H

#include "optimizer/optimizer.h"

/* The random numbers of a block that is rounded at random; see mu_elementwise. */
typedef struct mu_dither {
    bool on; /* else to nearest */
    uint64_t key, stream, counter;
} mu_dither;

/* The dither of the elements of a state array from `first` on, in the present step. */
mu_dither mu_dither_of(const mu_parameter *parameter, mu_state_kind kind, size_t first);

/* The scale of a block, by its largest magnitude; NaN if that is not finite. */
typedef struct mu_scale {
    float scale;
    float inverse; /* 0 where it could be infinite, and without a scale */
} mu_scale;

mu_scale mu_scale_of_block(float largest);

/* Round n <= MUONIUM_STATE_BLOCK numbers to q, by the scale that they have. */
void mu_quantize_by(const mu_elementwise *elementwise, const float *x, size_t n, mu_scale scale,
                    const mu_dither *dither, int8_t *q);

/* The same, and find the scale, which is returned. A block with a number that is
 * not finite becomes NaN. */
float mu_quantize(const mu_elementwise *elementwise, const float *x, size_t n,
                  const mu_dither *dither, int8_t *q);

/* q times the scales of their blocks. `first` is the index of *x in the state. */
void mu_dequantize(const mu_elementwise *elementwise, const int8_t *q, const float *scales,
                   size_t first, size_t n, float *x);

/* Whether the momentum is in blocks; and whether blocks and matrices end together, so that no
 * block has elements of two matrices. */
bool mu_has_blocks(const mu_parameter *parameter);
bool mu_has_whole_blocks(const mu_parameter *parameter);

#endif
