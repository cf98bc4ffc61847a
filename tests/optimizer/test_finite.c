/*
 * test_finite.c: finite gradients and weights give finite weights. Whatever the coefficients,
 * the precision, the form and the number of iterations, an orthogonalisation is finite and
 * bounded, or it is rescued, or its matrix is left alone and named; and what momentum, moments
 * and weights cannot hold is refused or stops at the largest number.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "base/half.h"
#include "optimizer/schedule.h"
#include "spectra.h"

static const char *const form_names[] = {"auto", "standard", "gram", "direct", "quintic"};
static const char *const type_names[] = {"f32", "f64", "bf16", "f16"};

/* ---- orthogonalisations ---- */

enum { MOST = 32 }; /* matrices of a batch */

typedef struct inputs {
    muonium_shape shape;
    const char *names[MOST];
    float *x, *y;
} inputs;

/* Every spectrum, and matrices of which rounding leaves the null space exactly null. */
static inputs draw_inputs(test_rng *rng, size_t rows, size_t cols)
{
    inputs in = {.shape = {0, rows, cols}};
    size_t elements = rows * cols;
    double *x = calloc(elements, sizeof *x);
    in.x = calloc(MOST * elements, sizeof *in.x);
    in.y = calloc(MOST * elements, sizeof *in.y);
    assert_true(x && in.x && in.y);
    for (const spectrum *kind = spectra; kind->fill; kind++) {
        spectra_draw(kind, rng, rows, cols, x);
        for (size_t i = 0; i < elements; i++) {
            in.x[in.shape.batch * elements + i] = (float)x[i];
        }
        in.names[in.shape.batch++] = kind->name;
    }
    static const char *const exact[] = {"ones", "one row", "one element", "two blocks of ones"};
    for (size_t k = 0; k < 4; k++) {
        float *to = in.x + in.shape.batch * elements;
        for (size_t i = 0; i < elements; i++) {
            size_t row = i / cols, col = i % cols;
            bool one = k == 0 || (k == 1 && row == 0) || (k == 2 && i == 0) ||
                       (k == 3 && (row < rows / 2) == (col < cols / 2));
            to[i] = one ? 1 : 0;
        }
        in.names[in.shape.batch++] = exact[k];
    }
    assert_true(in.shape.batch <= MOST);
    free(x);
    return in;
}

static void free_inputs(inputs *in)
{
    free(in->x);
    free(in->y);
}

typedef struct tally {
    size_t runs, rescued;
    double longest;
} tally;

/* The longest row of the m x n orientation, m <= n; NaN or infinite if an element is. */
static double longest_row(const float *y, size_t rows, size_t cols)
{
    double longest = 0;
    bool tall = rows > cols;
    for (size_t i = 0; i < (tall ? cols : rows); i++) {
        double sum = 0;
        for (size_t j = 0; j < (tall ? rows : cols); j++) {
            double value = tall ? y[j * cols + i] : y[i * cols + j];
            sum += value * value;
        }
        longest = sum <= longest ? longest : sum;
    }
    return sqrt(longest);
}

/* No preset takes a singular value in [0, 1] beyond 2, and the library promises rows no
 * longer than 1.1 times that. */
static void try_inputs(tally *all, const muonium_plan_options *options, const inputs *in)
{
    muonium_certificate certificates[MOST];
    muonium_view x = muonium_dense(MUONIUM_F32, in->shape, in->x);
    muonium_view y = muonium_dense(MUONIUM_F32, in->shape, in->y);
    assert_ok(muonium_orthogonalize(in->shape, options, &x, &y, certificates));
    for (size_t b = 0; b < in->shape.batch; b++) {
        const float *result = in->y + b * in->shape.rows * in->shape.cols;
        double longest = longest_row(result, in->shape.rows, in->shape.cols);
        if (!(longest <= 1.1 * 2) || certificates[b].outcome != MUONIUM_ORTHOGONALIZED) {
            fail_msg("%s, %d iterations, %s, %s, %zu x %zu, %s, safety factor %g: outcome %d, a "
                     "row of length %g",
                     options->coefficients ? options->coefficients : "generated", options->steps,
                     type_names[options->precision], form_names[options->form], in->shape.rows,
                     in->shape.cols, in->names[b], options->safety_factor,
                     (int)certificates[b].outcome, longest);
        }
        all->runs++;
        all->rescued += certificates[b].rescued > 0;
        all->longest = fmax(all->longest, longest);
    }
}

