/*
 * test_state.c: steps with everything at new places, and state in memory.
 */
#include "test.h"

enum { PARAMETERS = 40, LARGEST = 64 * 48 };

/* Matrices, vectors and bf16 matrices with master copies, over NorMuon. */
typedef struct model {
    muonium_optimizer *optimizer;
    float *data[PARAMETERS], *grads[PARAMETERS];
} model;

static muonium_tensor tensor_of(size_t i)
{
    muonium_tensor tensor = {.ndim = i % 4 == 3 ? 1 : 2, .shape = {64, 48}};
    tensor.dtype = i % 4 == 2 ? MUONIUM_BF16 : MUONIUM_F32;
    return tensor;
}

static model make_model(const char *label)
{
    muonium_options options;
    test_rng rng = test_rng_start(label);
    model m;
    assert_ok(muonium_options_init(&options, NULL));
    options.normuon = options.master = true;
    assert_ok(muonium_create(&options, &m.optimizer));
    for (size_t i = 0; i < PARAMETERS; i++) {
        muonium_tensor tensor = tensor_of(i);
        m.data[i] = malloc(LARGEST * sizeof(float));
        m.grads[i] = malloc(LARGEST * sizeof(float));
        assert_true(m.data[i] && m.grads[i]);
        test_fill_normal_f32(&rng, m.data[i], LARGEST);
        for (size_t k = 0; tensor.dtype == MUONIUM_BF16 && k < LARGEST; k++) {
            m.data[i][k] = 1; /* two small finite bf16 numbers */
        }
        tensor.data = m.data[i];
        assert_ok(muonium_add(m.optimizer, &tensor, NULL));
    }
    return m;
}

static void free_model(model *m)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        free(m->data[i]);
        free(m->grads[i]);
    }
    muonium_destroy(m->optimizer);
}

/* Gradients of one step; the same for every model. */
static void fill_grads(model *m, int step)
{
    char label[32];
    snprintf(label, sizeof label, "gradients of step %d", step);
    test_rng rng = test_rng_start(label);
    for (size_t i = 0; i < PARAMETERS; i++) {
        test_fill_normal_f32(&rng, m->grads[i], LARGEST);
        uint16_t *half = (void *)m->grads[i];
        for (size_t k = 0; tensor_of(i).dtype == MUONIUM_BF16 && k < 2 * LARGEST; k++) {
            half[k] &= 0xbfff; /* any bf16 number below 2: finite */
        }
    }
}

static void **places(float *const *arrays)
{
    static void *list[PARAMETERS];
    memcpy(list, arrays, sizeof list);
    return list;
}

static void assert_same(const model *a, const model *b)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        assert_memory_equal(a->data[i], b->data[i], LARGEST * sizeof(float));
    }
}

static void test_step_at_new_places(void **unused)
{
    (void)unused;
    model one = make_model("model"), other = make_model("model");
    test_rng rng = test_rng_start("places");
    for (int step = 0; step < 3; step++) {
        fill_grads(&one, step);
        for (size_t i = 0; i < PARAMETERS; i++) {
            assert_ok(muonium_set_grad(one.optimizer, i, i % 7 == 0 ? NULL : one.grads[i]));
        }
        assert_ok(muonium_step(one.optimizer));

        void *grads[PARAMETERS];
        for (int moves = 0; moves < PARAMETERS; moves++) {
            size_t j = test_below(&rng, PARAMETERS);
            float *kept = malloc(LARGEST * sizeof(float));
            memcpy(kept, other.data[j], LARGEST * sizeof(float));
            free(other.data[j]);
            other.data[j] = kept;
        }
        fill_grads(&other, step);
        for (size_t i = 0; i < PARAMETERS; i++) {
            grads[i] = i % 7 == 0 ? NULL : other.grads[i];
        }
        assert_ok(muonium_step_at(other.optimizer, places(other.data), grads, PARAMETERS));
        assert_same(&one, &other);
    }
    fill_grads(&one, 3); /* both ways leave the same behind: the others keep their gradients */
    fill_grads(&other, 3);
    assert_ok(muonium_step(one.optimizer));
    assert_ok(muonium_step_at(other.optimizer, NULL, places(other.grads), PARAMETERS));
    for (size_t i = 1; i < PARAMETERS; i += i % 7 == 6 ? 2 : 1) {
        assert_memory_equal(one.data[i], other.data[i], LARGEST * sizeof(float));
    }
    free_model(&one);
    free_model(&other);
}

