/*
 * plan.c: create a plan: validation, coefficients, choice of form, sizes.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "coefficients/coefficients.h"
#include "matmul/blas.h"
#include "matmul/fixed.h"
#include "options/options.h"
#include "orthogonalize/run.h"

/* Matrices of up to this many elements get one worker each, several matrices at a time: workers
 * then need not wait for each other, and the workspaces are small. */
enum { SMALL_MATRIX = 1 << 20 };

static const mu_rounding roundings[] = {
    [MUONIUM_ROUNDING_STORED] = {.square = true},
    [MUONIUM_ROUNDING_TORCH] = {.input = true, .divisor = true},
    [MUONIUM_ROUNDING_KELLER] = {.input = true,
                                 .divisor = true,
                                 .factor = true,
                                 .square = true,
                                 .linear = true,
                                 .sum = true},
    [MUONIUM_ROUNDING_MOTIF] = {.input = true, .divisor = true, .square = true, .linear = true},
    [MUONIUM_ROUNDING_FP16] =
        {.input = true, .square = true, .scaled = true, .linear = true, .sum = true},
};

static muonium_status check_plan_shape(muonium_shape shape)
{
    size_t elements, bytes;
    if (shape.batch == 0 || shape.rows == 0 || shape.cols == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "shape is %zu x %zu x %zu (batch, rows, cols): each must be at least 1",
                       shape.batch, shape.rows, shape.cols);
    }
    if (!mu_mul(shape.rows, shape.cols, &elements) || !mu_mul(elements, shape.batch, &elements) ||
        !mu_mul(elements, sizeof(double), &bytes) || bytes > PTRDIFF_MAX) {
        return mu_fail(MUONIUM_INVALID,
                       "shape is %zu x %zu x %zu (batch, rows, cols): that many elements do not "
                       "fit into the address space",
                       shape.batch, shape.rows, shape.cols);
    }
    return MUONIUM_OK;
}

/* ---- the workspace ---- */

/* Bytes for one matrix at a time, shared by `workers`. */
static bool bytes_for(const muonium_plan *plan, unsigned workers, size_t *bytes)
{
    size_t element = muonium_dtype_size(plan->kernel->type), x, square, scratch, sums, rounded;
    if (!mu_matmul_scratch(plan->kernel, plan->m, plan->n, workers, &scratch) ||
        !mu_matmul_scratch(plan->multiplier, plan->m, plan->n, workers, &rounded) ||
        !mu_x_bytes(plan, &x) || !mu_mul(plan->m * element, plan->ldr, &square) ||
        !mu_mul(square, (size_t)plan->squares, &square) ||
        !mu_mul(plan->m, 2 * sizeof(double), &sums)) {
        return false;
    }
    scratch = rounded > scratch ? rounded : scratch;
    if (plan->int8) {
        size_t fixed; /* for the digits of the careful plan, which are the most */
        if (!mu_fixed_scratch(plan->int8, MU_MAX_DIGITS, plan->m, plan->n, workers, &fixed)) {
            return false;
        }
        scratch = fixed > scratch ? fixed : scratch;
    }
    return mu_add(scratch, x, bytes) && mu_add(*bytes, square, bytes) &&
           mu_add(*bytes, sums, bytes) && mu_add(*bytes, 8 * MU_ALIGNMENT, bytes);
}

static muonium_status size_workspace(muonium_plan *plan)
{
    size_t batch = plan->shape.batch, workers_bytes, surveys;
    plan->ldx = mu_leading(plan->kernel, plan->n);
    plan->ldr = mu_leading(plan->kernel, plan->m);
    plan->workers = 1;
    if (plan->m * plan->n <= SMALL_MATRIX) {
        plan->workers = batch < plan->team ? (unsigned)batch : plan->team;
    }
    if (!bytes_for(plan, plan->team, &plan->team_bytes) ||
        !bytes_for(plan, 1, &plan->worker_bytes) ||
        !mu_mul(plan->worker_bytes = mu_round_up(plan->worker_bytes, MU_ALIGNMENT), plan->workers,
                &workers_bytes) ||
        !mu_mul(batch, sizeof(mu_survey), &surveys) ||
        !mu_add(mu_round_up(surveys, MU_ALIGNMENT),
                workers_bytes > plan->team_bytes ? workers_bytes : plan->team_bytes,
                &plan->workspace_bytes) ||
        plan->workspace_bytes > PTRDIFF_MAX) {
        return mu_fail(MUONIUM_INVALID,
                       "shape is %zu x %zu x %zu (batch, rows, cols): the workspace does not fit "
                       "into the address space",
                       plan->shape.batch, plan->shape.rows, plan->shape.cols);
    }
    return MUONIUM_OK;
}

