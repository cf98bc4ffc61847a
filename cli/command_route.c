/*
 * command_route.c: muonium route, what an optimizer would do with each tensor of a model,
 * and what that costs.
 *
 * A description of all tensors tells, which has no state; and no tensor is read. So the
 * memory needed is of the order of the file's header, whatever the size of the model.
 */
#include <string.h>

#include "command.h"
#include "json.h"
#include "optimizer_options.h"
#include "tensors.h"
#include "text.h"
#include "units.h"

enum { JSON, OWN };

static option options[OWN + SETTINGS_MOST] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
};

static void prepare(void)
{
    settings_append(options + OWN);
}

/* One tensor and what becomes of it. */
typedef struct route {
    const muonium_entry *entry;
    bool trained;       /* by an optimizer at all */
    const char *reason; /* if it is not */
    muonium_parameter_report report;
    muonium_fusion fusion;
} route;

typedef struct totals {
    size_t muon, adam, untrained, matrices;
    uint64_t state_bytes, parameters;
    uint64_t wide_bytes; /* of a state in f32 */
    double flops;
    muonium_counters counters; /* of the description */
} totals;

/* Find out about one tensor; *number counts those that the description has. */
static muonium_status find_route(const muonium_optimizer *description, const muonium_entry *entry,
                                 size_t *number, route *found)
{
    muonium_tensor tensor;
    *found = (route){.entry = entry};
    if (!tensor_describe(entry, &tensor)) {
        found->reason = entry->bytes == 0                ? "no elements"
                        : entry->ndim > MUONIUM_MAX_DIMS ? "too many dimensions"
                                                         : "type";
        return MUONIUM_OK;
    }
    found->trained = true;
    muonium_status status = muonium_fused(&tensor, &found->fusion);
    return status == MUONIUM_OK ? muonium_report(description, (*number)++, &found->report) : status;
}

/* What f32 would take more than the type of the momentum or first moment. */
static uint64_t saved_bytes(const route *found, const muonium_options *chosen)
{
    uint64_t elements = tensor_elements(found->entry);
    muonium_dtype dtype = found->report.muon ? chosen->state_dtype : chosen->adam_state_dtype;
    uint64_t blocks = (elements + MUONIUM_STATE_BLOCK - 1) / MUONIUM_STATE_BLOCK;
    return elements * (sizeof(float) - muonium_dtype_size(dtype)) -
           (dtype == MUONIUM_INT8 ? blocks * sizeof(float) : 0);
}

static void count(const route *found, const muonium_options *chosen, totals *sum)
{
    if (!found->trained) {
        sum->untrained++;
        return;
    }
    sum->muon += found->report.muon;
    sum->adam += !found->report.muon;
    sum->matrices += found->report.matrices;
    sum->state_bytes += found->report.state_bytes;
    sum->wide_bytes += found->report.state_bytes + saved_bytes(found, chosen);
    sum->parameters += tensor_elements(found->entry);
    sum->flops += found->report.flops;
}

/* ---- text ---- */

static const char table_format[] = "%-*s %-20s %-6s %-*s %9s %-9s %-9s %12s %12s%s";

typedef struct split_text {
    char text[112];
} split_text;

/* What a fused tensor is, and whether it is split. */
static split_text describe_fusion(const route *found)
{
    split_text result = {""};
    const muonium_fusion *f = &found->fusion;
    if (!found->trained || !found->report.muon || f->kind == NULL) {
        return result;
    }
    int used = snprintf(result.text, sizeof result.text, "  %s%s", f->kind,
                        f->count == 0 ? ", split unknown"
                        : f->columns  ? ", columns"
                                      : ", rows");
    for (size_t i = 0; i < f->count; i++) {
        used += snprintf(result.text + used, sizeof result.text - (size_t)used, "%s%zu",
                         i > 0 ? "+" : " ", f->rows[i]);
    }
    return result;
}

/* Wide enough for the longest name. */
static int name_width(const muonium_reader *reader)
{
    size_t width = 40;
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        size_t length = strlen(tensor_name(muonium_reader_entry(reader, i)->name).text);
        width = length > width ? length : width;
    }
    return (int)width;
}

