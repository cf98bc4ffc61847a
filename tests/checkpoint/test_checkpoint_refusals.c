/*
 * test_checkpoint_refusals.c: what does not fit or is damaged is refused with a message
 * that names it, and nothing has changed.
 */
#include "checkpoint_forgery.h"

#include <math.h>

/* A refusal with this message leaves every byte of the state as it was. */
static void refuse_with(model *m, const bytes *saved, const muonium_load_options *options,
                        muonium_status expected, const char *message)
{
    bytes before = model_state(m);
    assert_status_message(model_load_with(m, saved, options, NULL), expected, message);
    bytes after = model_state(m);
    assert_true(bytes_equal(&before, &after));
    bytes_free(&before);
    bytes_free(&after);
}

static void refuse(model *m, const bytes *saved, muonium_status expected, const char *message)
{
    refuse_with(m, saved, NULL, expected, message);
}

/* ---- files that do not fit ---- */

static void test_other_model(void **state)
{
    muonium_options options;
    muonium_load_options partial;
    muonium_optimizer *other;
    bytes saved = {0};
    static float data[4][120];
    static const size_t columns[4] = {11, 12, 13, 14};
    static const char *const names[4] = {"h.0.w", "h.1.conv", "experts.w", "h.2.half"};
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    assert_ok(muonium_create(&options, &other));
    for (size_t i = 0; i < 4; i++) {
        muonium_tensor tensor = {
            .name = names[i], .ndim = 2, .shape = {8, columns[i]}, .data = data[i]};
        assert_ok(muonium_add(other, &tensor, NULL));
    }
    assert_ok(muonium_save_to(other, bytes_append, &saved));
    muonium_destroy(other);
    model m;
    create_stepped(&m, NULL, 0, 4);
    muonium_load_options_init(&partial);
    partial.partial = true;
    static const char message[] =
        "does not fit the optimizer: \"h.0.w.momentum\" has shape [8, 11] "
        "and not [8, 12], \"h.1.conv.momentum\" has shape [8, 12] and "
        "not [6, 5, 2, 2], \"experts.w.momentum\" has shape [8, 13] and "
        "not [4, 6, 8], and 1 more; nothing was loaded";
    refuse(&m, &saved, MUONIUM_FORMAT, message);
    refuse_with(&m, &saved, &partial, MUONIUM_FORMAT, message);
    bytes_free(&saved);
    model_destroy(&m);
}

static void test_other_route(void **state)
{
    muonium_options options;
    model adam;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    options.route = MUONIUM_ROUTE_ADAM;
    assert_ok(model_create(&adam, &options, 0, 2));
    model muon;
    create_stepped(&muon, NULL, 0, 2);
    bytes of_adam = model_state(&adam), of_muon = model_state(&muon);
    refuse(&muon, &of_adam, MUONIUM_FORMAT,
           "\"h.0.w\" was stepped by AdamW and is now by Muon (ok)");
    refuse(&adam, &of_muon, MUONIUM_FORMAT, "\"h.0.w\" was stepped by Muon and is now by AdamW (");
    bytes_free(&of_adam);
    bytes_free(&of_muon);
    model_destroy(&adam);
    model_destroy(&muon);
}

/* What a file has beyond the optimizer's needs is not dropped without a word. */
static void test_left_over_arrays(void **state)
{
    muonium_options options = configure(&(configuration){"", NULL, use_everything});
    model rich;
    (void)state;
    assert_ok(model_create(&rich, &options, 3, 5));
    assert_ok(model_steps(&rich, 0, 2));
    bytes saved = model_state(&rich);
    options.normuon = options.master = false;
    model poor;
    assert_ok(model_create(&poor, &options, 3, 5));
    refuse(&poor, &saved, MUONIUM_FORMAT,
           "no parameter uses \"h.2.half.normuon\", \"h.2.half.master\", \"h.3.half.normuon\", and "
           "1 more");
    bytes_free(&saved);
    model_destroy(&rich);
    model_destroy(&poor);
}

/* ---- files made by hand, with checksums that are right ---- */

