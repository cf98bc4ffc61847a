/*
 * places.c: a step with new addresses for all parameters and gradients.
 *
 * Frameworks allocate gradients anew for every step. Comparing all pairs of arrays for overlap
 * takes quadratic time. Here the parameters are sorted by address, so that only neighbours are
 * compared.
 */
#include "optimizer/schedule.h"

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
static const mu_parameter *overlapped(const mu_place *places, size_t count, mu_extent extent)
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

/* Fill and sort `places`. Fails on an invalid address or if parameters overlap. */
static muonium_status place_data(const muonium_optimizer *optimizer, void *const *data,
                                 mu_place *places)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_parameter *p = optimizer->parameters[i];
        places[i] = (mu_place){p->data.extent, p};
        if (!data || data[i] == p->tensor.data) {
            continue;
        }
        muonium_status status = mu_data_extent(p, data[i], &places[i].extent);
        if (status != MUONIUM_OK) {
            return status;
        }
    }
    sort_places(places, optimizer->count);
    for (size_t i = 1; i < optimizer->count; i++) {
        if (mu_extents_overlap(places[i - 1].extent, places[i].extent)) {
            return mu_fail(MUONIUM_INVALID,
                           "data of %s overlaps data of %s: add a tensor once, and views of one "
                           "memory as one tensor",
                           places[i].parameter->name, places[i - 1].parameter->name);
        }
    }
    return MUONIUM_OK;
}

static muonium_status place_grads(const muonium_optimizer *optimizer, void *const *grads,
                                  const mu_place *places, mu_extent *extents)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i], *other = NULL;
        muonium_status status = mu_grad_extent(p, grads[i], &extents[i]);
        if (status != MUONIUM_OK) {
            return status;
        }
        other = grads[i] ? overlapped(places, optimizer->count, extents[i]) : NULL;
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
    muonium_status status = mu_schedule_make(optimizer);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_place *places = optimizer->schedule->places;
    mu_extent *extents = optimizer->schedule->grads;
    status = place_data(optimizer, data, places);
    if (status == MUONIUM_OK) {
        status = place_grads(optimizer, grads, places, extents);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    optimizer->moved = true;
    for (size_t i = 0; i < count; i++) {
        mu_parameter *p = places[i].parameter;
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
