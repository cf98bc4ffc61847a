/*
 * test_kernel_choice.c: which kernels a process uses, by CPU and MUONIUM_CPU. The
 * choice is made once, so each case is a program of its own.
 */
#include "test.h"

#include "matmul/kernel.h"

static const char *const isa_names[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { ISAS = sizeof isa_names / sizeof isa_names[0] };

/* In the second program: what MUONIUM_CPU says is obeyed, or refused and explained. */
static void test_choice(void **state)
{
    (void)state;
    const char *wanted = getenv("MUONIUM_CPU");
    mu_isa best = mu_cpu_detect()->best, isa = best;
    bool known = wanted == NULL || wanted[0] == '\0';
    for (int i = 0; !known && i < ISAS; i++) {
        if (strcmp(wanted, isa_names[i]) == 0) {
            known = true;
            isa = (mu_isa)i;
        }
    }
    muonium_cpu_info info;
    const mu_kernel *kernel;
    if (!known || isa > best) {
        const char *reason = known ? isa_names[best] : "use portable, avx2, avx512, avx512_bf16";
        assert_status_message(muonium_cpu(&info), MUONIUM_INVALID, reason);
        assert_status_message(mu_kernel_choose(MUONIUM_F32, &kernel), MUONIUM_INVALID, wanted);
        assert_status_message(mu_kernel_choose(MUONIUM_F64, &kernel), MUONIUM_INVALID, reason);
        return;
    }
    assert_ok(muonium_cpu(&info));
    assert_string_equal(info.isa, isa_names[isa]);
    assert_string_equal(info.features, mu_cpu_detect()->features);
    if (isa != best) {
        assert_non_null(strstr(info.reason, wanted));
    }
    assert_ok(mu_kernel_choose(MUONIUM_F64, &kernel));
    mu_isa real = isa == MU_ISA_AVX512_BF16 ? MU_ISA_AVX512 : isa;
    assert_true(kernel->type == MUONIUM_F64 && kernel->isa == real);
    assert_ok(mu_kernel_choose(MUONIUM_F32, &kernel));
    assert_true(kernel->type == MUONIUM_F32 && kernel->isa == real);
    assert_string_equal(info.kernel, kernel->name);
    const mu_kernel *half;
    assert_ok(mu_kernel_choose(MUONIUM_F16, &half));
    assert_ptr_equal(half, kernel);
    assert_ok(mu_kernel_choose(MUONIUM_BF16, &half));
    assert_string_equal(info.bf16_kernel, half->name);
    bool forced = wanted != NULL && wanted[0] != '\0', native = isa != real;
    if (forced) {
        assert_string_equal(info.bf16_reason, info.reason);
    } else if (native) {
        double rates[2];
        assert_int_equal(sscanf(info.bf16_reason,
                                "measured on one thread: bf16 products %lf GF/s, f32 %lf",
                                &rates[0], &rates[1]),
                         2);
        assert_true(rates[0] > 0 && rates[1] > 0);
        native = half->operands == MUONIUM_BF16;
        /* The figures are rounded to 1 GF/s. */
        assert_true(native ? rates[0] + 1 > 1.2 * (rates[1] - 1)
                           : rates[0] - 1 < 1.2 * (rates[1] + 1));
    } else {
        assert_non_null(strstr(info.bf16_reason, "no bf16 products"));
    }
    assert_true(half->type == MUONIUM_F32 && half->isa == (native ? isa : real));
    assert_int_equal(half->operands, native ? MUONIUM_BF16 : MUONIUM_F32);
    const mu_kernel *again;
    assert_ok(mu_kernel_choose(MUONIUM_BF16, &again));
    assert_ptr_equal(again, half);
    assert_status_message(mu_kernel_choose((muonium_dtype)9, &kernel), MUONIUM_INVALID, "type");
    assert_status_message(muonium_cpu(NULL), MUONIUM_INVALID, "NULL");
}

static void test_every_choice(void **state)
{
    (void)state;
    const char *const values[] = {NULL,          "",     "portable", "avx2", "avx512",
                                  "avx512_bf16", "sse9", "AVX2",     "avx"};
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

/* The registry lists them from the most general on; products rely on the tile. */
static void test_registry(void **state)
{
    (void)state;
    size_t count = 0;
    mu_isa last[2] = {MU_ISA_PORTABLE, MU_ISA_PORTABLE};
    for (const mu_kernel *kernel; (kernel = mu_kernel_at(count)) != NULL; count++) {
        assert_true(kernel->type == MUONIUM_F32 || kernel->type == MUONIUM_F64);
        assert_true(kernel->isa >= last[kernel->type]);
        last[kernel->type] = kernel->isa;
        assert_true(kernel->name != NULL && kernel->kc > 0);
        assert_true(kernel->operands == kernel->type || kernel->operands == MUONIUM_BF16);
        assert_true(kernel->kc % 2 == 0);
        /* Blocks of one length: the half modes' sums are then the same everywhere. */
        assert_int_equal(kernel->kc, mu_kernel_at(0)->kc);
        assert_true(MU_BLOCK % kernel->mr == 0 && MU_BLOCK % kernel->nr == 0);
        assert_non_null(strstr(kernel->name, isa_names[kernel->isa]));
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
