/*
 * layout.c: which matrices a tensor stands for, and where their elements lie.
 *
 * A layout chooses dimensions: some make the rows (outputs), some the columns (inputs),
 * and all others a batch. Each of the three is a walk, the nested loops over its
 * dimensions. A walk steps through three arrays at a time: the parameter, its gradient
 * and our state. For dense arrays most walks are a single loop.
 *
 * To add a layout: a value of muonium_layout, its name in options.def, and its entry in the
 * table below.
 */
#include "optimizer/optimizer.h"

/* ---- walks ---- */

void mu_dense_strides(const muonium_tensor *tensor, ptrdiff_t strides[MUONIUM_MAX_DIMS])
{
    ptrdiff_t stride = 1;
    for (size_t d = tensor->ndim; d-- > 0;) {
        strides[d] = stride;
        stride *= (ptrdiff_t)tensor->shape[d];
    }
}

/* Whether a loop of stride `outer` around `count` iterations of stride `inner` is the same as one
 * loop of stride `inner`. */
static bool continues(ptrdiff_t outer, size_t count, ptrdiff_t inner)
{
    ptrdiff_t reach;
    return !__builtin_mul_overflow(inner, count, &reach) && outer == reach;
}

/* Add an innermost loop to a walk, joined with the present one if possible. */
static void add_loop(mu_walk *walk, size_t count, ptrdiff_t data, ptrdiff_t grad, ptrdiff_t state)
{
    size_t last = walk->levels - 1;
    if (count == 1) {
        return; /* one iteration: its strides are not used */
    }
    if (walk->total == 1) {
        walk->count[last] = count; /* the first real loop */
    } else if (continues(walk->data[last], count, data) &&
               continues(walk->grad[last], count, grad) &&
               continues(walk->state[last], count, state)) {
        walk->count[last] *= count;
    } else {
        last = walk->levels++;
        walk->count[last] = count;
    }
    walk->data[last] = data;
    walk->grad[last] = grad;
    walk->state[last] = state;
    walk->total *= count;
}

/* The walk over the dimensions d whose bit is set in `axes`, in their order. */
static void walk_axes(const muonium_tensor *tensor, uint32_t axes, mu_walk *walk)
{
    ptrdiff_t state[MUONIUM_MAX_DIMS];
    mu_dense_strides(tensor, state);
    const ptrdiff_t *data = tensor->strides ? tensor->strides : state;
    const ptrdiff_t *grad = tensor->grad_strides ? tensor->grad_strides : state;
    *walk = (mu_walk){.levels = 1, .count = {1}, .total = 1};
    for (size_t d = 0; d < tensor->ndim; d++) {
        if (axes >> d & 1) {
            add_loop(walk, tensor->shape[d], data[d], grad[d], state[d]);
        }
    }
}

static uint32_t all_axes(const muonium_tensor *tensor)
{
    return (1u << tensor->ndim) - 1;
}

void mu_walk_all(const muonium_tensor *tensor, mu_walk *walk)
{
    walk_axes(tensor, all_axes(tensor), walk);
}

mu_offset mu_walk_to(const mu_walk *walk, size_t index)
{
    mu_offset offset = {0, 0, 0};
    for (size_t level = walk->levels; level-- > 0;) {
        /* The rest is the index of the outermost loop: no division there. */
        size_t rest = level > 0 ? index / walk->count[level] : 0;
        ptrdiff_t step = (ptrdiff_t)(index - rest * walk->count[level]);
        offset.data += step * walk->data[level];
        offset.grad += step * walk->grad[level];
        offset.state += step * walk->state[level];
        index = rest;
    }
    return offset;
}

static muonium_status check_shape(const muonium_tensor *tensor, const char *name)
{
    size_t elements = 1;
    if (tensor->ndim > MUONIUM_MAX_DIMS) {
        return mu_fail(MUONIUM_INVALID, "ndim of %s is %zu: use at most %d dimensions", name,
                       tensor->ndim, MUONIUM_MAX_DIMS);
    }
    for (size_t d = 0; d < tensor->ndim; d++) {
        /* With an extent of 0 the others must fit too, since strides are their products. */
        if (!mu_mul(elements, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &elements) ||
            elements > PTRDIFF_MAX / sizeof(double)) {
            return mu_fail(MUONIUM_INVALID,
                           "shape[%zu] of %s is %zu: that many elements do not fit into the "
                           "address space",
                           d, name, tensor->shape[d]);
        }
    }
    return MUONIUM_OK;
}

/* ---- the table of layouts ---- */

