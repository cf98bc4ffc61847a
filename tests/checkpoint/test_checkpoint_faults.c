/*
 * test_checkpoint_faults.c: functions, memory and system calls that fail while a state is
 * saved or loaded. The call says so, the optimizer and the old file are as they were.
 */
#include "checkpoint_model.h"

#include <errno.h>
#include <unistd.h>

#include "checkpoint/file.h"

/* ---- sinks, sources and memory that fail ---- */

typedef struct limited {
    bytes *from;
    size_t left;
} limited;

static bool write_limited(void *context, const void *data, size_t count)
{
    limited *to = context;
    (void)data;
    bool fits = count <= to->left;
    to->left -= fits ? count : 0;
    return fits;
}

static bool read_limited(void *context, uint64_t offset, void *buffer, size_t count)
{
    limited *l = context;
    if (offset + count > l->left) {
        return false;
    }
    memcpy(buffer, l->from->data + offset, count);
    return true;
}

static void test_failing_sink_and_source(void **state)
{
    model m, other;
    create_stepped(&m, NULL, 0, MODEL_PARAMETERS);
    create_stepped(&other, NULL, 0, MODEL_PARAMETERS);
    bytes saved = model_state(&m);
    (void)state;
    assert_ok(model_steps(&other, 5, 6));
    bytes before = model_state(&other);
    for (size_t left = 0; left < saved.count; left += 97) {
        limited l = {&saved, left};
        assert_status_message(muonium_save_to(m.optimizer, write_limited, &l), MUONIUM_IO,
                              "the sink refused");
        l.left = left;
        muonium_source source = {read_limited, &l, saved.count};
        muonium_reader *reader;
        assert_int_equal(muonium_load_from(other.optimizer, &source), MUONIUM_IO);
        if (muonium_reader_open_source(&source, &reader) == MUONIUM_OK) {
            assert_int_equal(muonium_verify(reader, NULL), MUONIUM_IO);
            muonium_reader_close(reader);
        }
    }
    bytes after = model_state(&other);
    assert_true(bytes_equal(&before, &after));
    bytes_free(&saved);
    bytes_free(&before);
    bytes_free(&after);
    model_destroy(&m);
    model_destroy(&other);
}

static void ignore(void *context, const char *line)
{
    (void)context;
    (void)line;
}

/* The kinds of work that need memory. */
typedef enum task { SAVE, LOAD, LOAD_BY_POSITION, VERIFY, TASKS } task;

static muonium_status perform(task what, muonium_optimizer *optimizer, const bytes *saved,
                              const bytes *list, bytes *out)
{
    muonium_reader *reader = NULL;
    const bytes *from = what == LOAD_BY_POSITION ? list : saved;
    if (what == SAVE) {
        return muonium_save_to(optimizer, bytes_append, out);
    }
    muonium_status status = muonium_reader_open_memory(from->data, from->count, &reader);
    if (status == MUONIUM_OK) {
        status = what == LOAD     ? muonium_load_reader(optimizer, reader, NULL, NULL)
                 : what == VERIFY ? muonium_verify(reader, NULL)
                                  : muonium_load_positional_reader(optimizer, reader, NULL);
    }
    muonium_reader_close(reader);
    return status;
}

/* Names of growing length, so that every buffer for names must grow somewhere, options with
 * a table and patterns, and a log to which changes are told. */
