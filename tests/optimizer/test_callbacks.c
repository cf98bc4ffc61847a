/*
 * test_callbacks.c: what the library's callbacks may do. Every public call on an optimizer
 * from every callback of a call that is using it is either harmless or refused by name, with
 * nothing changed; so is one from another thread, and one on a reader or writer from its own
 * source or sink.
 */
#include "callbacks.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static char directory[] = "/tmp/muonium-callbacks-XXXXXX", path[64];

/* ---- an allocator that calls back ---- */

static scene *allocating; /* whose callbacks "allocate" and "release" are */

static void *allocate(void *context, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)context;
    bool granted = allocating == NULL || callback_injects(allocating, "allocate");
    return granted && posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void release(void *context, void *memory)
{
    (void)context;
    if (allocating != NULL) {
        callback_injects(allocating, "release");
    }
    free(memory);
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/state", directory);
    return muonium_set_allocator(&(muonium_allocator){allocate, release, NULL}) != MUONIUM_OK;
}

static int clean_up(void **state)
{
    (void)state;
    return rmdir(directory);
}

/* ---- every call from every callback ---- */

/* Run an outer call with what is injected; returns its status and a view of what is left. */
static muonium_status play(scene *s, const outer_call *outer, bytes *view)
{
    muonium_status status = outer->run(s);
    *view = scene_view(s);
    return status;
}

static void check_refusal(const scene *s, const outer_call *outer)
{
    bool good = s->status == MUONIUM_INVALID && strstr(s->message, s->inner->name) != NULL &&
                strstr(s->message, s->where) != NULL && strstr(s->message, outer->name) != NULL;
    if (!good) {
        fail_msg("%s in `%s` of %s: %s, \"%s\"", s->inner->name, s->where, outer->name,
                 muonium_status_name(s->status), s->message);
    }
}

static void try_inner(const outer_call *outer, const char *callback, const inner_call *inner,
                      const bytes *expected)
{
    scene s;
    bytes view;
    scene_begin(&s, path);
    assert_ok(muonium_save(s.m.optimizer, path)); /* for muonium_load */
    s.calls = 0;
    s.callback = callback;
    s.inner = inner;
    s.countdown = 0;
    assert_ok(play(&s, outer, &view));
    assert_true(s.injected);
    bool allowed = inner->kind == READS || (inner->kind == CHANGES && strcmp(s.where, "loss") == 0);
    if (!allowed) {
        check_refusal(&s, outer);
    } else if (inner->run != inner_load_positional && inner->run != inner_load_positional_reader) {
        test_check_status(s.status, MUONIUM_OK, NULL, inner->name, __FILE__, __LINE__);
    }
    if (!allowed || inner->kind == READS) {
        assert_true(bytes_equal(&view, expected));
    }
    model_set_grads(&s.m, 8);
    assert_ok(muonium_step(s.m.optimizer)); /* it is as good as ever */
    bytes_free(&view);
    scene_end(&s);
}

static void try_callback(const outer_call *outer, const char *callback)
{
    scene s;
    bytes expected;
    scene_begin(&s, path);
    s.callback = callback;
    assert_ok(play(&s, outer, &expected));
    bool called = s.calls > 0;
    scene_end(&s);
    for (size_t i = 0; called && i < INNER_CALLS; i++) {
        try_inner(outer, callback, &inner_calls[i], &expected);
    }
    bytes_free(&expected);
}

static void calls_from_callbacks_are_harmless_or_refused(void **state)
{
    static const char *const callbacks[] = {"log", "loss", "write", "read", "progress"};
    (void)state;
    for (size_t i = 0; i < OUTER_CALLS; i++) {
        for (size_t k = 0; k < sizeof callbacks / sizeof callbacks[0]; k++) {
            try_callback(&outer_calls[i], callbacks[k]);
        }
    }
}

