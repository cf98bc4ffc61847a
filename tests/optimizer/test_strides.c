/*
 * test_strides.c: dense, broadcast and empty arrays are told apart. A parameter whose
 * elements share memory is refused; a gradient whose elements do is read as what it stands
 * for and never written; a parameter without elements changes nothing. Arrays lie against
 * guard pages.
 */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "optimizer_model.h"

#define STRIDES(...) ((const ptrdiff_t[]){__VA_ARGS__})
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static muonium_optimizer *create(const muonium_options *options)
{
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(options, &optimizer));
    return optimizer;
}

/* ---- parameters ---- */

static void broadcast_parameters_are_refused(void **state)
{
    (void)state;
    const ptrdiff_t *const strides[] = {STRIDES(0, 0), STRIDES(0, 1), STRIDES(1, 0), STRIDES(1, 1),
                                        STRIDES(-1, 1)};
    static float grad[64 * 64];
    muonium_optimizer *optimizer = create(NULL);
    for (size_t i = 0; i < COUNT(strides); i++) {
        float *data = test_guarded_alloc(sizeof *data, 0);
        *data = 7;
        muonium_tensor tensor = {.name = "shared",
                                 .ndim = 2,
                                 .shape = {64, 64},
                                 .data = data,
                                 .grad = grad,
                                 .strides = strides[i]};
        assert_status_message(muonium_add(optimizer, &tensor, NULL), MUONIUM_INVALID,
                              "strides of shared: elements of the parameter would overlap");
        assert_int_equal(muonium_parameter_count(optimizer), 0);
        assert_true(*data == 7);
        test_guarded_free(data);
    }
    muonium_destroy(optimizer);
}

/* An extent of 1 takes no step, so a stride of 0 there is none. */
static void unused_zero_strides_are_no_broadcast(void **state)
{
    (void)state;
    float *data = test_guarded_alloc(8 * sizeof *data, 0), grad[8] = {1};
    memset(data, 0, 8 * sizeof *data);
    muonium_optimizer *optimizer = create(NULL);
    muonium_tensor tensor = {.ndim = 3,
                             .shape = {1, 8, 1},
                             .data = data,
                             .grad = grad,
                             .strides = STRIDES(0, 1, 0),
                             .grad_strides = STRIDES(0, 1, 0)};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    assert_ok(muonium_zero_grads(optimizer));
    assert_true(grad[0] == 0);
    assert_ok(muonium_step(optimizer));
    muonium_destroy(optimizer);
    test_guarded_free(data);
}

static void strides_are_copied(void **state)
{
    (void)state;
    float data[6] = {0}, grad[6] = {1, 2, 3, 4, 5, 6};
    ptrdiff_t strides[] = {1, 2}, grad_strides[] = {1, 2};
    muonium_optimizer *optimizer = create(NULL);
    muonium_tensor tensor = {.ndim = 2,
                             .shape = {2, 3},
                             .data = data,
                             .grad = grad,
                             .strides = strides,
                             .grad_strides = grad_strides};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    memset(strides, 0x7f, sizeof strides);
    memset(grad_strides, 0x7f, sizeof grad_strides);
    assert_ok(muonium_step(optimizer));
    double norm;
    assert_ok(muonium_grad_norm(optimizer, false, &norm));
    assert_true(fabs(norm - sqrt(91)) < 1e-12);
    muonium_destroy(optimizer);
}

/* ---- gradients ---- */

enum { ROWS = 24, COLS = 40, ELEMENTS = ROWS * COLS };

/* How a gradient of ROWS x COLS repeats its elements, and how many there are. */
static const struct broadcast {
    ptrdiff_t strides[2];
    size_t elements;
} broadcasts[] = {{{0, 0}, 1}, {{0, 1}, COLS}, {{1, 0}, ROWS}, {{0, 3}, 3 * COLS - 2}};

typedef struct pair {
    muonium_optimizer *optimizer;
    void *data, *grad;
} pair;

