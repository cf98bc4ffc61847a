/*
 * quantized.h: momentum of MUONIUM_INT8.
 */
#ifndef MU_QUANTIZED_H
#define MU_QUANTIZED_H

#include "optimizer/blocks.h"
#include "optimizer/muon.h"

/* Whether the gathering updates the momentum; else mu_update_shared_blocks does. */
bool mu_gathers_blocks(const mu_parameter *parameter);

/* Update the momentum of all active parameters that have blocks and do not gather them. */
void mu_update_shared_blocks(const muonium_optimizer *optimizer);

/* Update the momentum of `count` matrices from b->first on, where mu_gathers_blocks, compute their
 * directions, and survey the rows of these. Rows for which mu_row_is_cut are not surveyed. */
void mu_gather_blocks(const mu_batch *b, size_t count);
bool mu_row_is_cut(const mu_matrix_place *place, size_t row);

/* What the next step would make of the block that begins at element `first`: its gradient, its
 * momentum before it is rounded, and its direction. Returns the number of its elements. */
size_t mu_preview_block(const mu_schedule *schedule, const mu_parameter *parameter, size_t first,
                        float *g, float *m, float *d);

/* Multiply integers of the momentum by options.ef_decay, which leaves their scales as they are:
 * `count` consecutive ones from element `first` on, of which those at `chosen` if it is not
 * NULL. */
void mu_decay_quantized(const mu_elementwise *elementwise, const mu_parameter *parameter,
                        size_t first, const size_t *chosen, size_t count);

#endif
