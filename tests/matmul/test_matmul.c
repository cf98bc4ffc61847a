/*
 * test_matmul.c: gram, symmul and apply with every kernel against sums in double: all
 * small sizes, sums longer than all blocks packed at a time, every type and layout
 * of the operands, combinations, results in place; exact where the data are small
 * integers. Run with MUONIUM_CPU=blas, the same holds of the BLAS library.
 *
 * Bits that must not depend on the number of threads: test_matmul_threads.c.
 */
#include "every_kernel.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "matmul/matmul.h"
#include "matrix.h"

/* ---- operands ---- */

/* What to multiply, besides the sizes. */
typedef struct kind {
    const mu_kernel *kernel;
    muonium_dtype dtype;
    size_t layout; /* see test_layout */
    bool integers; /* results are exact */
    bool with_other;
    bool plain;    /* nothing but the matrix itself */
    bool alone;    /* on one thread, else on a random number */
    bool separate; /* scales and shifts apart from the matrices, which have values of bf16 */
} kind;

static const size_t own_layouts[] = {0, 1, 4}; /* forwards along rows */

/* The kind, but for what the contract does not allow. */
static kind allowed(const kind *wanted)
{
    kind k = *wanted;
    k.separate = k.separate || k.kernel->operands != k.kernel->type;
    k.with_other = k.with_other && !k.separate;
    return k;
}

/* A matrix in memory as the products take it, and what it stands for. */
typedef struct operand {
    size_t rows, cols;
    test_matrix matrix, other;
    mu_operand view;
    double *value;     /* dense: scale * matrix + other_scale * other + shift * I */
    double *magnitude; /* the same with the magnitudes of the terms: rounding is relative to it */
} operand;

static double *new_dense(size_t rows, size_t cols)
{
    double *dense = calloc(rows * cols, sizeof *dense);
    assert_non_null(dense);
    return dense;
}

static double *random_dense(const kind *k, size_t rows, size_t cols, test_rng *rng)
{
    double *dense = new_dense(rows, cols);
    for (size_t i = 0; i < rows * cols; i++) {
        dense[i] = k->integers ? (double)test_below(rng, 9) - 4 : test_normal(rng);
        if (k->separate) {
            dense[i] = (double)mu_f32_from_bf16(mu_bf16_from_f32((float)dense[i]));
        }
    }
    return dense;
}

static double *random_symmetric(const kind *k, size_t m, test_rng *rng)
{
    double *dense = random_dense(k, m, m, rng);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < i; j++) {
            dense[j * m + i] = dense[i * m + j];
        }
    }
    return dense;
}

/* Symmetric matrices that commute with each other: circulant ones, rows and columns
 * then put into the same random order, so that no two places look alike. */
static double *random_commuting(const kind *k, size_t m, const size_t *order, test_rng *rng)
{
    double *dense = new_dense(m, m), *first = random_dense(k, 1, m, rng);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            size_t distance = order[i] > order[j] ? order[i] - order[j] : order[j] - order[i];
            dense[i * m + j] = first[distance < m - distance ? distance : m - distance];
        }
    }
    free(first);
    return dense;
}