/* The allocator must not call the library: that it does is refused all the same. */
static void calls_from_the_allocator_are_refused(void **state)
{
    static const char *const callbacks[] = {"allocate", "release"};
    (void)state;
    for (size_t i = 0; i < INNER_CALLS; i++) {
        for (size_t k = 0; k < 2; k++) {
            scene s;
            scene_begin(&s, path);
            s.callback = callbacks[k];
            s.inner = &inner_calls[i];
            s.countdown = 0;
            allocating = &s;
            assert_ok(muonium_save(s.m.optimizer, path));
            allocating = NULL;
            assert_true(s.injected);
            if (s.inner->kind != READS) {
                check_refusal(&s, &(outer_call){"muonium_save", NULL});
            }
            scene_end(&s);
        }
    }
}

/* ---- two threads ---- */

typedef struct meeting {
    muonium_optimizer *optimizer;
    sem_t inside, go_on;
    muonium_status status;
} meeting;

static void wait_inside(void *context, const char *line)
{
    meeting *m = context;
    (void)line;
    sem_post(&m->inside);
    sem_wait(&m->go_on);
}

static void *step_slowly(void *context)
{
    meeting *m = context;
    m->status = muonium_step(m->optimizer);
    return NULL;
}

static void two_threads_are_told(void **state)
{
    static float data[16], grad[16];
    meeting m = {.optimizer = NULL};
    muonium_options options;
    pthread_t other;
    (void)state;
    sem_init(&m.inside, 0, 0);
    sem_init(&m.go_on, 0, 0);
    assert_ok(muonium_options_init(&options, NULL));
    options.log = wait_inside;
    options.log_context = &m;
    assert_ok(muonium_create(&options, &m.optimizer));
    assert_ok(muonium_add(m.optimizer,
                          &(muonium_tensor){.ndim = 1, .shape = {16}, .data = data, .grad = grad},
                          NULL));
    assert_int_equal(pthread_create(&other, NULL, step_slowly, &m), 0);
    sem_wait(&m.inside);
    assert_status_message(muonium_set_lr(m.optimizer, NULL, 1), MUONIUM_INVALID,
                          "muonium_set_lr: another thread is in muonium_step");
    muonium_destroy(m.optimizer); /* does nothing */
    for (int i = 0; i < 8; i++) { /* as many as there are lines, or more */
        sem_post(&m.go_on);
    }
    pthread_join(other, NULL);
    assert_int_equal(m.status, MUONIUM_OK);
    assert_ok(muonium_set_lr(m.optimizer, NULL, 1));
    muonium_destroy(m.optimizer);
    sem_destroy(&m.inside);
    sem_destroy(&m.go_on);
}

/* ---- a callback that does not return ---- */

static jmp_buf out;

static void leap(void *context, const char *line)
{
    (void)context, (void)line;
    longjmp(out, 1);
}

static void a_leap_out_of_a_callback_leaves_it_marked(void **state)
{
    static muonium_optimizer *lost; /* cannot be destroyed any more */
    static float data[16], grad[16];
    muonium_options options;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    options.log = leap;
    assert_ok(muonium_create(&options, &lost));
    assert_ok(muonium_add(
        lost, &(muonium_tensor){.ndim = 1, .shape = {16}, .data = data, .grad = grad}, NULL));
    if (setjmp(out) == 0) {
        muonium_step(lost);
        fail_msg("the log was not called");
    }
    assert_status_message(muonium_step(lost), MUONIUM_INVALID, "callback `log` of muonium_step");
    muonium_destroy(lost);
    assert_int_equal(muonium_parameter_count(lost), 1);
}

/* ---- readers and writers ---- */

typedef struct nested {
    muonium_writer *writer;
    muonium_reader *reader;
    bytes content;
    int way;
    muonium_status status;
} nested;

enum { WRITER_WAYS = 6 };

