/*
 * test_checkpoint.c: states that are saved come back: bit for bit in every configuration
 * and in another process, converted where conventions differ, and in part where asked.
 */
#include "checkpoint_model.h"

#include <locale.h>
#include <math.h>
#include <unistd.h>

/* ---- round trips ---- */

static void test_round_trip(void **state)
{
    (void)state;
    for (size_t c = 0; c < CONFIGURATIONS; c++) {
        muonium_options options = configure(&configurations[c]);
        model a, b;
        assert_ok(model_create(&a, &options, 0, MODEL_PARAMETERS));
        assert_ok(model_create(&b, &options, 0, MODEL_PARAMETERS));
        for (int steps = 0; steps < 2; steps++) { /* before and after the first steps */
            assert_ok(model_steps(&a, 0, 3 * (unsigned)steps));
            bytes saved = model_state(&a), again = model_state(&a);
            assert_true(bytes_equal(&saved, &again));
            assert_ok(model_load(&b, &saved));
            bytes restored = model_state(&b);
            assert_true(bytes_equal(&saved, &restored));
            bytes_free(&saved);
            bytes_free(&again);
            bytes_free(&restored);
        }
        model_destroy(&a);
        model_destroy(&b);
    }
}

/* A state from before the first step starts a master copy anew. */
static void test_load_of_an_unstepped_state(void **state)
{
    muonium_options options = configure(&(configuration){"", NULL, use_everything});
    model a, b;
    (void)state;
    assert_ok(model_create(&a, &options, 0, MODEL_PARAMETERS));
    assert_ok(model_create(&b, &options, 0, MODEL_PARAMETERS));
    bytes fresh = model_state(&a);
    assert_ok(model_steps(&b, 0, 5));
    assert_ok(model_load(&b, &fresh));
    model_fill(&b);
    assert_ok(model_steps(&a, 0, 5));
    assert_ok(model_steps(&b, 0, 5));
    assert_memory_equal(a.data, b.data, sizeof a.data);
    bytes_free(&fresh);
    model_destroy(&a);
    model_destroy(&b);
}

/* A master copy that is still to come, after steps too, is a state like any other. */
static void test_master_that_is_still_to_come(void **state)
{
    muonium_options options = configure(&(configuration){"", NULL, use_master});
    muonium_state taken;
    model a, b;
    (void)state;
    assert_ok(model_create(&a, &options, 3, 4));
    assert_ok(model_create(&b, &options, 3, 4));
    assert_ok(model_steps(&a, 0, 2));
    assert_ok(model_steps(&b, 0, 1));
    assert_ok(muonium_state_of(a.optimizer, 0, &taken));
    taken.master = NULL;
    assert_ok(muonium_set_state(a.optimizer, 0, &taken));
    bytes saved = model_state(&a);
    assert_ok(model_load(&b, &saved));
    memcpy(b.data, a.data, sizeof a.data);
    assert_ok(model_steps(&a, 2, 4));
    assert_ok(model_steps(&b, 2, 4));
    assert_memory_equal(a.data, b.data, sizeof a.data);
    bytes_free(&saved);
    model_destroy(&a);
    model_destroy(&b);
}

/* ---- another process ---- */

static char directory[64];

typedef struct leg {
    const configuration *config;
    unsigned from, to;
    bool load;
    int threads;
    char state[128], parameters[128];
} leg;

static bool transfer(const char *path, model *m, bool write)
{
    FILE *file = fopen(path, write ? "wb" : "rb");
    size_t done = 0;
    if (file != NULL) {
        done = write ? fwrite(m->data, sizeof m->data, 1, file)
                     : fread(m->data, sizeof m->data, 1, file);
        done = fclose(file) == 0 ? done : 0;
    }
    return done == 1;
}

/* Some steps of a run that begins with the files of the leg before and leaves its own. */
static int run_leg(void *context)
{
    const leg *l = context;
    muonium_options options = configure(l->config);
    model m = {.optimizer = NULL};
    bool good = muonium_set_threads(l->threads) == MUONIUM_OK &&
                model_create(&m, &options, 0, MODEL_PARAMETERS) == MUONIUM_OK;
    if (good && l->load) {
        good =
            transfer(l->parameters, &m, false) && muonium_load(m.optimizer, l->state) == MUONIUM_OK;
    }
    good = good && model_steps(&m, l->from, l->to) == MUONIUM_OK &&
           muonium_save(m.optimizer, l->state) == MUONIUM_OK && transfer(l->parameters, &m, true);
    if (!good) {
        fprintf(stderr, "%s: %s\n", l->config->name, muonium_last_error());
    }
    model_destroy(&m);
    return good ? 0 : 1;
}

