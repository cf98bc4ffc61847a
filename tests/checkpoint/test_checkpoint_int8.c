/*
 * test_checkpoint_int8.c: int8 state in checkpoints: saved and loaded as it is; converted from and
 * to f32 and bf16; files whose integers and scales do not belong together.
 */
#include "checkpoint_forgery.h"

#include <math.h>

enum { ROWS = 60, COLS = 100, COUNT = 5000, BLOCK = MUONIUM_STATE_BLOCK };

/* A matrix and a vector, with gradients. */
typedef struct pair {
    muonium_optimizer *optimizer;
    float w[ROWS * COLS], b[COUNT], gw[ROWS * COLS], gb[COUNT];
} pair;

static muonium_options options_of(muonium_dtype momentum, muonium_dtype adam)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.state_dtype = momentum;
    options.adam_state_dtype = adam;
    return options;
}

static pair *create(const muonium_options *options)
{
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_ok(muonium_create(options, &p->optimizer));
    muonium_tensor w = {.name = "w", .ndim = 2, .shape = {ROWS, COLS}, .data = p->w, .grad = p->gw};
    muonium_tensor b = {.name = "b", .ndim = 1, .shape = {COUNT}, .data = p->b, .grad = p->gb};
    assert_ok(muonium_add(p->optimizer, &w, NULL));
    assert_ok(muonium_add(p->optimizer, &b, NULL));
    return p;
}

static void step(pair *p, int from, int to)
{
    for (int t = from; t < to; t++) {
        for (size_t i = 0; i < ROWS * COLS; i++) {
            p->gw[i] = sinf((float)((size_t)t * 7919 + i));
        }
        for (size_t i = 0; i < COUNT; i++) {
            p->gb[i] = cosf((float)((size_t)t * 104729 + i));
        }
        assert_ok(muonium_step(p->optimizer));
    }
}

static void destroy(pair *p)
{
    muonium_destroy(p->optimizer);
    free(p);
}

static bytes save(const pair *p)
{
    bytes state = {0};
    assert_ok(muonium_save_to(p->optimizer, bytes_append, &state));
    return state;
}

static muonium_status load(pair *p, const bytes *state, bool partial, muonium_load_report *report)
{
    model m = {.optimizer = p->optimizer};
    muonium_load_options options;
    muonium_load_options_init(&options);
    options.partial = partial;
    return model_load_with(&m, state, &options, report);
}

/* Element i of the momentum or, if `adam`, of the first moment. */
static double kept(const pair *p, bool adam, size_t i)
{
    muonium_state s;
    assert_ok(muonium_state_of(p->optimizer, adam, &s));
    const void *values = adam ? s.exp_avg : s.momentum;
    const float *scales = adam ? s.exp_avg_scale : s.momentum_scale;
    switch (adam ? s.exp_avg_dtype : s.momentum_dtype) {
    case MUONIUM_INT8:
        return (double)(scales[i / BLOCK] * (float)((const int8_t *)values)[i]);
    case MUONIUM_BF16:
        return (double)mu_f32_from_bf16(((const uint16_t *)values)[i]);
    default:
        return (double)((const float *)values)[i];
    }
}

static size_t count_of(bool adam)
{
    return adam ? COUNT : ROWS * COLS;
}

static double scale_of(const pair *p, bool adam, size_t i)
{
    muonium_state s;
    assert_ok(muonium_state_of(p->optimizer, adam, &s));
    return (double)(adam ? s.exp_avg_scale : s.momentum_scale)[i / BLOCK];
}

/* ---- resuming ---- */

static void resumes_bit_for_bit(void **state)
{
    (void)state;
    for (int random = 0; random < 2; random++) {
        muonium_options options = options_of(MUONIUM_INT8, MUONIUM_INT8);
        options.state_stochastic = random;
        pair *through = create(&options), *first = create(&options), *second = create(&options);
        step(through, 1, 9);
        step(first, 1, 5);
        bytes saved = save(first);
        memcpy(second->w, first->w, sizeof first->w);
        memcpy(second->b, first->b, sizeof first->b);
        muonium_load_report report;
        assert_ok(load(second, &saved, false, &report));
        assert_int_equal(report.converted, 0);
        bytes again = save(second);
        assert_true(bytes_equal(&saved, &again));
        step(second, 5, 9);
        assert_memory_equal(second->w, through->w, sizeof through->w);
        assert_memory_equal(second->b, through->b, sizeof through->b);
        bytes_free(&saved);
        bytes_free(&again);
        destroy(through);
        destroy(first);
        destroy(second);
    }
}

