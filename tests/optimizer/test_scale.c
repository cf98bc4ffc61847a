/*
 * test_scale.c: very many parameters and groups: the time of every call grows with their
 * number and not with its square, and the memory of parameters is still checked by the
 * plain rule, that of all pairs.
 */
#include "test.h"

#include <time.h>

#include "base/base.h"

/* ---- the sets that make it so ---- */

static void index_keeps_numbers_of_equal_hashes(void **state)
{
    (void)state;
    enum { COUNT = 1000, HASHES = 37 };
    mu_index index = {0};
    size_t probe = 0;
    assert_int_equal(mu_index_next(&index, 5, &probe), SIZE_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(mu_index_reserve(&index, i + 1));
        mu_index_add(&index, i % HASHES << 32, i); /* their low halves are equal */
    }
    for (size_t hash = 0; hash <= HASHES; hash++) {
        size_t found = 0, sum = 0, expected = 0, number;
        probe = 0;
        while ((number = mu_index_next(&index, hash << 32, &probe)) != SIZE_MAX) {
            assert_int_equal(number % HASHES, hash);
            sum += number;
            found++;
        }
        for (size_t i = hash; hash < HASHES && i < COUNT; i += HASHES) {
            expected += i;
            found--;
        }
        assert_int_equal(found, 0);
        assert_int_equal(sum, expected);
    }
    assert_false(mu_index_reserve(&index, SIZE_MAX));
    mu_index_release(&index);
}

static void intervals_are_found_as_by_looking_at_all(void **state)
{
    (void)state;
    enum { NODES = 200, ROUNDS = 20000, SPACE = 1000 };
    static mu_interval nodes[NODES];
    bool inside[NODES] = {false};
    test_rng rng = test_rng_start("intervals");
    mu_interval *root = NULL;
    size_t hits = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t k = test_below(&rng, NODES), from = test_below(&rng, SPACE);
        mu_extent extent = {from, from + test_below(&rng, round % 2 ? 9 : 90)};
        if (inside[k]) {
            mu_interval_remove(&root, &nodes[k]);
        } else {
            nodes[k].extent = extent;
            mu_interval_insert(&root, &nodes[k]);
        }
        inside[k] = !inside[k];
        bool overlaps = false;
        extent.from = test_below(&rng, SPACE);
        extent.to = extent.from + test_below(&rng, 12);
        for (size_t i = 0; i < NODES; i++) {
            bool empty = nodes[i].extent.from == nodes[i].extent.to;
            overlaps =
                overlaps || (inside[i] && !empty && mu_extents_overlap(nodes[i].extent, extent));
        }
        const mu_interval *found = mu_interval_find(root, extent);
        assert_int_equal(found != NULL, overlaps);
        assert_true(!found || (inside[found - nodes] && mu_extents_overlap(found->extent, extent)));
        hits += overlaps;
        if (round % 997 == 0) { /* down to the last and up again */
            for (size_t i = 0; i < NODES; i++) {
                if (inside[i]) {
                    mu_interval_remove(&root, &nodes[i]);
                }
                inside[i] = false;
            }
            assert_null(root);
        }
    }
    assert_in_range(hits, ROUNDS / 10, ROUNDS - ROUNDS / 10);
}

/* ---- the rule of memory ---- */

enum { ARENA = 2000, MOST = 12 };

typedef struct spot {
    size_t rows, cols;
    ptrdiff_t row_stride, col_stride; /* in elements, of data and gradient */
    muonium_dtype dtype;
    bool f32_grad;
    float *data, *grad; /* grad may be NULL */
} spot;

/* First and last byte, by a look at every element; {0, 0} for none. */
static mu_extent plain_extent(const spot *s, const float *at, size_t bytes)
{
    mu_extent extent = {UINTPTR_MAX, 0};
    for (size_t i = 0; at && i < s->rows * s->cols; i++) {
        ptrdiff_t step =
            (ptrdiff_t)(i / s->cols) * s->row_stride + (ptrdiff_t)(i % s->cols) * s->col_stride;
        uintptr_t address = (uintptr_t)at + (uintptr_t)(step * (ptrdiff_t)bytes);
        extent.from = address < extent.from ? address : extent.from;
        extent.to = address + bytes > extent.to ? address + bytes : extent.to;
    }
    return at ? extent : (mu_extent){0, 0};
}

