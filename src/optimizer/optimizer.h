/*
 * optimizer.h: what the parts of the optimizer know of each other.
 *
 *     options.c     recipes, defaults, validation
 *     routing.c     Muon or AdamW, and why; names.c: what names tell of that
 *     routing_log.c the log of all routes; warnings.c: routes that look wrong
 *     layout.c      which matrices a tensor stands for, and where their elements lie
 *     parameters.c  creating, adding, changing
 *     schedule.c    which matrices are orthogonalised together, and scratch memory
 *     step.c        the step; muon.c and adam.c do its two halves
 *     places.c      the step with everything at new places
 *     use.c         which call is using the optimizer
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

/* What "follow Muon" comes to. */
double mu_adam_lr(const muonium_options *options);
double mu_adam_eps(const muonium_options *options);
double mu_adam_weight_decay(const muonium_options *options);
bool mu_is_nadamw(const muonium_options *options);

/* The factor on O for an (out, in) matrix, scale_factor included. */
double mu_scale_of(const muonium_options *options, size_t out, size_t in);

/* ---- layout.c ---- */

/* Nested loops over some dimensions of a tensor, outermost first; neighbours that step
 * evenly in all three arrays are joined. */
typedef struct mu_walk {
    size_t levels; /* at least 1 */
    size_t count[MUONIUM_MAX_DIMS];
    ptrdiff_t data[MUONIUM_MAX_DIMS];  /* strides in the caller's parameter, */
    ptrdiff_t grad[MUONIUM_MAX_DIMS];  /* in its gradient, */
    ptrdiff_t state[MUONIUM_MAX_DIMS]; /* and in our dense, row-major state */
    size_t total;                      /* product of the counts */
} mu_walk;

/* Where step `index` of a walk leads, in elements. */
typedef struct mu_offset {
    ptrdiff_t data, grad, state;
} mu_offset;

MU_SHARED mu_offset mu_walk_to(const mu_walk *walk, size_t index);

/* Bit d stands for dimension d. */
typedef struct mu_axes {
    uint32_t out, in; /* rows, columns */
} mu_axes;

