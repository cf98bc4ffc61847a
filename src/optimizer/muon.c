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

#include "optimizer/muon.h"
#include "optimizer/quantized.h"

/* ---- gather ---- */

mu_momentum_step mu_momentum_of(const mu_parameter *p, uint64_t steps)
{
    const muonium_options *o = &p->group->options;
    if (mu_selects(p)) { /* slices of the momentum decay when they are applied */
        return (mu_momentum_step){1, o->maximize ? -1 : 1, 0, 1};
    }
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
    bool half = p->group->options.state_dtype == MUONIUM_BF16;
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
bool mu_is_tall(const mu_parameter *p, const mu_matrix_place *place)
{
    const muonium_options *o = &p->group->options;
    bool turns_squares =
        o->kernels_in_out && o->plan.normalization == MUONIUM_NORM_AOL && !p->across;
    size_t rows, cols;
    mu_matrix_place direction = mu_direction_place(p, *place);
    whole_of(p, &direction, &rows, &cols);
    return rows > cols || (turns_squares && rows == cols);
}

/* The longest piece at column `done`. Pieces end at blocks of columns, so that sums do not
 * depend on which rank has which blocks. */
static size_t piece_limit(const mu_batch *b, bool tall, size_t done)
{
    size_t left = b->of->block - done % b->of->block;
    return tall || left > MU_PIECE ? MU_PIECE : left;
}

/* The survey of matrix i, which gather_rows fills. If other ranks have columns of its rows, the
 * sums of pieces are kept apart: in the order of columns, those of other ranks come between. */
mu_row_survey mu_survey_of_batch(const mu_batch *b, size_t i, const mu_matrix_place *place,
                                 bool tall)
{
    double *stats = mu_row_stats_at(b, i);
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

void mu_survey_gathered(const mu_batch *b, const mu_row_survey *survey, const float *d, size_t cols,
                        size_t row)
{
    mu_survey_start_row(survey, row);
    for (size_t done = 0, number = 0; done < cols; number++) {
        size_t left = cols - done, most = piece_limit(b, survey->tall, done);
        size_t count = left < most ? left : most;
        mu_survey_add(survey, row, number, b->schedule->rows->stats(d + done, count, 1));
        done += count;
    }
}

static void gather_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = b->first + index / b->row_tasks;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    float g_buffer[MU_PIECE];
    bool tall = mu_is_tall(p, &place);
    mu_row_survey survey = mu_survey_of_batch(b, i, &place, tall);
    bool blocks = mu_has_blocks(p), gathered = mu_gathers_blocks(p) && !b->again;
    for (size_t row = rows.first; row < rows.end; row++) {
        if (gathered && mu_row_is_cut(&place, row)) {
            mu_survey_gathered(b, &survey, mu_direction_at(b, i) + row * place.cols, place.cols,
                               row);
        }
        if (gathered) {
            continue;
        }
        mu_offset base = mu_row_base(p, &place, row);
        float *d = mu_direction_at(b, i) + row * place.cols;
        mu_survey_start_row(&survey, row);
        for (size_t done = 0, number = 0; done < place.cols; number++) {
            mu_piece piece =
                mu_piece_at(p, base, &p->matrices.cols, done, piece_limit(b, tall, done));
            const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
            gather_piece(schedule, p, &piece, &step, b->again || blocks, g, d + done);
            mu_survey_add(&survey, row, number, schedule->rows->stats(d + done, piece.count, 1));
            done += piece.count;
        }
    }
}

/* ---- apply ---- */

/* Sum the products of D and O, row by row. O has replaced D, which is computed again. */
static void multiply_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    float g_buffer[MU_PIECE], d[MU_PIECE];
    for (size_t row = rows.first; row < rows.end; row++) {
        mu_offset base = mu_row_base(p, &place, row);
        const float *o = mu_direction_at(b, i) + row * place.cols;
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
        mu_row_sums_at(b, i)[row] = sum;
    }
}

mu_update_step mu_update_of(const mu_parameter *p, const mu_matrix_place *place, double *rate)
{
    const muonium_options *o = &p->group->options;
    size_t rows, cols;
    whole_of(p, place, &rows, &cols);
    *rate = o->lr * mu_scale_of(o, rows, cols);
    if (o->spatial_normalize) {
        *rate /= sqrt((double)p->matrices.positions);
    }
    bool scaled = o->decay == MUONIUM_DECAY_CAUTIOUS_SCALED;
    double lr = o->decay == MUONIUM_DECAY_INDEPENDENT ? 1 : scaled ? *rate : o->lr;
    return (mu_update_step){.decay = (float)(lr * o->weight_decay),
                            .limit = mu_weight_limit(p),
                            .cautious = scaled || o->decay == MUONIUM_DECAY_CAUTIOUS,
                            .at_zero = scaled};
}

