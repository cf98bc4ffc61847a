/*
 * test_base.c: statuses and messages, sizes, memory, the floating-point
 * environment, the processor and the random numbers.
 */
#include "test.h"

#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "base/random.h"

/* ---- status.c ---- */

static void statuses_have_their_names(void **state)
{
    (void)state;
    const struct {
        muonium_status status;
        int value;
        const char *name;
    } all[] = {
        {MUONIUM_OK, 0, "MUONIUM_OK"},
        {MUONIUM_INVALID, 1, "MUONIUM_INVALID"},
        {MUONIUM_NO_MEMORY, 2, "MUONIUM_NO_MEMORY"},
        {MUONIUM_NON_FINITE, 3, "MUONIUM_NON_FINITE"},
        {MUONIUM_NOT_CONVERGED, 4, "MUONIUM_NOT_CONVERGED"},
        {MUONIUM_IO, 5, "MUONIUM_IO"},
        {MUONIUM_FORMAT, 6, "MUONIUM_FORMAT"},
        {MUONIUM_PEER, 7, "MUONIUM_PEER"},
        {(muonium_status)8, 8, "unknown status"},
        {(muonium_status)1000, 1000, "unknown status"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal((int)all[i].status, all[i].value);
        assert_string_equal(muonium_status_name(all[i].status), all[i].name);
    }
}

static void types_have_their_sizes(void **state)
{
    (void)state;
    assert_int_equal(muonium_dtype_size(MUONIUM_F32), 4);
    assert_int_equal(muonium_dtype_size(MUONIUM_F64), 8);
    assert_int_equal(muonium_dtype_size(MUONIUM_BF16), 2);
    assert_int_equal(muonium_dtype_size(MUONIUM_F16), 2);
    assert_int_equal(muonium_dtype_size((muonium_dtype)4), 0);
}

static void version_is_that_of_the_header(void **state)
{
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", MUONIUM_VERSION_MAJOR, MUONIUM_VERSION_MINOR,
             MUONIUM_VERSION_PATCH);
    assert_string_equal(muonium_version(), expected);
    assert_string_equal(MUONIUM_VERSION_STRING, expected);
}

static void *fail_in_another_thread(void *was_empty)
{
    *(bool *)was_empty = muonium_last_error()[0] == '\0';
    mu_fail(MUONIUM_IO, "elsewhere");
    return NULL;
}

static void messages_belong_to_their_thread(void **state)
{
    (void)state;
    assert_status_message(mu_fail(MUONIUM_INVALID, "steps is %d: %s", 0, "too few"),
                          MUONIUM_INVALID, "steps is 0: too few");
    pthread_t thread;
    bool was_empty = false;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_another_thread, &was_empty), 0);
    pthread_join(thread, NULL);
    assert_true(was_empty);
    assert_string_equal(muonium_last_error(), "steps is 0: too few");
}

static void messages_may_quote_the_last_one(void **state)
{
    (void)state;
    mu_fail(MUONIUM_IO, "inner");
    errno = EDOM;
    mu_fail(MUONIUM_IO, "outer: %s", muonium_last_error());
    assert_int_equal(errno, EDOM);
    assert_string_equal(muonium_last_error(), "outer: inner");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    /* Two-byte characters after 0 or 1 bytes: the cut falls between two and within one. */
    static const char umlaut[] = "\xc3\xa4";
    for (size_t shift = 0; shift < 2; shift++) {
        char text[4001];
        memset(text, 'x', shift);
        for (size_t i = shift; i + 2 < sizeof text; i += 2) {
            memcpy(text + i, umlaut, 2);
            text[i + 2] = '\0';
        }
        mu_fail(MUONIUM_INVALID, "%s", text);
        const char *message = muonium_last_error();
        size_t length = strlen(message);
        assert_in_range(length, 512, 4000);
        assert_string_equal(message + length - 3, "...");
        assert_memory_equal(message, text, length - 3);
        assert_int_equal((length - 3 - shift) % 2, 0);
    }
}

