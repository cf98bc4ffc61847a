/*
 * test_kernels.c: tiles, packing, finishing and mirroring, of every kernel: all shapes up to the
 * tile, results bit for bit as the contract of matmul/kernel.h defines them, no
 * byte read or written beyond what it allows.
 */
#include "every_kernel.h"

#include <math.h>

#include "matrix.h"

static const size_t tile_lengths[] = {0, 1, 2, 5, 8, 67, 200, 201, 230, 400};
enum { TILE_LENGTHS = sizeof tile_lengths / sizeof tile_lengths[0], LONGEST = 256 };
enum { BLOCK = 200 };     /* a tile of more is two */
enum { MOST_LANES = 48 }; /* of any kernel's mr and nr */

/* x * y + sum as the kernel does it: fused, except in portable C. Through the type
 * of the kernel: every operation here is exact in double or rounded to f32 once. */
static double multiply_add(const mu_kernel *kernel, double x, double y, double sum)
{
    if (kernel->type == MUONIUM_F32) {
        float a = (float)x, b = (float)y, c = (float)sum;
        return (double)(kernel->needs == 0 ? a * b + c : fmaf(a, b, c));
    }
    return kernel->needs == 0 ? x * y + sum : fma(x, y, sum);
}

static double add(const mu_kernel *kernel, double x, double y)
{
    return kernel->type == MUONIUM_F32 ? (double)((float)x + (float)y) : x + y;
}

static double multiply(const mu_kernel *kernel, double x, double y)
{
    return kernel->type == MUONIUM_F32 ? (double)((float)x * (float)y) : x * y;
}

/* As the type holds it. */
static double rounded_to(muonium_dtype dtype, double value)
{
    double held;
    test_set_element(&held, dtype, 0, value);
    return test_element(&held, dtype, 0);
}

/* Where an element of a packed panel, of A or B, is, in elements of the type of operands: of pairs
 * the first k is the upper half. In panels of A for a matrix unit the pairs of a k-group of one
 * line are adjacent. */
static ptrdiff_t packed_at(const mu_kernel *kernel, bool a, size_t p, size_t line)
{
    bool pairs = kernel->operands != kernel->type;
    size_t width = a ? kernel->mr : kernel->nr, group = kernel->k_group;
    if (a && group > 2) {
        return (ptrdiff_t)((p / group * width + line) * group + p % group / 2 * 2 + (1 - p % 2));
    }
    size_t at = pairs ? (p / 2 * width + line) * 2 + (1 - p % 2) : p * width + line;
    return (ptrdiff_t)at;
}

/* The k that a panel has room for. */
static size_t packed_depth(const mu_kernel *kernel, size_t k)
{
    return mu_round_up(k, kernel->k_group);
}

/* Where term s of a sum is in panels for a tile: the second k-block starts at a whole k-group. */
static size_t packed_term(const mu_kernel *kernel, size_t s)
{
    return s < BLOCK ? s : packed_depth(kernel, BLOCK) + (s - BLOCK);
}

/* Values that the kernel multiplies: small integers, or normally distributed. */
static double draw(const mu_kernel *kernel, test_rng *rng, bool integers)
{
    if (integers) {
        return (double)test_below(rng, 9) - 4;
    }
    return rounded_to(kernel->operands, test_normal(rng));
}

/* ---- tile ---- */

/* The sums of a whole tile: of its first block, if k is longer, and of the rest. */
typedef struct tile_sums {
    double first[MOST_LANES][MOST_LANES], rest[MOST_LANES][MOST_LANES];
} tile_sums;

