/*
 * qk_clip.c: MuonClip's bound on attention logits. It runs after a step. If the largest logit
 * of a head exceeds the threshold, the rows of the head are scaled down to it.
 */
#include <math.h>

#include "optimizer/optimizer.h"

/* Fail unless a two-dimensional parameter has heads * head_dim rows from row `first` on. */
static muonium_status check_rows(const char *role, const mu_parameter *p, size_t first,
                                 size_t heads, size_t head_dim)
{
    size_t rows, end;
    if (p->tensor.ndim != 2) {
        return mu_fail(MUONIUM_INVALID, "%s parameter %s has %zu dimensions: it must have 2", role,
                       p->name, p->tensor.ndim);
    }
    if (!mu_mul(heads, head_dim, &rows) || !mu_add(first, rows, &end) || end > p->tensor.shape[0]) {
        return mu_fail(MUONIUM_INVALID,
                       "%s rows are %zu heads of %zu from row %zu on: %s has only %zu rows", role,
                       heads, head_dim, first, p->name, p->tensor.shape[0]);
    }
    return MUONIUM_OK;
}

static void scale_row(const mu_rows *rows, mu_parameter *p, size_t row, double factor)
{
    float buffer[MU_PIECE];
    const muonium_tensor *t = &p->tensor;
    ptrdiff_t bytes = (ptrdiff_t)muonium_dtype_size(t->dtype);
    for (size_t j = 0; j < t->shape[1]; j += MU_PIECE) {
        size_t cols = t->shape[1] - j < MU_PIECE ? t->shape[1] - j : MU_PIECE;
        ptrdiff_t at = (ptrdiff_t)row * t->strides[0] + (ptrdiff_t)j * t->strides[1];
        mu_block piece = {
            (char *)t->data + at * bytes, t->dtype, t->strides[1], t->strides[1], 1, cols};
        size_t at_state = row * t->shape[1] + j;
        float *masters = p->state[MU_STATE_MASTER];
        float *master = p->has_master ? masters + at_state : NULL;
        if (!master) {
            rows->load(&piece, buffer, cols);
        }
        rows->scale(master ? master : buffer, cols, factor);
        rows->store(master ? master : buffer, cols, &piece);
        if (t->copy) {
            char *to = (char *)t->copy + at_state * muonium_dtype_size(t->copy_dtype);
            mu_block copy = {to, t->copy_dtype, 1, 1, 1, cols};
            rows->store(master ? master : buffer, cols, &copy);
        }
    }
}

static void scale_head(const mu_rows *ops, mu_parameter *p, size_t first, size_t rows,
                       double factor)
{
    for (size_t i = 0; i < rows && factor != 1; i++) {
        scale_row(ops, p, first + i, factor);
    }
}

static muonium_status check_heads(const muonium_qk *qk, size_t key_heads)
{
    if (qk->heads == 0 || qk->head_dim == 0) {
        return mu_fail(MUONIUM_INVALID, "heads is %zu and head_dim %zu: both must be at least 1",
                       qk->heads, qk->head_dim);
    }
    if (qk->heads % key_heads != 0) {
        return mu_fail(MUONIUM_INVALID, "key_heads is %zu: it must divide heads, which is %zu",
                       key_heads, qk->heads);
    }
    if (!(qk->threshold > 0) || isinf(qk->threshold)) {
        return mu_fail(MUONIUM_INVALID, "threshold is %g: use a finite number above 0",
                       qk->threshold);
    }
    if (!qk->max_logits) {
        return mu_fail(MUONIUM_INVALID, "max_logits is NULL: pass one per head");
    }
    return MUONIUM_OK;
}

/* Fail if rows of queries and keys overlap. Both exist. */
static muonium_status check_apart(const muonium_qk *qk, size_t key_heads, const char *name)
{
    size_t query_end = qk->query_row + qk->heads * qk->head_dim;
    size_t key_end = qk->key_row + key_heads * qk->head_dim;
    if (qk->query == qk->key && qk->query_row < key_end && qk->key_row < query_end) {
        return mu_fail(MUONIUM_INVALID,
                       "query rows %zu to %zu and key rows %zu to %zu of %s overlap", qk->query_row,
                       query_end - 1, qk->key_row, key_end - 1, name);
    }
    return MUONIUM_OK;
}

static muonium_status check_logits(const muonium_qk *qk)
{
    for (size_t h = 0; h < qk->heads; h++) {
        if (!isfinite(qk->max_logits[h])) {
            return mu_fail(MUONIUM_NON_FINITE, "max_logits[%zu] is %g: nothing was changed", h,
                           (double)qk->max_logits[h]);
        }
    }
    return MUONIUM_OK;
}

static muonium_status clip(muonium_optimizer *optimizer, const muonium_qk *heads, size_t *clipped)
{
    if (!heads) {
        return mu_fail(MUONIUM_INVALID, "heads is NULL: pass a muonium_qk");
    }
    mu_parameter *query, *key;
    const mu_rows *rows = NULL;
    size_t key_heads = heads->key_heads ? heads->key_heads : heads->heads;
    muonium_status status = mu_parameter_at(optimizer, heads->query, &query);
    if (status == MUONIUM_OK) {
        status = mu_parameter_at(optimizer, heads->key, &key);
    }
    if (status == MUONIUM_OK) {
        status = check_heads(heads, key_heads);
    }
    if (status == MUONIUM_OK) {
        status = check_rows("query", query, heads->query_row, heads->heads, heads->head_dim);
    }
    if (status == MUONIUM_OK) {
        status = check_rows("key", key, heads->key_row, key_heads, heads->head_dim);
    }
    if (status == MUONIUM_OK) {
        status = check_apart(heads, key_heads, query->name);
    }
    if (status == MUONIUM_OK) {
        status = check_logits(heads); /* `heads` is known to be valid now */
    }
    if (status == MUONIUM_OK) {
        status = mu_rows_choose(MUONIUM_F32, &rows);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_fenv environment = mu_fenv_enter();
    size_t shared = heads->heads / key_heads, count = 0;
    for (size_t k = 0; k < key_heads; k++) {
        double largest = heads->threshold;
        for (size_t h = k * shared; h < (k + 1) * shared; h++) {
            double logit = (double)heads->max_logits[h];
            largest = logit > largest ? logit : largest; /* by fmax, gcc 12 for aarch64 fails */
        }
        double key_factor = sqrt(heads->threshold / largest);
        for (size_t h = k * shared; h < (k + 1) * shared; h++) {
            double logit = (double)heads->max_logits[h];
            double wanted = logit > heads->threshold ? heads->threshold / logit : 1;
            scale_head(rows, query, heads->query_row + h * heads->head_dim, heads->head_dim,
                       wanted / key_factor);
            count += wanted < 1;
        }
        scale_head(rows, key, heads->key_row + k * heads->head_dim, heads->head_dim, key_factor);
    }
    mu_fenv_leave(environment);
    if (clipped) {
        *clipped = count;
    }
    return MUONIUM_OK;
}

muonium_status muonium_qk_clip_sized(muonium_optimizer *optimizer, const muonium_qk *heads,
                                     size_t size, size_t *clipped)
{
    muonium_qk read;
    muonium_status status = mu_enter(optimizer, "muonium_qk_clip");
    if (status != MUONIUM_OK) {
        return status;
    }
    if (heads) {
        status = mu_sized_read("heads", heads, size, &read, sizeof read);
    }
    if (status == MUONIUM_OK) {
        status = clip(optimizer, heads ? &read : NULL, clipped);
    }
    return mu_leave(optimizer, status);
}
