/*
 * report.h: what a training has shown: lines on the way, a table at the end, the same as
 * JSON and CSV, and text that the models write.
 */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdio.h>

#include "trainer.h"

/* What is trained, on what. `text` names the text. */
void gpt_report_start(FILE *out, const gpt_trainer *trainer, const char *text);

/* Losses at the last evaluation, one line; with a heading, where `first`. */
void gpt_report_line(FILE *out, const gpt_trainer *trainer, bool first);

/* The last validation loss of a run. */
double gpt_final_loss(const gpt_trainer *trainer, size_t run);

/* The run of AdamW beside others; settings.runs if there is none, or nothing beside it. */
size_t gpt_adamw_run(const gpt_trainer *trainer);

/* The first evaluated step at which the loss of a run was at most AdamW's final one, and
 * true; false if there is none, or no AdamW. */
bool gpt_reached(const gpt_trainer *trainer, size_t run, size_t *step);

/* The run beside AdamW that reached its final loss in the fewest steps, and these steps;
 * settings.runs if none did. */
size_t gpt_first_to_reach(const gpt_trainer *trainer, size_t *step);

void gpt_report_table(FILE *out, const gpt_trainer *trainer);
void gpt_report_json(FILE *out, const gpt_trainer *trainer, const char *text);

/* A line for every step of every run: optimizer, step, train_loss, validation_loss (empty
 * where not evaluated after this step), seconds. */
void gpt_report_csv(FILE *out, const gpt_trainer *trainer);

/* `length` characters written by the model of a run after the first words of the
 * validation part. Draws the same random numbers for every run. */
muonium_status gpt_report_sample(FILE *out, gpt_trainer *trainer, size_t run, size_t length);

/* What it takes in the reader's own trainer. */
void gpt_report_adoption(FILE *out);

#endif
