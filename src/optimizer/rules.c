/*
 * rules.c: what some recipes do to a direction before and after the orthogonalisation. Every rule
 * leaves a factor per row, per column or per matrix where it can, so that the update applies it
 * without another pass; only equilibrate and AdaMuon write the matrix.
 *
 * Sums over a matrix are formed row by row and added in the order of rows, so that the number of
 * threads changes no bit.
 */
#include "optimizer/muon.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SQUARED_COLUMNS = 256 };

/* The second half of the row statistics. Rows follow the numbers of the matrix. */
enum { RATE, DECAY, ROW_SUMS };

bool mu_has_rules(const muonium_options *o)
{
    return o->renormalize || o->adamuon || o->normuon || o->hyperball;
}

/* Whether AdaMuon scales its result by the norm, instead of correcting its mean squares. */
static bool is_normalized(const muonium_options *o)
{
    return o->adamuon && o->scale == MUONIUM_SCALE_MATCH_RMS_ADAMW;
}

size_t mu_matrices_together(const mu_parameter *p)
{
    return is_normalized(&p->group->options) && p->matrices.blocks == 1 ? p->matrices.positions : 1;
}

static mu_matrix_place direction_of(const mu_batch *b, size_t i)
{
    return mu_direction_place(b->scratch.batch[i].parameter, mu_place_at(b, i));
}

static double sum_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t k = 0; k < count; k++) {
        sum += values[k];
    }
    return sum;
}

/* ---- equilibrate ---- */

static void equilibrate_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    (void)worker;
    size_t i = b->first + index / b->row_tasks;
    mu_matrix_place place = direction_of(b, i);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    mu_row_survey survey = mu_survey_of_batch(b, i, &place, false);
    for (size_t row = rows.first; row < rows.end; row++) {
        float *d = mu_direction_at(b, i) + row * place.cols;
        double factor = mu_row_stats_at(b, i)[row];
        b->schedule->rows->scale(d, place.cols, factor);
        mu_survey_start_row(&survey, row);
        mu_survey_add(&survey, row, 0, b->schedule->rows->stats(d, place.cols, 1));
    }
}

void mu_equilibrate(const mu_batch *b, size_t count)
{
    const muonium_options *o = &b->of->group->options;
    if (!o->equilibrate) {
        return;
    }
    for (size_t i = b->first; i < b->first + count; i++) {
        double *stats = mu_row_stats_at(b, i);
        size_t rows = direction_of(b, i).rows;
        /* Below the largest f32 for any one element; the iteration is scaled anyway. */
        double target = sqrt(sum_of(stats, rows) / (double)rows);
        target = target > 0x1p120 ? 0x1p120 : target;
        for (size_t row = 0; row < rows; row++) {
            double norm = sqrt(stats[row]);
            norm = norm < o->equilibrate_eps ? o->equilibrate_eps : norm;
            double factor = norm == 0 ? 1 : target / norm;
            stats[row] = factor > FLT_MAX ? FLT_MAX : factor;
        }
    }
    mu_pool_run(equilibrate_rows, (void *)(uintptr_t)b, count * b->row_tasks, mu_pool_workers());
}

/* ---- sums over O ---- */

static void square_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    (void)worker;
    size_t i = index / b->row_tasks;
    mu_matrix_place place = direction_of(b, i);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    for (size_t row = rows.first; row < rows.end; row++) {
        const float *o = mu_direction_at(b, i) + row * place.cols;
        mu_row_stats_at(b, i)[row] = b->schedule->rows->squares(o, place.cols, 1);
    }
}

static void square_columns(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    (void)worker;
    size_t tasks = (b->of->longer + SQUARED_COLUMNS - 1) / SQUARED_COLUMNS;
    size_t i = index / tasks, first = index % tasks * SQUARED_COLUMNS;
    mu_matrix_place place = direction_of(b, i);
    if (first >= place.cols || !mu_normuon_by_columns(&b->of->group->options, &place)) {
        return;
    }
    size_t left = place.cols - first, count = left < SQUARED_COLUMNS ? left : SQUARED_COLUMNS;
    double *sums = mu_row_stats_at(b, i) + first;
    memset(sums, 0, count * sizeof *sums);
    for (size_t row = 0; row < place.rows; row++) {
        const float *o = mu_direction_at(b, i) + row * place.cols + first;
        b->schedule->elementwise->add_squares(o, sums, count);
    }
}

