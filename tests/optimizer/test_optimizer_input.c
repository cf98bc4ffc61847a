/*
 * test_optimizer_input.c: what the optimizer refuses, and that a refusal changes nothing:
 * not one byte of a parameter, of state, or of what later steps do.
 */
#include "test.h"

#include <math.h>

#include "optimizer_model.h"

/* ---- an optimizer with some history ---- */

typedef struct fixture {
    model m;
    muonium_optimizer *optimizer;
} fixture;

static fixture begin(const muonium_options *options)
{
    fixture f = {.m = model_new()};
    f.optimizer = model_optimizer(&f.m, options);
    assert_ok(muonium_step(f.optimizer));
    model_set_grads(&f.m, 2);
    return f;
}

static void end(fixture *f)
{
    muonium_destroy(f->optimizer);
    model_free(&f->m);
}

/* What it still does is what one does that was never tried. */
static void assert_goes_on(fixture *f, const muonium_options *options, const char *what)
{
    fixture other = begin(options);
    assert_ok(muonium_step(f->optimizer));
    assert_ok(muonium_step(other.optimizer));
    model_assert_equal(&f->m, &other.m, what);
    end(&other);
}

/* ---- tensors ---- */

static float spare[1024];

/* A good tensor; each case of the test below differs from it where it says so. */
static muonium_tensor good_tensor(void)
{
    muonium_tensor tensor = {
        .name = "new", .ndim = 2, .shape = {8, 16}, .data = spare, .grad = spare + 512};
    return tensor;
}

static void refuse(fixture *f, const char *message, muonium_tensor given)
{
    const muonium_tensor good = good_tensor();
    given.name = given.name ? given.name : good.name;
    if (given.ndim == 0) {
        given.ndim = good.ndim;
        memcpy(given.shape, good.shape, sizeof good.shape);
    }
    given.data = given.data ? given.data : good.data;
    given.grad = given.grad ? given.grad : good.grad;
    snapshot before = snapshot_of(f->optimizer);
    assert_status_message(muonium_add(f->optimizer, &given, NULL), MUONIUM_INVALID, message);
    snapshot_assert_same(&before, f->optimizer);
}

#define STRIDES(...) ((const ptrdiff_t[]){__VA_ARGS__})
#define TENSOR(...) ((muonium_tensor){__VA_ARGS__})

static void refuse_memory(fixture *f)
{
    float *const *data = (float *const *)f->m.data, *const *grads = (float *const *)f->m.grads;
    muonium_tensor no_data = good_tensor(), again = model_tensor(&f->m, 0);
    no_data.data = NULL;
    assert_status_message(muonium_add(f->optimizer, &no_data, NULL), MUONIUM_INVALID,
                          "data of new is NULL");
    again.name = "again";
    refuse(f, "data of again overlaps data of wide", again);
    refuse(f, "the name qkv is taken by parameter 8", TENSOR(.name = "qkv"));
    refuse(f, "data of new overlaps data of wide", TENSOR(.data = data[0] + model_elements(0) - 1));
    refuse(f, "data of new overlaps data of vector", TENSOR(.data = data[12] + 1000));
    refuse(f, "data of new overlaps data of wide",
           TENSOR(.ndim = 1, .shape = {model_elements(0) + 2}, .data = data[0] - 1));
    refuse(f, "memory of new overlaps data or grad of long", TENSOR(.data = grads[2]));
    refuse(f, "memory of new overlaps data or grad of long", TENSOR(.grad = data[2]));
    refuse(f, "data and grad of new overlap", TENSOR(.grad = spare + 127));
    refuse(f, "data and grad of new overlap",
           TENSOR(.grad = spare + 200, .grad_strides = STRIDES(16, -10)));
    refuse(f, "data of new is at", TENSOR(.data = (char *)spare + 2));
    refuse(f, "grad of new is at", TENSOR(.dtype = MUONIUM_BF16, .grad = (char *)spare + 513));
    refuse(f, "grad of new is at",
           TENSOR(.dtype = MUONIUM_BF16, .f32_grad = true, .grad = (char *)spare + 514));
    refuse(f, "strides of new", TENSOR(.strides = STRIDES(15, 1)));
    refuse(f, "strides of new", TENSOR(.strides = STRIDES(0, 1)));
    refuse(f, "strides of new", TENSOR(.strides = STRIDES(1, 0)));
    refuse(f, "strides of new", TENSOR(.strides = STRIDES(0, 0)));
    refuse(f, "address space", TENSOR(.strides = STRIDES(PTRDIFF_MAX / 8, 1)));
    refuse(f, "address space", TENSOR(.grad_strides = STRIDES(PTRDIFF_MIN, 1)));
}