static void test_resume_in_another_process(void **state)
{
    (void)state;
    for (size_t c = 0; c < CONFIGURATIONS; c++) {
        leg l = {.config = &configurations[c], .to = 50, .threads = 1};
        snprintf(l.state, sizeof l.state, "%s/%zu.safetensors", directory, c);
        snprintf(l.parameters, sizeof l.parameters, "%s/%zu.parameters", directory, c);
        assert_child_ok(test_fork(run_leg, &l, NULL, NULL, 60));
        l.from = 50;
        l.to = 100;
        l.load = true;
        l.threads = 3;
        assert_child_ok(test_fork(run_leg, &l, NULL, NULL, 60));

        muonium_options options = configure(&configurations[c]);
        model whole, resumed;
        assert_ok(model_create(&whole, &options, 0, MODEL_PARAMETERS));
        assert_ok(model_steps(&whole, 0, 100));
        assert_ok(model_create(&resumed, &options, 0, MODEL_PARAMETERS));
        assert_true(transfer(l.parameters, &resumed, false));
        assert_memory_equal(whole.data, resumed.data, sizeof whole.data);
        assert_ok(muonium_load(resumed.optimizer, l.state));
        bytes a = model_state(&whole), b = model_state(&resumed);
        assert_true(bytes_equal(&a, &b));
        bytes_free(&a);
        bytes_free(&b);
        muonium_counters counters;
        assert_ok(muonium_count(resumed.optimizer, &counters));
        assert_int_equal(counters.steps, 100);
        model_destroy(&whole);
        model_destroy(&resumed);
    }
}

/* ---- conversions ---- */

static const float *momentum_of(const model *m, size_t parameter, muonium_state *found)
{
    assert_ok(muonium_state_of(m->optimizer, parameter, found));
    return found->momentum;
}

/* The accumulators of both conventions differ by the factor 1 - mu exactly, and by
 * rounding: of each of the t sums, and of the conversion. */
static void test_momentum_conventions(void **state)
{
    enum { STEPS = 7 };
    static const muonium_momentum_form forms[] = {MUONIUM_MOMENTUM_LERP, MUONIUM_MOMENTUM_SUM,
                                                  MUONIUM_MOMENTUM_EMA_CORRECTED};
    (void)state;
    for (size_t from = 0; from < 3; from++) {
        for (size_t to = 0; to < 3; to++) {
            muonium_options options;
            muonium_load_report report;
            model a, b, wanted;
            assert_ok(muonium_options_init(&options, NULL));
            options.momentum_form = forms[from];
            options.momentum = 0.9;
            assert_ok(model_create(&a, &options, 0, 3));
            options.momentum_form = forms[to];
            assert_ok(model_create(&wanted, &options, 0, 3));
            options.momentum = 0.3; /* that of the save counts */
            assert_ok(model_create(&b, &options, 0, 3));
            assert_ok(model_steps(&a, 0, STEPS));
            assert_ok(model_steps(&wanted, 0, STEPS));
            bytes saved = model_state(&a);
            assert_ok(model_load_with(&b, &saved, NULL, &report));
            bool converts = (from == 1) != (to == 1);
            assert_int_equal(report.converted, converts ? 3 : 0);
            for (size_t p = 0; p < 3; p++) {
                muonium_state left, right;
                const float *x = momentum_of(&b, p, &left), *y = momentum_of(&wanted, p, &right);
                for (size_t i = 0; i < left.elements; i++) {
                    double scale = to == 1 ? 10 : 1; /* of sums of numbers below 1/2 */
                    assert_true(fabs((double)x[i] - (double)y[i]) <=
                                scale * (2 * STEPS + 2) * 0x1p-24);
                    assert_true(converts || memcmp(&x[i], &y[i], sizeof *x) == 0);
                }
                assert_int_equal(left.steps, STEPS);
            }
            bytes_free(&saved);
            model_destroy(&a);
            model_destroy(&b);
            model_destroy(&wanted);
        }
    }
}

