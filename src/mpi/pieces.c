/*
 * pieces.c: cuts parameters into parts that different ranks may own. The cuts depend on shapes
 * and layouts alone, so that sums over parts are the same for every number of ranks.
 */
#include "mpi/plan.h"
#include "optimizer/blocks.h"

#include <stdio.h>

enum { SLICE = 1 << 18 }; /* elements per part of an AdamW parameter */

_Static_assert(SLICE % MUONIUM_STATE_BLOCK == 0, "parts do not cut blocks of int8 state");

static bool is_dense(const mu_parameter *p)
{
    size_t step = 1;
    for (size_t d = p->tensor.ndim; d-- > 0;) {
        if (p->tensor.shape[d] > 1 && p->tensor.strides[d] != (ptrdiff_t)step) {
            return false;
        }
        step *= p->tensor.shape[d];
    }
    return true;
}

static mu_cut cut_of(const mu_parameter *p)
{
    /* Parts of others could interleave in memory. */
    if (!is_dense(p) || (p->muon && mu_needs_whole_parameters(&p->group->options))) {
        return MU_CUT_WHOLE;
    }
    if (mu_has_blocks(p) && !mu_has_whole_blocks(p)) { /* parts would share the scale of a block */
        return MU_CUT_WHOLE;
    }
    if (!p->muon) {
        return p->elements > SLICE ? MU_CUT_SLICE : MU_CUT_WHOLE;
    }
    const mu_layout *layout = p->matrices.layout;
    if (layout->leading_batch && p->tensor.ndim > 2) {
        return p->tensor.shape[0] > 1 ? MU_CUT_LEADING : MU_CUT_WHOLE;
    }
    bool rows = layout->contiguous && p->matrices.batch.total == 1 && p->matrices.blocks > 1;
    return rows ? MU_CUT_BLOCK : MU_CUT_WHOLE;
}

static size_t parts_of(const mu_parameter *p)
{
    switch (cut_of(p)) {
    case MU_CUT_SLICE:
        return (p->elements + SLICE - 1) / SLICE;
    case MU_CUT_LEADING:
        return p->tensor.shape[0];
    case MU_CUT_BLOCK:
        return p->matrices.blocks;
    case MU_CUT_WHOLE:
    case MU_CUT_COLUMNS: /* made from whole ones later */
        break;
    }
    return 1;
}

/* Part `index` of a parameter. */
static mu_part part_at(const mu_parameter *p, size_t index)
{
    mu_part part = {.cut = cut_of(p), .piece = {.parameter = p->number, .muon = p->muon}};
    size_t first = 0, elements = p->elements;
    if (part.cut == MU_CUT_SLICE) {
        first = index * SLICE;
        elements = p->elements - first < SLICE ? p->elements - first : SLICE;
    } else if (part.cut == MU_CUT_LEADING) {
        elements = p->elements / p->tensor.shape[0];
        first = index * elements;
    } else if (part.cut == MU_CUT_BLOCK) {
        mu_matrix_place place = mu_matrix_at(&p->matrices, index);
        first = place.first_row * place.cols;
        elements = place.rows * place.cols;
    }
    size_t here = part.cut == MU_CUT_LEADING || part.cut == MU_CUT_BLOCK ? parts_of(p) : 1;
    if (p->muon && p->matrices.layout->contiguous && is_dense(p) && p->matrices.count == here) {
        mu_matrix_place place = mu_matrix_at(&p->matrices, index);
        part.rows = place.rows;
        part.cols = place.cols;
    }
    part.elements = elements;
    part.piece.first = first;
    part.piece.run = part.piece.stride = elements;
    part.piece.runs = 1;
    return part;
}

muonium_status mu_cut_parameters(const muonium_optimizer *description, mu_part **parts,
                                 size_t *count)
{
    size_t total = 0, made = 0, bytes;
    for (size_t i = 0; i < description->count; i++) {
        total += parts_of(description->parameters[i]);
    }
    *parts = mu_mul(total, sizeof **parts, &bytes) ? mu_alloc(bytes) : NULL;
    if (!*parts) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a plan of %zu pieces", total);
    }
    for (size_t i = 0; i < description->count; i++) {
        const mu_parameter *p = description->parameters[i];
        for (size_t k = 0, n = parts_of(p); k < n; k++) {
            (*parts)[made++] = part_at(p, k);
        }
    }
    *count = total;
    return MUONIUM_OK;
}

size_t mu_units_of_part(const mu_part *part)
{
    return part->rows > 0 ? (part->col_count + part->block - 1) / part->block : 1;
}

/* ---- parts as tensors ---- */

static void become_one_matrix(muonium_tensor *t)
{
    t->row_splits = NULL;
    t->row_split_count = 0;
    t->heads = 0;
    t->layout = MUONIUM_LAYOUT_FLATTEN;
}

void mu_tensor_of_part(const mu_parameter *p, const mu_part *part, mu_part_tensor *made)
{
    muonium_tensor *t = &made->tensor;
    size_t first = part->piece.first;
    char *data = p->tensor.data;
    ptrdiff_t width = (ptrdiff_t)muonium_dtype_size(p->tensor.dtype);
    *t = p->tensor;
    t->grad = NULL;
    t->f32_grad = true;
    t->half_grad = 0;
    t->route = p->muon ? MUONIUM_ROUTE_MUON : MUONIUM_ROUTE_ADAM;
    t->grad_strides = NULL;
    if (part->cut == MU_CUT_WHOLE) {
        return; /* the name is that of the parameter, which outlives this */
    }
    snprintf(made->name, sizeof made->name, "parameter %zu from element %zu", p->number, first);
    t->name = made->name;
    size_t per_index = p->tensor.ndim > 0 ? p->elements / p->tensor.shape[0] : 1;
    if (part->cut == MU_CUT_SLICE) {
        t->ndim = 1;
        t->shape[0] = part->elements;
        t->strides = NULL;
        t->data = data + (ptrdiff_t)first * width;
        return;
    }
    if (part->cut == MU_CUT_COLUMNS) { /* of a dense parameter */
        bool tall = part->rows > part->cols;
        t->ndim = 2;
        t->shape[0] = tall ? part->col_count : part->rows;
        t->shape[1] = tall ? part->cols : part->col_count;
        made->strides[0] = (ptrdiff_t)part->cols;
        made->strides[1] = 1;
        t->strides = made->strides;
        t->data = data + (ptrdiff_t)first * width;
        become_one_matrix(t);
        return;
    }
    t->data = data + (ptrdiff_t)(first / per_index) * p->tensor.strides[0] * width;
    t->shape[0] = part->elements / per_index;
    if (part->cut == MU_CUT_LEADING) {
        t->layout = p->matrices.layout->id;
        return;
    }
    become_one_matrix(t);
}
