/*
 * test_kernel_choice.c: which kernels a process uses, by CPU and MUONIUM_CPU. The
 * choice is made once, so each case is a program of its own.
 */
#include "test.h"

#include "matmul/kernel.h"

/* The last, so the most capable, of the instruction sets that this CPU has, or the one of a name;
 * NULL if no set has it. */
static const mu_instruction_set *find_set(const char *name)
{
    const mu_instruction_set *set, *found = NULL;
    for (size_t i = 0; (set = mu_instruction_set_at(i)) != NULL; i++) {
        bool here = mu_includes(mu_cpu_detect()->has, set->needs);
        found = (name ? strcmp(set->name, name) == 0 : here) ? set : found;
    }
    return found;
}

/* The last, so the most capable, kernel for operands of a type that these features run; NULL if
 * there is none. */
static const mu_kernel *find_kernel(muonium_dtype operands, mu_features has)
{
    const mu_kernel *kernel, *found = NULL;
    for (size_t i = 0; (kernel = mu_kernel_at(i)) != NULL; i++) {
        bool fits = kernel->operands == operands && mu_includes(has, kernel->needs);
        found = fits ? kernel : found;
    }
    return found;
}

/* In the second program: what MUONIUM_CPU says is obeyed, or refused and explained. */
static void test_choice(void **state)
{
    (void)state;
    const char *wanted = getenv("MUONIUM_CPU");
    const bool forced = wanted != NULL && wanted[0] != '\0';
    const mu_instruction_set *best = find_set(NULL), *set = forced ? find_set(wanted) : best;
    muonium_cpu_info info;
    const mu_kernel *kernel;
    const mu_rows *rows;
    if (!set || !mu_includes(mu_cpu_detect()->has, set->needs)) {
        /* The message lists what there is, from the most general to the best. */
        assert_status_message(muonium_cpu(&info), MUONIUM_INVALID, "portable");
        assert_status_message(mu_rows_choose(MUONIUM_F32, &rows), MUONIUM_INVALID, best->name);
        assert_status_message(mu_kernel_choose(MUONIUM_F32, &kernel), MUONIUM_INVALID, wanted);
        assert_status_message(mu_kernel_choose(MUONIUM_F64, &kernel), MUONIUM_INVALID,
                              set ? "which this CPU does not have: use "
                                  : "this build and CPU have");
        return;
    }
    assert_ok(muonium_cpu(&info));
    assert_string_equal(info.isa, set->name);
    assert_string_equal(info.features, mu_cpu_detect()->features);
    if (forced) {
        assert_non_null(strstr(info.reason, wanted));
    }
    const mu_kernel *real = find_kernel(MUONIUM_F32, set->needs);
    const mu_kernel *native = find_kernel(MUONIUM_BF16, set->needs);
    assert_ok(mu_kernel_choose(MUONIUM_F64, &kernel));
    assert_ptr_equal(kernel, find_kernel(MUONIUM_F64, set->needs));
    assert_ok(mu_rows_choose(MUONIUM_F64, &rows));
    assert_ptr_equal(rows, kernel->rows);
    assert_ok(mu_kernel_choose(MUONIUM_F32, &kernel));
    assert_ptr_equal(kernel, real);
    assert_ok(mu_rows_choose(MUONIUM_F16, &rows)); /* neon_bf16 has rows, but no kernel */
    assert_true(rows == kernel->rows || strcmp(info.isa, "neon_bf16") == 0);
    assert_string_equal(info.kernel, kernel->name);
    const mu_kernel *half;
    assert_ok(mu_kernel_choose(MUONIUM_F16, &half));
    assert_ptr_equal(half, kernel);
    assert_ok(mu_kernel_choose(MUONIUM_BF16, &half));
    assert_string_equal(info.bf16_kernel, half->name);
    bool prefers_native = native != NULL;
    if (forced) {
        assert_string_equal(info.bf16_reason, info.reason);
    } else if (native && native->own_bits) { /* a measurement must not decide on bits */
        assert_non_null(strstr(info.bf16_reason, "wherever the CPU has it"));
    } else if (native) {
        double rates[2];
        assert_int_equal(sscanf(info.bf16_reason,
                                "measured on one thread: bf16 products %lf GF/s, f32 %lf",
                                &rates[0], &rates[1]),
                         2);
        assert_true(rates[0] > 0 && rates[1] > 0);
        prefers_native = half->operands == MUONIUM_BF16;
        /* The figures are rounded to 1 GF/s. */
        assert_true(prefers_native ? rates[0] + 1 > 1.2 * (rates[1] - 1)
                                   : rates[0] - 1 < 1.2 * (rates[1] + 1));
    } else {
        assert_non_null(strstr(info.bf16_reason, "no bf16 products"));
    }
    assert_ptr_equal(half, prefers_native ? native : real);
    const mu_kernel *again;
    assert_ok(mu_kernel_choose(MUONIUM_BF16, &again));
    assert_ptr_equal(again, half);
    assert_status_message(mu_kernel_choose((muonium_dtype)9, &kernel), MUONIUM_INVALID, "type");
    assert_status_message(muonium_cpu(NULL), MUONIUM_INVALID, "NULL");
}

