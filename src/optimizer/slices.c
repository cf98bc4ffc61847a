/*
 * slices.c: the slices of a matrix that have a number of their own in the state, and the slices
 * of which options.fraction selects some.
 */
#include <math.h>

#include "optimizer/optimizer.h"

bool mu_normuon_by_columns(const muonium_options *options, const mu_matrix_place *place)
{
    switch (options->normuon_axis) {
    case MUONIUM_NORMUON_ROWS:
        return false;
    case MUONIUM_NORMUON_COLUMNS:
        return true;
    case MUONIUM_NORMUON_SHAPE:
        return place->rows < place->cols;
    }
    return false;
}

size_t mu_normuon_slices(const mu_parameter *p, size_t index)
{
    size_t each = 0, before = 0, blocks = p->matrices.blocks;
    for (size_t block = 0; block < blocks; block++) {
        mu_matrix_place place = mu_matrix_at(&p->matrices, block);
        before +=
            block < index % blocks
                ? (mu_normuon_by_columns(&p->group->options, &place) ? place.cols : place.rows)
                : 0;
        each += mu_normuon_by_columns(&p->group->options, &place) ? place.cols : place.rows;
    }
    return index / blocks * each + before;
}

bool mu_selects(const mu_parameter *p)
{
    return p->muon && p->group->options.fraction < 1;
}

bool mu_selects_columns(const mu_parameter *p, const mu_matrix_place *place)
{
    return p->group->options.selection == MUONIUM_SELECT_SHORTER && place->rows > place->cols;
}

size_t mu_selected_count(const mu_parameter *p, const mu_matrix_place *place)
{
    size_t slices = mu_selects_columns(p, place) ? place->cols : place->rows;
    size_t count = (size_t)ceil(p->group->options.fraction * (double)slices);
    return count < slices ? count : slices;
}

mu_matrix_place mu_direction_place(const mu_parameter *p, mu_matrix_place place)
{
    if (mu_selects(p)) {
        size_t count = mu_selected_count(p, &place);
        *(mu_selects_columns(p, &place) ? &place.cols : &place.rows) = count;
    }
    return place;
}

bool mu_needs_whole_matrices(const muonium_options *o)
{
    return o->adaptive || o->equilibrate || o->renormalize || o->normuon || o->adamuon ||
           o->hyperball || o->fraction < 1;
}

bool mu_needs_whole_parameters(const muonium_options *o)
{
    return o->hyperball || (o->normuon && o->normuon_axis != MUONIUM_NORMUON_ROWS);
}
