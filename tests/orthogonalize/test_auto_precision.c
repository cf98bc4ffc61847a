/*
 * test_auto_precision.c: the precision that `auto` chooses by instruction set, shape and options.
 * Plans for other instruction sets than that of this CPU multiply with its kernels.
 */
#include "test.h"

#include "orthogonalize/plan.h"

static muonium_plan_options with(muonium_dtype precision, muonium_form form)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.precision = precision;
    options.form = form;
    return options;
}

static muonium_plan_info describe(const char *set, muonium_shape shape,
                                  const muonium_plan_options *options)
{
    muonium_plan *plan;
    muonium_plan_info info;
    assert_ok(mu_plan_create_for(set, shape, options, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    muonium_plan_destroy(plan);
    return info;
}

static muonium_dtype chosen(const char *set, muonium_shape shape)
{
    const muonium_plan_options options = with(MUONIUM_AUTO, MUONIUM_FORM_AUTO);
    return describe(set, shape, &options).precision;
}

/* The sets on which fixed23 is not faster, or was never measured. */
static const char *const slow_sets[] = {"portable",    "avx2",      "avx_vnni",     "avx512",
                                        "avx512_vnni", "blas",      "avx512_bf16",  "neon",
                                        "neon_bf16",   "neon_i8mm", "neon_dotprod", "unheard of"};

/* The boundary lies between sizes that were measured on one CPU with AMX: 24 of 128 x 512 take the
 * same time in both, 512 x 512 and all that is larger less in fixed23. */
static const struct {
    muonium_shape shape;
    muonium_dtype with_amx;
} table[] = {
    {{1, 1, 1}, MUONIUM_F32},           {{1, 8, 8}, MUONIUM_F32},
    {{1, 64, 64}, MUONIUM_F32},         {{24, 128, 512}, MUONIUM_F32},
    {{1, 128, 512}, MUONIUM_F32},       {{100, 128, 128}, MUONIUM_F32},
    {{1, 64, 65536}, MUONIUM_F32},      {{1, 512, 512}, MUONIUM_FIXED23},
    {{24, 512, 512}, MUONIUM_FIXED23},  {{1, 768, 768}, MUONIUM_FIXED23},
    {{1, 1024, 1024}, MUONIUM_FIXED23}, {{1, 2048, 2048}, MUONIUM_FIXED23},
    {{1, 768, 3072}, MUONIUM_FIXED23},  {{1, 4096, 11008}, MUONIUM_FIXED23},
};

static void instruction_set_and_shape_decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        muonium_shape shape = table[i].shape, tall = {shape.batch, shape.cols, shape.rows};
        assert_int_equal(chosen("amx", shape), table[i].with_amx);
        assert_int_equal(chosen("amx", tall), table[i].with_amx);
        for (size_t s = 0; s < sizeof slow_sets / sizeof slow_sets[0]; s++) {
            assert_int_equal(chosen(slow_sets[s], shape), MUONIUM_F32);
        }
    }
}

/* Once fixed23 pays, it pays for larger matrices too; and a batch decides as one matrix does. */
static void larger_matrices_do_not_go_back(void **state)
{
    (void)state;
    for (size_t wide = 1; wide <= 16; wide *= 2) {
        bool fixed = false;
        for (size_t m = 16; m <= 2048; m += 16) {
            muonium_shape shape = {1, m, m * wide}, batch = {9, m, m * wide};
            muonium_dtype precision = chosen("amx", shape);
            assert_int_equal(chosen("amx", batch), precision);
            assert_true(precision == MUONIUM_FIXED23 || (precision == MUONIUM_F32 && !fixed));
            fixed = precision == MUONIUM_FIXED23;
        }
        assert_true(fixed);
    }
}

static void the_plan_in_use_is_that_of_the_set_in_use(void **state)
{
    (void)state;
    muonium_cpu_info cpu;
    assert_ok(muonium_cpu(&cpu));
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        muonium_plan *plan;
        muonium_plan_info info;
        assert_ok(muonium_plan_create(table[i].shape, NULL, &plan));
        assert_ok(muonium_plan_describe(plan, &info));
        muonium_plan_destroy(plan);
        assert_int_equal(info.precision, chosen(cpu.isa, table[i].shape));
    }
}

static void a_named_precision_stays(void **state)
{
    (void)state;
    const muonium_shape shape = {1, 1024, 1024};
    for (int p = MUONIUM_F32; p < MUONIUM_AUTO; p++) {
        const muonium_plan_options options = with((muonium_dtype)p, MUONIUM_FORM_AUTO);
        assert_int_equal(describe("amx", shape, &options).precision, p);
        assert_int_equal(describe("avx2", shape, &options).precision, p);
    }
}

/* Recipes that reproduce other implementations name a precision. */
static void only_our_recipe_leaves_it_open(void **state)
{
    (void)state;
    for (int i = 0; muonium_recipe_name(i) != NULL; i++) {
        muonium_options o;
        assert_ok(muonium_options_init(&o, muonium_recipe_name(i)));
        bool ours = strcmp(muonium_recipe_name(i), "muonium") == 0;
        assert_int_equal(o.plan.precision == MUONIUM_AUTO, ours);
        muonium_plan_info info = describe("amx", (muonium_shape){1, 2048, 2048}, &o.plan);
        assert_int_equal(info.precision, ours ? MUONIUM_FIXED23 : o.plan.precision);
    }
}

