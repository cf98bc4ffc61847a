/*
 * command_mpi_plan.c: muonium mpi-plan, how the work of an optimizer would be spread over
 * the ranks of an MPI job, and how long a step would take. The planner is that of
 * libmuonium_mpi; no rank is needed.
 *
 * The prediction: a rank sends the gradients of what others own, as f32, and receives
 * those that others have of what it owns; orthogonalises its share; then receives what
 * others own in the parameters' type. The slowest rank decides in each phase.
 */
#include <muonium_mpi_plan.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"
#include "model_shapes.h"
#include "optimizer_options.h"
#include "tensors.h"
#include "units.h"

enum { MODEL, RANKS, LINK, FLOPS, MEMORY, DTYPE, NO_SPLIT, JSON, OWN };

static const char *const dtype_names[] = {"f32", "bf16", NULL};

static option options[OWN + SETTINGS_MOST] = {
    [MODEL] = {.name = "model",
               .type = OPTION_CHOICE,
               .placeholder = "NAME",
               .fallback = "gpt2",
               .choice_name = model_shapes_name,
               .help = "built-in model to plan for, without a file"},
    [RANKS] = {.name = "ranks",
               .type = OPTION_TEXT,
               .placeholder = "P,...",
               .fallback = "1,2,4,8,16,64,256,1024",
               .help = "numbers of ranks, separated by commas"},
    [LINK] = {.name = "link",
              .type = OPTION_NUMBER,
              .placeholder = "GB/S",
              .fallback = "12.5",
              .help = "speed at which a rank sends and receives, in 10^9 bytes per "
                      "second each"},
    [FLOPS] = {.name = "gflops",
               .type = OPTION_NUMBER,
               .placeholder = "N",
               .fallback = "200",
               .help = "speed of a rank, in 10^9 operations per second"},
    [MEMORY] = {.name = "memory",
                .type = OPTION_NUMBER,
                .placeholder = "GB/S",
                .fallback = "10",
                .help = "memory bandwidth of a rank in 10^9 bytes per second"},
    [DTYPE] = {.name = "dtype",
               .type = OPTION_CHOICE,
               .placeholder = "TYPE",
               .fallback = "f32",
               .choices = dtype_names,
               .help = "type of the parameters of --model"},
    [NO_SPLIT] = {.name = "no-split",
                  .type = OPTION_FLAG,
                  .help = "never split a matrix by columns"},
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
};

static void prepare(void)
{
    settings_append(options + OWN);
}

/* What a step takes with a number of ranks, in seconds. */
typedef struct forecast {
    muonium_mpi_plan_info info;
    uint64_t most_state, most_sent, most_received; /* of any rank */
    double gradients, compute, triangles, updates, step;
    double all_reduce; /* the step if gradients were all-reduced and all work repeated */
} forecast;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* `alone`: seconds of all work on one rank. */
static muonium_status look_ahead(const muonium_optimizer *description, int ranks,
                                 const muonium_mpi_plan_options *how, double link, double alone,
                                 forecast *f)
{
    muonium_mpi_plan *plan = NULL;
    muonium_status status = muonium_mpi_plan_create(description, ranks, how, &plan);
    if (status != MUONIUM_OK) {
        return status;
    }
    *f = (forecast){.info = {0}};
    muonium_mpi_plan_describe(plan, &f->info);
    for (int r = 0; r < ranks; r++) {
        muonium_mpi_share load;
        muonium_mpi_plan_share(plan, r, &load);
        uint64_t owned = load.elements * sizeof(float) * (uint64_t)(ranks - 1);
        f->most_state = load.state_bytes > f->most_state ? load.state_bytes : f->most_state;
        f->most_sent = load.gradient_bytes > f->most_sent ? load.gradient_bytes : f->most_sent;
        f->most_received = owned > f->most_received ? owned : f->most_received;
        f->updates = larger(f->updates, (double)load.update_bytes / link);
    }
    muonium_mpi_plan_destroy(plan);
    f->gradients =
        (double)(f->most_sent > f->most_received ? f->most_sent : f->most_received) / link;
    f->compute = f->info.largest;
    f->triangles = (double)f->info.triangles * sizeof(float) / link;
    f->step = f->gradients + f->compute + f->triangles + f->updates;
    double share = (double)(ranks - 1) / ranks, bytes = (double)f->info.elements * sizeof(float);
    f->all_reduce = 2 * share * bytes / link + alone;
    return MUONIUM_OK;
}

