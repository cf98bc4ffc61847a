/*
 * survey.c: statistics of a matrix; see survey.h.
 *
 * A matrix in memory is summed by rows of the oriented matrix, in blocks of COLS columns. So
 * neither strides nor element type change a bit. Powers of two do not either, since double holds
 * the square of any f32. f64 inputs take a second pass once their exponent is known.
 */
#include <math.h>

#include "orthogonalize/run.h"

enum { COLS = 256 }; /* converted at a time */

/* Sum over all rows, and reduce over all processes. */
static double sum_rows(const mu_row_survey *s, double *largest)
{
    double sum = 0;
    *largest = 0;
    if (s->tall) {
        mu_combine(s->across, MU_ACROSS_SUM, MUONIUM_F64, s->sums, s->rows, 1, &sum);
    } else {
        mu_combine(s->across, MU_ACROSS_SUM, MUONIUM_F64, s->sums, s->pieces, s->rows, s->sums);
    }
    for (size_t row = 0; row < s->rows; row++) {
        sum += s->tall ? 0 : s->sums[row];
        *largest = mu_larger(*largest, s->largest[row]);
    }
    mu_combine(s->across, MU_ACROSS_LARGEST, MUONIUM_F64, largest, 1, 1, largest);
    return sum;
}

mu_survey mu_survey_of(double largest, double sum_squares)
{
    mu_survey survey = {largest, 0, 0};
    if (isfinite(largest)) {
        frexp(largest, &survey.exponent);
        survey.sum_squares = ldexp(sum_squares, -2 * survey.exponent);
    }
    return survey;
}

mu_survey mu_survey_of_rows(const mu_row_survey *s)
{
    double largest, sum = sum_rows(s, &largest);
    return mu_survey_of(largest, sum);
}

/* ---- a matrix in memory ---- */

typedef struct survey_pass {
    mu_row_survey into;
    mu_oriented matrix;
    size_t cols;
    const mu_rows *ops;
    double scale;
} survey_pass;

static void survey_task(void *context, size_t index, unsigned worker)
{
    const survey_pass *pass = context;
    const mu_oriented *in = &pass->matrix;
    const mu_rows *ops = pass->ops;
    (void)worker;
    size_t bytes = muonium_dtype_size(in->dtype), first = index * MU_ROWS_PER_TASK;
    size_t left = pass->into.rows - first, rows = left < MU_ROWS_PER_TASK ? left : MU_ROWS_PER_TASK;
    bool in_place = in->dtype == ops->type && in->col_stride == 1;
    double buffer[MU_ROWS_PER_TASK * COLS];
    for (size_t i = 0; i < rows; i++) {
        mu_survey_start_row(&pass->into, first + i);
    }
    for (size_t j = 0; j < pass->cols; j += COLS) {
        size_t cols = pass->cols - j < COLS ? pass->cols - j : COLS;
        mu_block block = mu_block_at(in, first, j, rows, cols);
        if (!in_place) {
            ops->load(&block, buffer, COLS);
        }
        for (size_t i = 0; i < rows; i++) {
            const void *row = in_place
                                  ? (const void *)((const char *)block.data +
                                                   (ptrdiff_t)i * in->row_stride * (ptrdiff_t)bytes)
                                  : (const void *)((const char *)buffer +
                                                   i * COLS * muonium_dtype_size(ops->type));
            mu_survey_add(&pass->into, first + i, 0, ops->stats(row, cols, pass->scale));
        }
    }
}

/* Fill row_sums: m sums of squares, then m largest magnitudes, of the columns of this process. */
static mu_row_survey survey_pass_over(const mu_run *run, const mu_oriented *matrix,
                                      const mu_rows *ops, double scale)
{
    size_t m = run->plan->m;
    mu_row_survey into = {
        .rows = m, .sums = run->row_sums, .largest = run->row_sums + m, .pieces = 1};
    survey_pass pass = {into, *matrix, run->plan->n, ops, scale};
    mu_pool_run(survey_task, &pass, (m + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK,
                run->with.workers);
    return into;
}

mu_survey mu_survey_matrix(const mu_run *run)
{
    bool wide = run->in.dtype == MUONIUM_F64;
    const mu_rows *ops = wide ? run->plan->wide : run->plan->rows;
    mu_row_survey rows = survey_pass_over(run, &run->in, ops, 1);
    mu_survey survey = mu_survey_of_rows(&rows);
    if (wide && isfinite(survey.largest) && survey.largest > 0) {
        /* The squares may have left the range of double: a second pass scales by 2^-exponent.
         * A denormal would need more than 2^1023. It is scaled by 2^1000, and the sum, which is
         * in range then, by the rest. */
        int power = survey.exponent < -1000 ? 1000 : -survey.exponent;
        double largest;
        rows = survey_pass_over(run, &run->in, ops, ldexp(1, power));
        survey.sum_squares = ldexp(sum_rows(&rows, &largest), 2 * (-survey.exponent - power));
    }
    return survey;
}

void mu_square_rows(mu_run *run)
{
    size_t m = run->plan->m;
    mu_oriented x = mu_matrix_of(&run->x);
    survey_pass_over(run, &x, run->plan->rows, 1);
    mu_combine(run->across, MU_ACROSS_SUM, MUONIUM_F64, run->row_sums, 1, m, run->row_sums);
}
