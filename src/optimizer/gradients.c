/*
 * gradients.c: the norm of all gradients, scaling, clipping and zeroing. Sums are formed piece by
 * piece in order, so that they do not depend on the number of threads.
 */
#include <math.h>

#include "optimizer/optimizer.h"

/* Calls `visit` on all gradients, in pieces with one stride. */
typedef void visitor(void *context, const mu_rows *rows, const mu_block *piece);

static void visit_gradients(const muonium_optimizer *optimizer, bool adam_only, const mu_rows *rows,
                            visitor *visit, void *context)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        if (!p->tensor.grad || (adam_only && p->muon)) {
            continue;
        }
        size_t last = p->all.levels - 1, bytes = muonium_dtype_size(p->grad_dtype);
        for (size_t done = 0; done < p->elements;) {
            size_t left = p->all.count[last] - done % p->all.count[last];
            mu_offset at = mu_walk_to(&p->all, done);
            mu_block piece = {(char *)p->tensor.grad + at.grad * (ptrdiff_t)bytes,
                              p->grad_dtype,
                              p->all.grad[last],
                              p->all.grad[last],
                              1,
                              left < MU_PIECE ? left : MU_PIECE};
            visit(context, rows, &piece);
            done += piece.cols;
        }
    }
}

/* Fail, naming the gradient, if elements of a gradient that would be written share memory, as in
 * a broadcast array: each would be written several times. */
static muonium_status check_writable(const muonium_optimizer *optimizer, bool adam_only)
{
    for (size_t i = 0; optimizer && i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        const muonium_tensor *t = &p->tensor;
        bool written = t->grad && p->elements > 0 && !(adam_only && p->muon);
        if (written && !mu_elements_distinct(t->ndim, t->shape, t->grad_strides)) {
            return mu_fail(
                MUONIUM_INVALID,
                "grad_strides of %s: elements of the gradient share memory, so it cannot be "
                "changed: nothing was changed; give each element its own memory",
                p->name);
        }
    }
    return MUONIUM_OK;
}

/* A sum of f32 squares cannot overflow a double. */
static void add_gradient_squares(void *context, const mu_rows *rows, const mu_block *piece)
{
    float buffer[MU_PIECE];
    rows->load(piece, buffer, piece->cols);
    *(double *)context += rows->squares(buffer, piece->cols, 1);
}

static void scale_piece(void *context, const mu_rows *rows, const mu_block *piece)
{
    float buffer[MU_PIECE];
    rows->load(piece, buffer, piece->cols);
    rows->scale(buffer, piece->cols, *(const double *)context);
    rows->store(buffer, piece->cols, piece);
}

static void clear_piece(void *context, const mu_rows *rows, const mu_block *piece)
{
    static const float zeros[MU_PIECE];
    (void)context;
    rows->store(zeros, piece->cols, piece);
}

muonium_status muonium_set_grad_scale(muonium_optimizer *optimizer, double scale)
{
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_need_state(optimizer, "scale gradients");
    if (status == MUONIUM_OK && !(scale >= 0x1p-126 && scale <= 0x1p126)) {
        status = mu_fail(MUONIUM_INVALID, "scale is %g: use a number from 2^-126 to 2^126", scale);
    }
    if (status == MUONIUM_OK) {
        optimizer->grad_scale = scale;
    }
    return mu_leave(optimizer, status);
}

muonium_status muonium_grad_norm(const muonium_optimizer *optimizer, bool adam_only, double *norm)
{
    if (!optimizer || !norm) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", optimizer ? "norm" : "optimizer");
    }
    const mu_rows *rows;
    muonium_status status = mu_rows_choose(MUONIUM_F32, &rows);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_fenv environment = mu_fenv_enter();
    double sum = 0;
    visit_gradients(optimizer, adam_only, rows, add_gradient_squares, &sum);
    *norm = sqrt(sum) * optimizer->grad_scale;
    mu_fenv_leave(environment);
    return MUONIUM_OK;
}

static muonium_status clip_grads(muonium_optimizer *optimizer, double max_norm, bool adam_only,
                                 double *norm, double *factor)
{
    if (!(max_norm > 0)) {
        return mu_fail(MUONIUM_INVALID, "max_norm is %g: use a number above 0", max_norm);
    }
    double found = 0, scale = 1;
    muonium_status status = check_writable(optimizer, adam_only);
    if (status == MUONIUM_OK) {
        status = muonium_grad_norm(optimizer, adam_only, &found);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!isfinite(found)) {
        return mu_fail(MUONIUM_NON_FINITE,
                       "the norm of the gradients is %g: nothing was changed; muonium_step names "
                       "the parameter",
                       found);
    }
    if (found > max_norm) {
        const mu_rows *rows;
        mu_rows_choose(MUONIUM_F32, &rows); /* as it did a moment ago */
        mu_fenv environment = mu_fenv_enter();
        scale = max_norm / found;
        visit_gradients(optimizer, adam_only, rows, scale_piece, &scale);
        mu_fenv_leave(environment);
    }
    if (norm) {
        *norm = found;
    }
    if (factor) {
        *factor = scale;
    }
    return MUONIUM_OK;
}

muonium_status muonium_clip_grads(muonium_optimizer *optimizer, double max_norm, bool adam_only,
                                  double *norm, double *factor)
{
    muonium_status status = mu_enter(optimizer, __func__);
    if (status == MUONIUM_OK) {
        status = clip_grads(optimizer, max_norm, adam_only, norm, factor);
        mu_leave(optimizer, status);
    }
    return status;
}

muonium_status muonium_zero_grads(muonium_optimizer *optimizer)
{
    const mu_rows *rows;
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = check_writable(optimizer, false);
    if (status == MUONIUM_OK) {
        status = mu_rows_choose(MUONIUM_F32, &rows);
    }
    if (status == MUONIUM_OK) {
        visit_gradients(optimizer, false, rows, clear_piece, NULL);
    }
    return mu_leave(optimizer, status);
}