static float without_denormals(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The sum so far plus a k-group of `terms` products, as a matrix unit forms it: see kernel.h. */
static double add_group(const double *x, const double *y, size_t terms, double sum)
{
    float parts[2] = {0, 0};
    for (size_t i = 0; i < terms; i++) {
        float a = without_denormals((float)x[i]), b = without_denormals((float)y[i]);
        parts[i % 2] = without_denormals(fmaf(a, b, parts[i % 2]));
    }
    float both = without_denormals(parts[0] + parts[1]);
    return (double)without_denormals(both + without_denormals((float)sum));
}

/* What they are, and that they are right. */
static void expected_sums(const mu_kernel *kernel, size_t k, const void *a, const void *b,
                          bool integers, tile_sums *sums)
{
    for (size_t i = 0; i < kernel->mr; i++) {
        for (size_t j = 0; j < kernel->nr; j++) {
            double sum = 0, first = 0, exact = 0, magnitude = 0, group[2][MOST_LANES];
            size_t terms = 0;
            for (size_t s = 0; s < k; s++) {
                if (s == BLOCK) {
                    first = sum;
                    sum = 0;
                }
                size_t p = packed_term(kernel, s);
                double x = test_element(a, kernel->operands, packed_at(kernel, true, p, i));
                double y = test_element(b, kernel->operands, packed_at(kernel, false, p, j));
                if (kernel->own_bits) {
                    group[0][terms] = x;
                    group[1][terms++] = y;
                    if (terms == kernel->k_group || s + 1 == k || s + 1 == BLOCK) {
                        sum = add_group(group[0], group[1], terms, sum);
                        terms = 0;
                    }
                } else {
                    sum = multiply_add(kernel, x, y, sum);
                }
                exact += x * y;
                magnitude += fabs(x * y);
            }
            double tolerance = integers ? 0 : 4 * (double)k * test_kernel_eps(kernel) * magnitude;
            assert_true(fabs(first + sum - exact) <= tolerance);
            sums->first[i][j] = first;
            sums->rest[i][j] = sum;
        }
    }
}

/* Operands packed, or matrices: `a` is contiguous along k, of `b` WIDER columns are between, and
 * the columns that may be read are its last ones, before memory that must not be touched. */
enum { WIDER = 5 };

static void check_tile(const mu_kernel *kernel, size_t k, const void *a, const void *b, bool packed,
                       size_t rows, size_t cols, bool accumulate, const tile_sums *sums)
{
    ptrdiff_t mr = (ptrdiff_t)kernel->mr, nr = (ptrdiff_t)kernel->nr;
    size_t skip = packed ? 0 : kernel->nr - mu_round_up(cols, kernel->grain);
    b = (const char *)b + skip * muonium_dtype_size(kernel->type);
    test_matrix c = test_matrix_new(kernel->type, rows, cols, (ptrdiff_t)cols + 3, 1, false);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            test_matrix_set(&c, i, j, accumulate ? (double)i - (double)j : (double)NAN);
        }
    }
    size_t block = k <= BLOCK && rows % 2 == 0 ? k : BLOCK; /* all the same */
    kernel->tile(k, block, a, packed ? 1 : (ptrdiff_t)k, packed ? mr : 1, b,
                 packed ? nr : nr + WIDER, c.data, c.row_stride, rows, cols, accumulate);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double before = accumulate ? (double)i - (double)j : 0;
            before = k > BLOCK ? add(kernel, before, sums->first[i][j + skip]) : before;
            double wanted = add(kernel, before, sums->rest[i][j + skip]);
            double got = test_matrix_get(&c, i, j);
            if (got != wanted) {
                fail_msg("%zu x %zu, k = %zu, accumulate %d: (%zu, %zu) is %.17g, not %.17g", rows,
                         cols, k, accumulate, i, j, got, wanted);
            }
        }
    }
    assert_true(test_matrix_gaps_intact(&c));
    test_matrix_free(&c);
}

/* The k that panels for a tile have room for. */
static size_t tile_depth(const mu_kernel *kernel, size_t k)
{
    return k <= BLOCK ? packed_depth(kernel, k)
                      : packed_depth(kernel, BLOCK) + packed_depth(kernel, k - BLOCK);
}

/* The same numbers into a panel and into a matrix with these strides. */
static void fill_side(const mu_kernel *kernel, bool left, size_t k, bool integers, void *panel,
                      void *matrix, size_t line_stride, size_t k_stride, test_rng *rng)
{
    size_t width = left ? kernel->mr : kernel->nr, depth = tile_depth(kernel, k);
    for (size_t p = 0; p < depth; p++) {
        for (size_t line = 0; line < width; line++) {
            test_set_element(panel, kernel->operands, packed_at(kernel, left, p, line), 0);
        }
    }
    for (size_t s = 0; s < k; s++) {
        for (size_t line = 0; line < width; line++) {
            double value = draw(kernel, rng, integers);
            ptrdiff_t at = packed_at(kernel, left, packed_term(kernel, s), line);
            test_set_element(panel, kernel->operands, at, value);
            test_set_element(matrix, kernel->type, (ptrdiff_t)(line * line_stride + s * k_stride),
                             value);
        }
    }
}

