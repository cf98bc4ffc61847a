/*
 * test_optimizer_memory.c: the optimizer and memory: allocations that fail, steps that
 * allocate nothing, inaccessible pages around the caller's arrays, and very many
 * optimizers side by side.
 */
#include "test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <time.h>

#include "optimizer_model.h"

static int use_counting_allocator(void **state)
{
    (void)state;
    test_count_memory();
    return 0;
}

static int use_usual_allocator(void **state)
{
    (void)state;
    return muonium_set_allocator(NULL) == MUONIUM_OK ? 0 : -1;
}

/* ---- every allocation fails in turn ---- */

static void assert_out_of_memory(muonium_status status)
{
    assert_status_message(status, MUONIUM_NO_MEMORY, "no memory");
    assert_true(test_memory.calls >= test_memory.fail_at);
}

/* Create, group, add all, ask, step twice, with allocation `number` failing. Whatever fails
 * has changed nothing and works when tried again. Returns whether any failed. */
static bool survive(const muonium_options *options, long number, const model *expected)
{
    model m = model_new();
    muonium_optimizer *untouched = (muonium_optimizer *)(void *)&m, *optimizer = untouched;
    bool failed = false;
    test_fail_allocation(number, false);
    muonium_status status = muonium_create(options, &optimizer);
    if (status != MUONIUM_OK) {
        assert_out_of_memory(status);
        assert_ptr_equal(optimizer, untouched);
        assert_int_equal(test_memory.alive, 0);
        assert_ok(muonium_create(options, &optimizer));
        failed = true;
    }
    muonium_group *group = (muonium_group *)(void *)&m;
    status = muonium_add_group(optimizer, options, &group);
    if (status != MUONIUM_OK) {
        assert_out_of_memory(status);
        assert_ptr_equal(group, &m);
        assert_ok(muonium_add_group(optimizer, options, &group));
        failed = true;
    }
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        muonium_tensor tensor = model_tensor(&m, i);
        snapshot before = snapshot_of(optimizer);
        long alive_before = test_memory.alive;
        status = muonium_add(optimizer, &tensor, i % 3 == 0 ? group : NULL);
        if (status == MUONIUM_OK) {
            free(before.bytes);
            continue;
        }
        assert_out_of_memory(status);
        snapshot_assert_same(&before, optimizer);
        assert_true(test_memory.alive <=
                    alive_before + 2); /* room for more parameters and names may stay */
        assert_ok(muonium_add(optimizer, &tensor, i % 3 == 0 ? group : NULL));
        failed = true;
    }
    muonium_counters counters;
    status = muonium_count(optimizer, &counters);
    if (status != MUONIUM_OK) {
        assert_out_of_memory(status);
        assert_ok(muonium_count(optimizer, &counters));
        failed = true;
    }
    for (size_t step = 1; step <= 2; step++) {
        model_set_grads(&m, step);
        snapshot before = snapshot_of(optimizer);
        long alive_before = test_memory.alive;
        status = muonium_step(optimizer);
        if (status == MUONIUM_OK) {
            free(before.bytes);
            continue;
        }
        assert_out_of_memory(status);
        snapshot_assert_same(&before, optimizer);
        assert_int_equal(test_memory.alive, alive_before);
        assert_ok(muonium_step(optimizer));
        failed = true;
    }
    model_assert_equal(&m, expected, "after a failed allocation");
    muonium_destroy(optimizer);
    assert_int_equal(test_memory.alive, 0);
    model_free(&m);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    muonium_options options = model_options();
    const char *const patterns[] = {"norm", "embed*"};
    options.plan.coefficients = "quintic";
    options.patterns = patterns;
    options.pattern_count = 2;
    options.master = options.normuon = true;
    options.scratch_bytes = 20000; /* the bound takes more plans to find */
    model expected = model_new();
    muonium_optimizer *optimizer = model_optimizer(&expected, &options);
    for (size_t step = 1; step <= 2; step++) {
        model_set_grads(&expected, step);
        assert_ok(muonium_step(optimizer));
    }
    muonium_destroy(optimizer);
    assert_int_equal(test_memory.alive, 0);
    long number = 1;
    while (survive(&options, number, &expected)) {
        number++;
    }
    test_fail_allocation(0, false);
    printf("%ld allocations failed in turn\n", number - 1);
    assert_true(number > 5 * MODEL_COUNT);
    model_free(&expected);
}