static void refuse_shapes(fixture *f)
{
    static const size_t splits[] = {3, 4, 2};
    refuse(f, "dtype of new is 1", TENSOR(.dtype = MUONIUM_F64));
    refuse(f, "dtype of new is 77", TENSOR(.dtype = (muonium_dtype)77));
    refuse(f, "ndim of new is 9", TENSOR(.ndim = MUONIUM_MAX_DIMS + 1));
    /* Beside an extent of 0 the others must fit too. */
    refuse(f, "address space", TENSOR(.ndim = 3, .shape = {0, SIZE_MAX / 2, SIZE_MAX / 2}));
    refuse(f, "address space", TENSOR(.ndim = 2, .shape = {SIZE_MAX / 2, SIZE_MAX / 2}));
    /* 0 modulo 2^64; and elements that fit, but not their bytes. */
    refuse(f, "address space", TENSOR(.ndim = 2, .shape = {(size_t)1 << 32, (size_t)1 << 32}));
    refuse(f, "address space", TENSOR(.ndim = 2, .shape = {(size_t)1 << 31, (size_t)1 << 30}));
    refuse(f, "route of new is 3", TENSOR(.route = (muonium_route)3));
    refuse(f, "route of new", TENSOR(.ndim = 1, .shape = {8}, .route = MUONIUM_ROUTE_MUON));
    refuse(f, "layout of new is 5", TENSOR(.layout = (muonium_layout)5));
    refuse(f, "ndim of new is 2", TENSOR(.layout = MUONIUM_LAYOUT_SPATIAL));
    refuse(f, "out_axes of new is 0", TENSOR(.layout = MUONIUM_LAYOUT_FAN));
    refuse(f, "in_axes of new is 0x4",
           TENSOR(.layout = MUONIUM_LAYOUT_FAN, .out_axes = 1, .in_axes = 4));
    refuse(f, "row_splits of new add up to 7", TENSOR(.row_splits = splits, .row_split_count = 2));
    refuse(f, "row_splits[2] of new is 2", TENSOR(.row_splits = splits, .row_split_count = 3));
    refuse(f, "row_split_count of new is 1099511627776",
           TENSOR(.row_splits = splits, .row_split_count = (size_t)1 << 40));
    refuse(f, "row_split_count of new is 2", TENSOR(.row_split_count = 2));
    refuse(f, "heads of new is 3", TENSOR(.heads = 3));
    refuse(f, "heads of new is 2", TENSOR(.heads = 2, .row_splits = splits, .row_split_count = 3));
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    muonium_options options = model_options();
    fixture f = begin(&options);
    refuse_memory(&f);
    refuse_shapes(&f);
    assert_goes_on(&f, &options, "after refused tensors");
    muonium_tensor tensor = good_tensor();
    assert_ok(muonium_add(f.optimizer, &tensor, NULL));
    end(&f);
}

/* A name that is made up may be taken, too. */
static void unnamed_parameters_collide_with_names(void **state)
{
    (void)state;
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(NULL, &optimizer));
    muonium_tensor tensor = good_tensor();
    tensor.name = "parameter 1";
    tensor.grad = NULL;
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    tensor.name = NULL;
    tensor.data = spare + 512;
    assert_status_message(muonium_add(optimizer, &tensor, NULL), MUONIUM_INVALID,
                          "the name parameter 1 is taken");
    muonium_destroy(optimizer);
}