static void test_tile(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("tile");
    size_t element = muonium_dtype_size(kernel->type);
    bool unpackable = kernel->operands == kernel->type; /* tiles may read matrices unpacked */
    static tile_sums sums;
    assert_true(kernel->mr <= MOST_LANES && kernel->nr <= MOST_LANES);
    for (size_t l = 0; l < 2 * TILE_LENGTHS; l++) {
        bool integers = l % 2 == 0;
        size_t k = tile_lengths[l / 2];
        size_t depth = tile_depth(kernel, k), packed = muonium_dtype_size(kernel->operands);
        void *a = test_guarded_alloc(depth * kernel->mr * packed, 0);
        void *rows_of_a = test_guarded_alloc(k * kernel->mr * element, 0);
        void *b = test_guarded_alloc(depth * kernel->nr * packed, 0);
        size_t wide = kernel->nr + WIDER, all = k > 0 ? (k - 1) * wide + kernel->nr : 0;
        void *rows_of_b = test_guarded_alloc(all * element, 0);
        fill_side(kernel, true, k, integers, a, rows_of_a, k, 1, &rng);
        fill_side(kernel, false, k, integers, b, rows_of_b, 1, wide, &rng);
        expected_sums(kernel, k, a, b, integers, &sums);
        /* Emulated tiles of a matrix unit are slow: not every edge. */
        size_t hop = kernel->own_bits && test_kernel_emulated(kernel) ? 5 : 1;
        if (kernel->enter) {
            kernel->enter();
        }
        for (size_t rows = 1 + (kernel->mr - 1) % hop; rows <= kernel->mr; rows += hop) {
            for (size_t cols = 1 + (kernel->nr - 1) % hop; cols <= kernel->nr; cols += hop) {
                check_tile(kernel, k, a, b, true, rows, cols, false, &sums);
                check_tile(kernel, k, a, b, true, rows, cols, true, &sums);
                if (unpackable) {
                    check_tile(kernel, k, rows_of_a, rows_of_b, false, rows, cols, rows % 2 == 0,
                               &sums);
                }
            }
        }
        if (kernel->leave) {
            kernel->leave();
        }
        test_guarded_free(a);
        test_guarded_free(rows_of_a);
        test_guarded_free(b);
        test_guarded_free(rows_of_b);
    }
}

/* ---- packing ---- */

/* Sources and packed panels lie at the end or the beginning of memory that is
 * used again and again: mapping new memory for each would take most of the time. */
typedef struct arena {
    char *at_end, *at_front;
    size_t bytes;
} arena;

static arena arena_new(size_t bytes)
{
    arena memory = {test_guarded_alloc(bytes, 0), test_guarded_alloc_front(bytes, 0), bytes};
    return memory;
}

static void arena_free(arena *memory)
{
    test_guarded_free(memory->at_end);
    test_guarded_free(memory->at_front);
}

static void *arena_part(const arena *memory, size_t bytes, bool at_front)
{
    assert_true(bytes <= memory->bytes);
    return at_front ? memory->at_front : memory->at_end + (memory->bytes - bytes);
}

static void arena_fill(const arena *memory, muonium_dtype dtype, test_rng *rng)
{
    size_t count = memory->bytes / muonium_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        double value = test_normal(rng);
        test_set_element(memory->at_end, dtype, (ptrdiff_t)i, value);
        test_set_element(memory->at_front, dtype, (ptrdiff_t)i, value);
    }
}

typedef struct pack_case {
    const mu_kernel *kernel;
    bool a;              /* pack_a, else pack_b */
    arena source, other; /* filled with elements of the type of the source */
    arena packed;
    muonium_dtype dtype;
    size_t lines, depth;
    ptrdiff_t line_stride, k_stride;
    double scale, other_scale, shift;
    bool with_other;
    ptrdiff_t diagonal;
    size_t gap; /* elements between panels */
} pack_case;

static double expected_packed(const pack_case *c, const mu_pack_source *from, size_t line, size_t p)
{
    if (line >= c->lines || p >= c->depth) {
        return 0;
    }
    ptrdiff_t at = (ptrdiff_t)line * c->line_stride + (ptrdiff_t)p * c->k_stride;
    double value = test_element(from->data, c->dtype, at);
    value = multiply(c->kernel, value, c->scale);
    if (c->with_other) {
        double term = multiply(c->kernel, test_element(from->other, c->dtype, at), c->other_scale);
        value = add(c->kernel, value, term);
    }
    if ((ptrdiff_t)p == (ptrdiff_t)line + c->diagonal) {
        value = add(c->kernel, value, c->shift);
    }
    return rounded_to(c->kernel->operands, value);
}

/* `at_front` puts what is read, and what is written, against the page before. */
static void check_pack(const pack_case *c, bool at_front)
{
    size_t width = c->a ? c->kernel->mr : c->kernel->nr;
    size_t element = muonium_dtype_size(c->dtype);
    ptrdiff_t across = (ptrdiff_t)(c->lines - 1) * c->line_stride;
    ptrdiff_t along = (ptrdiff_t)(c->depth - 1) * c->k_stride;
    ptrdiff_t lowest = (across < 0 ? across : 0) + (along < 0 ? along : 0);
    ptrdiff_t highest = (across > 0 ? across : 0) + (along > 0 ? along : 0);
    size_t span = (size_t)(highest - lowest + 1) * element;
    ptrdiff_t origin = -lowest * (ptrdiff_t)element;
    mu_pack_source from = {.data = (char *)arena_part(&c->source, span, at_front) + origin,
                           .dtype = c->dtype,
                           .line_stride = c->line_stride,
                           .k_stride = c->k_stride,
                           .scale = c->scale,
                           .other_scale = c->other_scale,
                           .shift = c->shift,
                           .diagonal = c->diagonal,
                           .streaming = c->gap % 2 == 0};
    if (c->with_other) {
        from.other = (char *)arena_part(&c->other, span, at_front) + origin;
    }
    muonium_dtype operands = c->kernel->operands;
    size_t depth = packed_depth(c->kernel, c->depth);
    size_t panels = (c->lines + width - 1) / width, panel = width * depth;
    size_t stride = panel + c->gap, count = (panels - 1) * stride + panel;
    size_t bytes = count * muonium_dtype_size(operands);
    unsigned char *packed = arena_part(&c->packed, bytes, at_front);
    memset(packed, 0xff, bytes); /* NaN: what is not written shows */
    (c->a ? c->kernel->pack_a : c->kernel->pack_b)(&from, c->lines, c->depth, packed, stride);
    for (size_t at = 0; at < count; at++) {
        if (at % stride >= panel) { /* between the panels */
            assert_true(isnan(test_element(packed, operands, (ptrdiff_t)at)));
        } else {
            size_t l = at / stride * width + at % stride % width, s = at % stride / width;
            ptrdiff_t within = packed_at(c->kernel, c->a, s, l % width);
            ptrdiff_t place = (ptrdiff_t)(l / width * stride) + within;
            double got = test_element(packed, operands, place);
            double wanted = expected_packed(c, &from, l, s);
            if (got != wanted) {
                fail_msg("pack_%c of %s, %zu lines (stride %td), k = %zu (stride %td), other %d, "
                         "shift %g at %td: line %zu, k = %zu is %.17g, not %.17g",
                         c->a ? 'a' : 'b', test_dtype_name(c->dtype), c->lines, c->line_stride,
                         c->depth, c->k_stride, c->with_other, c->shift, c->diagonal, l, s, got,
                         wanted);
            }
        }
    }
}

static void with_strides(pack_case *c, size_t layout)
{
    ptrdiff_t lines = (ptrdiff_t)c->lines, depth = (ptrdiff_t)c->depth;
    const ptrdiff_t strides[][2] = {
        {1, lines},      {1, lines + 3}, {1, -lines - 1},      {depth, 1},  {depth + 5, 1},
        {-depth - 1, 1}, {2, 2 * lines}, {-2 * depth - 1, -2}, {-1, lines}, {depth, -1},
    };
    c->line_stride = strides[layout][0];
    c->k_stride = strides[layout][1];
}

enum { PACK_LAYOUTS = 10, PACK_UNIT_LAYOUTS = 6 /* the first: one stride is 1 */ };

/* Everything that is not a size or a stride, at random. */
static void with_random_terms(pack_case *c, size_t layout, test_rng *rng)
{
    size_t extent = c->lines + c->depth;
    c->scale = test_below(rng, 2) == 0 ? 1 : test_normal(rng);
    c->with_other =
        c->dtype == c->kernel->type && layout < PACK_UNIT_LAYOUTS && test_below(rng, 2) == 0;
    c->other_scale = test_normal(rng);
    c->shift = test_below(rng, 2) == 0 ? 0 : test_normal(rng);
    /* From just before the last line's first element to just past the first's last. */
    c->diagonal = (ptrdiff_t)test_below(rng, extent + 3) - (ptrdiff_t)c->lines - 1;
}

