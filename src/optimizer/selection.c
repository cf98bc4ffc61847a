/*
 * selection.c: Dion2. Only some rows or columns of the momentum are orthogonalised:
 *
 *     accumulate  momentum, and the sum of magnitudes of every slice, in one pass over gradient
 *                 and momentum
 *     select      the slices with the largest sums; of equal ones the first
 *     copy        these slices to the direction; what was applied decays in the momentum
 *     apply       decay of all weights, update of the selected slices
 *
 * Momentum in blocks was accumulated before, see quantized.h, and decays after the update: its
 * rounding could not be undone for a second gathering.
 *
 * Tasks are blocks of rows of a fixed size, and their sums are added in order. So neither the
 * number of threads nor the batch changes a bit.
 */
#include "optimizer/muon.h"
#include "optimizer/quantized.h"

#include <math.h>
#include <string.h>

enum { SELECTION_ROWS = 64 };

static size_t tasks_of(size_t rows)
{
    return (rows + SELECTION_ROWS - 1) / SELECTION_ROWS;
}

size_t mu_selection_partials(const mu_parameter *p, const mu_matrix_place *place)
{
    return mu_selects_columns(p, place) ? (tasks_of(place->rows) + 1) * place->cols : place->rows;
}

/* The sums of the slices; after them, where slices are columns, those of each task. */
static double *sums_at(const mu_batch *b, size_t i)
{
    return b->scratch.partials + i * b->of->partials;
}

static size_t *slices_at(const mu_batch *b, size_t i)
{
    return b->scratch.selected + i * b->of->longer;
}

const size_t *mu_selected_at(const mu_batch *b, size_t i)
{
    return b->of->group->options.fraction < 1 ? slices_at(b, i) : NULL;
}

/* The matrix and the first row of a task. */
typedef struct rows_task {
    size_t matrix, number, first, end;
    mu_parameter *parameter;
    mu_matrix_place place;
    bool columns; /* the slices are columns */
} rows_task;

static rows_task task_at(const mu_batch *b, size_t index)
{
    size_t tasks = tasks_of(b->of->longer);
    rows_task t = {.matrix = b->first + index / tasks, .number = index % tasks};
    t.parameter = b->scratch.batch[t.matrix].parameter;
    t.place = mu_place_at(b, t.matrix);
    t.columns = mu_selects_columns(t.parameter, &t.place);
    t.first = t.number * SELECTION_ROWS;
    t.end = t.first + SELECTION_ROWS < t.place.rows ? t.first + SELECTION_ROWS : t.place.rows;
    return t;
}

static void run_tasks(const mu_batch *b, mu_task *task, size_t count)
{
    mu_pool_run(task, (void *)(uintptr_t)b, count * tasks_of(b->of->longer), mu_pool_workers());
}

/* ---- accumulate ---- */

static void accumulate_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    rows_task t = task_at(b, index);
    mu_parameter *p = t.parameter;
    (void)worker;
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    double *sums = sums_at(b, t.matrix);
    double *partial = sums + (t.number + 1) * t.place.cols;
    if (t.columns && t.first < t.end) {
        memset(partial, 0, t.place.cols * sizeof *partial);
    }
    float g_buffer[MU_PIECE], m_buffer[MU_PIECE];
    for (size_t row = t.first; row < t.end; row++) {
        mu_offset base = mu_row_base(p, &t.place, row);
        double sum = 0;
        for (size_t done = 0; done < t.place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            float *m = mu_load_momentum(schedule, p, &piece, m_buffer);
            if (!mu_has_blocks(p)) {
                const float *g = mu_load_grad(schedule, p, &piece, g_buffer);
                schedule->elementwise->accumulate(step.gain, g, m, piece.count);
                mu_store_momentum(schedule, p, &piece, m);
            }
            if (t.columns) {
                schedule->elementwise->add_magnitudes(m, partial + done, piece.count);
            } else {
                sum += schedule->rows->abs_sum(m, piece.count);
            }
            done += piece.count;
        }
        if (!t.columns) {
            sums[row] = sum;
        }
    }
}

/* ---- select ---- */

/* Whether slice a comes before slice b: larger, or equal and first. NaN counts as infinite. */
static bool slice_precedes(const double *sums, size_t a, size_t b)
{
    double first = isnan(sums[a]) ? (double)INFINITY : sums[a];
    double second = isnan(sums[b]) ? (double)INFINITY : sums[b];
    return first > second || (!(first < second) && a < b);
}

/* A heap of slices, of which the root is the last in the order of `sums`, or by number. */
static bool above(const double *sums, size_t a, size_t b)
{
    return sums ? slice_precedes(sums, b, a) : a > b;
}

