/*
 * segments.c: see segments.h.
 */
#include "mpi/segments.h"

/* Whether a part has an element of the parameter; if so, sets offset and count. */
static bool within(const mu_part *part, size_t element, mu_segment *found)
{
    const muonium_mpi_piece *piece = &part->piece;
    if (element < piece->first) {
        return false;
    }
    size_t row = (element - piece->first) / piece->stride;
    size_t col = (element - piece->first) % piece->stride;
    if (row >= piece->runs || col >= piece->run) {
        return false;
    }
    found->offset = row * piece->run + col;
    found->count = piece->run - col;
    return true;
}

static mu_segment find_segment(const muonium_mpi *d, size_t parameter, size_t element)
{
    mu_segment found = {.part = d->first_part[parameter]};
    while (!within(&d->plan->parts[found.part], element, &found)) {
        found.part++; /* parts cover the parameter */
    }
    return found;
}

void mu_rows_of_part(const muonium_mpi *d, size_t part, size_t *first, size_t *count)
{
    const mu_part *p = &d->plan->parts[part];
    const mu_matrices *m = &d->description->parameters[p->piece.parameter]->matrices;
    *first = p->piece.first / m->cols.total;
    *count = p->piece.runs > 1 ? p->piece.runs : p->elements / m->cols.total;
}

mu_segment mu_segment_at(const muonium_mpi *d, size_t parameter, mu_state_kind kind, size_t index)
{
    const mu_parameter *p = d->description->parameters[parameter];
    if (d->plan->parts[d->first_part[parameter]].cut == MU_CUT_WHOLE) {
        return (mu_segment){d->first_part[parameter], index, mu_state_length(p, kind) - index};
    }
    if (mu_state_spec_of(kind)->per_block) { /* parts start with a block */
        mu_segment found = find_segment(d, parameter, index * MUONIUM_STATE_BLOCK);
        found.offset /= MUONIUM_STATE_BLOCK;
        found.count = mu_state_blocks(found.count);
        return found;
    }
    if (!mu_state_spec_of(kind)->per_row) {
        return find_segment(d, parameter, index);
    }
    size_t first, count;
    mu_segment found = find_segment(d, parameter, index * p->matrices.cols.total);
    mu_rows_of_part(d, found.part, &first, &count);
    found.offset = index - first;
    found.count = count - found.offset;
    return found;
}

size_t mu_own_arrays(const muonium_mpi *d, size_t part, mu_state_array arrays[MU_STATE_KINDS])
{
    size_t index = d->found_at[part] - d->found_at[d->own_parts[0]];
    return mu_state_arrays(d->own->parameters[index], arrays);
}
