/*
 * checkpoint.h: an interrupted training as one safetensors file: settings as metadata;
 * for every run its weights by name, its history, and the optimizer's own checkpoint as a
 * tensor of bytes. What goes on from it computes the same bits as if it had not stopped.
 */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "trainer.h"

/* What a checkpoint says about the training before any of it is loaded. */
typedef struct gpt_saved {
    gpt_settings settings;
    uint64_t text_checksum;
    const char *text_path; /* "" for the text that comes with the demo; lives as the reader */
    size_t step;
} gpt_saved;

/* Save between steps: at every instant the path holds the old file or the new one. */
muonium_status gpt_checkpoint_save(const gpt_trainer *trainer, const char *text_path,
                                   const char *path);

/* Read what is saved; then load it into a trainer made with those settings. */
muonium_status gpt_checkpoint_open(const char *path, muonium_reader **reader, gpt_saved *saved);
muonium_status gpt_checkpoint_load(const muonium_reader *reader, const gpt_saved *saved,
                                   gpt_trainer *trainer);

#endif
