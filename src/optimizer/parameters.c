/*
 * parameters.c: creates and destroys optimizers; adds and finds parameters.
 */
#include <stdio.h>
#include <string.h>

#include "optimizer/optimizer.h"
#include "optimizer/schedule.h"

muonium_status muonium_create(const muonium_options *options, muonium_optimizer **optimizer)
{
    if (!optimizer) {
        return mu_fail(MUONIUM_INVALID, "optimizer is NULL: pass the address of a pointer");
    }
    muonium_group *group;
    muonium_status status = mu_make_group(options, &group);
    if (status != MUONIUM_OK) {
        return status;
    }
    muonium_optimizer *made = mu_alloc_zeroed(sizeof *made);
    if (!made) {
        mu_free_group(group);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for an optimizer");
    }
    made->groups = group;
    made->grad_scale = 1;
    mu_enter_group(made, group);
    made->scratch_bytes = group->options.scratch_bytes;
    made->log = group->options.log;
    made->log_context = group->options.log_context;
    *optimizer = made;
    return MUONIUM_OK;
}

muonium_status muonium_create_description(const muonium_options *options,
                                          muonium_optimizer **optimizer)
{
    muonium_status status = muonium_create(options, optimizer);
    if (status == MUONIUM_OK) {
        (*optimizer)->stateless = true;
    }
    return status;
}

static void free_parameter(mu_parameter *p)
{
    if (p) {
        mu_free(p->name);
        mu_free((void *)(uintptr_t)p->tensor.row_splits);
        mu_free_state(p);
        mu_free(p->certificates);
        mu_free(p);
    }
}

void muonium_destroy(muonium_optimizer *optimizer)
{
    if (!optimizer || mu_enter_alone(optimizer, __func__) != MUONIUM_OK) {
        return;
    }
    if (mu_check_unheld(optimizer, __func__) != MUONIUM_OK) {
        mu_leave(optimizer, MUONIUM_INVALID);
        return;
    }
    mu_schedule_destroy(optimizer->schedule);
    for (size_t i = 0; i < optimizer->count; i++) {
        free_parameter(optimizer->parameters[i]);
    }
    mu_free(optimizer->parameters);
    mu_index_release(&optimizer->names);
    for (muonium_group *group = optimizer->groups; group;) {
        muonium_group *next = group->next;
        mu_free_group(group);
        group = next;
    }
    mu_free(optimizer);
}

/* ---- adding ---- */

/* Fail unless type, shape and route are valid. *elements receives the number of elements. */
static muonium_status check_tensor(const muonium_tensor *tensor, const char *name, size_t *elements)
{
    if (tensor->dtype != MUONIUM_F32 && tensor->dtype != MUONIUM_BF16 &&
        tensor->dtype != MUONIUM_F16) {
        return mu_fail(MUONIUM_INVALID,
                       "dtype of %s is %d: parameters are MUONIUM_F32, MUONIUM_BF16 or "
                       "MUONIUM_F16",
                       name, (int)tensor->dtype);
    }
    if (tensor->half_grad != 0 && tensor->half_grad != MUONIUM_BF16 &&
        tensor->half_grad != MUONIUM_F16) {
        return mu_fail(MUONIUM_INVALID,
                       "half_grad of %s is %d: use MUONIUM_BF16, MUONIUM_F16, or 0 for none", name,
                       (int)tensor->half_grad);
    }
    if (tensor->half_grad != 0 && tensor->f32_grad) {
        return mu_fail(MUONIUM_INVALID,
                       "%s has both f32_grad and half_grad: its gradient has one type", name);
    }
    if (tensor->copy && tensor->copy_dtype != MUONIUM_F32 && tensor->copy_dtype != MUONIUM_BF16 &&
        tensor->copy_dtype != MUONIUM_F16) {
        return mu_fail(MUONIUM_INVALID,
                       "copy_dtype of %s is %d: copies are MUONIUM_F32, MUONIUM_BF16 or "
                       "MUONIUM_F16",
                       name, (int)tensor->copy_dtype);
    }
    if (tensor->ndim > MUONIUM_MAX_DIMS) {
        return mu_fail(MUONIUM_INVALID, "ndim of %s is %zu: at most %d dimensions", name,
                       tensor->ndim, MUONIUM_MAX_DIMS);
    }
    if (tensor->route < MUONIUM_ROUTE_AUTO || tensor->route > MUONIUM_ROUTE_ADAM) {
        return mu_fail(MUONIUM_INVALID, "route of %s is %d: use one of muonium_route", name,
                       (int)tensor->route);
    }
    bool empty = false;
    size_t product = 1; /* of extents above 0: with an extent of 0, strides must fit too */
    for (size_t d = 0; d < tensor->ndim; d++) {
        empty = empty || tensor->shape[d] == 0;
        if (!mu_mul(product, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &product)) {
            return mu_fail(MUONIUM_INVALID,
                           "shape[%zu] of %s is %zu: the product of all must fit into the address "
                           "space",
                           d, name, tensor->shape[d]);
        }
    }
    if (product > PTRDIFF_MAX / sizeof(double)) {
        return mu_fail(MUONIUM_INVALID,
                       "%s has %zu elements: that does not fit into the address space", name,
                       product);
    }
    if (tensor->row_split_count > product) { /* checked before row_splits is read */
        return mu_fail(MUONIUM_INVALID, "row_split_count of %s is %zu: it has fewer rows", name,
                       tensor->row_split_count);
    }
    *elements = empty ? 0 : product;
    return MUONIUM_OK;
}

