/*
 * fuzz_options.c: a libFuzzer target for command lines: the lines of the input are the
 * arguments of `muonium step` that configure an optimizer, and a list of shapes as the
 * benchmark takes it.
 *
 * Whatever they are, they are refused with a message, or what they configure is refused
 * by the library with one, or it is an optimizer that steps, and whose options are in its
 * checkpoint as they were given.
 */
#include "message.h"
#include "optimizer_options.h"
#include "shapes.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "fuzz.h"

/* ---- messages, in place of those of the command, which go to the terminal ---- */

static char said[4096];

static int say(const char *format, va_list arguments, int code)
{
    vsnprintf(said, sizeof said, format, arguments);
    return code;
}

int message_failed(const char *command, const char *format, ...)
{
    va_list arguments;
    (void)command;
    va_start(arguments, format);
    int code = say(format, arguments, EXIT_FAILED);
    va_end(arguments);
    return code;
}

int message_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    (void)command;
    va_start(arguments, format);
    int code = say(format, arguments, EXIT_USAGE);
    va_end(arguments);
    return code;
}

/* ---- the command line ---- */

enum { FILE_NAME, TEXT, JSON, OWN };

static option options[OWN + SETTINGS_MOST] = {
    [FILE_NAME] = {.name = "params", .letter = 'p', .type = OPTION_FILE, .placeholder = "FILE"},
    [TEXT] = {.name = "shapes", .type = OPTION_TEXT, .placeholder = "LIST"},
    [JSON] = {.name = "json", .type = OPTION_FLAG},
};

static void check_values(const option_value *value)
{
    for (size_t i = 0; options[i].name != NULL; i++) {
        const option_value *v = &value[i];
        if (!v->given) {
            continue;
        }
        switch (options[i].type) {
        case OPTION_FLAG:
            break;
        case OPTION_INTEGER:
            demand(v->integer >= options[i].least && v->integer <= options[i].most);
            break;
        case OPTION_NUMBER:
            demand(isfinite(v->number));
            break;
        case OPTION_CHOICE:
            demand(v->choice >= 0 && strcmp(option_choice(&options[i], v->choice), v->text) == 0);
            break;
        case OPTION_LIST:
            demand(v->listed >= 1 && v->listed <= OPTION_LIST_MOST);
            for (size_t k = 0; k < v->listed; k++) {
                demand(v->list[k] != NULL && v->list[k][0] != '\0');
            }
            break;
        case OPTION_TEXT:
        case OPTION_FILE:
            demand(v->text != NULL && v->text[0] != '\0');
            break;
        }
    }
}

/* ---- what they configure ---- */

static void use(const muonium_options *chosen)
{
    static float data[16], grad[16];
    muonium_optimizer *optimizer;
    muonium_tensor tensor = {.name = "w", .ndim = 2, .shape = {4, 4}, .data = data, .grad = grad};
    muonium_status status = muonium_create(chosen, &optimizer);
    if (status != MUONIUM_OK) {
        demand(status == MUONIUM_INVALID && muonium_last_error()[0] != '\0');
        return;
    }
    for (size_t i = 0; i < 16; i++) {
        data[i] = (float)(i % 5);
        grad[i] = (float)(i % 7) - 3;
    }
    demand(muonium_add(optimizer, &tensor, NULL) == MUONIUM_OK);
    status = muonium_step(optimizer);
    demand(status == MUONIUM_OK || muonium_last_error()[0] != '\0');
    buffer saved = {0};
    muonium_reader *reader;
    demand(muonium_save_to(optimizer, append, &saved) == MUONIUM_OK);
    demand(muonium_reader_open_memory(saved.bytes, saved.count, &reader) == MUONIUM_OK);
    const char *group = muonium_reader_metadata(reader, "muonium.group.0");
    const char *lr = group != NULL ? strstr(group, " lr=") : NULL;
    demand(lr != NULL && !(strtod(lr + 4, NULL) != chosen->lr));
    muonium_reader_close(reader);
    free(saved.bytes);
    muonium_destroy(optimizer);
}

static void check_shapes(const char *text)
{
    muonium_shape shapes[SHAPES_MOST];
    size_t count = 0;
    if (shapes_parse(text, shapes, &count)) {
        demand(count > 0 && count <= SHAPES_MOST);
        for (size_t i = 0; i < count; i++) {
            demand(shapes[i].batch > 0 && shapes[i].rows > 0 && shapes[i].cols > 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { ARGUMENTS = 40 };
    char *argv[ARGUMENTS], *operands[ARGUMENTS];
    int argc = 0;
    input in = {data, size};
    for (; in.left > 0 && argc < ARGUMENTS; argc++) {
        argv[argc] = operands[argc] = take_string(&in, '\n');
    }
    option_value value[OWN + SETTINGS_MOST];
    arguments given;
    said[0] = '\0';
    if (options[OWN].name == NULL) {
        settings_append(options + OWN);
    }
    size_t count = options_count(options, OWN + SETTINGS_MOST);
    if (!options_parse("step", options, count, argc, operands, value, &given)) {
        demand(said[0] != '\0');
    } else if (!given.help) {
        muonium_options chosen;
        demand(given.operands <= (size_t)argc);
        check_values(value);
        if (optimizer_options(options, value, &chosen) == MUONIUM_OK) {
            chosen.plan.steps = chosen.plan.steps < FUZZ_STEPS ? chosen.plan.steps : FUZZ_STEPS;
            use(&chosen);
        } else {
            demand(muonium_last_error()[0] != '\0');
        }
        if (value[TEXT].given) {
            check_shapes(value[TEXT].text);
        }
    }
    for (int i = 0; i < argc; i++) {
        free(argv[i]);
    }
    return 0;
}
