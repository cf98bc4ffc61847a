/*
 * test_checkpoint_refusals.c: what does not fit or is damaged is refused with a message
 * that names it, and nothing has changed.
 */
#include "checkpoint_model.h"

#include <math.h>

#include "checkpoint/crc32c.h"
#include "checkpoint/safetensors.h"

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
    refuse(
        &poor, &saved, MUONIUM_FORMAT,
        "no parameter takes \"h.2.half.normuon\", \"h.2.half.master\", \"h.3.half.normuon\", and "
        "1 more");
    bytes_free(&saved);
    model_destroy(&rich);
    model_destroy(&poor);
}

/* ---- files made by hand, with checksums that are right ---- */

/* A copy of a state with one metadata value replaced, or left out if it is NULL, and with
 * the first bytes of one tensor replaced. */
typedef struct forgery {
    const char *key, *value;
    const char *tensor;
    float element;
    const char *dtype; /* NULL: as it was */
    bool foreign;      /* without any metadata */
} forgery;

static bool is_checksum(const char *key)
{
    return strncmp(key, "muonium.crc32c.", 15) == 0 || strcmp(key, "muonium.header_crc32c") == 0;
}

static bytes forge(const bytes *saved, forgery f)
{
    muonium_reader *reader;
    muonium_writer *writer;
    bytes made = {0}, data = {0};
    const char *key, *value;
    assert_ok(muonium_reader_open_memory(saved->data, saved->count, &reader));
    assert_ok(muonium_writer_create(&writer));
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        bool replaced = f.key != NULL && strcmp(key, f.key) == 0;
        if (!f.foreign && !(replaced && f.value == NULL) && !is_checksum(key)) {
            assert_ok(muonium_writer_add_metadata(writer, key, replaced ? f.value : value));
        }
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        bool chosen = f.tensor != NULL && strcmp(entry->name, f.tensor) == 0;
        size_t at = data.count;
        assert_ok(muonium_writer_add(writer, entry->name,
                                     chosen && f.dtype ? f.dtype : entry->dtype, entry->ndim,
                                     entry->shape));
        assert_true(bytes_append(&data, saved->data + entry->offset, (size_t)entry->bytes));
        if (chosen && f.dtype == NULL) {
            memcpy(data.data + at + 4, &f.element, 4);
        }
        char name[128], digits[9];
        snprintf(name, sizeof name, "muonium.crc32c.%s", entry->name);
        snprintf(digits, sizeof digits, "%08x",
                 (unsigned)mu_crc32c(0, data.data + at, data.count - at));
        bool left_out = f.key != NULL && strcmp(name, f.key) == 0;
        if (!f.foreign && !(left_out && f.value == NULL)) {
            assert_ok(muonium_writer_add_metadata(writer, name, left_out ? f.value : digits));
        }
    }
    if (!f.foreign) {
        assert_ok(mu_writer_seal(writer, "muonium.header_crc32c"));
    }
    assert_ok(muonium_writer_begin_sink(writer, bytes_append, &made));
    assert_ok(muonium_writer_data(writer, data.data, data.count));
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    muonium_reader_close(reader);
    bytes_free(&data);
    return made;
}

static void test_forged_metadata(void **state)
{
    static const struct {
        const char *key, *value, *message;
    } cases[] = {
        {"muonium.format", "2", "state format 2, but this library, version "},
        {"muonium.format", "0", "state format 0, but"},
        {"muonium.format", "", "key \"muonium.format\" has the value \"\""},
        {"muonium.format", "1x", "key \"muonium.format\" has the value \"1x\""},
        {"muonium.format", NULL, "no state of a Muonium optimizer"},
        {"muonium.step", NULL, "key \"muonium.step\" is missing"},
        {"muonium.step", "-1", "key \"muonium.step\" has the value \"-1\""},
        {"muonium.step", "18446744073709551615", "key \"muonium.step\" has the value"},
        {"muonium.step", "99999999999999999999999", "key \"muonium.step\" has the value"},
        {"muonium.counters", NULL, "key \"muonium.counters\" is missing"},
        {"muonium.counters", "matrices=1 skipped=0 zero=0", "\"muonium.counters\" has the value"},
        {"muonium.group.0", NULL, "\"muonium.parameter.h.0.w\" has the value"},
        {"muonium.group.0", "momentum=0.9", "tell no momentum_form that is known"},
        {"muonium.group.0", "momentum=0.9 momentum_form=su", "tell no momentum_form"},
        {"muonium.group.0", "momentum_form=sum", "tell no momentum from 0 to below 1"},
        {"muonium.group.0", "momentum_form=sum momentum=1", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=nan", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=0.9x", "tell no momentum from 0"},
        {"muonium.group.0", "momentum_form=sum momentum=", "tell no momentum from 0"},
        {"muonium.parameter.h.0.w", NULL, "it lacks momentum of \"h.0.w\""},
        {"muonium.parameter.h.0.w", "", "\"muonium.parameter.h.0.w\" has the value"},
        {"muonium.parameter.h.0.w", "route=sgd steps=1 group=0 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 group=0", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1 group=9 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=muon steps=1.5 group=0 master=no", "has the value"},
        {"muonium.parameter.h.0.w", "route=adam steps=1 group=0 master=no", "was stepped by AdamW"},
        {"muonium.crc32c.h.0.w.momentum", NULL, "\"muonium.crc32c.h.0.w.momentum\" is missing"},
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
    refuse(&m, &foreign, MUONIUM_FORMAT, "no state of a Muonium optimizer");
    bytes_free(&foreign);
    bytes_free(&saved);
    model_destroy(&m);
}

static void test_forged_values(void **state)
{
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
         "\"h.0.w.momentum\" is of type I32 and not F32 or BF16"},
        {{.tensor = "ln.bias.exp_avg", .dtype = "U32"},
         MUONIUM_FORMAT,
         "\"ln.bias.exp_avg\" is of type U32 and not F32"},
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
    options.nonfinite = MUONIUM_NONFINITE_PROPAGATE;
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
    muonium_writer *writer;
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
    buffer.data = saved.data;
    buffer.dtype = (muonium_dtype)9;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, NULL), MUONIUM_INVALID,
                          "buffer 0: dtype is none");
    muonium_positional_options_init(&position);
    position.momentum = 1;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "momentum 1,");
    position.struct_size = 0;
    assert_status_message(muonium_load_positional(m.optimizer, &buffer, 1, &position),
                          MUONIUM_INVALID, "struct_size of muonium_positional_options is 0");
    muonium_load_options_init(NULL);
    muonium_positional_options_init(NULL);
    muonium_reader_close(reader);

    muonium_tensor odd = {.name = "bad\xff", .ndim = 1, .shape = {2}, .data = m.data[5]};
    assert_ok(muonium_add(m.optimizer, &odd, NULL));
    assert_status_message(muonium_save_prepare(m.optimizer, "/tmp/x", NULL, NULL, &writer),
                          MUONIUM_INVALID, "is not UTF-8");
    bytes_free(&saved);
    model_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_model),      cmocka_unit_test(test_other_route),
        cmocka_unit_test(test_left_over_arrays), cmocka_unit_test(test_forged_metadata),
        cmocka_unit_test(test_forged_values),    cmocka_unit_test(test_overflow_in_conversion),
        cmocka_unit_test(test_every_bit),        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
