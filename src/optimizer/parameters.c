/*
 * parameters.c: making optimizers and groups, adding parameters, changing options.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimizer/optimizer.h"
#include "optimizer/schedule.h"

/* ---- groups ---- */

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *keep_text(char **room, const char *text)
{
    size_t bytes = text_bytes(text);
    char *kept = text ? memcpy(*room, text, bytes) : NULL;
    *room += bytes;
    return kept;
}

/* A group with copies of the strings, tables and patterns of the options. */
static muonium_status make_group(const muonium_options *given, muonium_group **made)
{
    muonium_options options;
    muonium_status status = mu_read_options(given, &options);
    if (status != MUONIUM_OK) {
        return status;
    }
    size_t pointers = options.patterns ? options.pattern_count * sizeof(char *) : 0;
    size_t bytes =
        pointers + text_bytes(options.plan.coefficients) + text_bytes(options.plan.direct_set);
    for (size_t i = 0; options.patterns && i < options.pattern_count; i++) {
        bytes += text_bytes(options.patterns[i]);
    }
    muonium_group *group = mu_alloc_zeroed(sizeof *group);
    char *strings = mu_alloc(bytes);
    if (!group || !strings) {
        mu_free(group);
        mu_free(strings);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a group of parameters");
    }
    group->options = options;
    group->strings = strings;
    char *room = strings + pointers;
    if (options.patterns) {
        const char **patterns = (const char **)(void *)strings;
        for (size_t i = 0; i < options.pattern_count; i++) {
            patterns[i] = keep_text(&room, options.patterns[i]);
        }
        group->options.patterns = patterns;
    }
    group->options.plan.coefficients = keep_text(&room, options.plan.coefficients);
    group->options.plan.direct_set = keep_text(&room, options.plan.direct_set);
    if (options.plan.table) {
        /* No iteration uses rows beyond MUONIUM_MAX_STEPS. */
        size_t rows = options.plan.table_rows < MUONIUM_MAX_STEPS ? options.plan.table_rows
                                                                  : MUONIUM_MAX_STEPS;
        memcpy(group->table, options.plan.table, rows * sizeof group->table[0]);
        group->options.plan.table = (const double(*)[3])group->table;
        group->options.plan.table_rows = rows;
    }
    *made = group;
    return MUONIUM_OK;
}

static void free_group(muonium_group *group)
{
    if (group) {
        mu_free(group->strings);
        mu_free(group);
    }
}

static mu_extent address_of(const muonium_group *group)
{
    return (mu_extent){(uintptr_t)group, (uintptr_t)group + 1};
}

static void enter_group(muonium_optimizer *optimizer, muonium_group *group)
{
    optimizer->last_group = group;
    group->place.extent = address_of(group);
    mu_interval_insert(&optimizer->group_places, &group->place);
}

static muonium_status add_group(muonium_optimizer *optimizer, const muonium_options *options,
                                muonium_group **group)
{
    muonium_group *made;
    muonium_status status = group ? mu_check_unheld(optimizer, "muonium_add_group")
                                  : mu_fail(MUONIUM_INVALID, "group is NULL");
    if (status == MUONIUM_OK) {
        status = make_group(options, &made);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    made->number = optimizer->last_group->number + 1;
    optimizer->last_group->next = made;
    enter_group(optimizer, made);
    *group = made;
    return MUONIUM_OK;
}

muonium_status muonium_add_group(muonium_optimizer *optimizer, const muonium_options *options,
                                 muonium_group **group)
{
    muonium_status status = mu_enter(optimizer, __func__);
    return status == MUONIUM_OK ? mu_leave(optimizer, add_group(optimizer, options, group))
                                : status;
}

/* Compares addresses alone: a group of another optimizer may have been freed. */
static bool owns(const muonium_optimizer *optimizer, const muonium_group *group)
{
    return mu_interval_find(optimizer->group_places, address_of(group)) != NULL;
}

/* ---- the optimizer ---- */

muonium_status muonium_create(const muonium_options *options, muonium_optimizer **optimizer)
{
    if (!optimizer) {
        return mu_fail(MUONIUM_INVALID, "optimizer is NULL: pass the address of a pointer");
    }
    muonium_group *group;
    muonium_status status = make_group(options, &group);
    if (status != MUONIUM_OK) {
        return status;
    }
    muonium_optimizer *made = mu_alloc_zeroed(sizeof *made);
    if (!made) {
        free_group(group);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for an optimizer");
    }
    made->groups = group;
    enter_group(made, group);
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
        free_group(group);
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
                       "%s of %s is at %p: elements of %zu bytes must lie at a multiple of that",
                       what, p->name, data, bytes);
    }
    if (!mu_extent_of(data, bytes, p->tensor.ndim, p->tensor.shape, strides, extent)) {
        return mu_fail(MUONIUM_INVALID,
                       "%s of %s at %p: with its shape and strides it leaves the address space",
                       what, p->name, data);
    }
    return MUONIUM_OK;
}