/* ---- conversion ---- */

/* From int8 the values are exact in f32, and rounded once in bf16. To int8 they are within half a
 * unit, and what came from int8 is as it was. */
static void converts_between_all_types(void **state)
{
    (void)state;
    const muonium_dtype types[] = {MUONIUM_F32, MUONIUM_BF16, MUONIUM_INT8};
    for (size_t k = 0; k < 9; k++) {
        muonium_dtype from = types[k / 3], to = types[k % 3];
        muonium_dtype adam_from = from == MUONIUM_BF16 ? MUONIUM_F32 : from;
        muonium_dtype adam_to = to == MUONIUM_BF16 ? MUONIUM_F32 : to;
        muonium_options a = options_of(from, adam_from), b = options_of(to, adam_to);
        pair *source = create(&a), *target = create(&b), *back = create(&a);
        muonium_load_report report;
        step(source, 1, 4);
        bytes saved = save(source);
        assert_ok(load(target, &saved, false, &report));
        assert_int_equal(report.matched, 2);
        assert_int_equal(report.converted, (from != to) + (adam_from != adam_to));
        assert_int_equal(report.missing + report.left_over, 0);
        for (int adam = 0; adam < 2; adam++) {
            muonium_dtype type = adam ? adam_to : to;
            for (size_t i = 0; i < count_of(adam); i++) {
                double x = kept(source, adam, i), y = kept(target, adam, i);
                double allowed = type == MUONIUM_INT8   ? 0.5001 * scale_of(target, adam, i)
                                 : type == MUONIUM_BF16 ? fabs(x) * 0x1p-8
                                                        : 0;
                assert_true(fabs(x - y) <= allowed);
                assert_true(from != to || x == y);
            }
        }
        if (from == MUONIUM_INT8) {
            bytes between = save(target);
            assert_ok(load(back, &between, false, NULL));
            for (size_t i = 0; i < ROWS * COLS && to == MUONIUM_F32; i++) {
                double x = kept(source, false, i), y = kept(back, false, i);
                assert_true(fabs(x - y) <= fabs(x) * 0x1p-22);
            }
            bytes_free(&between);
        }
        bytes_free(&saved);
        destroy(source);
        destroy(target);
        destroy(back);
    }
}

/* Between conventions of the momentum, int8 to int8 changes the scales alone. */
static void converts_between_conventions(void **state)
{
    (void)state;
    muonium_options lerp = options_of(MUONIUM_INT8, MUONIUM_F32), sum = lerp;
    sum.momentum_form = MUONIUM_MOMENTUM_SUM;
    pair *source = create(&lerp), *target = create(&sum);
    step(source, 1, 4);
    bytes saved = save(source);
    assert_ok(load(target, &saved, false, NULL));
    muonium_state s, t;
    assert_ok(muonium_state_of(source->optimizer, 0, &s));
    assert_ok(muonium_state_of(target->optimizer, 0, &t));
    assert_memory_equal(s.momentum, t.momentum, ROWS * COLS);
    for (size_t i = 0; i < s.blocks; i++) {
        float expected = (float)((double)s.momentum_scale[i] / (1 - lerp.momentum));
        assert_true(t.momentum_scale[i] == expected);
    }
    sum.state_dtype = MUONIUM_F32;
    pair *wide = create(&sum);
    assert_ok(load(wide, &saved, false, NULL));
    for (size_t i = 0; i < ROWS * COLS; i++) {
        double x = kept(source, false, i) / (1 - lerp.momentum);
        assert_true(fabs(kept(wide, false, i) - x) <= fabs(x) * 0x1p-22);
    }
    bytes wide_saved = save(wide);
    pair *again = create(&lerp);
    assert_ok(load(again, &wide_saved, false, NULL));
    for (size_t i = 0; i < ROWS * COLS; i++) {
        double x = kept(source, false, i);
        assert_true(fabs(kept(again, false, i) - x) <= fabs(x) * 0x1p-21);
    }
    bytes_free(&saved);
    bytes_free(&wide_saved);
    destroy(source);
    destroy(target);
    destroy(wide);
    destroy(again);
}

