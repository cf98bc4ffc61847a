/*
 * optimizer.h: the parameters and groups of an optimizer, and the functions that its files share.
 *
 *     options.c     recipes, defaults, validation
 *     routing.c     chooses Muon or AdamW and gives the reason; names.c matches names
 *     routing_log.c logs all routes; warnings.c warns of routes that look wrong
 *     layout.c      the matrices of a tensor, and where their elements lie; slices.c: parts of them
 *     parameters.c  creates optimizers, adds and finds parameters
 *     groups.c      groups of options; rates
 *     schedule.c    batches of matrices, chunks of elements, scratch memory
 *     step.c        the step; muon.c and adam.c are its two halves
 *     selection.c   the step of selected slices; rules.c: rules of some recipes around O
 *     quantized.c   int8 state
 *     places.c      the addresses of parameters and gradients; muonium_step_at
 *     use.c         refuses concurrent calls on one optimizer
 *     state_arrays.c  the arrays that the state consists of
 *     state_values.c  which values an optimizer accepts; state.c: the state in memory
 *     gradients.c, qk_clip.c, report.c
 */
#ifndef MU_OPTIMIZER_H
#define MU_OPTIMIZER_H

#include <stdatomic.h>

#include "base/base.h"
#include "optimizer/state_arrays.h"
#include "orthogonalize/across.h"
#include "vector/elementwise.h"
#include "vector/rows.h"

/* ---- options.c ---- */

/* Options over the defaults of the recipe that they came from, as far as the caller's
 * version of the struct goes; NULL: the default recipe. Fails unless all are valid.
 * Pointers in *options are those given. */
muonium_status mu_read_options(const muonium_options *given, muonium_options *options);

/* Fail, naming field and value, unless all fields are in range. */
muonium_status mu_check_options(const muonium_options *options);

/* AdamW options with "follow Muon" resolved to the value of Muon. */
double mu_adam_lr(const muonium_options *options);
double mu_adam_eps(const muonium_options *options);
double mu_adam_weight_decay(const muonium_options *options);
bool mu_is_nadamw(const muonium_options *options);

/* The factor on O for an (out, in) matrix, scale_factor included. */
double mu_scale_of(const muonium_options *options, size_t out, size_t in);

/* ---- layout.c ---- */

/* Nested loops over some dimensions of a tensor, outermost first. Two adjacent loops are
 * joined where the strides of all three arrays allow it. */
typedef struct mu_walk {
    size_t levels; /* at least 1 */
    size_t count[MUONIUM_MAX_DIMS];
    ptrdiff_t data[MUONIUM_MAX_DIMS];  /* strides of the caller's parameter */
    ptrdiff_t grad[MUONIUM_MAX_DIMS];  /* strides of its gradient */
    ptrdiff_t state[MUONIUM_MAX_DIMS]; /* strides of the state, which is dense and row-major */
    size_t total;                      /* product of the counts */
} mu_walk;

/* The position of element `index` of a walk in the three arrays, in elements. */
typedef struct mu_offset {
    ptrdiff_t data, grad, state;
} mu_offset;

mu_offset mu_walk_to(const mu_walk *walk, size_t index);

/* Bit d stands for dimension d. */
typedef struct mu_axes {
    uint32_t out, in; /* rows, columns */
} mu_axes;

/* An entry of the table of layouts. */
typedef struct mu_layout mu_layout;
struct mu_layout {
    muonium_layout id;
    size_t least_dims;
    const char *dims; /* the dimensions, for messages */
    muonium_status (*check)(const mu_layout *layout, const muonium_tensor *tensor,
                            const char *name);
    mu_axes (*axes)(const muonium_tensor *tensor); /* of a tensor that was checked */
    bool positions;        /* the batch runs over positions of a convolution */
    bool judged_flattened; /* routing looks at (out, all the rest), not at the matrices */
    bool contiguous;       /* a dense tensor stores each matrix row by row, without gaps */
    bool leading_batch;    /* the batch is all dimensions but the last two */
};

/* The layout of a tensor; MUONIUM_LAYOUT_AUTO is resolved by ndim and options. */
const mu_layout *mu_resolve_layout(const muonium_tensor *tensor, const muonium_options *options);

/* The matrices of a tensor: for each of batch.total indices, each block of rows. */
typedef struct mu_matrices {
    const mu_layout *layout;
    mu_walk batch, rows, cols;
    size_t blocks;       /* of rows, at least 1 */
    const size_t *sizes; /* of the blocks; NULL: equal ones */
    size_t count;        /* of matrices: batch.total * blocks */
    size_t positions;    /* of a convolution under the layout spatial; else 1 */
} mu_matrices;

/* One matrix: `rows` rows of the walk matrices->rows, starting at first_row. */
typedef struct mu_matrix_place {
    mu_offset base;
    size_t first_row, rows, cols;
} mu_matrix_place;

mu_matrix_place mu_matrix_at(const mu_matrices *matrices, size_t index);