static void test_forged_metadata(void **state)
{
    static const struct {
        const char *key, *value, *message;
    } cases[] = {
        {"muonium.format", "2", "state format 2, but this library, version "},
        {"muonium.format", "0", "state format 0, but"},
        {"muonium.format", "", "key \"muonium.format\" has the value \"\""},
        {"muonium.format", "1x", "key \"muonium.format\" has the value \"1x\""},
        {"muonium.format", NULL, "not the state of a Muonium optimizer"},
        {"muonium.step", NULL, "key \"muonium.step\" is missing"},
        {"muonium.step", "-1", "key \"muonium.step\" has the value \"-1\""},
        {"muonium.step", "18446744073709551615", "key \"muonium.step\" has the value"},
        {"muonium.step", "99999999999999999999999", "key \"muonium.step\" has the value"},
        {"muonium.step", "9007199254740993", "9007199254740993 steps of the optimizer: at most"},
        {"muonium.counters", NULL, "key \"muonium.counters\" is missing"},
        {"muonium.counters", "matrices=1 skipped=0 zero=0", "\"muonium.counters\" has the value"},
        {"muonium.counters", "skipped=0 rescued=0 zero=0", "\"muonium.counters\" has the value"},
        {"muonium.counters", "matrices=1 rescued=0 zero=0", "\"muonium.counters\" has the value"},
        {"muonium.counters", "matrices=1 skipped=0 rescued=0", "\"muonium.counters\" has the"},
        {"muonium.group.0", NULL, "\"muonium.parameter.h.0.w\" has the value"},
        {"muonium.group.0", "momentum=0.9", "tell no momentum_form that is known"},
        {"muonium.group.0", "momentum=0.9 momentum_form=su", "tell no momentum_form"},
        {"muonium.group.0", "momentum_form=sum", "tell no momentum from 0 to below 1"},
        {"muonium.group.0", "momentum_form=sum momentum=1", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=nan", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=0.9x", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=-0.5", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=max momentum=0.9", "tell no momentum_form"},
        {"muonium.group.0", "momentum_form=sum momentum=0.950000000000000000000000000000001",
         "tell no momentum from 0"},
        {"muonium.parameter.h.0.w", NULL, "it lacks momentum of \"h.0.w\""},
        {"muonium.parameter.h.0.w", "", "\"muonium.parameter.h.0.w\" has the value"},
        {"muonium.parameter.h.0.w", "route=sgd steps=1 group=0 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 group=0", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 group=9 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1.5 group=0 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=9007199254740993 group=0 master=no",
         "9007199254740993 steps of \"h.0.w\": at most 2^53"},
        {"muonium.parameter.h.0.w", "route=adam steps=1 group=0 master=no", "was stepped by AdamW"},
        {"muonium.crc32c.h.0.w.momentum", NULL, "\"muonium.crc32c.h.0.w.momentum\" is missing"},
        {"muonium.crc32c.h.0.w.momentum", "0000000", "has the value \"0000000\""},
        {"muonium.crc32c.h.0.w.momentum", "0000000G", "has the value \"0000000G\""},
        {"muonium.crc32c.h.0.w.momentum", "00000000", "but should have 00000000: the file is"},
    };
    model m;
    create_stepped(&m, NULL, 0, 7);
    bytes saved = model_state(&m);
    (void)state;
    bytes copy = forge(&saved, (forgery){0});
    assert_ok(model_load(&m, &copy)); /* the forger itself works */
    bytes_free(&copy);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes forged = forge(&saved, (forgery){.key = cases[i].key, .value = cases[i].value});
        refuse(&m, &forged, MUONIUM_FORMAT, cases[i].message);
        bytes_free(&forged);
    }
    bytes foreign = forge(&saved, (forgery){.foreign = true});
    refuse(&m, &foreign, MUONIUM_FORMAT, "not the state of a Muonium optimizer");
    bytes_free(&foreign);
    bytes_free(&saved);
    model_destroy(&m);
}