static size_t *random_order(size_t m, test_rng *rng)
{
    size_t *order = malloc(m * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < m; i++) {
        size_t at = test_below(rng, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

static double random_factor(const kind *k, test_rng *rng)
{
    static const double integers[] = {1, 2, -1, -2};
    return k->integers ? integers[test_below(rng, 4)] : test_normal(rng);
}

/* Takes `main` and `other` (NULL unless the kind has one) and frees them. */
static operand operand_new(const kind *k, size_t rows, size_t cols, bool symmetric, double *main,
                           double *other, test_rng *rng)
{
    operand o = {.rows = rows, .cols = cols};
    bool shifted = !k->plain && !(k->separate && !symmetric) && test_below(rng, 2) == 0;
    ptrdiff_t row_stride, col_stride;
    bool at_front = test_below(rng, 2) == 0;
    test_layout(k->layout, rows, cols, &row_stride, &col_stride);
    o.matrix = test_matrix_new(k->dtype, rows, cols, row_stride, col_stride, at_front);
    o.view = (mu_operand){.data = o.matrix.data,
                          .dtype = k->dtype,
                          .row_stride = row_stride,
                          .col_stride = col_stride,
                          .scale = k->plain ? 1 : random_factor(k, rng)};
    o.view.shift = shifted ? random_factor(k, rng) : 0;
    if (other != NULL) {
        o.other = test_matrix_new(k->dtype, rows, cols, row_stride, col_stride, at_front);
        o.view.other = o.other.data;
        o.view.other_scale = random_factor(k, rng);
    }
    o.value = new_dense(rows, cols);
    o.magnitude = new_dense(rows, cols);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            size_t at = i * cols + j;
            test_matrix_set(&o.matrix, i, j, main[at]);
            double terms[3] = {o.view.scale * test_matrix_get(&o.matrix, i, j), 0,
                               i == j ? o.view.shift : 0};
            if (other != NULL) {
                test_matrix_set(&o.other, i, j, other[at]);
                terms[1] = o.view.other_scale * test_matrix_get(&o.other, i, j);
            }
            o.value[at] = terms[0] + terms[1] + terms[2];
            o.magnitude[at] = fabs(terms[0]) + fabs(terms[1]) + fabs(terms[2]);
        }
    }
    free(main);
    free(other);
    return o;
}

static void operand_free(operand *o)
{
    test_matrix_free(&o->matrix);
    test_matrix_free(&o->other);
    free(o->value);
    free(o->magnitude);
}

/* ---- results ---- */

static test_matrix result_new(const mu_kernel *kernel, size_t rows, size_t cols, bool by_columns,
                              test_rng *rng)
{
    ptrdiff_t ld = (ptrdiff_t)((by_columns ? rows : cols) + test_below(rng, 4));
    test_matrix c = test_matrix_new(kernel->type, rows, cols, by_columns ? 1 : ld,
                                    by_columns ? ld : 1, test_below(rng, 2) == 0);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            test_matrix_set(&c, i, j, (double)NAN);
        }
    }
    return c;
}

/* Exactly as much scratch memory as asked for, and a page after it that traps. */
static mu_matmul matmul_new(const kind *k, size_t m, size_t n, test_rng *rng)
{
    size_t bytes;
    const mu_kernel *kernel = k->kernel;
    unsigned workers = k->alone ? 1 : 1 + (unsigned)test_below(rng, 3);
    mu_matmul with = {.kernel = kernel, .workers = workers, .separate = k->separate};
    assert_true(mu_matmul_scratch(kernel, m, n, with.workers, &bytes));
    size_t beyond = bytes % MU_ALIGNMENT; /* not 0 with a BLAS library alone */
    with.scratch = test_guarded_alloc(bytes, beyond == 0 ? 0 : MU_ALIGNMENT - beyond);
    return with;
}

static void assert_near(const kind *k, const test_matrix *c, size_t i, size_t j, size_t terms,
                        double wanted, double magnitude, const char *name)
{
    /* Packing rounds each factor a few times, the sum once or twice a term; the
     * sum in double that f64 is compared with does too. */
    double bound = 4 * (double)(terms + 8) * test_kernel_eps(k->kernel) * magnitude;
    double got = test_matrix_get(c, i, j);
    if (k->integers ? got != wanted : !(fabs(got - wanted) <= bound)) {
        fail_msg("%s of %s, layout %zu, kc %zu, other %d: (%zu, %zu) of %zu x %zu, %zu terms, is "
                 "%.17g, not %.17g (+- %g)",
                 name, test_dtype_name(k->dtype), k->layout, k->kernel->kc, k->with_other, i, j,
                 c->rows, c->cols, terms, got, wanted, k->integers ? 0 : bound);
    }
}

/* Compare c with a * b. Of large results only some rows, the edges of blocks among
 * them. `b` is given by columns if `transposed`. */
static void check_product(const kind *k, const test_matrix *c, const operand *a, const operand *b,
                          bool transposed, test_rng *rng, const char *name)
{
    size_t terms = a->cols;
    double *sums = new_dense(2, c->cols), *magnitudes = sums + c->cols;
    for (size_t i = 0; i < c->rows; i++) {
        bool edge = i % MU_BLOCK == 0 || i % MU_BLOCK == MU_BLOCK - 1 || i == c->rows - 1;
        double chance = 16.0 / (double)c->rows;
        if (c->rows * c->cols * terms > 2000000 &&
            test_uniform(rng, 0, 1) > (edge ? 4 * chance : chance)) {
            continue;
        }
        memset(sums, 0, 2 * c->cols * sizeof *sums);
        for (size_t l = 0; l < terms; l++) {
            double x = a->value[i * terms + l], x_magnitude = a->magnitude[i * terms + l];
            size_t at = transposed ? l : l * c->cols, step = transposed ? terms : 1;
            for (size_t j = 0; j < c->cols; j++, at += step) {
                sums[j] += x * b->value[at];
                magnitudes[j] += x_magnitude * b->magnitude[at];
            }
        }
        for (size_t j = 0; j < c->cols; j++) {
            assert_near(k, c, i, j, terms, sums[j], magnitudes[j], name);
        }
    }
    assert_true(test_matrix_gaps_intact(c));
    free(sums);
}

