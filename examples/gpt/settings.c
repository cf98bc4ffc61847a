/*
 * settings.c: sizes, learning rates, and what can be known to fail before any work.
 */
#include "settings.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options.h"

enum {
    HEAD_SIZE = 32,
    TOKENS = 4096,     /* in a batch, about */
    CONTEXT = 64,      /* where none is given */
    TUNED_WIDTH = 128, /* of the size for which the learning rates were swept */
    LAYERS_MOST = 1000,
    WIDTH_MOST = 1 << 20,
    CONTEXT_MOST = 1 << 16
};

/* The best of the sweep in sweep.csv. */
static const gpt_entrant tuned[] = {
    {GPT_ADAMW, 0.003, 0.8},
    {"muonium", 0.03, 0.8},
    {"dion2", 0.05, 0.7},
    {"nanochat", 0.05, 0.8},
};

static const struct size {
    const char *name;
    size_t layers, width, context, sequences;
} sizes[] = {
    {"tiny", 2, 32, 32, 4},
    {"small", 4, 128, 64, TOKENS / 64},
    {"medium", 6, 256, 128, TOKENS / 128},
    {"large", 8, 512, 256, TOKENS / 256},
};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

const char *gpt_size_name(int index)
{
    return index >= 0 && index < SIZES ? sizes[index].name : NULL;
}

/* ---- size ---- */

/* Up to three whole numbers with an x between them; how many, or 0. */
static int parse_numbers(const char *text, long long numbers[3])
{
    char copy[64];
    if (strlen(text) >= sizeof copy) {
        return 0;
    }
    strcpy(copy, text);
    int count = 0;
    for (char *part = copy; part != NULL; count++) {
        char *end = strchr(part, 'x');
        if (end != NULL) {
            *end++ = 0;
        }
        if (count == 3 || !parse_integer(part, &numbers[count])) {
            return 0;
        }
        part = end;
    }
    return count;
}

static bool is_within(problem *what, const char *name, long long value, long long most)
{
    return (value >= 1 && value <= most) ||
           problem_set(what, "%s is %lld: use 1 to %lld", name, value, most);
}

static bool parse_custom(const char *text, struct size *size, problem *what)
{
    long long numbers[3];
    const int count = parse_numbers(text, numbers);
    if (count < 2) {
        return problem_set(
            what,
            "'%s' is not a size: use tiny, small, medium, large, or layers and width "
            "as 6x384, or with the context as 6x384x256",
            text);
    }
    const long long context = count == 3 ? numbers[2] : CONTEXT;
    if (!is_within(what, "the number of layers", numbers[0], LAYERS_MOST) ||
        !is_within(what, "the width", numbers[1], WIDTH_MOST) ||
        !is_within(what, "the context", context, CONTEXT_MOST)) {
        return false;
    }
    if (numbers[1] % HEAD_SIZE != 0) {
        return problem_set(what, "the width is %lld: use a multiple of %d, the size of a head",
                           numbers[1], HEAD_SIZE);
    }
    const size_t sequences = context < TOKENS ? TOKENS / (size_t)context : 1;
    *size = (struct size){NULL, (size_t)numbers[0], (size_t)numbers[1], (size_t)context, sequences};
    return true;
}

bool gpt_parse_size(const char *text, gpt_settings *settings, problem *what)
{
    struct size size = {NULL, 0, 0, 0, 0};
    for (int i = 0; i < SIZES; i++) {
        if (strcmp(text, sizes[i].name) == 0) {
            size = sizes[i];
        }
    }
    if (size.name == NULL && !parse_custom(text, &size, what)) {
        return false;
    }
    settings->shape = (gpt_shape){.layers = size.layers,
                                  .width = size.width,
                                  .heads = size.width / HEAD_SIZE,
                                  .context = size.context};
    settings->sequences = size.sequences;
    return true;
}

/* ---- runs ---- */

/* Copy what stands before the next comma; what follows the comma, or NULL at the end. */
static const char *next_part(const char *text, char *part, size_t size)
{
    const size_t length = strcspn(text, ",");
    snprintf(part, size, "%.*s", (int)(length < size ? length : size), text);
    return text[length] == ',' ? text + length + 1 : NULL;
}

static bool is_optimizer(const char *name, problem *what)
{
    char known[512] = GPT_ADAMW;
    bool found = strcmp(name, GPT_ADAMW) == 0;
    for (int i = 0; !found && muonium_recipe_name(i) != NULL; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", muonium_recipe_name(i));
        found = strcmp(name, muonium_recipe_name(i)) == 0;
    }
    return found || problem_set(what, "'%s' is not an optimizer: use %s", name, known);
}

/* Learning rate and momentum of a recipe that was not swept: its own. */
static bool fill_from_recipe(gpt_entrant *entrant, problem *what)
{
    muonium_options options;
    if (muonium_options_init(&options, entrant->recipe) != MUONIUM_OK) {
        return problem_set(what, "%s", muonium_last_error());
    }
    entrant->lr = options.lr;
    entrant->momentum = options.fraction < 1 ? options.ef_decay : options.momentum;
    return true;
}

static bool fill(gpt_entrant *entrant, size_t width, problem *what)
{
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++) {
        if (strcmp(tuned[i].recipe, entrant->recipe) == 0) {
            *entrant = tuned[i];
            /* Wider models take smaller steps. */
            entrant->lr *= fmin(1, (double)TUNED_WIDTH / (double)width);
            return true;
        }
    }
    return fill_from_recipe(entrant, what);
}