muonium_status mu_data_extent(const mu_parameter *p, const void *data, mu_extent *extent)
{
    if (!data && p->elements > 0) {
        return mu_fail(MUONIUM_INVALID, "data of %s is NULL: pass where the parameter lies",
                       p->name);
    }
    return find_extent(p, "data", data, p->tensor.dtype, p->tensor.strides, extent);
}

muonium_status mu_grad_extent(const mu_parameter *p, const void *grad, mu_extent *extent)
{
    *extent = (mu_extent){0, 0};
    return grad ? find_extent(p, "grad", grad, p->grad_dtype, p->tensor.grad_strides, extent)
                : MUONIUM_OK;
}

/* Add the memory of a parameter and its gradient to the sets, or remove it. */
static void settle(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_interval_insert(&optimizer->data, &p->data);
    mu_interval_insert(&optimizer->grads, &p->grad);
}

static void unsettle(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_interval_remove(&optimizer->data, &p->data);
    mu_interval_remove(&optimizer->grads, &p->grad);
}

/* Rebuild optimizer->data and ->grads if muonium_step_at has changed addresses. */
static void settle_all(muonium_optimizer *optimizer)
{
    if (!optimizer->moved) {
        return;
    }
    optimizer->data = optimizer->grads = NULL;
    for (size_t i = 0; i < optimizer->count; i++) {
        settle(optimizer, optimizer->parameters[i]);
    }
    optimizer->moved = false;
}

static const mu_parameter *overlapped(mu_interval *set, mu_extent extent)
{
    const mu_interval *found = mu_interval_find(set, extent);
    return found ? found->owner : NULL;
}

/* Fail if the data of a parameter overlaps any gradient or another parameter. Sets the extents
 * of p, which is not in the sets. */
static muonium_status check_memory(muonium_optimizer *optimizer, mu_parameter *p)
{
    mu_extent data, grad;
    muonium_status status = mu_data_extent(p, p->tensor.data, &data);
    if (status == MUONIUM_OK) {
        status = mu_grad_extent(p, p->tensor.grad, &grad);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    if (mu_extents_overlap(data, grad)) {
        return mu_fail(MUONIUM_INVALID, "data and grad of %s overlap", p->name);
    }
    settle_all(optimizer);
    const mu_parameter *other = overlapped(optimizer->data, data);
    if (other) {
        return mu_fail(MUONIUM_INVALID,
                       "data of %s overlaps data of %s: add a tensor once, and views of one "
                       "memory as one tensor",
                       p->name, other->name);
    }
    other = overlapped(optimizer->grads, data);
    other = other ? other : overlapped(optimizer->data, grad);
    if (other) {
        return mu_fail(MUONIUM_INVALID, "memory of %s overlaps data or grad of %s", p->name,
                       other->name);
    }
    p->data.extent = data;
    p->grad.extent = grad;
    return MUONIUM_OK;
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

static muonium_status describe(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                               mu_parameter *p)
{
    muonium_status status = check_tensor(tensor, p->name, &p->elements);
    if (status != MUONIUM_OK) {
        return status;
    }
    p->tensor = *tensor;
    p->tensor.name = p->name;
    p->tensor.row_splits = NULL;
    p->grad_dtype = tensor->f32_grad ? MUONIUM_F32 : tensor->dtype;
    p->tensor.strides = keep_strides(tensor, tensor->strides, p->strides);
    p->tensor.grad_strides = keep_strides(tensor, tensor->grad_strides, p->grad_strides);
    if (p->elements == 0) { /* no rows to split */
        p->tensor.row_split_count = p->tensor.heads = 0;
    }
    status = check_memory(optimizer, p);
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

static muonium_status add(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                          muonium_group *group)
{
    if (!tensor) {
        return mu_fail(MUONIUM_INVALID, "tensor is NULL");
    }
    if (group && !owns(optimizer, group)) {
        return mu_fail(MUONIUM_INVALID, "the group of %s belongs to another optimizer",
                       tensor->name ? tensor->name : "a parameter");
    }
    mu_parameter *p = make_room(optimizer) ? mu_alloc_zeroed(sizeof *p) : NULL;
    if (!p) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for another parameter");
    }
    p->data.owner = p->grad.owner = p;
    p->group = group ? group : optimizer->groups;
    muonium_status status = name_parameter(optimizer, tensor->name, p);
    if (status == MUONIUM_OK) {
        mu_fenv environment = mu_fenv_enter();
        status = describe(optimizer, tensor, p);
        mu_fenv_leave(environment);
    }
    if (status != MUONIUM_OK) {
        free_parameter(p);
        return status;
    }
    p->number = optimizer->count;
    mu_index_add(&optimizer->names, p->name_hash, p->number);
    settle(optimizer, p);
    optimizer->parameters[optimizer->count++] = p;
    optimizer->counters.muon += p->muon;
    optimizer->counters.adam += !p->muon;
    mu_schedule_destroy(optimizer->schedule);
    optimizer->schedule = NULL;
    optimizer->logged = false;
    return MUONIUM_OK;
}

muonium_status muonium_add(muonium_optimizer *optimizer, const muonium_tensor *tensor,
                           muonium_group *group)
{
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_check_unheld(optimizer, __func__);
    return mu_leave(optimizer, status == MUONIUM_OK ? add(optimizer, tensor, group) : status);
}

/* ---- looking up and changing ---- */

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

/* Change the address of data or grad, and change it back if the memory is refused. */
static muonium_status move_to(muonium_optimizer *optimizer, mu_parameter *p, void **place,
                              void *target)
{
    void *before = *place;
    *place = target;
    settle_all(optimizer);
    unsettle(optimizer, p);
    muonium_status status = check_memory(optimizer, p);
    settle(optimizer, p);
    if (status != MUONIUM_OK) {
        *place = before;
    }
    return status;
}

muonium_status muonium_set_data(muonium_optimizer *optimizer, size_t parameter, void *data)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_parameter_at(optimizer, parameter, &p);
    return mu_leave(optimizer,
                    status == MUONIUM_OK ? move_to(optimizer, p, &p->tensor.data, data) : status);
}

muonium_status muonium_set_grad(muonium_optimizer *optimizer, size_t parameter, void *grad)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_enter(optimizer, __func__);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_parameter_at(optimizer, parameter, &p);
    return mu_leave(optimizer,
                    status == MUONIUM_OK ? move_to(optimizer, p, &p->tensor.grad, grad) : status);
}