static void test_places_that_are_refused(void **unused)
{
    (void)unused;
    model m = make_model("model"), untouched = make_model("model");
    void *data[PARAMETERS], *grads[PARAMETERS];
    fill_grads(&m, 0);
    memcpy(data, m.data, sizeof data);
    memcpy(grads, m.grads, sizeof grads);
    muonium_optimizer *o = m.optimizer;
    assert_status_message(muonium_step_at(NULL, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "optimizer is NULL");
    assert_status_message(muonium_step_at(o, data, NULL, PARAMETERS), MUONIUM_INVALID,
                          "grads is NULL");
    assert_status_message(muonium_step_at(o, data, grads, 3), MUONIUM_INVALID, "count is 3");
    data[5] = NULL;
    assert_status_message(muonium_step_at(o, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "data of parameter 5 is NULL");
    data[5] = (char *)m.data[5] + 2;
    assert_status_message(muonium_step_at(o, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "data of parameter 5");
    data[5] = m.data[9] + 1;
    assert_status_message(muonium_step_at(o, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "add a tensor once");
    data[5] = m.data[5];
    grads[8] = m.data[0] + LARGEST - 1;
    assert_status_message(muonium_step_at(o, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "grad of parameter 8 overlaps data of parameter 0");
    grads[8] = (char *)m.grads[8] + 1;
    assert_status_message(muonium_step_at(o, data, grads, PARAMETERS), MUONIUM_INVALID,
                          "grad of parameter 8");
    grads[8] = m.grads[8];
    assert_same(&m, &untouched);
    assert_ok(muonium_step_at(o, data, grads, PARAMETERS));

    muonium_optimizer *empty;
    assert_ok(muonium_create(NULL, &empty));
    assert_status_message(muonium_step_at(empty, data, grads, 0), MUONIUM_INVALID, "no parameters");
    muonium_destroy(empty);
    free_model(&m);
    free_model(&untouched);
}

static void run(model *m, int first, int steps)
{
    for (int step = first; step < first + steps; step++) {
        fill_grads(m, step);
        assert_ok(muonium_step_at(m->optimizer, NULL, places(m->grads), PARAMETERS));
    }
}

static void test_state_moves(void **unused)
{
    (void)unused;
    model whole = make_model("model"), first = make_model("model"), second = make_model("model");
    run(&whole, 0, 5);
    run(&first, 0, 2);
    for (size_t i = 0; i < PARAMETERS; i++) {
        muonium_state state;
        assert_ok(muonium_state_of(first.optimizer, i, &state));
        assert_int_equal(state.steps, 2);
        assert_int_equal(state.elements, i % 4 == 3 ? 64 : LARGEST);
        assert_true((state.momentum != NULL) == (i % 4 != 3));
        assert_true((state.exp_avg != NULL) == (i % 4 == 3));
        assert_true((state.master != NULL) == (i % 4 == 2));
        assert_int_equal(state.rows, i % 4 == 3 ? 0 : 64);
        assert_ok(muonium_set_state(second.optimizer, i, &state));
        memcpy(second.data[i], first.data[i], LARGEST * sizeof(float));
    }
    run(&second, 2, 3);
    assert_same(&second, &whole);

    /* Without arrays a parameter starts afresh. */
    model fresh = make_model("model");
    for (size_t i = 0; i < PARAMETERS; i++) {
        muonium_state state = {.elements = i % 4 == 3 ? 64 : LARGEST};
        assert_ok(muonium_set_state(first.optimizer, i, &state));
        memcpy(first.data[i], fresh.data[i], LARGEST * sizeof(float));
    }
    run(&first, 0, 5);
    assert_same(&first, &whole);
    free_model(&whole);
    free_model(&first);
    free_model(&second);
    free_model(&fresh);
}

static void test_state_that_is_refused(void **unused)
{
    (void)unused;
    model m = make_model("model");
    muonium_state matrix, vector;
    assert_status_message(muonium_state_of(m.optimizer, PARAMETERS, &matrix), MUONIUM_INVALID,
                          "parameter is 40");
    assert_status_message(muonium_state_of(m.optimizer, 0, NULL), MUONIUM_INVALID, "NULL");
    assert_status_message(muonium_set_state(m.optimizer, 0, NULL), MUONIUM_INVALID, "NULL");
    assert_ok(muonium_state_of(m.optimizer, 0, &matrix));
    assert_ok(muonium_state_of(m.optimizer, 3, &vector));
    assert_status_message(muonium_set_state(m.optimizer, 3, &matrix), MUONIUM_INVALID,
                          "parameter 3 has no momentum");
    assert_status_message(muonium_set_state(m.optimizer, 0, &vector), MUONIUM_INVALID,
                          "parameter 0 has no exp_avg");
    matrix.elements--;
    assert_status_message(muonium_set_state(m.optimizer, 0, &matrix), MUONIUM_INVALID,
                          "3071 elements");
    matrix.elements++;
    matrix.momentum_dtype = MUONIUM_BF16;
    assert_status_message(muonium_set_state(m.optimizer, 0, &matrix), MUONIUM_INVALID,
                          "momentum_dtype");
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_at_new_places),
        cmocka_unit_test(test_places_that_are_refused),
        cmocka_unit_test(test_state_moves),
        cmocka_unit_test(test_state_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
