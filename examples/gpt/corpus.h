/*
 * corpus.h: a text as tokens, one per byte, and batches of it. The last tenth is kept
 * for validation and never trained on.
 */
#ifndef GPT_CORPUS_H
#define GPT_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "message.h"

typedef struct gpt_corpus {
    unsigned char *tokens; /* numbers below `vocabulary`, for bytes in increasing order */
    size_t count;
    size_t train_count;         /* those before the validation part */
    size_t vocabulary;          /* different bytes */
    unsigned char byte_of[256]; /* the byte of a token */
    uint64_t checksum;          /* of the text: recognises it when a run goes on */
} gpt_corpus;

/* The text that comes with the demo: Jane Austen, see data/README.md. */
const unsigned char *gpt_corpus_builtin(size_t *size);

/* Take a text that is long enough for a context in both parts; false, and why, if not. */
bool gpt_corpus_create(const unsigned char *text, size_t size, size_t context, gpt_corpus *corpus,
                       problem *what);
void gpt_corpus_destroy(gpt_corpus *corpus);

/* `sequences` stretches of `context` tokens with their successors as targets: drawn from
 * the training part by seed and step alone; or the `index`th batch of `batches` that
 * cover the validation part evenly. */
void gpt_corpus_draw(const gpt_corpus *corpus, uint64_t seed, uint64_t step, size_t sequences,
                     size_t context, unsigned char *tokens, unsigned char *targets);
void gpt_corpus_validation(const gpt_corpus *corpus, size_t index, size_t batches, size_t sequences,
                           size_t context, unsigned char *tokens, unsigned char *targets);

#endif