static const size_t shapes[][2] = {{8, 8}, {12, 31}, {37, 20}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void try_shape(tally *all, const muonium_plan_options *options, size_t s, test_rng *rng)
{
    inputs in = draw_inputs(rng, shapes[s][0], shapes[s][1]);
    try_inputs(all, options, &in);
    free_inputs(&in);
}

static void try_shapes(tally *all, const muonium_plan_options *options, test_rng *rng)
{
    for (size_t s = 0; s < SHAPES; s++) {
        try_shape(all, options, s, rng);
    }
}

static muonium_plan_options options_for(int preset, int steps, muonium_dtype precision,
                                        muonium_form form)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.coefficients = preset < 0 ? NULL : muonium_preset_name(preset);
    options.steps = steps;
    options.precision = precision;
    options.form = form;
    options.rounding = (muonium_rounding)((preset + steps + 1) % (MUONIUM_ROUNDING_FP16 + 1));
    if (options.coefficients && strcmp(options.coefficients, "aol") == 0) {
        options.normalization = MUONIUM_NORM_AOL;
    }
    return options;
}

/* Every preset, precision, form and number of iterations, each on one of the shapes. */
static void presets_give_finite_results(void **state)
{
#ifdef TEST_SANITIZED
    const int stride = 9;
#else
    const int stride = 1;
#endif
    test_rng rng = test_rng_start("finite");
    tally all = {0};
    size_t turn = 0;
    (void)state;
    for (int preset = -1; preset < 0 || muonium_preset_name(preset); preset++) {
        for (int precision = MUONIUM_F32; precision <= MUONIUM_FIXED15; precision++) {
            for (int form = MUONIUM_FORM_AUTO; form <= MUONIUM_FORM_GRAM; form++) {
                for (int steps = 1; steps <= MUONIUM_MAX_STEPS; steps += stride, turn++) {
                    muonium_plan_options options =
                        options_for(preset, steps, (muonium_dtype)precision, (muonium_form)form);
                    try_shape(&all, &options, turn % SHAPES, &rng);
                }
            }
        }
    }
    fprintf(stderr, "%zu orthogonalisations, %zu rescued, longest row %g\n", all.runs, all.rescued,
            all.longest);
    assert_true(all.rescued > 0);
}

static void direct_sets_give_finite_results(void **state)
{
    test_rng rng = test_rng_start("finite direct");
    tally all = {0};
    (void)state;
    for (int set = 0; muonium_direct_set_name(set); set++) {
        for (int precision = MUONIUM_F32; precision <= MUONIUM_FIXED15; precision++) {
            if (precision == MUONIUM_BF16 || precision == MUONIUM_F16) {
                continue;
            }
            muonium_plan_options options =
                options_for(-1, 5, (muonium_dtype)precision, MUONIUM_FORM_DIRECT);
            options.direct_set = muonium_direct_set_name(set);
            if (precision == MUONIUM_FIXED15 && strcmp(options.direct_set, "S12") == 0) {
                continue; /* refused: test_direct */
            }
            try_shapes(&all, &options, &rng);
        }
    }
    assert_true(all.runs > 0);
}

/* Factors below 1 leave singular values far above 1, where f16 overflows at once. */
static void small_safety_factors_give_finite_results(void **state)
{
    static const double factors[] = {0.9, 0.1, 1e-3, 1e-9, 1e-30};
    test_rng rng = test_rng_start("finite factors");
    tally all = {0};
    (void)state;
    for (int precision = MUONIUM_F32; precision <= MUONIUM_FIXED15; precision++) {
        for (int form = MUONIUM_FORM_STANDARD; form <= MUONIUM_FORM_GRAM; form++) {
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
                for (int norm = MUONIUM_NORM_FROBENIUS; norm <= MUONIUM_NORM_SPECTRAL; norm++) {
                    muonium_plan_options options =
                        options_for(-1, 5, (muonium_dtype)precision, (muonium_form)form);
                    options.safety_factor = factors[f];
                    options.normalization = (muonium_normalization)norm;
                    options.rounding = (muonium_rounding)f;
                    try_shapes(&all, &options, &rng);
                }
            }
        }
    }
    assert_true(all.rescued > 0);
}

