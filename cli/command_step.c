/*
 * command_step.c: muonium step, one optimizer step on files.
 *
 * Everything is read, stepped and written to temporary files before the first of the
 * files changes; then the parameters and the state are put in place, one right after the
 * other. An interruption between the two is noticed by the next step; see pairing.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "json.h"
#include "optimizer_options.h"
#include "pairing.h"
#include "tensors.h"
#include "text.h"

enum { PARAMS, GRADS, STATE, OUT, UNPAIRED, JSON, OWN };

static option options[OWN + SETTINGS_MOST] = {
    [PARAMS] = {.name = "params",
                .letter = 'p',
                .type = OPTION_FILE,
                .placeholder = "FILE",
                .help = "file of the parameters; required"},
    [GRADS] = {.name = "grads",
               .letter = 'g',
               .type = OPTION_FILE,
               .placeholder = "FILE",
               .help = "file of the gradients, under the same names; required"},
    [STATE] = {.name = "state",
               .letter = 's',
               .type = OPTION_FILE,
               .placeholder = "FILE",
               .help = "file of the optimizer state, created on first use; required"},
    [OUT] = {.name = "out",
             .letter = 'o',
             .type = OPTION_FILE,
             .placeholder = "FILE",
             .help = "file for the new parameters; by default they replace the old "
                     "ones"},
    [UNPAIRED] = {.name = "unpaired",
                  .type = OPTION_FLAG,
                  .help = "step even if the last step of these parameters used another "
                          "state"},
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
};

static void prepare(void)
{
    settings_append(options + OWN);
}

enum { NOTES_MOST = 64 };

typedef struct stepping {
    const command *self;
    const char *params_path, *grads_path, *state_path, *out_path;
    muonium_reader *params, *grads, *state; /* state is NULL on first use */
    muonium_optimizer *optimizer;
    void **data; /* per tensor of params: what it holds, NULL for those passed through */
    void **grad;
    bool listening; /* to the log, for notes */
    char *notes[NOTES_MOST];
    size_t note_count;
} stepping;

/* ---- the files ---- */

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return strcmp(a, b) == 0 || (stat(a, &first) == 0 && stat(b, &second) == 0 &&
                                 first.st_dev == second.st_dev && first.st_ino == second.st_ino);
}

static int check_paths(const stepping *s, const arguments *given)
{
    static const int needed[] = {PARAMS, GRADS, STATE};
    for (size_t i = 0; i < 3; i++) {
        if (!given->value[needed[i]].given) {
            return message_usage(s->self->name, "--%s is missing: give a file",
                                 options[needed[i]].name);
        }
    }
    const struct {
        const char *a, *b;
    } pairs[] = {{s->state_path, s->params_path},
                 {s->state_path, s->grads_path},
                 {s->state_path, s->out_path},
                 {s->out_path, s->grads_path}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (is_same_file(pairs[i].a, pairs[i].b)) {
            return message_usage(s->self->name,
                                 "'%s' and '%s' are one file: one would overwrite "
                                 "the other",
                                 pairs[i].a, pairs[i].b);
        }
    }
    return EXIT_OK;
}

static int open_files(stepping *s)
{
    struct stat status;
    muonium_status opened = muonium_reader_open(s->params_path, &s->params);
    if (opened == MUONIUM_OK) {
        opened = muonium_reader_open(s->grads_path, &s->grads);
    }
    if (opened == MUONIUM_OK && (stat(s->state_path, &status) == 0 || errno != ENOENT)) {
        opened = muonium_reader_open(s->state_path, &s->state);
    }
    return opened == MUONIUM_OK ? EXIT_OK
                                : message_failed(s->self->name, "%s", muonium_last_error());
}

/* ---- notes ---- */

static void note(stepping *s, const char *line)
{
    if (s->note_count < NOTES_MOST) {
        s->notes[s->note_count] = strdup(line);
        s->note_count += s->notes[s->note_count] != NULL;
    }
}

static void listen(void *context, const char *line)
{
    static const char warning[] = "warning: ";
    stepping *s = context;
    if (s->listening || strncmp(line, warning, sizeof warning - 1) == 0) {
        note(s, line);
    }
}

/* ---- parameters and state that belong together ---- */