/* Set a locale with a decimal comma, if there is one. */
static bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE",       "fr_FR.UTF-8", "fr_FR",
                                        "it_IT.UTF-8", "es_ES.UTF-8", "pl_PL.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (setlocale(LC_ALL, names[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void numbers_ignore_the_locale(void **state)
{
    (void)state;
    bool set = set_comma_locale();
    /* Where none is installed but the sources are, one is compiled for this test. */
    char folder[] = "/tmp/muonium-locale-XXXXXX";
    if (!set && mkdtemp(folder) != NULL) {
        char command[128];
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
        bool made = system(command) == 0 && setenv("LOCPATH", folder, 1) == 0;
        set = made && set_comma_locale();
        unsetenv("LOCPATH");
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0);
    }
    if (!set) {
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    char host[32], host_after[32];
    snprintf(host, sizeof host, "%g", 0.5);
    mu_fail(MUONIUM_INVALID, "lower is %g", 1234567.5);
    snprintf(host_after, sizeof host_after, "%g", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(host, "0,5");
    assert_string_equal(muonium_last_error(), "lower is 1.23457e+06");
    assert_string_equal(host_after, host);
}

/* ---- sizes ---- */

static void sizes_report_overflow(void **state)
{
    (void)state;
    size_t out;
    assert_true(mu_mul(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(mu_mul(0, SIZE_MAX, &out) && out == 0);
    assert_true(mu_mul(SIZE_MAX / 3, 3, &out) && out == SIZE_MAX / 3 * 3);
    assert_false(mu_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(mu_mul(SIZE_MAX, SIZE_MAX, &out));
    assert_true(mu_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(mu_add(SIZE_MAX, 1, &out));
    assert_int_equal(mu_round_up(0, 64), 0);
    assert_int_equal(mu_round_up(1, 64), 64);
    assert_int_equal(mu_round_up(64, 64), 64);
    assert_int_equal(mu_round_up(65, 12), 72);
}

/* ---- memory.c ---- */

/* Read by sanitizers, which otherwise end a program that asks for too much memory. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

typedef struct counts {
    int allocated, released;
    bool fails;
    size_t last_bytes;
} counts;

static void *counting_allocate(void *context, size_t bytes, size_t alignment)
{
    counts *c = context;
    assert_int_equal(alignment, MU_ALIGNMENT);
    c->last_bytes = bytes;
    if (c->fails) {
        return NULL;
    }
    c->allocated++;
    void *memory;
    assert_int_equal(posix_memalign(&memory, alignment, bytes), 0);
    memset(memory, 0xa5, bytes);
    return memory;
}

static void counting_release(void *context, void *memory)
{
    ((counts *)context)->released++;
    free(memory);
}

static void memory_is_aligned_and_never_null_when_empty(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 63, 64, 65, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *memory = mu_alloc(sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % MU_ALIGNMENT, 0);
        memset(memory, 0xa5, sizes[i]);
        mu_populate(memory, sizes[i]); /* and what is there stays */
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(memory[j], 0xa5);
        }
        mu_free(memory);
        memory = mu_alloc_zeroed(sizes[i]);
        assert_non_null(memory);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(memory[j], 0);
        }
        mu_free(memory);
    }
    mu_free(NULL);
    volatile size_t impossible = SIZE_MAX / 2; /* volatile: compilers that see it warn */
    assert_null(mu_alloc(impossible));
    assert_null(mu_alloc_zeroed(impossible));
}

static void allocator_is_replaced_and_restored(void **state)
{
    (void)state;
    counts c = {0};
    muonium_allocator hook = {counting_allocate, counting_release, &c};
    assert_ok(muonium_set_allocator(&hook));
    void *empty = mu_alloc(0);
    assert_non_null(empty);
    assert_true(c.last_bytes >= 1);
    unsigned char *zeroed = mu_alloc_zeroed(100);
    assert_int_equal(c.last_bytes, 100);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(zeroed[i], 0);
    }
    mu_free(empty);
    mu_free(zeroed);
    mu_free(NULL);
    assert_int_equal(c.allocated, 2);
    assert_int_equal(c.released, 2);

    c.fails = true;
    assert_null(mu_alloc(8));
    assert_null(mu_alloc_zeroed(8));

    /* A wrong hook is refused and leaves the one in force. */
    muonium_allocator wrong = {NULL, counting_release, NULL};
    assert_status_message(muonium_set_allocator(&wrong), MUONIUM_INVALID, "`allocate` is NULL");
    wrong = (muonium_allocator){counting_allocate, NULL, NULL};
    assert_status_message(muonium_set_allocator(&wrong), MUONIUM_INVALID, "`release` is NULL");
    assert_null(mu_alloc(8));

    assert_ok(muonium_set_allocator(NULL));
    void *memory = mu_alloc(8);
    assert_non_null(memory);
    mu_free(memory);
    assert_int_equal(c.allocated, 2);
    assert_int_equal(c.released, 2);
}