static void test_forged_values(void **state)
{
    static const uint64_t bias_shape[] = {7}, matrix_shape[] = {8, 12};
    static const struct {
        forgery f;
        muonium_status status;
        const char *message;
    } cases[] = {
        {{.tensor = "h.0.w.momentum", .element = NAN},
         MUONIUM_NON_FINITE,
         "momentum of \"h.0.w\" is nan at element 1: nothing was loaded"},
        {{.tensor = "h.0.w.momentum", .element = -INFINITY},
         MUONIUM_NON_FINITE,
         "momentum of \"h.0.w\" is -inf at element 1"},
        {{.tensor = "ln.bias.exp_avg", .element = INFINITY},
         MUONIUM_NON_FINITE,
         "exp_avg of \"ln.bias\" is inf at element 1"},
        {{.tensor = "ln.bias.exp_avg_sq", .element = NAN},
         MUONIUM_NON_FINITE,
         "exp_avg_sq of \"ln.bias\" is nan at element 1"},
        {{.tensor = "ln.bias.exp_avg_sq", .element = -1e-20f},
         MUONIUM_FORMAT,
         "exp_avg_sq of \"ln.bias\" is -1e-20 at element 1: a mean of squares"},
        {{.tensor = "h.0.w.momentum", .dtype = "I32"},
         MUONIUM_FORMAT,
         "\"h.0.w.momentum\" is of type I32 and not F32, BF16 or I8"},
        {{.tensor = "ln.bias.exp_avg", .dtype = "U32"},
         MUONIUM_FORMAT,
         "\"ln.bias.exp_avg\" is of type U32 and not F32 or I8"},
        {{.tensor = "ln.bias.exp_avg", .dtype = "BF16", .ndim = 1, .shape = bias_shape},
         MUONIUM_FORMAT,
         "\"ln.bias.exp_avg\" is of type BF16 and not F32 or I8;"},
        {{.tensor = "h.0.w.momentum", .dtype = "F16", .ndim = 2, .shape = matrix_shape},
         MUONIUM_FORMAT,
         "\"h.0.w.momentum\" is of type F16 and not F32, BF16 or I8"},
        {{.tensor = "ln.bias.exp_avg_sq", .left_out = true},
         MUONIUM_FORMAT,
         "it lacks exp_avg_sq of \"ln.bias\"; no parameter uses \"ln.bias.exp_avg\""},
    };
    model m;
    create_stepped(&m, NULL, 0, 7);
    bytes saved = model_state(&m);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes forged = forge(&saved, cases[i].f);
        refuse(&m, &forged, cases[i].status, cases[i].message);
        bytes_free(&forged);
    }
    /* A second moment that overflowed is a state that steps lead to. */
    bytes infinite = forge(&saved, (forgery){.tensor = "ln.bias.exp_avg_sq", .element = INFINITY});
    assert_ok(model_load(&m, &infinite));
    bytes_free(&infinite);

    /* The policy of propagating takes everything but the impossible. */
    muonium_options options;
    model any;
    assert_ok(muonium_options_init(&options, NULL));
    options.plan.nonfinite = MUONIUM_NONFINITE_PROPAGATE;
    assert_ok(model_create(&any, &options, 0, 7));
    for (size_t i = 0; i < 5; i++) {
        bytes forged = forge(&saved, cases[i].f);
        assert_int_equal(model_load(&any, &forged), i < 4 ? MUONIUM_OK : MUONIUM_FORMAT);
        bytes_free(&forged);
    }
    bytes_free(&saved);
    model_destroy(&m);
    model_destroy(&any);
}

/* The same for momentum in bf16, whose NaN is another pattern. */
static void test_forged_bf16(void **state)
{
    muonium_options options = configure(&(configuration){"", NULL, use_bf16});
    model m, any;
    float nan_in_both; /* halves of it are bf16 NaN */
    uint32_t pattern = 0x7fc07fc0u;
    (void)state;
    memcpy(&nan_in_both, &pattern, sizeof pattern);
    assert_ok(model_create(&m, &options, 0, 1));
    assert_ok(model_steps(&m, 0, 2));
    options.plan.nonfinite = MUONIUM_NONFINITE_PROPAGATE;
    assert_ok(model_create(&any, &options, 0, 1));
    bytes saved = model_state(&m);
    bytes forged = forge(&saved, (forgery){.tensor = "h.0.w.momentum", .element = nan_in_both});
    refuse(&m, &forged, MUONIUM_NON_FINITE, "momentum of \"h.0.w\" is nan at element 2");
    assert_ok(model_load(&any, &forged));
    bytes_free(&saved);
    bytes_free(&forged);
    model_destroy(&m);
    model_destroy(&any);
}