static void test_momentum_types(void **state)
{
    muonium_options options;
    model single, half, back;
    muonium_state s, h, r;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    assert_ok(model_create(&single, &options, 0, 1));
    assert_ok(model_create(&back, &options, 0, 1));
    options.state_dtype = MUONIUM_BF16;
    assert_ok(model_create(&half, &options, 0, 1));
    assert_ok(model_steps(&single, 0, 3));
    bytes saved = model_state(&single);
    assert_ok(model_load(&half, &saved));
    bytes as_half = model_state(&half);
    assert_ok(model_load(&back, &as_half));
    const float *x = momentum_of(&single, 0, &s), *y = momentum_of(&back, 0, &r);
    momentum_of(&half, 0, &h);
    for (size_t i = 0; i < s.elements; i++) {
        uint16_t rounded = mu_bf16_from_f32(x[i]);
        assert_int_equal(((const uint16_t *)h.momentum)[i], rounded);
        assert_true(y[i] == mu_f32_from_bf16(rounded));
    }
    bytes_free(&saved);
    bytes_free(&as_half);
    model_destroy(&single);
    model_destroy(&half);
    model_destroy(&back);
}

/* ---- in part ---- */

static void test_partial_loading(void **state)
{
    muonium_options options;
    muonium_load_options partial;
    muonium_load_report report;
    model a, b, untouched;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    assert_ok(model_create(&a, &options, 0, 6));
    assert_ok(model_create(&b, &options, 2, MODEL_PARAMETERS));
    assert_ok(model_create(&untouched, &options, 2, MODEL_PARAMETERS));
    assert_ok(model_steps(&a, 0, 4));
    assert_ok(model_steps(&b, 10, 11));
    assert_ok(model_steps(&untouched, 10, 11));
    bytes saved = model_state(&a), before = model_state(&b);

    assert_status_message(model_load(&b, &saved), MUONIUM_FORMAT,
                          "it lacks exp_avg of \"ln.bias\", exp_avg_sq of \"ln.bias\", exp_avg of "
                          "\"scalar\", and 2 more; no parameter uses \"h.0.w.momentum\", "
                          "\"h.1.conv.momentum\"; nothing was loaded");
    bytes after = model_state(&b);
    assert_true(bytes_equal(&before, &after));

    muonium_load_options_init(&partial);
    partial.partial = true;
    assert_ok(model_load_with(&b, &saved, &partial, &report));
    assert_int_equal(report.matched, 4);
    assert_int_equal(report.missing, 5);
    assert_int_equal(report.left_over, 2);
    assert_string_equal(report.left_over_names, "\"h.0.w.momentum\", \"h.1.conv.momentum\"");
    assert_non_null(strstr(report.missing_names, "exp_avg of \"ln.bias\""));
    for (size_t i = 0; i < MODEL_PARAMETERS - 2; i++) {
        muonium_state here, there;
        const model *source = i < 4 ? &a : &untouched;
        assert_ok(muonium_state_of(b.optimizer, i, &here));
        assert_ok(muonium_state_of(source->optimizer, i < 4 ? i + 2 : i, &there));
        assert_int_equal(here.steps, there.steps);
        const void *x = here.momentum ? here.momentum : here.exp_avg_sq;
        const void *y = there.momentum ? there.momentum : there.exp_avg_sq;
        assert_memory_equal(x, y, here.elements * sizeof(float));
    }
    model other;
    assert_ok(model_create(&other, &options, 6, MODEL_PARAMETERS));
    assert_status_message(model_load_with(&other, &saved, &partial, NULL), MUONIUM_FORMAT,
                          "has nothing for any parameter");
    bytes_free(&saved);
    bytes_free(&before);
    bytes_free(&after);
    model_destroy(&a);
    model_destroy(&b);
    model_destroy(&other);
    model_destroy(&untouched);
}

/* Names count, not the order in which parameters were added; NorMuon's means may be
 * missing in part. */
