/*
 * model.h: a small GPT over the characters of a text.
 *
 *     x = embedding of the tokens
 *     in every layer:  x += attention(norm(x));  x += down(relu(up(norm(x)))^2)
 *     logits = head(norm(x))
 *
 * Positions are rotary, there are no biases, and embedding and head are separate
 * matrices. All weights lie in one array and all gradients in another, in the order of
 * the list of parameters.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "product.h"

typedef struct gpt_shape {
    size_t layers, width, heads; /* heads divides width into an even number of elements */
    size_t context;              /* tokens that the model looks at */
    size_t vocabulary;           /* at most 256 */
} gpt_shape;

typedef struct gpt_parameter {
    char name[32];
    size_t ndim, rows, cols; /* a vector has ndim 1 and cols 1 */
    size_t offset;           /* of its first element in weights and gradients */
    bool fused;              /* queries, keys and values: three matrices one below the other */
} gpt_parameter;

typedef struct gpt_model {
    gpt_shape shape;
    size_t parameter_count; /* entries of the list */
    gpt_parameter *parameters;
    size_t weight_count; /* numbers */
    float *weights, *gradients;
} gpt_model;

/* Make a model with initial weights drawn from `seed`: equal ones for equal seeds. */
muonium_status gpt_model_create(gpt_shape shape, uint64_t seed, gpt_model **model);
void gpt_model_destroy(gpt_model *model); /* NULL is allowed */

/* How many weights a model of this shape has, in floating point so that absurd shapes
 * have an answer too. */
double gpt_weight_count(gpt_shape shape);

/* The memory of a pass through a model of one shape, shared by models of that shape. */
typedef struct gpt_pass gpt_pass;

muonium_status gpt_pass_create(gpt_shape shape, size_t sequences, gpt_pass **pass);
void gpt_pass_destroy(gpt_pass *pass); /* NULL is allowed */
double gpt_pass_bytes(gpt_shape shape, size_t sequences, int threads);

/* The mean loss, in nats per token, of predicting `targets` from `tokens`: both have
 * `sequences` rows (at most those of the pass) of `context`. */
double gpt_loss(gpt_pass *pass, const gpt_model *model, size_t sequences,
                const unsigned char *tokens, const unsigned char *targets);

/* Fill model->gradients with those of the last gpt_loss of this pass and model. */
void gpt_backward(gpt_pass *pass, gpt_model *model);

/* What comes after `length` tokens, at most a context of them: one logit per token of
 * the vocabulary, which live until the next call. */
const float *gpt_next(gpt_pass *pass, const gpt_model *model, const unsigned char *tokens,
                      size_t length);

#endif