/* A parameter with a part of its state is taken only if what is missing can start anew. */
static void test_incomplete_parameters(void **state)
{
    muonium_load_options partial;
    muonium_load_report report;
    muonium_options options;
    model plain, rich;
    (void)state;
    muonium_load_options_init(&partial);
    partial.partial = true;
    create_stepped(&plain, NULL, 3, 7);
    bytes saved = model_state(&plain);
    bytes without_both = forge(&saved, (forgery){.tensor = "ln.bias.exp_avg", .left_out = true});
    bytes without =
        forge(&without_both, (forgery){.tensor = "ln.bias.exp_avg_sq", .left_out = true});
    assert_ok(model_steps(&plain, 2, 3));
    assert_ok(model_load_with(&plain, &without, &partial, &report));
    assert_int_equal(report.matched, 3);
    assert_int_equal(report.missing, 2);
    assert_string_equal(report.missing_names, "exp_avg of \"ln.bias\", exp_avg_sq of \"ln.bias\"");
    muonium_state s;
    assert_ok(muonium_state_of(plain.optimizer, 3, &s));
    assert_int_equal(s.steps, 3); /* of the bias, which kept what it had */

    /* Master copies that were never kept: missing, but the momentum is taken. */
    assert_ok(muonium_options_init(&options, NULL));
    options.master = true;
    assert_ok(model_create(&rich, &options, 3, 5));
    refuse(&rich, &saved, MUONIUM_FORMAT, "it lacks master of \"h.2.half\"");
    assert_ok(model_load_with(&rich, &saved, &partial, &report));
    assert_int_equal(report.matched, 2);
    assert_int_equal(report.missing, 2);

    /* An optimizer without parameters takes nothing, and that is all of it. */
    model none;
    assert_ok(model_create(&none, NULL, 0, 0));
    assert_ok(model_load_with(&none, &saved, &partial, &report));
    assert_int_equal(report.matched, 0);
    bytes_free(&saved);
    bytes_free(&without_both);
    bytes_free(&without);
    model_destroy(&plain);
    model_destroy(&rich);
    model_destroy(&none);
}

/* Names and shapes as long as a file can make them leave the message readable. */
static void test_long_differences(void **state)
{
    enum { COUNT = 3, DIMS = 40 };
    static const uint64_t shape[DIMS] = {0, 4294967295u, 65535};
    static float data[COUNT][16];
    uint64_t many[DIMS];
    muonium_optimizer *optimizer;
    bytes saved = {0};
    (void)state;
    for (size_t d = 0; d < DIMS; d++) {
        many[d] = d < 3 ? shape[d] : 1;
    }
    assert_ok(muonium_create(NULL, &optimizer));
    for (size_t i = 0; i < COUNT; i++) {
        char name[301];
        memset(name, 'a' + (int)i, 300);
        name[300] = '\0';
        muonium_tensor tensor = {.name = name, .ndim = 2, .shape = {4, 4}, .data = data[i]};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    assert_ok(muonium_save_to(optimizer, bytes_append, &saved));
    for (size_t i = 0; i < COUNT; i++) {
        char name[310];
        memset(name, 'a' + (int)i, 300);
        strcpy(name + 300, ".momentum");
        bytes forged = forge(&saved, (forgery){.tensor = name, .ndim = DIMS, .shape = many});
        bytes_free(&saved);
        saved = forged;
    }
    muonium_reader *reader;
    assert_ok(muonium_reader_open_memory(saved.data, saved.count, &reader));
    assert_status_message(muonium_load_reader(optimizer, reader, NULL, NULL), MUONIUM_FORMAT,
                          "... has shape [0, 4294967295, 65535, 1, 1, ");
    assert_non_null(strstr(muonium_last_error(), ", ...] and not [4, 4], \"bbb"));
    muonium_reader_close(reader);
    muonium_destroy(optimizer);
    bytes_free(&saved);
}

/* What muonium_verify refuses beyond what loading does. */
static void test_forged_for_verification(void **state)
{
    static const struct {
        forgery f;
        const char *message;
    } cases[] = {
        {{.key = "muonium.version"}, "key \"muonium.version\" is missing"},
        {{.key = "muonium.step"}, "key \"muonium.step\" is missing"},
        {{.key = "muonium.parameter.ln.bias", .value = "route=none"},
         "has the value \"route=none\""},
        {{.key = "muonium.crc32c.ln.bias.exp_avg"}, "is missing"},
        {{.key = "muonium.crc32c.ln.bias.exp_avg", .value = "00000000"}, "the file is damaged"},
    };
    model m;
    create_stepped(&m, NULL, 5, 7);
    bytes saved = model_state(&m);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        muonium_reader *reader;
        muonium_checkpoint_info info = {.steps = 77};
        bytes forged = forge(&saved, cases[i].f);
        assert_ok(muonium_reader_open_memory(forged.data, forged.count, &reader));
        assert_status_message(muonium_verify(reader, &info), MUONIUM_FORMAT, cases[i].message);
        assert_int_equal(info.steps, 77);
        muonium_reader_close(reader);
        bytes_free(&forged);
    }
    /* Of a newer format without a version, what is needed cannot be told. */
    bytes newer = forge(&saved, (forgery){.key = "muonium.format", .value = "2"});
    bytes nameless = forge(&newer, (forgery){.key = "muonium.version"});
    refuse(&m, &nameless, MUONIUM_FORMAT, "use version \"unknown\" or newer");
    bytes_free(&newer);
    bytes_free(&nameless);
    bytes_free(&saved);
    model_destroy(&m);
}