static pair make(const muonium_options *options, muonium_dtype dtype, muonium_route route,
                 const ptrdiff_t *grad_strides, size_t grad_elements)
{
    size_t bytes = muonium_dtype_size(dtype);
    pair made = {.optimizer = create(options),
                 .data = test_guarded_alloc(ELEMENTS * bytes, 0),
                 .grad = test_guarded_alloc(grad_elements * bytes, 0)};
    test_rng rng = test_rng_start("data");
    for (size_t i = 0; i < ELEMENTS; i++) {
        put_element(made.data, dtype, i, (float)test_uniform(&rng, -1, 1));
    }
    muonium_tensor tensor = {.name = "w",
                             .dtype = dtype,
                             .ndim = 2,
                             .shape = {ROWS, COLS},
                             .data = made.data,
                             .grad = made.grad,
                             .grad_strides = grad_strides,
                             .route = route};
    assert_ok(muonium_add(made.optimizer, &tensor, NULL));
    return made;
}

static void release(pair *made)
{
    muonium_destroy(made->optimizer);
    test_guarded_free(made->data);
    test_guarded_free(made->grad);
}

/* Steps with a broadcast gradient, and with the dense one that it stands for, are equal bit
 * for bit; so are norms. It is not written, and its NaN has a place. */
static void compare_broadcast(const struct broadcast *b, muonium_dtype dtype, muonium_route route,
                              bool master)
{
    muonium_options options = model_options();
    options.master = master;
    pair shared = make(&options, dtype, route, b->strides, b->elements);
    pair dense = make(&options, dtype, route, NULL, ELEMENTS);
    size_t bytes = muonium_dtype_size(dtype);
    test_rng rng = test_rng_start("gradients");
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < b->elements; i++) {
            put_element(shared.grad, dtype, i, (float)test_uniform(&rng, -1, 1));
        }
        for (size_t i = 0; i < ELEMENTS; i++) {
            size_t from = i / COLS * (size_t)b->strides[0] + i % COLS * (size_t)b->strides[1];
            put_element(dense.grad, dtype, i, get_element(shared.grad, dtype, from));
        }
        double norms[2];
        assert_ok(muonium_grad_norm(shared.optimizer, false, &norms[0]));
        assert_ok(muonium_grad_norm(dense.optimizer, false, &norms[1]));
        assert_true(fabs(norms[0] - norms[1]) <= 1e-12 * norms[1]);
        assert_ok(muonium_step(shared.optimizer));
        assert_ok(muonium_step(dense.optimizer));
        assert_memory_equal(shared.data, dense.data, ELEMENTS * bytes);
    }
    snapshot before = snapshot_of(dense.optimizer); /* of what its bytes should be */
    void *kept = malloc(b->elements * bytes);
    assert_non_null(kept);
    memcpy(kept, shared.grad, b->elements * bytes);
    assert_status_message(muonium_clip_grads(shared.optimizer, 1e-3, false, NULL, NULL),
                          MUONIUM_INVALID, "grad_strides of w: elements of the gradient share");
    assert_status_message(muonium_zero_grads(shared.optimizer), MUONIUM_INVALID,
                          "grad_strides of w: elements of the gradient share");
    assert_memory_equal(kept, shared.grad, b->elements * bytes);
    free(kept);
    snapshot_assert_same(&before, dense.optimizer);
    put_element(shared.grad, dtype, b->elements - 1, NAN);
    char place[64];
    snprintf(place, sizeof place, "grad of w is nan at (%d, %d)", b->strides[0] ? ROWS - 1 : 0,
             b->strides[1] ? COLS - 1 : 0);
    assert_status_message(muonium_step(shared.optimizer), MUONIUM_NON_FINITE, place);
    assert_memory_equal(shared.data, dense.data, ELEMENTS * bytes);
    release(&shared);
    release(&dense);
}