static const char *name_of(muonium_layout layout)
{
    return muonium_enum_name("muonium_layout", (int)layout);
}

static muonium_status check_no_axes(const mu_layout *layout, const muonium_tensor *tensor,
                                    const char *name)
{
    if (tensor->out_axes != 0 || tensor->in_axes != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "out_axes and in_axes of %s are 0x%x and 0x%x, but its layout is %s: leave "
                       "them 0 unless the layout is fan",
                       name, (unsigned)tensor->out_axes, (unsigned)tensor->in_axes,
                       name_of(tensor->layout));
    }
    if (tensor->ndim < layout->least_dims) {
        return mu_fail(MUONIUM_INVALID,
                       "ndim of %s is %zu: the layout %s takes at least %zu dimensions, %s", name,
                       tensor->ndim, name_of(layout->id), layout->least_dims, layout->dims);
    }
    return MUONIUM_OK;
}

static muonium_status check_fan(const mu_layout *layout, const muonium_tensor *tensor,
                                const char *name)
{
    const uint32_t out = tensor->out_axes, in = tensor->in_axes, all = all_axes(tensor);
    if (out == 0 || in == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s is 0: the layout %s takes at least one dimension of outputs and "
                       "one of inputs (bit d stands for dimension d)",
                       out == 0 ? "out_axes" : "in_axes", name, name_of(layout->id));
    }
    if (((out | in) & ~all) != 0) {
        const bool bad_out = (out & ~all) != 0;
        return mu_fail(
            MUONIUM_INVALID,
            "%s of %s is 0x%x: the tensor has only %zu dimensions (bit d stands for dimension d)",
            bad_out ? "out_axes" : "in_axes", name, (unsigned)(bad_out ? out : in), tensor->ndim);
    }
    if ((out & in) != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "out_axes and in_axes of %s are 0x%x and 0x%x: a dimension is one of "
                       "outputs or one of inputs, not both",
                       name, (unsigned)out, (unsigned)in);
    }
    return MUONIUM_OK;
}

static mu_axes flatten_axes(const muonium_tensor *tensor)
{
    uint32_t out = tensor->ndim < 2 ? 0 : 1u << 0;
    return (mu_axes){out, all_axes(tensor) & ~out};
}

static mu_axes in_out_axes(const muonium_tensor *tensor)
{
    (void)tensor;
    return (mu_axes){1u << 1, 1u << 0};
}

static mu_axes spatial_axes(const muonium_tensor *tensor)
{
    (void)tensor;
    return (mu_axes){1u << 0, 1u << 1};
}

static mu_axes experts_axes(const muonium_tensor *tensor)
{
    return (mu_axes){1u << (tensor->ndim - 2), 1u << (tensor->ndim - 1)};
}

static mu_axes fan_axes(const muonium_tensor *tensor)
{
    return (mu_axes){tensor->out_axes, tensor->in_axes};
}

/* MUONIUM_LAYOUT_AUTO has no entry: resolve() replaces it. */
static const mu_layout layouts[] = {
    [MUONIUM_LAYOUT_FLATTEN] = {.id = MUONIUM_LAYOUT_FLATTEN,
                                .check = check_no_axes,
                                .axes = flatten_axes,
                                .judged_flattened = true,
                                .contiguous = true},
    [MUONIUM_LAYOUT_SPATIAL] = {.id = MUONIUM_LAYOUT_SPATIAL,
                                .least_dims = 3,
                                .dims = "(out, in, positions...)",
                                .check = check_no_axes,
                                .axes = spatial_axes,
                                .positions = true,
                                .judged_flattened = true},
    [MUONIUM_LAYOUT_EXPERTS] = {.id = MUONIUM_LAYOUT_EXPERTS,
                                .least_dims = 2,
                                .dims = "(batch..., out, in)",
                                .check = check_no_axes,
                                .axes = experts_axes,
                                .contiguous = true,
                                .leading_batch = true},
    [MUONIUM_LAYOUT_FAN] = {.id = MUONIUM_LAYOUT_FAN, .check = check_fan, .axes = fan_axes},
};

enum { LAST_LAYOUT = sizeof layouts / sizeof layouts[0] - 1 };

/* (in, out), as options.kernels_in_out says of tensors without a layout. */
static const mu_layout layout_in_out = {
    .id = MUONIUM_LAYOUT_AUTO, .check = check_no_axes, .axes = in_out_axes};