/* The matrices of a tensor under its layout. Fails, naming the parameter and the value, on
 * axes or splits that do not fit. `sizes` points to tensor->row_splits. A tensor of fewer than
 * two dimensions is one matrix of one row. */
muonium_status mu_layout_of(const muonium_tensor *tensor, const char *name,
                            const muonium_options *options, mu_matrices *matrices);

/* The strides of a dense, row-major array of the tensor's shape. */
void mu_dense_strides(const muonium_tensor *tensor, ptrdiff_t strides[MUONIUM_MAX_DIMS]);

/* All elements of the tensor as one walk. */
void mu_walk_all(const muonium_tensor *tensor, mu_walk *walk);

/* ---- slices.c ---- */

/* Whether NorMuon's means of a matrix are those of its columns. */
bool mu_normuon_by_columns(const muonium_options *options, const mu_matrix_place *place);

/* The number of NorMuon's means of all matrices of a parameter before matrix `index`, which may be
 * the number of matrices. */
size_t mu_normuon_slices(const mu_parameter *parameter, size_t index);

/* Whether options.fraction selects slices of the parameter's matrices; whether these are columns;
 * and how many. */
bool mu_selects(const mu_parameter *parameter);
bool mu_selects_columns(const mu_parameter *parameter, const mu_matrix_place *place);
size_t mu_selected_count(const mu_parameter *parameter, const mu_matrix_place *place);

/* The place with the rows and columns of the matrix that is orthogonalised: of the selected
 * slices, if some are selected. */
mu_matrix_place mu_direction_place(const mu_parameter *parameter, mu_matrix_place place);

/* Whether a process of a distributed step needs all columns of a matrix; and whether it needs all
 * matrices of a parameter. */
bool mu_needs_whole_matrices(const muonium_options *options);
bool mu_needs_whole_parameters(const muonium_options *options);

/* ---- routing.c ---- */

enum { MU_REASON_SIZE = 96 };

/* Choose the route of a tensor. `reason` receives the text that reports show. */
muonium_status mu_route(const muonium_tensor *tensor, const char *name,
                        const muonium_options *options, const mu_matrices *matrices, bool *muon,
                        char reason[MU_REASON_SIZE]);

/* Whether options.routing has name patterns of its own. */
bool mu_routes_by_name(const muonium_options *options);

/* For a tensor without layout and splits, derive them from its name: experts, and with
 * options.split_fused also fused matrices. row_splits then points to `splits`. */
void mu_recognise(muonium_tensor *tensor, const char *name, const muonium_options *options,
                  size_t splits[3]);

/* ---- warnings.c ---- */

enum { MU_WARNING_SIZE = 512 };

/* Call `line` with each warning about the routes of all parameters, shorter than
 * MU_WARNING_SIZE. */
void mu_warn(const muonium_optimizer *optimizer, muonium_log *line, void *context);

/* ---- routing_log.c ---- */

/* Pass a line to the optimizer's log, which is not NULL. Characters that a terminal cannot show
 * are replaced in the line first. */
void mu_log(const muonium_optimizer *optimizer, char *line);

/* The verbose log: counts, counts per reason, up to ten shapes per reason. */
void mu_log_routes(const muonium_optimizer *optimizer);

/* ---- the optimizer ---- */

/* Elements that are worked on at a time, in buffers that stay in L1. */
enum { MU_PIECE = 1024 };

struct muonium_group {
    muonium_group *next;
    size_t number;     /* among the groups of its optimizer */
    mu_interval place; /* its address, an entry of muonium_optimizer.group_places */
    muonium_options options;
    double table[MUONIUM_MAX_STEPS][3]; /* options.table: a copy, or generated */
    char *strings;                      /* copies of the strings of the options */
};

struct mu_parameter {
    char *name;
    uint64_t name_hash;
    size_t number;          /* among the parameters of its optimizer */
    mu_interval data, grad; /* the memory of both; grad is empty without a gradient */
    mu_interval copy;       /* of tensor.copy; empty without one */
    char reason[MU_REASON_SIZE];
    bool unnamed;          /* the caller gave no name; `name` was generated */
    muonium_tensor tensor; /* with copies of name, strides and row_splits, none left out */
    ptrdiff_t strides[MUONIUM_MAX_DIMS], grad_strides[MUONIUM_MAX_DIMS];
    muonium_dtype grad_dtype;
    muonium_group *group;
    bool muon;
    mu_matrices matrices;
    mu_walk all;
    size_t elements;
    uint64_t steps;
    /* Seed of stochastic rounding, and the number of the first element. A part of a parameter
     * that is cut between ranks has the seed of the whole. */
    uint64_t random_key;
    uint64_t random_first;
    const mu_across *across;     /* not NULL: the parameter is some columns of a shared matrix */
    void *state[MU_STATE_KINDS]; /* dense and row-major; NULL where not kept */
    bool has_master;             /* the master copy holds the parameter: from its first step on */
    muonium_certificate *certificates; /* of the last step, one per matrix */
    bool certified;
    /* The momentum is known to be below 2^MU_MODERATE_EXPONENT. A step with a gradient below it
     * too need not check for overflow. False whenever a caller may have written the state. */
    bool moderate;
};