/* A conversion that leaves the range of the type is noticed. */
static void test_overflow_in_conversion(void **state)
{
    model lerp;
    create_stepped(&lerp, NULL, 0, 1);
    bytes saved = model_state(&lerp);
    bytes large = forge(&saved, (forgery){.tensor = "h.0.w.momentum", .element = 3e38f});
    model sum;
    create_stepped(&sum, "fp32", 0, 1);
    (void)state;
    assert_ok(model_load(&lerp, &large));
    refuse(&sum, &large, MUONIUM_NON_FINITE, "is inf at element 1, after conversion");
    bytes_free(&saved);
    bytes_free(&large);
    model_destroy(&lerp);
    model_destroy(&sum);
}

/* ---- damage ---- */

static muonium_status load_damaged(model *m, const bytes *saved)
{
    muonium_load_options partial;
    muonium_load_options_init(&partial);
    partial.partial = true;
    muonium_status status = model_load_with(m, saved, &partial, NULL);
    return status != MUONIUM_OK ? model_load(m, saved) : status;
}

static void test_every_bit(void **state)
{
    model m;
    create_stepped(&m, NULL, 6, 8); /* the smallest: a bias and a scalar */
    bytes saved = model_state(&m);
    (void)state;
    for (size_t bit = 0; bit < 8 * saved.count; bit++) {
        saved.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        muonium_status status = load_damaged(&m, &saved);
        assert_int_equal(status, MUONIUM_FORMAT);
        assert_true(muonium_last_error()[0] != '\0');
        saved.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    bytes after = model_state(&m);
    assert_true(bytes_equal(&saved, &after));
    bytes_free(&saved);
    bytes_free(&after);
    model_destroy(&m);
}

static void test_every_length(void **state)
{
    model m;
    create_stepped(&m, NULL, 6, 8);
    bytes saved = model_state(&m);
    (void)state;
    for (size_t count = 0; count < saved.count; count++) {
        bytes cut = {malloc(count + 1), count}; /* of its own, so that tools see what is read */
        memcpy(cut.data, saved.data, count);
        assert_int_equal(load_damaged(&m, &cut), MUONIUM_FORMAT);
        bytes_free(&cut);
    }
    assert_true(bytes_append(&saved, "", 1));
    assert_int_equal(load_damaged(&m, &saved), MUONIUM_FORMAT);
    bytes_free(&saved);
    model_destroy(&m);
}

/* ---- arguments ---- */

static void test_arguments(void **state)
{
    model m;
    create_stepped(&m, NULL, 0, 1);
    bytes saved = model_state(&m);
    muonium_reader *reader;
    muonium_load_options options = {.struct_size = 3};
    muonium_positional_options position;
    muonium_buffer buffer = {.dtype = MUONIUM_F32, .ndim = 1, .shape = {96}};
    (void)state;
    assert_status_message(muonium_save(NULL, "x"), MUONIUM_INVALID, "optimizer is NULL");
    assert_status_message(muonium_save(m.optimizer, NULL), MUONIUM_INVALID, "path is NULL");
    assert_status_message(muonium_save_prepare(m.optimizer, "x", NULL, NULL, NULL), MUONIUM_INVALID,
                          "writer is NULL");
    assert_status_message(muonium_save_to(m.optimizer, NULL, NULL), MUONIUM_INVALID, "write is");
    assert_status_message(muonium_save_to(NULL, bytes_append, NULL), MUONIUM_INVALID, "optimizer");
    assert_status_message(muonium_save(m.optimizer, "/nowhere/at/all"), MUONIUM_IO, "/nowhere/at");
    assert_status_message(muonium_load(m.optimizer, "/nowhere/at/all"), MUONIUM_IO, "/nowhere/at");
    assert_status_message(muonium_load(m.optimizer, "/tmp"), MUONIUM_IO, "a directory");
    assert_status_message(muonium_load_from(m.optimizer, NULL), MUONIUM_INVALID, "source is NULL");
    assert_ok(muonium_reader_open_memory(saved.data, saved.count, &reader));
    assert_status_message(muonium_load_reader(NULL, reader, NULL, NULL), MUONIUM_INVALID,
                          "optimizer is NULL");
    assert_status_message(muonium_load_reader(m.optimizer, NULL, NULL, NULL), MUONIUM_INVALID,
                          "reader is NULL");
    assert_status_message(muonium_load_reader(m.optimizer, reader, &options, NULL), MUONIUM_INVALID,
                          "struct_size of muonium_load_options is 3");
    assert_status_message(muonium_verify(NULL, NULL), MUONIUM_INVALID, "reader is NULL");
    assert_ok(muonium_verify(reader, NULL));
    assert_status_message(muonium_load_positional_reader(m.optimizer, NULL, NULL), MUONIUM_INVALID,
                          "reader is NULL");
    assert_status_message(muonium_load_positional(m.optimizer, NULL, 1, NULL), MUONIUM_INVALID,
                          "buffers is NULL");
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, NULL), MUONIUM_INVALID,
                          "buffer 0: data is NULL");
    assert_status_message(muonium_load_positional(NULL, &buffer, 1, NULL), MUONIUM_INVALID,
                          "optimizer is NULL");
    assert_status_message(muonium_load_positional(m.optimizer, NULL, 0, NULL), MUONIUM_INVALID,
                          "0 buffers, but the optimizer needs 1");
    assert_status_message(muonium_load_positional_reader(NULL, reader, NULL), MUONIUM_INVALID,
                          "optimizer is NULL");
    buffer.data = saved.data;
    buffer.ndim = MUONIUM_MAX_DIMS + 1;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, NULL), MUONIUM_INVALID,
                          "buffer 0: ndim is beyond MUONIUM_MAX_DIMS");
    buffer.ndim = 1;
    buffer.dtype = (muonium_dtype)9;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, NULL), MUONIUM_INVALID,
                          "buffer 0: dtype is none");
    muonium_positional_options_init(&position);
    position.momentum = 1;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "momentum 1:");
    position.momentum = -0.5;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "momentum -0.5:");
    position.momentum = 0.5;
    position.momentum_form = (muonium_momentum_form)3;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "momentum_form 3,");
    position.momentum_form = MUONIUM_MOMENTUM_SUM;
    position.steps = UINT64_MAX;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID,
                          "18446744073709551615 steps of the optimizer: at most 2^53");
    position.struct_size = 0;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "struct_size of muonium_positional_options is 0");
    muonium_load_options_init(NULL);
    muonium_positional_options_init(NULL);
    muonium_reader_close(reader);

    muonium_tensor odd = {.name = "bad\xff", .ndim = 1, .shape = {2}, .data = m.data[5]};
    assert_status_message(muonium_add(m.optimizer, &odd, NULL), MUONIUM_INVALID,
                          "the name bad? is not valid UTF-8");
    bytes_free(&saved);
    model_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_model),      cmocka_unit_test(test_other_route),
        cmocka_unit_test(test_left_over_arrays), cmocka_unit_test(test_forged_metadata),
        cmocka_unit_test(test_forged_values),    cmocka_unit_test(test_overflow_in_conversion),
        cmocka_unit_test(test_forged_bf16),      cmocka_unit_test(test_incomplete_parameters),
        cmocka_unit_test(test_long_differences), cmocka_unit_test(test_forged_for_verification),
        cmocka_unit_test(test_every_bit),        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
