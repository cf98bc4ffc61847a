/*
 * test_layout.c: walks and matrices against index by index arithmetic that knows nothing
 * of joined loops, for random shapes, strides and layouts; and every error message.
 */
#include "test.h"

#include "optimizer/optimizer.h"

#define STRIDES(...) ((const ptrdiff_t[]){__VA_ARGS__})
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_ELEMENTS = 65536 }; /* 4^8 */

static muonium_options default_options(void)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    return options;
}

/* ---- the naive view of a tensor ---- */

/* Index in each dimension of `axes`, in their order, of the `index`-th of all
 * combinations; other dimensions stay. */
static void unravel(const muonium_tensor *t, uint32_t axes, size_t index, size_t *at)
{
    for (size_t d = t->ndim; d-- > 0;) {
        if (axes >> d & 1) {
            at[d] = index % t->shape[d];
            index /= t->shape[d];
        }
    }
}

static size_t extent(const muonium_tensor *t, uint32_t axes)
{
    size_t product = 1;
    for (size_t d = 0; d < t->ndim; d++) {
        product *= axes >> d & 1 ? t->shape[d] : 1;
    }
    return product;
}

static ptrdiff_t place(const muonium_tensor *t, const ptrdiff_t *strides, const size_t *at)
{
    ptrdiff_t given = 0, dense = 0;
    for (size_t d = 0; d < t->ndim; d++) {
        given += strides ? (ptrdiff_t)at[d] * strides[d] : 0;
        dense = dense * (ptrdiff_t)t->shape[d] + (ptrdiff_t)at[d];
    }
    return strides ? given : dense;
}

static void assert_place(const muonium_tensor *t, const size_t *at, ptrdiff_t data, ptrdiff_t grad,
                         ptrdiff_t state)
{
    assert_int_equal(data, place(t, t->strides, at));
    assert_int_equal(grad, place(t, t->grad_strides, at));
    assert_int_equal(state, place(t, NULL, at));
}

/* ---- random tensors ---- */

/* Strides of an array whose dimensions lie in random order, some backwards, some with
 * gaps, some broadcast; or NULL. */
static const ptrdiff_t *random_strides(test_rng *rng, const muonium_tensor *t, ptrdiff_t *strides)
{
    static const size_t gaps[] = {0, 0, 0, 1, 5};
    const size_t style = test_below(rng, 5); /* left out; permuted; gaps; signs; broadcast */
    size_t order[MUONIUM_MAX_DIMS];
    for (size_t d = 0; d < MUONIUM_MAX_DIMS; d++) {
        order[d] = d;
    }
    if (style == 0) {
        return NULL;
    }
    for (size_t d = t->ndim; d > 1; d--) {
        size_t other = test_below(rng, 2) ? d - 1 : test_below(rng, d), swap = order[d - 1];
        order[d - 1] = order[other];
        order[other] = swap;
    }
    ptrdiff_t stride = 1;
    for (size_t i = t->ndim; i-- > 0;) {
        const size_t d = order[i];
        strides[d] = style == 3 && test_below(rng, 3) == 0 ? -stride : stride;
        strides[d] = style == 4 && test_below(rng, 3) > 0 ? 0 : strides[d];
        /* What a dimension of size 1 says must not matter. */
        strides[d] = t->shape[d] == 1 ? (ptrdiff_t)test_below(rng, 1000) : strides[d];
        stride *= (ptrdiff_t)t->shape[d];
        stride += style >= 2 ? (ptrdiff_t)gaps[test_below(rng, COUNT(gaps))] : 0;
    }
    return strides;
}

/* Its strides are valid until the next. */
static muonium_tensor random_tensor(test_rng *rng)
{
    static ptrdiff_t strides[2][MUONIUM_MAX_DIMS];
    muonium_tensor t = {.ndim = test_below(rng, MUONIUM_MAX_DIMS + 1)};
    for (size_t d = 0; d < t.ndim; d++) {
        t.shape[d] = 1 + test_below(rng, t.ndim > 4 ? 3 : 7);
    }
    t.strides = random_strides(rng, &t, strides[0]);
    t.grad_strides = test_below(rng, 2) ? random_strides(rng, &t, strides[1]) : t.strides;
    return t;
}

/* A layout that fits the tensor, and the dimensions that it should make rows and
 * columns of. */
