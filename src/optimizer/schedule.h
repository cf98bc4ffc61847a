/*
 * schedule.h: what is the same in every step: which matrices are orthogonalised
 * together, how element-wise work is cut, and the scratch memory for both. Made by the
 * first step after a change of parameters.
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

/* Matrices of one oriented shape and one group: (1280, 512) and (512, 1280) are of the
 * same class. */
typedef struct mu_class {
    size_t m, n;             /* oriented */
    size_t block;            /* of columns, by which sums over a row are formed */
    size_t longer;           /* side, of what lies here */
    const mu_across *across; /* of a class of its own, or NULL */
    muonium_group *group;
    muonium_plan *plan; /* for up to `capacity` matrices at a time */
    size_t capacity;
    size_t workspace; /* bytes, of the plan */
    mu_member *members;
    size_t count;
} mu_class;

/* A run of a parameter's elements, in the order of its state. */
typedef struct mu_chunk {
    mu_parameter *parameter;
    size_t first, count;
} mu_chunk;

/* Where a parameter lies. */
typedef struct mu_place {
    mu_extent extent;
    mu_parameter *parameter;
} mu_place;

struct mu_schedule {
    const mu_rows *rows;
    const mu_elementwise *elementwise;
    unsigned workers; /* threads that it was made for */
    mu_class *classes;
    size_t class_count;
    mu_member *members; /* of all classes */
    mu_chunk *chunks;   /* of all parameters, in order */
    size_t chunk_count;
    bool *unsound;    /* per chunk: it is not finite, or its momentum would not be */
    bool *moderate;   /* per chunk: see mu_parameter */
    bool *active;     /* per parameter: takes part in this step */
    mu_place *places; /* for places.c, one per parameter each */
    mu_extent *grads;
    /* Scratch, laid out for batches of the class at hand: */
    void *scratch;
    float *directions;  /* matrices, dense, each on a boundary of MU_ALIGNMENT */
    void *workspace;    /* of the plans */
    double *row_stats;  /* two per row of every matrix */
    mu_survey *surveys; /* one per matrix of a batch, as the following */
    mu_member *batch;
    mu_oriented *oriented;
    muonium_certificate *certificates;
    size_t bytes; /* of all scratch */
};

/* Give the optimizer a schedule if it has none, or one for other threads than now. */
muonium_status mu_schedule_make(muonium_optimizer *optimizer);
void mu_schedule_destroy(mu_schedule *schedule); /* NULL is allowed */

/* Lay out the scratch memory for batches of a class. */
void mu_schedule_use(mu_schedule *schedule, const mu_class *of);

/* Floats that a matrix takes in `directions`. */
size_t mu_direction_size(size_t rows, size_t cols);

/* A value that is not finite, or would not be after a step. */
typedef struct mu_bad_value {
    const char *what; /* "grad", "momentum" or "direction"; NULL: there is none */
    float value;
    size_t index; /* in the order of the state */
} mu_bad_value;

/* Gradients below 2^MU_MODERATE_EXPONENT in every step add up to no momentum that overflows. */
enum { MU_MODERATE_EXPONENT = 64 };

/* step.c: the first bad value of a run of elements: of the gradient, of the momentum that would
 * follow from it, or of its direction. *moderate: whether all of that momentum is below
 * 2^MU_MODERATE_EXPONENT. Changes nothing. */
MU_SHARED mu_bad_value mu_examine(const mu_schedule *schedule, const mu_parameter *parameter,
                                  size_t first, size_t count, bool *moderate);

/* step.c: all of a step that can fail, which changes nothing; and all the rest, which cannot. */
muonium_status mu_step_prepare(muonium_optimizer *optimizer);
MU_SHARED void mu_step_commit(muonium_optimizer *optimizer);

/* places.c: mu_step_prepare with everything at new places, as in muonium_step_at. */
MU_SHARED muonium_status mu_step_prepare_at(muonium_optimizer *optimizer, void *const *data,
                                            void *const *grads, size_t count);

/* muon.c: how the momentum of a parameter moves in the step that brings it to `steps`. */
mu_momentum_step mu_momentum_of(const mu_parameter *parameter, uint64_t steps);

/* muon.c, adam.c: the two halves of a step, for active parameters. */
void mu_step_muon(muonium_optimizer *optimizer);
void mu_step_adam(muonium_optimizer *optimizer);

/* ---- pieces.c: walking over a parameter and its state together ---- */

/* Up to MU_PIECE elements that are evenly spaced in all three arrays. */
typedef struct mu_piece {
    char *data;
    const char *grad; /* NULL without a gradient */
    size_t state;     /* index of the first in the state */
    ptrdiff_t data_stride, grad_stride, state_stride;
    size_t count;
} mu_piece;

/* The piece that starts at step `index` of a walk from `base` on, of at most `most`. */
MU_SHARED mu_piece mu_piece_at(const mu_parameter *parameter, mu_offset base, const mu_walk *walk,
                               size_t index, size_t most);

/* Whether the parameter's policy is MUONIUM_NONFINITE_PROPAGATE. */
bool mu_lets_infinities_through(const mu_parameter *parameter);

/* The largest weight that a step may leave: that of the parameter's type, or infinity where
 * infinities are let through. */
float mu_weight_limit(const mu_parameter *parameter);

/* The piece's gradient as consecutive f32: where it is, or in `buffer`. */
const float *mu_load_grad(const mu_schedule *schedule, const mu_parameter *parameter,
                          const mu_piece *piece, float *buffer);

/* The same for an f32 state array; to be stored back, if it was in the buffer. */
float *mu_load_state(const mu_piece *piece, float *state, float *buffer);
void mu_store_state(const mu_piece *piece, float *state, const float *values);

/* The same for the momentum, of either type: where it is, or in `buffer`. */
float *mu_load_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                        const mu_piece *piece, float *buffer);
void mu_store_momentum(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, const float *values);

/* The piece of the parameter itself, or of its master copy, as consecutive f32; and back,
 * rounded as the group's options say. Stochastic rounding numbers the elements by
 * parameter->random_key, parameter->random_first and their index in the state. */
float *mu_load_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                       const mu_piece *piece, float *buffer);
void mu_store_weights(const mu_schedule *schedule, const mu_parameter *parameter,
                      const mu_piece *piece, const float *values);

#endif
