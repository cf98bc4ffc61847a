/*
 * squares.c: passes over the m x m matrices of the workspace, rows shared by the workers.
 */
#include "orthogonalize/run.h"

typedef struct square_pass {
    const mu_run *run;
    char *matrix;
    const char *other;
    double factor, other_factor;
    void (*visit)(const struct square_pass *pass, size_t row);
} square_pass;

static void *square_row(const square_pass *pass, const char *matrix, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    return (char *)(uintptr_t)matrix + i * plan->ldr * muonium_dtype_size(plan->kernel->type);
}

static void visit_square_rows(void *context, size_t index, unsigned worker)
{
    const square_pass *pass = context;
    size_t end = (index + 1) * MU_ROWS_PER_TASK;
    (void)worker;
    for (size_t i = index * MU_ROWS_PER_TASK; i < end && i < pass->run->plan->m; i++) {
        pass->visit(pass, i);
    }
}

static void run_pass(square_pass pass)
{
    size_t tasks = (pass.run->plan->m + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK;
    mu_pool_run(visit_square_rows, &pass, tasks, pass.run->with.workers);
}

static void scale_square_row(const square_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    plan->rows->scale(square_row(pass, pass->matrix, i), plan->m, pass->factor);
}

void mu_scale_square(mu_run *run, void *square, double factor)
{
    run_pass((square_pass){run, square, NULL, factor, 0, scale_square_row});
}

static void round_row(const square_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    plan->rows->round(square_row(pass, pass->matrix, i), plan->m, plan->precision->type);
}

void mu_round_square(mu_run *run, void *square)
{
    if (run->plan->half) {
        run_pass((square_pass){run, square, NULL, 0, 0, round_row});
    }
}

static void round_row_multiple(const square_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    void *row = square_row(pass, pass->matrix, i);
    plan->rows->add(row, square_row(pass, pass->other, i), plan->m, pass->factor, false);
    plan->rows->round(row, plan->m, plan->precision->type);
}

void mu_round_multiple(mu_run *run, double factor, const void *from, void *to)
{
    run_pass((square_pass){run, to, from, factor, 0, round_row_multiple});
}

static void round_row_sum(const square_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    plan->rows->combine(square_row(pass, pass->matrix, i), pass->factor,
                        square_row(pass, pass->other, i), pass->other_factor, plan->m,
                        plan->precision->type);
}

void mu_round_sum(mu_run *run, double alpha, void *to, double beta, const void *from)
{
    run_pass((square_pass){run, to, from, alpha, beta, round_row_sum});
}

static void sum_row_squares(const square_pass *pass, size_t i)
{
    double *sums = pass->run->row_sums;
    sums[i] = pass->run->plan->rows->squares(square_row(pass, pass->matrix, i), i, 1);
}

void mu_sum_lower_squares(mu_run *run)
{
    run_pass((square_pass){run, run->square[0], NULL, 0, 0, sum_row_squares});
}

static void sum_row_magnitudes(const square_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->run->plan;
    pass->run->row_sums[i] = plan->rows->abs_sum(square_row(pass, pass->matrix, i), plan->m);
}

void mu_sum_magnitudes(mu_run *run)
{
    run_pass((square_pass){run, run->square[0], NULL, 0, 0, sum_row_magnitudes});
}