static int check_pairing(stepping *s)
{
    if (pairing_is_right(s->params, s->state)) {
        return EXIT_OK;
    }
    if (pairing_complete(s->params, s->state_path)) {
        return message_failed(s->self->name,
                              "the last step was interrupted after it had replaced '%s' and before "
                              "'%s', which has now been done too: nothing else was; run again with "
                              "the gradients of the next step",
                              s->params_path, s->state_path);
    }
    if (s->state == NULL) {
        note(s, "the parameters were last stepped with a state that is not here");
        return EXIT_OK;
    }
    return message_failed(s->self->name,
                          "'%s' was last stepped with another state than '%s': give the one that "
                          "belongs to it, or --unpaired to use this one",
                          s->params_path, s->state_path);
}

/* ---- the tensors ---- */

static int check_gradients(const stepping *s)
{
    for (size_t i = 0; i < muonium_reader_count(s->grads); i++) {
        const muonium_entry *grad = muonium_reader_entry(s->grads, i);
        const muonium_entry *param = muonium_reader_find(s->params, grad->name);
        tensor_text name = tensor_name(grad->name);
        muonium_dtype dtype;
        if (param == NULL) {
            return message_failed(s->self->name,
                                  "'%s' has a gradient '%s', but '%s' has no such "
                                  "tensor",
                                  s->grads_path, name.text, s->params_path);
        }
        if (!tensor_same_shape(param, grad)) {
            tensor_text there = tensor_shape(grad), here = tensor_shape(param);
            return message_failed(s->self->name, "the gradient '%s' is %s, its parameter %s",
                                  name.text, there.text, here.text);
        }
        if (param->bytes > 0 && !tensor_is_parameter(param, &dtype)) {
            return message_failed(s->self->name,
                                  "'%s' is of type %s: parameters with a gradient are F32, BF16 or "
                                  "F16",
                                  name.text, param->dtype);
        }
        if (strcmp(grad->dtype, param->dtype) != 0 && strcmp(grad->dtype, "F32") != 0) {
            return message_failed(s->self->name,
                                  "the gradient '%s' is of type %s, its parameter %s: use the same "
                                  "or F32",
                                  name.text, grad->dtype, param->dtype);
        }
    }
    return EXIT_OK;
}

static bool has_state(const stepping *s, const char *name)
{
    static const char prefix[] = "muonium.parameter.";
    char *key = s->state != NULL ? malloc(sizeof prefix + strlen(name)) : NULL;
    if (key == NULL) {
        return false;
    }
    strcpy(key, prefix);
    strcat(key, name);
    bool found = muonium_reader_metadata(s->state, key) != NULL;
    free(key);
    return found;
}

/* Give the optimizer a tensor that has a gradient, or had one. */
static bool add_tensor(stepping *s, size_t index, problem *what)
{
    const muonium_entry *entry = muonium_reader_entry(s->params, index);
    const muonium_entry *grad = muonium_reader_find(s->grads, entry->name);
    muonium_tensor tensor = {.name = entry->name, .ndim = entry->ndim};
    tensor_text name = tensor_name(entry->name);
    if (!tensor_is_parameter(entry, &tensor.dtype) ||
        (grad == NULL && !has_state(s, entry->name))) {
        return true;
    }
    if (entry->ndim > MUONIUM_MAX_DIMS) {
        return problem_set(what, "'%s' has %zu dimensions: at most %d can be stepped", name.text,
                           entry->ndim, MUONIUM_MAX_DIMS);
    }
    for (size_t d = 0; d < entry->ndim; d++) {
        tensor.shape[d] = (size_t)entry->shape[d];
    }
    s->data[index] = tensor_read(s->params, entry, what);
    if (grad != NULL) {
        s->grad[index] = tensor_read(s->grads, grad, what);
    }
    if (s->data[index] == NULL || (grad != NULL && s->grad[index] == NULL)) {
        return false;
    }
    tensor.data = s->data[index];
    tensor.grad = s->grad[index];
    tensor.f32_grad = grad != NULL && strcmp(grad->dtype, "F32") == 0;
    return muonium_add(s->optimizer, &tensor, NULL) == MUONIUM_OK ||
           problem_set(what, "%s", muonium_last_error());
}

static int add_tensors(stepping *s)
{
    size_t count = muonium_reader_count(s->params);
    problem what;
    s->data = calloc(count + 1, sizeof *s->data);
    s->grad = calloc(count + 1, sizeof *s->grad);
    if (s->data == NULL || s->grad == NULL) {
        return message_failed(s->self->name, "no memory for %zu tensors", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!add_tensor(s, i, &what)) {
            return message_failed(s->self->name, "%s", what.text);
        }
    }
    if (muonium_parameter_count(s->optimizer) == 0) {
        return message_failed(s->self->name, "'%s' has no gradient for any tensor of '%s'",
                              s->grads_path, s->params_path);
    }
    return EXIT_OK;
}