/* A rescue from the caller's own array gives what it gives from another, bit for bit. */
static void rescues_work_in_place(void **state)
{
    test_rng rng = test_rng_start("finite in place");
    inputs in = draw_inputs(&rng, 12, 31);
    size_t bytes = in.shape.batch * 12 * 31 * sizeof(float);
    muonium_view x = muonium_dense(MUONIUM_F32, in.shape, in.x);
    muonium_view y = muonium_dense(MUONIUM_F32, in.shape, in.y);
    (void)state;
    for (int form = MUONIUM_FORM_STANDARD; form <= MUONIUM_FORM_GRAM; form++) {
        muonium_certificate certificates[MOST];
        int rescued = 0;
        float *copy = malloc(bytes);
        memcpy(copy, in.x, bytes);
        muonium_plan_options options = options_for(-1, 5, MUONIUM_F16, (muonium_form)form);
        options.safety_factor = 1e-3;
        assert_ok(muonium_orthogonalize(in.shape, &options, &x, &y, certificates));
        assert_ok(muonium_orthogonalize(in.shape, &options, &x, &x, NULL));
        assert_memory_equal(in.x, in.y, bytes);
        for (size_t b = 0; b < in.shape.batch; b++) {
            rescued += certificates[b].rescued > 0;
        }
        assert_true(rescued > 0);
        memcpy(in.x, copy, bytes);
        free(copy);
    }
    free_inputs(&in);
}

static void exploding_coefficients_are_refused(void **state)
{
    static const double tables[][1][3] = {{{100, 0, 0}}, {{2, 3, 4}}, {{1e300, -1e300, 1}}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        muonium_plan *plan;
        muonium_plan_options options;
        muonium_plan_options_init(&options);
        options.table = tables[i];
        options.table_rows = 1;
        assert_int_equal(muonium_plan_create((muonium_shape){1, 4, 4}, &options, &plan),
                         MUONIUM_INVALID);
        assert_non_null(strstr(muonium_last_error(), "the coefficients take singular values"));
    }
}

/* What cannot be had at all, forced here by a limit that no result keeps: zero, and said so. */
static void a_hopeless_matrix_is_named(void **state)
{
    float x[16], y[16] = {7};
    muonium_plan *plan;
    muonium_certificate certificate;
    muonium_shape shape = {1, 4, 4};
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x), out = in;
    out.data = y;
    (void)state;
    for (size_t i = 0; i < 16; i++) {
        x[i] = (float)(i % 5) - 1;
    }
    assert_ok(muonium_plan_create(shape, NULL, &plan));
    plan->limit = 1e-30;
    assert_ok(muonium_plan_execute(plan, &in, &out, NULL, &certificate));
    assert_int_equal(certificate.outcome, MUONIUM_DIVERGED);
    for (size_t i = 0; i < 16; i++) {
        assert_true(y[i] == 0);
    }
    muonium_plan_destroy(plan);
}

/* ---- whole steps ---- */

enum { ROWS = 24, COLS = 40, ELEMENTS = ROWS * COLS };

static void keep_line(void *context, const char *line)
{
    strncpy(context, line, 255);
}

typedef struct subject {
    muonium_optimizer *optimizer;
    float w[ELEMENTS], g[ELEMENTS];
    char said[256];
} subject;

static subject *begin(muonium_options *options)
{
    subject *s = calloc(1, sizeof *s);
    assert_non_null(s);
    options->log = keep_line;
    options->log_context = s->said;
    assert_ok(muonium_create(options, &s->optimizer));
    muonium_tensor tensor = {
        .name = "w", .ndim = 2, .shape = {ROWS, COLS}, .data = s->w, .grad = s->g};
    assert_ok(muonium_add(s->optimizer, &tensor, NULL));
    return s;
}

