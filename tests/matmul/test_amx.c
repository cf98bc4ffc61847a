/*
 * test_amx.c: AMX on CPUs that have it. Tile instructions give what their emulation gives, bit for
 * bit, and tile registers are in use within products only: not afterwards, not in threads that
 * multiply nothing, and not in children. CPUs without AMX skip these tests.
 */
#include "every_int8.h"

#include <math.h>

#include "matmul/fixed.h"

#if defined(__x86_64__)

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const mu_int8_kernel *hardware(void)
{
    const mu_int8_kernel *kernel;
    for (size_t i = 0; (kernel = mu_int8_at(i)) != NULL; i++) {
        if ((kernel->needs & MU_CPU_AMX_INT8) && mu_includes(mu_cpu_detect()->has, kernel->needs)) {
            return kernel;
        }
    }
    skip();
    return NULL;
}

/* ---- the instructions ---- */

static int8_t *bytes_new(test_rng *rng, size_t count)
{
    int8_t *bytes = test_guarded_alloc(count, 0);
    for (size_t i = 0; i < count; i++) {
        size_t kind = test_below(rng, 8);
        bytes[i] = (int8_t)(kind == 0 ? -128 : kind == 1 ? 127 : (int)test_below(rng, 256) - 128);
    }
    return bytes;
}

/* Any digits, and the end of another tile meanwhile. */
static void test_tiles_equal_their_emulation(void **state)
{
    enum { SIDE = 32, SUMS = MU_SUMS * SIDE * SIDE };
    const mu_int8_kernel *kernels[2] = {hardware(), &mu_int8_emulated_amx};
    test_rng rng = test_rng_start("tiles of AMX");
    (void)state;
    for (int run = 0; run < 40; run++) {
        int digits = 2 + run % 2;
        size_t groups = 16 * (1 + test_below(&rng, run == 0 ? 32 : 9));
        size_t bytes = groups * 4 * SIDE * (size_t)digits;
        int8_t *a = bytes_new(&rng, bytes), *b = bytes_new(&rng, bytes);
        static int32_t before[SUMS], sums[2][SUMS];
        static float term[SIDE * SIDE], c[2][SIDE * SIDE], mirror[2][SIDE * SIDE];
        float unit[SIDE];
        for (size_t i = 0; i < SUMS; i++) {
            before[i] = (int32_t)test_below(&rng, (uint64_t)1 << 31);
            before[i] = test_below(&rng, 2) ? before[i] : -before[i];
        }
        for (size_t i = 0; i < SIDE * SIDE; i++) {
            term[i] = (float)test_normal(&rng);
        }
        for (size_t i = 0; i < SIDE; i++) {
            unit[i] = (float)ldexp(1, (int)test_below(&rng, 40) - 30);
        }
        for (int k = 0; k < 2; k++) {
            mu_tile_end end = {.sums = before,
                               .rows = SIDE,
                               .cols = SIDE,
                               .row_unit = unit,
                               .col_unit = unit,
                               .f = {.terms = {{term, SIDE, 1, 0.3f}},
                                     .term_count = 1,
                                     .shift = 0.7f,
                                     .mirror = mirror[k],
                                     .mirror_ld = SIDE},
                               .c = c[k],
                               .ldc = SIDE};
            mu_meanwhile meanwhile = {&end, (const char *)a, bytes};
            kernels[k]->enter();
            kernels[k]->tile(digits, groups, a, b, NULL, sums[k], &meanwhile);
            kernels[k]->leave();
        }
        assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
        assert_memory_equal(c[0], c[1], sizeof c[0]);
        assert_memory_equal(mirror[0], mirror[1], sizeof mirror[0]);
        test_guarded_free(a);
        test_guarded_free(b);
    }
}

/* ---- tile state ---- */

/* Whether tile registers are configured or in use in this thread: bits 17 and 18 of XINUSE. */
static bool tiles_in_use(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    (void)high;
    return (low >> 17 & 3) != 0;
}

enum { M = 200, N = 300, THREADS = 3 };

typedef struct problem {
    mu_matmul with;
    float x[M * N], c[M * M];
} problem;

static problem *problem_new(const mu_int8_kernel *int8, unsigned workers)
{
    problem *p = calloc(1, sizeof *p);
    size_t bytes;
    assert_non_null(p);
    p->with = (mu_matmul){.workers = workers, .digits = 3, .int8 = int8};
    assert_ok(mu_kernel_choose(MUONIUM_F32, &p->with.kernel));
    assert_true(mu_fixed_scratch(int8, 3, M, N, workers, &bytes));
    p->with.scratch = test_guarded_alloc(mu_round_up(bytes, MU_ALIGNMENT), 0);
    for (size_t i = 0; i < M * N; i++) {
        p->x[i] = (float)(i * 2654435761u % 2001) * 1e-3f - 1;
    }
    return p;
}

static void multiply(problem *p)
{
    mu_operand rows = {p->x, MUONIUM_F32, N, 1, 1, NULL, 0, 0};
    mu_gram(&p->with, M, N, &rows, p->c, M);
}

static void problem_free(problem *p)
{
    test_guarded_free(p->with.scratch);
    free(p);
}

static void note_tiles(void *context, size_t index, unsigned worker)
{
    bool *used = context;
    (void)worker;
    used[index] = tiles_in_use();
}

static void test_tiles_are_released_after_products(void **state)
{
    problem *p = problem_new(hardware(), THREADS);
    bool used[64] = {false};
    (void)state;
    assert_ok(muonium_set_threads(THREADS));
    assert_false(tiles_in_use());
    /* This question has an answer. */
    p->with.int8->enter();
    assert_true(tiles_in_use());
    p->with.int8->leave();
    for (int run = 0; run < 20; run++) {
        multiply(p);
        assert_false(tiles_in_use());
        mu_pool_run(note_tiles, used, 64, THREADS);
        for (size_t i = 0; i < 64; i++) {
            assert_false(used[i]);
        }
    }
    assert_ok(muonium_set_threads(0));
    problem_free(p);
}

static void *look(void *used)
{
    *(bool *)used = tiles_in_use();
    return NULL;
}

static void test_other_threads_never_touch_tiles(void **state)
{
    problem *p = problem_new(hardware(), 1);
    bool used = true;
    pthread_t thread;
    (void)state;
    multiply(p);
    assert_int_equal(pthread_create(&thread, NULL, look, &used), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(used);
    problem_free(p);
}

static void test_children_multiply(void **state)
{
    problem *p = problem_new(hardware(), THREADS);
    (void)state;
    assert_ok(muonium_set_threads(THREADS));
    multiply(p);
    pid_t child = fork();
    if (child == 0) {
        float expected[16];
        bool clean = !tiles_in_use();
        memcpy(expected, p->c + M, sizeof expected);
        memset(p->c, 0, sizeof p->c);
        multiply(p);
        bool same = memcmp(expected, p->c + M, sizeof expected) == 0;
        _exit(clean && same && !tiles_in_use() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(muonium_set_threads(0));
    problem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_equal_their_emulation),
        cmocka_unit_test(test_tiles_are_released_after_products),
        cmocka_unit_test(test_other_threads_never_touch_tiles),
        cmocka_unit_test(test_children_multiply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif
