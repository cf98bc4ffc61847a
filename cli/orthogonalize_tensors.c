/*
 * orthogonalize_tensors.c: muonium orthogonalize on safetensors files, one tensor at a
 * time, so that the memory needed is that of the largest and of the certificates.
 */
#include "orthogonalize_tensors.h"

#include <stdlib.h>

#include "orthogonalize_report.h"
#include "pairing.h"
#include "tensors.h"
#include "text.h"

muonium_status orthogonalize_view(muonium_shape shape, const muonium_plan_options *chosen,
                                  const muonium_view *view, muonium_plan_info *info,
                                  muonium_certificate *certificates)
{
    muonium_plan *plan = NULL;
    muonium_status status = muonium_plan_create(shape, chosen, &plan);
    if (status == MUONIUM_OK) {
        status = muonium_plan_describe(plan, info);
    }
    if (status == MUONIUM_OK) {
        status = muonium_plan_execute(plan, view, view, NULL, certificates);
    }
    muonium_plan_destroy(plan);
    return status;
}

/* What became of one tensor. */
typedef struct result {
    const muonium_entry *entry;
    npy_array array;
    muonium_shape shape;
    muonium_plan_info info;
    muonium_certificate *certificates; /* NULL: it was copied */
} result;

typedef struct run {
    const char *in, *out;
    const muonium_plan_options *chosen;
    muonium_reader *reader;
    muonium_writer *writer;
    result *results; /* one per tensor */
} run;

/* The shape of a tensor that holds matrices, as the report wants it. */
static bool describe(const muonium_entry *entry, result *to)
{
    npy_array *array = &to->array;
    to->entry = entry;
    if (entry->ndim < 2 || entry->ndim > NPY_MAX_DIMS || entry->bytes == 0 ||
        !muonium_dtype_named(entry->dtype, &array->dtype)) {
        return false;
    }
    array->dims = entry->ndim;
    array->count = tensor_elements(entry);
    for (size_t d = 0; d < entry->ndim; d++) {
        array->shape[d] = (size_t)entry->shape[d];
    }
    to->shape.rows = array->shape[array->dims - 2];
    to->shape.cols = array->shape[array->dims - 1];
    to->shape.batch = array->count / to->shape.rows / to->shape.cols;
    return true;
}

/* Replace the matrices of one tensor. */
static bool replace(const run *r, result *of, problem *what)
{
    const muonium_entry *entry = of->entry;
    tensor_text name = tensor_name(entry->name);
    of->certificates = calloc(of->shape.batch, sizeof *of->certificates);
    if (of->certificates == NULL) {
        return problem_set(what, "out of memory for %zu certificates", of->shape.batch);
    }
    void *data = tensor_read(r->reader, entry, what);
    bool good = data != NULL;
    if (good) {
        muonium_view view = muonium_dense(of->array.dtype, of->shape, data);
        good = orthogonalize_view(of->shape, r->chosen, &view, &of->info, of->certificates) ==
                   MUONIUM_OK ||
               problem_set(what, "'%s': %s", name.text, muonium_last_error());
    }
    if (good) {
        good = muonium_writer_data(r->writer, data, (size_t)entry->bytes) == MUONIUM_OK ||
               problem_set(what, "%s", muonium_last_error());
    }
    free(data);
    return good;
}

static bool process(run *r, problem *what)
{
    size_t count = muonium_reader_count(r->reader);
    r->results = calloc(count + 1, sizeof *r->results);
    if (r->results == NULL) {
        return problem_set(what, "out of memory for %zu tensors", count);
    }
    if (muonium_writer_create(&r->writer) != MUONIUM_OK ||
        tensors_describe(r->reader, PAIRING_KEY, r->writer) != MUONIUM_OK ||
        muonium_writer_begin(r->writer, r->out) != MUONIUM_OK) {
        return problem_set(what, "%s", muonium_last_error());
    }
    for (size_t i = 0; i < count; i++) {
        const muonium_entry *entry = muonium_reader_entry(r->reader, i);
        if (describe(entry, &r->results[i])) {
            if (!replace(r, &r->results[i], what)) {
                return false;
            }
        } else if (tensor_copy(r->reader, entry, r->writer) != MUONIUM_OK) {
            return problem_set(what, "%s", muonium_last_error());
        }
    }
    return muonium_writer_finish(r->writer) == MUONIUM_OK ||
           problem_set(what, "%s", muonium_last_error());
}

/* ---- the report ---- */

static void tell(const run *r, bool as_json)
{
    json writer = {.out = stdout};
    size_t matrices = 0, copied = 0;
    if (as_json) {
        json_object(&writer, NULL);
        json_string(&writer, "input", r->in);
        json_string(&writer, "output", r->out);
        json_array(&writer, "tensors");
    }
    for (size_t i = 0; i < muonium_reader_count(r->reader); i++) {
        const result *of = &r->results[i];
        orthogonalize_report report = {r->in,     r->out,    &of->array,
                                       of->shape, &of->info, of->certificates};
        if (of->certificates == NULL) {
            copied++;
            continue;
        }
        matrices += of->shape.batch;
        if (as_json) {
            json_object(&writer, NULL);
            json_string(&writer, "name", of->entry->name);
            json_string(&writer, "dtype", of->entry->dtype);
            orthogonalize_report_write_result(&writer, &report);
            json_object_end(&writer);
        } else {
            tensor_text name = tensor_name(of->entry->name), shape = tensor_shape(of->entry);
            text_line(stdout, "%s: %s %s", name.text, of->entry->dtype, shape.text);
            orthogonalize_report_print_result(&report);
        }
    }
    if (as_json) {
        json_array_end(&writer);
        json_integer(&writer, "matrices", (long long)matrices);
        json_integer(&writer, "copied", (long long)copied);
        json_object_end(&writer);
    } else {
        printf("%zu matrices orthogonalised, %zu tensors copied\n", matrices, copied);
        text_line(stdout, "wrote %s", r->out);
    }
}

int orthogonalize_tensors(const command *self, const char *in, const char *out,
                          const muonium_plan_options *chosen, bool as_json)
{
    run r = {.in = in, .out = out, .chosen = chosen};
    muonium_plan *plan = NULL;
    problem what;
    int code = EXIT_OK;
    /* Options that are wrong are found without a matrix too. */
    muonium_status status = muonium_plan_create((muonium_shape){1, 1, 1}, chosen, &plan);
    muonium_plan_destroy(plan);
    if (status != MUONIUM_OK) {
        return message_status(self->name, status);
    }
    if (muonium_reader_open(in, &r.reader) != MUONIUM_OK) {
        code = message_failed(self->name, "%s", muonium_last_error());
    } else if (!process(&r, &what)) {
        code = message_failed(self->name, "%s", what.text);
    } else {
        tell(&r, as_json);
    }
    for (size_t i = 0; r.results != NULL && i < muonium_reader_count(r.reader); i++) {
        free(r.results[i].certificates);
    }
    free(r.results);
    muonium_writer_destroy(r.writer);
    muonium_reader_close(r.reader);
    return code;
}
