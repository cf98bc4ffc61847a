/*
 * schedule.c: see schedule.h.
 */
#include "optimizer/schedule.h"

#include <string.h>

/* Elements of an element-wise task: long enough to hide its cost, short enough to
 * balance threads. */
enum { CHUNK = 32 * MU_PIECE };

/* What a batch may hold at least, however small its matrices: a batch of tiny ones must
 * be long enough to be worth starting. */
enum { LEAST_BATCH = 1 << 18 };

size_t mu_direction_size(size_t rows, size_t cols)
{
    return mu_round_up(rows * cols, MU_ALIGNMENT / sizeof(float));
}

static void oriented_shape(const mu_parameter *p, size_t index, size_t *m, size_t *n)
{
    mu_matrix_place place = mu_matrix_at(&p->matrices, index);
    *m = place.rows < place.cols ? place.rows : place.cols;
    *n = place.rows < place.cols ? place.cols : place.rows;
}

static bool same_class(const mu_class *c, const muonium_group *group, size_t m, size_t n)
{
    return c->group == group && c->m == m && c->n == n;
}

/* Find or, the second time, count members of the class of a matrix. */
static mu_class *class_of(mu_schedule *schedule, muonium_group *group, size_t m, size_t n)
{
    for (size_t c = schedule->class_count; c-- > 0;) { /* the last is the likeliest */
        if (same_class(&schedule->classes[c], group, m, n)) {
            return &schedule->classes[c];
        }
    }
    mu_class *made = &schedule->classes[schedule->class_count++];
    *made = (mu_class){.m = m, .n = n, .group = group};
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

static void classify(const muonium_optimizer *optimizer, mu_schedule *schedule)
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
                mu_class *c = class_of(schedule, p->group, m, n);
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

static muonium_status plan_class(mu_class *c, size_t budget, size_t *workspace)
{
    size_t fit = budget / mu_direction_size(c->m, c->n);
    c->capacity = fit < 1 ? 1 : fit < c->count ? fit : c->count;
    double table[MUONIUM_MAX_STEPS][3];
    muonium_plan_options options;
    muonium_status status = mu_plan_options_of(&c->group->options, table, &options);
    if (status != MUONIUM_OK) {
        return status;
    }
    /* Gradients were checked before: what is not finite now has overflowed in the
     * momentum, and only this matrix suffers. */
    if (options.nonfinite == MUONIUM_NONFINITE_ERROR) {
        options.nonfinite = MUONIUM_NONFINITE_SKIP;
    }
    muonium_plan_info info;
    status = muonium_plan_create((muonium_shape){c->capacity, c->m, c->n}, &options, &c->plan);
    if (status == MUONIUM_OK) {
        muonium_plan_describe(c->plan, &info);
        *workspace = info.workspace > *workspace ? info.workspace : *workspace;
    }
    return status;
}

/* Add to the bytes needed and keep the place. */
static size_t reserve(size_t *total, size_t count, size_t bytes)
{
    size_t at = *total;
    *total += mu_round_up(count * bytes, MU_ALIGNMENT);
    return at;
}

static muonium_status allocate_scratch(const muonium_optimizer *optimizer, mu_schedule *schedule)
{
    size_t largest = 0, workspace = 0, floats = 0, rows = 0, batch = 0;
    for (size_t c = 0; c < schedule->class_count; c++) {
        size_t size = mu_direction_size(schedule->classes[c].m, schedule->classes[c].n);
        largest = size > largest ? size : largest;
    }
    size_t extra = optimizer->scratch_bytes ? optimizer->scratch_bytes / sizeof(float) : largest;
    size_t budget = largest + extra;
    if (!optimizer->scratch_bytes && budget < LEAST_BATCH) {
        budget = LEAST_BATCH;
    }
    for (size_t c = 0; c < schedule->class_count; c++) {
        mu_class *class = &schedule->classes[c];
        muonium_status status = plan_class(class, budget, &workspace);
        if (status != MUONIUM_OK) {
            return status;
        }
        size_t used = class->capacity * mu_direction_size(class->m, class->n);
        floats = used > floats ? used : floats;
        rows = class->capacity * class->n > rows ? class->capacity * class->n : rows;
        batch = class->capacity > batch ? class->capacity : batch;
    }
    size_t bytes = 0;
    size_t directions = reserve(&bytes, floats, sizeof(float));
    size_t plans = reserve(&bytes, workspace, 1);
    size_t stats = reserve(&bytes, 2 * rows, sizeof(double));
    size_t surveys = reserve(&bytes, batch, sizeof(mu_survey));
    size_t members = reserve(&bytes, batch, sizeof(mu_member));
    size_t oriented = reserve(&bytes, batch, sizeof(mu_oriented));
    size_t certificates = reserve(&bytes, batch, sizeof(muonium_certificate));
    char *memory = mu_alloc(bytes);
    if (!memory) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu bytes of scratch", bytes);
    }
    schedule->directions = (float *)(void *)(memory + directions);
    schedule->workspace = memory + plans;
    schedule->row_stats = (double *)(void *)(memory + stats);
    schedule->surveys = (mu_survey *)(void *)(memory + surveys);
    schedule->batch = (mu_member *)(void *)(memory + members);
    schedule->oriented = (mu_oriented *)(void *)(memory + oriented);
    schedule->certificates = (muonium_certificate *)(void *)(memory + certificates);
    schedule->bytes = bytes;
    return MUONIUM_OK;
}

