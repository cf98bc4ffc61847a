/*
 * test_state_values.c: which state is accepted, whatever way it comes: by muonium_set_state,
 * by a file, by position; and that muonium_save does not write what no load would take.
 */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "optimizer/optimizer.h"

enum { ROWS = 6, COLUMNS = 5, ELEMENTS = ROWS * COLUMNS };

/* A matrix, a bf16 matrix with a master copy, both with NorMuon, and a vector. */
typedef struct model {
    muonium_optimizer *optimizer;
    float w[ELEMENTS], bias[ELEMENTS], grad[ELEMENTS];
    uint16_t half[ELEMENTS];
} model;

enum { W, HALF, BIAS, PARAMETERS };

static void create(model *m, muonium_nonfinite policy, muonium_dtype state_dtype)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.plan.nonfinite = policy;
    options.normuon = options.master = true;
    options.state_dtype = state_dtype;
    *m = (model){.optimizer = NULL};
    assert_ok(muonium_create(&options, &m->optimizer));
    for (size_t i = 0; i < ELEMENTS; i++) {
        m->grad[i] = 1 + (float)(i * i % 7);
    }
    muonium_tensor tensors[PARAMETERS] = {
        {.name = "w", .ndim = 2, .data = m->w},
        {.name = "half", .ndim = 2, .data = m->half, .dtype = MUONIUM_BF16, .f32_grad = true},
        {.name = "bias", .ndim = 1, .data = m->bias},
    };
    for (size_t i = 0; i < PARAMETERS; i++) {
        tensors[i].shape[0] = ROWS;
        tensors[i].shape[1] = COLUMNS;
        tensors[i].grad = m->grad;
        assert_ok(muonium_add(m->optimizer, &tensors[i], NULL));
    }
    assert_ok(muonium_step(m->optimizer));
}

typedef struct file {
    unsigned char bytes[1 << 14];
    size_t count;
} file;

static bool take(void *context, const void *data, size_t bytes)
{
    file *f = context;
    assert_true(f->count + bytes <= sizeof f->bytes);
    memcpy(f->bytes + f->count, data, bytes);
    f->count += bytes;
    return true;
}

static bool give(void *context, uint64_t offset, void *buffer, size_t bytes)
{
    memcpy(buffer, ((file *)context)->bytes + offset, bytes);
    return true;
}

static muonium_status load(muonium_optimizer *optimizer, file *f)
{
    muonium_source source = {.context = f, .size = f->count, .read = give};
    return muonium_load_from(optimizer, &source);
}

static float *array_of(muonium_state *state, mu_state_kind kind, size_t *count)
{
    float *const arrays[MU_STATE_KINDS] = {state->momentum, state->exp_avg, state->exp_avg_sq,
                                           state->normuon, state->master};
    *count = kind == MU_STATE_NORMUON ? state->rows : state->elements;
    return arrays[kind];
}

static const struct {
    size_t parameter;
    mu_state_kind kind;
    float value;
    muonium_status status;    /* under the policies error and skip */
    muonium_status propagate; /* and under propagate */
} cases[] = {
    {W, MU_STATE_MOMENTUM, NAN, MUONIUM_NON_FINITE, MUONIUM_OK},
    {W, MU_STATE_MOMENTUM, -INFINITY, MUONIUM_NON_FINITE, MUONIUM_OK},
    {W, MU_STATE_MOMENTUM, -3e38f, MUONIUM_OK, MUONIUM_OK},
    {W, MU_STATE_NORMUON, INFINITY, MUONIUM_NON_FINITE, MUONIUM_OK},
    {W, MU_STATE_NORMUON, NAN, MUONIUM_NON_FINITE, MUONIUM_OK},
    {W, MU_STATE_NORMUON, -1e-30f, MUONIUM_INVALID, MUONIUM_INVALID},
    {HALF, MU_STATE_MASTER, NAN, MUONIUM_NON_FINITE, MUONIUM_OK},
    {HALF, MU_STATE_MASTER, INFINITY, MUONIUM_NON_FINITE, MUONIUM_OK},
    {BIAS, MU_STATE_EXP_AVG, NAN, MUONIUM_NON_FINITE, MUONIUM_OK},
    {BIAS, MU_STATE_EXP_AVG, INFINITY, MUONIUM_NON_FINITE, MUONIUM_OK},
    {BIAS, MU_STATE_EXP_AVG_SQ, NAN, MUONIUM_NON_FINITE, MUONIUM_OK},
    {BIAS, MU_STATE_EXP_AVG_SQ, INFINITY, MUONIUM_OK, MUONIUM_OK},
    {BIAS, MU_STATE_EXP_AVG_SQ, -1, MUONIUM_INVALID, MUONIUM_INVALID},
    {BIAS, MU_STATE_EXP_AVG_SQ, -0.0f, MUONIUM_OK, MUONIUM_OK},
};

