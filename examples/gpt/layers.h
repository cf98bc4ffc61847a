/*
 * layers.h: what a GPT does between its matrix products: normalisation, rotary positions,
 * attention, activation and loss, each forward and backward.
 *
 * Arrays are dense and row-major; a token is a row. All functions spread their tokens
 * over the pool's threads, and none of the results depends on the number of threads.
 */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include "product.h"

/* ---- root-mean-square normalisation ---- */

typedef struct gpt_norm {
    size_t tokens, width;
    const float *x;    /* tokens x width */
    const float *gain; /* width */
    float *inverse;    /* tokens: 1 / rms(x), kept for the way back */
} gpt_norm;

/* y = gain * x / rms(x) */
void gpt_norm_forward(const gpt_machine *machine, const gpt_norm *norm, float *y);

/* dx += the gradient of x, d_gain = that of the gain, from dy, that of y. */
void gpt_norm_backward(const gpt_machine *machine, const gpt_norm *norm, const float *dy, float *dx,
                       float *d_gain);

/* ---- causal attention with rotary positions ---- */

typedef struct gpt_attention {
    size_t sequences, length; /* tokens = sequences * length, one sequence after the other */
    size_t width, heads;
    const float *cosines, *sines; /* length x head_size / 2, see gpt_rotations */
    float *qkv;                   /* tokens x 3 width: queries, keys, values */
    float *weights;               /* sequences x heads x length x length: attention weights */
} gpt_attention;

/* The angles of `length` positions for heads of `head_size` (even) elements. */
void gpt_rotations(size_t length, size_t head_size, float *cosines, float *sines);

/* Rotate queries and keys in place by their positions, then attend: `out` is
 * tokens x width. */
void gpt_attention_forward(const gpt_machine *machine, const gpt_attention *attention, float *out);

/* The gradient of qkv as it was before the rotation, from that of `out`. `scratch` is
 * length x length for every worker of the machine. */
void gpt_attention_backward(const gpt_machine *machine, const gpt_attention *attention,
                            const float *d_out, float *d_qkv, float *scratch);

/* ---- activation ---- */

/* y = max(0, x)^2; and, in place, dx = dy * 2 max(0, x). */
void gpt_relu_squared(const gpt_machine *machine, size_t count, const float *x, float *y);
void gpt_relu_squared_backward(const gpt_machine *machine, size_t count, const float *x,
                               float *dy_to_dx);

/* ---- loss ---- */

/* The mean cross-entropy of `targets` under softmax(logits), in nats. `losses` gets one
 * value per token; the logits are replaced by the gradient of the mean. */
double gpt_cross_entropy(const gpt_machine *machine, size_t tokens, size_t vocabulary,
                         float *logits, const unsigned char *targets, float *losses);

#endif
