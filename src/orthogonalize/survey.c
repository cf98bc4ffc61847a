/*
 * survey.c: one pass over the caller's matrix: its largest element, whether all
 * are finite, and the sum of squares. The certificate sums the squares of the result
 * in the same way.
 *
 * Sums are formed by rows of the oriented matrix in pieces of PIECE columns, then
 * over rows in order, in double. So neither threads, nor strides, nor element type
 * change a bit; and powers of two pass through, for double holds the square of any
 * f32. f64 inputs take a second pass once their exponent is known.
 */
#include <math.h>

#include "orthogonalize/run.h"

enum { PIECE = 256, ROWS = 16 };

typedef struct survey_pass {
    const mu_run *run;
    mu_oriented matrix;
    const mu_rows *ops;
    double scale;
} survey_pass;

static void survey_rows(void *context, size_t index, unsigned worker)
{
    const survey_pass *pass = context;
    const mu_run *run = pass->run;
    const mu_oriented *in = &pass->matrix;
    const mu_rows *ops = pass->ops;
    (void)worker;
    size_t bytes = muonium_dtype_size(in->dtype);
    size_t m = run->plan->m, n = run->plan->n;
    size_t first = index * ROWS, rows = m - first < ROWS ? m - first : ROWS;
    bool in_place = in->dtype == ops->type && in->col_stride == 1;
    double buffer[ROWS * PIECE];
    double *sums = run->row_sums + first, *largest = sums + m;
    for (size_t i = 0; i < rows; i++) {
        sums[i] = largest[i] = 0;
    }
    for (size_t j = 0; j < n; j += PIECE) {
        size_t cols = n - j < PIECE ? n - j : PIECE;
        ptrdiff_t at = (ptrdiff_t)first * in->row_stride + (ptrdiff_t)j * in->col_stride;
        char *corner = in->data + at * (ptrdiff_t)bytes;
        if (!in_place) {
            mu_block block = {corner, in->dtype, in->row_stride, in->col_stride, rows, cols};
            ops->load(&block, buffer, PIECE);
        }
        for (size_t i = 0; i < rows; i++) {
            const void *row =
                in_place ? (const void *)(corner + (ptrdiff_t)i * in->row_stride * (ptrdiff_t)bytes)
                         : (const void *)((const char *)buffer +
                                          i * PIECE * muonium_dtype_size(ops->type));
            mu_row_stats stats = ops->stats(row, cols, pass->scale);
            sums[i] += stats.sum_squares;
            largest[i] = mu_larger(largest[i], stats.largest);
        }
    }
}

/* The sum over rows; *largest becomes NaN or infinite if any element is. */
static double survey_pass_over(const mu_run *run, const mu_rows *ops, double scale, double *largest)
{
    size_t m = run->plan->m;
    survey_pass pass = {run, run->in, ops, scale};
    mu_pool_run(survey_rows, &pass, (m + ROWS - 1) / ROWS, run->with.workers);
    double sum = 0, spoiled = 0;
    *largest = 0;
    for (size_t i = 0; i < m; i++) {
        double value = run->row_sums[m + i];
        sum += run->row_sums[i];
        *largest = value > *largest ? value : *largest;
        spoiled += value - value;
    }
    *largest += spoiled;
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

mu_survey mu_survey_matrix(const mu_run *run)
{
    bool wide = run->in.dtype == MUONIUM_F64;
    const mu_rows *ops = wide ? run->plan->wide : run->plan->rows;
    double largest, sum = survey_pass_over(run, ops, 1, &largest);
    mu_survey survey = mu_survey_of(largest, sum);
    if (wide && isfinite(largest) && largest > 0) {
        /* The squares may have left the range of double: again, scaled. A denormal needs
         * more than 2^1023, which no double is; the rest is put on the sum, which 2^1000
         * has brought into range. */
        int power = survey.exponent < -1000 ? 1000 : -survey.exponent;
        sum = survey_pass_over(run, ops, ldexp(1, power), &largest);
        survey.sum_squares = ldexp(sum, 2 * (-survey.exponent - power));
    }
    return survey;
}

void mu_square_rows(mu_run *run)
{
    survey_pass pass = {run, mu_matrix_of(&run->x), run->plan->rows, 1};
    mu_pool_run(survey_rows, &pass, (run->plan->m + ROWS - 1) / ROWS, run->with.workers);
    mu_add_row_sums(run);
}
