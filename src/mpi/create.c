/*
 * create.c: creates and destroys the object. Every rank makes the plan by itself; then all
 * ranks compare. Large memory is allocated after that, and all ranks agree whether it was.
 */
#include "mpi/distributed.h"

#include <math.h>
#include <string.h>

static const char what[] = "creating a distributed optimizer";

/* ---- options ---- */

static const mu_nested versions = {"muonium_mpi_options", ".plan", sizeof(muonium_mpi_options),
                                   sizeof(muonium_mpi_plan_options)};

_Static_assert(offsetof(muonium_mpi_options, plan) == sizeof(size_t) &&
                   offsetof(muonium_mpi_options, sum) ==
                       sizeof(size_t) + sizeof(muonium_mpi_plan_options),
               "struct_size, plan and the rest lie without gaps: see versioned.c");

static muonium_mpi_options default_options(void)
{
    muonium_mpi_options defaults = {
        .struct_size = sizeof defaults,
        .deadline = 300,
        .bucket_bytes = 1 << 23,
        .chunk_bytes = 1 << 30,
    };
    muonium_mpi_plan_options_init(&defaults.plan);
    return defaults;
}

muonium_status muonium_mpi_options_init_sized(muonium_mpi_options *options, size_t size,
                                              size_t plan_size)
{
    muonium_status status = mu_check_version();
    if (status == MUONIUM_OK && !options) {
        status = mu_fail(MUONIUM_INVALID,
                         "options is NULL: pass the address of a muonium_mpi_options to fill");
    }
    if (status == MUONIUM_OK) {
        status = mu_nested_check(&versions, size, plan_size);
    }
    if (status == MUONIUM_OK) {
        const muonium_mpi_options defaults = default_options();
        mu_nested_write(&versions, options, size, plan_size, &defaults);
    }
    return status;
}

static muonium_status read_mpi_options(const muonium_mpi_options *given,
                                       muonium_mpi_options *options)
{
    *options = default_options();
    muonium_status status = mu_nested_read(&versions, given, options);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!(options->deadline > 0) || !isfinite(options->deadline)) {
        return mu_fail(MUONIUM_INVALID, "deadline is %g: use a finite number of seconds above 0",
                       options->deadline);
    }
    if (!(options->max_norm >= 0) || !isfinite(options->max_norm)) {
        return mu_fail(MUONIUM_INVALID,
                       "max_norm is %g: use a finite number above 0, or 0 for no clipping",
                       options->max_norm);
    }
    if (options->chunk_bytes < 4096 || options->chunk_bytes > INT32_MAX) {
        return mu_fail(MUONIUM_INVALID, "chunk_bytes is %zu: use 4096 to 2^31 - 1",
                       options->chunk_bytes);
    }
    return MUONIUM_OK;
}

static muonium_status check_arguments(const muonium_optimizer *description,
                                      const muonium_mpi_options *given,
                                      muonium_mpi_options *options)
{
    muonium_status status = read_mpi_options(given, options);
    if (status != MUONIUM_OK) {
        *options = default_options(); /* with a deadline, to tell the other ranks */
        return status;
    }
    if (!description) {
        return mu_fail(MUONIUM_INVALID, "description is NULL");
    }
    if (!description->stateless) {
        return mu_fail(MUONIUM_INVALID, "the optimizer has state of its own: make it with "
                                        "muonium_create_description");
    }
    return MUONIUM_OK;
}

/* ---- communicators ---- */

muonium_status mu_connect(muonium_mpi *d, MPI_Comm comm)
{
    MPI_Request request;
    int *largest_tag = NULL, known = 0;
    d->comm = d->copy = MPI_COMM_NULL;
    d->caller = comm;
    MPI_Comm_get_errhandler(comm, &d->callers_handler);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &d->rank);
    MPI_Comm_size(comm, &d->ranks);
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &largest_tag, &known);
    d->caller_tag = known ? *largest_tag : 32767; /* which every MPI has */
    muonium_status status = mu_mpi_ok(d, MPI_Comm_idup(comm, &d->copy, &request), what);
    if (status == MUONIUM_OK) {
        status = mu_wait(d, &request, what);
    }
    if (status == MUONIUM_OK) {
        d->comm = d->copy;
        MPI_Comm_set_errhandler(d->comm, MPI_ERRORS_RETURN);
    }
    return status;
}

void mu_settle(muonium_mpi *d)
{
    MPI_Comm_set_errhandler(d->caller, d->callers_handler);
    MPI_Errhandler_free(&d->callers_handler);
    d->caller = MPI_COMM_NULL;
}

void mu_disconnect(muonium_mpi *d)
{
    if (d->comm != MPI_COMM_NULL) {
        MPI_Comm_free(&d->comm);
    }
}

/* ---- our parts ---- */

static muonium_status add_groups(muonium_mpi *d)
{
    size_t count = 0;
    const muonium_group *g = d->description->groups;
    muonium_options options = g->options;
    options.log = NULL; /* the description logs */
    muonium_status status = muonium_create(&options, &d->own);
    for (; status == MUONIUM_OK && g; g = g->next) {
        if (count == 0) {
            d->own_groups[count] = d->own->groups;
        } else {
            status = muonium_add_group(d->own, &g->options, &d->own_groups[count]);
        }
        count++;
    }
    return status;
}

