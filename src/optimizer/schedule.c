/*
 * schedule.c: see schedule.h.
 */
#include "optimizer/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Elements per task: enough to hide the cost of a task, few enough to balance workers. */
enum { CHUNK = 32 * MU_PIECE };

_Static_assert(CHUNK % MUONIUM_STATE_BLOCK == 0, "chunks do not cut blocks of int8 state");

/* The default bound on scratch memory, if options.scratch_bytes is 0, is this share of the bytes of
 * the parameters, so that teams have several matrices at the same time; or this number of bytes if
 * that is more, so that batches of small matrices are worth starting. What one matrix needs is
 * there in any case. */
enum { SCRATCH_SHARE = 2, LEAST_SCRATCH = 1 << 21 };

size_t mu_direction_size(size_t rows, size_t cols)
{
    return mu_round_up(rows * cols, MU_ALIGNMENT / sizeof(float));
}

static void oriented_shape(const mu_parameter *p, size_t index, size_t *m, size_t *n)
{
    mu_matrix_place place = mu_direction_place(p, mu_matrix_at(&p->matrices, index));
    if (p->across) {
        bool tall = p->across->rows > p->across->cols;
        *m = tall ? place.cols : place.rows;
        *n = tall ? place.rows : place.cols;
        return;
    }
    *m = place.rows < place.cols ? place.rows : place.cols;
    *n = place.rows < place.cols ? place.cols : place.rows;
}

static bool same_class(const mu_class *c, const mu_parameter *p, size_t m, size_t n)
{
    return c->group == p->group && c->m == m && c->n == n && c->across == p->across &&
           c->together == mu_matrices_together(p);
}

static uint64_t hash_class(const mu_parameter *p, size_t m, size_t n)
{
    const uint64_t parts[] = {(uintptr_t)p->group, (uintptr_t)p->across, m, n,
                              mu_matrices_together(p)};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Find the class of a matrix, or add it. `known` has room for all classes. */
static mu_class *class_of(mu_schedule *schedule, mu_index *known, const mu_parameter *p, size_t m,
                          size_t n)
{
    uint64_t hash = hash_class(p, m, n);
    size_t probe = 0, c;
    while ((c = mu_index_next(known, hash, &probe)) != SIZE_MAX) {
        if (same_class(&schedule->classes[c], p, m, n)) {
            return &schedule->classes[c];
        }
    }
    mu_index_add(known, hash, schedule->class_count);
    mu_class *made = &schedule->classes[schedule->class_count++];
    *made = (mu_class){.m = m,
                       .n = n,
                       .longer = (m > n ? m : n) + 2, /* see mu_row_sums_at */
                       .together = mu_matrices_together(p),
                       .across = p->across,
                       .group = p->group};
    return made;
}

static size_t count_matrices(const muonium_optimizer *optimizer)
{
    size_t count = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        count += optimizer->parameters[i]->muon ? optimizer->parameters[i]->matrices.count : 0;
    }
    return count;
}

/* An upper bound on the number of classes: the matrices of a parameter differ in shape by their
 * block of rows alone. */
static size_t count_shapes(const muonium_optimizer *optimizer)
{
    size_t count = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        count += optimizer->parameters[i]->muon ? optimizer->parameters[i]->matrices.blocks : 0;
    }
    return count;
}

/* What the matrices of a class need beyond what its shape says. */
static void measure_member(mu_class *c, const mu_parameter *p, size_t index)
{
    if (mu_selects(p)) {
        mu_matrix_place place = mu_matrix_at(&p->matrices, index);
        size_t longer = (place.rows > place.cols ? place.rows : place.cols) + 2;
        size_t partial = mu_selection_partials(p, &place);
        c->longer = longer > c->longer ? longer : c->longer;
        c->partials = partial > c->partials ? partial : c->partials;
    }
}

static void classify(const muonium_optimizer *optimizer, mu_schedule *schedule, mu_index *known)
{
    for (int pass = 0; pass < 2; pass++) { /* count, then place */
        mu_member *next = schedule->members;
        for (size_t c = 0; pass == 1 && c < schedule->class_count; c++) {
            schedule->classes[c].members = next;
            next += schedule->classes[c].count;
            schedule->classes[c].count = 0;
        }
        for (size_t i = 0; i < optimizer->count; i++) {
            mu_parameter *p = optimizer->parameters[i];
            for (size_t k = 0; p->muon && k < p->matrices.count; k++) {
                size_t m, n;
                oriented_shape(p, k, &m, &n);
                mu_class *c = class_of(schedule, known, p, m, n);
                measure_member(c, p, k);
                if (pass == 1) {
                    c->members[c->count] = (mu_member){p, k};
                }
                c->count++;
            }
        }
    }
}