/* A log is no reason to fail a step: without memory it tells less. */
static void count_line(void *context, const char *line)
{
    assert_true(line[0] != '\0' && strchr(line, '\n') == NULL);
    ++*(size_t *)context;
}

static void a_log_without_memory_is_shorter(void **state)
{
    (void)state;
    model m = model_new();
    size_t lines = 0;
    muonium_options options = model_options();
    options.log = count_line;
    options.log_context = &lines;
    muonium_optimizer *optimizer = model_optimizer(&m, &options);
    test_memory.calls = 0;
    assert_ok(muonium_step(optimizer));
    muonium_destroy(optimizer);
    size_t whole = lines;
    long needed = test_memory.calls;
    lines = 0;
    optimizer = model_optimizer(&m, &options);
    test_fail_allocation(needed, false); /* the log is what a first step allocates last */
    assert_ok(muonium_step(optimizer));
    assert_true(test_memory.calls >= test_memory.fail_at);
    assert_true(lines >= 1 && lines < whole);
    test_fail_allocation(0, false);
    muonium_destroy(optimizer);
    assert_int_equal(test_memory.alive, 0);
    model_free(&m);
}

/* ---- later steps allocate nothing ---- */

static double no_loss(void *context)
{
    (void)context;
    return 1;
}

static void later_steps_allocate_nothing(void **state)
{
    (void)state;
    model m = model_new();
    muonium_options options = model_options();
    options.master = options.normuon = options.stochastic_rounding = true;
    muonium_optimizer *optimizer = model_optimizer(&m, &options);
    assert_ok(muonium_step(optimizer));
    test_memory.calls = 0;
    for (size_t step = 2; step <= 5; step++) {
        double norm, factor, value;
        model_set_grads(&m, step);
        assert_ok(muonium_set_grad(optimizer, step, step % 2 ? NULL : m.grads[step]));
        assert_ok(muonium_set_lr(optimizer, NULL, 0.01 * (double)step));
        assert_ok(muonium_set_weight_decay(optimizer, NULL, 0.1));
        assert_ok(muonium_set_momentum(optimizer, NULL, 0.9));
        assert_ok(muonium_clip_grads(optimizer, 1, false, &norm, &factor));
        assert_true(norm > 1 && factor < 1);
        assert_ok(muonium_step(optimizer));
        assert_ok(muonium_step_with(optimizer, no_loss, NULL, &value));
        assert_ok(muonium_step_at(optimizer, NULL, m.grads, MODEL_COUNT));
        const float logits[] = {500, 50};
        size_t clipped;
        muonium_qk qk = {.query = 0,
                         .key = 1,
                         .heads = 2,
                         .head_dim = 10,
                         .max_logits = logits,
                         .threshold = 100};
        assert_ok(muonium_qk_clip(optimizer, &qk, &clipped));
        assert_int_equal(clipped, 1);
        assert_ok(muonium_zero_grads(optimizer));
    }
    /* Neither does one that is refused. */
    put_element(m.grads[0], model_specs[0].dtype, 0, (float)(1.0 / 0.0));
    assert_status_message(muonium_step(optimizer), MUONIUM_NON_FINITE, "wide");
    assert_int_equal(test_memory.calls, 0);
    muonium_destroy(optimizer);
    assert_int_equal(test_memory.alive, 0);
    model_free(&m);
}

/* ---- inaccessible pages around the arrays ---- */