/* ---- the step ---- */

/* Tensors that get a gradient for the first time have no state yet; but state that no
 * tensor takes belongs to another model. */
static int load_state(stepping *s)
{
    muonium_load_options partial;
    muonium_load_report report;
    muonium_load_options_init(&partial);
    partial.partial = true;
    s->listening = true;
    muonium_status status = muonium_load_reader(s->optimizer, s->state, &partial, &report);
    s->listening = false;
    if (status != MUONIUM_OK) {
        return message_failed(s->self->name, "%s", muonium_last_error());
    }
    if (report.left_over > 0) {
        return message_failed(s->self->name,
                              "'%s' holds state that no tensor of '%s' takes under these options: "
                              "%s; is it of another model?",
                              s->state_path, s->params_path, report.left_over_names);
    }
    if (report.missing > 0) {
        char line[512];
        snprintf(line, sizeof line, "state that starts anew: %s", report.missing_names);
        note(s, line);
    }
    return EXIT_OK;
}

static muonium_status write_parameters(const stepping *s, const pairing_seal *seal,
                                       muonium_writer *writer)
{
    muonium_status status = tensors_describe(s->params, PAIRING_KEY, writer);
    if (status == MUONIUM_OK && seal->digits[0] != '\0') {
        status = muonium_writer_add_metadata(writer, PAIRING_KEY, seal->digits);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_begin(writer, s->out_path);
    }
    for (size_t i = 0; status == MUONIUM_OK && i < muonium_reader_count(s->params); i++) {
        const muonium_entry *entry = muonium_reader_entry(s->params, i);
        status = s->data[i] != NULL ? muonium_writer_data(writer, s->data[i], (size_t)entry->bytes)
                                    : tensor_copy(s->params, entry, writer);
    }
    return status;
}

/* Put both in place. False, and what went wrong, on failure; *replaced tells whether the
 * parameters are in place then. */
static bool finish_files(const stepping *s, const pairing_seal *seal, muonium_writer *params,
                         muonium_writer *state, bool *replaced, problem *what)
{
    bool done = muonium_writer_finish(params) == MUONIUM_OK ||
                problem_set(what, "%s", muonium_last_error());
    /* It may have failed after the replacement, and then the state follows all the same. */
    *replaced = done || pairing_has_seal(s->out_path, seal);
    if (*replaced && muonium_writer_finish(state) != MUONIUM_OK) {
        return problem_set(what, "%s", muonium_last_error());
    }
    return done;
}

static int write_files(const stepping *s)
{
    muonium_writer *state = NULL, *params = NULL;
    pairing_seal seal;
    problem what;
    bool replaced = false;
    pairing_seal_of(s->optimizer, &seal);
    muonium_status status = muonium_writer_create(&params);
    if (status == MUONIUM_OK) {
        status = write_parameters(s, &seal, params);
    }
    if (status == MUONIUM_OK) {
        status = muonium_save_prepare(s->optimizer, s->state_path, NULL, NULL, &state);
    }
    bool done = status == MUONIUM_OK ? finish_files(s, &seal, params, state, &replaced, &what)
                                     : problem_set(&what, "%s", muonium_last_error());
    muonium_writer_destroy(params);
    muonium_writer_destroy(state);
    if (done) {
        return EXIT_OK;
    }
    return message_failed(s->self->name, "%s%s%s%s", what.text, replaced ? "; but '" : "",
                          replaced ? s->out_path : "",
                          replaced ? "' has been replaced: do not repeat the step with it" : "");
}

/* ---- the report ---- */

