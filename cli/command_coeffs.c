/*
 * command_coeffs.c: muonium coeffs, the tables of the iteration: made, listed,
 * drawn.
 */
#include <stdlib.h>
#include <string.h>

#include "coeffs_plot.h"
#include "command.h"
#include "file.h"
#include "json.h"
#include "optimizer_options.h"
#include "units.h"
#include "polynomial.h"

enum { STEPS, LOWER, SAFETY, CUSHION, CUBIC, PRESET, LIST, PLOT, JSON };

static option options[] = {
    [CUBIC] = {.name = "cubic",
               .type = OPTION_FLAG,
               .help = "generate optimal cubics instead of quintics: c is 0 and there "
                       "is no --cushion"},
    [PRESET] = {.name = "preset",
                .type = OPTION_CHOICE,
                .placeholder = "NAME",
                .choice_name = muonium_preset_name,
                .help = "print a published table instead of a generated one"},
    [LIST] = {.name = "list", .type = OPTION_FLAG, .help = "list the presets with their rows"},
    [PLOT] = {.name = "plot",
              .type = OPTION_FILE,
              .placeholder = "FILE.svg",
              .help = "also plot the polynomials to this file"},
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON instead of a table"},
};

static void prepare(void)
{
    options[STEPS] = setting_named("steps");
    options[LOWER] = setting_named("lower");
    options[SAFETY] = setting_named("safety");
    options[CUSHION] = setting_named("cushion");
}

/* A table and all there is to say about it. */
typedef struct result {
    char title[64];
    const char *preset; /* NULL: generated */
    bool cubic;
    int steps;
    double lower, safety, cushion;
    double table[MUONIUM_MAX_STEPS][3];
    interval bands[MUONIUM_MAX_STEPS]; /* of [lower, 1] after each step */
} result;

static const option_clash clashes[] = {
    {PRESET, SAFETY}, {PRESET, CUSHION}, {PRESET, CUBIC}, {CUBIC, CUSHION},
    {LIST, STEPS},    {LIST, LOWER},     {LIST, SAFETY},  {LIST, CUSHION},
    {LIST, CUBIC},    {LIST, PRESET},    {LIST, PLOT},
};

static void find_bands(result *r)
{
    interval band = {r->lower, 1};
    for (int i = 0; i < r->steps; i++) {
        band = polynomial_image(r->table[i], band);
        r->bands[i] = band;
    }
}

static int make_table(const command *self, const arguments *given, result *r)
{
    const option_value *value = given->value;
    *r = (result){.preset = value[PRESET].text,
                  .cubic = value[CUBIC].given,
                  .steps = value[STEPS].integer,
                  .lower = value[LOWER].number,
                  .safety = value[SAFETY].number,
                  .cushion = value[CUSHION].number};
    muonium_status status;
    if (r->preset != NULL) {
        /* The generator is not there to refuse a bad one. */
        if (!(r->lower >= 0 && r->lower <= 1)) {
            return message_usage(self->name, "--lower is %g: it must be from 0 to 1", r->lower);
        }
        snprintf(r->title, sizeof r->title, "Preset %s", r->preset);
        status = muonium_coefficients(r->preset, r->steps, r->table);
    } else if (r->cubic) {
        snprintf(r->title, sizeof r->title, "Optimal cubics");
        status = muonium_polar_cubic(r->steps, r->lower, r->safety, r->table);
    } else {
        snprintf(r->title, sizeof r->title, "Polar Express");
        status = muonium_polar_express(r->steps, r->lower, r->safety, r->cushion, r->table);
    }
    if (status != MUONIUM_OK) {
        return message_status(self->name, status);
    }
    find_bands(r);
    return EXIT_OK;
}

/* "8 iterations, lower 0.001, safety 0.02, cushion 0.02", as far as it applies. */
static void describe(const result *r, char *text, size_t size)
{
    int used = snprintf(text, size, "%d iteration%s", r->steps, r->steps == 1 ? "" : "s");
    if (r->preset == NULL) {
        used += snprintf(text + used, size - (size_t)used, ", lower %g, safety %g", r->lower,
                         r->safety);
        if (!r->cubic) {
            snprintf(text + used, size - (size_t)used, ", cushion %g", r->cushion);
        }
    }
}

static void print_row(const double row[3])
{
    for (int k = 0; k < 3; k++) {
        printf("  %22s", units_shortest(row[k]).text);
    }
}

static void print_table(const result *r)
{
    char subtitle[128];
    describe(r, subtitle, sizeof subtitle);
    printf("%s: %s\n", r->title, subtitle);
    printf(
        "Each iteration maps a singular value s to a s + b s^3 + c s^5. The last two columns\n"
        "are the range of the singular values after it, for a matrix with values from %g to 1.\n\n",
        r->lower);
    printf("%9s  %22s  %22s  %22s  %12s  %12s\n", "iteration", "a", "b", "c", "lowest", "highest");
    for (int i = 0; i < r->steps; i++) {
        printf("%9d", i + 1);
        print_row(r->table[i]);
        printf("  %12.10f  %12.10f\n", r->bands[i].low, r->bands[i].high);
    }
}