typedef struct mu_schedule mu_schedule; /* schedule.h */

struct muonium_optimizer {
    muonium_group *groups; /* the default one first */
    muonium_group *last_group;
    mu_interval *group_places; /* addresses of the groups: a foreign group may be freed memory */
    mu_parameter **parameters;
    size_t count, capacity;
    mu_index names;            /* of the parameters */
    mu_interval *data, *grads; /* memory of all parameters; out of date if `moved`. Copies are in
                                * data, because steps write them too. */
    bool moved;                /* muonium_step_at has changed addresses */
    mu_schedule *schedule;     /* NULL: the next step makes it */
    muonium_counters counters;
    double grad_scale;    /* see muonium_set_grad_scale */
    size_t scratch_bytes; /* from the options of the default group, as the log */
    muonium_log *log;
    void *log_context;
    bool logged;
    bool stateless;             /* a description: see muonium_create_description */
    size_t holders;             /* objects of libmuonium_mpi that use this description */
    _Atomic(const char *) user; /* the call in progress, or NULL; see mu_enter */
    atomic_bool in_loss;        /* the `loss` of muonium_step_with is running */
};

/* ---- state_values.c: which state an optimizer accepts ---- */

/* Counts up to this are exact in double, in which bias corrections are computed. */
#define MU_MOST_STEPS ((uint64_t)1 << 53)

/* Values of one array of a parameter's state. */
typedef struct mu_state_values {
    const mu_parameter *parameter;
    mu_state_kind kind;
    muonium_dtype dtype; /* of the array */
    const void *data;
    size_t count;
    size_t first; /* index of the first value in the array, for messages */
} mu_state_values;

/* `count` values from element `first` of an array of a parameter, which is at `data`. */
static inline mu_state_values mu_state_values_of(const mu_parameter *parameter,
                                                 const mu_state_array *array, const void *data,
                                                 size_t first, size_t count)
{
    const char *at = (const char *)data + first * muonium_dtype_size(array->dtype);
    mu_state_values values = {parameter, array->kind, array->dtype, at, count, first};
    return values;
}

/* The parts of a message that refuses a state. */
typedef struct mu_state_refusal {
    const char *source;    /* names the file or call */
    const char *outcome;   /* what has happened, and what to do */
    muonium_status status; /* of an impossible value, such as a negative mean of squares */
    bool converted;        /* the values were converted after reading */
} mu_state_refusal;

/* Whether the values are accepted: finite unless the policy of the parameter is
 * MUONIUM_NONFINITE_PROPAGATE, and as the entry of the array says. */
bool mu_state_is_sound(const mu_state_values *values);

/* Fail, naming the first value that is not accepted. There must be one. */
muonium_status mu_state_fault(const mu_state_values *values, const mu_state_refusal *refusal);

/* Fail if a count of steps exceeds MU_MOST_STEPS. `name` is the parameter; NULL: the optimizer. */
muonium_status mu_check_count(uint64_t steps, const char *name, const mu_state_refusal *refusal);

/* use.c: mark the optimizer as in use by `call`. Every call that changes the optimizer, or runs
 * a callback, does this. Fails, naming both calls, if another is in progress or optimizer is
 * NULL. */
muonium_status mu_enter(const muonium_optimizer *optimizer, const char *call);

/* use.c: the same for calls that the `loss` of muonium_step_with must not make. */
muonium_status mu_enter_alone(const muonium_optimizer *optimizer, const char *call);

/* use.c: remove the mark. Returns `status`. */
muonium_status mu_leave(const muonium_optimizer *optimizer, muonium_status status);

/* use.c: fail, naming the call, while libmuonium_mpi uses the description. */
muonium_status mu_check_unheld(const muonium_optimizer *optimizer, const char *call);

/* parameters.c: parameter `index`; fails, naming it, if there is none. */
muonium_status mu_parameter_at(const muonium_optimizer *optimizer, size_t index,
                               mu_parameter **parameter);

/* state_arrays.c: whether a parameter has a master copy beside it. */
bool mu_keeps_master(const mu_parameter *p);

/* parameters.c: fail, naming what cannot be done, if the optimizer is a description. */
muonium_status mu_need_state(const muonium_optimizer *optimizer, const char *action);

/* groups.c: make a group from options, with copies of all that they point to; free it; add it to
 * an optimizer; and whether an optimizer has it. */
muonium_status mu_make_group(const muonium_options *given, muonium_group **made);
void mu_free_group(muonium_group *group); /* NULL is allowed */
void mu_enter_group(muonium_optimizer *optimizer, muonium_group *group);
bool mu_owns_group(const muonium_optimizer *optimizer, const muonium_group *group);

/* places.c: fail if the data of a parameter overlaps any gradient or another parameter. Sets the
 * extents of p, which is not in the sets of the optimizer; mu_add_to_sets adds it. */
muonium_status mu_check_memory(muonium_optimizer *optimizer, mu_parameter *p);
void mu_add_to_sets(muonium_optimizer *optimizer, mu_parameter *p);

#endif