static void check_packing(const mu_kernel *kernel, bool a)
{
    test_rng rng = test_rng_start(a ? "pack_a" : "pack_b");
    enum { MOST_PANELS = 3, MOST_GAP = 5 };
    enum { MOST_ELEMENTS = (2 * LONGEST + MOST_GAP) * MOST_LANES * MOST_PANELS * 2 };
    pack_case c = {.kernel = kernel,
                   .a = a,
                   .source = arena_new(MOST_ELEMENTS * sizeof(double)),
                   .other = arena_new(MOST_ELEMENTS * sizeof(double)),
                   .packed =
                       arena_new((LONGEST * MOST_LANES + MOST_GAP) * MOST_PANELS * sizeof(double))};
    size_t width = a ? kernel->mr : kernel->nr;
    for (int dtype = MUONIUM_F32; dtype <= MUONIUM_F16; dtype++) {
        c.dtype = (muonium_dtype)dtype;
        arena_fill(&c.source, c.dtype, &rng);
        arena_fill(&c.other, c.dtype, &rng);
        for (size_t layout = 0; layout < PACK_LAYOUTS; layout++) {
            for (size_t n = 1; n <= width + 2; n++) {
                for (size_t l = 1; l <= 68; l++) {
                    size_t more = width + 1 + test_below(&rng, (MOST_PANELS - 1) * width);
                    c.lines = n <= width ? n : more;
                    c.depth = l <= 67 ? l : LONGEST;
                    c.gap = packed_depth(kernel, test_below(&rng, MOST_GAP));
                    with_strides(&c, layout);
                    with_random_terms(&c, layout, &rng);
                    check_pack(&c, test_below(&rng, 2) == 0);
                }
            }
        }
    }
    arena_free(&c.source);
    arena_free(&c.other);
    arena_free(&c.packed);
}

static void test_pack_a(void **state)
{
    check_packing(*(const mu_kernel **)*state, true);
}

static void test_pack_b(void **state)
{
    check_packing(*(const mu_kernel **)*state, false);
}

/* ---- mirror ---- */

static void check_mirror(const mu_kernel *kernel, size_t n, size_t i0, size_t i1, size_t j0,
                         size_t j1)
{
    test_matrix c = test_matrix_new(kernel->type, n, n, (ptrdiff_t)n + 2, 1, n % 2 == 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            test_matrix_set(&c, i, j, (double)(i * n + j));
        }
    }
    kernel->rows->mirror(c.data, c.row_stride, i0, i1, j0, j1);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            bool mirrored = i < j && j >= i0 && j < i1 && i >= j0 && i < j1;
            double wanted = (double)(mirrored ? j * n + i : i * n + j);
            double got = test_matrix_get(&c, i, j);
            if (got != wanted) {
                fail_msg("rows [%zu, %zu), columns [%zu, %zu) of %zu: (%zu, %zu) is %g, not %g", i0,
                         i1, j0, j1, n, i, j, got, wanted);
            }
        }
    }
    assert_true(test_matrix_gaps_intact(&c));
    test_matrix_free(&c);
}

static void test_mirror(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("mirror");
    for (size_t n = 1; n <= 67; n++) {
        check_mirror(kernel, n, 0, n, 0, n);
        for (int repeat = 0; repeat < 20; repeat++) {
            size_t i0 = test_below(&rng, n + 1), j0 = test_below(&rng, n + 1);
            size_t i1 = i0 + test_below(&rng, n - i0 + 1), j1 = j0 + test_below(&rng, n - j0 + 1);
            check_mirror(kernel, n, i0, i1, j0, j1);
        }
    }
}

/* ---- finish ---- */

static test_matrix random_matrix(const mu_kernel *kernel, size_t rows, size_t cols, test_rng *rng)
{
    ptrdiff_t ld = (ptrdiff_t)(cols + test_below(rng, 4));
    test_matrix m = test_matrix_new(kernel->type, rows, cols, ld, 1, test_below(rng, 2) == 0);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            test_matrix_set(&m, i, j, draw(kernel, rng, false));
        }
    }
    return m;
}