static void random_layout(test_rng *rng, muonium_tensor *t, muonium_options *o, uint32_t *out,
                          uint32_t *in)
{
    const uint32_t all = (1u << t->ndim) - 1;
    o->layout_3d = test_below(rng, 2) ? MUONIUM_LAYOUT_EXPERTS
                                      : (muonium_layout)test_below(rng, 2); /* auto or flatten */
    t->layout = (muonium_layout)test_below(rng, 5);
    if (t->ndim < (t->layout == MUONIUM_LAYOUT_SPATIAL ? 3 : 2)) {
        t->layout = test_below(rng, 2) ? MUONIUM_LAYOUT_AUTO : MUONIUM_LAYOUT_FLATTEN;
    }
    *out = t->ndim < 2 ? 0 : 1;
    *in = all & ~*out;
    if (t->layout == MUONIUM_LAYOUT_SPATIAL) {
        *in = 2;
    } else if (t->layout == MUONIUM_LAYOUT_EXPERTS ||
               (t->layout == MUONIUM_LAYOUT_AUTO && t->ndim == 3 &&
                o->layout_3d == MUONIUM_LAYOUT_EXPERTS)) {
        *out = 1u << (t->ndim - 2);
        *in = 1u << (t->ndim - 1);
    } else if (t->layout == MUONIUM_LAYOUT_FAN) {
        do {
            *out = (uint32_t)test_bits(rng) & all;
            *in = (uint32_t)test_bits(rng) & all & ~*out;
        } while (*out == 0 || *in == 0);
        t->out_axes = *out;
        t->in_axes = *in;
    }
}

/* Split `rows` into blocks, in `sizes`, or into heads, or not. Returns the number of
 * blocks. */
static size_t random_split(test_rng *rng, muonium_tensor *t, size_t rows, size_t *sizes)
{
    size_t blocks = 0;
    switch (test_below(rng, 3)) {
    case 0:
        for (size_t left = rows; left > 0; left -= sizes[blocks++]) {
            sizes[blocks] = 1 + test_below(rng, left);
        }
        t->row_splits = sizes;
        t->row_split_count = blocks;
        return blocks;
    case 1:
        do {
            t->heads = 1 + test_below(rng, rows);
        } while (rows % t->heads != 0);
        for (size_t i = 0; i < t->heads; i++) {
            sizes[i] = rows / t->heads;
        }
        return t->heads;
    default:
        sizes[0] = rows;
        return 1;
    }
}

/* ---- walks ---- */

/* A walk has no loop that takes no step, and no two that could be one. */
static void assert_joined(const mu_walk *walk)
{
    size_t total = 1;
    assert_in_range(walk->levels, 1, MUONIUM_MAX_DIMS);
    for (size_t k = 0; k < walk->levels; k++) {
        total *= walk->count[k];
        assert_true(walk->count[k] > 1 || walk->total == 1);
        if (k > 0) {
            ptrdiff_t count = (ptrdiff_t)walk->count[k];
            assert_false(walk->data[k - 1] == walk->data[k] * count &&
                         walk->grad[k - 1] == walk->grad[k] * count &&
                         walk->state[k - 1] == walk->state[k] * count);
        }
    }
    assert_int_equal(walk->total, total);
}

static void test_random_walks(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("walks");
    for (int round = 0; round < 400; round++) {
        muonium_tensor t = random_tensor(&rng);
        const uint32_t all = (1u << t.ndim) - 1;
        mu_walk walk;
        memset(&walk, 0xa5, sizeof walk);
        mu_walk_all(&t, &walk);
        assert_joined(&walk);
        assert_int_equal(walk.total, extent(&t, all));
        for (size_t i = 0; i < walk.total; i++) {
            size_t at[MUONIUM_MAX_DIMS] = {0};
            unravel(&t, all, i, at);
            mu_offset found = mu_walk_to(&walk, i);
            assert_place(&t, at, found.data, found.grad, found.state);
        }
    }
}

