/*
 * muon.c: the Muon half of a step, batch by batch, several batches at a time by teams of workers:
 *
 *     gather  momentum, direction D and its survey, in one pass over gradient and momentum
 *     run     orthogonalise the batch: O = polar factor of D
 *     apply   decay and update, in one pass over parameter and O
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "optimizer/schedule.h"

/* A batch. Every matrix has `row_tasks` tasks. Wide and tall matrices are in one
 * class, so that some tasks have no rows. */
typedef struct batch {
    const mu_schedule *schedule;
    const mu_class *of;
    mu_scratch scratch;
    size_t count;
    size_t row_tasks;
    size_t first; /* gather: the first matrix */
    bool again;   /* gather: its momentum was updated before */
} batch;

static float *direction_at(const batch *b, size_t i)
{
    return b->scratch.directions + i * mu_direction_size(b->of->m, b->of->n);
}

/* Per row of a matrix a sum of squares; after b->of->longer of them, a largest magnitude. */
static double *row_stats_at(const batch *b, size_t i)
{
    return b->scratch.row_stats + 2 * i * b->of->longer;
}

/* After the gathering: a number per row, then their sum in the first, the dual norm of D. */
static double *dual_at(const batch *b, size_t i)
{
    return row_stats_at(b, i) + b->of->longer;
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

/* The survey of matrix i, which gather_rows fills. If other ranks have columns of its rows, the
 * sums of pieces are kept apart: in the order of columns, those of other ranks come between. */
static mu_row_survey survey_of(const batch *b, size_t i, const mu_matrix_place *place, bool tall)
{
    double *stats = row_stats_at(b, i);
    mu_row_survey s = {.rows = place->rows,
                       .sums = stats,
                       .largest = stats + b->of->longer,
                       .pieces = 1,
                       .tall = tall,
                       .across = b->of->across};
    if (s.across && !tall) {
        s.sums = s.across->memory;
        s.stride = place->rows;
        s.pieces = 0;
        for (size_t done = 0; done < place->cols; s.pieces++) {
            done += piece_limit(b, false, done);
        }
    }
    return s;
}

static void gather_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = b->first + index / b->row_tasks, first = index % b->row_tasks * MU_ROWS_PER_TASK;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    float g_buffer[MU_PIECE];
    bool tall = is_tall(p, &place);
    mu_row_survey survey = survey_of(b, i, &place, tall);
    for (size_t row = first; row < first + MU_ROWS_PER_TASK && row < place.rows; row++) {
        mu_offset base = mu_walk_to(&p->matrices.rows, place.first_row + row);
        base.data += place.base.data;
        base.grad += place.base.grad;
        base.state += place.base.state;
        float *d = direction_at(b, i) + row * place.cols;
        mu_survey_start_row(&survey, row);
        for (size_t done = 0, number = 0; done < place.cols; number++) {
            mu_piece piece =
                mu_piece_at(p, base, &p->matrices.cols, done, piece_limit(b, tall, done));
            const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
            gather_piece(schedule, p, &piece, &step, b->again, g, d + done);
            mu_survey_add(&survey, row, number, schedule->rows->stats(d + done, piece.count, 1));
            done += piece.count;
        }
    }
}

/* ---- apply ---- */

/* Whether the matrix has no O and stays as it is. */
static bool is_left_alone(const muonium_certificate *certificate)
{
    return certificate->outcome == MUONIUM_SKIPPED || certificate->outcome == MUONIUM_DIVERGED;
}

/* NorMuon: divide each row of O by the root of the running mean of its squares, then scale all
 * rows to restore the norm of O. The factor of each row replaces its sum of squares. */
static void apply_normuon(const batch *b, size_t i, const mu_matrix_place *place, float *running)
{
    const muonium_options *o = &b->of->group->options;
    double *stats = row_stats_at(b, i), before = 0, after = 0;
    for (size_t row = 0; row < place->rows; row++) {
        double sum = stats[row], mean = sum / (double)place->cols;
        running[row] =
            (float)(o->normuon_beta2 * (double)running[row] + (1 - o->normuon_beta2) * mean);
        double root = sqrt((double)running[row]) + o->normuon_eps;
        double factor = root > 0 ? 1 / root : 0;
        before += sum;
        after += sum * factor * factor;
        stats[row] = factor;
    }
    double restore = after > 0 ? sqrt(before / after) : 0;
    for (size_t row = 0; row < place->rows; row++) {
        stats[row] *= restore;
    }
}