/* The optimizer keeps its own description: what the caller does to his changes nothing. */
static void shapes_cannot_change(void **state)
{
    (void)state;
    muonium_options options = model_options();
    fixture f = {.m = model_new()};
    assert_ok(muonium_create(&options, &f.optimizer));
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        muonium_tensor tensor = model_tensor(&f.m, i);
        char name[32];
        size_t rows[3] = {0};
        snprintf(name, sizeof name, "%s", tensor.name);
        tensor.name = name;
        if (tensor.row_splits) {
            memcpy(rows, tensor.row_splits, sizeof rows);
            tensor.row_splits = rows;
        }
        assert_ok(muonium_add(f.optimizer, &tensor, NULL));
        memset(&tensor, 0x55, sizeof tensor);
        memset(name, 'x', sizeof name - 1);
        memset(rows, 0x55, sizeof rows);
    }
    memset(&options, 0x55, sizeof options);
    assert_ok(muonium_step(f.optimizer));
    model_set_grads(&f.m, 2);
    options = model_options();
    assert_goes_on(&f, &options, "after changing the descriptions");
    end(&f);
}

/* ---- options ---- */

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *message;
        size_t field;
        double value;
    } cases[] = {
        {"lr is -1", offsetof(muonium_options, lr), -1},
        {"lr is NaN", offsetof(muonium_options, lr), NAN},
        {"weight_decay is -0.5", offsetof(muonium_options, weight_decay), -0.5},
        {"momentum is 1", offsetof(muonium_options, momentum), 1},
        {"momentum is -0.1", offsetof(muonium_options, momentum), -0.1},
        {"scale_factor is inf", offsetof(muonium_options, scale_factor), INFINITY},
        {"normuon_beta2 is 1", offsetof(muonium_options, normuon_beta2), 1},
        {"normuon_eps is -1", offsetof(muonium_options, normuon_eps), -1},
        {"eps is -1e-09", offsetof(muonium_options, plan.eps), -1e-9},
        {"safety_factor is 0", offsetof(muonium_options, plan.safety_factor), 0},
        {"adam_beta1 is 1", offsetof(muonium_options, adam_beta1), 1},
        {"adam_beta2 is -1", offsetof(muonium_options, adam_beta2), -1},
        {"adam_lr_scale is -1", offsetof(muonium_options, adam_lr_scale), -1},
        {"max_aspect is 0.5", offsetof(muonium_options, max_aspect), 0.5},
    };
    muonium_options good = model_options();
    fixture f = begin(&good);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        muonium_options options = model_options();
        memcpy((char *)&options + cases[c].field, &cases[c].value, sizeof(double));
        muonium_optimizer *untouched = (muonium_optimizer *)(void *)spare;
        muonium_group *no_group = (muonium_group *)(void *)spare;
        snapshot before = snapshot_of(f.optimizer);
        assert_status_message(muonium_create(&options, &untouched), MUONIUM_INVALID,
                              cases[c].message);
        assert_status_message(muonium_add_group(f.optimizer, &options, &no_group), MUONIUM_INVALID,
                              cases[c].message);
        assert_ptr_equal(untouched, spare);
        assert_ptr_equal(no_group, spare);
        snapshot_assert_same(&before, f.optimizer);
    }
    muonium_options options = model_options();
    muonium_optimizer *none;
    options.plan.steps = 0;
    assert_status_message(muonium_create(&options, &none), MUONIUM_INVALID, "steps is 0");
    options = model_options();
    options.plan.coefficients = "no such table";
    assert_status_message(muonium_create(&options, &none), MUONIUM_INVALID, "no such table");
    options = model_options();
    options.struct_size = 0;
    assert_status_message(muonium_create(&options, &none), MUONIUM_INVALID, "struct_size");
    assert_status_message(muonium_options_init(&options, "adam"), MUONIUM_INVALID, "moonlight");
    end(&f);
}

/* ---- what is missing, or belongs to another ---- */

static double loss_of_nothing(void *context)
{
    (void)context;
    return 0;
}

