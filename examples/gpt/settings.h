/*
 * settings.h: from the words of the command line to the settings of a training.
 */
#ifndef GPT_SETTINGS_H
#define GPT_SETTINGS_H

#include "trainer.h"

/* The sizes that have a name, from 0; NULL past the last. */
const char *gpt_size_name(int index);

/* Set shape (but for the vocabulary) and sequences from a name, or from LAYERSxWIDTH or
 * LAYERSxWIDTHxCONTEXT as "6x384x256". */
bool gpt_parse_size(const char *text, gpt_settings *settings, problem *what);

/* Set the runs from names separated by commas: adamw and recipes of the library. Learning rates
 * and momenta become those that were swept, or else those of the recipe; the size must be set. */
bool gpt_parse_runs(const char *text, gpt_settings *settings, problem *what);

/* Set the learning rate or the momentum of every run: as many numbers as there are runs, separated
 * by commas. */
bool gpt_parse_rates(const char *text, gpt_settings *settings, problem *what);
bool gpt_parse_momenta(const char *text, gpt_settings *settings, problem *what);

/* Whether this machine has the memory that a training takes. */
bool gpt_check_memory(const gpt_settings *settings, problem *what);

/* Whether a file can be made at, or replaced at, this path. Leaves no trace. */
bool gpt_check_writable(const char *path, problem *what);

#endif