bool gpt_parse_runs(const char *text, gpt_settings *settings, problem *what)
{
    settings->runs = 0;
    for (const char *next = text; next != NULL; settings->runs++) {
        char name[GPT_RECIPE_SIZE];
        next = next_part(next, name, sizeof name);
        if (!is_optimizer(name, what)) {
            return false;
        }
        for (size_t i = 0; i < settings->runs; i++) {
            if (strcmp(settings->entrants[i].recipe, name) == 0) {
                return problem_set(what, "'%s' has %s twice: name each optimizer once", text, name);
            }
        }
        if (settings->runs == GPT_RUNS_MOST) {
            return problem_set(what, "'%s' has more than %d optimizers", text, GPT_RUNS_MOST);
        }
        gpt_entrant *entrant = &settings->entrants[settings->runs];
        memcpy(entrant->recipe, name, sizeof name);
        if (!fill(entrant, settings->shape.width, what)) {
            return false;
        }
    }
    return true;
}

/* Set a field, at `offset`, of every entrant to a number above 0 and at most `most`. `name` is
 * what messages call the number. */
static bool parse_each(const char *text, const char *name, double most, size_t offset,
                       gpt_settings *settings, problem *what)
{
    const char *next = text;
    for (size_t i = 0; i < settings->runs; i++) {
        gpt_entrant *entrant = &settings->entrants[i];
        if (next == NULL) {
            return problem_set(what, "'%s' has no %s for %s: give %zu numbers with commas between",
                               text, name, gpt_label(entrant), settings->runs);
        }
        char number[64];
        double value;
        next = next_part(next, number, sizeof number);
        if (strlen(number) + 1 >= sizeof number || !parse_number(number, &value) ||
            !(value > 0 && value <= most)) {
            return problem_set(what, "'%s' is not a %s: use a number above 0, at most %g", number,
                               name, most);
        }
        *(double *)((char *)entrant + offset) = value;
    }
    return next == NULL ||
           problem_set(what, "'%s' has more numbers than there are optimizers", text);
}

bool gpt_parse_rates(const char *text, gpt_settings *settings, problem *what)
{
    return parse_each(text, "learning rate", 1000, offsetof(gpt_entrant, lr), settings, what);
}

bool gpt_parse_momenta(const char *text, gpt_settings *settings, problem *what)
{
    return parse_each(text, "momentum", 0.9999, offsetof(gpt_entrant, momentum), settings, what);
}

/* ---- memory ---- */

/* The first number that stands in a file in this form; infinity if there is none. */
static double number_in(const char *path, const char *form)
{
    double number = INFINITY;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        char line[128];
        while (fgets(line, sizeof line, file) != NULL && sscanf(line, form, &number) != 1) {
        }
        fclose(file);
    }
    return number;
}

/* What the system gives without swapping; all it has, where that is not told. A container
 * and the shell (ulimit -v) may allow less. */
static double available_bytes(void)
{
    const double free_bytes = 1024 * number_in("/proc/meminfo", "MemAvailable: %lf");
    const double installed = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double available = fmin(free_bytes, installed);
    const double allowed = number_in("/sys/fs/cgroup/memory.max", "%lf");
    const double used = number_in("/sys/fs/cgroup/memory.current", "%lf");
    if (isfinite(allowed) && isfinite(used)) {
        available = fmin(available, fmax(0, allowed - used));
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        available = fmin(available, (double)limit.rlim_cur);
    }
    return available;
}

static const char *format_bytes(char text[32], double bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;
    for (bytes /= 1000; bytes >= 1000 && unit + 1 < sizeof units / sizeof units[0]; unit++) {
        bytes /= 1000;
    }
    snprintf(text, 32, "%.*f %s", bytes < 10 ? 1 : 0, bytes, units[unit]);
    return text;
}

bool gpt_check_memory(const gpt_settings *settings, problem *what)
{
    const double needed = gpt_trainer_bytes(settings), available = available_bytes();
    if (needed <= available) {
        return true;
    }
    char needed_text[32], available_text[32];
    return problem_set(what,
                       "a model of %zu layers, width %zu and context %zu has %.3g weights and "
                       "takes about %s of memory, and %s are available: choose a smaller size",
                       settings->shape.layers, settings->shape.width, settings->shape.context,
                       gpt_weight_count(settings->shape), format_bytes(needed_text, needed),
                       format_bytes(available_text, available));
}

/* ---- output ---- */

/* Files are replaced by way of a new one beside them, so that is what is tried. */
bool gpt_check_writable(const char *path, problem *what)
{
    char target[PATH_MAX], trial[PATH_MAX + 16];
    struct stat status;
    if (realpath(path, target) == NULL) { /* a new file, or a link to one */
        if (errno != ENOENT || strlen(path) >= sizeof target) {
            return problem_set(what, "cannot write '%s': %s", path, strerror(errno));
        }
        strcpy(target, path);
    } else if (stat(target, &status) == 0 && !S_ISREG(status.st_mode)) {
        return problem_set(what, "cannot write '%s': it is %s, not a regular file", path,
                           S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
    }
    snprintf(trial, sizeof trial, "%s.XXXXXX", target);
    const int file = mkstemp(trial);
    if (file < 0) {
        return problem_set(what, "cannot write '%s': %s", path, strerror(errno));
    }
    close(file);
    unlink(trial);
    return true;
}
