/*
 * direct.c: access to the programs of the direct form.
 */
#include "coefficients/direct.h"

#include <string.h>

#include "base/base.h"

const mu_direct_set *mu_direct_set_named(const char *name)
{
    const mu_direct_set *set;
    for (size_t i = 0; (set = mu_direct_set_at(i)) != NULL; i++) {
        if (strcmp(set->name, name) == 0) {
            return set;
        }
    }
    return NULL;
}

const char *muonium_direct_set_name(int index)
{
    const mu_direct_set *set = index < 0 ? NULL : mu_direct_set_at((size_t)index);
    return set ? set->name : NULL;
}

/* a_j comes after a_i and b_i of all i < j, i + 1 numbers each. */
const double *mu_direct_left(const mu_direct_set *set, int j)
{
    return set->coefficients + (j - 1) * (j + 2);
}

const double *mu_direct_right(const mu_direct_set *set, int j)
{
    return mu_direct_left(set, j) + j + 1;
}

const double *mu_direct_sum(const mu_direct_set *set)
{
    return mu_direct_left(set, set->products + 1);
}