static void apply_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks;
    const mu_member *member = &b->scratch.batch[i];
    mu_parameter *p = member->parameter;
    const muonium_options *o = &p->group->options;
    if (mu_is_left_alone(&b->scratch.certificates[i])) {
        return;
    }
    mu_matrix_place place = mu_matrix_at(&p->matrices, member->index);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    double rate;
    mu_update_step step = mu_update_of(p, &place, &rate);
    mu_factors factors = {.rate = 1};
    if (o->adaptive || mu_has_rules(o)) {
        factors = mu_rule_factors(b, i);
        rate = fmin(rate * factors.rate, FLT_MAX);
        step.decay = o->hyperball ? (float)factors.decay : step.decay;
    }
    step.rate = (float)rate;
    float w_buffer[MU_PIECE], o_buffer[MU_PIECE];
    for (size_t row = rows.first; row < rows.end; row++) {
        mu_offset base = mu_row_base(p, &place, row);
        const float *result = mu_direction_at(b, i) + row * place.cols;
        if (factors.rows) {
            step.rate = (float)(rate * factors.rows[row]);
        }
        for (size_t done = 0; done < place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            float *w = mu_load_weights(schedule, p, &piece, w_buffer);
            const float *update = result + done;
            if (factors.columns) {
                schedule->elementwise->multiply(update, factors.columns + done, o_buffer,
                                                piece.count);
                update = o_buffer;
            }
            schedule->elementwise->update(&step, update, w, piece.count);
            mu_store_weights(schedule, p, &piece, w);
            done += piece.count;
        }
    }
}

/* ---- batches ---- */

static void orient_direction(const mu_batch *b, size_t i)
{
    const mu_parameter *p = b->scratch.batch[i].parameter;
    mu_matrix_place place = mu_place_at(b, i);
    mu_matrix_place direction = mu_direction_place(p, place);
    bool tall = mu_is_tall(p, &place);
    b->scratch.oriented[i] = (mu_oriented){
        .data = (char *)mu_direction_at(b, i),
        .dtype = MUONIUM_F32,
        .row_stride = tall ? 1 : (ptrdiff_t)direction.cols,
        .col_stride = tall ? (ptrdiff_t)direction.cols : 1,
    };
    mu_row_survey rows = mu_survey_of_batch(b, i, &direction, tall);
    b->scratch.surveys[i] = mu_survey_of_rows(&rows);
    b->scratch.certificates[i] = (muonium_certificate){.outcome = MUONIUM_ORTHOGONALIZED};
}

void mu_gather(const mu_batch *b, size_t count)
{
    if (b->of->group->options.fraction < 1) {
        mu_gather_selected(b, count);
    } else {
        if (b->of->group->options.state_dtype == MUONIUM_INT8 && !b->again) {
            mu_gather_blocks(b, count);
        }
        mu_pool_run(gather_rows, (void *)(uintptr_t)b, count * b->row_tasks, mu_pool_workers());
    }
    mu_equilibrate(b, count);
}

/* Orthogonalise a matrix again on which the iteration diverged. The iteration overwrote D, so
 * gather it again from the updated momentum. */
static void repeat(const mu_batch *b, size_t i)
{
    const mu_scratch *scratch = &b->scratch;
    mu_batch one = *b;
    one.first = i;
    one.again = true;
    mu_gather(&one, 1);
    mu_plan_run_carefully(b->of->plan, &scratch->oriented[i], &scratch->surveys[i], b->of->across,
                          scratch->workspace, &scratch->certificates[i]);
}

static void multiply_batch(const mu_batch *b, unsigned workers)
{
    mu_pool_run(multiply_rows, (void *)(uintptr_t)b, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        const mu_member *member = &b->scratch.batch[i];
        mu_matrix_place place = mu_matrix_at(&member->parameter->matrices, member->index);
        for (size_t row = 1; row < place.rows; row++) {
            mu_row_sums_at(b, i)[0] += mu_row_sums_at(b, i)[row];
        }
    }
}

/* The batch is in scratch.batch. Leaves its certificates at the parameters. */
static void run_batch(mu_batch *b)
{
    const mu_class *of = b->of;
    mu_scratch *scratch = &b->scratch;
    unsigned workers = mu_pool_workers();
    mu_gather(b, b->count);
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
    if (of->group->options.adaptive) {
        multiply_batch(b, workers);
    }
    if (mu_has_rules(&of->group->options)) {
        mu_finish_directions(b);
    }
    if (of->group->options.fraction < 1) {
        mu_apply_selected(b);
    } else {
        mu_pool_run(apply_rows, b, b->count * b->row_tasks, workers);
    }
    for (size_t i = 0; i < b->count; i++) {
        const mu_member *member = &scratch->batch[i];
        member->parameter->certificates[member->index] = scratch->certificates[i];
    }
}

/* The active ones among these members of a class, by one team. */
static void run_members(const mu_schedule *schedule, const mu_class *of, size_t first, size_t count,
                        unsigned team)
{
    mu_batch b = {.schedule = schedule,
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
    counters->skipped += mu_is_left_alone(certificate);
    counters->rescued += (uint64_t)certificate->rescued;
    if (mu_is_left_alone(certificate) && optimizer->log) {
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
    mu_update_shared_blocks(optimizer);
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
