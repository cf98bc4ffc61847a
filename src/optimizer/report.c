/*
 * report.c: reports on parameters, and counters. A report needs no step: it makes the plans
 * that it describes, and destroys them.
 */
#include <math.h>
#include <string.h>

#include "optimizer/schedule.h"

static size_t state_bytes(const mu_parameter *p)
{
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_state_arrays(p, arrays), bytes = 0;
    for (size_t k = 0; k < count; k++) {
        bytes += mu_state_bytes(&arrays[k]);
    }
    return bytes;
}

/* Form and flops of the matrices of a parameter. Blocks of rows may differ in shape; they
 * repeat for every index of the batch. */
static muonium_status describe_matrices(const mu_parameter *p, muonium_parameter_report *report)
{
    const muonium_plan_options *options = &p->group->options.plan;
    muonium_status status = MUONIUM_OK;
    mu_matrix_place previous = {0};
    double flops = 0;
    for (size_t block = 0; status == MUONIUM_OK && block < p->matrices.blocks; block++) {
        mu_matrix_place place = mu_direction_place(p, mu_matrix_at(&p->matrices, block));
        if (place.rows != previous.rows) {
            muonium_plan *plan;
            muonium_plan_info info;
            status =
                muonium_plan_create((muonium_shape){1, place.rows, place.cols}, options, &plan);
            if (status != MUONIUM_OK) {
                break;
            }
            muonium_plan_describe(plan, &info);
            muonium_plan_destroy(plan);
            flops = info.flops;
            if (block == 0) {
                mu_matrix_place whole = mu_matrix_at(&p->matrices, block);
                report->rows = whole.rows;
                report->cols = whole.cols;
                report->form = info.form;
                report->direct_set = info.direct_set;
                report->restarts = info.restarts;
                report->precision = info.precision;
            }
        }
        report->flops += flops * (double)p->matrices.batch.total;
        previous = place;
    }
    return status;
}

/* An m x n matrix of orthonormal rows, m <= n, has a root mean square of n^-1/2. AdaMuon's
 * elements are about 1 before their factor. */
static double step_rms(const mu_parameter *p, const muonium_parameter_report *report)
{
    const muonium_options *o = &p->group->options;
    if (!p->muon) {
        return mu_adam_lr(o);
    }
    const mu_matrix_place place = mu_matrix_at(&p->matrices, 0);
    const mu_matrix_place direction = mu_direction_place(p, place);
    const double elements = (double)report->rows * (double)report->cols;
    const double shorter =
        (double)(direction.rows < direction.cols ? direction.rows : direction.cols);
    double rate = o->lr * mu_scale_of(o, report->rows, report->cols);
    if (o->hyperball) {
        const float *radius = p->state[MU_STATE_RADIUS];
        return p->steps > 0 && radius ? rate * (double)radius[0] / sqrt(elements) : NAN;
    }
    if (o->spatial_normalize) {
        rate /= sqrt((double)p->matrices.positions);
    }
    if (o->adamuon) {
        const bool matched = o->scale == MUONIUM_SCALE_MATCH_RMS_ADAMW;
        return matched ? rate * 0.2 * o->scale_factor / mu_scale_of(o, report->rows, report->cols)
                       : rate;
    }
    return rate * sqrt(shorter / elements);
}

muonium_status muonium_report_sized(const muonium_optimizer *optimizer, size_t parameter,
                                    muonium_parameter_report *report, size_t size)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!report) {
        return mu_fail(MUONIUM_INVALID, "report is NULL: pass a muonium_parameter_report");
    }
    muonium_parameter_report made = {
        .name = p->name,
        .muon = p->muon,
        .reason = p->reason,
        .matrices = p->muon ? p->matrices.count : 0,
        .state_bytes = state_bytes(p),
        .steps = p->steps,
    };
    mu_fenv environment = mu_fenv_enter();
    made.lr = p->muon ? p->group->options.lr : mu_adam_lr(&p->group->options);
    if (p->muon) {
        status = describe_matrices(p, &made);
    }
    made.step_rms = status == MUONIUM_OK ? step_rms(p, &made) : 0;
    mu_fenv_leave(environment);
    if (status == MUONIUM_OK) {
        mu_sized_write(report, size, &made, sizeof made);
    }
    return status;
}

muonium_status muonium_count_sized(const muonium_optimizer *optimizer, muonium_counters *counters,
                                   size_t size)
{
    if (!optimizer || !counters) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", optimizer ? "counters" : "optimizer");
    }
    muonium_counters found = optimizer->counters;
    muonium_status status = MUONIUM_OK;
    mu_fenv environment = mu_fenv_enter();
    for (size_t i = 0; status == MUONIUM_OK && i < optimizer->count; i++) {
        muonium_parameter_report report = {0};
        status = muonium_report(optimizer, i, &report);
        found.state_bytes += report.state_bytes;
        found.flops += report.flops;
    }
    status = status == MUONIUM_OK ? mu_schedule_describe(optimizer, &found) : status;
    mu_fenv_leave(environment);
    if (status == MUONIUM_OK) {
        mu_sized_write(counters, size, &found, sizeof found);
    }
    return status;
}

muonium_status muonium_certificates_sized(const muonium_optimizer *optimizer, size_t parameter,
                                          muonium_certificate *certificates, size_t size,
                                          size_t capacity, size_t *count)
{
    mu_parameter *p = NULL;
    muonium_status status = mu_parameter_at(optimizer, parameter, &p);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!count || (!certificates && capacity > 0)) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", count ? "certificates" : "count");
    }
    size_t there = p->certified ? p->matrices.count : 0;
    for (size_t i = 0; i < there && i < capacity; i++) {
        mu_sized_write((char *)certificates + i * size, size, &p->certificates[i],
                       sizeof p->certificates[i]);
    }
    *count = there;
    return MUONIUM_OK;
}