static void broadcast_gradients_are_read(void **state)
{
    (void)state;
    const muonium_dtype dtypes[] = {MUONIUM_F32, MUONIUM_BF16, MUONIUM_F16};
    const muonium_route routes[] = {MUONIUM_ROUTE_MUON, MUONIUM_ROUTE_ADAM};
    for (size_t b = 0; b < COUNT(broadcasts); b++) {
        for (size_t d = 0; d < COUNT(dtypes); d++) {
            for (size_t r = 0; r < COUNT(routes); r++) {
                compare_broadcast(&broadcasts[b], dtypes[d], routes[r], false);
                compare_broadcast(&broadcasts[b], dtypes[d], routes[r], true);
            }
        }
    }
}

/* One gradient that cannot be written leaves all others as they are, too. */
static void refused_writes_change_nothing(void **state)
{
    (void)state;
    float data[2][64] = {{0}}, dense[64], one = 3;
    for (size_t i = 0; i < 64; i++) {
        dense[i] = (float)i;
    }
    muonium_optimizer *optimizer = create(NULL);
    muonium_tensor tensors[] = {
        {.name = "fine", .ndim = 1, .shape = {64}, .data = data[0], .grad = dense},
        {.name = "one",
         .ndim = 2,
         .shape = {8, 8},
         .data = data[1],
         .grad = &one,
         .grad_strides = STRIDES(0, 0)}};
    assert_ok(muonium_add(optimizer, &tensors[0], NULL));
    assert_ok(muonium_add(optimizer, &tensors[1], NULL));
    assert_status_message(muonium_zero_grads(optimizer), MUONIUM_INVALID, "grad_strides of one");
    assert_status_message(muonium_clip_grads(optimizer, 1, false, NULL, NULL), MUONIUM_INVALID,
                          "grad_strides of one");
    assert_true(dense[63] == 63 && one == 3);
    /* Without Muon's gradients it is not in the way. */
    double factor;
    assert_ok(muonium_clip_grads(optimizer, 1, true, NULL, &factor));
    assert_true(factor < 1 && dense[63] < 63 && one == 3);
    muonium_destroy(optimizer);
}

/* ---- parameters without elements ---- */

static const muonium_tensor empties[] = {
    {.name = "empty.vector", .ndim = 1, .shape = {0}},
    {.name = "empty.wide", .ndim = 2, .shape = {0, 64}},
    {.name = "empty.tall", .ndim = 2, .shape = {64, 0}, .heads = 4},
    {.name = "empty.experts",
     .ndim = 3,
     .shape = {0, 16, 16},
     .layout = MUONIUM_LAYOUT_EXPERTS,
     .route = MUONIUM_ROUTE_MUON},
    {.name = "empty.half",
     .dtype = MUONIUM_BF16,
     .ndim = 4,
     .shape = {8, 0, 3, 3},
     .layout = MUONIUM_LAYOUT_SPATIAL},
};