/* The last value of an array becomes the case's: what is set, what is saved, what is loaded. */
static void judge(size_t i, muonium_nonfinite policy)
{
    muonium_status expected =
        policy == MUONIUM_NONFINITE_PROPAGATE ? cases[i].propagate : cases[i].status;
    model m, other;
    file before = {.count = 0}, after = {.count = 0}, made = {.count = 0};
    char place[64];
    size_t count;
    muonium_state own, given;
    create(&m, policy, MUONIUM_F32);
    create(&other, policy, MUONIUM_F32);
    assert_ok(muonium_save_to(m.optimizer, take, &before));

    float copy[ELEMENTS];
    assert_ok(muonium_state_of(other.optimizer, cases[i].parameter, &given));
    const float *present = array_of(&given, cases[i].kind, &count);
    memcpy(copy, present, count * sizeof(float));
    copy[count - 1] = cases[i].value;
    float **places[MU_STATE_KINDS] = {(float **)&given.momentum, (float **)&given.exp_avg,
                                      &given.exp_avg_sq, &given.normuon, &given.master};
    *places[cases[i].kind] = copy;
    snprintf(place, sizeof place,
             "%s of \"%s\" is %g at element %zu:", mu_state_spec_of(cases[i].kind)->name,
             ((const char *[]){"w", "half", "bias"})[cases[i].parameter], (double)cases[i].value,
             count - 1);
    assert_status_message(muonium_set_state(m.optimizer, cases[i].parameter, &given), expected,
                          place);
    assert_ok(muonium_save_to(m.optimizer, take, &after));
    bool same = after.count == before.count && memcmp(after.bytes, before.bytes, after.count) == 0;
    assert_int_equal(same, expected != MUONIUM_OK); /* a refusal changes nothing */

    /* A value written straight into the state is saved only if it can be loaded. */
    assert_ok(muonium_state_of(m.optimizer, cases[i].parameter, &own));
    array_of(&own, cases[i].kind, &count)[count - 1] = cases[i].value;
    assert_status_message(muonium_save_to(m.optimizer, take, &made), expected, place);
    assert_true((made.count > 0) == (expected == MUONIUM_OK));
    if (expected == MUONIUM_OK) {
        assert_ok(load(other.optimizer, &made));
    }
    muonium_destroy(m.optimizer);
    muonium_destroy(other.optimizer);
}

static void test_values(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        judge(i, MUONIUM_NONFINITE_ERROR);
        judge(i, MUONIUM_NONFINITE_SKIP);
        judge(i, MUONIUM_NONFINITE_PROPAGATE);
    }
}

static void test_bf16_momentum(void **unused)
{
    static const uint16_t values[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81}; /* infinities, NaN */
    (void)unused;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        model m;
        muonium_state state;
        uint16_t copy[ELEMENTS] = {0};
        create(&m, MUONIUM_NONFINITE_ERROR, MUONIUM_BF16);
        assert_ok(muonium_state_of(m.optimizer, W, &state));
        copy[3] = values[i];
        state.momentum = copy;
        assert_status_message(muonium_set_state(m.optimizer, W, &state), MUONIUM_NON_FINITE,
                              "momentum of \"w\"");
        muonium_destroy(m.optimizer);
    }
}

