/*
 * incoming.h: state on its way into an optimizer. It is gathered in memory of its own,
 * converted and checked; only when all of it is there, it is copied over the optimizer's,
 * which cannot fail. (It does not take its place: callers may hold pointers there.)
 */
#ifndef MU_INCOMING_H
#define MU_INCOMING_H

#include "checkpoint/state.h"

/* One array, from the file or the caller. */
typedef struct mu_incoming_array {
    mu_parameter *parameter;
    mu_state_array array;       /* the optimizer's own, to be overwritten in the end */
    void *values;               /* in memory of ours, of the type of the array */
    muonium_dtype dtype;        /* as it comes */
    double factor;              /* on the values: between momentum conventions; 1: none */
    const muonium_entry *entry; /* of a file: where, */
    uint32_t crc;               /* and what it must sum up to */
    const void *from;           /* of the caller: where; NULL: zeros */
} mu_incoming_array;

/* What becomes of one parameter. */
typedef struct mu_incoming_parameter {
    bool matched; /* it takes over steps, and what arrays there are for it */
    uint64_t steps;
    bool restart_master; /* its master copy starts again from the parameter */
} mu_incoming_parameter;

struct mu_incoming {
    muonium_optimizer *optimizer;
    mu_incoming_array *arrays;
    size_t count;
    mu_incoming_parameter *parameters; /* one for each of the optimizer's */
};

/* Room for all arrays of an optimizer. In every case mu_incoming_release must follow. */
muonium_status mu_incoming_begin(mu_incoming *incoming, muonium_optimizer *optimizer);

/* Another array of parameter `parameter`; the caller sets where it comes from. */
mu_incoming_array *mu_incoming_add(mu_incoming *incoming, size_t parameter,
                                   const mu_state_array *array, muonium_dtype dtype, double factor);

/* Memory for the values of all arrays added. */
muonium_status mu_incoming_allocate(mu_incoming *incoming);

/* Whether the values can be put into place as they come, to be checked there. */
bool mu_incoming_is_plain(const mu_incoming_array *array);

/* Convert `count` elements from element `first` on. */
MU_SHARED void mu_incoming_convert(mu_incoming_array *array, size_t first, const void *from,
                                   size_t count);

/* Whether values that are in place are such as a step leaves behind; and what is wrong with
 * the first that is not, naming the tensor. `label` names the source. */
MU_SHARED bool mu_incoming_is_sound(const mu_incoming_array *array, size_t first, size_t count);
MU_SHARED muonium_status mu_incoming_fault(const mu_incoming_array *array, const char *label);

/* incoming_read.c: allocate the values of all arrays, fill them from where they come, check
 * them. */
typedef struct mu_reading {
    const muonium_reader *reader; /* for arrays that have an entry; NULL if none has */
    const char *label;            /* names the source */
    bool checksums;               /* arrays have them */
    muonium_progress *progress;   /* may be NULL */
    void *progress_context;
} mu_reading;

muonium_status mu_incoming_read(mu_incoming *incoming, const mu_reading *reading);

/* What momentum must be multiplied by, from one convention to another. */
double mu_momentum_factor(muonium_momentum_form from, double momentum, muonium_momentum_form to);

/* Give the optimizer its arrays and steps. */
void mu_incoming_adopt(mu_incoming *incoming);

void mu_incoming_release(mu_incoming *incoming);

#endif