static mu_extent plain_data(const spot *s)
{
    return plain_extent(s, s->data, muonium_dtype_size(s->dtype));
}

static mu_extent plain_grad(const spot *s)
{
    return plain_extent(s, s->grad, muonium_dtype_size(s->f32_grad ? MUONIUM_F32 : s->dtype));
}

/* No parameter shares memory with another, nor with any gradient. */
static bool plain_rule(const spot *spots, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++) {
            if ((i != k && mu_extents_overlap(plain_data(&spots[i]), plain_data(&spots[k]))) ||
                mu_extents_overlap(plain_data(&spots[i]), plain_grad(&spots[k]))) {
                return false;
            }
        }
    }
    return true;
}

static float *anywhere(test_rng *rng, float *arena)
{
    return arena + 50 + test_below(rng, ARENA - 100);
}

static spot random_spot(test_rng *rng, float *arena)
{
    spot s = {.rows = 1 + test_below(rng, 4),
              .cols = 1 + test_below(rng, 3),
              .data = anywhere(rng, arena),
              .grad = test_below(rng, 4) ? anywhere(rng, arena) : NULL,
              .dtype = test_below(rng, 2) ? MUONIUM_F32 : MUONIUM_BF16,
              .f32_grad = test_below(rng, 2)};
    s.col_stride = 1 + (ptrdiff_t)test_below(rng, 2);
    s.row_stride = (ptrdiff_t)s.cols * s.col_stride + (ptrdiff_t)test_below(rng, 4);
    s.row_stride = test_below(rng, 3) ? s.row_stride : -s.row_stride;
    return s;
}

static muonium_status add_spot(muonium_optimizer *optimizer, const spot *s)
{
    ptrdiff_t strides[] = {s->row_stride, s->col_stride};
    muonium_tensor tensor = {.ndim = 2,
                             .shape = {s->rows, s->cols},
                             .strides = strides,
                             .grad_strides = strides,
                             .dtype = s->dtype,
                             .f32_grad = s->f32_grad,
                             .data = s->data,
                             .grad = s->grad};
    return muonium_add(optimizer, &tensor, NULL);
}

/* Move all parameters and gradients within a step. */
static muonium_status step_at(muonium_optimizer *optimizer, const spot *spots, size_t count)
{
    void *data[MOST], *grads[MOST];
    for (size_t i = 0; i < count; i++) {
        data[i] = spots[i].data;
        grads[i] = spots[i].grad;
    }
    return muonium_step_at(optimizer, data, grads, count);
}

/* One random call; its counterpart on `spots` if the rule allows it. */
static bool one_call(test_rng *rng, muonium_optimizer *optimizer, spot *spots, size_t *count,
                     float *arena)
{
    spot changed[MOST];
    size_t kind = test_below(rng, 4), k = *count > 0 ? test_below(rng, *count) : 0, after = *count;
    muonium_status status;
    memcpy(changed, spots, sizeof changed);
    if (*count == 0 || (kind == 0 && *count < MOST)) {
        changed[after++] = random_spot(rng, arena);
        status = add_spot(optimizer, &changed[*count]);
    } else if (kind == 1) {
        changed[k].data = anywhere(rng, arena);
        status = muonium_set_data(optimizer, k, changed[k].data);
    } else if (kind == 2) {
        changed[k].grad = test_below(rng, 4) ? anywhere(rng, arena) : NULL;
        status = muonium_set_grad(optimizer, k, changed[k].grad);
    } else {
        for (size_t i = 0; i < *count; i++) {
            changed[i].data = test_below(rng, 3) ? spots[i].data : anywhere(rng, arena);
            changed[i].grad = test_below(rng, 4) ? anywhere(rng, arena) : NULL;
        }
        status = step_at(optimizer, changed, *count);
    }
    bool allowed = plain_rule(changed, after);
    assert_int_equal(status, allowed ? MUONIUM_OK : MUONIUM_INVALID);
    if (!allowed) {
        assert_non_null(strstr(muonium_last_error(), "overlap"));
        return false;
    }
    memcpy(spots, changed, sizeof changed);
    *count = after;
    return true;
}