muonium_status mu_plan_for_team(muonium_plan *plan, size_t batch, unsigned team)
{
    plan->shape.batch = batch;
    plan->team = team;
    return size_workspace(plan);
}

muonium_status mu_plan_narrow(muonium_plan *plan, size_t columns)
{
    plan->n = columns;
    return size_workspace(plan);
}

muonium_status mu_plan_keep_in_place(muonium_plan *plan)
{
    plan->in_place = mu_x_may_stay(plan, MUONIUM_F32);
    return size_workspace(plan);
}

/* Coefficients that map singular values in [0, 1] beyond this are refused: the sums of their
 * fourth powers must be in the range of the type, and they themselves in the range of f32. */
static double largest_reach(const muonium_plan *plan)
{
    return mu_precision_of(plan->options.precision)->real == MUONIUM_F64 ? 1e30 : 1e7;
}

static muonium_status bound_result(muonium_plan *plan)
{
    int steps = plan->options.steps;
    const double(*table)[3] = (const double(*)[3])plan->table;
    double reach = mu_greatest_reach(table, steps);
    if (!(reach <= largest_reach(plan))) {
        return mu_fail(MUONIUM_INVALID,
                       "the coefficients take singular values in [0, 1] to %g: use some that keep "
                       "them below %g",
                       reach, largest_reach(plan));
    }
    for (int t = 0; t < steps; t++) {
        plan->edge[t] = mu_stable_edge(table, t, steps);
    }
    /* Singular values up to the stable edge end below 2, and no row is longer than the largest
     * singular value. A tenth is room for rounding in the half types. */
    plan->limit = 1.1 * fmax(2, reach);
    return MUONIUM_OK;
}

muonium_plan mu_careful_plan(const muonium_plan *plan)
{
    muonium_plan careful = *plan;
    careful.careful = true;
    careful.form = &mu_form_standard;
    careful.direct = NULL;
    careful.half = false;
    careful.precision = mu_precision_of(careful.int8 ? MUONIUM_FIXED23 : plan->kernel->type);
    careful.round = (mu_rounding){0};
    careful.multiplier = careful.kernel;
    careful.options.safety_factor = fmax(1, careful.options.safety_factor);
    return careful;
}

static muonium_status choose_kernels(muonium_plan *plan)
{
    const mu_precision *precision = plan->precision;
    muonium_status status = mu_kernel_choose(precision->real, &plan->kernel);
    if (status == MUONIUM_OK) {
        status = mu_kernel_choose(precision->type, &plan->multiplier);
    }
    if (status == MUONIUM_OK && precision->digits > 0) {
        status = mu_int8_choose(&plan->int8);
    }
    if (status == MUONIUM_OK) {
        status = mu_rows_choose(MUONIUM_F64, &plan->wide);
    }
    if (status == MUONIUM_OK) {
        plan->rows = plan->kernel->rows;
    }
    return status;
}