static void loads_by_position(void **state)
{
    (void)state;
    muonium_options options = options_of(MUONIUM_INT8, MUONIUM_INT8);
    pair *p = create(&options);
    static float m[ROWS * COLS], e[COUNT], v[COUNT];
    for (size_t i = 0; i < ROWS * COLS; i++) {
        m[i] = sinf((float)i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        e[i] = cosf((float)i);
    }
    muonium_buffer buffers[] = {{.data = m, .dtype = MUONIUM_F32, .ndim = 2, .shape = {ROWS, COLS}},
                                {.data = e, .dtype = MUONIUM_F32, .ndim = 1, .shape = {COUNT}},
                                {.data = v, .dtype = MUONIUM_F32, .ndim = 1, .shape = {COUNT}}};
    assert_ok(muonium_load_positional(p->optimizer, buffers, 3, NULL));
    for (size_t i = 0; i < ROWS * COLS; i++) {
        assert_true(fabs(kept(p, false, i) - (double)m[i]) <= 0.5001 * scale_of(p, false, i));
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(fabs(kept(p, true, i) - (double)e[i]) <= 0.5001 * scale_of(p, true, i));
    }
    m[5999] = NAN;
    assert_status_message(muonium_load_positional(p->optimizer, buffers, 3, NULL),
                          MUONIUM_NON_FINITE, "momentum_scale of \"w\" is nan at element 2, after");
    buffers[0].dtype = MUONIUM_INT8;
    assert_status_message(muonium_load_positional(p->optimizer, buffers, 3, NULL), MUONIUM_INVALID,
                          "buffer 0: dtype is int8, whose scales cannot be given: use f32");
    destroy(p);
}

/* ---- files that do not fit ---- */

static const uint64_t four[] = {4}, matrix[] = {3, 1}, few[] = {ROWS, 50};

static const struct {
    forgery made;
    muonium_dtype into;
    muonium_status status;
    const char *message;
} forged[] = {
    {{.tensor = "w.momentum_scale", .left_out = true},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "it lacks momentum_scale of \"w\""},
    {{.tensor = "w.momentum_scale", .left_out = true},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "it lacks momentum_scale of \"w\""},
    {{.tensor = "w.momentum", .left_out = true},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "it lacks momentum of \"w\""},
    {{.tensor = "w.momentum", .left_out = true},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "it lacks momentum of \"w\""},
    {{.tensor = "w.momentum_scale", .ndim = 1, .shape = four},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "\"w.momentum_scale\" has shape [4] and not [3]"},
    {{.tensor = "w.momentum_scale", .ndim = 1, .shape = four},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "\"w.momentum_scale\" has type F32 and shape [4] and not F32 and [3]"},
    {{.tensor = "w.momentum_scale", .ndim = 2, .shape = matrix},
     MUONIUM_BF16,
     MUONIUM_FORMAT,
     "\"w.momentum_scale\" has type F32 and shape [3, 1] and not F32 and [3]"},
    {{.tensor = "w.momentum_scale", .dtype = "I32"},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "\"w.momentum_scale\" has type I32 and shape [3] and not F32 and [3]"},
    {{.tensor = "w.momentum_scale", .dtype = "I32"},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "\"w.momentum_scale\" is of type I32 and not F32"},
    {{.tensor = "w.momentum", .dtype = "U8"},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "\"w.momentum\" is of type U8 and not F32, BF16 or I8"},
    {{.tensor = "w.momentum", .ndim = 2, .shape = few},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "\"w.momentum\" has shape [60, 50] and not [60, 100]"},
    {{.tensor = "w.momentum_scale", .element = NAN},
     MUONIUM_INT8,
     MUONIUM_NON_FINITE,
     "momentum_scale of \"w\" is nan at element 1"},
    {{.tensor = "w.momentum_scale", .element = NAN},
     MUONIUM_F32,
     MUONIUM_NON_FINITE,
     "momentum_scale of \"w\" is nan at element 1"},
    {{.tensor = "w.momentum_scale", .element = -1},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "momentum_scale of \"w\" is -1 at element 1: a scale is not negative"},
    {{.key = "muonium.crc32c.w.momentum_scale", .value = "00000000"},
     MUONIUM_F32,
     MUONIUM_FORMAT,
     "the file is damaged"},
    {{.key = "muonium.crc32c.w.momentum_scale", .value = "00000000"},
     MUONIUM_INT8,
     MUONIUM_FORMAT,
     "the file is damaged"},
    {{.key = "muonium.crc32c.w.momentum_scale"}, MUONIUM_F32, MUONIUM_FORMAT, "is missing"},
};

static void forged_scales(void **state)
{
    (void)state;
    muonium_options options = options_of(MUONIUM_INT8, MUONIUM_F32);
    pair *source = create(&options);
    step(source, 1, 3);
    bytes saved = save(source);
    for (size_t i = 0; i < MU_COUNT(forged); i++) {
        muonium_options into = options_of(forged[i].into, MUONIUM_F32);
        pair *target = create(&into);
        step(target, 4, 6);
        bytes before = save(target), file = forge(&saved, forged[i].made);
        assert_status_message(load(target, &file, false, NULL), forged[i].status,
                              forged[i].message);
        bytes after = save(target);
        assert_true(bytes_equal(&before, &after));
        bytes_free(&before);
        bytes_free(&after);
        bytes_free(&file);
        destroy(target);
    }
    destroy(source);
    bytes_free(&saved);
}

/* Without its scales a parameter is left out of a partial load; the other is loaded. */
static void partial_loads(void **state)
{
    (void)state;
    const muonium_dtype into[] = {MUONIUM_INT8, MUONIUM_F32};
    muonium_options options = options_of(MUONIUM_INT8, MUONIUM_F32);
    pair *source = create(&options);
    step(source, 1, 3);
    bytes saved = save(source);
    bytes file = forge(&saved, (forgery){.tensor = "w.momentum_scale", .left_out = true});
    for (size_t i = 0; i < MU_COUNT(into); i++) {
        muonium_options own = options_of(into[i], MUONIUM_F32);
        pair *target = create(&own);
        muonium_load_report report;
        assert_ok(load(target, &file, true, &report));
        assert_int_equal(report.matched, 1);
        assert_string_equal(report.missing_names, "momentum_scale of \"w\"");
        assert_string_equal(report.left_over_names, "\"w.momentum\"");
        assert_true(kept(target, false, 0) == 0);
        destroy(target);
    }
    bytes_free(&saved);
    bytes_free(&file);
    destroy(source);
}

static void impossible_integer(void **state)
{
    (void)state;
    muonium_options options = options_of(MUONIUM_INT8, MUONIUM_F32);
    pair *source = create(&options);
    step(source, 1, 2);
    bytes saved = save(source);
    uint32_t bits = 0x80000000u; /* -128 at element 7 */
    float lowest;
    memcpy(&lowest, &bits, sizeof lowest);
    bytes file = forge(&saved, (forgery){.tensor = "w.momentum", .element = lowest});
    assert_status_message(load(source, &file, false, NULL), MUONIUM_FORMAT,
                          "momentum of \"w\" is -128 at element 7");
    bytes_free(&saved);
    bytes_free(&file);
    destroy(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_bit_for_bit),
        cmocka_unit_test(converts_between_all_types),
        cmocka_unit_test(converts_between_conventions),
        cmocka_unit_test(loads_by_position),
        cmocka_unit_test(forged_scales),
        cmocka_unit_test(partial_loads),
        cmocka_unit_test(impossible_integer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
