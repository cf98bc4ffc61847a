/*
 * steps.c: what a step of any form is made of: the Gram matrix, the watch over it,
 * the polynomial and the move of X. In the half modes every result is rounded as it
 * would be by storing it, and parts of it as plan->round says.
 */
#include <math.h>

#include "coefficients/coefficients.h"
#include "orthogonalize/plan.h"

enum { ROWS_PER_TASK = 32, SUMMED_ROWS = 16 };

/* ---- passes over rows ---- */

typedef struct row_pass {
    const mu_iteration *it;
    char *matrix;
    const char *other;
    size_t rows, n, ld;
    double factor, other_factor;
    void (*visit)(const struct row_pass *pass, size_t i);
} row_pass;

static void *row_at(const row_pass *pass, const char *matrix, size_t i)
{
    size_t bytes = muonium_dtype_size(pass->it->plan->kernel->type);
    return (char *)(uintptr_t)matrix + i * pass->ld * bytes;
}

static void visit_rows(void *context, size_t index, unsigned worker)
{
    const row_pass *pass = context;
    (void)worker;
    size_t end = (index + 1) * ROWS_PER_TASK;
    for (size_t i = index * ROWS_PER_TASK; i < end && i < pass->rows; i++) {
        pass->visit(pass, i);
    }
}

