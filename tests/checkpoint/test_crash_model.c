/*
 * test_crash_model.c: power failures during a save and during `muonium step`, which replaces
 * two files. The file operations of one run are recorded through the table of system calls
 * that the library uses; every disk that a power failure may leave (crash_model.h) is made,
 * and the program that comes next runs on it. It must find the old checkpoint or the new
 * one, and the new one if the call had returned.
 */
#include "crash_model.h"

#include "command.h"

/* ---- a save ---- */

enum { ROWS = 8, COLUMNS = 12 };

static struct {
    float w[ROWS * COLUMNS], bias[ROWS], grad[ROWS * COLUMNS];
    muonium_optimizer *optimizer, *reader;
    char path[2 * NAME];
    content old_file, new_file;
} saving;

static muonium_optimizer *make_optimizer(void)
{
    muonium_optimizer *made;
    muonium_tensor w = {.name = "w", .ndim = 2, .shape = {ROWS, COLUMNS}, .data = saving.w};
    muonium_tensor bias = {.name = "bias", .ndim = 1, .shape = {ROWS}, .data = saving.bias};
    w.grad = bias.grad = saving.grad;
    assert_ok(muonium_create(NULL, &made));
    assert_ok(muonium_add(made, &w, NULL));
    assert_ok(muonium_add(made, &bias, NULL));
    return made;
}

static bool take(void *context, const void *data, size_t bytes)
{
    content *into = context;
    assert_true(into->count + bytes <= LARGEST);
    memcpy(into->bytes + into->count, data, bytes);
    into->count += bytes;
    return true;
}

static void step(uint32_t seed)
{
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        saving.grad[i] = (float)((i + 1) * (i + seed) % 13) - 6;
    }
    assert_ok(muonium_step(saving.optimizer));
}

static bool run_save(void)
{
    return muonium_save(saving.optimizer, saving.path) == MUONIUM_OK;
}

/* The old checkpoint or the new one, and nothing else, loads. */
static bool judge_save(bool returned)
{
    static content loaded;
    if (muonium_load(saving.reader, saving.path) != MUONIUM_OK) {
        return !returned && !saving.old_file.exists && access(saving.path, F_OK) != 0;
    }
    loaded.count = 0;
    loaded.exists = true;
    assert_ok(muonium_save_to(saving.reader, take, &loaded));
    return equal(&loaded, &saving.new_file) || (!returned && equal(&loaded, &saving.old_file));
}

static void check_save(const char *name, size_t block)
{
    get_file(join(0, "state"), &saving.old_file);
    saving.new_file.count = 0;
    saving.new_file.exists = true;
    assert_ok(muonium_save_to(saving.optimizer, take, &saving.new_file));
    record_run(block, run_save);
    check_scenario(name, judge_save);
}

static void test_saves(void **state)
{
    enum { BLOCK = 216 };
    (void)state;
    saving.optimizer = make_optimizer();
    saving.reader = make_optimizer();
    strcpy(saving.path, join(0, "state"));
    step(1);
    check_save("save a new file", BLOCK);

    visit_files(remove_file);
    assert_ok(muonium_save(saving.optimizer, saving.path));
    step(2);
    check_save("replace a file", BLOCK);

    /* A temporary that an earlier crash left, of the same name. */
    char left[NAME];
    visit_files(remove_file);
    assert_ok(muonium_save(saving.optimizer, saving.path));
    snprintf(left, sizeof left, "state.tmp-%ld-0", (long)getpid());
    put_file(join(0, left), saving.old_file.bytes, 100);
    step(3);
    check_save("replace a file beside a left temporary", 512);
    visit_files(remove_file);
    muonium_destroy(saving.optimizer);
    muonium_destroy(saving.reader);
}

/* ---- muonium step ---- */

static struct {
    char params[2 * NAME], state[2 * NAME], grads[2][2 * NAME];
    int next;                                                   /* which gradients */
    content before[2], after[2], from_before[2], from_after[2]; /* parameters, state */
} stepping;

static void write_tensors(const char *path, unsigned seed)
{
    float values[24];
    muonium_writer *writer;
    for (size_t i = 0; i < 24; i++) {
        values[i] = (float)((i * i + seed) % 11) - 5;
    }
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_add(writer, "w", "F32", 2, (uint64_t[]){4, 6}));
    assert_ok(muonium_writer_begin(writer, path));
    assert_ok(muonium_writer_data(writer, values, sizeof values));
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
}

/* What the command does, in this process, without a word. Its exit code. */
static int run_command(void)
{
    char *argv[] = {"-p", stepping.params, "-g", stepping.grads[stepping.next],
                    "-s", stepping.state,  NULL};
    option_value *values = calloc(command_step.option_count + 1, sizeof *values);
    arguments given;
    fflush(NULL);
    int out = dup(STDOUT_FILENO), error = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    assert_true(values && null >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
                dup2(null, STDERR_FILENO) >= 0);
    int code = EXIT_USAGE;
    if (options_parse("step", command_step.options, command_step.option_count, 6, argv, values,
                      &given)) {
        code = command_step.run(&command_step, &given);
    }
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    close(out);
    close(error);
    close(null);
    free(values);
    return code;
}