/* ---- renormalize ---- */

/* The factor on a matrix with this sum of squares. */
static double renormalizing(const muonium_options *o, const mu_matrix_place *place, double sum)
{
    double norm = sqrt(sum);
    norm = norm < o->renormalize_eps ? o->renormalize_eps : norm;
    size_t shorter = place->rows < place->cols ? place->rows : place->cols;
    return norm == 0 ? 1 : sqrt((double)shorter) / norm;
}

/* ---- AdaMuon ---- */

static double adamuon_eps(const muonium_options *o)
{
    return o->adamuon_eps < 0 ? o->plan.eps : o->adamuon_eps;
}

static void adamuon_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks;
    mu_parameter *p = b->scratch.batch[i].parameter;
    const muonium_options *o = &p->group->options;
    mu_matrix_place place = mu_place_at(b, i);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    if (mu_is_left_alone(&b->scratch.certificates[i])) {
        return;
    }
    bool corrected = !is_normalized(o);
    mu_adamuon_step step = {
        .scale = (float)mu_row_sums_at(b, i)[RATE],
        .beta2 = (float)o->adamuon_beta2,
        .one_minus_beta2 = (float)(1 - o->adamuon_beta2),
        .v_scale = corrected ? (float)(1 / sqrt(1 - pow(o->adamuon_beta2, (double)p->steps))) : 1,
        .eps = (float)adamuon_eps(o)};
    float buffer[MU_PIECE];
    for (size_t row = rows.first; row < rows.end; row++) {
        mu_offset base = mu_row_base(p, &place, row);
        float *result = mu_direction_at(b, i) + row * place.cols;
        for (size_t done = 0; done < place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            float *v = mu_load_state(&piece, p->state[MU_STATE_ADAMUON], buffer);
            schedule->elementwise->adamuon(&step, result + done, v, piece.count);
            mu_store_state(&piece, p->state[MU_STATE_ADAMUON], v);
            done += piece.count;
        }
        mu_row_stats_at(b, i)[row] = schedule->rows->squares(result, place.cols, 1);
    }
}

/* Scale matrices to the root mean square 0.2, all of a convolution together. The factor replaces
 * the scale of the options. */
static void normalize_adamuon(const mu_batch *b)
{
    const muonium_options *o = &b->of->group->options;
    for (size_t i = 0, together; i < b->count; i += together) {
        double sum = 0, elements = 0;
        together = mu_matrices_together(b->scratch.batch[i].parameter);
        for (size_t k = i; k < i + together; k++) {
            mu_matrix_place place = mu_place_at(b, k);
            sum += sum_of(mu_row_stats_at(b, k), place.rows);
            elements += (double)place.rows * (double)place.cols;
        }
        double norm = sqrt(sum) + adamuon_eps(o);
        for (size_t k = i; k < i + together; k++) {
            mu_matrix_place place = mu_place_at(b, k);
            double replaced = mu_scale_of(o, place.rows, place.cols);
            double wanted = 0.2 * sqrt(elements) * o->scale_factor;
            mu_row_sums_at(b, k)[RATE] = norm > 0 && replaced > 0 ? wanted / (norm * replaced) : 0;
        }
    }
}

/* ---- NorMuon ---- */

/* Update one mean square by a sum of `count` squares. Returns the factor on the slice. */
static double normuon_factor(const muonium_options *o, float *running, double sum, size_t count)
{
    double mean = sum / (double)count;
    *running = (float)(o->normuon_beta2 * (double)*running + (1 - o->normuon_beta2) * mean);
    double v = (double)*running;
    double root = o->normuon_form == MUONIUM_NORMUON_ADD
                      ? sqrt(v) + o->normuon_eps
                      : sqrt(v < o->normuon_eps ? o->normuon_eps : v);
    return root > 0 ? 1 / root : 0;
}