static void check_symmetric(const test_matrix *c)
{
    for (size_t i = 0; i < c->rows; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_true(test_matrix_get(c, i, j) == test_matrix_get(c, j, i));
        }
    }
}

/* ---- the products ---- */

static void check_gram(const kind *wanted, size_t m, size_t n, test_rng *rng)
{
    kind k = allowed(wanted);
    operand x = operand_new(&k, m, n, false, random_dense(&k, m, n, rng),
                            k.with_other ? random_dense(&k, m, n, rng) : NULL, rng);
    test_matrix c = result_new(k.kernel, m, m, false, rng);
    mu_matmul with = matmul_new(&k, m, n, rng);
    mu_gram(&with, m, n, &x.view, c.data, (size_t)c.row_stride);
    check_product(&k, &c, &x, &x, true, rng, "gram");
    check_symmetric(&c);
    test_guarded_free(with.scratch);
    test_matrix_free(&c);
    operand_free(&x);
}

static double in_type(const test_matrix *c, double value)
{
    return c->dtype == MUONIUM_F32 ? (double)(float)value : value;
}

/* The same product twice into a sum, 2 C and then -C/2: exact but for the last addition.
 * Before that with something added, by a power of two: exact but for that addition. */
static void check_finish(const kind *k, const mu_matmul *with, const operand o[2],
                         const test_matrix *c, bool may_multiply_out, test_rng *rng)
{
    size_t m = c->rows, ldc = (size_t)c->row_stride;
    mu_symmul_epilogue finish = {.may_multiply_out = may_multiply_out};
    mu_symmul_fused(with, m, &o[0].view, &o[1].view, c->data, ldc, &finish);
    check_product(k, c, &o[0], &o[1], false, rng,
                  may_multiply_out ? "symmul, shifts out" : "symmul");
    check_symmetric(c);
    test_matrix again = test_matrix_new(c->dtype, m, m, c->row_stride, 1, false);
    test_matrix plus = test_matrix_new(c->dtype, m, m, c->row_stride, 1, false);
    test_matrix total = test_matrix_new(c->dtype, m, m, c->row_stride, 1, true);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) {
            double value = in_type(c, test_normal(rng));
            test_matrix_set(&plus, i, j, value);
            test_matrix_set(&plus, j, i, value);
        }
    }
    finish = (mu_symmul_epilogue){.plus = plus.data,
                                  .plus_factor = 4,
                                  .plus_identity = -3,
                                  .may_multiply_out = may_multiply_out};
    mu_symmul_fused(with, m, &o[0].view, &o[1].view, again.data, ldc, &finish);
    double eps = test_kernel_eps(with->kernel);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            double product = test_matrix_get(c, i, j), identity = i == j ? -3 : 0;
            double more = 4 * test_matrix_get(&plus, i, j);
            /* What shifts contribute may be added in another order. */
            double shifts = fabs(o[0].view.shift) * o[1].magnitude[i * m + j] +
                            fabs(o[1].view.shift) * o[0].magnitude[i * m + j];
            double room = 8 * eps * (fabs(product) + fabs(more) + fabs(identity) + 2 * shifts);
            double wanted = product + more + identity;
            assert_true(fabs(test_matrix_get(&again, i, j) - wanted) <= room);
            assert_true(test_matrix_get(&again, i, j) == test_matrix_get(&again, j, i));
        }
    }
    finish = (mu_symmul_epilogue){
        .sum = total.data, .sum_factor = 2, .may_multiply_out = may_multiply_out};
    mu_symmul_fused(with, m, &o[0].view, &o[1].view, again.data, ldc, &finish);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            assert_true(test_matrix_get(&again, i, j) == test_matrix_get(c, i, j));
        }
    }
    finish = (mu_symmul_epilogue){.sum = total.data,
                                  .sum_factor = -0.5,
                                  .accumulate = true,
                                  .last = true,
                                  .may_multiply_out = may_multiply_out};
    mu_symmul_fused(with, m, &o[0].view, &o[1].view, again.data, ldc, &finish);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            double expected = in_type(c, 1.5 * test_matrix_get(c, i, j));
            assert_true(test_matrix_get(&total, i, j) == expected);
        }
    }
    assert_true(test_matrix_gaps_intact(&total));
    test_matrix_free(&again);
    test_matrix_free(&plus);
    test_matrix_free(&total);
}

