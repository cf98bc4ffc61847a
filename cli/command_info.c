/*
 * command_info.c: muonium info, what this build is and what it chose here.
 */
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "command.h"
#include "environment.h"
#include "json.h"
#include "text.h"

enum { JSON };

static const option options[] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
};

/* The precision that `auto` gives a large matrix here. */
static const char *auto_precision(void)
{
    enum { LARGE = 2048 };
    muonium_plan *plan = NULL;
    muonium_plan_info info = {.precision = MUONIUM_AUTO};
    if (muonium_plan_create((muonium_shape){1, LARGE, LARGE}, NULL, &plan) == MUONIUM_OK) {
        muonium_plan_describe(plan, &info);
        muonium_plan_destroy(plan);
    }
    return muonium_enum_name("muonium_dtype", (int)info.precision);
}

static void print_text(const muonium_cpu_info *cpu)
{
    printf("muonium      %s\n", muonium_version());
    if (strcmp(muonium_version(), MUONIUM_VERSION_STRING) != 0) {
        printf("             (this command was compiled for %s)\n", MUONIUM_VERSION_STRING);
    }
    if (cpu != NULL) {
        printf("kernels      %s (%s)\n", cpu->isa, cpu->kernel);
        text_line(stdout, "because      %s", cpu->reason);
        text_line(stdout, "bf16         %s (%s)", cpu->bf16_kernel, cpu->bf16_reason);
        printf("precision    auto is %s for large matrices\n", auto_precision());
        printf("cpu has      %s\n", *cpu->features != 0 ? cpu->features : "nothing of use");
    }
    printf("threads      %d\n", muonium_threads());
    printf("presets     ");
    const char *name;
    for (int i = 0; (name = muonium_preset_name(i)) != NULL; i++) {
        printf(" %s", name);
    }
    printf("\ncompiler     %s\n", build_compiler);
    if (build_flags != NULL) {
        printf("flags        %s\n", build_flags);
    }
    printf("environment\n");
    for (size_t i = 0; i < ENVIRONMENT_VARIABLES; i++) {
        const environment_variable *variable = &environment_variables[i];
        const char *value = getenv(variable->name);
        text_line(stdout, "  %-20s %-8s %s", variable->name, value != NULL ? value : "not set",
                  variable->meaning);
    }
}

/* A string of words as an array. */
static void write_words(json *writer, const char *key, const char *words)
{
    json_array(writer, key);
    while (*words != 0) {
        size_t length = strcspn(words, " ");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        json_string(writer, NULL, word);
        words += length + strspn(words + length, " ");
    }
    json_array_end(writer);
}

static void print_json(const muonium_cpu_info *cpu)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "version", muonium_version());
    json_string(&writer, "header_version", MUONIUM_VERSION_STRING);
    if (cpu != NULL) {
        json_object(&writer, "cpu");
        json_string(&writer, "isa", cpu->isa);
        json_string(&writer, "kernel", cpu->kernel);
        json_string(&writer, "reason", cpu->reason);
        json_string(&writer, "bf16_kernel", cpu->bf16_kernel);
        json_string(&writer, "bf16_reason", cpu->bf16_reason);
        json_string(&writer, "auto_precision", auto_precision());
        write_words(&writer, "features", cpu->features);
        json_object_end(&writer);
    } else {
        json_string(&writer, "cpu", NULL);
    }
    json_integer(&writer, "threads", muonium_threads());
    json_array(&writer, "presets");
    const char *name;
    for (int i = 0; (name = muonium_preset_name(i)) != NULL; i++) {
        json_string(&writer, NULL, name);
    }
    json_array_end(&writer);
    json_object(&writer, "build");
    json_string(&writer, "compiler", build_compiler);
    json_string(&writer, "flags", build_flags);
    json_object_end(&writer);
    json_object(&writer, "environment");
    for (size_t i = 0; i < ENVIRONMENT_VARIABLES; i++) {
        const char *variable = environment_variables[i].name;
        json_string(&writer, variable, getenv(variable));
    }
    json_object_end(&writer);
    json_object_end(&writer);
}

static int run(const command *self, const arguments *given)
{
    muonium_cpu_info cpu;
    muonium_status status = muonium_cpu(&cpu);
    /* Whoever asks because something is wrong gets the rest all the same. */
    const muonium_cpu_info *known = status == MUONIUM_OK ? &cpu : NULL;
    if (given->value[JSON].given) {
        print_json(known);
    } else {
        print_text(known);
    }
    return status == MUONIUM_OK ? EXIT_OK : message_status(self->name, status);
}

const command command_info = {
    .name = "info",
    .summary = "show the version, the kernels in use and the reason",
    .description =
        "Prints the version, the kernels in use on this CPU and why, the number of threads, the "
        "presets of coefficients, the compiler and its flags, and the environment variables that "
        "Muonium reads.",
    .example = "muonium info\nMUONIUM_CPU=portable muonium info --json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
