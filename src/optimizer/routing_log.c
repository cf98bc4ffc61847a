/*
 * routing_log.c: the log of all routes before the first step.
 */
#include "optimizer/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mu_log(const muonium_optimizer *optimizer, char *line)
{
    mu_clean(line);
    const char *outer = mu_callback_begin("log");
    optimizer->log(optimizer->log_context, line);
    mu_callback_end(outer);
}

enum {
    SHAPES_SHOWN = 10,
    SHAPE_BYTES = MUONIUM_MAX_DIMS * 22 + 4, /* 20 digits and ", " for each dimension */
    LINE_BYTES = MU_REASON_SIZE + SHAPES_SHOWN * SHAPE_BYTES + 64
};

typedef struct log_line {
    char text[LINE_BYTES];
    size_t used;
} log_line;

static void append(log_line *line, const char *format, ...) MU_PRINTF(2, 3);

static void append(log_line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line->text + line->used, sizeof line->text - line->used, format, arguments);
    va_end(arguments);
    line->used += strlen(line->text + line->used);
}

/* As Python writes it: (), (64,), (64, 128). */
static void append_shape(log_line *line, const muonium_tensor *tensor)
{
    append(line, "(");
    for (size_t d = 0; d < tensor->ndim; d++) {
        append(line, "%s%zu", d > 0 ? ", " : "", tensor->shape[d]);
    }
    append(line, tensor->ndim == 1 ? ",)" : ")");
}

typedef struct routed {
    const mu_parameter *parameter;
    size_t index;
} routed;

static int by_reason_then_index(const void *left, const void *right)
{
    const routed *a = left, *b = right;
    const int order = strcmp(a->parameter->reason, b->parameter->reason);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* One line for `count` parameters of the same reason. */
static void log_reason(const muonium_optimizer *optimizer, const routed *same, size_t count)
{
    log_line line = {.used = 0};
    append(&line, "%zu %s: ", count, same->parameter->reason);
    for (size_t i = 0; i < count && i < SHAPES_SHOWN; i++) {
        append(&line, i > 0 ? ", " : "");
        append_shape(&line, &same[i].parameter->tensor);
    }
    if (count > SHAPES_SHOWN) {
        append(&line, ", …and %zu more", count - SHAPES_SHOWN);
    }
    mu_log(optimizer, line.text);
}

/* Whether all weights are zero, in any type. */
static bool is_zero(const mu_parameter *p)
{
    static const char zero[8] = {0};
    const size_t width = muonium_dtype_size(p->tensor.dtype);
    const mu_offset start = {0, 0, 0};
    for (size_t done = 0; done < p->elements;) {
        const mu_piece piece = mu_piece_at(p, start, &p->all, done, MU_PIECE);
        for (size_t i = 0; i < piece.count; i++) {
            if (memcmp(piece.data + (ptrdiff_t)i * piece.data_stride * (ptrdiff_t)width, zero,
                       width) != 0) {
                return false;
            }
        }
        done += piece.count;
    }
    return true;
}

/* Hyperball keeps the norms that matrices start with. */
static void warn_of_zeros(const muonium_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        if (p->muon && p->group->options.hyperball && p->steps == 0 && is_zero(p)) {
            log_line line = {.used = 0};
            append(&line,
                   "warning: %.100s is zero and stays zero: hyperball keeps its norm; initialise "
                   "it with other values, or put it into a group without hyperball",
                   p->name);
            mu_log(optimizer, line.text);
        }
    }
}

/* A line of mu_warn, marked for those who look for warnings in a log. */
static void warn(void *context, const char *line)
{
    char marked[MU_WARNING_SIZE + sizeof "warning: "];
    snprintf(marked, sizeof marked, "warning: %s", line);
    mu_log(context, marked);
}

void mu_log_routes(const muonium_optimizer *optimizer)
{
    if (optimizer->log == NULL) {
        return;
    }
    const size_t count = optimizer->count;
    size_t muon = 0;
    for (size_t i = 0; i < count; i++) {
        muon += optimizer->parameters[i]->muon;
    }
    log_line line = {.used = 0};
    append(&line, "%zu Muon, %zu AdamW", muon, count - muon);
    mu_log(optimizer, line.text);

    routed *sorted = count > 0 ? mu_alloc(count * sizeof *sorted) : NULL;
    if (sorted == NULL) {
        return; /* the details of a log are no reason to fail a step */
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = (routed){optimizer->parameters[i], i};
    }
    qsort(sorted, count, sizeof *sorted, by_reason_then_index);
    for (size_t first = 0, next; first < count; first = next) {
        next = first + 1;
        while (next < count &&
               strcmp(sorted[next].parameter->reason, sorted[first].parameter->reason) == 0) {
            next++;
        }
        log_reason(optimizer, sorted + first, next - first);
    }
    mu_free(sorted);
    mu_warn(optimizer, warn, (void *)(uintptr_t)optimizer);
    warn_of_zeros(optimizer);
}