static void square_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    (void)worker;
    size_t i = index / b->row_tasks, first = index % b->row_tasks * MU_ROWS_PER_TASK;
    const mu_member *member = &b->scratch.batch[i];
    mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
    for (size_t row = first; row < first + MU_ROWS_PER_TASK && row < place.rows; row++) {
        const float *o = direction_at(b, i) + row * place.cols;
        row_stats_at(b, i)[row] = b->schedule->rows->squares(o, place.cols, 1);
    }
}

/* Sum the products of D and O, row by row. O has replaced D, which is computed again. */
static void multiply_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks, first = index % b->row_tasks * MU_ROWS_PER_TASK;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    float g_buffer[MU_PIECE], d[MU_PIECE];
    for (size_t row = first; row < first + MU_ROWS_PER_TASK && row < place.rows; row++) {
        mu_offset base = mu_walk_to(&p->matrices.rows, place.first_row + row);
        base.data += place.base.data;
        base.grad += place.base.grad;
        base.state += place.base.state;
        const float *o = direction_at(b, i) + row * place.cols;
        double sum = 0;
        for (size_t done = 0; done < place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
            gather_piece(schedule, p, &piece, &step, true, g, d);
            for (size_t j = 0; j < piece.count; j++) {
                sum += (double)d[j] * (double)o[done + j];
            }
            done += piece.count;
        }
        dual_at(b, i)[row] = sum;
    }
}

