/*
 * layout.c: which matrices a tensor stands for, and where their elements lie.
 *
 * Every layout is the same choice: some dimensions together make the rows (outputs),
 * some the columns (inputs), and all others a batch. Each of the three is a walk, the
 * nested loops over its dimensions. A tensor lies in three arrays at a time, the
 * parameter, its gradient and our state, so a walk steps through all of them together;
 * for dense arrays most walks come down to one loop.
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

/* Whether a loop with stride `outer` around `count` steps of stride `inner` is one loop
 * with stride `inner`. A product too large for the type is no stride of an array. */
static bool continues(ptrdiff_t outer, size_t count, ptrdiff_t inner)
{
    ptrdiff_t reach;
    return !__builtin_mul_overflow(inner, count, &reach) && outer == reach;
}

/* Add a loop inside those that a walk has, joined with the innermost if it can be. */
static void add_loop(mu_walk *walk, size_t count, ptrdiff_t data, ptrdiff_t grad, ptrdiff_t state)
{
    size_t last = walk->levels - 1;
    if (count == 1) {
        return; /* it takes no step, so its strides mean nothing */
    }
    if (walk->total == 1) {
        walk->count[last] = count; /* in place of the single step of an empty walk */
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
        /* What the outermost loop is left with is its own index: no division there. */
        size_t rest = level > 0 ? index / walk->count[level] : 0;
        ptrdiff_t step = (ptrdiff_t)(index - rest * walk->count[level]);
        offset.data += step * walk->data[level];
        offset.grad += step * walk->grad[level];
        offset.state += step * walk->state[level];
        index = rest;
    }
    return offset;
}

/* ---- matrices ---- */

static muonium_status check_shape(const muonium_tensor *tensor, const char *name)
{
    size_t elements = 1;
    if (tensor->ndim > MUONIUM_MAX_DIMS) {
        return mu_fail(MUONIUM_INVALID, "ndim of %s is %zu: use at most %d dimensions", name,
                       tensor->ndim, MUONIUM_MAX_DIMS);
    }
    for (size_t d = 0; d < tensor->ndim; d++) {
        /* Beside an extent of 0 the others must fit as well: strides are their products. */
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

static muonium_status check_fan(const muonium_tensor *tensor, const char *name)
{
    const uint32_t out = tensor->out_axes, in = tensor->in_axes, all = all_axes(tensor);
    if (out == 0 || in == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s is 0: MUONIUM_LAYOUT_FAN takes at least one dimension of outputs "
                       "and one of inputs (bit d stands for dimension d)",
                       out == 0 ? "out_axes" : "in_axes", name);
    }
    if (((out | in) & ~all) != 0) {
        const bool bad_out = (out & ~all) != 0;
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s is 0x%x: it names a dimension beyond the %zu that there are (bit "
                       "d stands for dimension d)",
                       bad_out ? "out_axes" : "in_axes", name, (unsigned)(bad_out ? out : in),
                       tensor->ndim);
    }
    if ((out & in) != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "out_axes and in_axes of %s are 0x%x and 0x%x: a dimension is one of "
                       "outputs or one of inputs, not both",
                       name, (unsigned)out, (unsigned)in);
    }
    return MUONIUM_OK;
}

static muonium_status check_layout(const muonium_tensor *tensor, const char *name)
{
    if ((int)tensor->layout < MUONIUM_LAYOUT_AUTO || tensor->layout > MUONIUM_LAYOUT_FAN) {
        return mu_fail(MUONIUM_INVALID,
                       "layout of %s is %d: use a value of muonium_layout, 0 to %d", name,
                       (int)tensor->layout, (int)MUONIUM_LAYOUT_FAN);
    }
    if (tensor->layout == MUONIUM_LAYOUT_FAN) {
        return check_fan(tensor, name);
    }
    if (tensor->out_axes != 0 || tensor->in_axes != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "out_axes and in_axes of %s are 0x%x and 0x%x, but its layout is %d: they "
                       "go with MUONIUM_LAYOUT_FAN (%d) alone",
                       name, (unsigned)tensor->out_axes, (unsigned)tensor->in_axes,
                       (int)tensor->layout, (int)MUONIUM_LAYOUT_FAN);
    }
    if (tensor->layout == MUONIUM_LAYOUT_SPATIAL && tensor->ndim < 3) {
        return mu_fail(MUONIUM_INVALID,
                       "ndim of %s is %zu: MUONIUM_LAYOUT_SPATIAL takes at least 3 dimensions, "
                       "(out, in, positions...)",
                       name, tensor->ndim);
    }
    if (tensor->layout == MUONIUM_LAYOUT_EXPERTS && tensor->ndim < 2) {
        return mu_fail(MUONIUM_INVALID,
                       "ndim of %s is %zu: MUONIUM_LAYOUT_EXPERTS takes at least 2 dimensions, "
                       "(batch..., out, in)",
                       name, tensor->ndim);
    }
    return MUONIUM_OK;
}

/* Which dimensions make rows and columns; all others are the batch. */
static void choose_axes(const muonium_tensor *tensor, const muonium_options *options, uint32_t *out,
                        uint32_t *in)
{
    muonium_layout layout = tensor->layout;
    if (layout == MUONIUM_LAYOUT_AUTO && tensor->ndim == 3) {
        layout = options->layout_3d;
    }
    switch (layout) {
    case MUONIUM_LAYOUT_SPATIAL:
        *out = 1u << 0;
        *in = 1u << 1;
        return;
    case MUONIUM_LAYOUT_EXPERTS:
        *out = 1u << (tensor->ndim - 2);
        *in = 1u << (tensor->ndim - 1);
        return;
    case MUONIUM_LAYOUT_FAN:
        *out = tensor->out_axes;
        *in = tensor->in_axes;
        return;
    case MUONIUM_LAYOUT_AUTO:
        if (tensor->ndim == 2 && options->kernels_in_out) {
            *out = 1u << 1;
            *in = 1u << 0;
            return;
        }
        break;
    case MUONIUM_LAYOUT_FLATTEN:
        break;
    }
    *out = tensor->ndim < 2 ? 0 : 1u << 0;
    *in = all_axes(tensor) & ~*out;
}

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
        return mu_fail(MUONIUM_INVALID,
                       "heads of %s is %zu, and it has row_splits: rows are split one way or the "
                       "other",
                       name, tensor->heads);
    }
    for (size_t i = 0; i < tensor->row_split_count; i++) {
        if (sizes[i] == 0) {
            return mu_fail(MUONIUM_INVALID,
                           "row_splits[%zu] of %s is 0: each block needs at least 1 row", i, name);
        }
        if (sizes[i] > rows - sum) {
            return mu_fail(MUONIUM_INVALID,
                           "row_splits[%zu] of %s is %zu: with the %zu before it that is more "
                           "than the %zu rows of each matrix",
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
    muonium_status status = check_shape(tensor, name);
    if (status == MUONIUM_OK) {
        status = check_layout(tensor, name);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    uint32_t out, in;
    mu_matrices made;
    choose_axes(tensor, options, &out, &in);
    walk_axes(tensor, all_axes(tensor) & ~(out | in), &made.batch);
    walk_axes(tensor, out, &made.rows);
    walk_axes(tensor, in, &made.cols);
    status = split_rows(tensor, name, &made);
    if (status != MUONIUM_OK) {
        return status;
    }
    made.count = made.batch.total * made.blocks; /* at most the number of elements */
    made.positions = tensor->layout == MUONIUM_LAYOUT_SPATIAL ? made.batch.total : 1;
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