static void missing_arguments_are_refused(void **state)
{
    (void)state;
    muonium_options options = model_options();
    fixture f = begin(&options);
    muonium_optimizer *o = f.optimizer;
    muonium_group *group;
    muonium_tensor tensor = good_tensor();
    muonium_counters counters;
    muonium_parameter_report report;
    muonium_certificate certificate;
    size_t number;
    double norm;
    snapshot before = snapshot_of(o);
    const muonium_status statuses[] = {
        muonium_create(NULL, NULL),
        muonium_options_init(NULL, NULL),
        muonium_add_group(NULL, NULL, &group),
        muonium_add_group(o, NULL, NULL),
        muonium_add(NULL, &tensor, NULL),
        muonium_add(o, NULL, NULL),
        muonium_find(NULL, "wide", &number),
        muonium_find(o, NULL, &number),
        muonium_find(o, "wide", NULL),
        muonium_find(o, "narrow", &number),
        muonium_set_data(NULL, 0, spare),
        muonium_set_data(o, 0, NULL),
        muonium_set_data(o, MODEL_COUNT, spare),
        muonium_set_grad(NULL, 0, spare),
        muonium_set_grad(o, MODEL_COUNT, spare),
        muonium_set_lr(NULL, NULL, 1),
        muonium_set_weight_decay(NULL, NULL, 1),
        muonium_set_momentum(NULL, NULL, 0.5),
        muonium_step(NULL),
        muonium_step_with(NULL, loss_of_nothing, NULL, NULL),
        muonium_step_with(o, NULL, NULL, NULL),
        muonium_grad_norm(NULL, false, &norm),
        muonium_grad_norm(o, false, NULL),
        muonium_clip_grads(NULL, 1, false, NULL, NULL),
        muonium_zero_grads(NULL),
        muonium_qk_clip(NULL, &(muonium_qk){.heads = 1}, NULL),
        muonium_report(NULL, 0, &report),
        muonium_report(o, 0, NULL),
        muonium_report(o, MODEL_COUNT, &report),
        muonium_count(NULL, &counters),
        muonium_count(o, NULL),
        muonium_certificates(NULL, 0, &certificate, 1, &number),
        muonium_certificates(o, 0, NULL, 1, &number),
        muonium_certificates(o, 0, &certificate, 1, NULL),
    };
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i] != MUONIUM_INVALID) {
            print_error("call %zu gave %s\n", i, muonium_status_name(statuses[i]));
            fail();
        }
    }
    assert_int_equal(muonium_parameter_count(NULL), 0);
    muonium_destroy(NULL);
    snapshot_assert_same(&before, o);
    assert_goes_on(&f, &options, "after missing arguments");
    end(&f);
}

static void groups_of_others_are_refused(void **state)
{
    (void)state;
    muonium_options options = model_options();
    fixture f = begin(&options), g = begin(&options);
    muonium_group *group;
    assert_ok(muonium_add_group(g.optimizer, NULL, &group));
    muonium_tensor tensor = good_tensor();
    snapshot before = snapshot_of(f.optimizer);
    const char message[] = "belongs to another optimizer";
    assert_status_message(muonium_add(f.optimizer, &tensor, group), MUONIUM_INVALID, message);
    assert_status_message(muonium_set_lr(f.optimizer, group, 1), MUONIUM_INVALID, message);
    assert_status_message(muonium_set_weight_decay(f.optimizer, group, 1), MUONIUM_INVALID,
                          message);
    assert_status_message(muonium_set_momentum(f.optimizer, group, 0.5), MUONIUM_INVALID, message);
    snapshot_assert_same(&before, f.optimizer);
    end(&f);
    end(&g);
}

static void an_optimizer_of_nothing_does_not_step(void **state)
{
    (void)state;
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(NULL, &optimizer));
    assert_status_message(muonium_step(optimizer), MUONIUM_INVALID, "no parameters");
    muonium_counters counters;
    assert_ok(muonium_count(optimizer, &counters));
    assert_int_equal(counters.steps, 0);
    double norm = -1;
    assert_ok(muonium_grad_norm(optimizer, false, &norm));
    assert_true(norm == 0);
    muonium_destroy(optimizer);
}

/* ---- places that change ---- */

