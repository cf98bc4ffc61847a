/*
 * muon.c: the Muon half of a step, batch by batch:
 *
 *     gather  momentum, direction D and its survey, in one pass over gradient and momentum
 *     run     orthogonalise the batch: O = polar factor of D
 *     apply   decay and update, in one pass over parameter and O
 */
#include <math.h>
#include <stdio.h>

#include "optimizer/schedule.h"

enum { ROWS_PER_TASK = 16 };

/* The present batch. Every matrix has `row_tasks` tasks. Wide and tall matrices are in one
 * class, so that some tasks have no rows. */
typedef struct batch {
    mu_schedule *schedule;
    const mu_class *of;
    size_t count;
    size_t row_tasks;
    size_t first; /* gather: the first matrix */
    bool again;   /* gather: its momentum was updated before */
} batch;

static float *direction_at(const batch *b, size_t i)
{
    return b->schedule->directions + i * mu_direction_size(b->of->m, b->of->n);
}

/* Two numbers per row: the sum of squares and the largest magnitude. */
static double *row_stats_at(const batch *b, size_t i)
{
    return b->schedule->row_stats + 2 * i * b->of->longer;
}

/* ---- gather ---- */

mu_momentum_step mu_momentum_of(const mu_parameter *p, uint64_t steps)
{
    const muonium_options *o = &p->group->options;
    double mu = o->momentum, t = (double)steps;
    bool corrected = o->momentum_form == MUONIUM_MOMENTUM_EMA_CORRECTED;
    bool sum = o->momentum_form == MUONIUM_MOMENTUM_SUM;
    double unbias = corrected ? 1 / (1 - pow(mu, t)) : 1;
    double of_g = 0, of_m = unbias;
    if (o->nesterov && corrected && o->nesterov_form == MUONIUM_NESTEROV_AUTO) {
        of_g = (1 - mu) * unbias;
        of_m = mu / (1 - pow(mu, t + 1));
    } else if (o->nesterov) {
        bool sum_ahead = o->nesterov_form == MUONIUM_NESTEROV_AUTO
                             ? sum
                             : o->nesterov_form == MUONIUM_NESTEROV_SUM;
        of_g = sum_ahead ? 1 : 1 - mu;
        of_m = mu * unbias;
    }
    double sign = o->maximize ? -1 : 1; /* of the gradient */
    mu_momentum_step step = {(float)mu, (float)(sign * (sum ? 1 : 1 - mu)), (float)(sign * of_g),
                             (float)of_m};
    return step;
}

/* Compute the direction of a piece, and update its momentum unless that was done `before`. The
 * direction uses the momentum as stored, which matters for bf16. */
static void gather_piece(const mu_schedule *schedule, const mu_parameter *p, const mu_piece *piece,
                         const mu_momentum_step *step, bool before, const float *g, float *d)
{
    float buffer[MU_PIECE];
    bool half = p->group->options.state_dtype != MUONIUM_F32;
    float *m = mu_load_momentum(schedule, p, piece, buffer);
    if (!before) {
        schedule->elementwise->momentum(step, g, m, d, piece->count);
        mu_store_momentum(schedule, p, piece, m);
        m = half ? mu_load_momentum(schedule, p, piece, buffer) : m;
    }
    if (before || half) {
        schedule->elementwise->direction(step, g, m, d, piece->count);
    }
}

/* The shape of the whole matrix: larger than the place if other ranks have columns of it. */
static void whole_of(const mu_parameter *p, const mu_matrix_place *place, size_t *rows,
                     size_t *cols)
{
    *rows = p->across ? p->across->rows : place->rows;
    *cols = p->across ? p->across->cols : place->cols;
}

/* Whether the transpose is orthogonalised. AOL divides rows, so its result depends on this even
 * for square matrices: optax divides the rows of (in, out) kernels. */
static bool is_tall(const mu_parameter *p, const mu_matrix_place *place)
{
    const muonium_options *o = &p->group->options;
    bool turns_squares =
        o->kernels_in_out && o->plan.normalization == MUONIUM_NORM_AOL && !p->across;
    size_t rows, cols;
    whole_of(p, place, &rows, &cols);
    return rows > cols || (turns_squares && rows == cols);
}

