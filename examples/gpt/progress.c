/*
 * progress.c: where there is no room for the whole line, it gives up first the speed, then
 * the validation losses, the losses, the bar, the time left.
 */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE_SIZE = 512, BAR_LEAST = 8, BAR_MOST = 30, BAR_FRAME = 3, USUAL_WIDTH = 80 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static size_t terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : USUAL_WIDTH;
}

void gpt_progress_start(gpt_progress *progress, const gpt_trainer *trainer)
{
    const char *terminal = getenv("TERM");
    const bool capable = terminal == NULL || strcmp(terminal, "dumb") != 0;
    *progress = (gpt_progress){
        .visible = isatty(STDERR_FILENO) && capable, .start = now(), .first_step = trainer->step};
}

static void append(char *line, size_t size, const char *more)
{
    const size_t used = strlen(line);
    snprintf(line + used, size - used, "%s", more);
}

static void format_losses(char *text, size_t size, const gpt_trainer *trainer, bool validation)
{
    text[0] = 0;
    for (size_t i = 0; i < trainer->settings.runs && trainer->step > 0; i++) {
        const gpt_run *run = &trainer->runs[i];
        char part[64];
        snprintf(part, sizeof part, "  %s %.2f", gpt_label(&trainer->settings.entrants[i]),
                 run->history[trainer->step].train_loss);
        append(text, size, part);
        if (validation) {
            snprintf(part, sizeof part, " val %.2f",
                     run->history[gpt_trainer_last_evaluated(trainer)].validation_loss);
            append(text, size, part);
        }
    }
}

static void format_time(char *text, size_t size, double seconds)
{
    const unsigned long long whole = seconds < 1e9 ? (unsigned long long)(seconds + 0.5) : 0;
    if (seconds >= 1e9) {
        snprintf(text, size, "a long time");
    } else if (whole >= 3600) {
        snprintf(text, size, "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
    } else {
        snprintf(text, size, "%llu:%02llu", whole / 60, whole % 60);
    }
}

static void format_bar(char *text, size_t cells, double part)
{
    const size_t filled = (size_t)((double)cells * part + 0.5);
    text[0] = '[';
    memset(text + 1, '#', filled);
    memset(text + 1 + filled, '.', cells - filled);
    strcpy(text + 1 + cells, "] ");
}

void gpt_progress_format(char *line, size_t size, size_t width, const gpt_trainer *trainer,
                         size_t steps, double seconds)
{
    const size_t all = trainer->settings.steps;
    const double part = (double)trainer->step / (double)all;
    char count[64], speed[32] = "", left[64] = "", losses[256], with_validation[256];
    snprintf(count, sizeof count, "%zu/%zu", trainer->step, all);
    if (steps > 0 && seconds > 0) {
        char time[32];
        snprintf(speed, sizeof speed, "  %.1f/s", (double)steps / seconds);
        format_time(time, sizeof time, seconds / (double)steps * (double)(all - trainer->step));
        snprintf(left, sizeof left, "  %s left", time);
    }
    format_losses(losses, sizeof losses, trainer, false);
    format_losses(with_validation, sizeof with_validation, trainer, true);

    const struct {
        size_t bar; /* cells that it has at least */
        const char *parts[4];
    } choices[] = {
        {BAR_LEAST, {count, speed, with_validation, left}},
        {BAR_LEAST, {count, "", with_validation, left}},
        {BAR_LEAST, {count, "", losses, left}},
        {BAR_LEAST, {count, "", "", left}},
        {0, {count, "", "", left}},
        {0, {count, "", "", ""}},
    };
    const size_t room = width > 0 ? width - 1 : 0; /* the last column would wrap */
    line[0] = 0;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        char text[LINE_SIZE] = "", bar[BAR_MOST + BAR_FRAME + 1] = "";
        for (size_t j = 0; j < 4; j++) {
            append(text, sizeof text, choices[i].parts[j]);
        }
        const size_t length = strlen(text), frame = choices[i].bar > 0 ? BAR_FRAME : 0;
        if (length + frame + choices[i].bar > room) {
            continue;
        }
        if (choices[i].bar > 0) {
            const size_t cells = room - length - frame;
            format_bar(bar, cells < BAR_MOST ? cells : BAR_MOST, part);
        }
        snprintf(line, size, "%s%s", bar, text);
        return;
    }
}

void gpt_progress_draw(gpt_progress *progress, const gpt_trainer *trainer)
{
    if (!progress->visible) {
        return;
    }
    char line[LINE_SIZE];
    gpt_progress_format(line, sizeof line, terminal_width(), trainer,
                        trainer->step - progress->first_step, now() - progress->start);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    progress->drawn = true;
}

void gpt_progress_clear(gpt_progress *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->drawn = false;
    }
}
