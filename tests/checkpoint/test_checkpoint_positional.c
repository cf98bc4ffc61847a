/*
 * test_checkpoint_positional.c: state without names, in the order of the parameters.
 */
#include "checkpoint_model.h"

#include "checkpoint/safetensors.h"

static void test_positional_buffers(void **state)
{
    muonium_options options;
    muonium_positional_options position;
    model a, b;
    muonium_buffer buffers[MODEL_PARAMETERS * 2];
    size_t count = 0;
    (void)state;
    assert_ok(muonium_options_init(&options, "fp32")); /* the sum convention */
    options.routing = MUONIUM_ROUTING_MUONIUM;
    assert_ok(model_create(&a, &options, 0, MODEL_PARAMETERS));
    assert_ok(muonium_options_init(&options, NULL));
    options.normuon = true;
    assert_ok(model_create(&b, &options, 0, MODEL_PARAMETERS));
    assert_ok(model_steps(&a, 0, 3));
    assert_ok(model_steps(&b, 5, 7));
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        muonium_state s;
        assert_ok(muonium_state_of(a.optimizer, i, &s));
        muonium_buffer buffer = {.dtype = MUONIUM_F32, .ndim = model_parameters[i].ndim};
        memcpy(buffer.shape, model_parameters[i].shape, buffer.ndim * sizeof buffer.shape[0]);
        if (i % 3 == 0) { /* flat */
            buffer.ndim = 1;
            buffer.shape[0] = s.elements;
        }
        const void *data[2] = {s.momentum ? s.momentum : s.exp_avg, s.exp_avg_sq};
        for (size_t k = 0; k < (s.momentum ? 1 : 2); k++) {
            buffer.data = data[k];
            buffers[count++] = buffer;
        }
    }
    bytes before = model_state(&b);
    assert_status_message(muonium_load_positional(b.optimizer, buffers, count - 1, NULL),
                          MUONIUM_INVALID, "buffers, but the optimizer needs");
    buffers[1].ndim = 1;
    buffers[1].shape[0] = 7;
    assert_status_message(
        muonium_load_positional(b.optimizer, buffers, count, NULL), MUONIUM_INVALID,
        "position 1, momentum of \"h.1.conv\", has shape [7] and not [6, 5, 2, 2]");
    bytes after = model_state(&b);
    assert_true(bytes_equal(&before, &after));
    buffers[1].shape[0] = 120;

    muonium_positional_options_init(&position);
    position.steps = 3;
    position.convert = true;
    position.momentum_form = MUONIUM_MOMENTUM_SUM;
    position.momentum = 0.95;
    assert_ok(muonium_load_positional(b.optimizer, buffers, count, &position));
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        muonium_state x, y;
        assert_ok(muonium_state_of(a.optimizer, i, &x));
        assert_ok(muonium_state_of(b.optimizer, i, &y));
        assert_int_equal(y.steps, 3);
        for (size_t k = 0; k < x.elements; k++) {
            if (x.momentum) {
                float expected = (float)((double)((float *)x.momentum)[k] * (1 - 0.95));
                assert_true(((float *)y.momentum)[k] == expected);
            } else {
                assert_true(((float *)x.exp_avg)[k] == ((float *)y.exp_avg)[k] &&
                            x.exp_avg_sq[k] == y.exp_avg_sq[k]);
            }
        }
        for (size_t k = 0; y.normuon && k < y.rows; k++) {
            assert_true(y.normuon[k] == 0);
        }
    }
    bytes_free(&before);
    bytes_free(&after);
    model_destroy(&a);
    model_destroy(&b);
}