static void bad_places_are_refused(void **state)
{
    (void)state;
    muonium_options options = model_options();
    fixture f = begin(&options);
    snapshot before = snapshot_of(f.optimizer);
    assert_status_message(muonium_set_data(f.optimizer, 0, f.m.data[1]), MUONIUM_INVALID,
                          "data of wide overlaps data of tall");
    assert_status_message(muonium_set_data(f.optimizer, 0, f.m.grads[0]), MUONIUM_INVALID,
                          "data and grad of wide overlap");
    assert_status_message(muonium_set_data(f.optimizer, 0, (char *)spare + 1), MUONIUM_INVALID,
                          "data of wide is at");
    assert_status_message(muonium_set_grad(f.optimizer, 3, f.m.data[8]), MUONIUM_INVALID,
                          "overlaps data or grad of qkv");
    assert_status_message(muonium_set_grad(f.optimizer, 0, (char *)spare + 2), MUONIUM_INVALID,
                          "grad of wide is at");
    snapshot_assert_same(&before, f.optimizer);
    assert_goes_on(&f, &options, "after refused places");
    /* What a parameter has left is free for another. */
    assert_ok(muonium_set_data(f.optimizer, 0, spare));
    assert_ok(muonium_set_data(f.optimizer, 1, f.m.data[0]));
    assert_ok(muonium_set_data(f.optimizer, 0, f.m.data[1]));
    assert_ok(muonium_step(f.optimizer));
    end(&f);
}

/* ---- gradients that are not finite ---- */

static void put_bad(void *grads, muonium_dtype dtype, size_t i, int kind)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    put_element(grads, dtype, i, values[kind]);
}

/* The index as the message has it. */
static void index_text(size_t parameter, size_t element, char text[64])
{
    const model_spec *spec = &model_specs[parameter];
    size_t places[4] = {0}, used = 0;
    for (size_t d = spec->ndim; d-- > 0;) {
        places[d] = element % spec->shape[d];
        element /= spec->shape[d];
    }
    used += (size_t)snprintf(text, 64, "(");
    for (size_t d = 0; d < spec->ndim; d++) {
        used += (size_t)snprintf(text + used, 64 - used, "%s%zu", d ? ", " : "", places[d]);
    }
    snprintf(text + used, 64 - used, ")");
}

static void nonfinite_gradients_are_an_error(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("nonfinite");
    for (int variant = 0; variant < 2; variant++) {
        muonium_options options = model_options();
        options.master = options.normuon = variant == 1;
        options.state_dtype = variant == 1 ? MUONIUM_BF16 : MUONIUM_F32;
        fixture f = begin(&options);
        for (size_t p = 0; p < MODEL_COUNT; p++) {
            size_t n = model_elements(p), middle = test_below(&rng, n);
            const size_t elements[] = {0, n - 1, middle, n > 32768 ? 32768 : n / 2};
            for (size_t e = 0; e < 4; e++) {
                put_bad(f.m.grads[p], model_specs[p].dtype, elements[e], (int)test_below(&rng, 3));
                put_bad(f.m.grads[p], model_specs[p].dtype, n - 1, (int)test_below(&rng, 3));
                char place[64], part[128];
                index_text(p, elements[e], place);
                snapshot before = snapshot_of(f.optimizer);
                assert_status_message(muonium_step(f.optimizer), MUONIUM_NON_FINITE, place);
                snprintf(part, sizeof part, "grad of %s is ", model_specs[p].name);
                assert_non_null(strstr(muonium_last_error(), part));
                snapshot_assert_same(&before, f.optimizer);
                model_fill(f.m.grads[p], p, "grad", 2);
            }
        }
        /* Of several the first parameter is named. */
        put_bad(f.m.grads[9], model_specs[9].dtype, 3, 0);
        put_bad(f.m.grads[13], model_specs[13].dtype, 3, 1);
        assert_status_message(muonium_step(f.optimizer), MUONIUM_NON_FINITE, "heads");
        model_set_grads(&f.m, 2);
        assert_goes_on(&f, &options, "after errors");
        end(&f);
    }
}

/* Also where the gradient is f32 and the parameter is not, and for strides. */
static void nonfinite_gradients_are_found_in_any_memory(void **state)
{
    (void)state;
    static uint16_t data[8 * 16];
    static float grads[3 * 8 * 16];
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(NULL, &optimizer));
    muonium_tensor tensor = {.name = "odd",
                             .dtype = MUONIUM_F16,
                             .ndim = 2,
                             .shape = {8, 16},
                             .data = data,
                             .grad = grads + 2 * 8 * 16,
                             .f32_grad = true,
                             .grad_strides = STRIDES(2, -16)};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    /* Between the elements anything may stand. */
    for (size_t i = 0; i < 3 * 8 * 16; i++) {
        grads[i] = i % 2 == 0 ? 1.0f : NAN;
    }
    assert_ok(muonium_step(optimizer));
    grads[2 * 8 * 16 + 2 * 5 - 16 * 7] = -INFINITY;
    assert_status_message(muonium_step(optimizer), MUONIUM_NON_FINITE,
                          "grad of odd is -inf at (5, 7)");
    muonium_destroy(optimizer);
}

