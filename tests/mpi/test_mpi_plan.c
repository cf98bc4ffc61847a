/*
 * test_mpi_plan.c: pieces cover every element once, plans are reproducible, balanced and
 * within the bound of longest-first packing.
 */
#include "test.h"

#include "muonium_mpi_plan.h"
#include "private/private.h"

enum { MOST_PARAMETERS = 40 };

typedef struct model {
    muonium_optimizer *description;
    size_t elements[MOST_PARAMETERS];
    size_t count;
} model;

/* Nothing reads the data: any address will do. */
static void add(model *m, muonium_tensor tensor)
{
    static uintptr_t next = 1 << 16;
    size_t elements = 1;
    for (size_t d = 0; d < tensor.ndim; d++) {
        elements *= tensor.shape[d];
    }
    tensor.data = (void *)next;
    next += 4 * elements * sizeof(float); /* strides up to 4 */
    assert_ok(muonium_add(m->description, &tensor, NULL));
    m->elements[m->count++] = elements;
}

static model make_model(void)
{
    static const size_t splits[] = {64, 32, 32};
    model m = {.count = 0};
    assert_ok(muonium_create_description(NULL, &m.description));
    add(&m, (muonium_tensor){.name = "embedding", .ndim = 2, .shape = {5000, 130}});
    add(&m,
        (muonium_tensor){
            .name = "experts", .ndim = 3, .shape = {9, 48, 96}, .layout = MUONIUM_LAYOUT_EXPERTS});
    add(&m, (muonium_tensor){.name = "qkv",
                             .ndim = 2,
                             .shape = {128, 64},
                             .row_splits = splits,
                             .row_split_count = 3});
    add(&m, (muonium_tensor){.name = "heads", .ndim = 2, .shape = {128, 64}, .heads = 4});
    add(&m,
        (muonium_tensor){
            .name = "conv", .ndim = 4, .shape = {32, 16, 3, 3}, .layout = MUONIUM_LAYOUT_SPATIAL});
    add(&m,
        (muonium_tensor){
            .name = "strided.bias", .ndim = 1, .shape = {600}, .strides = (const ptrdiff_t[]){3}});
    for (size_t i = 0; i < 12; i++) {
        add(&m, (muonium_tensor){.ndim = 2, .shape = {96 + 16 * (i % 3), 64}});
    }
    add(&m, (muonium_tensor){.name = "scalar"});
    add(&m, (muonium_tensor){.name = "empty", .ndim = 3, .shape = {4, 0, 8}});
    return m;
}

/* Every element of every parameter is in exactly one piece. */
static void check_cover(const model *m, const muonium_mpi_plan *plan)
{
    muonium_mpi_plan_info info;
    assert_ok(muonium_mpi_plan_describe(plan, &info));
    for (size_t p = 0; p < m->count; p++) {
        unsigned char *seen = calloc(m->elements[p], 1);
        assert_non_null(seen);
        for (size_t i = 0; i < info.pieces; i++) {
            muonium_mpi_piece piece;
            assert_ok(muonium_mpi_plan_piece(plan, i, &piece));
            assert_in_range(piece.owner, 0, info.ranks - 1);
            for (size_t r = 0; piece.parameter == p && r < piece.runs; r++) {
                for (size_t j = 0; j < piece.run; j++) {
                    size_t at = piece.first + r * piece.stride + j;
                    assert_true(at < m->elements[p]);
                    seen[at]++;
                }
            }
        }
        for (size_t e = 0; e < m->elements[p]; e++) {
            assert_int_equal(seen[e], 1);
        }
        free(seen);
    }
}

static void every_element_has_one_owner(void **state)
{
    (void)state;
    model m = make_model();
    const int ranks[] = {1, 2, 3, 4, 7, 64, 1000};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        muonium_mpi_plan *plan;
        assert_ok(muonium_mpi_plan_create(m.description, ranks[i], NULL, &plan));
        check_cover(&m, plan);
        muonium_mpi_plan_destroy(plan);
    }
    muonium_destroy(m.description);
}

static void plans_are_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        model m = make_model();
        muonium_mpi_plan *plan;
        muonium_mpi_plan_info info;
        assert_ok(muonium_mpi_plan_create(m.description, i < 2 ? 5 : 6, NULL, &plan));
        assert_ok(muonium_mpi_plan_describe(plan, &info));
        hashes[i] = info.hash;
        muonium_mpi_plan_destroy(plan);
        muonium_destroy(m.description);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

/* Longest first is at most 4/3 of the best, and the best is no less than the average or
 * the longest piece. */