/* c and sum as the contract defines them, bit for bit; beyond the diagonal nothing but what a
 * vector may reach is changed. */
static void check_epilogue(const mu_kernel *kernel, size_t rows, size_t cols, bool lower,
                           size_t terms, test_rng *rng)
{
    test_matrix c = random_matrix(kernel, rows, cols, rng);
    test_matrix before = test_matrix_new(kernel->type, rows, cols, (ptrdiff_t)cols, 1, false);
    test_matrix sum = random_matrix(kernel, rows, cols, rng);
    test_matrix sum_before = test_matrix_new(kernel->type, rows, cols, (ptrdiff_t)cols, 1, false);
    for (size_t i = 0; i < rows * cols; i++) {
        test_matrix_set(&before, i / cols, i % cols, test_matrix_get(&c, i / cols, i % cols));
        test_matrix_set(&sum_before, i / cols, i % cols, test_matrix_get(&sum, i / cols, i % cols));
    }
    test_matrix term[3];
    mu_epilogue f = {.scale = test_below(rng, 2) == 0 ? 1 : draw(kernel, rng, false),
                     .term_count = terms,
                     .shift = lower ? draw(kernel, rng, false) : 0,
                     .sum = test_below(rng, 3) == 0 ? NULL : sum.data,
                     .sum_ld = sum.row_stride,
                     .sum_factor = draw(kernel, rng, false),
                     .accumulate = test_below(rng, 2) == 0};
    for (size_t t = 0; t < terms; t++) {
        term[t] = random_matrix(kernel, rows, cols, rng);
        f.terms[t].data = term[t].data;
        f.terms[t].ld = term[t].row_stride;
        f.terms[t].factor = draw(kernel, rng, false);
    }
    kernel->rows->epilogue(c.data, c.row_stride, rows, cols, lower, &f);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double was = test_matrix_get(&before, i, j), got = test_matrix_get(&c, i, j);
            double total = test_matrix_get(&sum_before, i, j),
                   total_got = test_matrix_get(&sum, i, j);
            if (lower && j > i) {
                bool near = j < (i / kernel->nr + 1) * kernel->nr;
                assert_true(near || (got == was && total_got == total));
                continue;
            }
            double value = multiply(kernel, was, f.scale);
            for (size_t t = 0; t < terms; t++) {
                double more = multiply(kernel, test_matrix_get(&term[t], i, j), f.terms[t].factor);
                value = add(kernel, value, more);
            }
            value = i == j ? add(kernel, value, f.shift) : value;
            double more = multiply(kernel, value, f.sum_factor);
            assert_true(got == value);
            assert_true(total_got == (!f.sum         ? total
                                      : f.accumulate ? add(kernel, total, more)
                                                     : more));
        }
    }
    assert_true(test_matrix_gaps_intact(&c) && test_matrix_gaps_intact(&sum));
    for (size_t t = 0; t < terms; t++) {
        test_matrix_free(&term[t]);
    }
    test_matrix_free(&c);
    test_matrix_free(&before);
    test_matrix_free(&sum);
    test_matrix_free(&sum_before);
}

static void test_epilogue(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    test_rng rng = test_rng_start("finish");
    for (size_t n = 1; n <= 40; n++) {
        for (size_t terms = 0; terms <= 3; terms++) {
            check_epilogue(kernel, n, n, true, terms, &rng);
            check_epilogue(kernel, n, 1 + test_below(&rng, 40), false, terms, &rng);
        }
    }
}

/* Every round is so many operations, whole vectors of them: of pairs twice as many. The columns of
 * a tile are whole vectors too, of a power of two of elements. */
static void test_burst(void **state)
{
    const mu_kernel *kernel = *(const mu_kernel **)*state;
    double one = test_kernel_burst(kernel, 1);
    size_t pair = kernel->operands == MUONIUM_BF16 ? 2 : 1;
    size_t vectors = kernel->nr & (~kernel->nr + 1);
    assert_true(one > 0 && fmod(one, (double)(pair * vectors)) == 0);
    for (size_t rounds = 0; rounds <= 40; rounds += 8) {
        assert_true(test_kernel_burst(kernel, rounds) == (double)rounds * one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile),     cmocka_unit_test(test_pack_a),
        cmocka_unit_test(test_pack_b),   cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_epilogue), cmocka_unit_test(test_burst),
    };
    return test_with_every_kernel(tests);
}