/* An optimizer with parameters without elements around one that has some. */
static muonium_optimizer *with_empties(float *data, float *grad)
{
    static const size_t splits[] = {4, 60};
    static const ptrdiff_t nowhere[MUONIUM_MAX_DIMS];
    muonium_options options = model_options();
    options.master = true;
    muonium_optimizer *optimizer = create(&options);
    for (size_t i = 0; i < COUNT(empties); i++) {
        muonium_tensor tensor = empties[i];
        if (i == 2) {
            assert_ok(muonium_add(
                optimizer, &(muonium_tensor){.name = "w", .ndim = 2, .shape = {8, 8}, .data = data},
                NULL));
        }
        if (i % 2 == 0) {
            tensor.strides = nowhere;
            tensor.grad = grad;
        }
        if (i == 1) {
            tensor.row_splits = splits;
            tensor.row_split_count = 2;
        }
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    return optimizer;
}

static void empty_parameters_are_left_alone(void **state)
{
    (void)state;
    float *data = test_guarded_alloc(64 * sizeof *data, 0), alone[64], grad[64];
    test_rng rng = test_rng_start("empty");
    test_fill_normal_f32(&rng, data, 64);
    test_fill_normal_f32(&rng, grad, 64);
    memcpy(alone, data, sizeof alone);
    float *odd = (float *)(void *)((char *)data + 1); /* an address that no element could have */
    muonium_optimizer *optimizer = with_empties(data, odd), *other = create(NULL);
    assert_ok(muonium_add(
        other, &(muonium_tensor){.name = "w", .ndim = 2, .shape = {8, 8}, .data = alone}, NULL));
    size_t count = muonium_parameter_count(optimizer), w;
    assert_ok(muonium_find(optimizer, "w", &w));
    assert_ok(muonium_set_grad(optimizer, w, grad));
    assert_ok(muonium_set_grad(other, 0, grad));
    for (size_t i = 0; i < count; i++) {
        muonium_parameter_report report;
        assert_ok(muonium_report(optimizer, i, &report));
        assert_string_equal(report.reason, i == w ? "ok" : "empty");
        assert_true(report.muon == (i == w));
        assert_true(i == w || report.state_bytes == 0);
    }
    double norms[2];
    assert_ok(muonium_step(optimizer));
    assert_ok(muonium_step(other));
    assert_ok(muonium_clip_grads(optimizer, 1, false, &norms[0], NULL));
    assert_ok(muonium_grad_norm(other, false, &norms[1]));
    assert_true(fabs(norms[1] - 1) < 1e-6 && norms[0] > 1);
    void *places[COUNT(empties) + 1] = {NULL}, *grads[COUNT(empties) + 1] = {NULL};
    places[w] = data;
    grads[w] = grad;
    grads[0] = odd;
    assert_ok(muonium_step_at(optimizer, places, grads, count));
    assert_ok(muonium_step(other));
    assert_memory_equal(data, alone, sizeof alone);
    assert_ok(muonium_zero_grads(optimizer));
    muonium_destroy(optimizer);
    muonium_destroy(other);
    test_guarded_free(data);
}

static void empty_parameters_are_saved_and_loaded(void **state)
{
    (void)state;
    float data[64] = {0}, grad[64] = {1}, again[64];
    muonium_optimizer *optimizer = with_empties(data, grad), *other = with_empties(again, grad);
    char path[64];
    size_t w;
    snprintf(path, sizeof path, "test_strides.%ld.safetensors", (long)getpid());
    assert_ok(muonium_find(optimizer, "w", &w));
    assert_ok(muonium_set_grad(optimizer, w, grad + 0));
    assert_ok(muonium_step(optimizer));
    memcpy(again, data, sizeof again);
    assert_ok(muonium_save(optimizer, path));
    assert_ok(muonium_load(other, path));
    remove(path);
    for (size_t i = 0; i < muonium_parameter_count(optimizer); i++) {
        muonium_state left, right;
        assert_ok(muonium_state_of(optimizer, i, &left));
        assert_ok(muonium_state_of(other, i, &right));
        assert_int_equal(left.steps, right.steps);
        assert_int_equal(left.elements, right.elements);
        assert_ok(muonium_set_state(other, i, &left));
    }
    assert_ok(muonium_set_grad(other, w, grad));
    assert_ok(muonium_step(optimizer));
    assert_ok(muonium_step(other));
    assert_memory_equal(data, again, sizeof data);
    muonium_destroy(optimizer);
    muonium_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_parameters_are_refused),
        cmocka_unit_test(unused_zero_strides_are_no_broadcast),
        cmocka_unit_test(strides_are_copied),
        cmocka_unit_test(broadcast_gradients_are_read),
        cmocka_unit_test(refused_writes_change_nothing),
        cmocka_unit_test(empty_parameters_are_left_alone),
        cmocka_unit_test(empty_parameters_are_saved_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