static void cut_chunks(const muonium_optimizer *optimizer, mu_schedule *schedule)
{
    for (size_t i = 0; i < optimizer->count; i++) {
        mu_parameter *p = optimizer->parameters[i];
        for (size_t first = 0; first < p->elements; first += CHUNK) {
            size_t left = p->elements - first;
            schedule->chunks[schedule->chunk_count++] =
                (mu_chunk){p, first, left < CHUNK ? left : CHUNK};
        }
    }
}

static muonium_status plan_class(mu_class *c)
{
    muonium_plan_options options = c->group->options.plan;
    /* Gradients and momentum were checked before. If the momentum is not finite now, the caller
     * wrote it meanwhile: skip this matrix alone. */
    if (options.nonfinite == MUONIUM_NONFINITE_ERROR) {
        options.nonfinite = MUONIUM_NONFINITE_SKIP;
    }
    muonium_plan *plan;
    const mu_across *across = c->across;
    size_t n = !across ? c->n : across->rows > across->cols ? across->rows : across->cols;
    muonium_status status = muonium_plan_create((muonium_shape){1, c->m, n}, &options, &plan);
    if (status != MUONIUM_OK) {
        return status;
    }
    status = mu_block_of_precision(plan->options.precision, n, &c->block);
    if (status == MUONIUM_OK && across) {
        status = mu_plan_narrow(plan, c->n);
    }
    if (status == MUONIUM_OK) {
        status = mu_plan_keep_in_place(plan);
    }
    if (status != MUONIUM_OK) {
        muonium_plan_destroy(plan);
        return status;
    }
    c->plan = plan;
    return MUONIUM_OK;
}

/* Offsets in the scratch memory. */
typedef struct scratch_offsets {
    size_t directions, workspace, row_stats, selected, partials, surveys, batch, oriented,
        certificates;
    size_t bytes; /* of all */
} scratch_offsets;

/* Reserve room at the end and return its offset. */
static size_t reserve(size_t *total, size_t count, size_t bytes)
{
    size_t at = *total;
    *total += mu_round_up(count * bytes, MU_ALIGNMENT);
    return at;
}

static scratch_offsets lay_out(const mu_class *c)
{
    scratch_offsets l = {0};
    l.directions = reserve(&l.bytes, c->capacity * mu_direction_size(c->m, c->n), sizeof(float));
    l.workspace = reserve(&l.bytes, c->workspace, 1);
    l.row_stats = reserve(&l.bytes, 2 * c->capacity * c->longer, sizeof(double));
    l.selected = reserve(&l.bytes, c->partials > 0 ? c->capacity * c->longer : 0, sizeof(size_t));
    l.partials = reserve(&l.bytes, c->capacity * c->partials, sizeof(double));
    l.surveys = reserve(&l.bytes, c->capacity, sizeof(mu_survey));
    l.batch = reserve(&l.bytes, c->capacity, sizeof(mu_member));
    l.oriented = reserve(&l.bytes, c->capacity, sizeof(mu_oriented));
    l.certificates = reserve(&l.bytes, c->capacity, sizeof(muonium_certificate));
    return l;
}

size_t mu_scratch_bytes(const mu_class *of)
{
    return lay_out(of).bytes;
}

size_t mu_area_unit(size_t bytes)
{
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20, PAGES = 8 };
    return bytes >= (size_t)PAGES * HUGE_PAGE ? HUGE_PAGE
           : bytes >= (size_t)PAGES * PAGE    ? PAGE
                                              : MU_ALIGNMENT;
}