static void apply_rows(void *context, size_t index, unsigned worker)
{
    const batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks, first = index % b->row_tasks * MU_ROWS_PER_TASK;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    const muonium_options *o = &p->group->options;
    if (is_left_alone(&b->scratch.certificates[i])) {
        return;
    }
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    size_t rows, cols;
    whole_of(p, &place, &rows, &cols);
    double rate = o->lr * mu_scale_of(o, rows, cols);
    if (o->spatial_normalize) {
        rate /= sqrt((double)p->matrices.positions);
    }
    if (o->adaptive) {
        rate = fmin(rate * dual_at(b, i)[0], FLT_MAX);
    }
    double decay =
        o->decay == MUONIUM_DECAY_INDEPENDENT ? o->weight_decay : o->lr * o->weight_decay;
    mu_update_step step = {.decay = (float)decay,
                           .rate = (float)rate,
                           .limit = mu_weight_limit(p),
                           .cautious = o->decay == MUONIUM_DECAY_CAUTIOUS};
    float w_buffer[MU_PIECE];
    for (size_t row = first; row < first + MU_ROWS_PER_TASK && row < place.rows; row++) {
        mu_offset base = mu_walk_to(&p->matrices.rows, place.first_row + row);
        base.data += place.base.data;
        base.state += place.base.state;
        const float *result = direction_at(b, i) + row * place.cols;
        if (o->normuon) {
            step.rate = (float)(rate * row_stats_at(b, i)[row]);
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

static void orient_direction(const batch *b, size_t i)
{
    const mu_member *member = &b->scratch.batch[i];
    mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
    bool tall = is_tall(member->parameter, &place);
    b->scratch.oriented[i] = (mu_oriented){
        .data = (char *)direction_at(b, i),
        .dtype = MUONIUM_F32,
        .row_stride = tall ? 1 : (ptrdiff_t)place.cols,
        .col_stride = tall ? (ptrdiff_t)place.cols : 1,
    };
    mu_row_survey rows = survey_of(b, i, &place, tall);
    b->scratch.surveys[i] = mu_survey_of_rows(&rows);
    b->scratch.certificates[i] = (muonium_certificate){.outcome = MUONIUM_ORTHOGONALIZED};
}

/* Orthogonalise a matrix again on which the iteration diverged. The iteration overwrote D, so
 * gather it again from the updated momentum. */
static void repeat(const batch *b, size_t i)
{
    const mu_scratch *scratch = &b->scratch;
    batch one = *b;
    one.first = i;
    one.again = true;
    mu_pool_run(gather_rows, &one, b->row_tasks, mu_pool_workers());
    mu_plan_run_carefully(b->of->plan, &scratch->oriented[i], &scratch->surveys[i], b->of->across,
                          scratch->workspace, &scratch->certificates[i]);
}

static void square_batch(const batch *b, unsigned workers)
{
    mu_pool_run(square_rows, (void *)(uintptr_t)b, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        const mu_member *member = &b->scratch.batch[i];
        const mu_matrices *matrices = &member->parameter->matrices;
        mu_matrix_place place = mu_matrix_at(matrices, member->index);
        size_t at = member->index / matrices->blocks * matrices->rows.total;
        if (is_left_alone(&b->scratch.certificates[i])) {
            continue; /* keep non-finite values out of the running mean */
        }
        float *running = member->parameter->state[MU_STATE_NORMUON];
        apply_normuon(b, i, &place, running + at + place.first_row);
    }
}

static void multiply_batch(const batch *b, unsigned workers)
{
    mu_pool_run(multiply_rows, (void *)(uintptr_t)b, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        const mu_member *member = &b->scratch.batch[i];
        mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
        for (size_t row = 1; row < place.rows; row++) {
            dual_at(b, i)[0] += dual_at(b, i)[row];
        }
    }
}

/* The batch is in scratch.batch. Leaves its certificates at the parameters. */
static void run_batch(batch *b)
{
    const mu_class *of = b->of;
    mu_scratch *scratch = &b->scratch;
    unsigned workers = mu_pool_workers();
    mu_pool_run(gather_rows, b, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        orient_direction(b, i);
    }
    if (of->across) {
        mu_plan_run_across(of->plan, scratch->oriented, scratch->surveys, of->across,
                           scratch->workspace, scratch->certificates);
    } else {
        mu_plan_run(of->plan, b->count, scratch->oriented, scratch->surveys, scratch->workspace,
                    scratch->certificates);
    }
    for (size_t i = 0; i < b->count; i++) {
        if (scratch->certificates[i].outcome == MUONIUM_DIVERGED) {
            repeat(b, i);
        }
    }
    if (of->group->options.normuon) {
        square_batch(b, workers);
    }
    if (of->group->options.adaptive) {
        multiply_batch(b, workers);
    }
    mu_pool_run(apply_rows, b, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        const mu_member *member = &scratch->batch[i];
        member->parameter->certificates[member->index] = scratch->certificates[i];
    }
}

/* The active ones among these members of a class, by one team. */
static void run_members(const mu_schedule *schedule, const mu_class *of, size_t first, size_t count,
                        unsigned team)
{
    batch b = {.schedule = schedule,
               .of = of,
               .scratch = mu_scratch_of(schedule, of, team),
               .row_tasks = (of->longer + MU_ROWS_PER_TASK - 1) / MU_ROWS_PER_TASK};
    for (size_t i = first; i < first + count; i++) {
        if (schedule->active[of->members[i].parameter->number]) {
            b.scratch.batch[b.count++] = of->members[i];
        }
    }
    if (b.count > 0) {
        run_batch(&b);
    }
}

static void batch_job(void *context, size_t index, unsigned team)
{
    const mu_schedule *schedule = context;
    const mu_batch_job *job = &schedule->jobs[index];
    run_members(schedule, job->of, job->first, job->count, team);
}

/* ---- outcomes ---- */

static void count_outcome(muonium_optimizer *optimizer, const mu_member *member)
{
    const mu_across *across = member->parameter->across;
    const muonium_certificate *certificate = &member->parameter->certificates[member->index];
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

/* In the order of the classes, whatever the order in which teams finished. */
static void count_outcomes(muonium_optimizer *optimizer)
{
    const mu_schedule *schedule = optimizer->schedule;
    for (size_t c = 0; c < schedule->class_count; c++) {
        const mu_class *of = &schedule->classes[c];
        for (size_t i = 0; i < of->count; i++) {
            if (schedule->active[of->members[i].parameter->number]) {
                count_outcome(optimizer, &of->members[i]);
            }
        }
    }
}

void mu_step_update(muonium_optimizer *optimizer)
{
    mu_schedule *schedule = optimizer->schedule;
    for (size_t c = 0; c < schedule->class_count; c++) {
        const mu_class *of = &schedule->classes[c];
        for (size_t i = 0; of->across && i < of->count; i += of->capacity) {
            /* Processes communicate in this order, in the caller's thread. */
            size_t left = of->count - i;
            run_members(schedule, of, i, left < of->capacity ? left : of->capacity, 0);
        }
    }
    mu_jobs jobs = {.job = batch_job,
                    .context = schedule,
                    .count = schedule->job_count,
                    .teams = schedule->teams,
                    .width = schedule->width,
                    .filler = mu_adam_chunk,
                    .filler_context = schedule,
                    .filler_count = schedule->chunk_count};
    mu_pool_run_jobs(&jobs);
    count_outcomes(optimizer);
}
