/*
 * elementwise.h: the arithmetic of the optimizer on rows of f32. One set of loops
 * (kernels/elementwise_template.h) is compiled once per instruction set. Every operation is rounded
 * once, in the order in which it is written here, and none is fused. So results are the same bits
 * on every instruction set, except for the payload of NaN.
 *
 * Arrays have n consecutive elements, are aligned to their element type alone, and do not overlap.
 * n may be 0. Nothing outside them is read or written.
 */
#ifndef MU_ELEMENTWISE_H
#define MU_ELEMENTWISE_H

#include "base/base.h"

/* m = decay * m + gain * g; d = of_g * g + of_m * m. Every convention of momentum and
 * Nesterov is a choice of these four numbers. */
typedef struct mu_momentum_step {
    float decay, gain, of_g, of_m;
} mu_momentum_step;

/* w = w - (decay * w + rate * o), clamped to [-limit, limit]. `cautious`: decay only where o and w
 * have the same sign; with `at_zero` also where o is 0.
 *
 * The decay is part of the difference because 1 - decay would round to 1 for all decays below 3e-8.
 * The limit is the largest number of the parameter's type, so that no step makes a finite weight
 * infinite. It is infinite if NaN and infinities are allowed. */
typedef struct mu_update_step {
    float decay, rate, limit;
    bool cautious, at_zero;
} mu_update_step;

/* g clamped to [-g_limit, g_limit]; m = beta1 m + (1 - beta1) g; v = beta2 v + ((1 - beta2) g) g;
 * w = w - (decay * w + (of_m * m + of_g * g) / (sqrt(v + root) * v_scale + eps)),
 * clamped to [-limit, limit] as in mu_update_step. Bias corrections and the learning rate are part
 * of of_m, of_g, root and v_scale.
 *
 * Gradients clamped to MU_ADAM_G_LIMIT do not make v overflow, which would freeze their weight.
 * Larger gradients do not change the step, which is their sign times the learning rate.
 *
 * Where the denominator is 0 the quotient is 0: with eps = 0 an element that never had a gradient
 * does not change. */
typedef struct mu_adam_step {
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float decay, of_m, of_g, v_scale, root, eps;
    float g_limit, limit;
} mu_adam_step;

/* o = scale * o; v = beta2 v + (1 - beta2) o o; o = o / (sqrt(v) * v_scale + eps). Where the
 * denominator is 0 the quotient is 0. */
typedef struct mu_adamuon_step {
    float scale, beta2, one_minus_beta2, v_scale, eps;
} mu_adamuon_step;

#define MU_ADAM_G_LIMIT 0x1p63f /* its square is half the largest number of f32 */

enum { MU_FINITE = 128, MU_RANDOM_STRIDE = MUONIUM_STATE_BLOCK / 4 };

typedef struct mu_elementwise {
    mu_features needs;
    void (*momentum)(const mu_momentum_step *step, const float *g, float *m, float *d, size_t n);
    /* The second half alone: d from g and the m that is stored. */
    void (*direction)(const mu_momentum_step *step, const float *g, const float *m, float *d,
                      size_t n);
    void (*update)(const mu_update_step *step, const float *o, float *w, size_t n);
    void (*adam)(const mu_adam_step *step, const float *g, float *m, float *v, float *w, size_t n);
    void (*adamuon)(const mu_adamuon_step *step, float *o, float *v, size_t n);

    /* m = m + gain * g. */
    void (*accumulate)(float gain, const float *g, float *m, size_t n);
    /* to = a * b. */
    void (*multiply)(const float *a, const float *b, float *to, size_t n);
    /* Per element, in double: sums += x x, or the magnitude of x. */
    void (*add_squares)(const float *x, double *sums, size_t n);
    void (*add_magnitudes)(const float *x, double *sums, size_t n);
    /* The sum of the squares of w - rate * o, in double. */
    double (*moved_squares)(double rate, const float *o, const float *w, size_t n);

    /* Whether all elements are finite and below 2^exponent in magnitude. The type is any but f64;
     * 1 <= exponent <= MU_FINITE. With MU_FINITE: whether all are finite. */
    bool (*all_below)(const void *x, muonium_dtype dtype, int exponent, size_t n);

    /* The largest magnitude; NaN if any element is NaN. */
    float (*largest)(const float *x, size_t n);
    /* q = x * inverse, rounded to nearest, ties to even. Magnitudes of x * inverse are below
     * 127.5. */
    void (*quantize)(const float *x, size_t n, float inverse, int8_t *q);
    /* The same, rounded up or down at random, up with the probability that makes q right on
     * average to 2^-23; at most MUONIUM_STATE_BLOCK elements. Element i takes word
     * i / MU_RANDOM_STRIDE of counter (counter, stream + 2^54 (i % MU_RANDOM_STRIDE)) under `key`,
     * see random.h. */
    void (*quantize_stochastic)(const float *x, size_t n, float inverse, uint64_t key,
                                uint64_t stream, uint64_t counter, int8_t *q);
    /* m = decay * (scale * q) + gain * g. Returns the largest magnitude, as `largest` does. */
    float (*momentum_int8)(const mu_momentum_step *step, const int8_t *q, float scale,
                           const float *g, float *m, size_t n);
    /* q = m * inverse, as `quantize` does; d = of_g * g + of_m * (scale * q). */
    void (*direction_int8)(const mu_momentum_step *step, const float *g, const float *m,
                           float inverse, float scale, int8_t *q, float *d, size_t n);
    /* x = scale * q. */
    void (*dequantize)(const int8_t *q, size_t n, float scale, float *x);

    /* Round n values to a half type, up or down at random, with the probabilities that make the
     * mean of the result exact. Values of the half type, infinities and NaN stay. Values beyond the
     * largest finite number are rounded to nearest, as in half.h; no other value becomes infinite.
     * Probabilities are multiples of 2^-32. That is exact except for magnitudes below 2^-33 in f16,
     * where the mean is too low by less than 2^-56.
     *
     * Element i takes word (first + i) % 4 of counter ((first + i) / 4, stream) under `key` (see
     * random.h). So the result does not depend on how the work is divided. */
    void (*round_stochastic)(const float *x, size_t n, muonium_dtype half, uint64_t key,
                             uint64_t stream, uint64_t first, uint16_t *to);
} mu_elementwise;

/* The most capable set of loops that needs only these features. */
const mu_elementwise *mu_elementwise_for(mu_features usable);

/* All of them, from 0, the most capable last; NULL past the last. */
const mu_elementwise *mu_elementwise_at(size_t index);

#endif
