/*
 * execute.c: run a plan on the caller's arrays.
 *
 * All matrices are surveyed before anything is written, so that an error leaves the output
 * untouched. Then either each worker has a matrix of its own, or all share one matrix after the
 * other; the bits are the same.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "orthogonalize/run.h"

enum { TINY_MATRIX = 1 << 10 }; /* elements of the largest that one worker computes alone */

/* ---- the caller's arrays ---- */

static muonium_status check_view(const char *name, const muonium_view *view, muonium_shape shape,
                                 mu_extent *extent)
{
    if (!view || !view->data) {
        return mu_fail(MUONIUM_INVALID, "%s%s is NULL: pass the address of the matrices", name,
                       view ? ".data" : "");
    }
    size_t bytes = muonium_dtype_size(view->dtype);
    if (bytes == 0 || view->dtype == MUONIUM_INT8) {
        return mu_fail(MUONIUM_INVALID,
                       "%s.dtype is %d: use one of the first four of muonium_dtype", name,
                       (int)view->dtype);
    }
    if ((uintptr_t)view->data % bytes != 0) {
        return mu_fail(
            MUONIUM_INVALID,
            "%s.data is %p: elements of %zu bytes need an address that is a multiple of that", name,
            view->data, bytes);
    }
    const size_t counts[3] = {shape.batch, shape.rows, shape.cols};
    const ptrdiff_t strides[3] = {view->batch_stride, view->row_stride, view->col_stride};
    if (!mu_extent_of(view->data, bytes, 3, counts, strides, extent)) {
        return mu_fail(MUONIUM_INVALID,
                       "strides of %s are %td, %td, %td (batch, row, col): with these the array "
                       "leaves the address space",
                       name, view->batch_stride, view->row_stride, view->col_stride);
    }
    return MUONIUM_OK;
}

static bool same_view(const muonium_view *a, const muonium_view *b, muonium_shape shape)
{
    return a->data == b->data && a->dtype == b->dtype &&
           (shape.batch == 1 || a->batch_stride == b->batch_stride) &&
           (shape.rows == 1 || a->row_stride == b->row_stride) &&
           (shape.cols == 1 || a->col_stride == b->col_stride);
}