/* Shapes that end anywhere in a vector, of each type, each array against a page. */
static void nothing_outside_is_touched(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("guards");
    const muonium_dtype dtypes[] = {MUONIUM_F32, MUONIUM_BF16, MUONIUM_F16};
    for (size_t round = 0; round < 36; round++) {
        muonium_options options = model_options();
        options.master = round % 4 == 1;
        options.stochastic_rounding = round % 4 == 2;
        options.state_dtype = round % 2 ? MUONIUM_BF16 : MUONIUM_F32;
        options.normuon = round % 3 == 0;
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(&options, &optimizer));
        void *memory[8];
        for (size_t p = 0; p < 4; p++) {
            muonium_tensor tensor = {.dtype = dtypes[(round + p) % 3],
                                     .f32_grad = (round + p) % 5 == 0,
                                     .ndim = p == 3   ? 1
                                             : p == 2 ? 3
                                                      : 2,
                                     .layout = p == 2 ? MUONIUM_LAYOUT_SPATIAL : 0};
            size_t elements = 1;
            for (size_t d = 0; d < tensor.ndim; d++) {
                tensor.shape[d] = 4 + test_below(&rng, p == 2 ? 12 : 60);
                elements *= tensor.shape[d];
            }
            size_t bytes = elements * muonium_dtype_size(tensor.dtype);
            muonium_dtype grad_dtype = tensor.f32_grad ? MUONIUM_F32 : tensor.dtype;
            size_t grad_bytes = elements * muonium_dtype_size(grad_dtype);
            memory[2 * p] =
                round % 2 ? test_guarded_alloc(bytes, 0) : test_guarded_alloc_front(bytes, 0);
            memory[2 * p + 1] = round / 2 % 2 ? test_guarded_alloc(grad_bytes, 0)
                                              : test_guarded_alloc_front(grad_bytes, 0);
            tensor.data = memory[2 * p];
            tensor.grad = memory[2 * p + 1];
            for (size_t i = 0; i < elements; i++) {
                put_element(tensor.data, tensor.dtype, i, (float)test_normal(&rng));
                put_element(tensor.grad, grad_dtype, i, (float)test_normal(&rng));
            }
            assert_ok(muonium_add(optimizer, &tensor, NULL));
        }
        double factor;
        assert_ok(muonium_step(optimizer));
        assert_ok(muonium_clip_grads(optimizer, 0.5, false, NULL, &factor));
        assert_true(factor < 1);
        assert_ok(muonium_step(optimizer));
        assert_ok(muonium_zero_grads(optimizer));
        muonium_destroy(optimizer);
        for (size_t i = 0; i < 8; i++) {
            test_guarded_free(memory[i]);
        }
    }
}

/* ---- ten thousand optimizers ---- */

static size_t count_threads(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void thousands_live_side_by_side(void **state)
{
    (void)state;
    enum { COUNT = 10000, SIDE = 8 };
    const size_t each = SIDE * SIDE;
    muonium_optimizer **optimizers = malloc(COUNT * sizeof *optimizers);
    float *w = malloc(2 * COUNT * each * sizeof *w), *g = w + COUNT * each;
    assert_true(optimizers && w);
    test_rng rng = test_rng_start("thousands");
    test_fill_normal_f32(&rng, w, each);
    test_fill_normal_f32(&rng, g, each);
    for (size_t i = 1; i < COUNT; i++) {
        memcpy(w + i * each, w, each * sizeof *w);
        memcpy(g + i * each, g, each * sizeof *g);
    }
    size_t threads = count_threads();
    double start = seconds_now();
    for (size_t i = 0; i < COUNT; i++) {
        assert_ok(muonium_create(NULL, &optimizers[i]));
    }
    double created = seconds_now();
    for (size_t i = 0; i < COUNT; i++) {
        muonium_tensor tensor = {
            .name = "w", .ndim = 2, .shape = {SIDE, SIDE}, .data = w + i * each};
        tensor.grad = g + i * each;
        assert_ok(muonium_add(optimizers[i], &tensor, NULL));
    }
    double added = seconds_now();
    assert_int_equal(count_threads(), threads);
    double stepped[2];
    for (size_t step = 0; step < 2; step++) {
        for (size_t i = 0; i < COUNT; i++) {
            assert_ok(muonium_step(optimizers[i]));
        }
        stepped[step] = seconds_now();
    }
    assert_true(count_threads() < threads + (size_t)muonium_threads());
    for (size_t i = 1; i < COUNT; i++) {
        assert_memory_equal(w + i * each, w, each * sizeof *w);
    }
    for (size_t i = 0; i < COUNT; i++) {
        muonium_destroy(optimizers[i]);
    }
    printf("microseconds per optimizer: create %.1f, add %.1f, first step %.1f, step %.1f\n",
           1e6 * (created - start) / COUNT, 1e6 * (added - created) / COUNT,
           1e6 * (stepped[0] - added) / COUNT, 1e6 * (stepped[1] - stepped[0]) / COUNT);
    free(optimizers);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First, while the pool has started no thread. */
        cmocka_unit_test(thousands_live_side_by_side),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, use_counting_allocator,
                                        use_usual_allocator),
        cmocka_unit_test_setup_teardown(a_log_without_memory_is_shorter, use_counting_allocator,
                                        use_usual_allocator),
        cmocka_unit_test_setup_teardown(later_steps_allocate_nothing, use_counting_allocator,
                                        use_usual_allocator),
        cmocka_unit_test(nothing_outside_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