const mu_layout *mu_resolve_layout(const muonium_tensor *tensor, const muonium_options *options)
{
    muonium_layout layout = tensor->layout;
    if (layout == MUONIUM_LAYOUT_AUTO && tensor->ndim == 3) {
        layout = options->layout_3d;
    }
    if (layout == MUONIUM_LAYOUT_AUTO) {
        return tensor->ndim == 2 && options->kernels_in_out ? &layout_in_out
                                                            : &layouts[MUONIUM_LAYOUT_FLATTEN];
    }
    return &layouts[layout];
}

/* ---- matrices ---- */

static muonium_status check_splits(const muonium_tensor *tensor, const char *name, size_t rows)
{
    const size_t *sizes = tensor->row_splits;
    size_t sum = 0;
    if (sizes == NULL) {
        return mu_fail(MUONIUM_INVALID,
                       "row_split_count of %s is %zu, but row_splits is NULL: set both or neither",
                       name, tensor->row_split_count);
    }
    if (tensor->heads != 0) {
        return mu_fail(
            MUONIUM_INVALID,
            "heads of %s is %zu, and it has row_splits: set heads or row_splits, not both", name,
            tensor->heads);
    }
    for (size_t i = 0; i < tensor->row_split_count; i++) {
        if (sizes[i] == 0) {
            return mu_fail(MUONIUM_INVALID,
                           "row_splits[%zu] of %s is 0: each block needs at least 1 row", i, name);
        }
        if (sizes[i] > rows - sum) {
            return mu_fail(MUONIUM_INVALID,
                           "row_splits[%zu] of %s is %zu: it and the %zu rows before it exceed the "
                           "%zu rows of each matrix",
                           i, name, sizes[i], sum, rows);
        }
        sum += sizes[i];
    }
    if (sum != rows) {
        return mu_fail(MUONIUM_INVALID,
                       "row_splits of %s add up to %zu: they must make up all %zu rows of each "
                       "matrix",
                       name, sum, rows);
    }
    return MUONIUM_OK;
}

static muonium_status split_rows(const muonium_tensor *tensor, const char *name,
                                 mu_matrices *matrices)
{
    const size_t rows = matrices->rows.total;
    matrices->blocks = 1;
    matrices->sizes = NULL;
    if (tensor->row_split_count > 0) {
        matrices->blocks = tensor->row_split_count;
        matrices->sizes = tensor->row_splits;
        return check_splits(tensor, name, rows);
    }
    if (tensor->heads > 0) {
        matrices->blocks = tensor->heads;
        if (rows % tensor->heads != 0) {
            return mu_fail(MUONIUM_INVALID,
                           "heads of %s is %zu: it must divide the %zu rows of each matrix", name,
                           tensor->heads, rows);
        }
    }
    return MUONIUM_OK;
}

muonium_status mu_layout_of(const muonium_tensor *tensor, const char *name,
                            const muonium_options *options, mu_matrices *matrices)
{
    if ((int)tensor->layout < MUONIUM_LAYOUT_AUTO || (int)tensor->layout > LAST_LAYOUT) {
        return mu_fail(MUONIUM_INVALID,
                       "layout of %s is %d: use a value of muonium_layout, 0 to %d", name,
                       (int)tensor->layout, (int)LAST_LAYOUT);
    }
    mu_matrices made = {.layout = mu_resolve_layout(tensor, options)};
    muonium_status status = check_shape(tensor, name);
    if (status == MUONIUM_OK) {
        status = made.layout->check(made.layout, tensor, name);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_axes axes = made.layout->axes(tensor);
    walk_axes(tensor, all_axes(tensor) & ~(axes.out | axes.in), &made.batch);
    walk_axes(tensor, axes.out, &made.rows);
    walk_axes(tensor, axes.in, &made.cols);
    status = split_rows(tensor, name, &made);
    if (status != MUONIUM_OK) {
        return status;
    }
    made.count = made.batch.total * made.blocks; /* at most the number of elements */
    made.positions = made.layout->positions ? made.batch.total : 1;
    *matrices = made;
    return MUONIUM_OK;
}

mu_matrix_place mu_matrix_at(const mu_matrices *matrices, size_t index)
{
    const size_t block = index % matrices->blocks;
    mu_matrix_place place = {
        .base = mu_walk_to(&matrices->batch, index / matrices->blocks),
        .cols = matrices->cols.total,
    };
    if (matrices->sizes == NULL) {
        place.rows = matrices->rows.total / matrices->blocks;
        place.first_row = block * place.rows;
    } else {
        place.rows = matrices->sizes[block];
        for (size_t i = 0; i < block; i++) {
            place.first_row += matrices->sizes[i];
        }
    }
    return place;
}