/* Parts round with the random numbers of the whole parameter. */
static muonium_status add_parts(muonium_mpi *d)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < d->own_count; i++) {
        const mu_part *part = &d->plan->parts[d->own_parts[i]];
        const mu_parameter *p = d->description->parameters[part->piece.parameter];
        mu_part_tensor as;
        mu_tensor_of_part(p, part, &as);
        status = muonium_add(d->own, &as.tensor, d->own_groups[p->group->number]);
        if (status == MUONIUM_OK) {
            d->own->parameters[i]->random_key = p->random_key;
            d->own->parameters[i]->random_first = part->piece.first;
        }
    }
    return status;
}

static muonium_status make_own(muonium_mpi *d)
{
    size_t groups = 0, floats = 0;
    for (const muonium_group *g = d->description->groups; g; g = g->next) {
        groups++;
    }
    d->own_groups = mu_alloc(groups * sizeof(muonium_group *));
    d->own_count = d->plan->loads[d->rank].pieces;
    d->own_parts = mu_alloc(d->own_count * sizeof *d->own_parts);
    d->sums = mu_alloc(d->own_count * sizeof *d->sums);
    d->own_data = mu_alloc(d->own_count * sizeof *d->own_data);
    d->own_grads = mu_alloc_zeroed(d->own_count * sizeof *d->own_grads);
    d->present = mu_alloc_zeroed(d->own_count * (size_t)d->ranks);
    if (!d->own_groups || !d->own_parts || !d->sums || !d->own_data || !d->own_grads ||
        !d->present) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu pieces", d->own_count);
    }
    size_t count = 0;
    for (size_t i = 0; i < d->plan->count; i++) {
        if (d->plan->parts[i].piece.owner == d->rank) {
            d->own_parts[count++] = i;
            floats += mu_round_up(d->plan->parts[i].elements, 16);
        }
    }
    d->sum_memory = mu_alloc(floats * sizeof(float));
    d->before = d->options.half_updates ? mu_alloc(floats * sizeof(float)) : NULL;
    if (!d->sum_memory || (d->options.half_updates && !d->before)) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for gradients of %zu elements", floats);
    }
    float *next = d->sum_memory;
    for (size_t i = 0; i < d->own_count; i++) {
        d->sums[i] = next;
        next += mu_round_up(d->plan->parts[d->own_parts[i]].elements, 16);
    }
    if (d->own_count == 0) {
        return MUONIUM_OK;
    }
    muonium_status status = add_groups(d);
    if (status == MUONIUM_OK) {
        status = add_parts(d);
    }
    if (status == MUONIUM_OK) {
        status = mu_share_columns(d);
    }
    if (status == MUONIUM_OK) {
        /* A step without gradients changes nothing, but allocates all memory of a step, so that
         * later steps cannot fail on one rank alone. */
        status = muonium_step_at(d->own, NULL, d->own_grads, d->own_count);
        d->own->counters.steps = d->own->counters.skipped = 0;
    }
    return status;
}

/* ---- memory of the exchange ---- */

static muonium_status make_windows(muonium_mpi *d)
{
    size_t ranks = (size_t)d->ranks;
    size_t slab = d->gradients.slab > d->updates.slab ? d->gradients.slab : d->updates.slab;
    size_t rounds =
        d->gradients.rounds > d->updates.rounds ? d->gradients.rounds : d->updates.rounds;
    for (size_t i = 0; i < MU_WINDOWS && (i == 0 || i < rounds); i++) {
        mu_window *w = &d->windows[i];
        w->send = mu_alloc_zeroed(ranks * slab);
        w->receive = mu_alloc(ranks * slab);
        w->send_counts = mu_alloc(4 * ranks * sizeof(int));
        if (!w->send || !w->receive || !w->send_counts) {
            return mu_fail(MUONIUM_NO_MEMORY,
                           "no memory for buckets of %zu bytes: lower bucket_bytes", ranks * slab);
        }
        w->send_at = w->send_counts + ranks;
        w->receive_counts = w->send_at + ranks;
        w->receive_at = w->receive_counts + ranks;
    }
    return MUONIUM_OK;
}