/* ---- environment.c ---- */

/* Whether arithmetic rounds to nearest and has denormals, in float and, on
 * processors where that is separate, in long double. */
static bool computes_by_default(void)
{
    volatile float one = 1.0f, tiny = 0x1p-30f, smallest = 0x1p-126f;
    volatile long double one_l = 1.0L, tiny_l = 0x1p-120L; /* of up to 113 bits */
    return one + tiny == one && -one - tiny == -one && smallest * 0.5f > 0.0f &&
           one_l + tiny_l == one_l && fegetround() == FE_TONEAREST;
}

static void environment_is_default_inside_and_restored(void **state)
{
    (void)state;
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        mu_fenv environment = mu_fenv_enter();
        bool by_default = computes_by_default();
        mu_fenv_leave(environment);
        int restored = fegetround();
        fesetround(FE_TONEAREST);
        assert_true(by_default);
        assert_int_equal(restored, modes[i]);
    }
}

#if defined(__x86_64__)
static void denormals_are_on_inside_and_flags_are_kept_out(void **state)
{
    (void)state;
    const unsigned before = __builtin_ia32_stmxcsr();
    const unsigned flush = 0x8000, denormals_are_zero = 0x0040, inexact_flag = 0x0020;
    const unsigned set = (0x1f80u & ~0x0200u) | flush | denormals_are_zero;
    __builtin_ia32_ldmxcsr(set); /* division by zero would trap, too */
    mu_fenv environment = mu_fenv_enter();
    bool by_default = computes_by_default();
    volatile float zero = 0.0f;
    bool divides = isinf(1.0f / zero);
    bool raised = (__builtin_ia32_stmxcsr() & inexact_flag) != 0;
    mu_fenv_leave(environment);
    unsigned after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before);
    assert_true(by_default);
    assert_true(divides);
    assert_true(raised);
    assert_int_equal(after, set);
}
#endif

/* ---- cpu.c ---- */

static void a_refusal_of_amx_says_why(void **state)
{
    (void)state;
    char text[96];
    mu_cpu_explain_refusal(0, text, sizeof text);
    assert_string_equal(text, "");
    mu_cpu_explain_refusal(EPERM, text, sizeof text);
    assert_string_equal(text, "amx refused: a filter of system calls forbids the request (EPERM)");
    mu_cpu_explain_refusal(EINVAL, text, sizeof text);
    assert_string_equal(text, "amx refused: the kernel does not know the request (EINVAL)");
    mu_cpu_explain_refusal(ENOSYS, text, sizeof text);
    assert_string_equal(text, "amx refused: the system has no such request (ENOSYS)");
    mu_cpu_explain_refusal(ENOSPC, text, sizeof text);
    assert_string_equal(text, "amx refused: an alternate signal stack is too small (ENOSPC)");
    mu_cpu_explain_refusal(12345, text, sizeof text);
    assert_string_equal(text, "amx refused: the request fails with error 12345");
}

/* Words alone: a refusal is no feature. */
static void features_are_words(void **state)
{
    (void)state;
    const mu_cpu *cpu = mu_cpu_detect();
    assert_true(strspn(cpu->features, "abcdefghijklmnopqrstuvwxyz0123456789_. ") ==
                strlen(cpu->features));
    assert_true(cpu->refused[0] == '\0' || strstr(cpu->features, "amx_tile") == NULL);
}

