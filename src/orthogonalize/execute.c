/*
 * execute.c: running a plan on the caller's arrays.
 *
 * All matrices are surveyed before anything is written, so that an error leaves
 * the output untouched. Then matrices are taken several at a time, one per thread,
 * or one by one by all threads; the bits are the same.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "orthogonalize/plan.h"

enum { LINES_PER_TASK = 16 };

/* ---- the caller's arrays ---- */

static muonium_status check_view(const char *name, const muonium_view *view, muonium_shape shape,
                                 mu_extent *extent)
{
    if (!view || !view->data) {
        return mu_fail(MUONIUM_INVALID, "%s%s is NULL: pass where the matrices lie", name,
                       view ? ".data" : "");
    }
    size_t bytes = muonium_dtype_size(view->dtype);
    if (bytes == 0) {
        return mu_fail(MUONIUM_INVALID, "%s.dtype is %d: use one of muonium_dtype", name,
                       (int)view->dtype);
    }
    if ((uintptr_t)view->data % bytes != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "%s.data is %p: elements of %zu bytes must lie at a multiple of that", name,
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

/* Matrix b of a view, with rows and columns exchanged for tall plans. A stride that
 * is never taken gets the value of a dense array, so that copies can see it is one. */
static mu_oriented orient(const muonium_plan *plan, const muonium_view *view, size_t b)
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

/* Hand out the workspace of one worker or team. */
static mu_iteration begin(const muonium_plan *plan, mu_oriented in, mu_oriented out, char *memory,
                          unsigned threads)
{
    size_t bytes = muonium_dtype_size(plan->kernel->type);
    mu_iteration it = {.plan = plan, .in = in, .out = out, .certificate = mu_unmeasured(0)};
    it.home = out;
    if (!plan->in_place) {
        /* Rows or columns adjacent, as in the output, which is then stored straight ahead. */
        bool by_columns = mu_runs_down(out.row_stride, out.col_stride);
        it.home = (mu_oriented){memory, plan->kernel->type, by_columns ? 1 : (ptrdiff_t)plan->ldx,
                                by_columns ? (ptrdiff_t)plan->m : 1};
        memory += mu_round_up(plan->m * plan->ldx * bytes, MU_ALIGNMENT);
    }
    for (int i = 0; i < plan->squares; i++) {
        it.square[i] = memory;
        memory += mu_round_up(plan->m * plan->ldr * bytes, MU_ALIGNMENT);
    }
    it.row_sums = (double *)(void *)memory;
    memory += mu_round_up(2 * plan->m * sizeof(double), MU_ALIGNMENT);
    it.with = (mu_matmul){.kernel = plan->kernel, .workers = threads, .scratch = memory};
    return it;
}

/* Lines of X at home, rows or columns, into the output. */
static void store_lines(void *context, size_t index, unsigned worker)
{
    const mu_iteration *it = context;
    mu_lines lines = mu_lines_of(it->plan, &it->home);
    (void)worker;
    mu_oriented out = it->out;
    if (lines.columns) {
        out.row_stride = it->out.col_stride;
        out.col_stride = it->out.row_stride;
    }
    size_t first = index * LINES_PER_TASK, left = lines.count - first;
    mu_block to =
        mu_block_at(&out, first, 0, left < LINES_PER_TASK ? left : LINES_PER_TASK, lines.length);
    size_t skip = first * lines.ld * muonium_dtype_size(it->home.dtype);
    it->plan->rows->store(it->home.data + skip, lines.ld, &to);
}

static void store(mu_iteration *it)
{
    size_t lines = mu_lines_of(it->plan, &it->home).count;
    mu_pool_run(store_lines, it, (lines + LINES_PER_TASK - 1) / LINES_PER_TASK, it->with.workers);
}

/* Fill the output with 0 or NaN. */
static void fill(mu_iteration *it, double value)
{
    enum { PIECE = 256 };
    const muonium_plan *plan = it->plan;
    double values[PIECE];
    for (size_t k = 0; k < PIECE; k++) {
        values[k] = value;
    }
    for (size_t i = 0; i < plan->m; i++) {
        for (size_t j = 0; j < plan->n; j += PIECE) {
            size_t cols = plan->n - j < PIECE ? plan->n - j : PIECE;
            mu_block to = mu_block_at(&it->out, i, j, 1, cols);
            plan->wide->store(values, PIECE, &to);
        }
    }
}

/* Whether no row of the result is longer than the plan's limit, which NaN and infinities
 * are, nor than the largest number of the caller's type. */
static bool is_bounded(mu_iteration *it)
{
    double limit = fmin(it->plan->limit, it->out.dtype == MUONIUM_F16 ? 65504 : FLT_MAX);
    mu_square_rows(it);
    for (size_t i = 0; i < it->plan->m; i++) {
        if (!(it->row_sums[i] <= limit * limit)) {
            return false;
        }
    }
    return true;
}

/* Normalise, run and check; false if the iteration diverged. */
static bool attempt(mu_iteration *it, const mu_survey *survey)
{
    it->has_gram = it->delivered = false;
    it->with.kernel = it->plan->kernel;
    it->with.separate = false;
    mu_normalize(it, survey);
    it->with.kernel = it->plan->multiplier;
    it->with.separate = it->plan->half;
    it->plan->form->run(it);
    return is_bounded(it);
}

static void orthogonalize(mu_iteration *it, const mu_survey *survey)
{
    muonium_plan careful;
    if (!isfinite(survey->largest)) {
        bool skip = it->plan->options.nonfinite == MUONIUM_NONFINITE_SKIP;
        it->certificate.outcome = skip ? MUONIUM_SKIPPED : MUONIUM_PROPAGATED;
        it->certificate.divisor = it->certificate.deviation = it->certificate.bound = NAN;
        if (!skip) {
            fill(it, NAN);
        }
        return;
    }
    if (survey->largest == 0) {
        mu_certify_zero(it, MUONIUM_ZERO);
        fill(it, 0);
        return;
    }
    bool bounded = attempt(it, survey);
    if (!bounded && it->keeps_input) {
        careful = mu_careful_plan(it->plan);
        it->plan = &careful;
        it->certificate = mu_unmeasured(it->certificate.rescued + 1);
        bounded = attempt(it, survey);
    }
    if (!bounded) {
        mu_certify_zero(it, MUONIUM_DIVERGED);
        fill(it, 0);
        return;
    }
    if (it->plan->direct) {
        mu_certify_by_trace(it);
    }
    if (it->plan->options.exact_certificate) {
        mu_certify_exactly(it);
    }
    if (!it->delivered) {
        store(it);
    }
}

/* ---- the batch ---- */

typedef struct execution {
    const muonium_plan *plan;
    size_t count;
    const muonium_view *in, *out; /* the caller's arrays, or */
    const mu_oriented *matrices;  /* matrices to be worked on in place */
    const mu_across *across;      /* who has their other columns, or NULL */
    mu_survey *found;             /* not NULL: survey only, into this */
    const mu_survey *surveys;
    char *memory;
    void *certificates;      /* the caller's array, or NULL */
    size_t certificate_size; /* of one, in the caller's version of the header */
} execution;

static void process(const execution *e, size_t b, char *memory, unsigned threads)
{
    mu_oriented in = e->matrices ? e->matrices[b] : orient(e->plan, e->in, b);
    mu_oriented out = e->matrices ? in : orient(e->plan, e->out, b);
    mu_iteration it = begin(e->plan, in, out, memory, threads);
    it.across = e->across;
    it.keeps_input = !e->matrices;
    if (e->found) {
        e->found[b] = mu_survey_matrix(&it);
        return;
    }
    orthogonalize(&it, &e->surveys[b]);
    if (e->certificates) {
        mu_sized_write((char *)e->certificates + b * e->certificate_size, e->certificate_size,
                       &it.certificate, sizeof it.certificate);
    }
}

static void worker_task(void *context, size_t index, unsigned worker)
{
    const execution *e = context;
    process(e, index, e->memory + worker * e->plan->worker_bytes, 1);
}

/* As many rounds as all workers can share evenly go one matrix to a worker; what is left is
 * worked on by the team, one by one. */
static void process_all(execution *e)
{
    const muonium_plan *plan = e->plan;
    size_t in_workers = 0;
    if (plan->workers > 1) {
        in_workers = e->count - e->count % plan->workers;
        mu_pool_run(worker_task, e, in_workers, plan->workers);
    }
    for (size_t b = in_workers; b < e->count; b++) {
        process(e, b, e->memory, plan->team);
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

static muonium_status execute(const muonium_plan *plan, const muonium_view *in,
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
    status = execute(plan, in, out, workspace, certificates, size);
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