/* Eleven parameters: sorted as text, "10" comes before "2". */
static void test_positional_file(void **state)
{
    enum { COUNT = 11, SIDE = 4 };
    static const size_t by_name[COUNT] = {0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9};
    static float data[COUNT][SIDE * SIDE];
    muonium_optimizer *optimizer;
    (void)state;
    assert_ok(muonium_create(NULL, &optimizer));
    for (size_t i = 0; i < COUNT; i++) {
        muonium_tensor tensor = {.ndim = 2, .shape = {SIDE, SIDE}, .data = data[i]};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    for (int wrong = 0; wrong < 3; wrong++) {
        muonium_writer *writer;
        muonium_reader *reader;
        bytes file = {0};
        assert_ok(muonium_writer_create(&writer));
        size_t tensors = wrong == 1 ? COUNT - 1 : COUNT;
        for (size_t i = 0; i < tensors; i++) {
            char name[32];
            snprintf(name, sizeof name, wrong == 2 && i == 4 ? "layer" : "buffer.%zu", by_name[i]);
            assert_ok(muonium_writer_add(writer, name, "F64", 2, (uint64_t[]){SIDE, SIDE}));
        }
        assert_ok(muonium_writer_begin_sink(writer, bytes_append, &file));
        for (size_t i = 0; i < tensors; i++) {
            double values[SIDE * SIDE];
            for (size_t k = 0; k < SIDE * SIDE; k++) {
                values[k] = (double)by_name[i];
            }
            assert_ok(muonium_writer_data(writer, values, sizeof values));
        }
        assert_ok(muonium_writer_finish(writer));
        muonium_writer_destroy(writer);
        assert_ok(muonium_reader_open_memory(file.data, file.count, &reader));
        muonium_status status = muonium_load_positional_reader(optimizer, reader, NULL);
        if (wrong) {
            assert_status_message(status, MUONIUM_FORMAT,
                                  wrong == 1 ? "10 buffers, but the optimizer needs 11"
                                             : "no tensor is named \"buffer.3\"");
        } else {
            assert_ok(status);
            for (size_t i = 0; i < COUNT; i++) {
                muonium_state s;
                assert_ok(muonium_state_of(optimizer, i, &s));
                assert_true(((float *)s.momentum)[5] == (float)i);
            }
        }
        muonium_reader_close(reader);
        bytes_free(&file);
    }
    muonium_destroy(optimizer);
}

/* Half floats of both kinds, a scalar, a flat buffer of the wrong length, and files that
 * do not name places. */
static void test_positional_halves(void **state)
{
    static const uint16_t bf16[7] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    static const uint16_t f16[7] = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
    static const uint16_t one = 0x3c00;
    muonium_buffer buffers[4] = {
        {.data = bf16, .dtype = MUONIUM_BF16, .ndim = 1, .shape = {7}},
        {.data = f16, .dtype = MUONIUM_F16, .ndim = 1, .shape = {7}},
        {.data = &one, .dtype = MUONIUM_F16, .ndim = 0},
        {.data = &one, .dtype = MUONIUM_F16, .ndim = 0},
    };
    muonium_options options;
    model m;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    options.master = true;
    assert_ok(model_create(&m, &options, 6, 8)); /* a bias, and a scalar with a master copy */
    assert_ok(model_steps(&m, 0, 1));
    assert_ok(muonium_load_positional(m.optimizer, buffers, 4, NULL));
    muonium_state s;
    assert_ok(muonium_state_of(m.optimizer, 0, &s));
    for (size_t i = 0; i < 7; i++) {
        assert_true(((float *)s.exp_avg)[i] == (float)(i + 1) && s.exp_avg_sq[i] == (float)(i + 1));
    }
    assert_ok(muonium_state_of(m.optimizer, 1, &s));
    assert_true(*(float *)s.exp_avg == 1 && s.exp_avg_sq[0] == 1);
    buffers[1].shape[0] = 8;
    assert_status_message(muonium_load_positional(m.optimizer, buffers, 4, NULL), MUONIUM_INVALID,
                          "position 1, exp_avg_sq of \"ln.bias\", has shape [8] and not [7]");
    model_destroy(&m);
}

/* A file of `count` tensors named by a format, of one type and length. */
static bytes list_file(size_t count, const char *format, const char *dtype, uint64_t length)
{
    static const char zeros[256];
    muonium_writer *writer;
    bytes file = {0};
    assert_ok(muonium_writer_create(&writer));
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%zu", format, i);
        assert_ok(muonium_writer_add(writer, name, dtype, 1, &length));
    }
    assert_ok(muonium_writer_begin_sink(writer, bytes_append, &file));
    for (size_t i = 0; i < count; i++) {
        assert_ok(muonium_writer_data(writer, zeros, (size_t)length * mu_dtype_bits(dtype) / 8));
    }
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    return file;
}

static muonium_status load_list(model *m, const bytes *file)
{
    muonium_reader *reader;
    assert_ok(muonium_reader_open_memory(file->data, file->count, &reader));
    muonium_status status = muonium_load_positional_reader(m->optimizer, reader, NULL);
    muonium_reader_close(reader);
    return status;
}

static void test_positional_files_that_do_not_fit(void **state)
{
    model m, empty;
    (void)state;
    assert_ok(model_create(&m, NULL, 6, 7));
    assert_ok(model_create(&empty, NULL, 0, 0));
    bytes good = list_file(2, "", "F32", 7), none = list_file(0, "", "F32", 7);
    bytes integers = list_file(2, "exp.", "I32", 7), longer = list_file(2, "exp.", "F32", 8);
    bytes suffixed = list_file(2, "a:", "F32", 7);
    assert_ok(load_list(&m, &good));
    assert_ok(load_list(&m, &suffixed)); /* ':' is what follows '9' */
    assert_ok(load_list(&empty, &none));
    bytes before = model_state(&m);
    assert_status_message(load_list(&m, &none), MUONIUM_FORMAT, "0 buffers, but the optimizer");
    assert_status_message(load_list(&m, &integers), MUONIUM_FORMAT,
                          "tensor \"exp.0\" is of type I32: use F32, BF16, F16 or F64");
    assert_status_message(load_list(&m, &longer), MUONIUM_FORMAT,
                          "position 0, exp_avg of \"ln.bias\", has shape [8] and not [7]");
    bytes after = model_state(&m);
    assert_true(bytes_equal(&before, &after));
    bytes *all[] = {&good, &none, &integers, &longer, &suffixed, &before, &after};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        bytes_free(all[i]);
    }
    model_destroy(&m);
    model_destroy(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positional_buffers),
        cmocka_unit_test(test_positional_file),
        cmocka_unit_test(test_positional_halves),
        cmocka_unit_test(test_positional_files_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