/* Copy the given strides, or fill in those of a dense array. */
static const ptrdiff_t *keep_strides(const muonium_tensor *tensor, const ptrdiff_t *given,
                                     ptrdiff_t kept[MUONIUM_MAX_DIMS])
{
    mu_dense_strides(tensor, kept);
    for (size_t d = 0; given && d < tensor->ndim; d++) {
        kept[d] = given[d];
    }
    return kept;
}

muonium_status mu_need_state(const muonium_optimizer *optimizer, const char *action)
{
    if (optimizer->stateless) {
        return mu_fail(MUONIUM_INVALID,
                       "the optimizer is a description without state: it cannot %s; make it with "
                       "muonium_create, or hand it to muonium_mpi_create and use that",
                       action);
    }
    return MUONIUM_OK;
}

static bool allocate_state(mu_parameter *p)
{
    if (p->muon) {
        p->certificates = mu_alloc_zeroed(p->matrices.count * sizeof *p->certificates);
    }
    return mu_allocate_state(p) && (!p->muon || p->certificates);
}

static muonium_status describe_parameter(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                                         mu_parameter *p)
{
    muonium_status status = check_tensor(tensor, p->name, &p->elements);
    if (status != MUONIUM_OK) {
        return status;
    }
    p->tensor = *tensor;
    p->tensor.name = p->name;
    p->tensor.row_splits = NULL;
    p->grad_dtype = tensor->half_grad  ? tensor->half_grad
                    : tensor->f32_grad ? MUONIUM_F32
                                       : tensor->dtype;
    if (tensor->copy && optimizer->stateless) {
        return mu_fail(
            MUONIUM_INVALID,
            "%s has a copy, and the optimizer is a description: libmuonium_mpi writes no "
            "copies; set copy to NULL",
            p->name);
    }
    p->tensor.strides = keep_strides(tensor, tensor->strides, p->strides);
    p->tensor.grad_strides = keep_strides(tensor, tensor->grad_strides, p->grad_strides);
    if (p->elements == 0) { /* no rows to split */
        p->tensor.row_split_count = p->tensor.heads = 0;
    }
    status = mu_check_memory(optimizer, p);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (p->elements > 0 &&
        !mu_elements_distinct(p->tensor.ndim, p->tensor.shape, p->tensor.strides)) {
        return mu_fail(MUONIUM_INVALID,
                       "strides of %s: elements of the parameter would overlap, as those of a "
                       "broadcast array do: copy it to memory of its own",
                       p->name);
    }
    size_t recognised[3];
    muonium_tensor told = *tensor;
    if (p->elements > 0) {
        mu_recognise(&told, p->name, &p->group->options, recognised);
        p->tensor.layout = told.layout;
        p->tensor.out_axes = told.out_axes;
        p->tensor.in_axes = told.in_axes;
        p->tensor.row_split_count = told.row_split_count;
        tensor = &told;
    }
    if (tensor->row_splits && p->tensor.row_split_count > 0) {
        size_t bytes;
        size_t *splits =
            mu_mul(tensor->row_split_count, sizeof *splits, &bytes) ? mu_alloc(bytes) : NULL;
        if (!splits) {
            return mu_fail(MUONIUM_NO_MEMORY, "no memory for the %zu row splits of %s",
                           tensor->row_split_count, p->name);
        }
        memcpy(splits, tensor->row_splits, bytes);
        p->tensor.row_splits = splits;
    }
    status = mu_layout_of(&p->tensor, p->name, &p->group->options, &p->matrices);
    if (status == MUONIUM_OK) {
        status =
            mu_route(&p->tensor, p->name, &p->group->options, &p->matrices, &p->muon, p->reason);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (p->muon && p->group->options.adaptive && p->matrices.count > 1) {
        return mu_fail(MUONIUM_INVALID,
                       "%s stands for %zu matrices, and adaptive takes one per parameter: add them "
                       "one by one, or set adaptive to false in their group",
                       p->name, p->matrices.count);
    }
    if (p->muon && p->group->options.hyperball && p->group->options.weight_decay != 0) {
        return mu_fail(
            MUONIUM_INVALID,
            "weight_decay of %s is %g under hyperball, where it has no effect: set it to "
            "0, and adam_weight_decay for parameters without Muon",
            p->name, p->group->options.weight_decay);
    }
    mu_walk_all(&p->tensor, &p->all);
    if (!optimizer->stateless && !allocate_state(p)) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the state of %s (%zu elements)", p->name,
                       p->elements);
    }
    return MUONIUM_OK;
}