/* The longest piece at column `done`. Pieces end at blocks of columns, so that sums do not
 * depend on which rank has which blocks. */
static size_t piece_limit(const batch *b, bool tall, size_t done)
{
    size_t left = b->of->block - done % b->of->block;
    return tall || left > MU_PIECE ? MU_PIECE : left;
}

static void gather_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = b->first + index / b->row_tasks, first = index % b->row_tasks * ROWS_PER_TASK;
    const mu_member *member = &schedule->batch[i];
    mu_parameter *p = member->parameter;
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    float g_buffer[MU_PIECE];
    bool tall = is_tall(p, &place);
    for (size_t row = first; row < first + ROWS_PER_TASK && row < place.rows; row++) {
        mu_offset base = mu_walk_to(&p->matrices.rows, place.first_row + row);
        base.data += place.base.data;
        base.grad += place.base.grad;
        base.state += place.base.state;
        float *d = direction_at(b, i) + row * place.cols;
        double sum = 0, largest = 0;
        size_t number = 0;
        for (size_t done = 0; done < place.cols; number++) {
            mu_piece piece =
                mu_piece_at(p, base, &p->matrices.cols, done, piece_limit(b, tall, done));
            const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
            gather_piece(schedule, p, &piece, &step, b->again, g, d + done);
            mu_row_stats stats = schedule->rows->stats(d + done, piece.count, 1);
            sum += stats.sum_squares;
            if (p->across && !tall) {
                ((double *)p->across->memory)[number * place.rows + row] = stats.sum_squares;
            }
            largest = mu_larger(largest, stats.largest);
            done += piece.count;
        }
        row_stats_at(b, i)[2 * row] = sum;
        row_stats_at(b, i)[2 * row + 1] = largest;
    }
}

/* The survey of a matrix from its rows, in their order. */
static mu_survey survey_rows(const double *stats, size_t rows)
{
    double sum = 0, largest = 0;
    for (size_t row = 0; row < rows; row++) {
        sum += stats[2 * row];
        largest = mu_larger(largest, stats[2 * row + 1]);
    }
    return mu_survey_of(largest, sum);
}

/* The same with columns elsewhere: rows that go on there, or rows that follow there. */
static mu_survey survey_across(const batch *b, size_t i, const mu_matrix_place *place)
{
    const mu_across *across = b->of->across;
    double *stats = row_stats_at(b, i), *memory = across->memory, largest = 0, sum = 0;
    for (size_t row = 0; row < place->rows; row++) {
        largest = mu_larger(largest, stats[2 * row + 1]);
    }
    if (across->rows > across->cols) {
        for (size_t row = 0; row < place->rows; row++) {
            memory[row] = stats[2 * row];
        }
        across->combine(across->context, MU_ACROSS_SUM, MUONIUM_F64, memory, place->rows, 1, &sum);
    } else {
        size_t pieces = 0;
        for (size_t done = 0; done < place->cols; pieces++) {
            size_t piece = piece_limit(b, false, done), left = place->cols - done;
            done += piece < left ? piece : left;
        }
        double *total = memory + pieces * place->rows;
        across->combine(across->context, MU_ACROSS_SUM, MUONIUM_F64, memory, pieces, place->rows,
                        total);
        for (size_t row = 0; row < place->rows; row++) {
            sum += total[row];
        }
    }
    across->combine(across->context, MU_ACROSS_LARGEST, MUONIUM_F64, &largest, 1, 1, &largest);
    return mu_survey_of(largest, sum);
}

/* ---- apply ---- */

/* Whether the matrix has no O and stays as it is. */
static bool is_left_alone(const muonium_certificate *certificate)
{
    return certificate->outcome == MUONIUM_SKIPPED || certificate->outcome == MUONIUM_DIVERGED;
}

/* NorMuon: divide each row of O by the root of the running mean of its squares, then scale all
 * rows to restore the norm of O. The factor of each row replaces its sum of squares. */