static muonium_optimizer *long_names(double lr)
{
    static const double table[2][3] = {{3, -4, 2}, {2, -1.5, 0.5}};
    static const char *const patterns[] = {"a pattern, with what is escaped: %", "another"};
    static float data[12][16];
    muonium_optimizer *optimizer;
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    options.lr = lr;
    options.plan.table = table;
    options.plan.table_rows = 2;
    options.patterns = patterns;
    options.pattern_count = 2;
    options.normuon = true;
    options.log = ignore;
    assert_ok(muonium_create(&options, &optimizer));
    for (size_t i = 0; i < 12; i++) {
        char name[1024];
        size_t length = 3 + i * i * 7;
        memset(name, 'a' + (int)i, length);
        name[length] = '\0';
        muonium_tensor tensor = {
            .name = name, .ndim = i % 3 == 2 ? 1 : 2, .shape = {4, 4}, .data = data[i]};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    return optimizer;
}

/* The state of such an optimizer as a list without names. */
static bytes positional_list(void)
{
    static const float zeros[16];
    muonium_writer *writer;
    bytes list = {0};
    assert_ok(muonium_writer_create(&writer));
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0, place = 0; i < 12; i++) {
            size_t arrays = i % 3 == 2 ? 2 : 1, elements = i % 3 == 2 ? 4 : 16;
            for (size_t k = 0; k < arrays; k++) {
                char name[300];
                memset(name, 'n', 200);
                snprintf(name + 200, 100, ".%zu", place++);
                assert_ok(pass == 0
                              ? muonium_writer_add(writer, name, "F32", 1, (uint64_t[]){elements})
                              : muonium_writer_data(writer, zeros, elements * sizeof(float)));
            }
        }
        if (pass == 0) {
            assert_ok(muonium_writer_begin_sink(writer, bytes_append, &list));
        }
    }
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    return list;
}

static void test_every_allocation_with_long_names(void **state)
{
    (void)state;
    test_count_memory();
    muonium_optimizer *from = long_names(0.1), *to = long_names(0.2);
    bytes list = positional_list(), saved = {0}, before = {0};
    assert_ok(muonium_save_to(from, bytes_append, &saved));
    assert_ok(muonium_save_to(to, bytes_append, &before));
    for (task what = SAVE; what < TASKS; what++) {
        bool done = false;
        for (long fail_at = 1; !done; fail_at++) {
            bytes out = {0}, after = {0};
            long alive = test_memory.alive;
            test_fail_allocation(fail_at, false);
            muonium_status status = perform(what, to, &saved, &list, &out);
            done = test_memory.calls < fail_at;
            test_memory.fail_at = 0;
            assert_int_equal(status, done ? MUONIUM_OK : MUONIUM_NO_MEMORY);
            assert_int_equal(test_memory.alive, alive);
            assert_ok(muonium_save_to(to, bytes_append, &after));
            assert_true(done || bytes_equal(&before, &after));
            bytes_free(&out);
            bytes_free(&after);
        }
        bytes_free(&before);
        assert_ok(muonium_save_to(to, bytes_append, &before));
    }
    bytes_free(&saved);
    bytes_free(&list);
    bytes_free(&before);
    muonium_destroy(from);
    muonium_destroy(to);
    assert_int_equal(test_memory.alive, 0);
    assert_ok(muonium_set_allocator(NULL));
}

static void test_every_allocation_fails_in_turn(void **state)
{
    (void)state;
    test_count_memory();
    model m, other;
    create_stepped(&m, NULL, 0, MODEL_PARAMETERS);
    create_stepped(&other, "fp32", 0, MODEL_PARAMETERS);
    bytes saved = model_state(&m), before = model_state(&other);
    int refused = 0;
    for (int persistent = 0; persistent < 2; persistent++) {
        for (int load = 0; load < 2; load++) {
            bool done = false;
            for (long fail_at = 1; !done; fail_at++) {
                long alive = test_memory.alive;
                test_fail_allocation(fail_at, persistent == 1);
                bytes again = {0};
                muonium_status status = load ? model_load(&other, &saved)
                                             : muonium_save_to(m.optimizer, bytes_append, &again);
                done = test_memory.calls < fail_at;
                test_memory.fail_at = 0;
                assert_int_equal(status, done ? MUONIUM_OK : MUONIUM_NO_MEMORY);
                assert_int_equal(test_memory.alive, alive);
                assert_true(!done || load || bytes_equal(&again, &saved));
                refused += !done;
                bytes_free(&again);
                if (!done) {
                    bytes after = model_state(&other);
                    assert_true(bytes_equal(&before, &after));
                    bytes_free(&after);
                }
            }
            if (load) {
                bytes_free(&before);
                before = model_state(&other); /* the last load succeeded */
            }
        }
    }
    assert_true(refused > 50);
    bytes_free(&saved);
    bytes_free(&before);
    model_destroy(&m);
    model_destroy(&other);
    assert_int_equal(test_memory.alive, 0);
    assert_ok(muonium_set_allocator(NULL));
}