typedef muonium_status setter(muonium_options *options, double value);

/* Change one group or all, if the changed options are valid for each. */
static muonium_status change_groups(muonium_optimizer *optimizer, muonium_group *group, setter *set,
                                    double value)
{
    if (group && !owns(optimizer, group)) {
        return mu_fail(MUONIUM_INVALID, "the group belongs to another optimizer");
    }
    for (int apply = 0; apply < 2; apply++) {
        for (muonium_group *g = group ? group : optimizer->groups; g; g = group ? NULL : g->next) {
            muonium_options changed = g->options;
            muonium_status status = set(&changed, value);
            if (status == MUONIUM_OK) {
                status = mu_check_options(&changed);
            }
            if (status != MUONIUM_OK) {
                return status;
            }
            if (apply) {
                g->options = changed;
            }
        }
    }
    return MUONIUM_OK;
}

static muonium_status change(muonium_optimizer *optimizer, const char *call, muonium_group *group,
                             setter *set, double value)
{
    muonium_status status = mu_enter(optimizer, call);
    return status == MUONIUM_OK ? mu_leave(optimizer, change_groups(optimizer, group, set, value))
                                : status;
}

/* An absolute adam_lr becomes a multiple of lr, so that it follows lr even through 0. */
static muonium_status set_lr(muonium_options *options, double value)
{
    if (options->adam_lr >= 0) {
        if (options->lr == 0) {
            return mu_fail(MUONIUM_INVALID,
                           "lr is 0 and adam_lr is %g: there is no factor by which to move it; "
                           "use adam_lr_scale instead of adam_lr",
                           options->adam_lr);
        }
        options->adam_lr_scale = options->adam_lr / options->lr;
        options->adam_lr = -1;
    }
    options->lr = value;
    return MUONIUM_OK;
}

static muonium_status set_weight_decay(muonium_options *options, double value)
{
    options->weight_decay = value;
    return MUONIUM_OK;
}

static muonium_status set_momentum(muonium_options *options, double value)
{
    options->momentum = value;
    return MUONIUM_OK;
}

muonium_status muonium_set_lr(muonium_optimizer *optimizer, muonium_group *group, double lr)
{
    mu_fenv environment = mu_fenv_enter();
    muonium_status status = change(optimizer, __func__, group, set_lr, lr);
    mu_fenv_leave(environment);
    return status;
}

muonium_status muonium_set_weight_decay(muonium_optimizer *optimizer, muonium_group *group,
                                        double weight_decay)
{
    return change(optimizer, __func__, group, set_weight_decay, weight_decay);
}

muonium_status muonium_set_momentum(muonium_optimizer *optimizer, muonium_group *group,
                                    double momentum)
{
    return change(optimizer, __func__, group, set_momentum, momentum);
}