static bool write_again(void *context, const void *data, size_t count)
{
    nested *n = context;
    static const uint64_t shape[] = {4};
    switch (n->way) {
    case 0:
        n->status = muonium_writer_data(n->writer, data, count);
        break;
    case 1:
        n->status = muonium_writer_prepare(n->writer);
        break;
    case 2:
        n->status = muonium_writer_finish(n->writer);
        break;
    case 3:
        n->status = muonium_writer_add(n->writer, "y", "F32", 1, shape);
        break;
    case 4:
        n->status = muonium_writer_begin_sink(n->writer, write_again, context);
        break;
    case 5:
        muonium_writer_destroy(n->writer);
        n->status = MUONIUM_INVALID;
        break;
    default:
        return bytes_append(&n->content, data, count);
    }
    return bytes_append(&n->content, data, count) &&
           strstr(muonium_last_error(), "is in its callback `write`") != NULL;
}

static void a_sink_cannot_use_its_writer(void **state)
{
    static const float values[4] = {1, 2, 3, 4};
    static const uint64_t shape[] = {4};
    bytes plain = {0};
    (void)state;
    for (int way = WRITER_WAYS; way >= 0; way--) {
        nested n = {.way = way, .status = MUONIUM_INVALID};
        assert_ok(muonium_writer_create(&n.writer));
        assert_ok(muonium_writer_add(n.writer, "x", "F32", 1, shape));
        assert_ok(muonium_writer_begin_sink(n.writer, write_again, &n));
        assert_ok(muonium_writer_data(n.writer, values, sizeof values));
        assert_ok(muonium_writer_finish(n.writer));
        assert_int_equal(n.status, MUONIUM_INVALID);
        muonium_writer_destroy(n.writer);
        if (way == WRITER_WAYS) {
            plain = n.content;
            continue;
        }
        assert_true(bytes_equal(&n.content, &plain));
        bytes_free(&n.content);
    }
    bytes_free(&plain);
}

static bool read_again(void *context, uint64_t offset, void *buffer, size_t count)
{
    nested *n = context;
    memcpy(buffer, n->content.data + offset, count);
    muonium_reader *reader = n->reader;
    if (reader != NULL && n->way-- > 0) { /* reads within reads are allowed, and a close is not */
        uint32_t value;
        n->status = muonium_reader_read(reader, muonium_reader_entry(reader, 0), 0, &value, 4);
        muonium_reader_close(reader);
    }
    return true;
}

static void a_source_cannot_close_its_reader(void **state)
{
    scene s;
    float value;
    (void)state;
    scene_begin(&s, path);
    nested n = {.content = s.saved, .way = 2, .status = MUONIUM_INVALID};
    muonium_source source = {read_again, &n, s.saved.count};
    muonium_reader *reader = NULL;
    assert_ok(muonium_reader_open_source(&source, &reader));
    n.reader = reader;
    assert_ok(muonium_reader_read(reader, muonium_reader_entry(reader, 0), 0, &value, 4));
    assert_int_equal(n.status, MUONIUM_OK);
    n.way = 3;
    assert_ok(muonium_load_reader(s.m.optimizer, reader, NULL, NULL));
    n.reader = NULL;
    assert_ok(muonium_verify(reader, NULL));
    muonium_reader_close(reader);
    scene_end(&s);
}

static muonium_status close_reader(scene *s)
{
    muonium_reader_close(s->reader);
    return MUONIUM_INVALID;
}

/* Nor can what is told of a load that reads from it. */
static void a_load_keeps_its_reader(void **state)
{
    static const char *const callbacks[] = {"log", "read", "progress"};
    static const inner_call closing = {"muonium_reader_close", close_reader, CHANGES};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        scene s;
        scene_begin(&s, path);
        s.callback = callbacks[i];
        s.inner = &closing;
        s.countdown = 0;
        assert_ok(outer_load_reader(&s));
        assert_true(s.injected);
        assert_non_null(strstr(s.message, "muonium_reader_close"));
        scene_end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_from_callbacks_are_harmless_or_refused),
        cmocka_unit_test(calls_from_the_allocator_are_refused),
        cmocka_unit_test(two_threads_are_told),
        cmocka_unit_test(a_sink_cannot_use_its_writer),
        cmocka_unit_test(a_source_cannot_close_its_reader),
        cmocka_unit_test(a_load_keeps_its_reader),
        cmocka_unit_test(a_leap_out_of_a_callback_leaves_it_marked), /* stays marked: last */
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
