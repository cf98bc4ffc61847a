/*
 * optimizer.h: what the parts of the optimizer know of each other.
 *
 *     options.c     recipes, defaults, validation
 *     routing.c     Muon or AdamW, and why
 *     layout.c      which matrices a tensor stands for, and where their elements lie
 *     parameters.c  creating, adding, changing
 *     schedule.c    which matrices are orthogonalised together, and scratch memory
 *     step.c        the step; muon.c and adam.c do its two halves
 *     places.c      the step with everything at new places
 *     gradients.c, qk_clip.c, report.c, state.c
 */
#ifndef MU_OPTIMIZER_H
#define MU_OPTIMIZER_H

#include "base/base.h"
#include "matmul/kernel.h"
#include "optimizer/elementwise.h"
#include "orthogonalize/across.h"

/* ---- options.c ---- */

/* Options over the defaults of the recipe that they came from, as far as the caller's
 * version of the struct goes; NULL: the default recipe. Fails unless all are valid.
 * Pointers in *options are those given. */
muonium_status mu_read_options(const muonium_options *given, muonium_options *options);

/* Fail, naming field and value, unless all fields are in range. */
muonium_status mu_check_options(const muonium_options *options);

/* The part that concerns orthogonalisation. With generated_rows the table is generated
 * into `storage`, to which options->table then points. */
MU_SHARED muonium_status mu_plan_options_of(const muonium_options *options,
                                            double (*storage)[3], /* MUONIUM_MAX_STEPS rows */
                                            muonium_plan_options *plan_options);

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

/* The matrices of a tensor: for each of batch.total indices, each block of rows. */
typedef struct mu_matrices {
    mu_walk batch, rows, cols;
    size_t blocks;       /* of rows, at least 1 */
    const size_t *sizes; /* of the blocks; NULL: equal ones */
    size_t count;        /* of matrices: batch.total * blocks */
    size_t positions;    /* spatial layout: how many; else 1 */
} mu_matrices;

/* One of them: its rows are rows.total indices from first_row on. */
typedef struct mu_matrix_place {
    mu_offset base;
    size_t first_row, rows, cols;
} mu_matrix_place;

MU_SHARED mu_matrix_place mu_matrix_at(const mu_matrices *matrices, size_t index);

/* Describe a tensor under a layout (AUTO resolved by options). Fails, naming the
 * parameter and the value, on axes or splits that do not fit. `sizes` points to
 * tensor->row_splits. For a tensor with no layout that makes sense (fewer than two
 * dimensions) it is one matrix of one row. */
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

/* The verbose log: counts, counts per reason, up to ten shapes per reason. */
void mu_log_routes(const muonium_optimizer *optimizer);

/* ---- the optimizer ---- */

struct muonium_group {
    muonium_group *next;
    muonium_options options;
    double table[MUONIUM_MAX_STEPS][3]; /* a copy of, or generated for, the options' */
    char *strings;                      /* copies of the options' */
};

typedef struct mu_parameter {
    char *name;
    uint64_t name_hash;
    size_t number;        /* among the parameters of its optimizer */
    mu_extent data, grad; /* where they lie; grad is empty without a gradient */
    char reason[MU_REASON_SIZE];
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
    const mu_across *across; /* it is some columns of one matrix; else NULL */
    /* State, dense and row-major; NULL where not used. */
    void *momentum; /* of options.state_dtype */
    float *exp_avg; /* AdamW */
    float *exp_avg_sq;
    float *normuon; /* one per row of each matrix */
    float *master;
    bool has_master;                   /* master holds the parameter: from its first step on */
    muonium_certificate *certificates; /* matrices.count of them, of the last step */
    bool certified;
} mu_parameter;

typedef struct mu_schedule mu_schedule; /* schedule.h */

struct muonium_optimizer {
    muonium_group *groups; /* the default one first */
    mu_parameter **parameters;
    size_t count, capacity;
    mu_schedule *schedule; /* NULL: to be made by the next step */
    muonium_counters counters;
    size_t scratch_bytes; /* as in the first options */
    muonium_log *log;
    void *log_context;
    bool logged;
    bool stateless; /* a description: see muonium_create_description */
    bool identity;  /* for tests: leave D as it is instead of orthogonalising it */
};

/* parameters.c: parameter `index`; fails, naming it, if there is none. */
muonium_status mu_parameter_at(const muonium_optimizer *optimizer, size_t index,
                               mu_parameter **parameter);

/* parameters.c: whether a parameter has a master copy beside it. */
MU_SHARED bool mu_keeps_master(const mu_parameter *p);

/* parameters.c: fail, naming what cannot be done, if the optimizer is a description. */
muonium_status mu_need_state(const muonium_optimizer *optimizer, const char *action);

/* parameters.c: what a parameter, or its gradient, would cover at a place; fails unless
 * it can lie there. No gradient covers nothing. */
muonium_status mu_data_extent(const mu_parameter *p, const void *data, mu_extent *extent);
muonium_status mu_grad_extent(const mu_parameter *p, const void *grad, mu_extent *extent);

#endif