static void test_other_order_and_missing_means(void **state)
{
    muonium_options options;
    muonium_load_options partial;
    muonium_load_report report;
    model a, b;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    assert_ok(model_create(&a, &options, 0, 4));
    assert_ok(model_steps(&a, 0, 2));
    bytes saved = model_state(&a);
    options.normuon = true;
    assert_ok(model_create(&b, &options, 3, 4));
    for (size_t i = 3; i-- > 0;) {
        muonium_tensor tensor = model_tensor(&b, i);
        assert_ok(muonium_add(b.optimizer, &tensor, NULL));
    }
    assert_status_message(model_load(&b, &saved), MUONIUM_FORMAT, "it lacks normuon of");
    muonium_load_options_init(&partial);
    partial.partial = true;
    assert_ok(model_load_with(&b, &saved, &partial, &report));
    assert_int_equal(report.matched, 4);
    assert_int_equal(report.missing, 4);
    for (size_t i = 0; i < 4; i++) {
        muonium_state x, y;
        assert_ok(muonium_state_of(a.optimizer, i, &x));
        assert_ok(muonium_state_of(b.optimizer, 3 - i, &y));
        assert_memory_equal(x.momentum, y.momentum, x.elements * sizeof(float));
        assert_int_equal(y.steps, 2);
    }
    bytes_free(&saved);
    model_destroy(&a);
    model_destroy(&b);
}

/* ---- what a file tells ---- */

static void collect(void *context, const char *line)
{
    char *log = context;
    size_t used = strlen(log);
    snprintf(log + used, 4096 - used, "%s\n", line);
}

/* Options are the caller's; what has changed is in the log. */
static void test_changed_options_are_logged(void **state)
{
    muonium_options options;
    char log[4096] = "";
    model a, b;
    (void)state;
    assert_ok(muonium_options_init(&options, "timm"));
    assert_ok(model_create(&a, &options, 0, 2));
    options.lr = 0.5;
    options.plan.coefficients = NULL;
    options.log = collect;
    options.log_context = log;
    assert_ok(model_create(&b, &options, 0, 2));
    bytes saved = model_state(&a);
    assert_ok(model_load(&b, &saved));
    assert_non_null(strstr(log, "lr of the group of \"h.0.w\" was 0.02 when its state was saved, "
                                "is 0.5\n"));
    assert_non_null(strstr(log, "recipe of the group of \"h.0.w\" was timm when its state was "
                                "saved, is none\n"));
    assert_non_null(strstr(log, "coefficients of the group of \"h.0.w\" was quintic when its state "
                                "was saved, is unset\n"));
    assert_null(strstr(log, "weight_decay"));
    muonium_parameter_report report;
    assert_ok(muonium_report(b.optimizer, 0, &report));
    assert_true(report.lr == 0.5);
    bytes_free(&saved);
    model_destroy(&a);
    model_destroy(&b);
}

static const char *metadata(const bytes *saved, const char *key, muonium_reader **reader)
{
    assert_ok(muonium_reader_open_memory(saved->data, saved->count, reader));
    const char *value = muonium_reader_metadata(*reader, key);
    assert_non_null(value);
    return value;
}

/* Numbers come back equal and look the same under every locale. */
static void test_metadata(void **state)
{
    static const char *const patterns[] = {"a b", "100%", "caf\xc3\xa9"};
    muonium_options options;
    muonium_checkpoint_info info;
    muonium_reader *reader;
    muonium_group *group;
    model m;
    (void)state;
    assert_ok(muonium_options_init(&options, "optax"));
    options.lr = 1.0 / 3;
    options.patterns = patterns;
    options.pattern_count = 3;
    bool comma = setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
    assert_ok(model_create(&m, &options, 0, 2));
    assert_ok(muonium_options_init(&options, "fp16"));
    assert_ok(muonium_add_group(m.optimizer, &options, &group));
    muonium_tensor tensor = model_tensor(&m, 6);
    assert_ok(muonium_add(m.optimizer, &tensor, group));
    assert_ok(model_steps(&m, 0, 2));
    bytes saved = model_state(&m);
    assert_ok(model_load(&m, &saved));
    setlocale(LC_NUMERIC, "C");
    bytes plain = model_state(&m);
    assert_true(bytes_equal(&saved, &plain));
    const char *text = metadata(&saved, "muonium.group.0", &reader);
    assert_non_null(strstr(text, "recipe=none lr=0.3333333333333333 weight_decay=0 "));
    assert_non_null(strstr(text, " patterns=a%20b,100%25,caf%c3%a9 "));
    assert_non_null(strstr(text, " momentum_form=ema_corrected "));
    text = muonium_reader_metadata(reader, "muonium.group.1");
    assert_memory_equal(text, "recipe=fp16 ", 12);
    assert_non_null(strstr(text, " routing=wrapper only_patterns=no split_fused=no "));
    assert_string_equal(muonium_reader_metadata(reader, "muonium.parameter.ln.bias"),
                        "route=adam steps=2 group=1 master=no reason=insufficient_dims");
    assert_true(muonium_is_checkpoint(reader));
    assert_ok(muonium_verify(reader, &info));
    assert_int_equal(info.format, 1);
    assert_string_equal(info.version, muonium_version());
    assert_int_equal(info.steps, 2);
    assert_int_equal(info.muon, 1);
    assert_int_equal(info.adam, 2);
    assert_int_equal(info.groups, 2);
    assert_int_equal(info.tensors, 5);
    assert_int_equal(info.bytes, 4 * (96 + 2 * 120 + 2 * 7));
    muonium_reader_close(reader);
    bytes_free(&saved);
    bytes_free(&plain);
    model_destroy(&m);
    if (!comma) {
        print_message("no locale with a decimal comma is installed\n");
    }
}