static void sink_slice(const double *sums, size_t *heap, size_t count, size_t at)
{
    size_t moved = heap[at], child;
    while ((child = 2 * at + 1) < count) {
        child += child + 1 < count && above(sums, heap[child + 1], heap[child]);
        if (!above(sums, heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* The first `count` of `slices` slices in the order of `sums`, sorted by number. */
static void choose_slices(const double *sums, size_t slices, size_t count, size_t *chosen)
{
    for (size_t k = 0; k < count; k++) {
        chosen[k] = k;
    }
    for (size_t k = count / 2; k-- > 0;) {
        sink_slice(sums, chosen, count, k);
    }
    for (size_t k = count; k < slices; k++) { /* the root is the worst so far */
        if (slice_precedes(sums, k, chosen[0])) {
            chosen[0] = k;
            sink_slice(sums, chosen, count, 0);
        }
    }
    for (size_t k = count / 2; k-- > 0;) { /* heap sort by number */
        sink_slice(NULL, chosen, count, k);
    }
    for (size_t left = count; left > 1;) {
        size_t largest = chosen[0];
        chosen[0] = chosen[--left];
        chosen[left] = largest;
        sink_slice(NULL, chosen, left, 0);
    }
}

static void select_slices(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    size_t i = b->first + index;
    const mu_parameter *p = b->scratch.batch[i].parameter;
    mu_matrix_place place = mu_place_at(b, i);
    bool columns = mu_selects_columns(p, &place);
    size_t slices = columns ? place.cols : place.rows;
    double *sums = sums_at(b, i);
    (void)worker;
    if (columns) {
        memcpy(sums, sums + place.cols, place.cols * sizeof *sums);
        for (size_t task = 1; task < tasks_of(place.rows); task++) {
            const double *partial = sums + (task + 1) * place.cols;
            for (size_t k = 0; k < place.cols; k++) {
                sums[k] += partial[k];
            }
        }
    }
    choose_slices(sums, slices, mu_selected_count(p, &place), slices_at(b, i));
}

/* ---- copy ---- */

/* Whether the gathering decays the momentum. */
static bool decays_now(const mu_batch *b)
{
    return !b->again && b->of->group->options.state_dtype != MUONIUM_INT8;
}

/* What a piece of momentum is multiplied by to give the direction. Once it has decayed, a second
 * gathering has to undo that. */
static float direction_factor(const mu_batch *b)
{
    double decay = b->of->group->options.ef_decay;
    bool decayed = b->again && b->of->group->options.state_dtype != MUONIUM_INT8;
    return decayed ? (decay > 0 ? (float)(1 / decay) : 0) : 1;
}

/* One selected row of the momentum. */
static void copy_row(const mu_batch *b, const rows_task *t, size_t row, float *d)
{
    const mu_schedule *schedule = b->schedule;
    mu_parameter *p = t->parameter;
    mu_offset base = mu_row_base(p, &t->place, row);
    float buffer[MU_PIECE];
    for (size_t done = 0; done < t->place.cols;) {
        mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
        float *m = mu_load_momentum(schedule, p, &piece, buffer);
        schedule->rows->add(d + done, m, piece.count, (double)direction_factor(b), false);
        if (decays_now(b)) {
            schedule->rows->scale(m, piece.count, p->group->options.ef_decay);
            mu_store_momentum(schedule, p, &piece, m);
        }
        done += piece.count;
    }
}

/* The selected columns of one row of the momentum. */
static void copy_columns(const mu_batch *b, const rows_task *t, size_t row, float *d)
{
    const mu_schedule *schedule = b->schedule;
    mu_parameter *p = t->parameter;
    mu_offset base = mu_row_base(p, &t->place, row);
    const size_t *selected = slices_at(b, t->matrix);
    size_t count = mu_selected_count(p, &t->place), k = 0;
    const float factor = direction_factor(b);
    const float decay = decays_now(b) ? (float)p->group->options.ef_decay : 1;
    float buffer[MU_PIECE];
    for (size_t done = 0; done < t->place.cols;) {
        mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
        float *m = mu_load_momentum(schedule, p, &piece, buffer);
        for (; k < count && selected[k] < done + piece.count; k++) {
            float *at = m + (selected[k] - done);
            d[k] = factor * *at;
            *at *= decay;
        }
        if (decays_now(b)) {
            mu_store_momentum(schedule, p, &piece, m);
        }
        done += piece.count;
    }
}

static void copy_selected_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    rows_task t = task_at(b, index);
    (void)worker;
    mu_matrix_place direction = mu_direction_place(t.parameter, t.place);
    mu_row_survey survey = mu_survey_of_batch(b, t.matrix, &direction, false);
    for (size_t row = t.first; row < t.end && row < direction.rows; row++) {
        float *d = mu_direction_at(b, t.matrix) + row * direction.cols;
        if (t.columns) {
            copy_columns(b, &t, row, d);
        } else {
            copy_row(b, &t, slices_at(b, t.matrix)[row], d);
        }
        mu_survey_start_row(&survey, row);
        mu_survey_add(&survey, row, 0, b->schedule->rows->stats(d, direction.cols, 1));
    }
}

void mu_gather_selected(const mu_batch *b, size_t count)
{
    if (!b->again) {
        run_tasks(b, accumulate_rows, count);
        mu_pool_run(select_slices, (void *)(uintptr_t)b, count, mu_pool_workers());
    }
    run_tasks(b, copy_selected_rows, count);
}

/* ---- apply ---- */

/* The update of columns [done, done + count) of a row: zero outside the selected ones, of which
 * *next is the first that is left. */
static const float *spread(const size_t *selected, size_t total, size_t *next, const float *from,
                           size_t done, size_t count, float *to)
{
    memset(to, 0, count * sizeof *to);
    for (; *next < total && selected[*next] < done + count; ++*next) {
        to[selected[*next] - done] = from[*next];
    }
    return to;
}

/* The place of a row among the selected ones; their number if it is not one of them. */
static size_t find_row(const size_t *selected, size_t count, size_t row)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (selected[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && selected[low] == row ? low : count;
}

static void apply_selected_rows(void *context, size_t index, unsigned worker)
{
    static const float zeros[MU_PIECE];
    const mu_batch *b = context;
    const mu_schedule *schedule = b->schedule;
    rows_task t = task_at(b, index);
    mu_parameter *p = t.parameter;
    (void)worker;
    if (mu_is_left_alone(&b->scratch.certificates[t.matrix])) {
        return;
    }
    const size_t *selected = slices_at(b, t.matrix);
    size_t count = mu_selected_count(p, &t.place);
    double rate;
    mu_update_step step = mu_update_of(p, &t.place, &rate);
    mu_factors factors = {.rate = 1};
    if (mu_has_rules(&p->group->options)) {
        factors = mu_rule_factors(b, t.matrix);
        rate *= factors.rate;
    }
    float w_buffer[MU_PIECE], o_buffer[MU_PIECE];
    for (size_t row = t.first; row < t.end; row++) {
        size_t number = t.columns ? row : find_row(selected, count, row), next = 0;
        bool moves = t.columns || number < count;
        if (!moves && step.decay == 0) {
            continue;
        }
        size_t stride = t.columns ? count : t.place.cols;
        const float *o = moves ? mu_direction_at(b, t.matrix) + number * stride : zeros;
        step.rate = (float)(moves && factors.rows ? rate * factors.rows[number] : rate);
        mu_offset base = mu_row_base(p, &t.place, row);
        for (size_t done = 0; done < t.place.cols;) {
            mu_piece piece = mu_piece_at(p, base, &p->matrices.cols, done, MU_PIECE);
            float *w = mu_load_weights(schedule, p, &piece, w_buffer);
            const float *update = moves ? o + done : zeros;
            if (t.columns) {
                update = spread(selected, count, &next, o, done, piece.count, o_buffer);
            }
            schedule->elementwise->update(&step, update, w, piece.count);
            mu_store_weights(schedule, p, &piece, w);
            done += piece.count;
        }
    }
}

/* Integers of a row of the momentum, `count` of them at `chosen` columns, or all. Their indices do
 * not depend on the caller's strides. */
static void decay_integers(const mu_batch *b, const rows_task *t, size_t row, const size_t *chosen,
                           size_t count)
{
    const mu_elementwise *elementwise = b->schedule->elementwise;
    mu_parameter *p = t->parameter;
    mu_offset base = mu_row_base(p, &t->place, row);
    if (p->matrices.layout->contiguous) {
        mu_decay_quantized(elementwise, p, (size_t)base.state, chosen, count);
        return;
    }
    for (size_t k = 0; k < count; k++) {
        mu_offset at = mu_walk_to(&p->matrices.cols, chosen ? chosen[k] : k);
        mu_decay_quantized(elementwise, p, (size_t)(base.state + at.state), NULL, 1);
    }
}

static void decay_selected_rows(void *context, size_t index, unsigned worker)
{
    const mu_batch *b = context;
    rows_task t = task_at(b, index);
    (void)worker;
    const size_t *selected = slices_at(b, t.matrix);
    size_t count = mu_selected_count(t.parameter, &t.place);
    for (size_t row = t.first; row < t.end; row++) {
        if (t.columns) {
            decay_integers(b, &t, row, selected, count);
        } else if (find_row(selected, count, row) < count) {
            decay_integers(b, &t, row, NULL, t.place.cols);
        }
    }
}

void mu_apply_selected(const mu_batch *b)
{
    run_tasks(b, apply_selected_rows, b->count);
    if (b->of->group->options.state_dtype == MUONIUM_INT8) {
        run_tasks(b, decay_selected_rows, b->count);
    }
}
