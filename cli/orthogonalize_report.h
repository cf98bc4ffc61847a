/*
 * orthogonalize_report.h: what muonium orthogonalize says about its result.
 */
#ifndef CLI_ORTHOGONALIZE_REPORT_H
#define CLI_ORTHOGONALIZE_REPORT_H

#include <muonium.h>

#include "json.h"
#include "npy.h"

typedef struct orthogonalize_report {
    const char *in, *out;
    const npy_array *array;
    muonium_shape shape;
    const muonium_plan_info *plan;
    const muonium_certificate *certificates; /* one per matrix */
} orthogonalize_report;

/* Of the result alone: plan and certificates; and the shape, in JSON. */
void orthogonalize_report_print_result(const orthogonalize_report *report);
void orthogonalize_report_write_result(json *writer, const orthogonalize_report *report);

/* For people: few matrices one by one, many in summary. */
void orthogonalize_report_print(const orthogonalize_report *report);

/* For programs: all of them. */
void orthogonalize_report_json(const orthogonalize_report *report);

#endif
