/*
 * blocks.c: see blocks.h.
 */
#include "optimizer/blocks.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = MUONIUM_STATE_BLOCK };

mu_dither mu_dither_of(const mu_parameter *p, mu_state_kind kind, size_t first)
{
    const muonium_options *o = &p->group->options;
    /* An odd number per kind: stochastic_rounding uses the key without it. */
    uint64_t key = o->seed ^ p->random_key ^ (2 * (uint64_t)kind + 1) * 0x9e3779b97f4a7c15u;
    return (mu_dither){o->state_stochastic, key, p->steps, p->random_first + first};
}

/* A 127th of the largest magnitude, so that 127 times it is finite, and not below that magnitude
 * where f32 has few digits. */
static float scale_of(float largest)
{
    const float most = 0x1.020406p121f;
    float scale = largest / 127;
    if (scale < FLT_MIN && 127 * (double)scale < (double)largest) {
        scale += 0x1p-149f;
    }
    return scale < most ? scale : most;
}

mu_scale mu_scale_of_block(float largest)
{
    if (!(largest > 0 && largest <= FLT_MAX)) {
        return (mu_scale){largest == 0 ? 0 : NAN, 0};
    }
    float scale = scale_of(largest);
    return (mu_scale){scale, scale < 0x1p-100f ? 0 : 1 / scale};
}

/* Where the inverse of a scale would be infinite, all is multiplied by 2^64 first. */
static void quantize_small(const mu_elementwise *elementwise, const float *x, size_t n, float scale,
                           const mu_dither *dither, int8_t *q)
{
    float lifted[BLOCK];
    for (size_t i = 0; i < n; i++) {
        lifted[i] = x[i] * 0x1p64f;
    }
    mu_quantize_by(elementwise, lifted, n, (mu_scale){scale, 1 / (scale * 0x1p64f)}, dither, q);
}

void mu_quantize_by(const mu_elementwise *elementwise, const float *x, size_t n, mu_scale scale,
                    const mu_dither *dither, int8_t *q)
{
    if (!(scale.scale > 0)) {
        memset(q, 0, n);
    } else if (scale.inverse == 0) {
        quantize_small(elementwise, x, n, scale.scale, dither, q);
    } else if (dither->on) {
        elementwise->quantize_stochastic(x, n, scale.inverse, dither->key, dither->stream,
                                         dither->counter, q);
    } else {
        elementwise->quantize(x, n, scale.inverse, q);
    }
}

float mu_quantize(const mu_elementwise *elementwise, const float *x, size_t n,
                  const mu_dither *dither, int8_t *q)
{
    mu_scale scale = mu_scale_of_block(elementwise->largest(x, n));
    mu_quantize_by(elementwise, x, n, scale, dither, q);
    return scale.scale;
}

void mu_dequantize(const mu_elementwise *elementwise, const int8_t *q, const float *scales,
                   size_t first, size_t n, float *x)
{
    while (n > 0) {
        size_t left = BLOCK - first % BLOCK, count = left < n ? left : n;
        elementwise->dequantize(q, count, scales[first / BLOCK], x);
        first += count;
        q += count;
        x += count;
        n -= count;
    }
}

bool mu_has_blocks(const mu_parameter *p)
{
    return p->muon && p->group->options.state_dtype == MUONIUM_INT8;
}

bool mu_has_whole_blocks(const mu_parameter *p)
{
    if (p->matrices.count == 1 || !p->matrices.layout->contiguous) {
        return p->matrices.count == 1;
    }
    for (size_t block = 0; block < p->matrices.blocks; block++) {
        mu_matrix_place place = mu_matrix_at(&p->matrices, block);
        if (place.rows * place.cols % BLOCK != 0) {
            return false;
        }
    }
    return true;
}
