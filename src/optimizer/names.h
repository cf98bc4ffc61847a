/*
 * names.h: what routing reads from the name of a parameter.
 *
 * A name such as "h.0.mlp.c_fc.weight" has parts, between dots and slashes; a part has
 * words, between underscores, digits and dashes. The module of a tensor is its last part,
 * or the one before if the last only names a tensor of a module, such as "weight".
 */
#ifndef MU_NAMES_H
#define MU_NAMES_H

#include "muonium.h"

/* The parts of a name that a pattern is compared with. */
typedef enum mu_name_place {
    MU_NAME_PART,    /* each part */
    MU_NAME_WORD,    /* each word of each part */
    MU_NAME_MODULE,  /* the module */
    MU_NAME_OUTSIDE, /* each part before the first number: not within numbered blocks */
    MU_NAME_TOP,     /* the module, if no part before it is a number */
    MU_NAME_ROUTER   /* each part, of 2-D tensors with fewer rows than columns that belong to no
                        expert: a router's rows are experts */
} mu_name_place;

typedef struct mu_name_pattern {
    const char *pattern; /* may hold * and ? */
    mu_name_place place;
} mu_name_pattern;

/* Whether the name matches. Case does not matter. */
bool mu_name_matches(const mu_name_pattern *pattern, const char *name,
                     const muonium_tensor *tensor);

/* Whether a 3-D tensor of this name holds the weights of experts. */
bool mu_name_is_experts(const char *name);

/* The fusion that name and shape of a tensor suggest; see muonium_fused. */
muonium_fusion mu_fusion_of(const char *name, const muonium_tensor *tensor);

#endif
