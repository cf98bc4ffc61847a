/*
 * plot.h: the loss curves of a training as SVG.
 */
#ifndef GPT_PLOT_H
#define GPT_PLOT_H

#include <stdio.h>

#include "trainer.h"

/* `text` names what was trained on. */
void gpt_plot_write(FILE *out, const gpt_trainer *trainer, const char *text);

#endif
