/*
 * elementwise.h: the arithmetic of the optimizer on rows of f32, compiled once per
 * instruction set from the same plain loops (kernels/). Every operation is rounded once,
 * in the order in which it is written here, and none is contracted, so the results are
 * the same bits on every instruction set (of a NaN: that it is one).
 *
 * Arrays are of n elements, consecutive, aligned to their element type alone, and do not
 * overlap; n may be 0. Nothing outside them is read or written.
 */
#ifndef MU_ELEMENTWISE_H
#define MU_ELEMENTWISE_H

#include "base/base.h"

/* m = decay * m + gain * g; d = of_g * g + of_m * m. All conventions of momentum and
 * Nesterov are this with other numbers. */
typedef struct mu_momentum_step {
    float decay, gain, of_g, of_m;
} mu_momentum_step;

/* w = keep * w - rate * o; `cautious`: keep only where o * w > 0, else 1. This is a
 * comparison of signs, so it holds however small the product. */
typedef struct mu_update_step {
    float keep, rate;
    bool cautious;
} mu_update_step;

/* m = beta1 m + (1 - beta1) g; v = beta2 v + ((1 - beta2) g) g;
 * w = keep * w - (of_m * m + of_g * g) / (sqrt(v) * v_scale + eps),
 * where bias corrections and the learning rate are in of_m, of_g and v_scale.
 *
 * Where the denominator is 0 the quotient is 0: with eps = 0 an element that never had
 * a gradient stays where it is. A gradient so large that v overflows moves m, but w no
 * more until v is reset: v is infinite then, and the quotient 0. */
typedef struct mu_adam_step {
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float keep, of_m, of_g, v_scale, eps;
} mu_adam_step;

typedef struct mu_elementwise {
    mu_isa isa;
    void (*momentum)(const mu_momentum_step *step, const float *g, float *m, float *d, size_t n);
    /* The second half alone: d from g and the m that is stored. */
    void (*direction)(const mu_momentum_step *step, const float *g, const float *m, float *d,
                      size_t n);
    void (*update)(const mu_update_step *step, const float *o, float *w, size_t n);
    void (*adam)(const mu_adam_step *step, const float *g, float *m, float *v, float *w, size_t n);

    /* Whether all are finite, of any element type but f64, without converting. */
    bool (*finite)(const void *x, muonium_dtype dtype, size_t n);

    /* Round n values to a half type at random, up with the probability that makes the
     * result right on average; values that the type holds, infinities and NaN stay.
     * Values beyond the largest finite one lie between no two numbers and are rounded
     * to nearest, as in half.h; nothing smaller becomes infinite. Probabilities are
     * multiples of 2^-32: exact, but for magnitudes below 2^-33 in f16, where the mean
     * is low by less than 2^-56.
     *
     * Element i takes word (first + i) % 4 of counter ((first + i) / 4, stream) under
     * `key`, see random.h, so any division of the work gives the same. */
    void (*round_stochastic)(const float *x, size_t n, muonium_dtype half, uint64_t key,
                             uint64_t stream, uint64_t first, uint16_t *to);
} mu_elementwise;

/* The best for an instruction set. */
const mu_elementwise *mu_elementwise_for(mu_isa isa);

/* All of them, from 0, the most capable last; NULL past the last. */
const mu_elementwise *mu_elementwise_at(size_t index);

#endif