static muonium_status fill(const muonium_optimizer *optimizer, mu_schedule *schedule)
{
    size_t matrices = count_matrices(optimizer), chunks = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        chunks += (optimizer->parameters[i]->elements + CHUNK - 1) / CHUNK;
    }
    schedule->members = mu_alloc(matrices * sizeof *schedule->members);
    schedule->classes = mu_alloc(matrices * sizeof *schedule->classes);
    schedule->chunks = mu_alloc(chunks * sizeof *schedule->chunks);
    schedule->unsound = mu_alloc(chunks * sizeof *schedule->unsound);
    schedule->active = mu_alloc(optimizer->count * sizeof *schedule->active);
    schedule->places = mu_alloc(optimizer->count * sizeof *schedule->places);
    schedule->grads = mu_alloc(optimizer->count * sizeof *schedule->grads);
    if (!schedule->members || !schedule->classes || !schedule->chunks || !schedule->unsound ||
        !schedule->active || !schedule->places || !schedule->grads) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory to schedule %zu matrices of %zu parameters",
                       matrices, optimizer->count);
    }
    muonium_status status = mu_kernel_choose(MUONIUM_F32, &schedule->kernel);
    if (status != MUONIUM_OK) {
        return status;
    }
    schedule->elementwise = mu_elementwise_for(schedule->kernel->isa);
    classify(optimizer, schedule);
    cut_chunks(optimizer, schedule);
    return allocate_scratch(optimizer, schedule);
}

muonium_status mu_schedule_make(muonium_optimizer *optimizer)
{
    if (optimizer->schedule) {
        return MUONIUM_OK;
    }
    mu_schedule *made = mu_alloc_zeroed(sizeof *made);
    if (!made) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a schedule");
    }
    muonium_status status = fill(optimizer, made);
    if (status != MUONIUM_OK) {
        mu_schedule_destroy(made);
        return status;
    }
    optimizer->schedule = made;
    return MUONIUM_OK;
}

void mu_schedule_destroy(mu_schedule *schedule)
{
    if (!schedule) {
        return;
    }
    for (size_t c = 0; c < schedule->class_count; c++) {
        muonium_plan_destroy(schedule->classes[c].plan);
    }
    mu_free(schedule->directions);
    mu_free(schedule->members);
    mu_free(schedule->classes);
    mu_free(schedule->chunks);
    mu_free(schedule->unsound);
    mu_free(schedule->active);
    mu_free(schedule->places);
    mu_free(schedule->grads);
    mu_free(schedule);
}