static bool has_feature(const char *features, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = features; (at = strstr(at, name)) != NULL; at += length) {
        bool starts = at == features || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static void processor_is_described(void **state)
{
    (void)state;
    const mu_cpu *cpu = mu_cpu_detect();
    assert_ptr_equal(cpu, mu_cpu_detect());
    print_message("features %#x, L1 %zu, L2 %zu, features: %s\n", cpu->has, cpu->l1_bytes,
                  cpu->l2_bytes, cpu->features);
    assert_in_range(cpu->l1_bytes, 4 << 10, 1 << 20);
    assert_in_range(cpu->l2_bytes, 64 << 10, 256 << 20);
#if defined(__x86_64__)
    /* The compiler's own detection, which knows XCR0 too, is the referee. */
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                has_feature(cpu->features, "f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(mu_includes(cpu->has, MU_NEEDS_avx2), avx2);
    assert_int_equal(mu_includes(cpu->has, MU_NEEDS_avx512), avx512);
#if defined(MU_HAVE_AVX512_BF16) /* the compiler has it */
    bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
    assert_int_equal(mu_includes(cpu->has, MU_NEEDS_avx512_bf16), bf16);
#endif
    assert_int_equal(has_feature(cpu->features, "avx"), __builtin_cpu_supports("avx") != 0);
    assert_int_equal(has_feature(cpu->features, "avx2"), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(has_feature(cpu->features, "fma"), __builtin_cpu_supports("fma") != 0);
    assert_int_equal(has_feature(cpu->features, "sse4.2"), __builtin_cpu_supports("sse4.2") != 0);
    assert_int_equal(has_feature(cpu->features, "avx512f"), __builtin_cpu_supports("avx512f") != 0);
#elif defined(__aarch64__) && defined(__linux__)
    /* The identification registers, which the system lets programs read, are the referee. */
    uint64_t isar0, isar1;
    __asm__("mrs %0, S3_0_C0_C6_0" : "=r"(isar0));
    __asm__("mrs %0, S3_0_C0_C6_1" : "=r"(isar1));
    assert_true(mu_includes(cpu->has, MU_CPU_NEON));
    assert_int_equal(has_feature(cpu->features, "crc32"), (isar0 >> 16 & 15) != 0);
    assert_int_equal(has_feature(cpu->features, "dotprod"), (isar0 >> 44 & 15) != 0);
    assert_int_equal(has_feature(cpu->features, "i8mm"), (isar1 >> 52 & 15) != 0);
    assert_int_equal(has_feature(cpu->features, "bf16"), (isar1 >> 44 & 15) != 0);
    assert_int_equal(mu_includes(cpu->has, MU_CPU_I8MM), has_feature(cpu->features, "i8mm"));
#else
    assert_int_equal(cpu->has, 0);
    assert_string_equal(cpu->features, "");
    assert_false(has_feature(cpu->features, "avx"));
#endif
}

/* In a child that has not read the variable yet: it is read once, by value. */
static int override_is(void *expected)
{
    const char *value = mu_cpu_override();
    setenv("MUONIUM_CPU", "changed later", 1);
    bool right = expected == NULL ? value == NULL && mu_cpu_override() == NULL
                                  : value != NULL && strcmp(mu_cpu_override(), expected) == 0;
    return right ? 0 : 1;
}

static void override_is_read_once(void **state)
{
    (void)state;
    char portable[] = "portable";
    assert_child_ok(test_fork(override_is, portable, "MUONIUM_CPU", "portable", 10));
    assert_child_ok(test_fork(override_is, NULL, "MUONIUM_CPU", "", 10));
    assert_child_ok(test_fork(override_is, NULL, "MUONIUM_CPU", NULL, 10));
}

/* ---- random.c ---- */

static void random_words_are_the_published_ones(void **state)
{
    (void)state;
    /* The three vectors published with the generator: zeros, ones, digits of pi. */
    const struct {
        uint64_t key, low, high;
        uint32_t words[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t words[4];
        mu_random(known[i].key, known[i].low, known[i].high, words);
        assert_memory_equal(words, known[i].words, sizeof words);
    }
}

static void random_units_are_uniform(void **state)
{
    (void)state;
    assert_true(mu_random_unit(0) == 0.0);
    assert_true(mu_random_unit(0x80000000u) == 0.5);
    assert_true(mu_random_unit(UINT32_MAX) == 1.0 - 0x1p-32);
    enum { BLOCKS = 50000, CELLS = 64 };
    uint64_t key = test_seed();
    int cells[CELLS] = {0};
    for (uint64_t i = 0; i < BLOCKS; i++) {
        uint32_t words[4];
        mu_random(key, i, 0, words);
        for (int j = 0; j < 4; j++) {
            cells[(int)(mu_random_unit(words[j]) * CELLS)]++;
        }
    }
    /* Chi-squared with 63 degrees of freedom: 6.5 deviations of sqrt(2*63) about 63. */
    double chi = 0, expected = 4.0 * BLOCKS / CELLS;
    for (int i = 0; i < CELLS; i++) {
        chi += (cells[i] - expected) * (cells[i] - expected) / expected;
    }
    assert_true(fabs(chi - 63) < 6.5 * sqrt(2.0 * 63));
}

static void random_normals_are_normal(void **state)
{
    (void)state;
    /* Extremes: the smallest radius, the largest, and every quarter of the circle. */
    double pair[2];
    mu_random_normal((const uint32_t[4]){UINT32_MAX, UINT32_MAX, 0, 0}, pair);
    assert_true(pair[0] == 0.0 && pair[1] == 0.0);
    mu_random_normal((const uint32_t[4]){0, 0, 0, 0}, pair);
    assert_true(fabs(pair[0] - sqrt(106.0 * log(2.0))) < 1e-14 && pair[1] == 0.0);
    mu_random_normal((const uint32_t[4]){0, 0, 0x40000000u, 0}, pair);
    assert_true(fabs(pair[0]) < 1e-14 && fabs(pair[1] - sqrt(106.0 * log(2.0))) < 1e-14);

    enum { PAIRS = 200000 };
    uint64_t key = test_seed();
    double moment[5] = {0}, product = 0;
    for (uint64_t i = 0; i < PAIRS; i++) {
        uint32_t words[4];
        mu_random(key, i, 1, words);
        mu_random_normal(words, pair);
        for (int side = 0; side < 2; side++) {
            double power = 1;
            for (int m = 1; m <= 4; m++) {
                power *= pair[side];
                moment[m] += power / (2.0 * PAIRS);
            }
        }
        product += pair[0] * pair[1] / PAIRS;
    }
    /* Six deviations; the variance of z^m is E z^2m - (E z^m)^2 = 1, 2, 15, 96. */
    const double deviation = 1.0 / sqrt(2.0 * PAIRS);
    assert_true(fabs(moment[1]) < 6 * deviation);
    assert_true(fabs(moment[2] - 1) < 6 * sqrt(2.0) * deviation);
    assert_true(fabs(moment[3]) < 6 * sqrt(15.0) * deviation);
    assert_true(fabs(moment[4] - 3) < 6 * sqrt(96.0) * deviation);
    assert_true(fabs(product) < 6 / sqrt((double)PAIRS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_their_names),
        cmocka_unit_test(types_have_their_sizes),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(messages_belong_to_their_thread),
        cmocka_unit_test(messages_may_quote_the_last_one),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(sizes_report_overflow),
        cmocka_unit_test(memory_is_aligned_and_never_null_when_empty),
        cmocka_unit_test(allocator_is_replaced_and_restored),
        cmocka_unit_test(environment_is_default_inside_and_restored),
#if defined(__x86_64__)
        cmocka_unit_test(denormals_are_on_inside_and_flags_are_kept_out),
#endif
        cmocka_unit_test(a_refusal_of_amx_says_why),
        cmocka_unit_test(features_are_words),
        cmocka_unit_test(processor_is_described),
        cmocka_unit_test(override_is_read_once),
        cmocka_unit_test(random_words_are_the_published_ones),
        cmocka_unit_test(random_units_are_uniform),
        cmocka_unit_test(random_normals_are_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
