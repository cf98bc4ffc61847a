/*
 * muon.h: one batch of matrices during the Muon half of a step, shared by
 *
 *     muon.c       gathers directions, runs the orthogonalisation, applies the result
 *     selection.c  the same where options.fraction selects slices
 *     rules.c      what some recipes do to a direction before and after the orthogonalisation
 */
#ifndef MU_MUON_H
#define MU_MUON_H

#include "optimizer/schedule.h"

/* A batch. Every matrix has `row_tasks` tasks. Wide and tall matrices are in one
 * class, so that some tasks have no rows. */
typedef struct mu_batch {
    const mu_schedule *schedule;
    const mu_class *of;
    mu_scratch scratch;
    size_t count;
    size_t row_tasks;
    size_t first; /* gather: the first matrix */
    bool again;   /* gather: its momentum was updated before */
} mu_batch;

static inline float *mu_direction_at(const mu_batch *b, size_t i)
{
    return b->scratch.directions + i * mu_direction_size(b->of->m, b->of->n);
}

/* Per row of a matrix a sum of squares; after b->of->longer of them, a largest magnitude. After
 * the orthogonalisation: a factor per row or column of O, as the rules say. */
static inline double *mu_row_stats_at(const mu_batch *b, size_t i)
{
    return b->scratch.row_stats + 2 * i * b->of->longer;
}

/* After the gathering: a number per row; then, in the first two, what the update needs of the
 * whole matrix. */
static inline double *mu_row_sums_at(const mu_batch *b, size_t i)
{
    return mu_row_stats_at(b, i) + b->of->longer;
}

static inline mu_matrix_place mu_place_at(const mu_batch *b, size_t i)
{
    const mu_member *member = &b->scratch.batch[i];
    return mu_matrix_at(&member->parameter->matrices, member->index);
}

/* The offset of a row in the three arrays. */
static inline mu_offset mu_row_base(const mu_parameter *p, const mu_matrix_place *place, size_t row)
{
    mu_offset base = mu_walk_to(&p->matrices.rows, place->first_row + row);
    base.data += place->base.data;
    base.grad += place->base.grad;
    base.state += place->base.state;
    return base;
}

/* The rows of a task, numbered over all matrices, in a matrix that has `rows` of them. */
typedef struct mu_row_range {
    size_t first, end;
} mu_row_range;

static inline mu_row_range mu_rows_of_task(const mu_batch *b, size_t task, size_t rows)
{
    size_t first = task % b->row_tasks * MU_ROWS_PER_TASK, end = first + MU_ROWS_PER_TASK;
    return (mu_row_range){first, end < rows ? end : rows};
}

/* Whether the matrix has no O and stays as it is. */
static inline bool mu_is_left_alone(const muonium_certificate *certificate)
{
    return certificate->outcome == MUONIUM_SKIPPED || certificate->outcome == MUONIUM_DIVERGED;
}

/* muon.c: the survey of matrix i, which the gathering fills. `tall`: the transpose of the matrix is
 * orthogonalised. */
mu_row_survey mu_survey_of_batch(const mu_batch *b, size_t i, const mu_matrix_place *place,
                                 bool tall);

/* muon.c: whether the transpose of a matrix is orthogonalised. */
bool mu_is_tall(const mu_parameter *p, const mu_matrix_place *place);

/* muon.c: survey row `row` of a direction, which has been computed, at d. */
void mu_survey_gathered(const mu_batch *b, const mu_row_survey *survey, const float *d, size_t cols,
                        size_t row);

/* muon.c: the rate and decay of a matrix, without the factors of the rules. */
mu_update_step mu_update_of(const mu_parameter *p, const mu_matrix_place *place, double *rate);

/* muon.c: the momentum of `count` matrices from b->first on, and their directions as they are
 * orthogonalised. */
void mu_gather(const mu_batch *b, size_t count);

/* ---- selection.c ---- */

/* Gather the selected slices of `count` matrices from b->first on, in place of whole directions:
 * momentum, choice, copy. With b->again only the last. */
void mu_gather_selected(const mu_batch *b, size_t count);

/* The selected slices of matrix i, in order; NULL if all are. */
const size_t *mu_selected_at(const mu_batch *b, size_t i);

/* Apply the update to the selected slices, and decay all weights. */
void mu_apply_selected(const mu_batch *b);

/* ---- rules.c ---- */

/* Scale the rows of directions from b->first on to equal norms, if the group asks for it. */
void mu_equilibrate(const mu_batch *b, size_t count);

/* Whether mu_finish_directions does anything. */
bool mu_has_rules(const muonium_options *options);

/* What the rules make of O and of the step: afterwards mu_rule_factors says what to apply. */
void mu_finish_directions(const mu_batch *b);

/* The factors on O that the rules have left: the rate of the matrix and, where not NULL, a factor
 * per row or per column; and the decay of hyperball, which replaces that of the options. */
typedef struct mu_factors {
    double rate;
    const double *rows;
    const float *columns;
    double decay;
} mu_factors;

mu_factors mu_rule_factors(const mu_batch *b, size_t i);

#endif
