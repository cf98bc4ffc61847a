/*
 * command_orthogonalize.c: muonium orthogonalize, the polar factor of every
 * matrix of a file.
 *
 * The result is computed in the memory that the file was read into, so a file
 * needs its own size of memory and the workspace, and a matrix that is skipped
 * passes through unchanged.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "file.h"
#include "npy.h"
#include "optimizer_options.h"
#include "orthogonalize_report.h"
#include "orthogonalize_tensors.h"
#include "tensors.h"

enum { JSON, OWN };

static option options[OWN + SETTINGS_MOST] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
};

static void prepare(void)
{
    settings_append_plan(options + OWN);
}

/* What shapes a generated table has no effect with a published one. */
static bool coefficients_agree(const command *self, const option_value *value)
{
    static const char *const generated[] = {"lower", "safety", "cushion", "generated_rows"};
    for (size_t i = 0; i < sizeof generated / sizeof generated[0]; i++) {
        option_clash clash = {
            (int)(setting_value(options, value, "coefficients") - value),
            (int)(setting_value(options, value, generated[i]) - value),
        };
        if (!options_agree(self->name, options, value, &clash, 1)) {
            return false;
        }
    }
    return true;
}

static int check_combination(const command *self, const arguments *given)
{
    if (!coefficients_agree(self, given->value)) {
        return EXIT_USAGE;
    }
    if (setting_value(options, given->value, "eps")->given &&
        strcmp(setting_value(options, given->value, "eps_mode")->text, "none") == 0) {
        return message_usage(self->name, "--eps has no effect with --eps-mode none: choose "
                                         "--eps-mode clamp or --eps-mode add");
    }
    if (tensors_path(given->operand[0]) != tensors_path(given->operand[1])) {
        return message_usage(self->name,
                             "'%s' and '%s': both must be .safetensors files, or both .npy files",
                             given->operand[0], given->operand[1]);
    }
    return EXIT_OK;
}

static muonium_status plan_options(const option_value *value, muonium_plan_options *plan)
{
    muonium_options chosen;
    muonium_status status = optimizer_options(options, value, &chosen);
    if (status == MUONIUM_OK) {
        *plan = chosen.plan;
        plan->exact_certificate = true; /* one product more, which a user would wait for anyway */
    }
    return status;
}

/* The last two dimensions are the matrix, those before it the batch. */
static bool matrix_shape(const npy_array *array, muonium_shape *shape, problem *what)
{
    char text[256];
    npy_format_shape(array, text, sizeof text);
    if (array->dims < 2) {
        return problem_set(what, "shape %s: a matrix needs two dimensions, a batch more", text);
    }
    if (array->count == 0) {
        return problem_set(what, "shape %s: there are no elements", text);
    }
    shape->rows = array->shape[array->dims - 2];
    shape->cols = array->shape[array->dims - 1];
    shape->batch = array->count / shape->rows / shape->cols;
    return true;
}

static muonium_view view_of(const npy_array *array, muonium_shape shape, void *data)
{
    muonium_view view = muonium_dense(array->dtype, shape, data);
    if (array->fortran_order) {
        /* The first index varies fastest: matrices are interleaved, and several
         * batch dimensions in that order still make one of stride 1. */
        view.batch_stride = 1;
        view.row_stride = (ptrdiff_t)shape.batch;
        view.col_stride = (ptrdiff_t)(shape.batch * shape.rows);
    }
    return view;
}

static bool write_result(const npy_array *array, const unsigned char *data, const char *path,
                         problem *what)
{
    unsigned char header[NPY_HEADER_ROOM];
    size_t header_size = npy_format_header(array, header);
    file_piece pieces[] = {{header, header_size},
                           {data, array->count * muonium_dtype_size(array->dtype)}};
    return file_replace(path, pieces, 2, what);
}