static void normalize_rows(const batch *b, size_t i, const mu_matrix_place *place, float *running)
{
    const muonium_options *o = &b->of->group->options;
    double *stats = row_stats_at(b, i), before = 0, after = 0;
    for (size_t row = 0; row < place->rows; row++) {
        double sum = stats[2 * row], mean = sum / (double)place->cols;
        running[row] =
            (float)(o->normuon_beta2 * (double)running[row] + (1 - o->normuon_beta2) * mean);
        double root = sqrt((double)running[row]) + o->normuon_eps;
        double factor = root > 0 ? 1 / root : 0;
        before += sum;
        after += sum * factor * factor;
        stats[2 * row] = factor;
    }
    double restore = after > 0 ? sqrt(before / after) : 0;
    for (size_t row = 0; row < place->rows; row++) {
        stats[2 * row] *= restore;
    }
}

static void square_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    (void)worker;
    size_t i = index / b->row_tasks, first = index % b->row_tasks * ROWS_PER_TASK;
    const mu_member *member = &b->schedule->batch[i];
    mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
    for (size_t row = first; row < first + ROWS_PER_TASK && row < place.rows; row++) {
        const float *o = direction_at(b, i) + row * place.cols;
        row_stats_at(b, i)[2 * row] = b->schedule->rows->squares(o, place.cols, 1);
    }
}

static void apply_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks, first = index % b->row_tasks * ROWS_PER_TASK;
    const mu_member *member = &schedule->batch[i];
    mu_parameter *p = member->parameter;
    const muonium_options *o = &p->group->options;
    if (is_left_alone(&schedule->certificates[i])) {
        return;
    }
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    size_t rows, cols;
    whole_of(p, &place, &rows, &cols);
    double rate = o->lr * mu_scale_of(o, rows, cols);
    if (o->spatial_normalize) {
        rate /= sqrt((double)p->matrices.positions);
    }
    double decay =
        o->decay == MUONIUM_DECAY_INDEPENDENT ? o->weight_decay : o->lr * o->weight_decay;
    mu_update_step step = {.decay = (float)decay,
                           .rate = (float)rate,
                           .limit = mu_weight_limit(p),
                           .cautious = o->decay == MUONIUM_DECAY_CAUTIOUS};
    float w_buffer[MU_PIECE];
    for (size_t row = first; row < first + ROWS_PER_TASK && row < place.rows; row++) {
        mu_offset base = mu_walk_to(&p->matrices.rows, place.first_row + row);
        base.data += place.base.data;
        base.state += place.base.state;
        const float *result = direction_at(b, i) + row * place.cols;
        if (o->normuon) {
            step.rate = (float)(rate * row_stats_at(b, i)[2 * row]);
        }
        for (size_t done = 0; done < place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            float *w = mu_load_weights(schedule, p, &piece, w_buffer);
            schedule->elementwise->update(&step, result + done, w, piece.count);
            mu_store_weights(schedule, p, &piece, w);
            done += piece.count;
        }
    }
}

/* ---- batches ---- */

static void orient(const batch *b, size_t i)
{
    const mu_schedule *schedule = b->schedule;
    const mu_member *member = &schedule->batch[i];
    mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
    bool tall = is_tall(member->parameter, &place);
    schedule->oriented[i] = (mu_oriented){
        .data = (char *)direction_at(b, i),
        .dtype = MUONIUM_F32,
        .row_stride = tall ? 1 : (ptrdiff_t)place.cols,
        .col_stride = tall ? (ptrdiff_t)place.cols : 1,
    };
    schedule->surveys[i] =
        b->of->across ? survey_across(b, i, &place) : survey_rows(row_stats_at(b, i), place.rows);
    schedule->certificates[i] = (muonium_certificate){.outcome = MUONIUM_ORTHOGONALIZED};
}