static void loads_are_balanced(void **state)
{
    (void)state;
    model m = make_model();
    for (int ranks = 1; ranks <= 9; ranks++) {
        muonium_mpi_plan *plan;
        muonium_mpi_plan_info info;
        double longest = 0, sum = 0, busiest = 0;
        uint64_t elements = 0;
        size_t pieces = 0;
        assert_ok(muonium_mpi_plan_create(m.description, ranks, NULL, &plan));
        assert_ok(muonium_mpi_plan_describe(plan, &info));
        for (size_t i = 0; i < info.pieces; i++) {
            muonium_mpi_piece piece;
            assert_ok(muonium_mpi_plan_piece(plan, i, &piece));
            assert_true(piece.seconds > 0 || piece.run == 0);
            longest = piece.seconds > longest ? piece.seconds : longest;
            sum += piece.seconds;
        }
        for (int r = 0; r < ranks; r++) {
            muonium_mpi_share load;
            assert_ok(muonium_mpi_plan_share(plan, r, &load));
            busiest = load.seconds > busiest ? load.seconds : busiest;
            elements += load.elements;
            pieces += load.pieces;
            assert_int_equal(load.gradient_bytes, 4 * (info.elements - load.elements));
        }
        double least = sum / ranks > longest ? sum / ranks : longest;
        assert_true(busiest == info.largest && busiest <= 4.0 / 3 * least);
        assert_int_equal(elements, info.elements);
        assert_int_equal(pieces, info.pieces);
        muonium_mpi_plan_destroy(plan);
    }
    muonium_destroy(m.description);
}

static void large_matrices_are_cut_by_columns(void **state)
{
    (void)state;
    for (int tall = 0; tall < 2; tall++) {
        model m = {.count = 0};
        muonium_mpi_plan *plan;
        muonium_mpi_plan_info info;
        muonium_mpi_plan_options options;
        muonium_tensor wide = {.ndim = 2, .shape = {tall ? 4096 : 64, tall ? 64 : 4096}};
        assert_ok(muonium_create_description(NULL, &m.description));
        add(&m, wide);
        add(&m, (muonium_tensor){.ndim = 1, .shape = {64}});
        assert_ok(muonium_mpi_plan_create(m.description, 4, NULL, &plan));
        assert_ok(muonium_mpi_plan_describe(plan, &info));
        assert_int_equal(info.split, 1);
        assert_int_equal(info.pieces, 5);
        assert_true(info.triangles > 0);
        check_cover(&m, plan);
        muonium_mpi_plan_destroy(plan);
        muonium_mpi_plan_options_init(&options);
        options.split = false;
        assert_ok(muonium_mpi_plan_create(m.description, 4, &options, &plan));
        assert_ok(muonium_mpi_plan_describe(plan, &info));
        assert_int_equal(info.split, 0);
        assert_int_equal(info.pieces, 2);
        muonium_mpi_plan_destroy(plan);
        muonium_destroy(m.description);
    }
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    model m = make_model();
    muonium_mpi_plan *plan = NULL;
    muonium_mpi_plan_options options;
    muonium_mpi_share load;
    muonium_mpi_piece piece;
    muonium_optimizer *empty;
    assert_ok(muonium_create_description(NULL, &empty));
    assert_status_message(muonium_mpi_plan_create(NULL, 1, NULL, &plan), MUONIUM_INVALID,
                          "description is NULL");
    assert_status_message(muonium_mpi_plan_create(m.description, 0, NULL, &plan), MUONIUM_INVALID,
                          "ranks is 0");
    assert_status_message(muonium_mpi_plan_create(empty, 1, NULL, &plan), MUONIUM_INVALID,
                          "no parameters");
    muonium_mpi_plan_options_init(&options);
    options.flops = 0;
    assert_status_message(muonium_mpi_plan_create(m.description, 2, &options, &plan),
                          MUONIUM_INVALID, "flops is 0");
    assert_ok(muonium_mpi_plan_create(m.description, 2, NULL, &plan));
    assert_status_message(muonium_mpi_plan_share(plan, 2, &load), MUONIUM_INVALID, "rank is 2");
    assert_status_message(muonium_mpi_plan_piece(plan, 100000, &piece), MUONIUM_INVALID,
                          "piece is 100000");
    muonium_mpi_plan_destroy(plan);
    muonium_mpi_plan_destroy(NULL);
    muonium_destroy(m.description);
    muonium_destroy(empty);
}

static void private_functions_are_for_one_version(void **state)
{
    (void)state;
    const mu_private *table = muonium_private(MUONIUM_VERSION_STRING);
    assert_non_null(table);
    assert_true(table->mu_alloc == mu_alloc && table->mu_fail == mu_fail);
    assert_null(muonium_private("0.0.1"));
    assert_string_equal(muonium_last_error(),
                        "libmuonium_mpi 0.0.1 runs with libmuonium " MUONIUM_VERSION_STRING
                        ": install both of one version");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_owner),
        cmocka_unit_test(plans_are_the_same_everywhere),
        cmocka_unit_test(loads_are_balanced),
        cmocka_unit_test(large_matrices_are_cut_by_columns),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(private_functions_are_for_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
