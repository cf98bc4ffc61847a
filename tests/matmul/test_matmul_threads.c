/*
 * test_matmul_threads.c: the bits of a product are those of its operands and nothing
 * else: not of the number of threads, nor of the workers allowed, nor of other work
 * at the same time, nor of where an element lies in the result.
 */
#include "every_kernel.h"

#include "matmul/matmul.h"

/* m rows of X, m x m A, and what the three products give. */
typedef struct problem {
    const mu_kernel *kernel;
    bool plain; /* operands are the matrices themselves, without a factor or a shift */
    size_t m, n, ld, ld_square;
    char *x, *a;
    char *gram, *square, *product; /* results: m x m, m x m, m x n */
} problem;

static char *new_matrix(const mu_kernel *kernel, size_t rows, size_t ld, test_rng *rng)
{
    char *matrix = calloc(rows * ld, muonium_dtype_size(kernel->type));
    assert_non_null(matrix);
    for (size_t i = 0; rng != NULL && i < rows * ld; i++) {
        if (kernel->type == MUONIUM_F32) {
            ((float *)(void *)matrix)[i] = (float)test_normal(rng);
        } else {
            ((double *)(void *)matrix)[i] = test_normal(rng);
        }
    }
    return matrix;
}

static problem problem_new(const mu_kernel *kernel, size_t m, size_t n, test_rng *rng)
{
    problem p = {.kernel = kernel, .plain = test_below(rng, 2) == 0, .m = m, .n = n};
    p.ld = mu_leading(kernel, n);
    p.ld_square = mu_leading(kernel, m);
    p.x = new_matrix(kernel, m, p.ld, rng);
    p.a = new_matrix(kernel, m, p.ld_square, rng);
    kernel->rows->mirror(p.a, (ptrdiff_t)p.ld_square, 0, m, 0, m);
    return p;
}

/* The same operands, first `m` rows (and columns of A), with results of its own. */
static problem with_results(const problem *p, size_t m, size_t n)
{
    problem q = *p;
    q.m = m;
    q.n = n;
    q.gram = new_matrix(p->kernel, m, p->ld_square, NULL);
    q.square = new_matrix(p->kernel, m, p->ld_square, NULL);
    q.product = new_matrix(p->kernel, m, p->ld, NULL);
    return q;
}

static void free_results(problem *p)
{
    free(p->gram);
    free(p->square);
    free(p->product);
}

static void problem_free(problem *p)
{
    free(p->x);
    free(p->a);
}

/* All three, on at most `workers` threads. symmul gets A twice: it commutes with itself. */
static void compute(const problem *p, unsigned workers)
{
    size_t bytes;
    if (!mu_matmul_scratch(p->kernel, p->m, p->n, workers, &bytes)) {
        return; /* the results then differ from those expected */
    }
    mu_matmul with = {.kernel = p->kernel,
                      .workers = workers,
                      .scratch = aligned_alloc(MU_ALIGNMENT, bytes),
                      .separate = p->kernel->operands != p->kernel->type};
    double scales[2] = {p->plain ? 1 : 0.75, p->plain ? 1 : 1.5};
    mu_operand x = mu_operand_of(p->kernel, p->x, p->ld, scales[0], 0);
    mu_operand a = mu_operand_of(p->kernel, p->a, p->ld_square, scales[1], p->plain ? 0 : -0.3);
    if (with.scratch != NULL) {
        mu_gram(&with, p->m, p->n, &x, p->gram, p->ld_square);
        mu_symmul(&with, p->m, &a, &a, p->square, p->ld_square);
        mu_apply(&with, p->m, p->n, &a, &x, p->product, p->ld, 1);
    }
    free(with.scratch);
}

/* The leading rows x cols elements of the two agree bit for bit. */
static void assert_same(const problem *p, const char *one, const char *other, size_t rows,
                        size_t cols, size_t ld, const char *name)
{
    size_t element = muonium_dtype_size(p->kernel->type);
    for (size_t i = 0; i < rows; i++) {
        if (memcmp(one + i * ld * element, other + i * ld * element, cols * element) != 0) {
            fail_msg("%s of %zu x %zu differs in row %zu", name, p->m, p->n, i);
        }
    }
}