static void print_forecast(const forecast *f)
{
    unit_text state = units_bytes(f->most_state), sent = units_bytes(f->most_sent);
    printf("%6d %7zu %5zu %9.4f %11s %11s %10.4f %10.4f %10.4f %10.4f %10.4f\n", f->info.ranks,
           f->info.pieces, f->info.split, f->info.largest / f->info.mean, state.text, sent.text,
           f->gradients, f->compute + f->triangles, f->updates, f->step, f->all_reduce);
}

static void write_forecast(json *writer, const forecast *f)
{
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->info.hash);
    json_object(writer, NULL);
    json_integer(writer, "ranks", f->info.ranks);
    json_integer(writer, "pieces", (long long)f->info.pieces);
    json_integer(writer, "split", (long long)f->info.split);
    json_integer(writer, "elements", (long long)f->info.elements);
    json_number(writer, "balance", f->info.largest / f->info.mean);
    json_integer(writer, "state_bytes", (long long)f->most_state);
    json_integer(writer, "gradient_bytes_sent", (long long)f->most_sent);
    json_integer(writer, "gradient_bytes_received", (long long)f->most_received);
    json_integer(writer, "triangle_elements", (long long)f->info.triangles);
    json_number(writer, "gradients_seconds", f->gradients);
    json_number(writer, "compute_seconds", f->compute);
    json_number(writer, "triangles_seconds", f->triangles);
    json_number(writer, "updates_seconds", f->updates);
    json_number(writer, "step_seconds", f->step);
    json_number(writer, "all_reduce_step_seconds", f->all_reduce);
    json_string(writer, "hash", hash);
    json_object_end(writer);
}

/* The next number of a list; 0 at its end, -1 if it is none. */
static int next_ranks(const char **list)
{
    enum { MOST = 1 << 20 };
    char *end;
    if (**list == '\0') {
        return 0;
    }
    long value = strtol(*list, &end, 10);
    if (end == *list || value < 1 || value > MOST || (*end != ',' && *end != '\0')) {
        return -1;
    }
    *list = *end == ',' ? end + 1 : end;
    return (int)value;
}

static bool are_ranks(const char *list)
{
    int ranks;
    do {
        ranks = next_ranks(&list);
    } while (ranks > 0);
    return ranks == 0;
}

static int plan_all(const command *self, const arguments *given,
                    const muonium_optimizer *description)
{
    const option_value *value = given->value;
    muonium_mpi_plan_options how;
    json writer = {.out = stdout};
    bool as_json = value[JSON].given;
    muonium_mpi_plan_options_init(&how);
    how.flops = value[FLOPS].number * 1e9;
    how.bandwidth = value[MEMORY].number * 1e9;
    how.split = !value[NO_SPLIT].given;
    if (!(value[LINK].number > 0)) {
        return message_usage(self->name, "--link must be above 0");
    }
    if (!are_ranks(value[RANKS].text)) {
        return message_usage(self->name, "--ranks '%s': use numbers from 1 on, separated by commas",
                             value[RANKS].text);
    }
    forecast alone;
    muonium_status status = look_ahead(description, 1, &how, 1, 0, &alone);
    if (status != MUONIUM_OK) {
        return message_status(self->name, status);
    }
    if (as_json) {
        json_object(&writer, NULL);
        json_string(&writer, "model", given->operands > 0 ? given->operand[0] : value[MODEL].text);
        json_array(&writer, "plans");
    } else {
        printf("%6s %7s %5s %9s %11s %11s %10s %10s %10s %10s %10s\n", "ranks", "pieces", "split",
               "max/mean", "state", "gradients", "reduce s", "compute s", "return s", "step s",
               "allreduce");
    }
    const char *list = value[RANKS].text;
    for (int ranks; status == MUONIUM_OK && (ranks = next_ranks(&list)) != 0;) {
        forecast f;
        status = look_ahead(description, ranks, &how, value[LINK].number * 1e9, alone.compute, &f);
        if (status != MUONIUM_OK) {
            break;
        }
        if (as_json) {
            write_forecast(&writer, &f);
        } else {
            print_forecast(&f);
        }
    }
    if (as_json) {
        json_array_end(&writer);
        json_object_end(&writer);
    }
    return status == MUONIUM_OK ? EXIT_OK : message_status(self->name, status);
}