static void test_known_walks(void **state)
{
    (void)state;
    const struct {
        muonium_tensor tensor;
        size_t levels;
    } cases[] = {
        {{.ndim = 0}, 1},
        {{.ndim = 1, .shape = {64}}, 1},
        {{.ndim = 4, .shape = {6, 3, 4, 4}}, 1},
        {{.ndim = 2, .shape = {6, 4}, .strides = STRIDES(4, 1), .grad_strides = STRIDES(4, 1)}, 1},
        /* One array of the three that steps otherwise keeps the loops apart. */
        {{.ndim = 2, .shape = {6, 4}, .strides = STRIDES(1, 6)}, 2},
        {{.ndim = 2, .shape = {6, 4}, .grad_strides = STRIDES(1, 6)}, 2},
        {{.ndim = 2, .shape = {6, 4}, .strides = STRIDES(5, 1)}, 2},
        {{.ndim = 3, .shape = {2, 6, 4}, .strides = STRIDES(30, 5, 1)}, 2}, /* padded rows */
        {{.ndim = 3, .shape = {2, 6, 4}, .strides = STRIDES(40, 4, 1)}, 2}, /* padded matrices */
        /* Backwards, but evenly. */
        {{.ndim = 2, .shape = {6, 4}, .strides = STRIDES(-4, -1), .grad_strides = STRIDES(-4, -1)},
         1},
        {{.ndim = 2, .shape = {6, 4}, .strides = STRIDES(-4, 1)}, 2},
        {{.ndim = 2, .shape = {6, 4}, .grad_strides = STRIDES(0, 1)}, 2}, /* one row for all */
        {{.ndim = 2, .shape = {6, 4}, .grad_strides = STRIDES(0, 0)}, 1}, /* one element for all */
        {{.ndim = 3, .shape = {6, 1, 4}, .strides = STRIDES(4, 999, 1)}, 1},
        {{.ndim = 3, .shape = {6, 4, 1}, .strides = STRIDES(4, 1, 999)}, 1},
        {{.ndim = 3, .shape = {1, 6, 4}, .strides = STRIDES(-7, 4, 1)}, 1},
        {{.ndim = 2, .shape = {1, 1}, .strides = STRIDES(3, 5)}, 1},
        /* A product of strides beyond the type is not a stride. */
        {{.ndim = 2, .shape = {2, 4}, .grad_strides = STRIDES(4, PTRDIFF_MAX)}, 2},
        {{.ndim = 2, .shape = {2, 4}, .grad_strides = STRIDES(4, PTRDIFF_MIN)}, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        mu_walk walk;
        mu_walk_all(&cases[i].tensor, &walk);
        if (walk.levels != cases[i].levels) {
            fail_msg("case %zu has %zu levels, expected %zu", i, walk.levels, cases[i].levels);
        }
    }
}

/* ---- matrices ---- */

static void test_random_matrices(void **state)
{
    (void)state;
    static bool seen[MAX_ELEMENTS];
    static size_t sizes[MAX_ELEMENTS];
    test_rng rng = test_rng_start("matrices");
    for (int round = 0; round < 1000; round++) {
        muonium_tensor t = random_tensor(&rng);
        muonium_options o = default_options();
        uint32_t out, in;
        random_layout(&rng, &t, &o, &out, &in);
        const uint32_t others = ((1u << t.ndim) - 1) & ~(out | in);
        const size_t blocks = random_split(&rng, &t, extent(&t, out), sizes);

        mu_matrices m;
        memset(&m, 0xa5, sizeof m);
        assert_ok(mu_layout_of(&t, "w", &o, &m));
        assert_joined(&m.batch);
        assert_joined(&m.rows);
        assert_joined(&m.cols);
        assert_int_equal(m.blocks, blocks);
        assert_ptr_equal(m.sizes, t.row_splits);
        assert_int_equal(m.count, extent(&t, others) * blocks);
        assert_int_equal(m.positions, t.layout == MUONIUM_LAYOUT_SPATIAL ? extent(&t, others) : 1);

        memset(seen, 0, sizeof seen);
        size_t visited = 0;
        for (size_t k = 0; k < m.count; k++) {
            const mu_matrix_place place_of = mu_matrix_at(&m, k);
            size_t first = 0;
            for (size_t b = 0; b < k % blocks; b++) {
                first += sizes[b];
            }
            assert_int_equal(place_of.first_row, first);
            assert_int_equal(place_of.rows, sizes[k % blocks]);
            assert_int_equal(place_of.cols, extent(&t, in));
            for (size_t i = 0; i < place_of.rows; i++) {
                const mu_offset row = mu_walk_to(&m.rows, place_of.first_row + i);
                for (size_t j = 0; j < place_of.cols; j++) {
                    const mu_offset col = mu_walk_to(&m.cols, j);
                    size_t at[MUONIUM_MAX_DIMS] = {0};
                    unravel(&t, others, k / blocks, at);
                    unravel(&t, out, first + i, at);
                    unravel(&t, in, j, at);
                    const ptrdiff_t element = place_of.base.state + row.state + col.state;
                    assert_place(&t, at, place_of.base.data + row.data + col.data,
                                 place_of.base.grad + row.grad + col.grad, element);
                    assert_false(seen[element]);
                    seen[element] = true;
                    visited++;
                }
            }
        }
        assert_int_equal(visited, extent(&t, (1u << t.ndim) - 1));
    }
}

static void test_known_matrices(void **state)
{
    (void)state;
    static const size_t qkv[] = {8, 2, 2};
    static const struct {
        muonium_tensor tensor;
        muonium_layout layout_3d;
        size_t count, rows, cols, positions;
    } cases[] = {
        {{.ndim = 2, .shape = {64, 128}}, 1, 1, 64, 128, 1},
        {{.ndim = 4, .shape = {96, 3, 4, 4}}, 1, 1, 96, 48, 1},
        {{.ndim = 4, .shape = {96, 3, 4, 4}, .layout = MUONIUM_LAYOUT_SPATIAL}, 1, 16, 96, 3, 16},
        {{.ndim = 3, .shape = {8, 16, 32}}, MUONIUM_LAYOUT_AUTO, 1, 8, 512, 1},
        {{.ndim = 3, .shape = {8, 16, 32}}, MUONIUM_LAYOUT_FLATTEN, 1, 8, 512, 1},
        {{.ndim = 3, .shape = {8, 16, 32}}, MUONIUM_LAYOUT_EXPERTS, 8, 16, 32, 1},
        /* layout_3d speaks of three dimensions only, and not of tensors with a layout. */
        {{.ndim = 4, .shape = {2, 8, 16, 32}}, MUONIUM_LAYOUT_EXPERTS, 1, 2, 4096, 1},
        {{.ndim = 2, .shape = {16, 32}}, MUONIUM_LAYOUT_EXPERTS, 1, 16, 32, 1},
        {{.ndim = 3, .shape = {8, 16, 32}, .layout = MUONIUM_LAYOUT_FLATTEN},
         MUONIUM_LAYOUT_EXPERTS,
         1,
         8,
         512,
         1},
        {{.ndim = 4, .shape = {2, 8, 16, 32}, .layout = MUONIUM_LAYOUT_EXPERTS}, 1, 16, 16, 32, 1},
        {{.ndim = 2, .shape = {16, 32}, .layout = MUONIUM_LAYOUT_EXPERTS}, 1, 1, 16, 32, 1},
        {{.ndim = 3,
          .shape = {16, 3, 32},
          .layout = MUONIUM_LAYOUT_FAN,
          .out_axes = 4,
          .in_axes = 1},
         1,
         3,
         32,
         16,
         1},
        {{.ndim = 2, .shape = {12, 32}, .row_splits = qkv, .row_split_count = 3}, 1, 3, 8, 32, 1},
        {{.ndim = 2, .shape = {12, 32}, .heads = 3}, 1, 3, 4, 32, 1},
        {{.ndim = 3, .shape = {5, 12, 32}, .layout = MUONIUM_LAYOUT_EXPERTS, .heads = 3},
         1,
         15,
         4,
         32,
         1},
        {{.ndim = 1, .shape = {64}}, 1, 1, 1, 64, 1},
        {{.ndim = 0}, 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muonium_options o = default_options();
        mu_matrices m;
        o.layout_3d = cases[i].layout_3d;
        assert_ok(mu_layout_of(&cases[i].tensor, "w", &o, &m));
        const mu_matrix_place first = mu_matrix_at(&m, 0);
        if (m.count != cases[i].count || first.rows != cases[i].rows ||
            first.cols != cases[i].cols || m.positions != cases[i].positions) {
            fail_msg("case %zu: %zu matrices of %zu x %zu, %zu positions", i, m.count, first.rows,
                     first.cols, m.positions);
        }
    }
}

/* Rows of dimensions that are neighbours in the caller's arrays, but not in ours. */
static void test_state_apart(void **state)
{
    (void)state;
    const muonium_tensor t = {.ndim = 3,
                              .shape = {2, 5, 3},
                              .strides = STRIDES(3, 6, 1),
                              .grad_strides = STRIDES(3, 6, 1),
                              .layout = MUONIUM_LAYOUT_FAN,
                              .out_axes = 5,
                              .in_axes = 2};
    const muonium_options o = default_options();
    mu_matrices m;
    assert_ok(mu_layout_of(&t, "w", &o, &m));
    assert_int_equal(m.rows.levels, 2);
    const mu_offset last = mu_walk_to(&m.rows, 5);
    assert_int_equal(last.data, 5);
    assert_int_equal(last.grad, 5);
    assert_int_equal(last.state, 17);
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    (void)state;
    static const size_t zero[] = {8, 0, 4}, few[] = {8, 3}, many[] = {8, 5},
                        huge[] = {8, SIZE_MAX - 7, 12};
    const size_t big = (size_t)1 << (sizeof(size_t) * 4);
    const struct {
        muonium_tensor tensor;
        const char *message;
    } cases[] = {
        {{.ndim = 9}, "ndim of h.w is 9: use at most 8"},
        {{.ndim = 3, .shape = {0, big, big}}, "shape[2] of h.w is"},
        {{.ndim = 2, .shape = {big, big}}, "do not fit into the address space"},
        {{.ndim = 3, .shape = {big, big / 32, 2}}, "shape[2] of h.w is 2"},
        {{.ndim = 2, .shape = {12, 8}, .layout = (muonium_layout)5}, "layout of h.w is 5"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_SPATIAL}, "ndim of h.w is 2"},
        {{.ndim = 1, .shape = {12}, .layout = MUONIUM_LAYOUT_SPATIAL}, "at least 3"},
        {{.ndim = 1, .shape = {12}, .layout = MUONIUM_LAYOUT_EXPERTS}, "ndim of h.w is 1"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_FAN, .in_axes = 1},
         "out_axes of h.w is 0"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_FAN, .out_axes = 1},
         "in_axes of h.w is 0"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_FAN, .out_axes = 4, .in_axes = 1},
         "out_axes of h.w is 0x4"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_FAN, .out_axes = 1, .in_axes = 6},
         "in_axes of h.w is 0x6"},
        {{.ndim = 2, .shape = {12, 8}, .layout = MUONIUM_LAYOUT_FAN, .out_axes = 1, .in_axes = 3},
         "out_axes and in_axes of h.w are 0x1 and 0x3: a dimension is"},
        {{.ndim = 2, .shape = {12, 8}, .out_axes = 1, .in_axes = 2},
         "but its layout is auto: leave them 0 unless the layout is fan"},
        {{.ndim = 2, .shape = {12, 8}, .row_split_count = 2}, "row_split_count of h.w is 2"},
        {{.ndim = 2, .shape = {12, 8}, .row_splits = zero, .row_split_count = 3},
         "row_splits[1] of h.w is 0"},
        {{.ndim = 2, .shape = {12, 8}, .row_splits = few, .row_split_count = 2},
         "row_splits of h.w add up to 11: they must make up all 12 rows"},
        {{.ndim = 2, .shape = {12, 8}, .row_splits = many, .row_split_count = 2},
         "row_splits[1] of h.w is 5: it and the 8 rows before it exceed the 12 rows"},
        {{.ndim = 2, .shape = {12, 8}, .row_splits = huge, .row_split_count = 3},
         "it and the 8 rows before it exceed the 12 rows"},
        {{.ndim = 2, .shape = {8, 8}, .row_splits = few, .row_split_count = 1, .heads = 2},
         "heads of h.w is 2, and it has row_splits"},
        {{.ndim = 2, .shape = {12, 8}, .heads = 5}, "heads of h.w is 5: it must divide the 12"},
        {{.ndim = 2, .shape = {12, 8}, .heads = 24}, "heads of h.w is 24"},
        {{.ndim = 1, .shape = {12}, .heads = 2}, "it must divide the 1 rows"},
    };
    const muonium_options o = default_options();
    for (size_t i = 0; i < COUNT(cases); i++) {
        mu_matrices m, before;
        memset(&m, 0xa5, sizeof m);
        memset(&before, 0xa5, sizeof before);
        assert_status_message(mu_layout_of(&cases[i].tensor, "h.w", &o, &m), MUONIUM_INVALID,
                              cases[i].message);
        assert_memory_equal(&m, &before, sizeof m);
    }
}

/* Every layout has an entry of its own, and AUTO resolves to one. */
static void test_table(void **state)
{
    (void)state;
    muonium_options o = default_options();
    for (int layout = MUONIUM_LAYOUT_FLATTEN; layout <= MUONIUM_LAYOUT_FAN; layout++) {
        muonium_tensor t = {.ndim = 3, .shape = {4, 5, 6}, .layout = (muonium_layout)layout};
        const mu_layout *found = mu_resolve_layout(&t, &o);
        assert_int_equal(found->id, layout);
        assert_non_null(found->check);
        assert_non_null(found->axes);
    }
    muonium_tensor t = {.ndim = 2, .shape = {4, 5}};
    assert_int_equal(mu_resolve_layout(&t, &o)->id, MUONIUM_LAYOUT_FLATTEN);
    o.kernels_in_out = true;
    mu_axes axes = mu_resolve_layout(&t, &o)->axes(&t);
    assert_int_equal(axes.out, 2);
    assert_int_equal(axes.in, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_known_walks),    cmocka_unit_test(test_random_matrices),
        cmocka_unit_test(test_known_matrices), cmocka_unit_test(test_state_apart),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
