/*
 * placement.c: where X is, and where the next X goes.
 *
 *     begin      X is the caller's input, used unpacked with a factor.
 *     copy       X is copied to run->local: where the half types round it, where rows have
 *                divisors of their own, where the factor exceeds the type's range, or where
 *                converting it once is cheaper than once per product.
 *     multiply   The next X goes to run->local; the result goes to the caller's output if
 *                products can be stored there.
 *     store      A result in run->local is converted to the caller's output.
 *
 * run->local is in the workspace. Its rows or columns are consecutive as in the output, so that
 * storing it reads and writes memory in order. A plan that works in place uses the caller's
 * matrix instead.
 */
#include <math.h>

#include "orthogonalize/run.h"

static size_t task_count(size_t lines)
{
    return (lines + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK;
}

/* ---- the local matrix ---- */

bool mu_x_may_stay(const muonium_plan *plan, muonium_dtype dtype)
{
    return dtype == plan->kernel->type;
}

bool mu_x_bytes(const muonium_plan *plan, size_t *bytes)
{
    size_t rows = plan->in_place ? 0 : plan->m;
    return mu_mul(rows * muonium_dtype_size(plan->kernel->type), plan->ldx, bytes);
}

char *mu_x_place_local(mu_run *run, char *memory)
{
    const muonium_plan *plan = run->plan;
    muonium_dtype type = plan->kernel->type;
    if (plan->in_place) {
        run->local = run->out;
        return memory;
    }
    bool by_columns = mu_runs_down(run->out.row_stride, run->out.col_stride);
    run->local = (mu_oriented){memory, type, by_columns ? 1 : (ptrdiff_t)plan->ldx,
                               by_columns ? (ptrdiff_t)plan->m : 1};
    return memory + mu_round_up(plan->m * plan->ldx * muonium_dtype_size(type), MU_ALIGNMENT);
}

/* The consecutive lines of a matrix with a stride of 1: its rows, or its columns. */
typedef struct line_shape {
    bool columns;
    size_t count, length;
    size_t ld; /* from one to the next */
} line_shape;

static line_shape line_shape_of(const muonium_plan *plan, const mu_oriented *matrix)
{
    bool columns = matrix->col_stride != 1;
    line_shape lines = {columns, columns ? plan->n : plan->m, columns ? plan->m : plan->n,
                        (size_t)(columns ? matrix->col_stride : matrix->row_stride)};
    return lines;
}

void mu_x_begin(mu_run *run)
{
    run->x = mu_operand_at(&run->in);
    run->place = MU_X_IN_INPUT;
}

static void set_x(mu_run *run, const mu_oriented *matrix)
{
    run->x = mu_operand_at(matrix);
    run->place = matrix->data == run->out.data ? MU_X_IN_OUTPUT : MU_X_IN_LOCAL;
}

/* ---- copying ---- */

typedef struct x_copy {
    mu_run *run;
    const double *row_divisor; /* or NULL */
    int exponent;              /* not 0: multiply by 2^-exponent, in f64, instead of x.scale */
} x_copy;

/* Convert a block to rows of the kernel's type, times 2^-exponent. */
static void load_shifted(const mu_run *run, const mu_block *from, int exponent, void *to, size_t ld)
{
    const mu_rows *wide = run->plan->wide;
    int half = exponent / 2, rest = exponent - half; /* 2^exponent may not be a double */
    double buffer[MU_ROWS_PER_TASK * MU_COLS_PER_BLOCK];
    wide->load(from, buffer, MU_COLS_PER_BLOCK);
    for (size_t i = 0; i < from->rows; i++) {
        wide->scale(buffer + i * MU_COLS_PER_BLOCK, from->cols, ldexp(1, -half));
        wide->scale(buffer + i * MU_COLS_PER_BLOCK, from->cols, ldexp(1, -rest));
    }
    mu_block rows = {to, run->plan->kernel->type, (ptrdiff_t)ld, 1, from->rows, from->cols};
    wide->store(buffer, MU_COLS_PER_BLOCK, &rows);
}

/* X may be in run->local already: each block is read before it is written. Consecutive rows are
 * converted without a buffer. */
static void copy_rows(void *context, size_t index, unsigned worker)
{
    const x_copy *copy = context;
    const mu_run *run = copy->run;
    const muonium_plan *plan = run->plan;
    const mu_rows *ops = plan->rows;
    mu_oriented x = mu_matrix_of(&run->x);
    (void)worker;
    double buffer[MU_ROWS_PER_TASK * MU_COLS_PER_BLOCK]; /* of the kernel's type */
    size_t first = index * MU_ROWS_PER_TASK;
    size_t rows = plan->m - first < MU_ROWS_PER_TASK ? plan->m - first : MU_ROWS_PER_TASK;
    for (size_t j = 0; j < plan->n; j += MU_COLS_PER_BLOCK) {
        size_t cols = plan->n - j < MU_COLS_PER_BLOCK ? plan->n - j : MU_COLS_PER_BLOCK;
        mu_block from = mu_block_at(&x, first, j, rows, cols);
        mu_block to = mu_block_at(&run->local, first, j, rows, cols);
        bool unbuffered = to.col_stride == 1 && to.dtype == ops->type && to.data != from.data;
        void *place = unbuffered ? to.data : buffer;
        size_t ld = unbuffered ? (size_t)to.row_stride : MU_COLS_PER_BLOCK;
        if (copy->exponent != 0) {
            load_shifted(run, &from, copy->exponent, place, ld);
        } else {
            ops->load(&from, place, ld);
        }
        for (size_t i = 0; i < rows; i++) {
            char *row = (char *)place + i * ld * muonium_dtype_size(ops->type);
            if (copy->exponent == 0) {
                ops->scale(row, cols, run->x.scale);
            }
            if (copy->row_divisor) {
                ops->scale(row, cols, 1 / copy->row_divisor[first + i]);
            }
            if (plan->half && copy->exponent == 0) {
                ops->round(row, cols, plan->precision->type);
            }
        }
        if (!unbuffered) {
            ops->store(buffer, MU_COLS_PER_BLOCK, &to);
        }
    }
}

static void copy_x(x_copy copy)
{
    mu_run *run = copy.run;
    mu_pool_run(copy_rows, &copy, task_count(run->plan->m), run->with.workers);
    set_x(run, &run->local);
}

void mu_x_copy(mu_run *run, const double *row_divisor)
{
    copy_x((x_copy){run, row_divisor, 0});
}

void mu_x_copy_shifted(mu_run *run, int exponent)
{
    copy_x((x_copy){run, NULL, exponent});
}

void mu_x_make_readable(mu_run *run)
{
    if (run->plan->int8 && run->x.dtype != MUONIUM_F32) {
        mu_x_copy(run, NULL);
    }
}

void mu_x_settle(mu_run *run)
{
    /* A resident matrix of another type is converted once, instead of in each of the three times
     * that it is packed. Not if it must be transposed as well, which gains nothing. And not if
     * mu_guard may still change the factor: X is rounded only once, with its final factor. */
    const muonium_plan *plan = run->plan;
    size_t bytes = plan->m * plan->n * muonium_dtype_size(plan->kernel->type);
    bool final = !plan->form->guarded || !mu_may_exceed_edge(run, 0);
    bool convert = run->x.dtype != plan->kernel->type && run->x.col_stride == 1 && final &&
                   bytes <= plan->kernel->b_pass_bytes;
    if (plan->half || convert) {
        mu_x_copy(run, NULL);
    }
}

/* ---- the next X ---- */

/* Whether products can be stored in the caller's output before the result is complete. */
static bool output_takes_products(const mu_run *run)
{
    const mu_oriented *out = &run->out;
    bool is_input = run->input_is_kept && out->data == run->in.data;
    return !run->plan->half && !is_input && out->dtype == run->plan->kernel->type &&
           out->row_stride > 0 && out->col_stride > 0 &&
           (out->row_stride == 1 || out->col_stride == 1);
}

/* Columns [first, first + cols) of X, and Z times these columns as rows ldr apart. */
typedef struct rounded_sum {
    const mu_run *run;
    char *product;
    size_t first, cols;
    double factor;
} rounded_sum;

/* X = round(round(factor * X) + product), the product being rounded */
static void sum_rounded_rows(void *context, size_t index, unsigned worker)
{
    const rounded_sum *s = context;
    const muonium_plan *plan = s->run->plan;
    const mu_rows *ops = plan->rows;
    muonium_dtype half = plan->precision->type;
    size_t bytes = muonium_dtype_size(ops->type), row = index * MU_ROWS_PER_TASK;
    size_t rows = plan->m - row < MU_ROWS_PER_TASK ? plan->m - row : MU_ROWS_PER_TASK;
    double buffer[MU_ROWS_PER_TASK * MU_COLS_PER_BLOCK]; /* of the kernel's type */
    (void)worker;
    for (size_t j = 0; j < s->cols; j += MU_COLS_PER_BLOCK) {
        size_t cols = s->cols - j < MU_COLS_PER_BLOCK ? s->cols - j : MU_COLS_PER_BLOCK;
        mu_block place = mu_block_at(&s->run->local, row, s->first + j, rows, cols);
        ops->load(&place, buffer, MU_COLS_PER_BLOCK);
        for (size_t i = 0; i < rows; i++) {
            char *x = (char *)buffer + i * MU_COLS_PER_BLOCK * bytes;
            char *product = s->product + ((row + i) * plan->ldr + j) * bytes;
            ops->scale(x, cols, s->factor);
            ops->round(x, cols, half);
            ops->add(x, product, cols, 1, true);
            ops->round(x, cols, half);
        }
        ops->store(buffer, MU_COLS_PER_BLOCK, &place);
    }
}

/* X = round(round(a X) + round(Z X)), in column blocks of X whose product fits into a square.
 * With a rounded factor c R, Z is not symmetric; mu_apply allows that where rows of the result
 * are consecutive, as they are in a square. */
static void multiply_rounded(mu_run *run, const mu_operand *q)
{
    const muonium_plan *plan = run->plan;
    rounded_sum s = {run, run->square[2], 0, plan->m, q->shift * run->x.scale};
    mu_operand z = *q;
    z.shift = 0;
    for (; s.first < plan->n; s.first += s.cols) {
        s.cols = plan->n - s.first < plan->m ? plan->n - s.first : plan->m;
        mu_operand x = run->x;
        x.data = mu_block_at(&run->local, 0, s.first, plan->m, s.cols).data;
        mu_apply(&run->with, plan->m, s.cols, &z, &x, s.product, plan->ldr, 1);
        mu_pool_run(sum_rounded_rows, &s, task_count(plan->m), run->with.workers);
    }
    set_x(run, &run->local);
}

void mu_x_multiply(mu_run *run, const mu_operand *q, bool last)
{
    const muonium_plan *plan = run->plan;
    if (plan->round.sum) {
        multiply_rounded(run, q);
        return;
    }
    const mu_oriented *to = last && output_takes_products(run) ? &run->out : &run->local;
    mu_apply(&run->with, plan->m, plan->n, q, &run->x, to->data, (size_t)to->row_stride,
             (size_t)to->col_stride);
    set_x(run, to);
}

/* ---- the output ---- */

static void store_lines(void *context, size_t index, unsigned worker)
{
    const mu_run *run = context;
    line_shape lines = line_shape_of(run->plan, &run->local);
    (void)worker;
    mu_oriented out = run->out;
    if (lines.columns) {
        out.row_stride = run->out.col_stride;
        out.col_stride = run->out.row_stride;
    }
    size_t first = index * MU_ROWS_PER_TASK, left = lines.count - first;
    mu_block to = mu_block_at(&out, first, 0, left < MU_ROWS_PER_TASK ? left : MU_ROWS_PER_TASK,
                              lines.length);
    size_t skip = first * lines.ld * muonium_dtype_size(run->local.dtype);
    run->plan->rows->store(run->local.data + skip, lines.ld, &to);
}

void mu_x_store(mu_run *run)
{
    if (run->place != MU_X_IN_OUTPUT) {
        mu_pool_run(store_lines, run, task_count(line_shape_of(run->plan, &run->local).count),
                    run->with.workers);
    }
}

void mu_x_fill(mu_run *run, double value)
{
    const muonium_plan *plan = run->plan;
    double values[MU_COLS_PER_BLOCK];
    for (size_t k = 0; k < MU_COLS_PER_BLOCK; k++) {
        values[k] = value;
    }
    for (size_t i = 0; i < plan->m; i++) {
        for (size_t j = 0; j < plan->n; j += MU_COLS_PER_BLOCK) {
            size_t cols = plan->n - j < MU_COLS_PER_BLOCK ? plan->n - j : MU_COLS_PER_BLOCK;
            mu_block to = mu_block_at(&run->out, i, j, 1, cols);
            plan->wide->store(values, MU_COLS_PER_BLOCK, &to);
        }
    }
}