/* All parameters of a model file. */
static int add_file(const command *self, const char *path, muonium_optimizer *description)
{
    muonium_reader *reader = NULL;
    muonium_status status = muonium_reader_open(path, &reader);
    if (status == MUONIUM_OK) {
        status = tensors_add(reader, description);
    }
    muonium_reader_close(reader);
    if (status != MUONIUM_OK) {
        return message_failed(self->name, "%s", muonium_last_error());
    }
    return muonium_parameter_count(description) > 0
               ? EXIT_OK
               : message_failed(self->name, "'%s' has no tensor that can be a parameter", path);
}

static int run(const command *self, const arguments *given)
{
    const option_value *value = given->value;
    muonium_options chosen;
    muonium_optimizer *description = NULL;
    const bool file = given->operands > 0;
    if (file && (value[MODEL].given || value[DTYPE].given)) {
        return message_usage(self->name, "--%s has no effect with a model file: leave one out",
                             value[MODEL].given ? "model" : "dtype");
    }
    muonium_status status = optimizer_options(options, value, &chosen);
    if (status == MUONIUM_OK && !(chosen.lr >= 0) && !setting_value(options, value, "lr")->given) {
        chosen.lr = 0; /* plans do not depend on it, so there is no need to ask */
    }
    if (status == MUONIUM_OK) {
        status = muonium_create_description(&chosen, &description);
    }
    if (status == MUONIUM_OK && !file) {
        muonium_dtype dtype = value[DTYPE].choice == 1 ? MUONIUM_BF16 : MUONIUM_F32;
        status = model_shapes_add(value[MODEL].choice, dtype, description);
    }
    int code = status == MUONIUM_OK ? EXIT_OK : message_status(self->name, status);
    code = code == EXIT_OK && file ? add_file(self, given->operand[0], description) : code;
    code = code == EXIT_OK ? plan_all(self, given, description) : code;
    muonium_destroy(description);
    return code;
}

const command command_mpi_plan = {
    .name = "mpi-plan",
    .summary = "simulate a model's optimizer step on many MPI ranks",
    .description =
        "Shows how libmuonium_mpi would divide the optimizer step of a model among MPI ranks. The "
        "model is a safetensors file, of which only the header is read, or one of --model. The "
        "plan is that of the library. The times follow from the given speeds.\n\n"
        "The columns: pieces of work; matrices split by columns; load of the busiest rank over the "
        "mean; the most bytes of state that a rank keeps; the most bytes of gradients that a rank "
        "sends. Then the seconds of a step without overlap: reducing gradients to their owners, "
        "computing there, returning updates, and their sum. The last column is the time of a step "
        "that all-reduces the gradients and repeats all work on every rank.",
    .example = "muonium mpi-plan --model llama-7b --link 12.5 --gflops 1500\n"
               "muonium mpi-plan --model moe-64 --ranks 64,1024 --json\n"
               "muonium mpi-plan model.safetensors --split --ranks 8,64",
    .operands = "[MODEL.safetensors]",
    .most_operands = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .prepare = prepare,
    .run = run,
};
