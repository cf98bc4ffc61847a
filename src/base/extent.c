/*
 * extent.c: where strided arrays lie in memory.
 */
#include "base/base.h"

static size_t magnitude(ptrdiff_t stride)
{
    return stride < 0 ? 0 - (size_t)stride : (size_t)stride;
}

bool mu_extent_of(const void *data, size_t bytes, size_t ndim, const size_t *shape,
                  const ptrdiff_t *strides, mu_extent *extent)
{
    size_t before = 0, after = bytes;
    for (size_t d = 0; d < ndim; d++) {
        size_t *side = strides[d] < 0 ? &before : &after, span;
        if (!mu_mul(shape[d] - 1, magnitude(strides[d]), &span) || !mu_mul(span, bytes, &span) ||
            !mu_add(*side, span, side)) {
            return false;
        }
    }
    uintptr_t start = (uintptr_t)data;
    if (before > start || after > UINTPTR_MAX - start || before > PTRDIFF_MAX ||
        after > PTRDIFF_MAX) {
        return false;
    }
    extent->from = start - before;
    extent->to = start + after;
    return true;
}

bool mu_extents_overlap(mu_extent a, mu_extent b)
{
    return a.from < b.to && b.from < a.to;
}

bool mu_elements_distinct(size_t ndim, const size_t *shape, const ptrdiff_t *strides)
{
    /* Each stride, from the smallest up, must step over all that the smaller reach. */
    size_t reach = 0, last = ndim;
    size_t passed = 0; /* strides up to this one have been seen */
    for (size_t round = 0; round < ndim; round++) {
        size_t least = ndim;
        for (size_t d = 0; d < ndim; d++) {
            bool later = round == 0 || magnitude(strides[d]) > passed ||
                         (magnitude(strides[d]) == passed && d > last);
            if (shape[d] > 1 && later &&
                (least == ndim || magnitude(strides[d]) < magnitude(strides[least]))) {
                least = d;
            }
        }
        if (least == ndim) {
            break;
        }
        if (magnitude(strides[least]) <= reach) {
            return false;
        }
        reach += (shape[least] - 1) * magnitude(strides[least]);
        passed = magnitude(strides[least]);
        last = least;
    }
    return true;
}