static void check_symmul(const kind *wanted, size_t m, test_rng *rng)
{
    kind k = allowed(wanted);
    if (k.separate) {
        k.dtype = k.kernel->type;
        k.layout = own_layouts[test_below(rng, 3)];
    }
    size_t *order = random_order(m, rng);
    operand o[2];
    for (int i = 0; i < 2; i++) {
        o[i] = operand_new(&k, m, m, true, random_commuting(&k, m, order, rng),
                           k.with_other ? random_commuting(&k, m, order, rng) : NULL, rng);
    }
    test_matrix c = result_new(k.kernel, m, m, false, rng);
    mu_matmul with = matmul_new(&k, m, 1, rng);
    mu_symmul(&with, m, &o[0].view, &o[1].view, c.data, (size_t)c.row_stride);
    check_product(&k, &c, &o[0], &o[1], false, rng, "symmul");
    check_symmetric(&c);
    check_finish(&k, &with, o, &c, false, rng);
    check_finish(&k, &with, o, &c, true, rng);
    test_guarded_free(with.scratch);
    test_matrix_free(&c);
    operand_free(&o[0]);
    operand_free(&o[1]);
    free(order);
}

static void check_apply(const kind *wanted, size_t m, size_t n, bool in_place, test_rng *rng)
{
    kind k = allowed(wanted);
    operand a = operand_new(&k, m, m, true, random_symmetric(&k, m, rng),
                            k.with_other ? random_symmetric(&k, m, rng) : NULL, rng);
    operand x = operand_new(&k, m, n, false, random_dense(&k, m, n, rng),
                            k.with_other ? random_dense(&k, m, n, rng) : NULL, rng);
    bool by_columns = test_below(rng, 2) == 0;
    test_matrix y = in_place ? x.matrix : result_new(k.kernel, m, n, by_columns, rng);
    mu_matmul with = matmul_new(&k, m, n, rng);
    mu_apply(&with, m, n, &a.view, &x.view, y.data, (size_t)y.row_stride, (size_t)y.col_stride);
    check_product(&k, &y, &a, &x, false, rng, in_place ? "apply in place" : "apply");
    test_guarded_free(with.scratch);
    if (!in_place) {
        test_matrix_free(&y);
    }
    operand_free(&a);
    operand_free(&x);
}

/* ---- what is checked ---- */

/* The kernel with shorter blocks of k: what takes sums of thousands else. */
static mu_kernel with_blocks_of(const mu_kernel *kernel, size_t kc)
{
    mu_kernel shortened = *kernel;
    shortened.kc = kc;
    return shortened;
}

static kind random_kind(const mu_kernel *kernel, test_rng *rng)
{
    kind k = {.kernel = kernel,
              .dtype = (muonium_dtype)test_below(rng, 4),
              .layout = test_below(rng, TEST_LAYOUTS),
              .separate = test_below(rng, 4) == 0,
              .integers = test_below(rng, 2) == 0};
    if (test_below(rng, 2) == 0) { /* as within the iteration */
        k.dtype = kernel->type;
        k.layout = own_layouts[test_below(rng, 3)];
        k.with_other = test_below(rng, 2) == 0;
    }
    return k;
}

static void check_random(const mu_kernel *kernel, size_t m, size_t n, test_rng *rng)
{
    kind k = random_kind(kernel, rng);
    check_gram(&k, m, n, rng);
    k = random_kind(kernel, rng);
    check_symmul(&k, m, rng);
    k = random_kind(kernel, rng);
    check_apply(&k, m, n, false, rng);
}

static void test_small_sizes(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    mu_kernel shortened = with_blocks_of(kernel, 5);
    test_rng rng = test_rng_start("small sizes");
    for (size_t size = 1; size <= 67; size++) {
        check_random(kernel, size, 29, &rng);
        check_random(kernel, 29, size, &rng);
        check_random(&shortened, size, 1 + test_below(&rng, 67), &rng);
        check_random(&shortened, 1 + test_below(&rng, 67), size, &rng);
    }
}