/* ---- the file system ---- */

static struct {
    struct mu_file_system real;
    int calls, fail_at;
    bool renamed;
} fault;

static bool fails(void)
{
    bool now = ++fault.calls == fault.fail_at;
    if (now) {
        errno = ENOSPC;
    }
    return now;
}

static int faulty_openat(int at, const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : fault.real.openat(at, path, flags, mode);
}

static ssize_t faulty_write(int file, const void *data, size_t count)
{
    return fails() ? -1 : fault.real.write(file, data, count > 1000 ? 1000 : count);
}

static ssize_t faulty_pread(int file, void *buffer, size_t count, off_t offset)
{
    return fails() ? -1 : fault.real.pread(file, buffer, count > 1000 ? 1000 : count, offset);
}

static int faulty_fsync(int file)
{
    return fails() ? -1 : fault.real.fsync(file);
}

static int faulty_renameat(int from, const char *old_path, int to, const char *new_path)
{
    int result = fails() ? -1 : fault.real.renameat(from, old_path, to, new_path);
    fault.renamed = result == 0;
    return result;
}

static bytes content(const char *path)
{
    bytes all = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;) {
        unsigned char byte = (unsigned char)c;
        assert_true(bytes_append(&all, &byte, 1));
    }
    fclose(file);
    return all;
}

static void test_failing_system_calls(void **state)
{
    char directory[] = "/tmp/muonium-test-XXXXXX", path[64], command[64];
    model m, other;
    create_stepped(&m, NULL, 0, 6);
    create_stepped(&other, NULL, 0, 6);
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/state", directory);
    assert_ok(muonium_save(other.optimizer, path));
    bytes old = content(path);
    assert_ok(model_steps(&m, 2, 3));
    fault.real = mu_file_system;
    bool done = false;
    for (int fail_at = 1; !done; fail_at++) {
        mu_file_system.openat = faulty_openat;
        mu_file_system.write = faulty_write;
        mu_file_system.fsync = faulty_fsync;
        mu_file_system.renameat = faulty_renameat;
        mu_file_system.pread = faulty_pread;
        fault.calls = 0;
        fault.renamed = false;
        fault.fail_at = fail_at;
        muonium_status status = muonium_save(m.optimizer, path);
        done = fault.calls < fail_at;
        bool renamed = fault.renamed;
        mu_file_system = fault.real;
        assert_int_equal(status, done ? MUONIUM_OK : MUONIUM_IO);
        assert_true(done || strstr(muonium_last_error(), "No space left on device") != NULL);
        assert_true(done || strstr(muonium_last_error(), directory) != NULL);
        bytes now = content(path);
        assert_int_equal(bytes_equal(&now, &old), !renamed);
        bytes_free(&now);
    }
    bytes before = model_state(&other);
    done = false;
    for (int fail_at = 1; !done; fail_at++) {
        mu_file_system.pread = faulty_pread;
        mu_file_system.openat = faulty_openat;
        fault.calls = 0;
        fault.fail_at = fail_at;
        muonium_status status = muonium_load(other.optimizer, path);
        done = fault.calls < fail_at;
        mu_file_system = fault.real;
        assert_int_equal(status, done ? MUONIUM_OK : MUONIUM_IO);
        bytes after = model_state(&other);
        assert_int_equal(bytes_equal(&before, &after), !done);
        bytes_free(&after);
    }
    bytes_free(&before);
    bytes_free(&old);
    model_destroy(&m);
    model_destroy(&other);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_sink_and_source),
        cmocka_unit_test(test_every_allocation_fails_in_turn),
        cmocka_unit_test(test_every_allocation_with_long_names),
        cmocka_unit_test(test_failing_system_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
