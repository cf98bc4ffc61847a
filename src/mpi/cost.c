/*
 * cost.c: estimates the time of a piece: the flops of its orthogonalisation in the form that
 * its plan chooses, and the bytes that element-wise passes read and write.
 */
#include "mpi/plan.h"

#include "orthogonalize/plan.h"

/* Gradient, state and parameter, read and written; the same for Muon and AdamW. */
enum { BYTES_PER_ELEMENT = 28 };

/* The plan of one matrix, in the form of info->form, AUTO for the group's own choice. */
static muonium_status describe_plan(const muonium_group *group, size_t rows, size_t cols,
                                    muonium_plan_info *info)
{
    muonium_plan_options options = group->options.plan;
    muonium_plan *plan = NULL;
    options.form = info->form != MUONIUM_FORM_AUTO ? info->form : options.form;
    muonium_status status = muonium_plan_create((muonium_shape){1, rows, cols}, &options, &plan);
    if (status == MUONIUM_OK) {
        status = muonium_plan_describe(plan, info);
        muonium_plan_destroy(plan);
    }
    return status;
}

/* A cache of plans: making one takes time, and models repeat a few shapes. */
typedef struct known {
    const muonium_group *group;
    size_t rows, cols;
    double flops;
    muonium_dtype precision;
} known;

typedef struct memory {
    known shapes[64];
    size_t next, count;
} memory;

static muonium_status recall_plan(memory *m, const muonium_group *group, size_t rows, size_t cols,
                                  known *found)
{
    enum { ROOM = sizeof m->shapes / sizeof m->shapes[0] };
    for (size_t i = 0; i < m->count; i++) {
        const known *k = &m->shapes[i];
        if (k->group == group && k->rows == rows && k->cols == cols) {
            *found = *k;
            return MUONIUM_OK;
        }
    }
    muonium_plan_info info = {.form = MUONIUM_FORM_AUTO};
    muonium_status status = describe_plan(group, rows, cols, &info);
    if (status == MUONIUM_OK) {
        *found = (known){group, rows, cols, info.flops, info.precision};
        m->shapes[m->next] = *found;
        m->next = (m->next + 1) % ROOM;
        m->count += m->count < ROOM;
    }
    return status;
}

/* The flops of all matrices of a part. */
static muonium_status flops_of_part(memory *m, const mu_parameter *p, const mu_part *part,
                                    double *flops)
{
    const mu_matrices *matrices = &p->matrices;
    muonium_status status = MUONIUM_OK;
    known one = {0};
    *flops = 0;
    if (part->rows > 0) {
        status = recall_plan(m, p->group, part->rows, part->cols, &one);
        *flops = one.flops;
        return status;
    }
    double repeats = (double)matrices->batch.total * (double)part->elements / (double)p->elements;
    for (size_t b = 0; status == MUONIUM_OK && b < matrices->blocks; b++) {
        mu_matrix_place place = mu_matrix_at(matrices, b);
        status = recall_plan(m, p->group, place.rows, place.cols, &one);
        *flops += one.flops * repeats;
    }
    return status;
}

static muonium_status find_block(memory *m, const muonium_group *group, mu_part *part)
{
    known one = {0};
    muonium_status status = recall_plan(m, group, part->rows, part->cols, &one);
    part->col_count = part->rows < part->cols ? part->cols : part->rows;
    return status == MUONIUM_OK
               ? mu_block_of_precision(one.precision, part->col_count, &part->block)
               : status;
}

muonium_status mu_price_parts(const muonium_optimizer *description,
                              const muonium_mpi_plan_options *options, mu_part *parts, size_t count)
{
    memory m = {.count = 0};
    muonium_status status = MUONIUM_OK;
    for (size_t i = 0; status == MUONIUM_OK && i < count; i++) {
        const mu_parameter *p = description->parameters[parts[i].piece.parameter];
        double flops = 0;
        if (p->muon) {
            status = flops_of_part(&m, p, &parts[i], &flops);
        }
        if (status == MUONIUM_OK && parts[i].rows > 0) {
            status = find_block(&m, p->group, &parts[i]);
        }
        parts[i].piece.seconds = flops / options->flops +
                                 BYTES_PER_ELEMENT * (double)parts[i].elements / options->bandwidth;
    }
    return status;
}

muonium_status mu_price_split(const muonium_group *group, const muonium_mpi_plan_options *options,
                              size_t m, size_t n, mu_split_price *price)
{
    muonium_plan_info once = {.form = MUONIUM_FORM_AUTO}, twice;
    muonium_status status = describe_plan(group, m, n, &once);
    if (status == MUONIUM_OK) { /* flops of one form are linear in the columns */
        twice.form = once.form;
        status = describe_plan(group, m, 2 * n, &twice);
    }
    if (status == MUONIUM_OK) {
        bool each_step = once.form == MUONIUM_FORM_STANDARD;
        *price = (mu_split_price){
            .fixed = (2 * once.flops - twice.flops) / options->flops,
            .grams = (size_t)(each_step ? once.steps : once.restarts + 1),
        };
    }
    return status;
}
