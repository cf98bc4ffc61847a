/*
 * handler.c: a call from XLA: check what it passes, and orthogonalise all matrices of equal shape
 * together.
 *
 * Large matrices are divided among the threads one after the other, without a copy. Small ones of
 * several arrays are copied together, so that each thread has matrices of its own.
 */
#include "xla/xla.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FEW_OPERANDS = 16 }; /* which need no allocation */

#define GATHERED_MATRIX ((size_t)1 << 20) /* bytes of the largest matrix that is copied */
#define GATHERED ((size_t)64 << 20)       /* bytes copied together */

/* The matrices of one argument and where they go. */
typedef struct xla_operand {
    muonium_dtype dtype;
    muonium_shape shape;
    const char *in;
    char *out;
    bool done; /* with the table in use */
} xla_operand;

typedef struct xla_call {
    muonium_options options;
    const double (*attribute_table)[3];
    size_t attribute_rows;
    size_t count;
    xla_operand *operands;
    size_t *alike;                     /* room for the numbers of all operands */
    muonium_certificate *certificates; /* of the largest execution, if matrices may be skipped */
} xla_call;

/* ---- errors ---- */

static mu_xla_error *fail(const mu_xla_api *api, int code, const char *message)
{
    char text[1200];
    snprintf(text, sizeof text, "muonium_orthogonalize: %s", message);
    mu_xla_error_args args = {.struct_size = sizeof args, .message = text, .code = code};
    return api->error_create(&args);
}

static mu_xla_error *fail_without_memory(const mu_xla_api *api)
{
    return fail(api, MU_XLA_RESOURCE_EXHAUSTED, "out of memory");
}

/* The library's error. */
static mu_xla_error *fail_with(const mu_xla_api *api, muonium_status status)
{
    switch (status) {
    case MUONIUM_INVALID:
        return fail(api, MU_XLA_INVALID_ARGUMENT, muonium_last_error());
    case MUONIUM_NO_MEMORY:
        return fail_without_memory(api);
    case MUONIUM_NON_FINITE:
        return fail(api, MU_XLA_FAILED_PRECONDITION, muonium_last_error());
    default:
        return fail(api, MU_XLA_INTERNAL, muonium_last_error());
    }
}

static mu_xla_error *refuse_argument(const mu_xla_api *api, size_t index, const char *why)
{
    char text[200];
    snprintf(text, sizeof text, "argument %zu %s", index, why);
    return fail(api, MU_XLA_INVALID_ARGUMENT, text);
}

/* ---- what XLA passes ---- */

static const struct {
    int theirs;
    muonium_dtype ours;
} dtypes[] = {
    {MU_XLA_F32, MUONIUM_F32},
    {MU_XLA_F64, MUONIUM_F64},
    {MU_XLA_BF16, MUONIUM_BF16},
    {MU_XLA_F16, MUONIUM_F16},
};

/* Multiply *product by the extents; false if it does not fit. */
static bool multiply_extents(const int64_t *extents, int64_t count, size_t *product)
{
    for (int64_t axis = 0; axis < count; axis++) {
        if (extents[axis] < 0 || !mu_mul(*product, (size_t)extents[axis], product)) {
            return false;
        }
    }
    return true;
}

static mu_xla_error *read_operand(const mu_xla_frame *frame, size_t index, xla_operand *found)
{
    const mu_xla_api *api = frame->api;
    if (frame->arguments.types[index] != MU_XLA_BUFFER ||
        frame->results.types[index] != MU_XLA_BUFFER) {
        return refuse_argument(api, index, "or its result is no array");
    }
    const mu_xla_buffer *in = frame->arguments.items[index], *out = frame->results.items[index];
    if (in->rank < 2) {
        return refuse_argument(api, index, "has fewer than two dimensions: a matrix has two");
    }
    if (in->dtype != out->dtype || in->rank != out->rank ||
        memcmp(in->dims, out->dims, (size_t)in->rank * sizeof *in->dims) != 0) {
        return refuse_argument(api, index, "and its result differ in type or shape");
    }
    size_t known = 0;
    while (known < sizeof dtypes / sizeof *dtypes && dtypes[known].theirs != in->dtype) {
        known++;
    }
    if (known == sizeof dtypes / sizeof *dtypes) {
        return refuse_argument(api, index, "has another type than f32, f64, bf16 and f16");
    }
    *found = (xla_operand){.dtype = dtypes[known].ours, .in = in->data, .out = out->data};
    size_t batch = 1, bytes = muonium_dtype_size(found->dtype);
    if (!multiply_extents(in->dims, in->rank - 2, &batch) ||
        !multiply_extents(in->dims, in->rank, &bytes) || bytes > PTRDIFF_MAX) {
        return refuse_argument(api, index, "is too large");
    }
    found->shape = (muonium_shape){.batch = batch,
                                   .rows = (size_t)in->dims[in->rank - 2],
                                   .cols = (size_t)in->dims[in->rank - 1]};
    return NULL;
}

