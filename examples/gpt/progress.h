/*
 * progress.h: a line at the bottom of the terminal that shows how far a training is. On
 * anything but a terminal there is none.
 */
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include "trainer.h"

typedef struct gpt_progress {
    bool visible;      /* stderr is a terminal */
    bool drawn;        /* a line stands there now */
    double start;      /* seconds, on a clock of its own */
    size_t first_step; /* steps taken before the start */
} gpt_progress;

void gpt_progress_start(gpt_progress *progress, const gpt_trainer *trainer);

/* Draw the line anew; remove it, so that others can print. */
void gpt_progress_draw(gpt_progress *progress, const gpt_trainer *trainer);
void gpt_progress_clear(gpt_progress *progress);

/* The line for a terminal of `width` columns after `seconds` that took `steps` steps:
 * shorter than that, whatever the width. */
void gpt_progress_format(char *line, size_t size, size_t width, const gpt_trainer *trainer,
                         size_t steps, double seconds);

#endif