static void count_outcome(muonium_optimizer *optimizer, const mu_member *member,
                          const muonium_certificate *certificate)
{
    const mu_across *across = member->parameter->across;
    member->parameter->certificates[member->index] = *certificate;
    member->parameter->certified = true;
    if (across && !across->first) {
        return; /* the rank with the first columns counts the matrix */
    }
    muonium_counters *counters = &optimizer->counters;
    counters->matrices += certificate->outcome == MUONIUM_ORTHOGONALIZED;
    counters->zero += certificate->outcome == MUONIUM_ZERO;
    counters->skipped += is_left_alone(certificate);
    counters->rescued += (uint64_t)certificate->rescued;
    if (is_left_alone(certificate) && optimizer->log) {
        char line[512];
        snprintf(line, sizeof line, "matrix %zu of %.300s was left as it is: %s", member->index,
                 member->parameter->name,
                 certificate->outcome == MUONIUM_DIVERGED ? "its orthogonalisation diverged"
                                                          : "its momentum is not finite");
        mu_log(optimizer, line);
    }
}

/* Orthogonalise a matrix again on which the iteration diverged. The iteration overwrote D, so
 * gather it again from the updated momentum. */
static void repeat(const batch *b, size_t i)
{
    const mu_schedule *schedule = b->schedule;
    batch one = *b;
    one.first = i;
    one.again = true;
    mu_pool_run(gather_rows, &one, b->row_tasks, mu_pool_workers());
    mu_plan_run_carefully(b->of->plan, &schedule->oriented[i], &schedule->surveys[i], b->of->across,
                          schedule->workspace, &schedule->certificates[i]);
}

static void run_batch(muonium_optimizer *optimizer, const mu_class *of, size_t count)
{
    mu_schedule *schedule = optimizer->schedule;
    batch b = {schedule, of, count, (of->longer + ROWS_PER_TASK - 1) / ROWS_PER_TASK, 0, false};
    unsigned workers = mu_pool_workers();
    mu_pool_run(gather_rows, &b, count * b.row_tasks, workers);
    for (size_t i = 0; i < count; i++) {
        orient(&b, i);
    }
    if (of->across) {
        mu_plan_run_across(of->plan, schedule->oriented, schedule->surveys, of->across,
                           schedule->workspace, schedule->certificates);
    } else {
        mu_plan_run(of->plan, count, schedule->oriented, schedule->surveys, schedule->workspace,
                    schedule->certificates);
    }
    for (size_t i = 0; i < count; i++) {
        if (schedule->certificates[i].outcome == MUONIUM_DIVERGED) {
            repeat(&b, i);
        }
    }
    if (of->group->options.normuon) {
        mu_pool_run(square_rows, &b, count * b.row_tasks, workers);
        for (size_t i = 0; i < count; i++) {
            const mu_member *member = &schedule->batch[i];
            const mu_matrices *matrices = &member->parameter->matrices;
            mu_matrix_place place = mu_matrix_at(matrices, member->index);
            size_t at = member->index / matrices->blocks * matrices->rows.total;
            if (is_left_alone(&schedule->certificates[i])) {
                continue; /* keep non-finite values out of the running mean */
            }
            float *running = member->parameter->state[MU_STATE_NORMUON];
            normalize_rows(&b, i, &place, running + at + place.first_row);
        }
    }
    mu_pool_run(apply_rows, &b, count * b.row_tasks, workers);
    for (size_t i = 0; i < count; i++) {
        count_outcome(optimizer, &schedule->batch[i], &schedule->certificates[i]);
    }
}

void mu_step_muon(muonium_optimizer *optimizer)
{
    mu_schedule *schedule = optimizer->schedule;
    for (size_t c = 0; c < schedule->class_count; c++) {
        const mu_class *of = &schedule->classes[c];
        size_t count = 0;
        mu_schedule_use(schedule, of);
        for (size_t i = 0; i < of->count; i++) {
            if (schedule->active[of->members[i].parameter->number]) {
                schedule->batch[count++] = of->members[i];
            }
            if (count > 0 && (count == of->capacity || i + 1 == of->count)) {
                run_batch(optimizer, of, count);
                count = 0;
            }
        }
    }
}