static bool is_named(const mu_xla_span *span, const char *name)
{
    return span->length == strlen(name) && memcmp(span->text, name, span->length) == 0;
}

static mu_xla_error *read_attributes(const mu_xla_frame *frame, xla_call *call)
{
    bool known = mu_xla_settings_find(&frame->attributes, &call->options);
    if (!known) {
        muonium_status status = muonium_options_init(&call->options, NULL);
        if (status != MUONIUM_OK) {
            return fail_with(frame->api, status);
        }
    }
    for (int64_t i = 0; i < frame->attributes.size; i++) {
        const mu_xla_span *name = frame->attributes.names[i];
        const void *value = frame->attributes.values[i];
        int type = frame->attributes.types[i];
        char name_text[64] = "", value_text[64] = "", message[200];
        if (type == MU_XLA_ARRAY && is_named(name, "table")) {
            const mu_xla_array *table = value;
            if (table->dtype == MU_XLA_F64 && table->size % 3 == 0 &&
                table->size <= 3 * MUONIUM_MAX_STEPS) {
                call->attribute_table = table->data;
                call->attribute_rows = table->size / 3;
                continue;
            }
        }
        if (known && type == MU_XLA_STRING) {
            continue;
        }
        const mu_xla_span *text = type == MU_XLA_STRING ? value : NULL;
        if (text == NULL || name->length >= sizeof name_text || text->length >= sizeof value_text) {
            snprintf(message, sizeof message,
                     "attribute %.*s is neither a short text nor a table of doubles, three for "
                     "each of at most %d iterations",
                     name->length < 64 ? (int)name->length : 64, name->text, MUONIUM_MAX_STEPS);
            return fail(frame->api, MU_XLA_INVALID_ARGUMENT, message);
        }
        memcpy(name_text, name->text, name->length);
        memcpy(value_text, text->text, text->length);
        muonium_status status = muonium_option_set(&call->options, name_text, value_text);
        if (status != MUONIUM_OK) {
            return fail_with(frame->api, status);
        }
    }
    if (!known) {
        mu_xla_settings_keep(&frame->attributes, &call->options);
    }
    return NULL;
}

/* ---- tables of coefficients ---- */

/* One table of each index of the leading dimensions, or one for all matrices. */
typedef struct xla_tables {
    size_t count, rows;
    const mu_xla_buffer *buffer; /* NULL: the table is an attribute, or there is none */
} xla_tables;

static mu_xla_error *read_tables(const mu_xla_frame *frame, const xla_call *call, xla_tables *found)
{
    *found = (xla_tables){.count = 1};
    if ((size_t)frame->arguments.size == call->count) {
        return NULL;
    }
    const mu_xla_buffer *buffer = frame->arguments.items[call->count];
    if (frame->arguments.types[call->count] != MU_XLA_BUFFER ||
        (buffer->dtype != MU_XLA_F32 && buffer->dtype != MU_XLA_F64) || buffer->rank < 2 ||
        buffer->dims[buffer->rank - 1] != 3 || buffer->dims[buffer->rank - 2] < 1 ||
        buffer->dims[buffer->rank - 2] > MUONIUM_MAX_STEPS) {
        char why[120];
        snprintf(why, sizeof why,
                 "is no table of coefficients: use f32 or f64 of the shape (..., rows, 3) with 1 "
                 "to %d rows",
                 MUONIUM_MAX_STEPS);
        return refuse_argument(frame->api, call->count, why);
    }
    found->buffer = buffer;
    found->rows = (size_t)buffer->dims[buffer->rank - 2];
    if (!multiply_extents(buffer->dims, buffer->rank - 2, &found->count)) {
        return refuse_argument(frame->api, call->count, "is too large");
    }
    for (size_t i = 0; i < call->count; i++) {
        if (found->count == 0 || call->operands[i].shape.batch % found->count != 0) {
            return refuse_argument(frame->api, i,
                                   "lacks the leading dimensions of the tables of coefficients");
        }
    }
    size_t size = found->rows * 3 * (buffer->dtype == MU_XLA_F64 ? sizeof(double) : sizeof(float));
    const char *data = buffer->data;
    bool equal = true;
    for (size_t i = 1; i < found->count && equal; i++) {
        equal = memcmp(data, data + i * size, size) == 0;
    }
    found->count = equal ? 1 : found->count;
    return NULL;
}