/* The number of a parameter by name; optimizer->count if there is none. */
static size_t index_of(const muonium_optimizer *optimizer, const char *name)
{
    uint64_t hash = mu_hash_text(name);
    size_t probe = 0, i;
    do {
        i = mu_index_next(&optimizer->names, hash, &probe);
    } while (i != SIZE_MAX && strcmp(optimizer->parameters[i]->name, name) != 0);
    return i == SIZE_MAX ? optimizer->count : i;
}

static muonium_status name_parameter(muonium_optimizer *optimizer, const char *given,
                                     mu_parameter *p)
{
    char numbered[40];
    p->unnamed = !given;
    if (!given) {
        snprintf(numbered, sizeof numbered, "parameter %zu", optimizer->count);
        given = numbered;
    }
    if (!mu_utf8_valid(given)) {
        return mu_fail(MUONIUM_INVALID, "the name %s is not valid UTF-8, which checkpoints need",
                       given);
    }
    size_t taken = index_of(optimizer, given);
    if (taken < optimizer->count) {
        return mu_fail(MUONIUM_INVALID, "the name %s is taken by parameter %zu: names must differ",
                       given, taken);
    }
    p->name = mu_alloc(strlen(given) + 1);
    if (!p->name) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the name %s", given);
    }
    strcpy(p->name, given);
    p->name_hash = mu_hash_text(given);
    p->random_key = p->name_hash;
    return MUONIUM_OK;
}

static bool make_room(muonium_optimizer *optimizer)
{
    if (!mu_index_reserve(&optimizer->names, optimizer->count + 1)) {
        return false;
    }
    if (optimizer->count < optimizer->capacity) {
        return true;
    }
    size_t capacity = optimizer->capacity ? 2 * optimizer->capacity : 4;
    mu_parameter **grown = mu_alloc(capacity * sizeof *grown);
    if (!grown) {
        return false;
    }
    if (optimizer->count > 0) {
        memcpy(grown, optimizer->parameters, optimizer->count * sizeof *grown);
    }
    mu_free(optimizer->parameters);
    optimizer->parameters = grown;
    optimizer->capacity = capacity;
    return true;
}

static muonium_status add_parameter(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                                    muonium_group *group)
{
    if (!tensor) {
        return mu_fail(MUONIUM_INVALID, "tensor is NULL");
    }
    if (group && !mu_owns_group(optimizer, group)) {
        return mu_fail(MUONIUM_INVALID, "the group of %s belongs to another optimizer",
                       tensor->name ? tensor->name : "a parameter");
    }
    mu_parameter *p = make_room(optimizer) ? mu_alloc_zeroed(sizeof *p) : NULL;
    if (!p) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for another parameter");
    }
    p->data.owner = p->grad.owner = p->copy.owner = p;
    p->group = group ? group : optimizer->groups;
    muonium_status status = name_parameter(optimizer, tensor->name, p);
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter();
        status = describe_parameter(optimizer, tensor, p);
        mu_fenv_leave(environment);
    }
    if (status != MUONIUM_OK) {
        free_parameter(p);
        return status;
    }
    p->number = optimizer->count;
    mu_index_add(&optimizer->names, p->name_hash, p->number);
    mu_add_to_sets(optimizer, p);
    optimizer->parameters[optimizer->count++] = p;
    optimizer->counters.muon += p->muon;
    optimizer->counters.adam += !p->muon;
    mu_schedule_destroy(optimizer->schedule);
    optimizer->schedule = NULL;
    optimizer->logged = false;
    return MUONIUM_OK;
}

muonium_status muonium_add_sized(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                                 size_t size, muonium_group *group)
{
    static const char call[] = "muonium_add";
    muonium_tensor read;
    muonium_status status = mu_enter(optimizer, call);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_check_unheld(optimizer, call);
    if (status == MUONIUM_OK && tensor) {
        status = mu_sized_read("tensor", tensor, size, &read, sizeof read);
    }
    if (status == MUONIUM_OK) {
        status = add_parameter(optimizer, tensor ? &read : NULL, group);
    }
    return mu_leave(optimizer, status);
}

/* ---- looking up ---- */

size_t muonium_parameter_count(const muonium_optimizer *optimizer)
{
    return optimizer ? optimizer->count : 0;
}

muonium_status muonium_find(const muonium_optimizer *optimizer, const char *name, size_t *parameter)
{
    if (!optimizer || !name || !parameter) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL",
                       !optimizer ? "optimizer"
                       : !name    ? "name"
                                  : "parameter");
    }
    size_t index = index_of(optimizer, name);
    if (index < optimizer->count) {
        *parameter = index;
        return MUONIUM_OK;
    }
    return mu_fail(MUONIUM_INVALID, "no parameter is named %s (there are %zu)", name,
                   optimizer->count);
}

muonium_status mu_parameter_at(const muonium_optimizer *optimizer, size_t index,
                               mu_parameter **parameter)
{
    if (!optimizer) {
        return mu_fail(MUONIUM_INVALID, "optimizer is NULL");
    }
    if (index >= optimizer->count) {
        return mu_fail(MUONIUM_INVALID, "parameter is %zu: there are %zu, counted from 0", index,
                       optimizer->count);
    }
    *parameter = optimizer->parameters[index];
    return MUONIUM_OK;
}