mu_scratch mu_scratch_of(const mu_schedule *schedule, const mu_class *of, unsigned team)
{
    char *memory = (char *)schedule->scratch + team * schedule->area_bytes;
    scratch_offsets l = lay_out(of);
    mu_scratch scratch = {
        .directions = (float *)(void *)(memory + l.directions),
        .workspace = memory + l.workspace,
        .row_stats = (double *)(void *)(memory + l.row_stats),
        .selected = (size_t *)(void *)(memory + l.selected),
        .partials = (double *)(void *)(memory + l.partials),
        .surveys = (mu_survey *)(void *)(memory + l.surveys),
        .batch = (mu_member *)(void *)(memory + l.batch),
        .oriented = (mu_oriented *)(void *)(memory + l.oriented),
        .certificates = (muonium_certificate *)(void *)(memory + l.certificates),
    };
    return scratch;
}

/* The bound on scratch memory beyond what one matrix needs. */
static size_t bound_of(const muonium_optimizer *optimizer, size_t copies)
{
    if (optimizer->scratch_bytes > 0) {
        return optimizer->scratch_bytes;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        bytes += (p->muon ? copies : 1) * p->elements * muonium_dtype_size(p->tensor.dtype);
    }
    bytes /= SCRATCH_SHARE;
    return bytes > LEAST_SCRATCH ? bytes : LEAST_SCRATCH;
}

static int costlier_first(const void *first, const void *second)
{
    const mu_batch_job *a = first, *b = second;
    double of_a = a->of->cost * (double)a->count, of_b = b->of->cost * (double)b->count;
    if (of_a != of_b) {
        return of_a > of_b ? -1 : 1;
    }
    ptrdiff_t classes = a->of - b->of;
    return classes != 0 ? (classes > 0) - (classes < 0)
                        : (a->first > b->first) - (a->first < b->first);
}

static muonium_status cut_jobs(mu_schedule *schedule)
{
    for (size_t i = 0; i < schedule->class_count; i++) {
        const mu_class *c = &schedule->classes[i];
        schedule->job_count += c->across ? 0 : (c->count + c->capacity - 1) / c->capacity;
    }
    schedule->jobs = mu_alloc(schedule->job_count * sizeof *schedule->jobs);
    if (!schedule->jobs) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu jobs", schedule->job_count);
    }
    mu_batch_job *next = schedule->jobs;
    for (size_t i = 0; i < schedule->class_count; i++) {
        const mu_class *c = &schedule->classes[i];
        for (size_t first = 0; !c->across && first < c->count; first += c->capacity) {
            size_t left = c->count - first;
            *next++ = (mu_batch_job){c, first, left < c->capacity ? left : c->capacity};
        }
    }
    qsort(schedule->jobs, schedule->job_count, sizeof *schedule->jobs, costlier_first);
    return MUONIUM_OK;
}

static muonium_status divide_scratch(const muonium_optimizer *optimizer, mu_schedule *schedule,
                                     size_t copies)
{
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < schedule->class_count; i++) {
        status = plan_class(&schedule->classes[i]);
    }
    if (status == MUONIUM_OK) {
        status = mu_choose_teams(optimizer, schedule, bound_of(optimizer, copies), copies);
    }
    if (status == MUONIUM_OK) {
        status = cut_jobs(schedule);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    for (size_t i = 0; i < schedule->class_count; i++) {
        const mu_class *c = &schedule->classes[i];
        size_t bytes = mu_scratch_bytes(c);
        bytes = mu_round_up(bytes,
                            schedule->teams > 1 && !c->across ? mu_area_unit(bytes) : MU_ALIGNMENT);
        if (c->across) { /* one at a time, in the area of the first team and those after it */
            schedule->bytes = bytes > schedule->bytes ? bytes : schedule->bytes;
        } else {
            schedule->area_bytes = bytes > schedule->area_bytes ? bytes : schedule->area_bytes;
        }
    }
    size_t all = schedule->area_bytes * schedule->teams;
    schedule->bytes = all > schedule->bytes ? all : schedule->bytes;
    return MUONIUM_OK;
}

static muonium_status no_memory_for_schedule(size_t matrices, size_t parameters)
{
    return mu_fail(MUONIUM_NO_MEMORY, "no memory to schedule %zu matrices of %zu parameters",
                   matrices, parameters);
}

/* The classes, their teams and jobs. */
static muonium_status divide_matrices(const muonium_optimizer *optimizer, mu_schedule *schedule,
                                      size_t copies)
{
    size_t matrices = count_matrices(optimizer), shapes = count_shapes(optimizer);
    schedule->members = mu_alloc(matrices * sizeof *schedule->members);
    schedule->classes = mu_alloc(shapes * sizeof *schedule->classes);
    mu_index known = {0};
    if (!schedule->members || !schedule->classes || !mu_index_reserve(&known, shapes)) {
        return no_memory_for_schedule(matrices, optimizer->count);
    }
    classify(optimizer, schedule, &known);
    mu_index_release(&known);
    return divide_scratch(optimizer, schedule, copies);
}

