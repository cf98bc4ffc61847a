/*
 * schedule.h: the part of a step that is the same every time: the jobs of the teams of workers,
 * each a batch of matrices; the chunks of element-wise work; and scratch memory. The first step
 * after a change of parameters makes it.
 */
#ifndef MU_SCHEDULE_H
#define MU_SCHEDULE_H

#include "optimizer/optimizer.h"
#include "orthogonalize/plan.h"

/* A matrix of a parameter. */
typedef struct mu_member {
    mu_parameter *parameter;
    size_t index;
} mu_member;

/* The matrices of one oriented shape in one group. (1280, 512) and (512, 1280) are in the same
 * class. A matrix with columns on other ranks is a class of its own. */
typedef struct mu_class {
    size_t m, n;             /* oriented */
    size_t block;            /* columns whose squares are summed before the next block's */
    size_t longer;           /* two more than the longest side of the matrices in their parameters,
                                of the columns that this process has */
    size_t together;         /* matrices of a parameter that must be in one batch */
    size_t partials;         /* numbers that selection.c needs for each matrix */
    const mu_across *across; /* NULL if this process has all columns */
    muonium_group *group;
    muonium_plan *plan;
    size_t capacity;  /* matrices per batch */
    size_t workspace; /* bytes for the plan */
    double cost;      /* of one matrix on one worker, in the unit of teams.c */
    mu_member *members;
    size_t count;
} mu_class;

/* Members [first, first + count) of a class: the batch of one job. */
typedef struct mu_batch_job {
    const mu_class *of;
    size_t first, count;
} mu_batch_job;

/* Scratch memory of a team, laid out for the batches of a class. */
typedef struct mu_scratch {
    float *directions;  /* matrices, dense, each aligned to MU_ALIGNMENT */
    void *workspace;    /* of the plan */
    double *row_stats;  /* two per row of every matrix: see muon.c */
    size_t *selected;   /* slices of every matrix: see selection.c */
    double *partials;   /* the same */
    mu_survey *surveys; /* one per matrix of the batch, as the arrays below */
    mu_member *batch;
    mu_oriented *oriented;
    muonium_certificate *certificates;
} mu_scratch;

/* Consecutive elements of a parameter, in the order of its state. */
typedef struct mu_chunk {
    mu_parameter *parameter;
    size_t first, count;
} mu_chunk;

/* The memory of a parameter or of its copy. */
typedef struct mu_place {
    mu_extent extent;
    mu_parameter *parameter;
    bool copy;
} mu_place;

struct mu_schedule {
    const mu_rows *rows;
    const mu_elementwise *elementwise;
    unsigned workers; /* number of workers that the plans are made for */
    mu_class *classes;
    size_t class_count;
    mu_member *members; /* of all classes */
    mu_chunk *chunks;   /* of all parameters, in order */
    size_t chunk_count;
    bool *unsound;      /* per chunk: the gradient or the new momentum is not finite */
    bool *moderate;     /* per chunk: see mu_parameter */
    bool *active;       /* per parameter: it takes part in this step */
    double grad_scale;  /* of this step */
    mu_place *places;   /* scratch of places.c, two per parameter */
    mu_extent *grads;   /* the same, one per parameter */
    mu_batch_job *jobs; /* the costliest first; classes across processes have none */
    size_t job_count;
    unsigned teams;    /* jobs at the same time */
    unsigned width;    /* workers per job, at most */
    void *scratch;     /* an area per team */
    size_t area_bytes; /* of one team */
    size_t bytes;      /* of all scratch */
};

/* Make a schedule unless the optimizer has one for the present number of workers. Every matrix
 * counts `copies` times when teams are chosen: the benchmark predicts steps of models of which it
 * has one layer. */
muonium_status mu_schedule_make(muonium_optimizer *optimizer, size_t copies);
void mu_schedule_destroy(mu_schedule *schedule); /* NULL is allowed */

/* Set scratch_bytes, teams and team_width of the schedule, or of the one that a step would make. */
muonium_status mu_schedule_describe(const muonium_optimizer *optimizer, muonium_counters *counters);

/* The scratch memory of a team, laid out for the batches of a class; and the bytes of that. */
mu_scratch mu_scratch_of(const mu_schedule *schedule, const mu_class *of, unsigned team);
size_t mu_scratch_bytes(const mu_class *of);

/* What the area of a team is a multiple of, so that teams do not share a page of memory, which
 * belongs to the node of the thread that touches it first. Small areas share pages. */
size_t mu_area_unit(size_t bytes);