static void test_every_choice(void **state)
{
    (void)state;
    const char *const values[] = {
        NULL,          "",    "portable", "avx2", "avx_vnni", "avx512", "avx512_vnni",
        "avx512_bf16", "amx", "sse9",     "AVX2", "avx",      "neon",   "neon_dotprod"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_child_ok(test_run_again("MUONIUM_CPU", values[i], 20));
    }
}

/* Zen 4 multiplies bf16 at twice the rate of f32, Emerald Rapids at half of it. */
static void test_rates(void **state)
{
    (void)state;
    assert_true(mu_prefer_native(472, 236));
    assert_false(mu_prefer_native(230, 459));
    assert_false(mu_prefer_native(236, 236));
    assert_false(mu_prefer_native(0, 236));
}

static const mu_instruction_set *find_needs(mu_features needs)
{
    const mu_instruction_set *set = NULL;
    for (size_t i = 0; (set = mu_instruction_set_at(i)) != NULL && set->needs != needs; i++) {
    }
    assert_non_null(set);
    return set;
}

/* The registry lists them from the most general on; products rely on the tile. */
static void test_registry(void **state)
{
    (void)state;
    size_t count = 0;
    for (const mu_kernel *kernel; (kernel = mu_kernel_at(count)) != NULL; count++) {
        assert_true(kernel->type == MUONIUM_F32 || kernel->type == MUONIUM_F64);
        /* A line is preferred to those before it, so none of these may need more. */
        for (size_t i = 0; i < count; i++) {
            const mu_kernel *before = mu_kernel_at(i);
            assert_true(before->operands != kernel->operands ||
                        !mu_includes(before->needs, kernel->needs));
        }
        assert_true(kernel->name != NULL && kernel->kc > 0);
        assert_true(kernel->operands == kernel->type || kernel->operands == MUONIUM_BF16);
        assert_true(kernel->kc % kernel->k_group == 0);
        assert_int_equal(kernel->enter != NULL, kernel->leave != NULL);
        /* Blocks of one length: the half modes' sums are then the same everywhere. */
        assert_int_equal(kernel->kc, mu_kernel_at(0)->kc);
        assert_true(MU_BLOCK % kernel->mr == 0 && MU_BLOCK % kernel->nr == 0);
        assert_ptr_equal(kernel->name, strstr(kernel->name, find_needs(kernel->needs)->name));
        assert_int_equal(kernel->rows->type, kernel->type);
        assert_true(mu_includes(kernel->needs, kernel->rows->needs));
    }
    assert_true(count >= 2);
    assert_null(mu_kernel_at(count + 1));
    assert_null(mu_kernel_at(SIZE_MAX));
}

int main(void)
{
    const struct CMUnitTest first[] = {
        cmocka_unit_test(test_every_choice),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_registry),
    };
    const struct CMUnitTest second[] = {cmocka_unit_test(test_choice)};
    return test_is_again() ? cmocka_run_group_tests(second, NULL, NULL)
                           : cmocka_run_group_tests(first, NULL, NULL);
}