static void assert_same_plan(const muonium_plan_info *a, const muonium_plan_info *b)
{
    assert_int_equal(a->precision, b->precision);
    assert_int_equal(a->form, b->form);
    assert_int_equal(a->restarts, b->restarts);
    assert_memory_equal(a->restart, b->restart, (size_t)a->restarts * sizeof a->restart[0]);
    assert_ptr_equal(a->direct_set, b->direct_set);
    assert_true(a->flops == b->flops && a->band == b->band);
}

/* Form and set are those of the precision by itself: so results are the same bits. Forms and sets
 * of fixed23 do not depend on the instruction set. */
static void auto_is_exactly_what_it_chooses(void **state)
{
    (void)state;
    const muonium_shape shapes[] = {{1, 512, 512}, {1, 300, 1200}, {1, 24, 24}, {2, 130, 260}};
    for (size_t i = 0; i < 4; i++) {
        for (int form = MUONIUM_FORM_AUTO; form <= MUONIUM_FORM_QUINTIC; form++) {
            muonium_plan_options open = with(MUONIUM_AUTO, (muonium_form)form);
            muonium_plan_info found = describe("amx", shapes[i], &open);
            assert_true(found.precision == MUONIUM_FIXED23 || found.precision == MUONIUM_F32);
            muonium_plan_options named = with(found.precision, (muonium_form)form);
            muonium_plan_info same = describe("amx", shapes[i], &named);
            muonium_plan_info other = describe("portable", shapes[i], &named);
            assert_same_plan(&found, &same);
            assert_same_plan(&found, &other);
        }
    }
}

static void results_are_those_of_what_it_chooses(void **state)
{
    (void)state;
    const muonium_shape shape = {1, 400, 700};
    const size_t count = shape.rows * shape.cols;
    float *x = malloc(3 * count * sizeof *x);
    assert_non_null(x);
    float *y = x + count, *z = y + count;
    test_rng rng = test_rng_start("auto precision");
    test_fill_normal_f32(&rng, x, count);
    muonium_view in = muonium_dense(MUONIUM_F32, shape, x), out = in;
    for (int c = 0; c < 2; c++) {
        const muonium_plan_options open = with(MUONIUM_AUTO, MUONIUM_FORM_AUTO);
        const muonium_plan_options named =
            with(c == 0 ? MUONIUM_FIXED23 : MUONIUM_F32, MUONIUM_FORM_AUTO);
        muonium_plan *plan;
        assert_ok(mu_plan_create_for(c == 0 ? "amx" : "avx512", shape, &open, &plan));
        out.data = y;
        assert_ok(muonium_plan_execute(plan, &in, &out, NULL, NULL));
        muonium_plan_destroy(plan);
        out.data = z;
        assert_ok(muonium_orthogonalize(shape, &named, &in, &out, NULL));
        assert_memory_equal(y, z, count * sizeof *y);
    }
    free(x);
}

/* `auto` is no type of matrices or parameters. */
static void nothing_is_stored_in_auto(void **state)
{
    (void)state;
    float data[4] = {1, 0, 0, 1};
    const muonium_shape shape = {1, 2, 2};
    assert_int_equal(muonium_dtype_size(MUONIUM_AUTO), 0);
    assert_null(muonium_dtype_name(MUONIUM_AUTO));
    muonium_view in = muonium_dense(MUONIUM_F32, shape, data), bad = in;
    bad.dtype = MUONIUM_AUTO;
    assert_status_message(muonium_orthogonalize(shape, NULL, &bad, &in, NULL), MUONIUM_INVALID,
                          "in.dtype is 6");
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(NULL, &optimizer));
    muonium_tensor tensor = {
        .name = "w", .dtype = MUONIUM_AUTO, .ndim = 2, .shape = {2, 2}, .data = data, .grad = data};
    assert_status_message(muonium_add(optimizer, &tensor, NULL), MUONIUM_INVALID,
                          "dtype of w is 6");
    muonium_destroy(optimizer);
    muonium_options o;
    assert_ok(muonium_options_init(&o, NULL));
    assert_status_message(muonium_option_set(&o, "state_dtype", "auto"), MUONIUM_INVALID,
                          "state_dtype is \"auto\": use one of f32, bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_set_and_shape_decide),
        cmocka_unit_test(larger_matrices_do_not_go_back),
        cmocka_unit_test(the_plan_in_use_is_that_of_the_set_in_use),
        cmocka_unit_test(a_named_precision_stays),
        cmocka_unit_test(only_our_recipe_leaves_it_open),
        cmocka_unit_test(auto_is_exactly_what_it_chooses),
        cmocka_unit_test(results_are_those_of_what_it_chooses),
        cmocka_unit_test(nothing_is_stored_in_auto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