static void end(subject *s)
{
    muonium_destroy(s->optimizer);
    free(s);
}

static bool all_finite(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

/* The step overwrites its direction while it iterates: a rescue must find it again. */
static void steps_are_rescued(void **state)
{
    test_rng rng = test_rng_start("finite steps");
    uint64_t rescued = 0;
    (void)state;
    for (int round = 0; round < 60; round++) {
        muonium_options options;
        assert_ok(muonium_options_init(&options, NULL));
        options.plan.coefficients = "cans";
        options.plan.steps = 11;
        options.plan.precision = MUONIUM_BF16;
        options.plan.form = round % 2 ? MUONIUM_FORM_GRAM : MUONIUM_FORM_STANDARD;
        options.state_dtype = round % 3 ? MUONIUM_F32 : MUONIUM_BF16;
        options.normuon = round % 4 == 0;
        subject *s = begin(&options);
        for (int step = 0; step < 5; step++) {
            double x[ELEMENTS];
            size_t kinds = 0;
            while (spectra[kinds].fill) {
                kinds++;
            }
            spectra_draw(&spectra[test_below(&rng, kinds)], &rng, ROWS, COLS, x);
            for (size_t i = 0; i < ELEMENTS; i++) {
                s->g[i] = (float)x[i];
            }
            assert_ok(muonium_step(s->optimizer));
            assert_true(all_finite(s->w, ELEMENTS));
        }
        muonium_counters counters;
        assert_ok(muonium_count(s->optimizer, &counters));
        assert_int_equal(counters.matrices, 5);
        rescued += counters.rescued;
        end(s);
    }
    assert_true(rescued > 0);
}

/* A rescued step is the step of a plan that computes as its rescue does. */
static void a_rescued_step_is_the_careful_one(void **state)
{
    test_rng rng = test_rng_start("careful step");
    muonium_options options;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    options.weight_decay = 0;
    options.plan.form = MUONIUM_FORM_GRAM;
    options.plan.precision = MUONIUM_F16;
    options.plan.safety_factor = 1e-9; /* f16 cannot even hold the normalised matrix */
    subject *s = begin(&options);
    test_fill_normal_f32(&rng, s->g, ELEMENTS);
    assert_ok(muonium_step(s->optimizer));
    options.plan.form = MUONIUM_FORM_STANDARD;
    options.plan.precision = MUONIUM_F32;
    options.plan.safety_factor = 1;
    subject *t = begin(&options);
    memcpy(t->g, s->g, sizeof s->g);
    assert_ok(muonium_step(t->optimizer));
    muonium_certificate certificate;
    size_t count;
    assert_ok(muonium_certificates(s->optimizer, 0, &certificate, 1, &count));
    assert_int_equal(certificate.outcome, MUONIUM_ORTHOGONALIZED);
    assert_true(certificate.rescued > 0);
    assert_ok(muonium_certificates(t->optimizer, 0, &certificate, 1, &count));
    assert_int_equal(certificate.rescued, 0);
    double dot = 0, squares = 0, others = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        dot += (double)s->w[i] * (double)t->w[i];
        squares += (double)s->w[i] * (double)s->w[i];
        others += (double)t->w[i] * (double)t->w[i];
    }
    assert_true(dot > 0.999 * sqrt(squares * others));
    assert_true(fabs(sqrt(squares / others) - 1) < 0.05); /* it may have rescaled on its way */
    end(s);
    end(t);
}

static void a_hopeless_step_leaves_its_matrix(void **state)
{
    test_rng rng = test_rng_start("hopeless step");
    muonium_options options;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    subject *s = begin(&options);
    test_fill_normal_f32(&rng, s->g, ELEMENTS);
    assert_ok(muonium_step(s->optimizer));
    float before[ELEMENTS];
    memcpy(before, s->w, sizeof before);
    s->optimizer->schedule->classes[0].plan->limit = 1e-30;
    assert_ok(muonium_step(s->optimizer));
    assert_memory_equal(s->w, before, sizeof before);
    assert_string_equal(s->said, "matrix 0 of w was left as it is: its orthogonalisation diverged");
    assert_int_equal(s->optimizer->counters.skipped, 1);
    assert_int_equal(s->optimizer->counters.matrices, 1);
    end(s);
}

