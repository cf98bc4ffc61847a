/*
 * routing.c: Muon or AdamW for a parameter, and why.
 *
 * What is said most explicitly wins: a route given, then the name, then the shape. The
 * answer is a short text that reports and logs show as it is.
 */
#include "optimizer/optimizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- names ---- */

static const char *const default_patterns[] = {
    "*embed*", "wte",  "wpe",    "lm_head",  "head",   "*norm*",
    "ln_*",    "bias", "*_bias", "*router*", "*gain*",
};

/* Names are compared alike under every locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Past one character, which in UTF-8 is a byte and those that continue it. */
static const char *after_character(const char *text, const char *end)
{
    do {
        text++;
    } while (text < end && ((unsigned char)*text & 0xc0) == 0x80);
    return text;
}

/* Whether the text up to `end` is of the form `pattern`. When a match fails it goes on
 * at the last *, which takes one character more; earlier ones need no second try, since
 * what stood between them has matched as early as it could. */
static bool matches(const char *pattern, const char *text, const char *end)
{
    const char *star = NULL, *taken = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern;
            taken = text;
        } else if (*pattern == '?') {
            pattern++;
            text = after_character(text, end);
        } else if (*pattern != '\0' && lower(*pattern) == lower(*text)) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = taken = after_character(taken, end);
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

/* Whether a part of the name, between dots and slashes, matches. */
static bool part_matches(const char *pattern, const char *name)
{
    static const char separators[] = "./";
    const char *part = name + strspn(name, separators);
    while (*part != '\0') {
        const char *end = part + strcspn(part, separators);
        if (matches(pattern, part, end)) {
            return true;
        }
        part = end + strspn(end, separators);
    }
    return false;
}

/* The first pattern that the name matches; NULL if none. */
static const char *matching_pattern(const muonium_options *options, const char *name)
{
    const char *const *patterns = options->patterns;
    size_t count = options->pattern_count;
    if (patterns == NULL) {
        patterns = default_patterns;
        count = COUNT(default_patterns);
    }
    for (size_t i = 0; i < count; i++) {
        if (part_matches(patterns[i], name)) {
            return patterns[i];
        }
    }
    return NULL;
}

/* ---- shapes ---- */

static bool has_splits(const muonium_tensor *tensor)
{
    return tensor->row_split_count > 0 || tensor->heads > 0;
}

/* Whether a layout was given for the tensor, rather than left to the options. */
static bool has_layout(const muonium_tensor *tensor)
{
    return tensor->layout != MUONIUM_LAYOUT_AUTO || has_splits(tensor);
}

/* Whether it is judged as (out, all the rest), which is what one weight is to a layer:
 * a convolution stays as fit when its positions are orthogonalised one by one. Other
 * layouts say what the matrices are, so those are judged. */
static bool judged_flattened(const muonium_tensor *tensor, const muonium_options *options)
{
    if (has_splits(tensor) || tensor->layout == MUONIUM_LAYOUT_EXPERTS ||
        tensor->layout == MUONIUM_LAYOUT_FAN) {
        return false;
    }
    return tensor->layout != MUONIUM_LAYOUT_AUTO || tensor->ndim != 3 ||
           options->layout_3d != MUONIUM_LAYOUT_EXPERTS;
}

static size_t count_above_one(const muonium_tensor *tensor)
{
    size_t count = 0;
    for (size_t d = 0; d < tensor->ndim; d++) {
        count += tensor->shape[d] > 1;
    }
    return count;
}

/* Whether an (out, in) matrix is fit for Muon; if not, the reason is written. */
static bool fits(const muonium_options *options, size_t out, size_t in, char reason[MU_REASON_SIZE])
{
    const size_t small = out < in ? out : in, large = out < in ? in : out;
    const double aspect = (double)large / (double)small;
    if (small < options->min_dim) {
        snprintf(reason, MU_REASON_SIZE, "min_dim_too_small:%zu", small);
        return false;
    }
    if (aspect > options->max_aspect) {
        /* Between its digits stands the point of the host's locale, whatever that is. */
        char text[48];
        snprintf(text, sizeof text, "%.1f", aspect);
        snprintf(reason, MU_REASON_SIZE, "extreme_aspect_ratio:%.*s.%c",
                 (int)strspn(text, "0123456789"), text, text[strlen(text) - 1]);
        return false;
    }
    return true;
}

static bool shape_fits(const muonium_tensor *tensor, const muonium_options *options,
                       const mu_matrices *matrices, char reason[MU_REASON_SIZE])
{
    if (options->only_2d && tensor->ndim > 2 && !has_layout(tensor)) {
        strcpy(reason, "not_2d");
        return false;
    }
    if (count_above_one(tensor) < 2) {
        strcpy(reason, "insufficient_dims");
        return false;
    }
    const size_t cols = matrices->cols.total;
    if (judged_flattened(tensor, options)) {
        if (tensor->shape[0] == 1 || tensor->shape[1] == 1) {
            strcpy(reason, "leading_unit_dims");
            return false;
        }
        return fits(options, tensor->shape[0], matrices->positions * cols, reason);
    }
    if (matrices->sizes == NULL) {
        return fits(options, matrices->rows.total / matrices->blocks, cols, reason);
    }
    for (size_t block = 0; block < matrices->blocks; block++) {
        if (!fits(options, matrices->sizes[block], cols, reason)) {
            return false;
        }
    }
    return true;
}

/* ---- the decision ---- */

muonium_status mu_route(const muonium_tensor *tensor, const char *name,
                        const muonium_options *options, const mu_matrices *matrices, bool *muon,
                        char reason[MU_REASON_SIZE])
{
    const muonium_route given =
        tensor->route != MUONIUM_ROUTE_AUTO ? tensor->route : options->route;
    if (matrices->batch.total == 0 || matrices->rows.total == 0 || matrices->cols.total == 0) {
        strcpy(reason, "empty");
        *muon = false;
        return MUONIUM_OK;
    }
    switch (given) {
    case MUONIUM_ROUTE_ADAM:
        strcpy(reason, "use_fallback_flag");
        *muon = false;
        return MUONIUM_OK;
    case MUONIUM_ROUTE_MUON:
        if (tensor->ndim < 2) {
            return mu_fail(MUONIUM_INVALID,
                           "route of %s is MUONIUM_ROUTE_MUON, but ndim is %zu: Muon takes at "
                           "least 2 dimensions; leave the choice to MUONIUM_ROUTE_AUTO",
                           name, tensor->ndim);
        }
        strcpy(reason, "use_muon_flag");
        *muon = true;
        return MUONIUM_OK;
    case MUONIUM_ROUTE_AUTO:
        break;
    default:
        return mu_fail(MUONIUM_INVALID, "route of %s is %d: use a value of muonium_route, 0 to %d",
                       name, (int)given, (int)MUONIUM_ROUTE_ADAM);
    }
    const char *pattern = matching_pattern(options, name);
    if (pattern != NULL) {
        snprintf(reason, MU_REASON_SIZE, "name_pattern:%s", pattern);
        *muon = false;
        return MUONIUM_OK;
    }
    *muon = shape_fits(tensor, options, matrices, reason);
    if (*muon) {
        strcpy(reason, "ok");
    }
    return MUONIUM_OK;
}

/* ---- the log ---- */

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
}