/* Divide each row or column of O by the root of the running mean of its squares, then scale all
 * of them to restore the norm of O. The factor of each slice replaces its sum of squares. */
static void apply_normuon(const mu_batch *b, size_t i, double scale)
{
    const muonium_options *o = &b->of->group->options;
    const mu_member *member = &b->scratch.batch[i];
    const size_t *selected = mu_selected_at(b, i);
    mu_matrix_place place = direction_of(b, i);
    bool columns = mu_normuon_by_columns(o, &place);
    size_t slices = columns ? place.cols : place.rows, each = columns ? place.rows : place.cols;
    float *running = (float *)member->parameter->state[MU_STATE_NORMUON] +
                     mu_normuon_slices(member->parameter, member->index);
    double *stats = mu_row_stats_at(b, i), before = 0, after = 0;
    for (size_t k = 0; k < slices; k++) {
        double sum = stats[k] * scale * scale;
        double factor = normuon_factor(o, &running[selected ? selected[k] : k], sum, each);
        before += sum;
        after += sum * factor * factor;
        stats[k] = factor;
    }
    double restore = after > 0 ? sqrt(before / after) : 0;
    for (size_t k = 0; k < slices; k++) {
        double factor = stats[k] * restore;
        float narrow = (float)factor;
        if (columns) { /* f32, for mu_elementwise.multiply; it never passes what is read next */
            memcpy((char *)stats + k * sizeof narrow, &narrow, sizeof narrow);
        } else {
            stats[k] = factor;
        }
    }
}

/* ---- hyperball ---- */

/* Per row, the sum of the squares of the weights after the step. */
static void move_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    (void)worker;
    size_t i = index / b->row_tasks;
    mu_parameter *p = b->scratch.batch[i].parameter;
    mu_matrix_place place = mu_place_at(b, i);
    mu_row_range rows = mu_rows_of_task(b, index, place.rows);
    mu_factors factors = mu_rule_factors(b, i);
    float w_buffer[MU_PIECE], o_buffer[MU_PIECE];
    for (size_t row = rows.first; row < rows.end; row++) {
        mu_offset base = mu_row_base(p, &place, row);
        const float *result = mu_direction_at(b, i) + row * place.cols;
        double rate = factors.rate * (factors.rows ? factors.rows[row] : 1), sum = 0;
        for (size_t done = 0; done < place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            const float *w = mu_load_weights(schedule, p, &piece, w_buffer), *o = result + done;
            if (factors.columns) {
                schedule->elementwise->multiply(o, factors.columns + done, o_buffer, piece.count);
                o = o_buffer;
            }
            sum += schedule->elementwise->moved_squares(rate, o, w, piece.count);
            done += piece.count;
        }
        mu_row_sums_at(b, i)[ROW_SUMS + row] = sum;
    }
}

static float *radius_of(const mu_batch *b, size_t i)
{
    const mu_member *member = &b->scratch.batch[i];
    return (float *)member->parameter->state[MU_STATE_RADIUS] + member->index;
}

static double moved_norm(const mu_batch *b, size_t i)
{
    return sqrt(sum_of(mu_row_sums_at(b, i) + ROW_SUMS, mu_place_at(b, i).rows));
}

/* The weights have the norm `first` before the first step of a matrix. */
static void begin_radius(float *radius, double first)
{
    if (*radius == 0 && first > 0) { /* false for NaN */
        *radius = first < FLT_MAX ? (float)first : FLT_MAX;
    }
}

/* Each matrix takes a step of lr * scale * R along O and returns to the sphere: both are one
 * update, of which the decay is 1 - R / ||W'||. DECAY holds the norm of O. */