/* An entry of the table of layouts. */
typedef struct mu_layout mu_layout;
struct mu_layout {
    muonium_layout id;
    const char *name;
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

/* One of them: its rows are rows.total indices from first_row on. */
typedef struct mu_matrix_place {
    mu_offset base;
    size_t first_row, rows, cols;
} mu_matrix_place;

MU_SHARED mu_matrix_place mu_matrix_at(const mu_matrices *matrices, size_t index);

/* The matrices of a tensor under its layout. Fails, naming the parameter and the value, on
 * axes or splits that do not fit. `sizes` points to tensor->row_splits. A tensor of fewer than
 * two dimensions is one matrix of one row. */
muonium_status mu_layout_of(const muonium_tensor *tensor, const char *name,
                            const muonium_options *options, mu_matrices *matrices);

/* The strides of a dense, row-major array of the tensor's shape. */
void mu_dense_strides(const muonium_tensor *tensor, ptrdiff_t strides[MUONIUM_MAX_DIMS]);

/* All elements of the tensor as one walk. */
void mu_walk_all(const muonium_tensor *tensor, mu_walk *walk);

/* ---- routing.c ---- */

enum { MU_REASON_SIZE = 96 };

/* Decide; `reason` gets the text of the report. */
muonium_status mu_route(const muonium_tensor *tensor, const char *name,
                        const muonium_options *options, const mu_matrices *matrices, bool *muon,
                        char reason[MU_REASON_SIZE]);

/* Whether the rule in force looks at names at all, but for options.patterns. */
bool mu_routes_by_name(const muonium_options *options);

/* Set the layout and the splits of a tensor that was given none, if its name tells: experts,
 * and under options.split_fused fused matrices. row_splits then points to `splits`. */
void mu_recognise(muonium_tensor *tensor, const char *name, const muonium_options *options,
                  size_t splits[3]);

/* ---- warnings.c ---- */

enum { MU_WARNING_SIZE = 512 };

/* Call `line` with each warning about the routes of all parameters, shorter than
 * MU_WARNING_SIZE. */
void mu_warn(const muonium_optimizer *optimizer, muonium_log *line, void *context);

/* ---- routing_log.c ---- */

/* Give a line, made fit to be shown, to the optimizer's log, which is not NULL. */
void mu_log(const muonium_optimizer *optimizer, char *line);

/* The verbose log: counts, counts per reason, up to ten shapes per reason. */
void mu_log_routes(const muonium_optimizer *optimizer);

/* ---- the optimizer ---- */

/* Elements that are worked on at a time, in buffers that stay in L1. */
enum { MU_PIECE = 1024 };

struct muonium_group {
    muonium_group *next;
    size_t number;     /* among the groups of its optimizer */
    mu_interval place; /* its own address, see muonium_optimizer */
    muonium_options options;
    double table[MUONIUM_MAX_STEPS][3]; /* a copy of, or generated for, the options' */
    char *strings;                      /* copies of the options' */
};

struct mu_parameter {
    char *name;
    uint64_t name_hash;
    size_t number;          /* among the parameters of its optimizer */
    mu_interval data, grad; /* where they lie; grad is empty without a gradient */
    char reason[MU_REASON_SIZE];
    bool unnamed;          /* the name is our own */
    muonium_tensor tensor; /* name, strides and row_splits are our own copies, all filled in */
    ptrdiff_t strides[MUONIUM_MAX_DIMS], grad_strides[MUONIUM_MAX_DIMS];
    muonium_dtype grad_dtype;
    muonium_group *group;
    bool muon;
    mu_matrices matrices;
    mu_walk all;
    size_t elements;
    uint64_t steps;
    /* Random numbers are those of the parameter that this one is a part of, from this
     * element on; a whole parameter's are its own. */
    uint64_t random_key;
    uint64_t random_first;
    const mu_across *across;     /* it is some columns of one matrix; else NULL */
    void *state[MU_STATE_KINDS]; /* dense and row-major; NULL where not kept */
    bool has_master;             /* the master copy holds the parameter: from its first step on */
    muonium_certificate *certificates; /* matrices.count of them, of the last step */
    bool certified;
    bool moderate; /* the momentum is known to be far from overflowing: a step with a gradient
                      that is too need not examine it. False whenever others may write it. */
};

typedef struct mu_schedule mu_schedule; /* schedule.h */

struct muonium_optimizer {
    muonium_group *groups; /* the default one first */
    muonium_group *last_group;
    mu_interval *group_places; /* addresses of the groups, to know them without reading them */
    mu_parameter **parameters;
    size_t count, capacity;
    mu_index names;            /* of the parameters */
    mu_interval *data, *grads; /* of the parameters; out of date once `moved` */
    bool moved;                /* by a step at new places */
    mu_schedule *schedule;     /* NULL: to be made by the next step */
    muonium_counters counters;
    size_t scratch_bytes; /* as in the first options */
    muonium_log *log;
    void *log_context;
    bool logged;
    bool stateless;             /* a description: see muonium_create_description */
    size_t holders;             /* objects of libmuonium_mpi that rely on this description */
    _Atomic(const char *) user; /* the call that is using it; NULL: none. See mu_enter. */
    atomic_bool in_loss;        /* muonium_step_with is calling its `loss` */
};

/* ---- state_values.c: which state an optimizer accepts, wherever it comes from ---- */

/* Up to here every count is exact in a double, as bias corrections need it. */
#define MU_MOST_STEPS ((uint64_t)1 << 53)

/* Values of one array of a parameter's state. */
typedef struct mu_state_values {
    const mu_parameter *parameter;
    mu_state_kind kind;
    muonium_dtype dtype; /* MUONIUM_F32, of momentum also MUONIUM_BF16 */
    const void *data;
    size_t count;
    size_t first; /* the place of the first of them in the array, for messages */
} mu_state_values;

/* How a message names the source of a state, and what it says has become of it. */
typedef struct mu_state_refusal {
    const char *source;
    const char *outcome;
    muonium_status status; /* for a value that no step can have left */
    bool converted;        /* the values are not as the source has them */
} mu_state_refusal;

/* Whether these values may be a state: finite unless the parameter's policy is to
 * propagate; a mean of squares not negative, but that of AdamW may be infinite. */
MU_SHARED bool mu_state_is_sound(const mu_state_values *values);

/* Fail for the first value that may not, of which there is one. */
muonium_status mu_state_fault(const mu_state_values *values, const mu_state_refusal *refusal);

/* Fail unless a count of steps, of the parameter `name` or of the optimizer (NULL), may be. */
muonium_status mu_check_count(uint64_t steps, const char *name, const mu_state_refusal *refusal);

/* use.c: mark the optimizer as in use by `call`, a call that changes it or calls back; fails,
 * naming both calls, while another is under way. NULL is refused too. */
muonium_status mu_enter(const muonium_optimizer *optimizer, const char *call);

/* use.c: the same for what the `loss` of muonium_step_with may not do. */
muonium_status mu_enter_alone(const muonium_optimizer *optimizer, const char *call);

/* use.c: take the mark away. Returns `status`. */
muonium_status mu_leave(const muonium_optimizer *optimizer, muonium_status status);

/* use.c: fail, naming the call, if libmuonium_mpi relies on the parameters as they are. */
muonium_status mu_check_unheld(const muonium_optimizer *optimizer, const char *call);

/* parameters.c: parameter `index`; fails, naming it, if there is none. */
muonium_status mu_parameter_at(const muonium_optimizer *optimizer, size_t index,
                               mu_parameter **parameter);

/* state_arrays.c: whether a parameter has a master copy beside it. */
MU_SHARED bool mu_keeps_master(const mu_parameter *p);

/* parameters.c: fail, naming what cannot be done, if the optimizer is a description. */
muonium_status mu_need_state(const muonium_optimizer *optimizer, const char *action);

/* parameters.c: what a parameter, or its gradient, would cover at a place; fails unless
 * it can lie there. No gradient covers nothing. */
muonium_status mu_data_extent(const mu_parameter *p, const void *data, mu_extent *extent);
muonium_status mu_grad_extent(const mu_parameter *p, const void *grad, mu_extent *extent);

#endif