static muonium_status check_views(muonium_shape shape, const muonium_view *in,
                                  const muonium_view *out)
{
    mu_extent read, written;
    muonium_status status = check_view("in", in, shape, &read);
    if (status == MUONIUM_OK) {
        status = check_view("out", out, shape, &written);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    const size_t counts[3] = {shape.batch, shape.rows, shape.cols};
    const ptrdiff_t strides[3] = {out->batch_stride, out->row_stride, out->col_stride};
    if (!mu_elements_distinct(3, counts, strides)) {
        return mu_fail(MUONIUM_INVALID,
                       "strides of out are %td, %td, %td (batch, row, col): elements of the "
                       "result would overlap",
                       out->batch_stride, out->row_stride, out->col_stride);
    }
    if (!same_view(in, out, shape) && mu_extents_overlap(read, written)) {
        return mu_fail(MUONIUM_INVALID,
                       "in (%p) and out (%p) overlap: use the same address, type and strides, or "
                       "separate memory",
                       in->data, out->data);
    }
    return MUONIUM_OK;
}

/* ---- one matrix ---- */

/* Matrix b of a view; a tall plan exchanges rows and columns. A stride that is never used gets
 * the value of a dense array, so that copies can recognise one. */
static mu_oriented orient_view(const muonium_plan *plan, const muonium_view *view, size_t b)
{
    size_t bytes = muonium_dtype_size(view->dtype);
    mu_oriented matrix = {(char *)view->data + (ptrdiff_t)b * view->batch_stride * (ptrdiff_t)bytes,
                          view->dtype, view->row_stride, view->col_stride};
    if (plan->tall) {
        matrix.row_stride = view->col_stride;
        matrix.col_stride = view->row_stride;
    }
    if (plan->n == 1) {
        matrix.col_stride = 1;
    }
    if (plan->m == 1) {
        matrix.row_stride = (ptrdiff_t)plan->n;
    }
    return matrix;
}

/* A run in the given part of the workspace, shared by `workers`. */
static mu_run begin_run(const muonium_plan *plan, mu_oriented in, mu_oriented out, char *memory,
                        unsigned workers)
{
    size_t square_bytes = plan->m * plan->ldr * muonium_dtype_size(plan->kernel->type);
    mu_run run = {.plan = plan, .in = in, .out = out, .certificate = mu_unmeasured(0)};
    memory = mu_x_place_local(&run, memory);
    for (int i = 0; i < plan->squares; i++) {
        run.square[i] = memory;
        memory += mu_round_up(square_bytes, MU_ALIGNMENT);
    }
    run.row_sums = (double *)(void *)memory;
    memory += mu_round_up(2 * plan->m * sizeof(double), MU_ALIGNMENT);
    run.with = (mu_matmul){.kernel = plan->kernel,
                           .workers = workers,
                           .scratch = memory,
                           .digits = plan->precision->digits,
                           .int8 = plan->int8};
    return run;
}

/* Whether each row of the result is finite, no longer than the plan's limit, and no longer than
 * the largest number of the caller's type. */
static bool is_bounded(mu_run *run)
{
    double limit = fmin(run->plan->limit, run->out.dtype == MUONIUM_F16 ? 65504 : FLT_MAX);
    mu_square_rows(run);
    for (size_t i = 0; i < run->plan->m; i++) {
        if (!(run->row_sums[i] <= limit * limit)) {
            return false;
        }
    }
    return true;
}

/* Normalise, evaluate and check; false if the iteration diverged. */
static bool attempt(mu_run *run, const mu_survey *survey)
{
    run->has_gram = false;
    run->with.kernel = run->plan->kernel;
    run->with.separate = false;
    run->with.round = MUONIUM_F32;
    run->with.digits = run->plan->precision->digits;
    mu_normalize(run, survey);
    run->with.kernel = run->plan->multiplier;
    run->with.separate = run->plan->half;
    run->with.round = run->plan->half ? run->plan->precision->type : MUONIUM_F32;
    run->plan->form->evaluate(run);
    return is_bounded(run);
}

static void orthogonalize(mu_run *run, const mu_survey *survey)
{
    muonium_plan careful;
    if (!isfinite(survey->largest)) {
        bool skip = run->plan->options.nonfinite == MUONIUM_NONFINITE_SKIP;
        run->certificate.outcome = skip ? MUONIUM_SKIPPED : MUONIUM_PROPAGATED;
        run->certificate.divisor = run->certificate.deviation = run->certificate.bound = NAN;
        if (!skip) {
            mu_x_fill(run, NAN);
        }
        return;
    }
    if (survey->largest == 0) {
        mu_certify_zero(run, MUONIUM_ZERO);
        mu_x_fill(run, 0);
        return;
    }
    bool bounded = attempt(run, survey);
    if (!bounded && run->input_is_kept) {
        careful = mu_careful_plan(run->plan);
        run->plan = &careful;
        run->certificate = mu_unmeasured(run->certificate.rescued + 1);
        bounded = attempt(run, survey);
    }
    if (!bounded) {
        mu_certify_zero(run, MUONIUM_DIVERGED);
        mu_x_fill(run, 0);
        return;
    }
    if (run->plan->form->certify) {
        run->plan->form->certify(run);
    }
    if (run->plan->options.exact_certificate) {
        mu_certify_exactly(run);
    }
    mu_x_store(run);
}

/* ---- the batch ---- */

typedef struct execution {
    const muonium_plan *plan;
    size_t count;
    const muonium_view *in, *out; /* the caller's arrays, unless there are */
    const mu_oriented *matrices;  /* matrices to orthogonalise in place */
    const mu_across *across;      /* NULL, or access to the columns of other processes */
    mu_survey *found;             /* not NULL: survey only, into this array */
    const mu_survey *surveys;
    char *memory;
    void *certificates;      /* the caller's array, or NULL */
    size_t certificate_size; /* of one, in the caller's version of the header */
} execution;

static void process(const execution *e, size_t b, char *memory, unsigned workers)
{
    mu_oriented in = e->matrices ? e->matrices[b] : orient_view(e->plan, e->in, b);
    mu_oriented out = e->matrices ? in : orient_view(e->plan, e->out, b);
    mu_run run = begin_run(e->plan, in, out, memory, workers);
    run.across = e->across;
    run.input_is_kept = !e->matrices;
    if (e->found) {
        e->found[b] = mu_survey_matrix(&run);
        return;
    }
    orthogonalize(&run, &e->surveys[b]);
    if (e->certificates) {
        mu_sized_write((char *)e->certificates + b * e->certificate_size, e->certificate_size,
                       &run.certificate, sizeof run.certificate);
    }
}

static void worker_task(void *context, size_t index, unsigned worker)
{
    const execution *e = context;
    process(e, index, e->memory + worker * e->plan->worker_bytes, 1);
}

/* Each worker gets the same number of matrices; the team shares each of the remaining ones, unless
 * they are so small that handing out their parts takes longer than computing them. */
static void process_all(execution *e)
{
    const muonium_plan *plan = e->plan;
    size_t shared_from = 0;
    if (plan->workers > 1) {
        shared_from = e->count - e->count % plan->workers;
        mu_pool_run(worker_task, e, shared_from, plan->workers);
    }
    for (size_t b = shared_from; b < e->count; b++) {
        process(e, b, e->memory, plan->m * plan->n <= TINY_MATRIX ? 1 : plan->team);
    }
}

static size_t survey_bytes(const muonium_plan *plan)
{
    return mu_round_up(plan->shape.batch * sizeof(mu_survey), MU_ALIGNMENT);
}

void mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                 const mu_survey *surveys, void *workspace, muonium_certificate *certificates)
{
    execution e = {.plan = plan,
                   .count = count,
                   .matrices = matrices,
                   .surveys = surveys,
                   .memory = (char *)workspace + survey_bytes(plan),
                   .certificates = certificates,
                   .certificate_size = sizeof *certificates};
    process_all(&e);
}