/* And for the longest reason. */
static int reason_width(const muonium_optimizer *description)
{
    size_t width = 20;
    for (size_t i = 0; i < muonium_parameter_count(description); i++) {
        muonium_parameter_report report;
        size_t length =
            muonium_report(description, i, &report) == MUONIUM_OK ? strlen(report.reason) : 0;
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_route(const route *found, int width, int reason_columns)
{
    tensor_text name = tensor_name(found->entry->name), shape = tensor_shape(found->entry);
    char matrices[24] = "";
    unit_text flops = {""}, state = {""};
    const char *form = "", *precision = "", *goes = "-", *reason = found->reason;
    if (found->trained) {
        goes = found->report.muon ? "Muon" : "AdamW";
        reason = found->report.reason;
        state = units_bytes(found->report.state_bytes);
    }
    if (found->trained && found->report.muon) {
        snprintf(matrices, sizeof matrices, "%zu", found->report.matrices);
        form = muonium_enum_name("muonium_form", (int)found->report.form);
        precision = muonium_enum_name("muonium_dtype", (int)found->report.precision);
        flops = units_flops(found->report.flops);
    }
    text_line(stdout, table_format, width, name.text, shape.text, goes, reason_columns, reason,
              matrices, form, precision, flops.text, state.text, describe_fusion(found).text);
}

static void print_totals(const totals *sum)
{
    unit_text flops = units_flops(sum->flops), state = units_bytes(sum->state_bytes);
    unit_text scratch = units_bytes(sum->counters.scratch_bytes);
    int threads = muonium_threads();
    unit_text wide = units_bytes(sum->wide_bytes);
    bool narrow = sum->state_bytes < sum->wide_bytes;
    printf("\n%zu tensor%s by Muon, %zu by AdamW, %zu not trained; %llu parameters\n"
           "%zu %s orthogonalised per step, %s; state %s%s%s%s\n",
           sum->muon, sum->muon == 1 ? "" : "s", sum->adam, sum->untrained,
           (unsigned long long)sum->parameters, sum->matrices,
           sum->matrices == 1 ? "matrix" : "matrices", flops.text, state.text,
           narrow ? " (in f32: " : "", narrow ? wide.text : "", narrow ? ")" : "");
    printf("on %d thread%s: %zu team%s of at most %zu, scratch %s\n", threads,
           threads == 1 ? "" : "s", sum->counters.teams, sum->counters.teams == 1 ? "" : "s",
           sum->counters.team_width, scratch.text);
}

/* ---- JSON ---- */

static void write_route(json *writer, const route *found)
{
    const muonium_parameter_report *r = &found->report;
    json_object(writer, NULL);
    json_string(writer, "name", found->entry->name);
    json_string(writer, "dtype", found->entry->dtype);
    json_array(writer, "shape");
    for (size_t d = 0; d < found->entry->ndim; d++) {
        json_integer(writer, NULL, (long long)found->entry->shape[d]);
    }
    json_array_end(writer);
    json_string(writer, "route", !found->trained ? NULL : r->muon ? "muon" : "adam");
    json_string(writer, "reason", found->trained ? r->reason : found->reason);
    if (found->trained) {
        json_integer(writer, "matrices", (long long)r->matrices);
        json_integer(writer, "rows", (long long)r->rows);
        json_integer(writer, "cols", (long long)r->cols);
        json_string(writer, "form",
                    r->muon ? muonium_enum_name("muonium_form", (int)r->form) : NULL);
        json_string(writer, "precision",
                    r->muon ? muonium_enum_name("muonium_dtype", (int)r->precision) : NULL);
        json_string(writer, "direct_set", r->direct_set);
        json_integer(writer, "restarts", r->restarts);
        json_number(writer, "flops", r->flops);
        json_integer(writer, "state_bytes", (long long)r->state_bytes);
        json_number(writer, "step_rms", r->step_rms);
        json_number(writer, "lr", r->lr);
        json_string(writer, "fused", found->fusion.kind);
        json_array(writer, "split");
        for (size_t i = 0; i < found->fusion.count; i++) {
            json_integer(writer, NULL, (long long)found->fusion.rows[i]);
        }
        json_array_end(writer);
    }
    json_object_end(writer);
}

static void write_totals(json *writer, const totals *sum)
{
    json_object(writer, "total");
    json_integer(writer, "muon", (long long)sum->muon);
    json_integer(writer, "adam", (long long)sum->adam);
    json_integer(writer, "untrained", (long long)sum->untrained);
    json_integer(writer, "parameters", (long long)sum->parameters);
    json_integer(writer, "matrices", (long long)sum->matrices);
    json_number(writer, "flops", sum->flops);
    json_integer(writer, "state_bytes", (long long)sum->state_bytes);
    json_integer(writer, "f32_state_bytes", (long long)sum->wide_bytes);
    json_integer(writer, "threads", muonium_threads());
    json_integer(writer, "teams", (long long)sum->counters.teams);
    json_integer(writer, "team_width", (long long)sum->counters.team_width);
    json_integer(writer, "scratch_bytes", (long long)sum->counters.scratch_bytes);
    json_object_end(writer);
}

/* ---- all of it ---- */

static void print_warning(void *context, const char *line)
{
    (void)context;
    text_line(stdout, "warning: %s", line);
}

static void write_warning(void *context, const char *line)
{
    json_string(context, NULL, line);
}

static int route_all(const command *self, const muonium_reader *reader,
                     const muonium_optimizer *description, const muonium_options *chosen,
                     bool as_json)
{
    json writer = {.out = stdout};
    totals sum = {0};
    if (muonium_count(description, &sum.counters) != MUONIUM_OK) {
        return message_failed(self->name, "%s", muonium_last_error());
    }
    size_t number = 0;
    int width = as_json ? 0 : name_width(reader);
    int reason_columns = as_json ? 0 : reason_width(description);
    if (as_json) {
        json_object(&writer, NULL);
        json_array(&writer, "tensors");
    } else {
        text_line(stdout, table_format, width, "tensor", "shape", "route", reason_columns, "reason",
                  "matrices", "form", "precision", "per step", "state", "");
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        route found;
        if (find_route(description, muonium_reader_entry(reader, i), &number, &found) !=
            MUONIUM_OK) {
            return message_failed(self->name, "%s", muonium_last_error());
        }
        count(&found, chosen, &sum);
        if (as_json) {
            write_route(&writer, &found);
        } else {
            print_route(&found, width, reason_columns);
        }
    }
    if (as_json) {
        json_array_end(&writer);
        write_totals(&writer, &sum);
        json_array(&writer, "warnings");
        muonium_warnings(description, write_warning, &writer);
        json_array_end(&writer);
        json_object_end(&writer);
    } else {
        print_totals(&sum);
        muonium_warnings(description, print_warning, NULL);
    }
    return EXIT_OK;
}

static int run(const command *self, const arguments *given)
{
    muonium_options chosen;
    muonium_reader *reader = NULL;
    muonium_status status = optimizer_options(options, given->value, &chosen);
    if (status != MUONIUM_OK) {
        return message_status(self->name, status);
    }
    if (!(chosen.lr >= 0) && !setting_value(options, given->value, "lr")->given) {
        chosen.lr = 0; /* routes do not depend on it, so there is no need to ask */
    }
    muonium_optimizer *description = NULL;
    status = muonium_create_description(&chosen, &description);
    int code = status == MUONIUM_OK ? EXIT_OK : message_status(self->name, status);
    if (code == EXIT_OK && (muonium_reader_open(given->operand[0], &reader) != MUONIUM_OK ||
                            tensors_add(reader, description) != MUONIUM_OK)) {
        code = message_failed(self->name, "%s", muonium_last_error());
    }
    if (code == EXIT_OK) {
        code = route_all(self, reader, description, &chosen, given->value[JSON].given);
    }
    muonium_destroy(description);
    muonium_reader_close(reader);
    return code;
}

const command command_route = {
    .name = "route",
    .summary = "show which tensors of a model get Muon and which AdamW",
    .description =
        "Shows for each tensor of MODEL.safetensors whether it gets Muon or AdamW, and why. The "
        "table also has the number of matrices to orthogonalise per step, the form and "
        "precision of the iteration, its flops, and the memory of the optimizer state. Totals "
        "follow, with the teams of threads and the scratch memory of a step; with state in bf16 or "
        "int8 they also say what it would take in f32. Only the header of the file is read.\n\n"
        "Tensors of types that are not trained, such as I64, are marked. Fused matrices are listed "
        "with the split that --split would apply. A route that looks wrong gets a warning.\n\n"
        "By default (routing muonium) embeddings, heads, norms, biases, routers and gains go to "
        "AdamW by name. Words of a name: *embed*, *emb, *norm, *norms, *normalization, ln, bias, "
        "biases, router, smear, gain, gains, logits and vocab. Parts of a name: wte, wpe, head, "
        "lm_head, ln_* and a_log. Parts outside of numbered blocks: *_head, head_dist, "
        "classifier, output_projection and qa_outputs. Modules: shared and decoder. Modules "
        "outside "
        "of numbered blocks: output, score, proj_out and fc. And gate, if it has fewer rows than "
        "columns.",
    .example = "muonium route model.safetensors --recipe keller\n"
               "muonium route model.safetensors --pattern my_codebook --split\n"
               "muonium route model.safetensors --json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .prepare = prepare,
    .operands = "MODEL.safetensors",
    .least_operands = 1,
    .most_operands = 1,
    .run = run,
};
