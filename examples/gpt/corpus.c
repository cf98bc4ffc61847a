/*
 * corpus.c: the text, its vocabulary and its batches.
 */
#include "corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* The text is part of the program, so that the demo runs from anywhere. */
#if defined(__APPLE__)
#define CONSTANTS ".const\n"
#else
#define CONSTANTS ".section .rodata\n"
#endif
__asm__(CONSTANTS ".global gpt_builtin_text, gpt_builtin_text_end\n"
                  "gpt_builtin_text:\n"
                  ".incbin \"" GPT_TEXT_PATH "\"\n"
                  "gpt_builtin_text_end:\n"
                  ".byte 0\n"
                  ".previous\n");
extern const unsigned char gpt_builtin_text[] __asm__("gpt_builtin_text");
extern const unsigned char gpt_builtin_text_end[] __asm__("gpt_builtin_text_end");

const unsigned char *gpt_corpus_builtin(size_t *size)
{
    *size = (size_t)(gpt_builtin_text_end - gpt_builtin_text);
    return gpt_builtin_text;
}

/* FNV-1a, 64 bits. */
static uint64_t checksum_of(const unsigned char *text, size_t size)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ text[i]) * 1099511628211u;
    }
    return hash;
}

bool gpt_corpus_create(const unsigned char *text, size_t size, size_t context, gpt_corpus *corpus,
                       problem *what)
{
    const size_t stretch = context + 1; /* the last token is a target only */
    if (size / 2 < stretch) {
        return problem_set(what,
                           "the text has %zu bytes: a context of %zu takes at least %zu, half of "
                           "them for validation",
                           size, context, 2 * stretch);
    }
    *corpus = (gpt_corpus){.tokens = malloc(size), .count = size};
    if (corpus->tokens == NULL) {
        return problem_set(what, "no memory for a text of %zu bytes", size);
    }
    bool occurs[256] = {false};
    for (size_t i = 0; i < size; i++) {
        occurs[text[i]] = true;
    }
    unsigned char token_of[256] = {0};
    for (size_t byte = 0; byte < 256; byte++) {
        if (occurs[byte]) {
            token_of[byte] = (unsigned char)corpus->vocabulary;
            corpus->byte_of[corpus->vocabulary++] = (unsigned char)byte;
        }
    }
    for (size_t i = 0; i < size; i++) {
        corpus->tokens[i] = token_of[text[i]];
    }
    const size_t validation = size / 10 > stretch ? size / 10 : stretch;
    corpus->train_count = size - validation;
    corpus->checksum = checksum_of(text, size);
    return true;
}

void gpt_corpus_destroy(gpt_corpus *corpus)
{
    free(corpus->tokens);
    corpus->tokens = NULL;
}

static void copy_stretch(const gpt_corpus *corpus, size_t from, size_t context,
                         unsigned char *tokens, unsigned char *targets)
{
    memcpy(tokens, corpus->tokens + from, context);
    memcpy(targets, corpus->tokens + from + 1, context);
}

void gpt_corpus_draw(const gpt_corpus *corpus, uint64_t seed, uint64_t step, size_t sequences,
                     size_t context, unsigned char *tokens, unsigned char *targets)
{
    const uint64_t batches_not_weights = UINT64_MAX; /* apart from the counters of parameters */
    const size_t places = corpus->train_count - context;
    for (size_t i = 0; i < sequences; i++) {
        uint32_t words[4];
        mu_random(seed, step * sequences + i, batches_not_weights, words);
        const uint64_t bits = (uint64_t)words[0] << 32 | words[1];
        copy_stretch(corpus, (size_t)(bits % places), context, tokens + i * context,
                     targets + i * context);
    }
}

void gpt_corpus_validation(const gpt_corpus *corpus, size_t index, size_t batches, size_t sequences,
                           size_t context, unsigned char *tokens, unsigned char *targets)
{
    const size_t places = corpus->count - corpus->train_count - context;
    for (size_t i = 0; i < sequences; i++) {
        const size_t from =
            corpus->train_count + (index * sequences + i) * (places - 1) / (batches * sequences);
        copy_stretch(corpus, from, context, tokens + i * context, targets + i * context);
    }
}