static void test_larger_sizes(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    mu_kernel shortened = with_blocks_of(kernel, 16);
    test_rng rng = test_rng_start("larger sizes");
    size_t limit = test_kernel_emulated(kernel) ? 200 : 400;
    const size_t around_blocks[] = {MU_BLOCK - 1, MU_BLOCK, MU_BLOCK + 1, 2 * MU_BLOCK};
    for (size_t i = 0; i < 4; i++) {
        check_random(kernel, around_blocks[i], around_blocks[test_below(&rng, 4)], &rng);
    }
    for (int repeat = 0; repeat < 4; repeat++) {
        check_random(kernel, 1 + test_below(&rng, limit), 1 + test_below(&rng, limit), &rng);
        check_random(&shortened, 1 + test_below(&rng, limit), 1 + test_below(&rng, limit), &rng);
    }
}

/* Sums of more blocks than are packed at a time, without shortening any. */
static void test_long_sums(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("long sums");
    for (int i = 0; i < 2; i++) {
        kind k = random_kind(kernel, &rng);
        k.integers = i == 0;
        check_gram(&k, 41, 1500, &rng);
        check_gram(&k, 7, 4 * kernel->kc + 1, &rng);
        if (!test_kernel_emulated(kernel)) {
            check_apply(&k, 1100, 33, false, &rng);
            check_gram(&k, 97 + test_below(&rng, 200), 2600, &rng);
        }
    }
    if (!test_kernel_emulated(kernel)) {
        kind k = random_kind(kernel, &rng);
        check_symmul(&k, 1100, &rng);
    }
}

/* What processes that share a matrix rely on: the Gram matrices of its blocks of columns, added
 * in order, are bit for bit that of the whole. */
static void test_blocks_add_up(void **state)
{
    static const size_t columns[] = {20, 300, 513, 1023, 1024, 1037, 1505};
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("blocks");
    kind k = {.kernel = kernel, .dtype = kernel->type, .plain = true};
    size_t element = muonium_dtype_size(kernel->type);
    enum { M = 37 };
    muonium_cpu_info info;
    assert_ok(muonium_cpu(&info));
    if (strcmp(info.isa, "blas") == 0) {
        skip(); /* a library's sums are its own */
    }
    for (size_t l = 0; l < sizeof columns / sizeof columns[0]; l++) {
        size_t n = columns[l], block = mu_block_columns(kernel, n);
        test_matrix x = test_matrix_new(kernel->type, M, n, (ptrdiff_t)n + 3, 1, false);
        test_matrix whole = test_matrix_new(kernel->type, M, M, M, 1, false);
        test_matrix part = test_matrix_new(kernel->type, M, M, M, 1, false);
        test_matrix sum = test_matrix_new(kernel->type, M, M, M, 1, true);
        for (size_t i = 0; i < M * n; i++) {
            test_matrix_set(&x, i / n, i % n, test_normal(&rng));
        }
        k = allowed(&k);
        mu_matmul with = matmul_new(&k, M, n, &rng);
        mu_operand all = mu_operand_of(kernel, x.data, n + 3, 1, 0);
        mu_gram(&with, M, n, &all, whole.data, M);
        for (size_t first = 0; first < n; first += block) {
            mu_operand some = all;
            some.data = (const char *)all.data + first * element;
            size_t cols = n - first < block ? n - first : block;
            mu_gram(&with, M, cols, &some, part.data, M);
            for (size_t i = 0; i < M; i++) {
                size_t row = i * M * element;
                kernel->rows->add((char *)sum.data + row, (char *)part.data + row, M, 1, first > 0);
            }
        }
        assert_memory_equal(whole.data, sum.data, M * M * element);
        test_guarded_free(with.scratch);
        test_matrix_free(&x);
        test_matrix_free(&whole);
        test_matrix_free(&part);
        test_matrix_free(&sum);
    }
}

static void test_types_and_layouts(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    mu_kernel shortened = with_blocks_of(kernel, 32);
    test_rng rng = test_rng_start("types and layouts");
    for (size_t i = 0; i < 2 * 4 * TEST_LAYOUTS; i++) {
        kind k = {.kernel = &shortened,
                  .dtype = (muonium_dtype)(i / 2 % 4),
                  .layout = i / 8,
                  .integers = i % 2 == 0};
        check_gram(&k, 50, 75, &rng);
        check_symmul(&k, 50, &rng);
        check_apply(&k, 50, 75, false, &rng);
    }
}