/* Under skip nothing of that parameter changes, and all of the others does. */
static void nonfinite_gradients_are_skipped(void **state)
{
    (void)state;
    muonium_options options = model_options();
    options.plan.nonfinite = MUONIUM_NONFINITE_SKIP;
    options.normuon = true;
    fixture f = begin(&options), g = begin(&options);
    for (size_t p = 0; p < MODEL_COUNT; p += 2) {
        put_bad(f.m.grads[p], model_specs[p].dtype, model_elements(p) / 2, (int)(p / 2 % 3));
        assert_ok(muonium_set_grad(g.optimizer, p, NULL));
    }
    assert_ok(muonium_step(f.optimizer));
    assert_ok(muonium_step(g.optimizer)); /* the same as no gradient */
    model_assert_equal(&f.m, &g.m, "skipped");
    assert_int_equal(f.optimizer->counters.skipped, (MODEL_COUNT + 1) / 2);
    model_set_grads(&f.m, 3);
    model_set_grads(&g.m, 3);
    for (size_t p = 0; p < MODEL_COUNT; p++) {
        assert_int_equal(f.optimizer->parameters[p]->steps, p % 2 == 0 ? 1 : 2);
        assert_ok(muonium_set_grad(g.optimizer, p, g.m.grads[p]));
    }
    assert_ok(muonium_step(f.optimizer));
    assert_ok(muonium_step(g.optimizer));
    model_assert_equal(&f.m, &g.m, "after skipping");
    end(&f);
    end(&g);
}

static void keep_line(void *context, const char *line)
{
    strncpy(context, line, 255);
}

/* What is written to the momentum behind the library's back is noticed when it is used: the
 * matrix is left alone, counted and named, and its running means stay sound. */
static void bad_momentum_is_skipped(void **state)
{
    (void)state;
    static float w[8 * 8], g[8 * 8];
    char said[256] = "";
    muonium_options options = model_options();
    options.normuon = true;
    options.log = keep_line;
    options.log_context = said;
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(&options, &optimizer));
    muonium_tensor tensor = {.name = "w", .ndim = 2, .shape = {8, 8}, .data = w, .grad = g};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    muonium_state own;
    assert_ok(muonium_state_of(optimizer, 0, &own));
    for (size_t i = 0; i < 64; i++) {
        g[i] = i % 9 == 0 ? 1 : 0;
    }
    assert_ok(muonium_step(optimizer));
    memset(w, 0, sizeof w);
    ((float *)own.momentum)[5] = INFINITY;
    assert_ok(muonium_step(optimizer));
    assert_string_equal(said, "matrix 0 of w was left as it is: its momentum is not finite");
    muonium_certificate certificate;
    size_t count;
    assert_ok(muonium_certificates(optimizer, 0, &certificate, 1, &count));
    assert_int_equal(certificate.outcome, MUONIUM_SKIPPED);
    assert_int_equal(optimizer->counters.skipped, 1);
    for (size_t i = 0; i < 64; i++) {
        assert_true(w[i] == 0);
    }
    ((float *)own.momentum)[5] = 0;
    assert_ok(muonium_step(optimizer));
    assert_int_equal(optimizer->counters.matrices, 2);
    for (size_t i = 0; i < 64; i++) {
        assert_true(isfinite(w[i]));
    }
    muonium_destroy(optimizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(unnamed_parameters_collide_with_names),
        cmocka_unit_test(shapes_cannot_change),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(groups_of_others_are_refused),
        cmocka_unit_test(an_optimizer_of_nothing_does_not_step),
        cmocka_unit_test(bad_places_are_refused),
        cmocka_unit_test(nonfinite_gradients_are_an_error),
        cmocka_unit_test(nonfinite_gradients_are_found_in_any_memory),
        cmocka_unit_test(nonfinite_gradients_are_skipped),
        cmocka_unit_test(bad_momentum_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