/* `instruction_set` NULL: the one in use. */
static muonium_status fill_plan(muonium_plan *plan, const char *instruction_set)
{
    const muonium_plan_options *o = &plan->options;
    muonium_status status = mu_choose_coefficients(o, plan->table);
    if (status == MUONIUM_OK) {
        status = mu_check_methods(o);
    }
    if (status == MUONIUM_OK) {
        status = mu_cpu_choose();
    }
    if (status == MUONIUM_OK) {
        status = bound_result(plan);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    plan->tall = plan->shape.rows > plan->shape.cols;
    plan->m = plan->tall ? plan->shape.cols : plan->shape.rows;
    plan->n = plan->tall ? plan->shape.rows : plan->shape.cols;
    plan->normalization = mu_normalization_of(o->normalization);
    mu_choose_form(plan, instruction_set      ? instruction_set
                         : mu_blas_selected() ? "blas"
                                              : mu_cpu_isa());
    status = choose_kernels(plan);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (plan->half) {
        plan->round = roundings[plan->form->rounds ? o->rounding : MUONIUM_ROUNDING_STORED];
    }
    int squares = plan->form->squares(plan), norm_squares = plan->normalization->squares;
    plan->squares = squares > norm_squares ? squares : norm_squares;
    if (plan->squares < MU_GUARD_SQUARES) {
        plan->squares = MU_GUARD_SQUARES;
    }
    plan->team = mu_pool_workers();
    return size_workspace(plan);
}

muonium_status mu_plan_create_for(const char *instruction_set, muonium_shape shape,
                                  const muonium_plan_options *options, muonium_plan **plan)
{
    if (!plan) {
        return mu_fail(MUONIUM_INVALID, "plan is NULL: pass the address of a muonium_plan pointer");
    }
    muonium_plan draft = {.shape = shape};
    muonium_status status = mu_copy_plan_options(options, &draft.options);
    if (status == MUONIUM_OK) {
        status = mu_check_plan_ranges(&draft.options);
    }
    if (status == MUONIUM_OK) {
        status = check_plan_shape(shape);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_fenv environment = mu_fenv_enter();
    status = fill_plan(&draft, instruction_set);
    mu_fenv_leave(environment);
    if (status != MUONIUM_OK) {
        return status;
    }
    draft.options.table = NULL;
    draft.options.coefficients = NULL;
    draft.options.direct_set = NULL;
    muonium_plan *made = mu_alloc(sizeof *made);
    if (!made) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    }
    *made = draft;
    *plan = made;
    return MUONIUM_OK;
}

muonium_status muonium_plan_create(muonium_shape shape, const muonium_plan_options *options,
                                   muonium_plan **plan)
{
    return mu_plan_create_for(NULL, shape, options, plan);
}

void muonium_plan_destroy(muonium_plan *plan)
{
    mu_free(plan);
}

/* max |p(sigma) - 1| on [1e-3, 1] of the composed quintics p, on a grid fine enough for the
 * digits that are shown. */
static double deviation_of_quintics(const muonium_plan *plan)
{
    enum { GRID_POINTS = 1024 };
    double worst = 0, ratio = pow(1e-3, 1.0 / GRID_POINTS), x = 1;
    for (int i = 0; i <= GRID_POINTS; i++, x *= ratio) {
        double value = mu_compose((const double(*)[3])plan->table, 0, plan->options.steps, x);
        worst = fmax(worst, fabs(value - 1));
    }
    return worst;
}

muonium_status muonium_plan_describe_sized(const muonium_plan *plan, muonium_plan_info *info,
                                           size_t size)
{
    if (!plan || !info) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL: pass a plan and a muonium_plan_info",
                       plan ? "info" : "plan");
    }
    muonium_plan_info made = {.form = plan->form->id, .steps = plan->options.steps};
    for (int t = 0; t < made.steps; t++) {
        memcpy(made.table[t], plan->table[t], sizeof made.table[t]);
        if (plan->form->restarts && plan->restart[t]) {
            made.restart[made.restarts++] = t;
        }
    }
    made.direct_set = plan->direct ? plan->direct->name : NULL;
    made.band = plan->direct ? plan->direct->deviation : deviation_of_quintics(plan);
    made.flops = mu_plan_flops(plan);
    made.precision = plan->options.precision;
    made.workspace = plan->workspace_bytes;
    mu_sized_write(info, size, &made, sizeof made);
    return MUONIUM_OK;
}

size_t mu_plan_shared_block(size_t m)
{
    return mu_shared_block(m);
}