/* ---- momentum ---- */

static muonium_options summing(muonium_nonfinite policy, muonium_dtype state)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.momentum_form = MUONIUM_MOMENTUM_SUM;
    options.momentum = 0.9;
    options.plan.nonfinite = policy;
    options.state_dtype = state;
    return options;
}

/* 1e38 again and again: the third step leaves the range of f32. */
static void overflowing_momentum_follows_the_policy(void **state)
{
    static const muonium_dtype types[] = {MUONIUM_F32, MUONIUM_BF16};
    (void)state;
    for (int policy = MUONIUM_NONFINITE_ERROR; policy <= MUONIUM_NONFINITE_PROPAGATE; policy++) {
        for (size_t type = 0; type < 2; type++) {
            muonium_options options = summing((muonium_nonfinite)policy, types[type]);
            subject *s = begin(&options);
            for (size_t i = 0; i < ELEMENTS; i++) {
                s->g[i] = i == 57 ? 1e38f : 1;
            }
            assert_ok(muonium_step(s->optimizer));
            assert_ok(muonium_step(s->optimizer));
            assert_true(all_finite(s->w, ELEMENTS));
            muonium_state own;
            float w[ELEMENTS];
            size_t bytes = ELEMENTS * muonium_dtype_size(types[type]);
            char *momentum = malloc(bytes);
            assert_ok(muonium_state_of(s->optimizer, 0, &own));
            memcpy(momentum, own.momentum, bytes);
            memcpy(w, s->w, sizeof w);
            muonium_status status = muonium_step(s->optimizer);
            if (policy == MUONIUM_NONFINITE_PROPAGATE) {
                assert_int_equal(status, MUONIUM_OK);
                assert_false(all_finite(s->w, ELEMENTS));
            } else {
                bool error = policy == MUONIUM_NONFINITE_ERROR;
                assert_int_equal(status, error ? MUONIUM_NON_FINITE : MUONIUM_OK);
                if (error) {
                    assert_non_null(
                        strstr(muonium_last_error(), "direction of w would become inf at (1, 17)"));
                }
                assert_int_equal(s->optimizer->counters.skipped, error ? 0 : 1);
                assert_memory_equal(s->w, w, sizeof w);
                assert_memory_equal(own.momentum, momentum, bytes);
                s->g[57] = -1e38f; /* and back */
                assert_ok(muonium_step(s->optimizer));
                assert_true(all_finite(s->w, ELEMENTS));
                assert_int_equal(s->optimizer->parameters[0]->steps, 3);
            }
            free(momentum);
            end(s);
        }
    }
}

/* Large and moderate gradients by turns: what is known of the momentum must not go stale. */
static void momentum_is_examined_as_long_as_it_is_large(void **state)
{
    (void)state;
    muonium_options options = summing(MUONIUM_NONFINITE_ERROR, MUONIUM_F32);
    subject *s = begin(&options);
    s->g[0] = 1e38f;
    s->g[COLS + 1] = 1;
    assert_ok(muonium_set_momentum(s->optimizer, NULL, 0.8));
    assert_ok(muonium_step(s->optimizer)); /* M = 1e38 */
    assert_false(s->optimizer->parameters[0]->moderate);
    s->g[0] = 0;
    for (int step = 0; step < 400; step++) {
        assert_ok(muonium_step(s->optimizer));
    }
    assert_true(s->optimizer->parameters[0]->moderate);
    muonium_state own;
    assert_ok(muonium_state_of(s->optimizer, 0, &own));
    ((float *)own.momentum)[3] = 3.4e38f;
    s->g[3] = 3.4e38f;
    assert_int_equal(muonium_step(s->optimizer), MUONIUM_NON_FINITE);
    assert_non_null(strstr(muonium_last_error(), "momentum of w would become inf at (0, 3)"));
    end(s);
}