static void assert_same_results(const problem *p, const problem *q)
{
    assert_same(q, p->gram, q->gram, q->m, q->m, p->ld_square, "gram");
    assert_same(q, p->square, q->square, q->m, q->m, p->ld_square, "symmul");
    assert_same(q, p->product, q->product, q->m, q->n, p->ld, "apply");
}

static const size_t sizes[][2] = {{1, 1}, {5, 300}, {97, 101}, {130, 270}, {530, 40}, {100, 1040}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static size_t sizes_for(const mu_kernel *kernel)
{
    return test_kernel_emulated(kernel) ? 4 : SIZES;
}

static void test_threads_change_nothing(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("threads");
    static const int threads[] = {1, 2, 3, 7, 16, 64, 128};
    for (size_t s = 0; s < 2 * sizes_for(kernel); s++) {
        problem p = problem_new(kernel, sizes[s / 2][0], sizes[s / 2][1], &rng);
        p.plain = s % 2 == 0;
        assert_ok(muonium_set_threads(1));
        problem alone = with_results(&p, p.m, p.n);
        compute(&alone, 1);
        for (size_t t = 1; t < MU_COUNT(threads); t++) {
            assert_ok(muonium_set_threads(threads[t]));
            /* As many workers as threads, fewer, or more: each with some of the sizes. */
            const unsigned workers[] = {(unsigned)threads[t], (unsigned)threads[t - 1], 16};
            problem together = with_results(&p, p.m, p.n);
            compute(&together, workers[(s + t) % 3]);
            assert_same_results(&alone, &together);
            free_results(&together);
        }
        free_results(&alone);
        problem_free(&p);
    }
    assert_ok(muonium_set_threads(0));
}

static void compute_task(void *context, size_t index, unsigned worker)
{
    (void)worker;
    compute((problem *)context + index, 4);
}

/* Products within tasks, as a batch of small matrices is computed. */
static void test_batching_changes_nothing(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("batching");
    problem p[SIZES], alone[SIZES], batch[SIZES];
    assert_ok(muonium_set_threads(4));
    size_t count = sizes_for(kernel);
    for (size_t s = 0; s < count; s++) {
        p[s] = problem_new(kernel, sizes[s][0], sizes[s][1], &rng);
        alone[s] = with_results(&p[s], p[s].m, p[s].n);
        batch[s] = with_results(&p[s], p[s].m, p[s].n);
        compute(&alone[s], 4);
    }
    mu_pool_run(compute_task, batch, count, 4);
    for (size_t s = 0; s < count; s++) {
        assert_same_results(&alone[s], &batch[s]);
        free_results(&alone[s]);
        free_results(&batch[s]);
        problem_free(&p[s]);
    }
    assert_ok(muonium_set_threads(0));
}

/* Of fewer rows, gram is the leading square of the whole; of fewer columns, apply the
 * leading columns: at the edges elements move between full and partial tiles. */
static void test_place_changes_nothing(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("place");
    problem p = problem_new(kernel, 110, 330, &rng);
    problem whole = with_results(&p, p.m, p.n);
    compute(&whole, 2);
    for (int repeat = test_kernel_emulated(kernel) ? 35 : 0; repeat < 40; repeat++) {
        problem fewer_rows = with_results(&p, 1 + test_below(&rng, p.m), p.n);
        compute(&fewer_rows, 2);
        assert_same(&fewer_rows, whole.gram, fewer_rows.gram, fewer_rows.m, fewer_rows.m,
                    p.ld_square, "gram");
        free_results(&fewer_rows);
        problem fewer_cols = with_results(&p, p.m, 1 + test_below(&rng, p.n));
        compute(&fewer_cols, 2);
        assert_same(&fewer_cols, whole.product, fewer_cols.product, p.m, fewer_cols.n, p.ld,
                    "apply");
        free_results(&fewer_cols);
    }
    free_results(&whole);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_batching_changes_nothing),
        cmocka_unit_test(test_place_changes_nothing),
    };
    return test_with_every_kernel(tests);
}
