/*
 * places.c: the addresses of parameters, their copies and gradients. No parameter or copy may
 * overlap another or a gradient. The memory of one parameter is checked against interval sets of
 * all others.
 *
 * muonium_step_at gives all parameters and gradients new addresses, since frameworks allocate
 * gradients anew for every step. It sorts the parameters by address instead, so that only
 * neighbours are compared, and leaves the sets out of date.
 */
#include "optimizer/schedule.h"

/* ---- one parameter ---- */

static muonium_status find_extent(const mu_parameter *p, const char *what, const void *data,
                                  muonium_dtype dtype, const ptrdiff_t *strides, mu_extent *extent)
{
    size_t bytes = muonium_dtype_size(dtype);
    *extent = (mu_extent){0, 0};
    if (p->elements == 0) {
        return MUONIUM_OK; /* any address */
    }
    if ((uintptr_t)data % bytes != 0) {
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s is at %p: elements of %zu bytes must be aligned to their size",
                       what, p->name, data, bytes);
    }
    if (!mu_extent_of(data, bytes, p->tensor.ndim, p->tensor.shape, strides, extent)) {
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s at %p: with its shape and strides it leaves the address space",
                       what, p->name, data);
    }
    return MUONIUM_OK;
}

/* The memory of a parameter, or of its gradient, at an address; fails unless the address is
 * valid. No gradient covers nothing. */
static muonium_status data_extent(const mu_parameter *p, const void *data, mu_extent *extent)
{
    if (!data && p->elements > 0) {
        return mu_fail(MUONIUM_INVALID, "data of %s is NULL: pass the address of the parameter",
                       p->name);
    }
    return find_extent(p, "data", data, p->tensor.dtype, p->tensor.strides, extent);
}

static muonium_status grad_extent(const mu_parameter *p, const void *grad, mu_extent *extent)
{
    *extent = (mu_extent){0, 0};
    return grad ? find_extent(p, "grad", grad, p->grad_dtype, p->tensor.grad_strides, extent)
                : MUONIUM_OK;
}

/* The memory of the copy of a parameter, which does not move. */
static muonium_status copy_extent(const mu_parameter *p, mu_extent *extent)
{
    ptrdiff_t strides[MUONIUM_MAX_DIMS];
    *extent = (mu_extent){0, 0};
    mu_dense_strides(&p->tensor, strides);
    return p->tensor.copy
               ? find_extent(p, "copy", p->tensor.copy, p->tensor.copy_dtype, strides, extent)
               : MUONIUM_OK;
}

void mu_add_to_sets(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_interval_insert(&optimizer->data, &p->data);
    mu_interval_insert(&optimizer->data, &p->copy);
    mu_interval_insert(&optimizer->grads, &p->grad);
}

static void remove_from_sets(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_interval_remove(&optimizer->data, &p->data);
    mu_interval_remove(&optimizer->data, &p->copy);
    mu_interval_remove(&optimizer->grads, &p->grad);
}

/* Rebuild optimizer->data and ->grads if muonium_step_at has changed addresses. */
static void update_sets(muonium_optimizer *optimizer)
{
    if (!optimizer->moved) {
        return;
    }
    optimizer->data = optimizer->grads = NULL;
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_add_to_sets(optimizer, optimizer->parameters[i]);
    }
    optimizer->moved = false;
}

static const mu_parameter *find_overlap(mu_interval *set, mu_extent extent)
{
    const mu_interval *found = mu_interval_find(set, extent);
    return found ? found->owner : NULL;
}

static muonium_status fail_overlap(const mu_parameter *p, const mu_parameter *other)
{
    return mu_fail(MUONIUM_INVALID,
                   "data of %s overlaps data of %s: add a tensor once, and views of one memory as "
                   "one tensor, and give copies memory of their own",
                   p->name, other->name);
}

muonium_status mu_check_memory(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_extent data, grad, copy;
    muonium_status status = data_extent(p, p->tensor.data, &data);
    if (status == MUONIUM_OK) {
        status = grad_extent(p, p->tensor.grad, &grad);
    }
    if (status == MUONIUM_OK) {
        status = copy_extent(p, &copy);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (mu_extents_overlap(data, grad)) {
        return mu_fail(MUONIUM_INVALID, "data and grad of %s overlap", p->name);
    }
    if (mu_extents_overlap(copy, data) || mu_extents_overlap(copy, grad)) {
        return mu_fail(MUONIUM_INVALID, "copy of %s overlaps its %s: give it memory of its own",
                       p->name, mu_extents_overlap(copy, data) ? "data" : "grad");
    }
    update_sets(optimizer);
    const mu_parameter *other = find_overlap(optimizer->data, data);
    other = other ? other : find_overlap(optimizer->data, copy);
    if (other) {
        return fail_overlap(p, other);
    }
    other = find_overlap(optimizer->grads, data);
    other = other ? other : find_overlap(optimizer->grads, copy);
    other = other ? other : find_overlap(optimizer->data, grad);
    if (other) {
        return mu_fail(MUONIUM_INVALID, "memory of %s overlaps data or grad of %s", p->name,
                       other->name);
    }
    p->data.extent = data;
    p->grad.extent = grad;
    p->copy.extent = copy;
    return MUONIUM_OK;
}

/* Change the address of data or grad, and change it back if the memory is refused. */
static muonium_status set_address(muonium_optimizer *optimizer, size_t parameter, bool of_grad,
                                  void *address)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status != MUONIUM_OK) {
        return status;
    }
    void **place = of_grad ? &p->tensor.grad : &p->tensor.data, *before = *place;
    *place = address;
    update_sets(optimizer);
    remove_from_sets(optimizer, p);
    status = mu_check_memory(optimizer, p);
    mu_add_to_sets(optimizer, p);
    if (status != MUONIUM_OK) {
        *place = before;
    }
    return status;
}

muonium_status muonium_set_data(muonium_optimizer *optimizer, size_t parameter, void *data)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK
               ? mu_leave(optimizer, set_address(optimizer, parameter, false, data))
               : status;
}

muonium_status muonium_set_grad(muonium_optimizer *optimizer, size_t parameter, void *grad)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, set_address(optimizer, parameter, true, grad))
                                : status;
}

/* ---- all parameters ---- */

static bool comes_before(const mu_place *a, const mu_place *b)
{
    return a->extent.from < b->extent.from;
}

/* Shell sort: it needs no memory, and is fast if the order has not changed. */
static void sort_places(mu_place *places, size_t count)
{
    size_t gap = 1;
    while (gap < count / 3) {
        gap = 3 * gap + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (size_t i = gap; i < count; i++) {
            mu_place moving = places[i];
            size_t at = i;
            for (; at >= gap && comes_before(&moving, &places[at - gap]); at -= gap) {
                places[at] = places[at - gap];
            }
            places[at] = moving;
        }
    }
}

/* The parameter among sorted, disjoint places that overlaps an extent, or NULL. */
static const mu_parameter *find_sorted_overlap(const mu_place *places, size_t count,
                                               mu_extent extent)
{
    size_t from = 0, to = count; /* the first place that ends beyond extent.from */
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (places[middle].extent.to <= extent.from) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    bool found = from < count && mu_extents_overlap(places[from].extent, extent);
    return found ? places[from].parameter : NULL;
}

/* Fill and sort `places`, at most two per parameter; *count gets their number. Fails on an invalid
 * address or if parameters or copies overlap. */
static muonium_status place_data(const muonium_optimizer *optimizer, void *const *data,
                                 mu_place *places, size_t *count)
{
    size_t placed = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_parameter *p = optimizer->parameters[i];
        mu_place *place = &places[placed++];
        *place = (mu_place){p->data.extent, p, false};
        if (p->tensor.copy) {
            places[placed++] = (mu_place){p->copy.extent, p, true};
        }
        if (!data || data[i] == p->tensor.data) {
            continue;
        }
        muonium_status status = data_extent(p, data[i], &place->extent);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    *count = placed;
    sort_places(places, placed);
    for (size_t i = 1; i < placed; i++) {
        if (mu_extents_overlap(places[i - 1].extent, places[i].extent)) {
            return fail_overlap(places[i].parameter, places[i - 1].parameter);
        }
    }
    return MUONIUM_OK;
}

static muonium_status place_grads(const muonium_optimizer *optimizer, void *const *grads,
                                  const mu_place *places, size_t placed, mu_extent *extents)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i], *other = NULL;
        muonium_status status = grad_extent(p, grads[i], &extents[i]);
        if (status != MUONIUM_OK) {
            return status;
        }
        other = grads[i] ? find_sorted_overlap(places, placed, extents[i]) : NULL;
        if (other) {
            return mu_fail(MUONIUM_INVALID, "grad of %s overlaps data of %s", p->name, other->name);
        }
    }
    return MUONIUM_OK;
}

muonium_status mu_step_prepare_at(muonium_optimizer *optimizer, void *const *data,
                                  void *const *grads, size_t count)
{
    if (!grads) {
        return mu_fail(MUONIUM_INVALID, "grads is NULL");
    }
    if (count != optimizer->count) {
        return mu_fail(MUONIUM_INVALID, "count is %zu: the optimizer has %zu parameters", count,
                       optimizer->count);
    }
    if (count == 0) {
        return mu_step_prepare(optimizer); /* fails with the message for it */
    }
    muonium_status status = mu_schedule_make(optimizer, 1);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_place *places = optimizer->schedule->places;
    mu_extent *extents = optimizer->schedule->grads;
    size_t placed = 0;
    status = place_data(optimizer, data, places, &placed);
    if (status == MUONIUM_OK) {
        status = place_grads(optimizer, grads, places, placed, extents);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    optimizer->moved = true;
    for (size_t i = 0; i < placed; i++) {
        mu_parameter *p = places[i].parameter;
        if (places[i].copy) {
            continue;
        }
        p->data.extent = places[i].extent;
        p->tensor.data = data ? data[p->number] : p->tensor.data;
        p->grad.extent = extents[p->number];
        p->tensor.grad = grads[p->number];
    }
    return mu_step_prepare(optimizer);
}

static muonium_status step_at(muonium_optimizer *optimizer, void *const *data, void *const *grads,
                              size_t count)
{
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = mu_step_prepare_at(optimizer, data, grads, count);
    if (status == MUONIUM_OK) {
        mu_step_commit(optimizer);
    }
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_step_at(muonium_optimizer *optimizer, void *const *data, void *const *grads,
                               size_t count)
{
    muonium_status status = mu_enter_alone(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, step_at(optimizer, data, grads, count))
                                : status;
}