static void write_rows(json *writer, const char *key, const double (*table)[3], int rows)
{
    json_array(writer, key);
    for (int i = 0; i < rows; i++) {
        json_numbers(writer, NULL, table[i], 3);
    }
    json_array_end(writer);
}

static void write_band(json *writer, const char *key, interval band)
{
    json_numbers(writer, key, (const double[]){band.low, band.high}, 2);
}

static void print_json(const result *r)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    write_rows(&writer, "coefficients", (const double(*)[3])r->table, r->steps);
    json_integer(&writer, "steps", r->steps);
    json_string(&writer, "preset", r->preset);
    json_number(&writer, "lower", r->lower);
    if (r->preset == NULL) {
        json_string(&writer, "generator", r->cubic ? "polar_cubic" : "polar_express");
        json_number(&writer, "safety", r->safety);
        if (!r->cubic) {
            json_number(&writer, "cushion", r->cushion);
        }
    }
    write_band(&writer, "band", r->bands[r->steps - 1]);
    json_array(&writer, "bands");
    for (int i = 0; i < r->steps; i++) {
        write_band(&writer, NULL, r->bands[i]);
    }
    json_array_end(&writer);
    json_object_end(&writer);
}

static int write_plot(const command *self, const result *r, const char *path)
{
    char subtitle[128];
    describe(r, subtitle, sizeof subtitle);
    coeffs_plot plot = {r->title, subtitle, (const double(*)[3])r->table,
                        r->steps, r->lower, r->bands};
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory == NULL) {
        return message_failed(self->name, "out of memory");
    }
    coeffs_plot_write(memory, &plot);
    bool complete = !ferror(memory);
    complete = fclose(memory) == 0 && complete;
    problem what;
    int code = EXIT_OK;
    if (!complete) {
        code = message_failed(self->name, "out of memory");
    } else if (!file_replace(path, &(file_piece){text, size}, 1, &what)) {
        code = message_failed(self->name, "%s", what.text);
    }
    free(text);
    return code;
}

static int list_presets(const command *self, bool as_json)
{
    json writer = {.out = stdout};
    if (as_json) {
        json_object(&writer, NULL);
        json_array(&writer, "presets");
    }
    const char *name;
    for (int p = 0; (name = muonium_preset_name(p)) != NULL; p++) {
        double table[MUONIUM_MAX_STEPS][3];
        int rows = muonium_preset_rows(p);
        muonium_status status = muonium_coefficients(name, rows, table);
        if (status != MUONIUM_OK) {
            return message_status(self->name, status);
        }
        if (as_json) {
            json_object(&writer, NULL);
            json_string(&writer, "name", name);
            json_integer(&writer, "rows", rows);
            write_rows(&writer, "coefficients", (const double(*)[3])table, rows);
            json_object_end(&writer);
            continue;
        }
        printf("%s%s, %d row%s\n", p > 0 ? "\n" : "", name, rows, rows == 1 ? "" : "s");
        for (int i = 0; i < rows; i++) {
            print_row(table[i]);
            putchar('\n');
        }
    }
    if (as_json) {
        json_array_end(&writer);
        json_object_end(&writer);
    }
    return EXIT_OK;
}

static int run(const command *self, const arguments *given)
{
    bool as_json = given->value[JSON].given;
    if (!options_agree(self->name, options, given->value, clashes,
                       sizeof clashes / sizeof clashes[0])) {
        return EXIT_USAGE;
    }
    if (given->value[LIST].given) {
        return list_presets(self, as_json);
    }
    result r;
    int code = make_table(self, given, &r);
    if (code == EXIT_OK && given->value[PLOT].given) {
        code = write_plot(self, &r, given->value[PLOT].text);
    }
    if (code != EXIT_OK) {
        return code;
    }
    if (as_json) {
        print_json(&r);
    } else {
        print_table(&r);
    }
    return EXIT_OK;
}

const command command_coeffs = {
    .name = "coeffs",
    .summary = "make, list and draw the coefficients of the iteration",
    .description =
        "One iteration maps every singular value s of a matrix to a s + b s^3 + c s^5. This "
        "command prints the coefficients a, b, c of each iteration, and the range of the singular "
        "values after it.\n\n"
        "By default these are the Polar Express coefficients: they bring the singular values "
        "between LOWER and 1 as close to 1 as possible in the given number of iterations. --preset "
        "prints a published table instead. If the table has fewer rows than --steps, its last row "
        "repeats.",
    .example = "muonium coeffs --steps 8 --lower 1e-3 --plot coefficients.svg\n"
               "muonium coeffs --preset original --json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .prepare = prepare,
    .run = run,
};