static int report(const stepping *s, bool as_json)
{
    muonium_counters counters;
    if (muonium_count(s->optimizer, &counters) != MUONIUM_OK) {
        return message_failed(s->self->name, "%s", muonium_last_error());
    }
    size_t muon = 0, adam = 0, held = 0;
    for (size_t i = 0; i < muonium_reader_count(s->params); i++) {
        muonium_parameter_report parameter;
        size_t number;
        if (s->grad[i] == NULL ||
            muonium_find(s->optimizer, muonium_reader_entry(s->params, i)->name, &number) !=
                MUONIUM_OK ||
            muonium_report(s->optimizer, number, &parameter) != MUONIUM_OK) {
            held++;
            continue;
        }
        muon += parameter.muon;
        adam += !parameter.muon;
    }
    if (as_json) {
        json writer = {.out = stdout};
        json_object(&writer, NULL);
        json_string(&writer, "params", s->params_path);
        json_string(&writer, "grads", s->grads_path);
        json_string(&writer, "state", s->state_path);
        json_string(&writer, "output", s->out_path);
        json_bool(&writer, "new_state", s->state == NULL);
        json_integer(&writer, "step", (long long)counters.steps);
        json_integer(&writer, "muon", (long long)muon);
        json_integer(&writer, "adam", (long long)adam);
        json_integer(&writer, "unchanged", (long long)held);
        json_integer(&writer, "matrices", (long long)counters.matrices);
        json_integer(&writer, "state_bytes", (long long)counters.state_bytes);
        json_array(&writer, "notes");
        for (size_t i = 0; i < s->note_count; i++) {
            json_string(&writer, NULL, s->notes[i]);
        }
        json_array_end(&writer);
        json_object_end(&writer);
        return EXIT_OK;
    }
    for (size_t i = 0; i < s->note_count; i++) {
        text_line(stdout, "note: %s", s->notes[i]);
    }
    printf("step %llu: %zu tensor%s by Muon, %zu by AdamW, %zu unchanged\n",
           (unsigned long long)counters.steps, muon, muon == 1 ? "" : "s", adam, held);
    text_line(stdout, "wrote %s and %s%s", s->out_path, s->state == NULL ? "the new state " : "",
              s->state_path);
    return EXIT_OK;
}

/* ---- all of it ---- */

static int create_optimizer(stepping *s, const arguments *given)
{
    muonium_options chosen;
    muonium_status status = optimizer_options(options, given->value, &chosen);
    chosen.log = listen;
    chosen.log_context = s;
    if (status == MUONIUM_OK) {
        status = muonium_create(&chosen, &s->optimizer);
    }
    return status == MUONIUM_OK ? EXIT_OK : message_status(s->self->name, status);
}

static int take_step(stepping *s)
{
    return muonium_step(s->optimizer) == MUONIUM_OK
               ? EXIT_OK
               : message_failed(s->self->name, "%s", muonium_last_error());
}

static void release(stepping *s)
{
    muonium_destroy(s->optimizer);
    for (size_t i = 0; i < muonium_reader_count(s->params); i++) {
        free(s->data != NULL ? s->data[i] : NULL);
        free(s->grad != NULL ? s->grad[i] : NULL);
    }
    free(s->data);
    free(s->grad);
    for (size_t i = 0; i < s->note_count; i++) {
        free(s->notes[i]);
    }
    muonium_reader_close(s->params);
    muonium_reader_close(s->grads);
    muonium_reader_close(s->state);
}

static int run(const command *self, const arguments *given)
{
    stepping s = {.self = self,
                  .params_path = given->value[PARAMS].text,
                  .grads_path = given->value[GRADS].text,
                  .state_path = given->value[STATE].text,
                  .out_path =
                      given->value[OUT].given ? given->value[OUT].text : given->value[PARAMS].text};
    int code = check_paths(&s, given);
    code = code == EXIT_OK ? create_optimizer(&s, given) : code;
    code = code == EXIT_OK ? open_files(&s) : code;
    code = code == EXIT_OK && !given->value[UNPAIRED].given ? check_pairing(&s) : code;
    code = code == EXIT_OK ? check_gradients(&s) : code;
    code = code == EXIT_OK ? add_tensors(&s) : code;
    code = code == EXIT_OK && s.state != NULL ? load_state(&s) : code;
    code = code == EXIT_OK ? take_step(&s) : code;
    code = code == EXIT_OK ? write_files(&s) : code;
    code = code == EXIT_OK ? report(&s, given->value[JSON].given) : code;
    release(&s);
    return code;
}

const command command_step = {
    .name = "step",
    .summary = "take one optimizer step on safetensors files",
    .description =
        "Updates every tensor of --params that has a gradient of the same name in --grads: weight "
        "matrices by Muon, all others by AdamW, as muonium route shows. A gradient has the type of "
        "its parameter or F32. Tensors without a gradient and all metadata are copied.\n\n"
        "--state holds the momentum and the moments of the optimizer. It is created on first use. "
        "It does not set options: give them in every call. A note says where they differ from "
        "those of the last step.\n\n"
        "New parameters and new state are complete on the disk before the old files are replaced. "
        "After an error both files are unchanged. If power fails between the two replacements, the "
        "next call completes the second one, says so and stops. The metadata of the parameters "
        "name the state that belongs to them.",
    .example = "muonium step --params model.safetensors --grads grads.safetensors \\\n"
               "    --state optimizer.safetensors --recipe moonlight --lr 1e-3",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .prepare = prepare,
    .run = run,
};
