/*
 * test_checkpoint_rounds.c: states that are read in several rounds: many small arrays, and
 * arrays of many pieces, on one thread and on several, from sources that can and cannot be
 * read by several threads at a time.
 */
#include "checkpoint_model.h"

#include <math.h>

/* ---- many small arrays ---- */

/* `count` biases of a few elements, so twice as many arrays. */
static muonium_optimizer *many_biases(size_t count, float value)
{
    static float data[64][3], grad[64][3];
    muonium_optimizer *optimizer;
    assert_true(count <= 64);
    assert_ok(muonium_create(NULL, &optimizer));
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "b.%zu", i);
        muonium_tensor tensor = {
            .name = name, .ndim = 1, .shape = {3}, .data = data[i], .grad = grad[i]};
        for (size_t k = 0; k < 3; k++) {
            grad[i][k] = value * (float)(i + 1);
        }
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    assert_ok(muonium_step(optimizer));
    return optimizer;
}

static bytes state_of(const muonium_optimizer *optimizer)
{
    bytes saved = {0};
    assert_ok(muonium_save_to(optimizer, bytes_append, &saved));
    return saved;
}

static muonium_status load(muonium_optimizer *optimizer, const bytes *saved)
{
    muonium_reader *reader;
    assert_ok(muonium_reader_open_memory(saved->data, saved->count, &reader));
    muonium_status status = muonium_load_reader(optimizer, reader, NULL, NULL);
    muonium_reader_close(reader);
    return status;
}

/* Every count around a whole number of rounds; damage in every array is found. */
static void test_many_arrays(void **state)
{
    (void)state;
    for (size_t count = 15; count <= 40; count++) {
        muonium_optimizer *from = many_biases(count, 1), *to = many_biases(count, 2);
        bytes saved = state_of(from), other = state_of(to);
        assert_false(bytes_equal(&saved, &other));
        size_t data_bytes = count * 2 * 3 * sizeof(float);
        for (size_t array = 0; array < 2 * count; array++) {
            size_t at = saved.count - data_bytes + array * 3 * sizeof(float);
            saved.data[at] ^= 1;
            assert_status_message(load(to, &saved), MUONIUM_FORMAT, "the file is damaged");
            saved.data[at] ^= 1;
        }
        bytes after = state_of(to);
        assert_true(bytes_equal(&other, &after));
        assert_ok(load(to, &saved));
        bytes_free(&after);
        after = state_of(to);
        assert_true(bytes_equal(&saved, &after));
        bytes_free(&saved);
        bytes_free(&other);
        bytes_free(&after);
        muonium_destroy(from);
        muonium_destroy(to);
    }
}

/* ---- arrays of many pieces ---- */

enum { ROWS = 1500, COLS = 1501 }; /* 9 MB of momentum, no whole number of pieces */

static float *big_data;

static muonium_optimizer *one_matrix(muonium_dtype state_dtype)
{
    muonium_optimizer *optimizer;
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.state_dtype = state_dtype;
    assert_ok(muonium_create(&options, &optimizer));
    muonium_tensor tensor = {.name = "w", .ndim = 2, .shape = {ROWS, COLS}, .data = big_data};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    return optimizer;
}

/* Whole numbers that bf16 holds exactly. */
static float *numbers(void)
{
    float *values = malloc(sizeof(float) * ROWS * COLS);
    assert_non_null(values);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        values[i] = (float)(i * 2654435761u >> 7 & 127);
    }
    return values;
}

static int set_up(void **state)
{
    (void)state;
    big_data = calloc(ROWS * COLS, sizeof *big_data);
    return big_data == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    free(big_data);
    return muonium_set_threads(0) != MUONIUM_OK;
}

static bool read_bytes(void *context, uint64_t offset, void *buffer, size_t count)
{
    const bytes *from = context;
    memcpy(buffer, from->data + offset, count);
    return true;
}

/* From memory, which threads may share, and from a function, which they may not. */
static void test_many_pieces(void **state)
{
    float *values = numbers();
    muonium_buffer buffer = {.data = values, .ndim = 2, .shape = {ROWS, COLS}};
    muonium_optimizer *from = one_matrix(MUONIUM_F32);
    (void)state;
    assert_ok(muonium_load_positional(from, &buffer, 1, NULL));
    muonium_state s;
    assert_ok(muonium_state_of(from, 0, &s));
    assert_memory_equal(s.momentum, values, sizeof(float) * ROWS * COLS);
    bytes saved = state_of(from);
    for (int threads = 1; threads <= 3; threads += 2) {
        for (int by_function = 0; by_function < 2; by_function++) {
            for (int half = 0; half < 2; half++) {
                muonium_optimizer *to = one_matrix(half ? MUONIUM_BF16 : MUONIUM_F32);
                muonium_source source = {read_bytes, &saved, saved.count};
                assert_ok(muonium_set_threads(threads));
                assert_ok(by_function ? muonium_load_from(to, &source) : load(to, &saved));
                assert_ok(muonium_state_of(to, 0, &s));
                for (size_t i = 0; half && i < ROWS * COLS; i++) {
                    float found = mu_f32_from_bf16(((const uint16_t *)s.momentum)[i]);
                    assert_true(found == values[i]);
                }
                assert_true(half || memcmp(s.momentum, values, sizeof(float) * ROWS * COLS) == 0);
                muonium_destroy(to);
            }
        }
    }
    bytes_free(&saved);
    muonium_destroy(from);
    free(values);
}

/* Of several bad values the first is told, in whatever piece it is. */
static void test_bad_values_in_pieces(void **state)
{
    static const size_t places[] = {0, 262143, 262144, 1500000, (size_t)ROWS * COLS - 1};
    float *values = numbers();
    muonium_buffer buffer = {.data = values, .ndim = 2, .shape = {ROWS, COLS}};
    muonium_optimizer *optimizer = one_matrix(MUONIUM_F32);
    (void)state;
    values[ROWS * COLS - 1] = INFINITY;
    for (size_t i = sizeof places / sizeof places[0]; i-- > 0;) {
        char message[64];
        values[places[i]] = INFINITY;
        snprintf(message, sizeof message, "is inf at element %zu:", places[i]);
        assert_status_message(muonium_load_positional(optimizer, &buffer, 1, NULL),
                              MUONIUM_NON_FINITE, message);
    }
    muonium_state s;
    assert_ok(muonium_state_of(optimizer, 0, &s));
    assert_memory_equal(s.momentum, big_data, sizeof(float) * ROWS * COLS); /* zeros still */
    muonium_destroy(optimizer);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_arrays),
        cmocka_unit_test_setup_teardown(test_many_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_values_in_pieces, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