static void run_pass(const row_pass *pass)
{
    mu_pool_run(visit_rows, (void *)(uintptr_t)pass,
                (pass->rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK, pass->it->with.workers);
}

static void scale_row(const row_pass *pass, size_t i)
{
    pass->it->plan->rows->scale(row_at(pass, pass->matrix, i), pass->n, pass->factor);
}

static void round_row(const row_pass *pass, size_t i)
{
    pass->it->plan->rows->round(row_at(pass, pass->matrix, i), pass->n,
                                pass->it->plan->options.precision);
}

static void combine_row(const row_pass *pass, size_t i)
{
    pass->it->plan->rows->combine(row_at(pass, pass->matrix, i), pass->factor,
                                  row_at(pass, pass->other, i), pass->other_factor, pass->n,
                                  pass->it->plan->options.precision);
}

/* matrix = round(factor * other) */
static void multiple_row(const row_pass *pass, size_t i)
{
    const muonium_plan *plan = pass->it->plan;
    void *row = row_at(pass, pass->matrix, i);
    plan->rows->add(row, row_at(pass, pass->other, i), pass->n, pass->factor, false);
    plan->rows->round(row, pass->n, plan->options.precision);
}

void mu_scale_rows(mu_iteration *it, void *matrix, size_t rows, size_t n, size_t ld, double factor)
{
    row_pass pass = {it, matrix, NULL, rows, n, ld, factor, 0, scale_row};
    run_pass(&pass);
}

static void round_rows(mu_iteration *it, void *matrix, size_t n, size_t ld)
{
    if (it->plan->half) {
        row_pass pass = {it, matrix, NULL, it->plan->m, n, ld, 0, 0, round_row};
        run_pass(&pass);
    }
}

/* ---- the watch ---- */

/* Below the diagonal: the sum of squares of each row of R, into row_sums. */
static void square_row(const row_pass *pass, size_t i)
{
    pass->it->row_sums[i] = pass->it->plan->rows->squares(row_at(pass, pass->matrix, i), i, 1);
}

static void absolute_row(const row_pass *pass, size_t i)
{
    pass->it->row_sums[i] = pass->it->plan->rows->abs_sum(row_at(pass, pass->matrix, i), pass->n);
}

static double diagonal_of(const mu_iteration *it, size_t i)
{
    size_t at = i * it->plan->ldr + i;
    return it->plan->kernel->type == MUONIUM_F32 ? (double)((const float *)it->square[0])[at]
                                                 : ((const double *)it->square[0])[at];
}

mu_look mu_look_at_gram(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    row_pass pass = {it, it->square[0], NULL, plan->m, plan->m, plan->ldr, 0, 0, square_row};
    mu_look seen = {0, 0, 0, 0, 0};
    run_pass(&pass);
    for (size_t i = 0; i < plan->m; i++) {
        double value = diagonal_of(it, i);
        seen.off += 2 * it->row_sums[i];
        seen.diagonal += value * value;
        seen.strayed += (value - 1) * (value - 1);
        seen.trace += value;
        seen.largest = value > seen.largest ? value : seen.largest;
    }
    return seen;
}

/* Scale R so that its eigenvalues are at most 1; the factor on X. With care that is the
 * largest of them; else what is at hand: the smaller of the Frobenius norm and the largest
 * sum of magnitudes in a row. */
static double rescue(mu_iteration *it, mu_look *seen, double above)
{
    const muonium_plan *plan = it->plan;
    if (!plan->careful) {
        row_pass pass = {it, it->square[0], NULL, plan->m, plan->m, plan->ldr, 0, 0, absolute_row};
        double widest = 0;
        above = sqrt(seen->off + seen->diagonal);
        run_pass(&pass);
        for (size_t i = 0; i < plan->m; i++) {
            widest = it->row_sums[i] > widest ? it->row_sums[i] : widest;
        }
        above = widest < above ? widest : above;
    }
    mu_scale_rows(it, it->square[0], plan->m, plan->m, plan->ldr, 1 / above);
    round_rows(it, it->square[0], plan->m, plan->ldr);
    it->certificate.rescued++;
    it->ceiling = 1;
    seen->off /= above * above;
    seen->strayed = seen->diagonal / (above * above) - 2 * seen->trace / above + (double)plan->m;
    return 1 / sqrt(above);
}

bool mu_may_stray(const mu_iteration *it, int t)
{
    double room = it->plan->half ? 1.02 : 1.001; /* for rounding */
    return !(it->ceiling * room < it->plan->edge[t]);
}

double mu_watch(mu_iteration *it, int t)
{
    const muonium_plan *plan = it->plan;
    double factor = 1;
    bool last = t == plan->options.steps - 1;
    if (last || plan->careful || mu_may_stray(it, t)) {
        mu_look seen = mu_look_at_gram(it);
        /* tr(R^2) / tr(R) is an average of the eigenvalues, and no diagonal element
         * exceeds the largest: both are below it, so a rescue is never in vain. With care
         * the largest itself is found. */
        double average = seen.trace > 0 ? (seen.off + seen.diagonal) / seen.trace : 0;
        double largest = plan->careful ? mu_largest_eigenvalue(it) : fmax(average, seen.largest);
        if (largest > plan->edge[t] * plan->edge[t]) {
            factor = rescue(it, &seen, largest);
        }
        if (last) {
            it->certificate.deviation = sqrt(seen.off + seen.strayed);
            it->certificate.bound = mu_bound_after_step(it, it->certificate.deviation);
        }
    }
    it->ceiling = mu_reach((const double(*)[3])plan->table, t, t + 1, it->ceiling);
    return factor;
}

/* ---- products ---- */

void mu_take_gram(mu_iteration *it)
{
    const muonium_plan *plan = it->plan;
    if (!it->has_gram) {
        mu_gram_of_x(it);
        round_rows(it, it->square[0], plan->m, plan->ldr);
    }
    it->has_gram = false;
}

/* to = round(factor * from); may be the same. */
static mu_operand take_multiple(mu_iteration *it, double factor, const void *from, void *to)
{
    const muonium_plan *plan = it->plan;
    row_pass pass = {it, to, from, plan->m, plan->m, plan->ldr, factor, 0, multiple_row};
    run_pass(&pass);
    return mu_operand_of(plan->kernel, to, plan->ldr, 1, 0);
}

/* z = round(b R + c R^2), the square being rounded itself, and what else plan->round says. */
static void combine_rounded(mu_iteration *it, double b, double c, void *z)
{
    const muonium_plan *plan = it->plan;
    mu_operand r = mu_operand_of(plan->kernel, it->square[0], plan->ldr, 1, 0), term = r;
    void *spare = it->square[2];
    if (plan->round.factor) {
        /* c R, rounded, does not commute with R: both triangles are needed. */
        mu_operand left = take_multiple(it, c, r.data, spare);
        mu_apply(&it->with, plan->m, plan->m, &left, &r, z, plan->ldr, 1);
        c = 1;
    } else {
        mu_symmul(&it->with, plan->m, &r, &r, z, plan->ldr);
    }
    if (plan->round.scaled) {
        round_rows(it, z, plan->m, plan->ldr);
        take_multiple(it, c, z, z);
        c = 1;
    }
    if (plan->round.linear) {
        term = take_multiple(it, b, r.data, spare);
        b = 1;
    }
    row_pass pass = {it, z, term.data, plan->m, plan->m, plan->ldr, c, b, combine_row};
    run_pass(&pass);
}

mu_operand mu_polynomial(mu_iteration *it, int t, void *z)
{
    const muonium_plan *plan = it->plan;
    const mu_kernel *kernel = plan->kernel;
    const double *abc = plan->table[t];
    const void *r = it->square[0];
    if (plan->round.square) {
        combine_rounded(it, abc[1], abc[2], z);
    } else if (abc[2] == 0 && !plan->half) {
        return mu_operand_of(kernel, r, plan->ldr, abc[1], abc[0]);
    } else {
        mu_operand left = mu_operand_of(kernel, r, plan->ldr, abc[2], abc[1]);
        mu_operand right = mu_operand_of(kernel, r, plan->ldr, 1, 0);
        mu_symmul(&it->with, plan->m, &left, &right, z, plan->ldr);
        round_rows(it, z, plan->m, plan->ldr);
    }
    return mu_operand_of(kernel, z, plan->ldr, 1, abc[0]);
}

void mu_multiply(mu_iteration *it, const mu_operand *a, const mu_operand *b, void *to)
{
    mu_symmul(&it->with, it->plan->m, a, b, to, it->plan->ldr);
    round_rows(it, to, it->plan->m, it->plan->ldr);
}

/* Whether products can be stored there. */
static bool takes_products(const mu_iteration *it, const mu_oriented *matrix)
{
    return matrix->dtype == it->plan->kernel->type && matrix->row_stride > 0 &&
           matrix->col_stride > 0 && (matrix->row_stride == 1 || matrix->col_stride == 1);
}

static void round_x(mu_iteration *it, const mu_oriented *x)
{
    mu_lines lines = mu_lines_of(it->plan, x);
    row_pass pass = {it, x->data, NULL, lines.count, lines.length, lines.ld, 0, 0, round_row};
    run_pass(&pass);
}

/* Columns [first, first + cols) of X, and their product with Z as rows ldr apart. */
typedef struct summation {
    const mu_iteration *it;
    char *product;
    size_t first, cols;
    double factor;
} summation;

/* X = round(round(factor * X) + round(product)) */
static void sum_rows(void *context, size_t index, unsigned worker)
{
    enum { PIECE = 128 };
    const summation *s = context;
    const muonium_plan *plan = s->it->plan;
    const mu_rows *ops = plan->rows;
    muonium_dtype half = plan->options.precision;
    size_t bytes = muonium_dtype_size(ops->type), row = index * SUMMED_ROWS;
    size_t rows = plan->m - row < SUMMED_ROWS ? plan->m - row : SUMMED_ROWS;
    double buffer[SUMMED_ROWS * PIECE]; /* of the kernel's type */
    (void)worker;
    for (size_t j = 0; j < s->cols; j += PIECE) {
        size_t cols = s->cols - j < PIECE ? s->cols - j : PIECE;
        mu_block place = mu_block_at(&s->it->home, row, s->first + j, rows, cols);
        ops->load(&place, buffer, PIECE);
        for (size_t i = 0; i < rows; i++) {
            char *x = (char *)buffer + i * PIECE * bytes;
            char *product = s->product + ((row + i) * plan->ldr + j) * bytes;
            ops->scale(x, cols, s->factor);
            ops->round(x, cols, half);
            ops->round(product, cols, half);
            ops->add(x, product, cols, 1, true);
            ops->round(x, cols, half);
        }
        ops->store(buffer, PIECE, &place);
    }
}

/* The same, a X and Z X being rounded before they are added: by blocks of so many columns of X
 * that those of Z X fit into a square. With a rounded factor c R, Z is not symmetric, which apply
 * allows where the result lies row by row. */
static void advance_rounded(mu_iteration *it, const mu_operand *q)
{
    const muonium_plan *plan = it->plan;
    summation s = {it, it->square[2], 0, plan->m, q->shift * it->x.scale};
    mu_operand z = *q;
    z.shift = 0;
    for (; s.first < plan->n; s.first += s.cols) {
        s.cols = plan->n - s.first < plan->m ? plan->n - s.first : plan->m;
        mu_operand x = it->x;
        x.data = mu_block_at(&it->home, 0, s.first, plan->m, s.cols).data;
        mu_apply(&it->with, plan->m, s.cols, &z, &x, s.product, plan->ldr, 1);
        mu_pool_run(sum_rows, &s, (plan->m + SUMMED_ROWS - 1) / SUMMED_ROWS, it->with.workers);
    }
    it->x = mu_operand_at(&it->home);
    it->delivered = it->home.data == it->out.data;
}

void mu_advance(mu_iteration *it, const mu_operand *q, bool last)
{
    const muonium_plan *plan = it->plan;
    if (plan->round.sum) {
        advance_rounded(it, q);
        return;
    }
    bool same = it->keeps_input && it->out.data == it->in.data;
    bool deliver = last && !plan->half && !same && takes_products(it, &it->out);
    const mu_oriented *to = deliver ? &it->out : &it->home;
    mu_apply(&it->with, plan->m, plan->n, q, &it->x, to->data, (size_t)to->row_stride,
             (size_t)to->col_stride);
    it->x = mu_operand_at(to);
    it->delivered = to->data == it->out.data;
    if (plan->half) {
        round_x(it, to);
    }
}