static void test_counts(void **unused)
{
    model m, other;
    muonium_state state;
    file saved = {.count = 0};
    muonium_positional_options position;
    (void)unused;
    create(&m, MUONIUM_NONFINITE_ERROR, MUONIUM_F32);
    create(&other, MUONIUM_NONFINITE_ERROR, MUONIUM_F32);
    assert_ok(muonium_state_of(m.optimizer, BIAS, &state));
    state.steps = UINT64_MAX;
    assert_status_message(muonium_set_state(m.optimizer, BIAS, &state), MUONIUM_INVALID,
                          "18446744073709551615 steps of \"bias\": at most 2^53");
    state.steps = MU_MOST_STEPS + 1;
    assert_status_message(muonium_set_state(m.optimizer, BIAS, &state), MUONIUM_INVALID, "2^53");
    state.steps = MU_MOST_STEPS;
    assert_ok(muonium_set_state(m.optimizer, BIAS, &state));
    assert_ok(muonium_save_to(m.optimizer, take, &saved));
    assert_ok(load(other.optimizer, &saved));

    assert_ok(muonium_step(m.optimizer)); /* one too many to be saved */
    saved.count = 0;
    assert_status_message(muonium_save_to(m.optimizer, take, &saved), MUONIUM_INVALID,
                          "saving: 9007199254740993 steps of \"bias\"");
    assert_int_equal(saved.count, 0);

    muonium_positional_options_init(&position);
    position.steps = MU_MOST_STEPS + 1;
    muonium_buffer buffers[4];
    for (size_t i = 0; i < 4; i++) {
        buffers[i] =
            (muonium_buffer){.data = m.grad, .ndim = 1, .shape = {i < 2 ? ELEMENTS : ROWS}};
    }
    assert_status_message(muonium_load_positional(m.optimizer, buffers, 4, &position),
                          MUONIUM_INVALID, "9007199254740993 steps");
    position.steps = MU_MOST_STEPS;
    assert_ok(muonium_load_positional(m.optimizer, buffers, 4, &position));
    m.grad[0] = NAN;
    assert_status_message(muonium_load_positional(m.optimizer, buffers, 4, &position),
                          MUONIUM_NON_FINITE, "momentum of \"w\" is nan at element 0");
    muonium_destroy(m.optimizer);
    muonium_destroy(other.optimizer);
}

/* The old file stays when the new state cannot be saved. */
static void test_old_file_stays(void **unused)
{
    char directory[] = "/tmp/muonium-values-XXXXXX", path[64];
    model m;
    muonium_state state;
    (void)unused;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/state", directory);
    create(&m, MUONIUM_NONFINITE_ERROR, MUONIUM_F32);
    assert_ok(muonium_save(m.optimizer, path));
    assert_ok(muonium_state_of(m.optimizer, W, &state));
    ((float *)state.momentum)[7] = NAN;
    assert_status_message(muonium_save(m.optimizer, path), MUONIUM_NON_FINITE,
                          "saving: momentum of \"w\" is nan at element 7: nothing was saved");
    assert_ok(muonium_load(m.optimizer, path));
    float restored = ((float *)state.momentum)[7];
    assert_true(restored <= 1e30f && restored >= -1e30f);
    muonium_destroy(m.optimizer);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0); /* nothing else was left */
}

/* Every array has an entry of its own, with a name and a place in muonium_state. */
static void test_table(void **state)
{
    (void)state;
    for (mu_state_kind kind = 0; kind < MU_STATE_KINDS; kind++) {
        const mu_state_spec *spec = mu_state_spec_of(kind);
        assert_non_null(spec->name);
        assert_non_null(spec->kept);
        assert_true(spec->field >= offsetof(muonium_state, momentum));
        assert_true(spec->field + sizeof(void *) <= sizeof(muonium_state));
        for (mu_state_kind other = 0; other < kind; other++) {
            assert_string_not_equal(spec->name, mu_state_spec_of(other)->name);
            assert_int_not_equal(spec->field, mu_state_spec_of(other)->field);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_values),
        cmocka_unit_test(test_bf16_momentum),  cmocka_unit_test(test_counts),
        cmocka_unit_test(test_old_file_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