static bool run_step(void)
{
    return run_command() == EXIT_OK;
}

static void get_pair(content pair[2])
{
    get_file(stepping.params, &pair[0]);
    get_file(stepping.state, &pair[1]);
}

static void put_pair(const content pair[2])
{
    visit_files(remove_file);
    restore(stepping.params, &pair[0]);
    restore(stepping.state, &pair[1]);
}

static bool is_pair(const content a[2], const content b[2])
{
    return equal(&a[0], &b[0]) && equal(&a[1], &b[1]);
}

/* The next step goes on from the old pair or from the new one; or it completes the new pair,
 * says so by failing, and changes nothing else. */
static bool judge_step(bool returned)
{
    static content now[2];
    int code = run_command();
    get_pair(now);
    if (code == EXIT_OK) {
        return is_pair(now, stepping.from_after) ||
               (!returned && is_pair(now, stepping.from_before));
    }
    return !returned && is_pair(now, stepping.after);
}

static void check_step(const char *name, int state_directory, bool first)
{
    visit_files(remove_file);
    strcpy(stepping.params, join(0, "params"));
    strcpy(stepping.state, join(state_directory, "state"));
    write_tensors(stepping.params, 1);
    stepping.next = 0;
    assert_true(first || run_step());
    get_pair(stepping.before);
    stepping.next = 1;
    assert_true(run_step());
    get_pair(stepping.from_before);
    put_pair(stepping.before);
    stepping.next = 0;
    record_run(512, run_step);
    get_pair(stepping.after);
    stepping.next = 1;
    assert_true(run_step());
    get_pair(stepping.from_after);
    check_scenario(name, judge_step);
}

static void test_steps(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(stepping.grads[i], sizeof stepping.grads[i], "%s-grads-%d", record.directories[0],
                 i);
        write_tensors(stepping.grads[i], 3 + (unsigned)i);
    }
    check_step("first step", 0, true);
    check_step("a step", 0, false);
    check_step("first step, files in two directories", 1, true);
    check_step("a step, files in two directories", 1, false);
    visit_files(remove_file);
    unlink(stepping.grads[0]);
    unlink(stepping.grads[1]);
}

static int calls_until_failure;

static int failing_fsync(int file)
{
    (void)file;
    errno = EIO;
    return calls_until_failure-- == 0 ? -1 : 0;
}

static int failing_renameat(int from, const char *old_path, int to, const char *new_path)
{
    errno = EIO;
    return calls_until_failure-- == 0 ? -1 : record.real.renameat(from, old_path, to, new_path);
}

/* A sync or a rename that fails ends the step with an error, but leaves a pair of files that
 * belong together, or that the next step completes. */
static void test_failing_calls(void **state)
{
    static content now[2];
    int failed = 0;
    (void)state;
    for (int i = 0; i < 2; i++) {
        write_tensors(stepping.grads[i], 3 + (unsigned)i);
    }
    for (int renames = 0; renames < 2; renames++) {
        for (int call = 0, code = EXIT_FAILED; code != EXIT_OK; call++) {
            put_pair(stepping.before);
            stepping.next = 0;
            calls_until_failure = call;
            mu_file_system.fsync = renames ? no_fsync : failing_fsync;
            mu_file_system.renameat = renames ? failing_renameat : record.real.renameat;
            code = run_command();
            mu_file_system.fsync = no_fsync;
            mu_file_system.renameat = record.real.renameat;
            get_pair(now);
            bool whole = is_pair(now, stepping.before) || is_pair(now, stepping.after);
            assert_true(code == EXIT_FAILED || is_pair(now, stepping.after));
            stepping.next = 1;
            assert_true(judge_step(false) && (whole || renames));
            failed += code == EXIT_FAILED;
        }
    }
    assert_int_equal(failed, 5 + 2);
    visit_files(remove_file);
    unlink(stepping.grads[0]);
    unlink(stepping.grads[1]);
}

static int set_up(void **state)
{
    static const char *const places[] = {"/dev/shm", "/tmp"}; /* memory, if there is any */
    const char *place = places[access(places[0], W_OK) == 0 ? 0 : 1];
    (void)state;
    for (int i = 0; i < DIRECTORIES; i++) {
        snprintf(record.directories[i], NAME, "%s/muonium-crash-XXXXXX", place);
        assert_non_null(mkdtemp(record.directories[i]));
    }
    record.real = mu_file_system;
    mu_file_system.fsync = no_fsync;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < DIRECTORIES; i++) {
        assert_int_equal(rmdir(record.directories[i]), 0);
    }
    printf("crash model: %zu states\n", all_states);
    assert_true(all_states >= 10000);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_failing_calls),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