/* teams.c: choose `teams` and `width`, and plan all classes for them, within so many bytes of
 * scratch memory or what one matrix needs. Every matrix counts `copies` times. */
muonium_status mu_choose_teams(const muonium_optimizer *optimizer, mu_schedule *schedule,
                               size_t bound, size_t copies);

/* Floats that a matrix occupies in `directions`. */
size_t mu_direction_size(size_t rows, size_t cols);

/* A value that is not finite, or that the step would make so. */
typedef struct mu_bad_value {
    const char *what; /* "grad", "momentum" or "direction"; NULL: there is none */
    float value;
    size_t index; /* in the order of the state */
} mu_bad_value;

/* While all gradients are below 2^MU_MODERATE_EXPONENT, no momentum can overflow. */
enum { MU_MODERATE_EXPONENT = 64 };

/* step.c: the first bad value among `count` elements: in the gradient, in the momentum after the
 * step, or in the direction. *moderate: whether that momentum is below
 * 2^MU_MODERATE_EXPONENT. Changes nothing. */
mu_bad_value mu_examine(const mu_schedule *schedule, const mu_parameter *parameter, size_t first,
                        size_t count, bool *moderate);

/* step.c: the part of a step that can fail, which changes nothing; and the rest, which cannot
 * fail. */
muonium_status mu_step_prepare(muonium_optimizer *optimizer);
void mu_step_commit(muonium_optimizer *optimizer);

/* places.c: mu_step_prepare with the addresses of muonium_step_at. */
muonium_status mu_step_prepare_at(muonium_optimizer *optimizer, void *const *data,
                                  void *const *grads, size_t count);

/* muon.c: the momentum update in step number `steps` of a parameter. */
mu_momentum_step mu_momentum_of(const mu_parameter *parameter, uint64_t steps);

/* selection.c: numbers of scratch memory for the sums of a matrix, of which slices are selected. */
size_t mu_selection_partials(const mu_parameter *parameter, const mu_matrix_place *place);

/* rules.c: the matrices of a parameter that are scaled by their common norm: all positions of a
 * convolution, or 1. */
size_t mu_matrices_together(const mu_parameter *parameter);

/* muon.c: the Muon half of a step, and the AdamW half by workers that no matrix needs. Both skip
 * inactive parameters. */
void mu_step_update(muonium_optimizer *optimizer);

/* adam.c: update the parameter of a chunk if AdamW does; a task, whose context is the schedule. */
void mu_adam_chunk(void *context, size_t index, unsigned worker);

/* ---- pieces.c: walking over a parameter and its state together ---- */

/* Up to MU_PIECE elements with one stride in each of the three arrays. */
typedef struct mu_piece {
    char *data;
    const char *grad; /* NULL without a gradient */
    size_t state;     /* index of the first in the state */
    ptrdiff_t data_stride, grad_stride, state_stride;
    size_t count;
} mu_piece;

/* The piece that starts at element `index` of a walk from `base`: at most `most` elements. */
mu_piece mu_piece_at(const mu_parameter *parameter, mu_offset base, const mu_walk *walk,
                     size_t index, size_t most);

/* Whether the parameter's policy is MUONIUM_NONFINITE_PROPAGATE. */
bool mu_propagates_nonfinite(const mu_parameter *parameter);

/* The largest weight that a step may write: the largest that the parameter's type and that of its
 * copy have, or infinity if the policy is MUONIUM_NONFINITE_PROPAGATE. */
float mu_weight_limit(const mu_parameter *parameter);

/* The gradient of a piece, times the gradient scale, as consecutive f32: in place, or copied to
 * `buffer`. */
const float *mu_load_grad(const mu_schedule *schedule, const mu_parameter *parameter,
                          const mu_piece *piece, float *buffer);

/* The same for an f32 state array. mu_store_state writes back what was copied. */
float *mu_load_state(const mu_piece *piece, float *state, float *buffer);
void mu_store_state(const mu_piece *piece, float *state, const float *values);

/* The same for the momentum, of any type. Momentum of MUONIUM_INT8 is stored in blocks, by
 * quantized.c alone. */
float *mu_load_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                        const mu_piece *piece, float *buffer);
void mu_store_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, const float *values);

/* The piece of the parameter itself, or of its master copy, as consecutive f32; and back,
 * rounded as the group's options say, and to the caller's copy. Stochastic rounding numbers the
 * elements by parameter->random_key, parameter->random_first and their index in the state. */
float *mu_load_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, float *buffer);
void mu_store_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                      const mu_piece *piece, const float *values);

#endif