static void copy_table(const xla_tables *tables, size_t index, double (*table)[3])
{
    for (size_t i = 0; i < tables->rows * 3; i++) {
        size_t place = index * tables->rows * 3 + i;
        table[i / 3][i % 3] = tables->buffer->dtype == MU_XLA_F64
                                  ? ((const double *)tables->buffer->data)[place]
                                  : (double)((const float *)tables->buffer->data)[place];
    }
}

/* ---- the work ---- */

static size_t matrix_bytes(const xla_operand *operand)
{
    return operand->shape.rows * operand->shape.cols * muonium_dtype_size(operand->dtype);
}

/* The results of a batch; those of matrices that were skipped are zero. */
static muonium_status execute_matrices(const xla_call *call, const muonium_plan *plan,
                                       muonium_shape shape, muonium_dtype dtype, const char *in,
                                       char *out)
{
    muonium_view from = muonium_dense(dtype, shape, (char *)in);
    muonium_view to = muonium_dense(dtype, shape, out);
    muonium_status status = muonium_plan_execute(plan, &from, &to, NULL, call->certificates);
    for (size_t i = 0; call->certificates != NULL && status == MUONIUM_OK && i < shape.batch; i++) {
        if (call->certificates[i].outcome == MUONIUM_SKIPPED) {
            size_t bytes = shape.rows * shape.cols * muonium_dtype_size(dtype);
            memset(out + i * bytes, 0, bytes);
        }
    }
    return status;
}

static bool is_like(const xla_operand *a, const xla_operand *b)
{
    return a->dtype == b->dtype && a->shape.batch == b->shape.batch &&
           a->shape.rows == b->shape.rows && a->shape.cols == b->shape.cols;
}

/* The numbers of the operands like `first`, from there on and not done, in call->alike; at most
 * `most` of them. Returns how many. */
static size_t find_alike(const xla_call *call, size_t first, size_t most)
{
    size_t count = 0;
    for (size_t i = first; i < call->count && count < most; i++) {
        if (!call->operands[i].done && is_like(&call->operands[i], &call->operands[first])) {
            call->alike[count++] = i;
        }
    }
    return count;
}

/* Orthogonalise operands of equal shape, whose numbers are in call->alike: of each the matrices of
 * one table, `batch` of them from the number `start` on. */
static muonium_status run_alike(const xla_call *call, size_t count, size_t start, size_t batch,
                                const muonium_plan_options *options)
{
    const xla_operand *like = &call->operands[call->alike[0]];
    size_t bytes = batch * matrix_bytes(like), offset = start * matrix_bytes(like);
    muonium_shape shape = like->shape;
    shape.batch = batch * count;
    mu_xla_plan *taken;
    muonium_status status = mu_xla_plan_take(shape, options, &taken);
    if (status != MUONIUM_OK) {
        return status;
    }
    const muonium_plan *plan = mu_xla_plan_of(taken);
    char *memory = NULL;
    if (count == 1) {
        status =
            execute_matrices(call, plan, shape, like->dtype, like->in + offset, like->out + offset);
    } else if ((memory = mu_alloc(count * bytes)) == NULL) {
        status = MUONIUM_NO_MEMORY;
    } else {
        for (size_t i = 0; i < count; i++) {
            memcpy(memory + i * bytes, call->operands[call->alike[i]].in + offset, bytes);
        }
        status = execute_matrices(call, plan, shape, like->dtype, memory, memory);
        for (size_t i = 0; i < count && status == MUONIUM_OK; i++) {
            memcpy(call->operands[call->alike[i]].out + offset, memory + i * bytes, bytes);
        }
        mu_free(memory);
    }
    mu_xla_plan_return(taken);
    return status;
}

/* The largest number of operands of this shape that are copied together; 1: each is by itself. */
static size_t most_together(const xla_operand *operand, size_t batch)
{
    size_t bytes = batch * matrix_bytes(operand);
    bool small = matrix_bytes(operand) <= GATHERED_MATRIX && bytes <= GATHERED;
    return small ? GATHERED / bytes : 1;
}