static void apply_hyperball(const mu_batch *b)
{
    unsigned workers = mu_pool_workers();
    void *context = (void *)(uintptr_t)b;
    bool begins = false;
    for (size_t i = 0; i < b->count; i++) {
        begins = begins || *radius_of(b, i) == 0;
        mu_row_sums_at(b, i)[RATE] = 0;
    }
    if (begins) {
        mu_pool_run(move_rows, context, b->count * b->row_tasks, workers);
    }
    for (size_t i = 0; i < b->count; i++) {
        mu_matrix_place place = mu_place_at(b, i);
        double *numbers = mu_row_sums_at(b, i), norm = numbers[DECAY], rate;
        if (begins) {
            begin_radius(radius_of(b, i), moved_norm(b, i));
        }
        mu_update_of(b->scratch.batch[i].parameter, &place, &rate);
        numbers[RATE] = norm > 0 ? rate * (double)*radius_of(b, i) / norm : 0;
    }
    mu_pool_run(move_rows, context, b->count * b->row_tasks, workers);
    for (size_t i = 0; i < b->count; i++) {
        mu_matrix_place place = mu_place_at(b, i);
        double *numbers = mu_row_sums_at(b, i), moved = moved_norm(b, i), rate;
        double back = moved > 0 ? (double)*radius_of(b, i) / moved : 1;
        mu_update_of(b->scratch.batch[i].parameter, &place, &rate);
        numbers[DECAY] = 1 - back;
        /* The update multiplies by its own rate. */
        numbers[RATE] = rate > 0 ? back * numbers[RATE] / rate : 0;
    }
}

/* ---- all rules ---- */

mu_factors mu_rule_factors(const mu_batch *b, size_t i)
{
    const muonium_options *o = &b->of->group->options;
    mu_matrix_place place = direction_of(b, i);
    const double *numbers = mu_row_sums_at(b, i), *stats = mu_row_stats_at(b, i);
    bool columns = o->normuon && mu_normuon_by_columns(o, &place);
    return (mu_factors){.rate = numbers[RATE],
                        .rows = o->normuon && !columns ? stats : NULL,
                        .columns = columns ? (const float *)(const void *)stats : NULL,
                        .decay = o->hyperball ? numbers[DECAY] : 0};
}

void mu_finish_directions(const mu_batch *b)
{
    const muonium_options *o = &b->of->group->options;
    unsigned workers = mu_pool_workers();
    void *context = (void *)(uintptr_t)b;
    for (size_t i = 0; !o->adaptive && i < b->count; i++) { /* else it is the dual norm */
        mu_row_sums_at(b, i)[RATE] = 1;
    }
    if (o->renormalize || o->normuon || o->hyperball) {
        mu_pool_run(square_rows, context, b->count * b->row_tasks, workers);
    }
    for (size_t i = 0; o->renormalize && i < b->count; i++) {
        mu_matrix_place place = direction_of(b, i);
        double sum = sum_of(mu_row_stats_at(b, i), place.rows);
        mu_row_sums_at(b, i)[RATE] = renormalizing(o, &place, sum);
    }
    if (o->adamuon) {
        mu_pool_run(adamuon_rows, context, b->count * b->row_tasks, workers);
        for (size_t i = 0; i < b->count; i++) {
            mu_row_sums_at(b, i)[RATE] = 1;
        }
    }
    if (is_normalized(o)) {
        normalize_adamuon(b);
    }
    for (size_t i = 0; o->hyperball && i < b->count; i++) {
        /* The norm of O without its factor, which does not matter here; NorMuon keeps it. */
        mu_matrix_place place = direction_of(b, i);
        mu_row_sums_at(b, i)[DECAY] = sqrt(sum_of(mu_row_stats_at(b, i), place.rows));
    }
    if (o->normuon) {
        size_t tasks = (b->of->longer + SQUARED_COLUMNS - 1) / SQUARED_COLUMNS;
        if (o->normuon_axis != MUONIUM_NORMUON_ROWS) {
            mu_pool_run(square_columns, context, b->count * tasks, workers);
        }
        for (size_t i = 0; i < b->count; i++) {
            if (!mu_is_left_alone(&b->scratch.certificates[i])) {
                /* Non-finite values stay out of the running mean. */
                apply_normuon(b, i, o->adaptive ? 1 : mu_row_sums_at(b, i)[RATE]);
            }
        }
    }
    if (o->hyperball) {
        apply_hyperball(b);
    }
}