/* All between reading and releasing the file. `bytes` is overwritten. */
static int process(const command *self, const arguments *given, const muonium_plan_options *chosen,
                   unsigned char *bytes, size_t size)
{
    const char *in = given->operand[0], *out = given->operand[1];
    npy_array array;
    muonium_shape shape = {0};
    problem what;
    if (!npy_parse(bytes, size, &array, &what) || !matrix_shape(&array, &shape, &what)) {
        return message_failed(self->name, "'%s': %s", in, what.text);
    }
    unsigned char *data = bytes + array.data_offset;
    if (array.data_offset % muonium_dtype_size(array.dtype) != 0) {
        data = memmove(bytes, data, size - array.data_offset);
    }
    muonium_certificate *certificates = calloc(shape.batch, sizeof *certificates);
    if (certificates == NULL) {
        return message_failed(self->name, "out of memory for %zu certificates", shape.batch);
    }
    muonium_plan_info info;
    orthogonalize_report report = {in, out, &array, shape, &info, certificates};
    muonium_view view = view_of(&array, shape, data);
    muonium_status status = orthogonalize_view(shape, chosen, &view, &info, certificates);
    int code = EXIT_OK;
    if (status != MUONIUM_OK) {
        code = message_status(self->name, status);
    } else if (!write_result(&array, data, out, &what)) {
        code = message_failed(self->name, "%s", what.text);
    } else if (given->value[JSON].given) {
        orthogonalize_report_json(&report);
    } else {
        orthogonalize_report_print(&report);
    }
    free(certificates);
    return code;
}

static int run(const command *self, const arguments *given)
{
    int code = check_combination(self, given);
    if (code != EXIT_OK) {
        return code;
    }
    muonium_plan_options chosen;
    muonium_status status = plan_options(given->value, &chosen);
    if (status != MUONIUM_OK) {
        return message_status(self->name, status);
    }
    if (tensors_path(given->operand[0])) {
        return orthogonalize_tensors(self, given->operand[0], given->operand[1], &chosen,
                                     given->value[JSON].given);
    }
    problem what;
    size_t size;
    unsigned char *bytes = file_read(given->operand[0], &size, &what);
    if (bytes == NULL) {
        return message_failed(self->name, "%s", what.text);
    }
    code = process(self, given, &chosen, bytes, size);
    free(bytes);
    return code;
}

const command command_orthogonalize = {
    .name = "orthogonalize",
    .summary = "orthogonalise the matrices of a file, as Muon does",
    .description =
        "Reads IN, orthogonalises every matrix in it as the Muon optimizer does, and writes "
        "OUT in "
        "the same type and order. A .npy file holds half, single or double floats: its last "
        "two "
        "dimensions are the matrix, all others are a batch. In a .safetensors file every "
        "tensor of "
        "these types, or of BF16, with two or more dimensions is orthogonalised. All other "
        "tensors "
        "are copied.\n\n"
        "The result approximates the polar factor, the nearest matrix with orthonormal rows or "
        "columns. By default its singular values are between about 0.86 and 1.14, not all 1. "
        "Use "
        "--steps 8 for the polar factor itself, to f32 rounding.\n\n"
        "OUT may be IN. It is replaced atomically after everything has been computed. After an "
        "error it is unchanged.\n\n"
        "Prints the plan, the expected range of singular values, and a certificate per matrix. "
        "The "
        "certificate has the divisor of the matrix and, measured on the result Y, the range of "
        "singular values and the distance |Y Y^T - I| from orthogonality (Frobenius norm; |Y^T "
        "Y - "
        "I| for a tall matrix). A few Lanczos iterations measure the range. It may be slightly "
        "too "
        "narrow for matrices of more than 24 rows and columns.",
    .example = "muonium orthogonalize gradient.npy update.npy --steps 8\n"
               "muonium orthogonalize momentum.safetensors update.safetensors\n"
               "muonium orthogonalize g.npy u.npy --coefficients original --eps-mode add "
               "--precision bf16 --json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .prepare = prepare,
    .operands = "IN OUT",
    .least_operands = 2,
    .most_operands = 2,
    .run = run,
};