static void test_apply_in_place(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("in place");
    for (size_t i = 0; i < 60; i++) {
        kind k = {.kernel = kernel,
                  .dtype = kernel->type,
                  .layout = i % 4, /* rows or columns that are adjacent in memory */
                  .integers = i % 3 == 0,
                  .with_other = i % 5 == 0};
        check_apply(&k, 1 + test_below(&rng, 120), 1 + test_below(&rng, 300), true, &rng);
    }
}

/* Operands that are read where they lie, from rows or columns that are adjacent in memory. */
static void test_plain(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    mu_kernel shortened = with_blocks_of(kernel, 32);
    test_rng rng = test_rng_start("plain");
    size_t limit = test_kernel_emulated(kernel) ? 140 : 300;
    for (size_t i = 0; i < 32; i++) {
        kind k = {.kernel = i % 8 < 4 ? kernel : &shortened,
                  .dtype = kernel->type,
                  .layout = i % 4,
                  .integers = i % 3 == 0,
                  .plain = true};
        size_t m = 1 + test_below(&rng, limit), n = 1 + test_below(&rng, limit);
        check_gram(&k, m, n, &rng);
        check_symmul(&k, m, &rng);
        check_apply(&k, m, n, i % 5 == 0, &rng);
    }
}

/* apply on one thread uses its scratch memory up where the column blocks are as wide as
 * they can be, and both operands of more blocks than gram packs. */
static void test_scratch_is_used_up(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("scratch");
    for (size_t i = 0; i < 6; i++) { /* whole panels of both sides, of neither, of one alone */
        size_t m = i < 4 ? MU_BLOCK + i : (i - 3) * 4 * kernel->nr;
        mu_kernel shortened = with_blocks_of(kernel, 8);
        kind k = {.kernel = &shortened, .dtype = kernel->type, .alone = true};
        for (int side = 0; side < 4; side++) { /* X on the right, and on the left */
            check_apply(&k, m, 2 * MU_BLOCK, false, &rng);
        }
    }
}

/* Sizes for which no memory can exist are refused, whatever sum or product
 * overflows on the way; sizes for which it could are not. */
static void test_scratch_of_absurd_sizes(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    const size_t huge[] = {SIZE_MAX,     SIZE_MAX - 1, SIZE_MAX - 50,  SIZE_MAX - MU_BLOCK,
                           SIZE_MAX / 2, SIZE_MAX / 8, (size_t)1 << 61};
    size_t bytes;
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        for (unsigned workers = 1; workers <= 1024; workers *= 32) {
            assert_false(mu_matmul_scratch(kernel, huge[i], 1, workers, &bytes));
            assert_false(mu_matmul_scratch(kernel, 1, huge[i], workers, &bytes));
            assert_false(mu_matmul_scratch(kernel, huge[i], huge[i], workers, &bytes));
            assert_false(mu_matmul_scratch(kernel, huge[i], 100, workers, &bytes));
        }
    }
    assert_true(mu_matmul_scratch(kernel, 20000, 100000, 64, &bytes));
    assert_true(bytes >= 20000);
}

static void test_leading_dimension(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    size_t element = muonium_dtype_size(kernel->type);
    for (size_t n = 1; n <= 5000; n++) {
        size_t bytes = mu_leading(kernel, n) * element;
        assert_true(bytes >= n * element && bytes < n * element + 2 * MU_ALIGNMENT);
        assert_true(bytes % MU_ALIGNMENT == 0 && bytes % 4096 != 0);
    }
}

/* The environment asks for a backend, and these tests are about that one. */
static void test_backend(void **state)
{
    (void)state;
    muonium_cpu_info info;
    assert_ok(muonium_cpu(&info));
    if (mu_cpu_override() != NULL) {
        assert_string_equal(info.isa, mu_cpu_override());
    }
    assert_true(mu_gram_flops(3, 5) == 60 && mu_symmul_flops(4) == 80);
    assert_true(mu_apply_flops(3, 5) == 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend),
        cmocka_unit_test(test_small_sizes),
        cmocka_unit_test(test_larger_sizes),
        cmocka_unit_test(test_long_sums),
        cmocka_unit_test(test_blocks_add_up),
        cmocka_unit_test(test_types_and_layouts),
        cmocka_unit_test(test_apply_in_place),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_scratch_is_used_up),
        cmocka_unit_test(test_scratch_of_absurd_sizes),
        cmocka_unit_test(test_leading_dimension),
    };
    return test_with_every_kernel(tests);
}