/* ---- progress, sources, two files together ---- */

typedef struct watch {
    uint64_t last, total;
    int calls;
    bool backwards;
} watch;

static void observe(void *context, uint64_t done, uint64_t total)
{
    watch *w = context;
    w->backwards = w->backwards || done < w->last || done > total;
    w->last = done;
    w->total = total;
    w->calls++;
}

static bool read_bytes(void *context, uint64_t offset, void *buffer, size_t count)
{
    const bytes *from = context;
    memcpy(buffer, from->data + offset, count);
    return true;
}

static void test_progress_and_sources(void **state)
{
    enum { ROWS = 1500, COLS = 1000 }; /* 12 MB of moments: several pieces */
    static float data[ROWS * COLS], grad[ROWS * COLS];
    muonium_options options;
    muonium_load_options loading;
    muonium_optimizer *a, *b;
    muonium_writer *writer;
    muonium_reader *reader;
    muonium_tensor tensor = {
        .name = "w", .ndim = 2, .shape = {ROWS, COLS}, .data = data, .grad = grad};
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/progress", directory);
    assert_ok(muonium_options_init(&options, NULL));
    options.route = MUONIUM_ROUTE_ADAM;
    assert_ok(muonium_create(&options, &a));
    assert_ok(muonium_add(a, &tensor, NULL));
    assert_ok(muonium_create(&options, &b));
    assert_ok(muonium_add(b, &tensor, NULL));
    for (size_t i = 0; i < ROWS * COLS; i++) {
        grad[i] = (float)i;
    }
    assert_ok(muonium_step(a));
    watch w = {0};
    assert_ok(muonium_save_prepare(a, path, observe, &w, &writer));
    assert_int_not_equal(access(path, F_OK), 0); /* not yet */
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    assert_int_equal(access(path, F_OK), 0);
    assert_true(w.calls > 3 && w.last == w.total && w.total == 8u * ROWS * COLS && !w.backwards);

    assert_ok(muonium_save_prepare(b, path, NULL, NULL, &writer));
    muonium_writer_destroy(writer); /* abandoned: the first save stays */
    w = (watch){0};
    muonium_load_options_init(&loading);
    loading.progress = observe;
    loading.progress_context = &w;
    assert_ok(muonium_reader_open(path, &reader));
    assert_ok(muonium_load_reader(b, reader, &loading, NULL));
    muonium_reader_close(reader);
    assert_true(w.calls > 1 && w.last == w.total && w.total == 8u * ROWS * COLS && !w.backwards);

    bytes first = {0}, second = {0};
    assert_ok(muonium_save_to(a, bytes_append, &first));
    assert_ok(muonium_save_to(b, bytes_append, &second));
    assert_true(bytes_equal(&first, &second));
    muonium_source source = {read_bytes, &first, first.count};
    assert_ok(muonium_load_from(b, &source));
    bytes_free(&first);
    bytes_free(&second);
    muonium_destroy(a);
    muonium_destroy(b);
}

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/muonium-test-XXXXXX");
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_load_of_an_unstepped_state),
        cmocka_unit_test(test_master_that_is_still_to_come),
        cmocka_unit_test(test_resume_in_another_process),
        cmocka_unit_test(test_momentum_conventions),
        cmocka_unit_test(test_momentum_types),
        cmocka_unit_test(test_partial_loading),
        cmocka_unit_test(test_other_order_and_missing_means),
        cmocka_unit_test(test_changed_options_are_logged),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_progress_and_sources),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