static void memory_is_checked_by_the_plain_rule(void **state)
{
    (void)state;
    static float arena[ARENA];
    test_rng rng = test_rng_start("memory");
    size_t allowed = 0, calls = 0;
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.lr = 0; /* the arena stays 0, whatever is in it */
    for (int round = 0; round < 200; round++) {
        muonium_optimizer *optimizer;
        spot spots[MOST];
        size_t count = 0;
        assert_ok(muonium_create(&options, &optimizer));
        for (int i = 0; i < 50; i++, calls++) {
            allowed += one_call(&rng, optimizer, spots, &count, arena);
        }
        muonium_destroy(optimizer);
    }
    assert_in_range(allowed, calls / 4, calls - calls / 10);
}

/* ---- time ---- */

/* Of processors, so that whoever else uses the machine does not count. */
static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { SIDE = 2, ELEMENTS = SIDE * SIDE };

/* `count` parameters that lie in no order; their numbers are in `names`. */
typedef struct crowd {
    size_t count;
    float *data, *grads;
    void **data_at, **grads_at;
    char (*names)[40];
} crowd;

static crowd crowd_new(size_t count)
{
    test_rng rng = test_rng_start("crowd");
    crowd c = {.count = count,
               .data = calloc(count * ELEMENTS, sizeof(float)),
               .grads = calloc(count * ELEMENTS, sizeof(float)),
               .data_at = malloc(count * sizeof(void *)),
               .grads_at = malloc(count * sizeof(void *)),
               .names = malloc(count * sizeof *c.names)};
    assert_true(c.data && c.grads && c.data_at && c.grads_at && c.names);
    for (size_t i = 0; i < count; i++) { /* shuffled, from the inside out */
        size_t k = test_below(&rng, i + 1);
        c.data_at[i] = c.data_at[k];
        c.grads_at[i] = c.grads_at[k];
        c.data_at[k] = c.data + i * ELEMENTS;
        c.grads_at[k] = c.grads + i * ELEMENTS;
        snprintf(c.names[i], sizeof c.names[i], "layers.%zu.weight", i);
    }
    return c;
}

static void crowd_free(crowd *c)
{
    free(c->data);
    free(c->grads);
    free(c->data_at);
    free(c->grads_at);
    free(c->names);
}

static void add_crowd_member(const crowd *c, size_t i, muonium_optimizer *optimizer,
                             muonium_group *group)
{
    muonium_tensor tensor = {.name = c->names[i],
                             .ndim = 2,
                             .shape = {SIDE, SIDE},
                             .route = MUONIUM_ROUTE_MUON,
                             .data = c->data_at[i],
                             .grad = c->grads_at[i]};
    assert_ok(muonium_add(optimizer, &tensor, group));
}

static bool append_bytes(void *context, const void *data, size_t bytes)
{
    FILE *to = context;
    return fwrite(data, 1, bytes, to) == bytes;
}

static void ignore_line(void *context, const char *line)
{
    (void)context, (void)line;
}

static muonium_optimizer *begin(const crowd *c, bool groups)
{
    muonium_options options;
    muonium_optimizer *optimizer;
    assert_ok(muonium_options_init(&options, NULL));
    options.log = ignore_line;
    assert_ok(muonium_create(&options, &optimizer));
    for (size_t i = 0; i < c->count; i++) {
        muonium_group *group = NULL;
        if (groups) { /* one for each */
            assert_ok(muonium_add_group(optimizer, &options, &group));
            assert_ok(muonium_set_lr(optimizer, group, 0.5));
        }
        add_crowd_member(c, i, optimizer, group);
    }
    return optimizer;
}

enum { PHASES = 4 };

typedef struct timing {
    const char *names[PHASES];
    void (*live)(const crowd *c, bool groups, double began[PHASES + 1]);
    size_t few, times; /* parameters, and how many times as many */
    double slack;      /* how many times more than `times` the time may be */
} timing;