static muonium_status allocate_tables(muonium_mpi *d)
{
    size_t count = d->plan->count, parameters = d->description->count, next = 0, units = 0;
    d->pending = mu_alloc(d->gradients.rounds * sizeof *d->pending);
    d->ready = mu_alloc(parameters * sizeof *d->ready);
    d->active = mu_alloc(parameters * sizeof *d->active);
    d->first_part = mu_alloc((parameters + 1) * sizeof *d->first_part);
    d->grad_at = mu_alloc(count * sizeof *d->grad_at);
    d->found = mu_alloc((count + (size_t)d->ranks) * sizeof *d->found);
    d->found_at = mu_alloc(count * sizeof *d->found_at);
    for (size_t i = 0; i < count; i++) {
        units += mu_units_of_part(&d->plan->parts[i]);
    }
    d->squares = mu_alloc(units * sizeof *d->squares);
    d->squares_at = mu_alloc(count * sizeof *d->squares_at);
    units = 0;
    if (!d->pending || !d->ready || !d->active || !d->first_part || !d->grad_at || !d->found ||
        !d->found_at || !d->squares || !d->squares_at) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for tables of %zu pieces", count);
    }
    for (size_t i = count; i-- > 0;) {
        d->first_part[d->plan->parts[i].piece.parameter] = i;
    }
    d->first_part[parameters] = count;
    for (int r = 0; r < d->ranks; r++) {
        const mu_stream *g = &d->gradients.of[r], *u = &d->updates.of[r];
        for (size_t i = 0; i < g->count; i++) {
            d->grad_at[g->parts[i]] = g->at[i];
        }
        next++;                                 /* the opinion of that rank */
        for (size_t i = 0; i < u->count; i++) { /* in the order of own_parts of that rank */
            d->found_at[u->parts[i]] = next++;
            d->squares_at[u->parts[i]] = units;
            units += mu_units_of_part(&d->plan->parts[u->parts[i]]);
        }
    }
    return MUONIUM_OK;
}

static muonium_status prepare_parts(muonium_mpi *d)
{
    muonium_status status = mu_rows_choose(MUONIUM_F32, &d->rows);
    if (status == MUONIUM_OK) {
        status = mu_streams_make(d, true, &d->gradients);
    }
    if (status == MUONIUM_OK) {
        status = mu_streams_make(d, false, &d->updates);
    }
    if (status == MUONIUM_OK) {
        status = make_windows(d);
    }
    if (status == MUONIUM_OK) {
        status = allocate_tables(d);
    }
    return status == MUONIUM_OK ? make_own(d) : status;
}

/* ---- all of it ---- */

/* The communicator comes first: it tells all ranks of an error on one. */
static muonium_status set_up(muonium_mpi *d, MPI_Comm comm, muonium_status status)
{
    char message[512];
    strncpy(message, muonium_last_error(), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    muonium_status reached = mu_connect(d, comm);
    if (reached != MUONIUM_OK) {
        return reached;
    }
    status = status == MUONIUM_OK ? status : mu_fail(status, "%s", message);
    if (status == MUONIUM_OK) {
        status = muonium_mpi_plan_create(d->description, d->ranks, &d->options.plan, &d->plan);
    }
    status = mu_agree(d, status, what);
    if (status == MUONIUM_OK) {
        status = mu_compare_ranks(d);
    }
    if (status == MUONIUM_OK) {
        status = mu_agree(d, prepare_parts(d), what);
    }
    return status;
}

muonium_status muonium_mpi_create(MPI_Comm comm, muonium_optimizer *description,
                                  const muonium_mpi_options *options, muonium_mpi **distributed)
{
    static muonium_mpi spare; /* tells the other ranks that this one has no memory */
    if (mu_check_version() != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (comm == MPI_COMM_NULL || spare.broken) { /* here they cannot be */
        return comm == MPI_COMM_NULL ? mu_fail(MUONIUM_INVALID, "comm is MPI_COMM_NULL")
                                     : mu_usable(&spare);
    }
    muonium_mpi *made = mu_alloc_zeroed(sizeof *made), *d = made ? made : &spare;
    d->description = description;
    muonium_status status = check_arguments(description, options, &d->options);
    if (status == MUONIUM_OK && !distributed) {
        status = mu_fail(MUONIUM_INVALID, "distributed is NULL");
    }
    if (!made) {
        status = mu_fail(MUONIUM_NO_MEMORY, "no memory for a distributed optimizer");
    }
    status = set_up(d, comm, status);
    mu_settle(d);
    if (status == MUONIUM_OK) {
        d->held = true;
        description->holders++;
        *distributed = d;
    } else if (made) {
        muonium_mpi_destroy(made);
    } else if (!d->broken) {
        mu_disconnect(d);
    }
    return status;
}

void muonium_mpi_destroy(muonium_mpi *d)
{
    if (!d) {
        return;
    }
    if (d->user) {
        mu_usable(d); /* leaves the message */
        return;
    }
    if (d->held) {
        d->description->holders--;
        d->held = false;
    }
    if (d->broken) {
        return; /* MPI may still write to the memory */
    }
    for (int i = 0; i < MU_WINDOWS; i++) {
        mu_free(d->windows[i].send);
        mu_free(d->windows[i].receive);
        mu_free(d->windows[i].send_counts);
    }
    mu_streams_free(&d->gradients);
    mu_streams_free(&d->updates);
    mu_unshare_columns(d);
    muonium_destroy(d->own);
    muonium_mpi_plan_destroy(d->plan);
    void *const memory[] = {d->own_groups, d->own_parts, d->sums,     d->sum_memory, d->own_data,
                            d->own_grads,  d->present,   d->before,   d->pending,    d->ready,
                            d->active,     d->found,     d->found_at, d->first_part, d->grad_at,
                            d->squares,    d->squares_at};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        mu_free(memory[i]);
    }
    mu_disconnect(d);
    mu_free(d);
}
