/*
 * settings.h: from the words of the command line to the settings of a training.
 */
#ifndef GPT_SETTINGS_H
#define GPT_SETTINGS_H

#include "trainer.h"

/* The sizes that have a name, from 0; NULL past the last. */
const char *gpt_size_name(int index);

/* Set shape (but for the vocabulary), sequences, and learning rates and momenta that suit
 * them from a name, or from LAYERSxWIDTH or LAYERSxWIDTHxCONTEXT as "6x384x256". */
bool gpt_parse_size(const char *text, gpt_settings *settings, problem *what);

/* Set values[kind] of the chosen optimizers: as many numbers as there are optimizers,
 * separated by commas, above 0 and at most `most`. `name` is what messages call one. */
bool gpt_parse_each(const char *text, const char *name, double most, const gpt_settings *settings,
                    double values[GPT_KINDS], problem *what);

/* Whether this machine has the memory that a training takes. */
bool gpt_check_memory(const gpt_settings *settings, problem *what);

/* Whether a file can be made at, or replaced at, this path. Leaves no trace. */
bool gpt_check_writable(const char *path, problem *what);

#endif