/* ---- moments and weights ---- */

/* Gradients whose squares overflow move a weight of AdamW's as any other, and do not stop
 * it for ever. */
static void huge_gradients_do_not_freeze_adam(void **state)
{
    (void)state;
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.route = MUONIUM_ROUTE_ADAM;
    subject *s = begin(&options);
    s->g[0] = 3e38f;
    assert_ok(muonium_step(s->optimizer));
    muonium_state own;
    assert_ok(muonium_state_of(s->optimizer, 0, &own));
    assert_true(isfinite(own.exp_avg_sq[0]));
    assert_true(fabs((double)s->w[0] + options.lr) <= 1e-6 * options.lr);
    s->g[0] = 1;
    for (int step = 0; step < 3000; step++) {
        assert_ok(muonium_step(s->optimizer));
        assert_true(all_finite(s->w, ELEMENTS));
    }
    float before = s->w[0];
    assert_ok(muonium_step(s->optimizer));
    assert_true(s->w[0] < before);
    end(s);
}

/* A step beyond the largest number of a type stops there. */
static void weights_stop_at_the_largest_number(void **state)
{
    (void)state;
    for (int muon = 0; muon <= 1; muon++) {
        for (int dtype = MUONIUM_F32; dtype <= MUONIUM_F16; dtype++) {
            for (int master = 0; master <= 1 && dtype != MUONIUM_F64; master++) {
                muonium_options options;
                assert_ok(muonium_options_init(&options, NULL));
                options.route = muon ? MUONIUM_ROUTE_MUON : MUONIUM_ROUTE_ADAM;
                options.lr = dtype == MUONIUM_F16 ? 1e6 : 1e36;
                options.weight_decay = 0;
                options.master = master;
                float largest = dtype == MUONIUM_F16    ? 65504.0f
                                : dtype == MUONIUM_BF16 ? 0x1.fep127f
                                                        : FLT_MAX;
                double x[64], g[64];
                for (size_t i = 0; i < 64; i++) {
                    x[i] = i % 2 ? (double)largest : -(double)largest;
                    g[i] = i % 9 == 0 ? 1 : (double)(i % 3) - 1.5;
                }
                void *w = spectra_store((muonium_dtype)dtype, x, 64);
                void *grad = spectra_store((muonium_dtype)dtype, g, 64);
                muonium_optimizer *optimizer;
                muonium_tensor tensor = {.name = "w",
                                         .dtype = (muonium_dtype)dtype,
                                         .ndim = 2,
                                         .shape = {8, 8},
                                         .data = w,
                                         .grad = grad};
                assert_ok(muonium_create(&options, &optimizer));
                assert_ok(muonium_add(optimizer, &tensor, NULL));
                for (int step = 0; step < 500; step++) {
                    assert_ok(muonium_step(optimizer));
                }
                size_t at_largest = 0;
                spectra_load((muonium_dtype)dtype, w, x, 64);
                for (size_t i = 0; i < 64; i++) {
                    assert_true(fabs(x[i]) <= (double)largest);
                    at_largest += fabs(x[i]) == (double)largest;
                }
                assert_true(at_largest > 0);
                muonium_destroy(optimizer);
                free(w);
                free(grad);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_give_finite_results),
        cmocka_unit_test(direct_sets_give_finite_results),
        cmocka_unit_test(small_safety_factors_give_finite_results),
        cmocka_unit_test(rescues_work_in_place),
        cmocka_unit_test(exploding_coefficients_are_refused),
        cmocka_unit_test(a_hopeless_matrix_is_named),
        cmocka_unit_test(steps_are_rescued),
        cmocka_unit_test(a_rescued_step_is_the_careful_one),
        cmocka_unit_test(a_hopeless_step_leaves_its_matrix),
        cmocka_unit_test(overflowing_momentum_follows_the_policy),
        cmocka_unit_test(momentum_is_examined_as_long_as_it_is_large),
        cmocka_unit_test(huge_gradients_do_not_freeze_adam),
        cmocka_unit_test(weights_stop_at_the_largest_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