void mu_plan_run_across(const muonium_plan *plan, const mu_oriented *matrix,
                        const mu_survey *survey, const mu_across *across, void *workspace,
                        muonium_certificate *certificate)
{
    execution e = {.plan = plan,
                   .count = 1,
                   .matrices = matrix,
                   .across = across,
                   .surveys = survey,
                   .memory = (char *)workspace + survey_bytes(plan),
                   .certificates = certificate,
                   .certificate_size = sizeof *certificate};
    process_all(&e);
}

void mu_plan_run_carefully(const muonium_plan *plan, const mu_oriented *matrix,
                           const mu_survey *survey, const mu_across *across, void *workspace,
                           muonium_certificate *certificate)
{
    muonium_plan careful = mu_careful_plan(plan);
    int rescued = certificate->rescued;
    mu_plan_run_across(&careful, matrix, survey, across, workspace, certificate);
    certificate->rescued += rescued + 1;
}

/* The first element, in order of batch, row, column, that is not finite. */
static muonium_status report_nonfinite(const muonium_plan *plan, const muonium_view *in, size_t b)
{
    size_t bytes = muonium_dtype_size(in->dtype);
    for (size_t i = 0; i < plan->shape.rows; i++) {
        for (size_t j = 0; j < plan->shape.cols; j++) {
            ptrdiff_t index = (ptrdiff_t)b * in->batch_stride + (ptrdiff_t)i * in->row_stride +
                              (ptrdiff_t)j * in->col_stride;
            mu_block one = {(char *)in->data + index * (ptrdiff_t)bytes, in->dtype, 1, 1, 1, 1};
            double value;
            plan->wide->load(&one, &value, 1);
            if (!isfinite(value)) {
                return mu_fail(MUONIUM_NON_FINITE,
                               "element (%zu, %zu, %zu) (batch, row, col) of in is %g: nothing was "
                               "written; set nonfinite to skip or propagate to go on",
                               b, i, j, value);
            }
        }
    }
    return mu_fail(MUONIUM_NON_FINITE,
                   "matrix %zu of in changed while it was being read: it was not finite", b);
}

static muonium_status execute_batch(const muonium_plan *plan, const muonium_view *in,
                                    const muonium_view *out, void *workspace, void *certificates,
                                    size_t certificate_size)
{
    mu_survey *surveys = workspace;
    execution e = {.plan = plan,
                   .count = plan->shape.batch,
                   .in = in,
                   .out = out,
                   .found = surveys,
                   .memory = (char *)workspace + survey_bytes(plan)};
    process_all(&e);
    if (plan->options.nonfinite == MUONIUM_NONFINITE_ERROR) {
        for (size_t b = 0; b < plan->shape.batch; b++) {
            if (!isfinite(surveys[b].largest)) {
                return report_nonfinite(plan, in, b);
            }
        }
    }
    e.found = NULL;
    e.surveys = surveys;
    e.certificates = certificates;
    e.certificate_size = certificate_size;
    process_all(&e);
    return MUONIUM_OK;
}

muonium_status muonium_plan_execute_sized(const muonium_plan *plan, const muonium_view *in,
                                          const muonium_view *out, void *workspace,
                                          muonium_certificate *certificates, size_t size)
{
    if (!plan) {
        return mu_fail(MUONIUM_INVALID, "plan is NULL: make one with muonium_plan_create");
    }
    muonium_status status = check_views(plan->shape, in, out);
    if (status != MUONIUM_OK) {
        return status;
    }
    if ((uintptr_t)workspace % MU_ALIGNMENT != 0) {
        return mu_fail(MUONIUM_INVALID, "workspace is %p: align it to %d bytes", workspace,
                       MU_ALIGNMENT);
    }
    void *owned = NULL;
    if (!workspace) {
        workspace = owned = mu_alloc(plan->workspace_bytes);
        if (!owned) {
            return mu_fail(MUONIUM_NO_MEMORY, "no memory for a workspace of %zu bytes",
                           plan->workspace_bytes);
        }
    }
    mu_fenv environment = mu_fenv_enter();
    status = execute_batch(plan, in, out, workspace, certificates, size);
    mu_fenv_leave(environment);
    mu_free(owned);
    return status;
}

muonium_status muonium_orthogonalize_sized(muonium_shape shape, const muonium_plan_options *options,
                                           const muonium_view *in, const muonium_view *out,
                                           muonium_certificate *certificates, size_t size)
{
    muonium_plan *plan;
    muonium_status status = muonium_plan_create(shape, options, &plan);
    if (status == MUONIUM_OK) {
        status = muonium_plan_execute_sized(plan, in, out, NULL, certificates, size);
        muonium_plan_destroy(plan);
    }
    return status;
}