static muonium_status run_table(const xla_call *call, const xla_tables *tables, size_t index)
{
    double table[MUONIUM_MAX_STEPS][3];
    muonium_plan_options options = call->options.plan;
    if (tables->buffer != NULL) {
        copy_table(tables, index, table);
        options.table = (const double(*)[3])table;
        options.table_rows = tables->rows;
    } else if (call->attribute_table != NULL) {
        options.table = call->attribute_table;
        options.table_rows = call->attribute_rows;
    }
    for (size_t i = 0; i < call->count; i++) {
        call->operands[i].done =
            matrix_bytes(&call->operands[i]) * call->operands[i].shape.batch == 0;
    }
    for (size_t i = 0; i < call->count; i++) {
        if (call->operands[i].done) {
            continue;
        }
        size_t batch = call->operands[i].shape.batch / tables->count;
        size_t count = find_alike(call, i, most_together(&call->operands[i], batch));
        muonium_status status = run_alike(call, count, index * batch, batch, &options);
        if (status != MUONIUM_OK) {
            return status;
        }
        for (size_t j = 0; j < count; j++) {
            call->operands[call->alike[j]].done = true;
        }
    }
    return MUONIUM_OK;
}

/* Certificates for the largest number of matrices in one execution. */
static bool allocate_certificates(xla_call *call)
{
    size_t most = 0, bytes;
    for (size_t i = 0; i < call->count; i++) {
        if (!mu_add(most, call->operands[i].shape.batch, &most)) {
            return false;
        }
    }
    call->certificates =
        mu_mul(most, sizeof *call->certificates, &bytes) ? mu_alloc_zeroed(bytes) : NULL;
    return call->certificates != NULL;
}

static mu_xla_error *run(const mu_xla_frame *frame, xla_call *call)
{
    mu_xla_error *error = read_attributes(frame, call);
    for (size_t i = 0; i < call->count && error == NULL; i++) {
        error = read_operand(frame, i, &call->operands[i]);
    }
    xla_tables tables;
    if (error == NULL) {
        error = read_tables(frame, call, &tables);
    }
    if (error != NULL) {
        return error;
    }
    if (call->options.plan.nonfinite == MUONIUM_NONFINITE_SKIP && !allocate_certificates(call)) {
        return fail_without_memory(frame->api);
    }
    for (size_t i = 0; i < tables.count; i++) {
        muonium_status status = run_table(call, &tables, i);
        if (status != MUONIUM_OK) {
            return fail_with(frame->api, status);
        }
    }
    return NULL;
}

/* The version of the interface that this handler was written for, or the earlier minor version of
 * an older XLA: minor versions only add, and nothing that is used here was added. XLA of version
 * 0.1 does not tell its version here. */
static void describe(const mu_xla_api *api, mu_xla_metadata *metadata)
{
    int theirs = api == NULL ? MU_XLA_FIRST_MINOR : api->version.minor;
    bool older = (api == NULL || api->version.major == MU_XLA_MAJOR) && theirs < MU_XLA_MINOR;
    metadata->version.major = MU_XLA_MAJOR;
    metadata->version.minor = older ? theirs : MU_XLA_MINOR;
    metadata->traits = 0;
}

mu_xla_error *muonium_xla_orthogonalize(mu_xla_frame *frame)
{
    for (mu_xla_extension *extension = frame->extension; extension != NULL;
         extension = extension->next) {
        if (extension->type == MU_XLA_METADATA) {
            describe(frame->api, ((mu_xla_metadata_extension *)extension)->metadata);
            return NULL;
        }
    }
    if (frame->stage != MU_XLA_EXECUTE) {
        return NULL;
    }
    xla_call call = {.count = (size_t)frame->results.size};
    if (frame->results.size < 1 || (frame->arguments.size != frame->results.size &&
                                    frame->arguments.size != frame->results.size + 1)) {
        return fail(frame->api, MU_XLA_INVALID_ARGUMENT,
                    "pass one array or more, and as many results; a table of coefficients may "
                    "follow the arrays");
    }
    xla_operand operands[FEW_OPERANDS];
    size_t alike[FEW_OPERANDS];
    bool few = call.count <= FEW_OPERANDS;
    call.operands = few ? operands : mu_alloc(call.count * sizeof *call.operands);
    call.alike = few ? alike : mu_alloc(call.count * sizeof *call.alike);
    mu_xla_error *error = call.operands != NULL && call.alike != NULL
                              ? run(frame, &call)
                              : fail_without_memory(frame->api);
    mu_free(call.certificates);
    if (!few) {
        mu_free(call.alike);
        mu_free(call.operands);
    }
    return error;
}
