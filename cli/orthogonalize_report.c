/*
 * orthogonalize_report.c: plan and certificates as text and as JSON.
 */
#include "orthogonalize_report.h"

#include <math.h>

#include "json.h"
#include "text.h"
#include "units.h"

enum { LISTED_MOST = 16 }; /* more matrices are summarised */

static const char *const outcome_names[] = {"orthogonalized", "zero", "skipped", "propagated",
                                            "diverged"};
enum { OUTCOMES = sizeof outcome_names / sizeof outcome_names[0] };

static const char *outcome_name(muonium_outcome outcome)
{
    return (unsigned)outcome < OUTCOMES ? outcome_names[outcome] : "unknown";
}

/* The position of matrix number `matrix` in the leading dimensions. */
static void batch_index(const npy_array *array, size_t matrix, size_t index[NPY_MAX_DIMS])
{
    size_t leading = array->dims - 2;
    for (size_t k = 0; k < leading; k++) {
        size_t d = array->fortran_order ? k : leading - 1 - k; /* fastest first */
        index[d] = matrix % array->shape[d];
        matrix /= array->shape[d];
    }
}

/* "[2, 0]"; "" where there is a single matrix without leading dimensions. */
static void format_index(const npy_array *array, size_t matrix, char *text, size_t size)
{
    size_t index[NPY_MAX_DIMS], used = 0;
    batch_index(array, matrix, index);
    text[0] = 0;
    for (size_t d = 0; d + 2 < array->dims && used < size; d++) {
        used += (size_t)snprintf(text + used, size - used, "%s%zu%s", d > 0 ? ", " : "[", index[d],
                                 d + 3 == array->dims ? "]" : "");
    }
}

/* "0.878 to 1.12", or "within 2e-06 of 1" where all of these would be 1. */
static void print_range(double low, double high)
{
    double off = fmax(fabs(low - 1), fabs(high - 1));
    if (off < 0.01) {
        printf("within %.2g of 1", off);
    } else {
        printf("%.3f to %.3f", low, high);
    }
}

static void print_plan(const muonium_plan_info *plan)
{
    printf("plan: %s form in %s, ", muonium_enum_name("muonium_form", (int)plan->form),
           muonium_enum_name("muonium_dtype", (int)plan->precision));
    if (plan->direct_set) {
        printf("set %s", plan->direct_set);
    } else {
        printf("%d iteration%s", plan->steps, plan->steps == 1 ? "" : "s");
    }
    for (int i = 0; i < plan->restarts; i++) {
        printf("%s%d", i == 0 ? ", restart before iteration " : " and ", plan->restart[i] + 1);
    }
    unit_text flops = units_flops(plan->flops), workspace = units_bytes(plan->workspace);
    printf(", %s per matrix, workspace %s\n", flops.text, workspace.text);
    printf("expected singular values: ");
    print_range(fmax(1 - plan->band, 0), 1 + plan->band);
    printf(", from those of the input that are at least 0.001 of its divisor\n");
}

static void print_certificate(const char *index, const muonium_certificate *c)
{
    printf("certificate%s%s: %s", *index != 0 ? " " : "", index, outcome_name(c->outcome));
    if (c->outcome == MUONIUM_ORTHOGONALIZED) {
        printf(", divided by %.6g, measured singular values ", c->divisor);
        print_range(c->sigma_min, c->sigma_max);
        printf(", |Y Y^T - I| = %.3g", c->orthogonality_error);
        if (c->rescued > 0) {
            printf(", rescued %d time%s", c->rescued, c->rescued == 1 ? "" : "s");
        }
    }
    printf("\n");
}

static void print_summary(const orthogonalize_report *report)
{
    size_t counts[OUTCOMES] = {0}, worst = 0, rescued = 0;
    double worst_bound = -1;
    for (size_t i = 0; i < report->shape.batch; i++) {
        const muonium_certificate *c = &report->certificates[i];
        if ((unsigned)c->outcome < OUTCOMES) {
            counts[c->outcome]++;
        }
        rescued += c->rescued > 0;
        /* A bound that is not a number is worse than any. */
        bool worse = isnan(c->bound) || c->bound > worst_bound;
        if (c->outcome == MUONIUM_ORTHOGONALIZED && worse && !isnan(worst_bound)) {
            worst = i;
            worst_bound = c->bound;
        }
    }
    printf("certificates: %zu matrices", report->shape.batch);
    for (size_t k = 0; k < OUTCOMES; k++) {
        if (counts[k] > 0) {
            printf(", %zu %s", counts[k], outcome_names[k]);
        }
    }
    if (rescued > 0) {
        printf(", %zu rescued", rescued);
    }
    printf("\n");
    if (counts[MUONIUM_ORTHOGONALIZED] > 0) {
        char index[256];
        format_index(report->array, worst, index, sizeof index);
        printf("the worst is\n");
        print_certificate(index, &report->certificates[worst]);
    }
}