/* What a step needs besides: memory, and element-wise work. */
static muonium_status equip(const muonium_optimizer *optimizer, mu_schedule *schedule)
{
    size_t chunks = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        chunks += (optimizer->parameters[i]->elements + CHUNK - 1) / CHUNK;
    }
    schedule->chunks = mu_alloc(chunks * sizeof *schedule->chunks);
    schedule->unsound = mu_alloc_zeroed(chunks * sizeof *schedule->unsound);
    schedule->moderate = mu_alloc_zeroed(chunks * sizeof *schedule->moderate);
    schedule->active = mu_alloc(optimizer->count * sizeof *schedule->active);
    schedule->places = mu_alloc(optimizer->count * 2 * sizeof *schedule->places);
    schedule->grads = mu_alloc(optimizer->count * sizeof *schedule->grads);
    if (!schedule->chunks || !schedule->unsound || !schedule->moderate || !schedule->active ||
        !schedule->places || !schedule->grads) {
        return no_memory_for_schedule(count_matrices(optimizer), optimizer->count);
    }
    muonium_status status = mu_rows_choose(MUONIUM_F32, &schedule->rows);
    if (status != MUONIUM_OK) {
        return status;
    }
    schedule->elementwise = mu_elementwise_for(mu_cpu_usable());
    cut_chunks(optimizer, schedule);
    schedule->scratch = mu_alloc(schedule->bytes);
    return schedule->scratch
               ? MUONIUM_OK
               : mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu bytes of scratch", schedule->bytes);
}

static muonium_status plan_schedule(const muonium_optimizer *optimizer, size_t copies,
                                    mu_schedule **schedule)
{
    mu_schedule *made = mu_alloc_zeroed(sizeof *made);
    if (!made) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a schedule");
    }
    made->workers = mu_pool_workers();
    *schedule = made;
    return divide_matrices(optimizer, made, copies);
}

static bool is_current(const muonium_optimizer *optimizer)
{
    return optimizer->schedule && optimizer->schedule->workers == mu_pool_workers();
}

muonium_status mu_schedule_make(muonium_optimizer *optimizer, size_t copies)
{
    if (is_current(optimizer)) {
        return MUONIUM_OK;
    }
    mu_schedule *made = NULL;
    muonium_status status = mu_need_state(optimizer, "step");
    status = status == MUONIUM_OK ? plan_schedule(optimizer, copies, &made) : status;
    status = status == MUONIUM_OK ? equip(optimizer, made) : status;
    if (status != MUONIUM_OK) {
        mu_schedule_destroy(made);
        return status;
    }
    mu_schedule_destroy(optimizer->schedule);
    optimizer->schedule = made;
    return MUONIUM_OK;
}

muonium_status mu_schedule_describe(const muonium_optimizer *optimizer, muonium_counters *counters)
{
    mu_schedule *made = NULL;
    if (optimizer->count == 0) {
        return MUONIUM_OK;
    }
    muonium_status status = is_current(optimizer) ? MUONIUM_OK : plan_schedule(optimizer, 1, &made);
    if (status == MUONIUM_OK) {
        const mu_schedule *schedule = made ? made : optimizer->schedule;
        counters->scratch_bytes = schedule->bytes;
        counters->teams = schedule->teams;
        counters->team_width = schedule->width;
    }
    mu_schedule_destroy(made);
    return status;
}

void mu_schedule_destroy(mu_schedule *schedule)
{
    if (!schedule) {
        return;
    }
    for (size_t c = 0; c < schedule->class_count; c++) {
        muonium_plan_destroy(schedule->classes[c].plan);
    }
    mu_free(schedule->scratch);
    mu_free(schedule->members);
    mu_free(schedule->jobs);
    mu_free(schedule->classes);
    mu_free(schedule->chunks);
    mu_free(schedule->unsound);
    mu_free(schedule->moderate);
    mu_free(schedule->active);
    mu_free(schedule->places);
    mu_free(schedule->grads);
    mu_free(schedule);
}