static void live_quick(const crowd *c, bool groups, double began[PHASES + 1])
{
    began[0] = seconds_now();
    muonium_optimizer *optimizer = begin(c, groups);
    began[1] = seconds_now();
    for (size_t i = 0; i < c->count; i++) {
        size_t found = SIZE_MAX;
        assert_ok(muonium_find(optimizer, c->names[i], &found));
        assert_int_equal(found, i);
    }
    began[2] = seconds_now();
    for (size_t i = 0; i < c->count; i++) {
        assert_ok(muonium_set_grad(optimizer, i, NULL));
        assert_ok(muonium_set_data(optimizer, i, c->data_at[i]));
        assert_ok(muonium_set_grad(optimizer, i, c->grads_at[i]));
    }
    began[3] = seconds_now();
    muonium_destroy(optimizer);
    began[4] = seconds_now();
}

static void live_slow(const crowd *c, bool groups, double began[PHASES + 1])
{
    muonium_optimizer *optimizer = begin(c, groups);
    char *file = NULL;
    size_t bytes = 0;
    began[0] = seconds_now();
    for (size_t i = 0; i < c->count; i++) {
        muonium_parameter_report report;
        assert_ok(muonium_report(optimizer, i, &report));
    }
    began[1] = seconds_now();
    assert_ok(muonium_step(optimizer));
    assert_ok(muonium_step_at(optimizer, c->data_at, c->grads_at, c->count));
    began[2] = seconds_now();
    FILE *to = open_memstream(&file, &bytes);
    assert_non_null(to);
    assert_ok(muonium_save_to(optimizer, append_bytes, to));
    assert_int_equal(fclose(to), 0);
    began[3] = seconds_now();
    muonium_reader *reader = NULL;
    assert_ok(muonium_reader_open_memory(file, bytes, &reader));
    assert_ok(muonium_load_reader(optimizer, reader, NULL, NULL));
    muonium_reader_close(reader);
    began[4] = seconds_now();
    muonium_destroy(optimizer);
    free(file);
}

/* The square of 16 is 256: there is room for memory caches, which others on the machine compete
 * for. What computes more does not need it. */
static const timing quick = {
    {"add", "find", "set_data, set_grad", "destroy"}, live_quick, 4000, 16, 6};
static const timing slow = {{"report", "step", "save", "load"}, live_slow, 500, 8, 3};

/* The best of three of each phase. */
static void best_of(const timing *t, size_t count, bool groups, double best[PHASES])
{
    crowd c = crowd_new(count);
    for (int repetition = 0; repetition < 3; repetition++) {
        double began[PHASES + 1];
        t->live(&c, groups, began);
        for (int i = 0; i < PHASES; i++) {
            double seconds = began[i + 1] - began[i];
            best[i] = repetition == 0 || seconds < best[i] ? seconds : best[i];
        }
    }
    crowd_free(&c);
}

static void assert_no_square(const timing *t, bool groups)
{
    double small[PHASES], large[PHASES];
    best_of(t, t->few, groups, small);
    best_of(t, t->few * t->times, groups, large);
    for (int i = 0; i < PHASES; i++) {
        print_message("%-18s %7.2f ms for %zu, %8.2f for %zu: %.1f times\n", t->names[i],
                      1e3 * small[i], t->few, 1e3 * large[i], t->few * t->times,
                      large[i] / small[i]);
    }
    for (int i = 0; i < PHASES; i++) {
        assert_true(large[i] < t->slack * (double)t->times * small[i]);
    }
}

static void many_parameters_take_no_square(void **state)
{
    (void)state;
    assert_no_square(&quick, false);
    assert_no_square(&slow, false);
}

static void many_groups_take_no_square(void **state)
{
    (void)state;
    assert_no_square(&quick, true);
    assert_no_square(&slow, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_keeps_numbers_of_equal_hashes),
        cmocka_unit_test(intervals_are_found_as_by_looking_at_all),
        cmocka_unit_test(memory_is_checked_by_the_plain_rule),
        cmocka_unit_test(many_parameters_take_no_square),
        cmocka_unit_test(many_groups_take_no_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