void orthogonalize_report_print_result(const orthogonalize_report *report)
{
    print_plan(report->plan);
    if (report->shape.batch > LISTED_MOST) {
        print_summary(report);
    } else {
        for (size_t i = 0; i < report->shape.batch; i++) {
            char index[256];
            format_index(report->array, i, index, sizeof index);
            print_certificate(index, &report->certificates[i]);
        }
    }
}

void orthogonalize_report_print(const orthogonalize_report *report)
{
    char shape[256];
    npy_format_shape(report->array, shape, sizeof shape);
    text_line(stdout, "%s: %s %s%s", report->in, npy_dtype_name(report->array->dtype), shape,
              report->array->fortran_order ? ", Fortran order" : "");
    orthogonalize_report_print_result(report);
    text_line(stdout, "wrote %s", report->out);
}

static void write_plan(json *writer, const muonium_plan_info *plan)
{
    json_object(writer, "plan");
    json_string(writer, "form", muonium_enum_name("muonium_form", (int)plan->form));
    json_string(writer, "precision", muonium_enum_name("muonium_dtype", (int)plan->precision));
    json_string(writer, "direct_set", plan->direct_set);
    json_number(writer, "band", plan->band);
    json_integer(writer, "steps", plan->steps);
    json_array(writer, "restarts");
    for (int i = 0; i < plan->restarts; i++) {
        json_integer(writer, NULL, plan->restart[i]);
    }
    json_array_end(writer);
    json_number(writer, "flops", plan->flops);
    json_integer(writer, "workspace", (long long)plan->workspace);
    json_array(writer, "coefficients");
    for (int i = 0; i < plan->steps; i++) {
        json_numbers(writer, NULL, plan->table[i], 3);
    }
    json_array_end(writer);
    json_object_end(writer);
}

static void write_certificate(json *writer, const npy_array *array, size_t matrix,
                              const muonium_certificate *c)
{
    size_t index[NPY_MAX_DIMS];
    batch_index(array, matrix, index);
    json_object(writer, NULL);
    json_array(writer, "index");
    for (size_t d = 0; d + 2 < array->dims; d++) {
        json_integer(writer, NULL, (long long)index[d]);
    }
    json_array_end(writer);
    json_string(writer, "outcome", outcome_name(c->outcome));
    json_integer(writer, "rescued", c->rescued);
    json_number(writer, "divisor", c->divisor);
    json_number(writer, "deviation", c->deviation);
    json_number(writer, "bound", c->bound);
    json_number(writer, "orthogonality_error", c->orthogonality_error);
    json_number(writer, "sigma_min", c->sigma_min);
    json_number(writer, "sigma_max", c->sigma_max);
    json_object_end(writer);
}

void orthogonalize_report_write_result(json *writer, const orthogonalize_report *report)
{
    const npy_array *array = report->array;
    json_array(writer, "shape");
    for (size_t d = 0; d < array->dims; d++) {
        json_integer(writer, NULL, (long long)array->shape[d]);
    }
    json_array_end(writer);
    write_plan(writer, report->plan);
    json_array(writer, "certificates");
    for (size_t i = 0; i < report->shape.batch; i++) {
        write_certificate(writer, array, i, &report->certificates[i]);
    }
    json_array_end(writer);
}

void orthogonalize_report_json(const orthogonalize_report *report)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "input", report->in);
    json_string(&writer, "output", report->out);
    json_string(&writer, "dtype", npy_dtype_name(report->array->dtype));
    json_bool(&writer, "fortran_order", report->array->fortran_order);
    orthogonalize_report_write_result(&writer, report);
    json_object_end(&writer);
}
