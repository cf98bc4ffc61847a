/*
 * test_xla.c: the handler of src/xla, called as XLA calls it: the metadata query, the stages, bits
 * that depend on no grouping and no thread, tables of coefficients, every error, memory that is
 * refused, and forks.
 */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xla/xla.h"

/* ---- a frame ---- */

enum { MOST = 8 };

static char error_text[2000];
static int error_code;

static mu_xla_error *create_error(mu_xla_error_args *args)
{
    assert_int_equal(args->struct_size, sizeof *args);
    snprintf(error_text, sizeof error_text, "%s", args->message);
    error_code = args->code;
    return (mu_xla_error *)error_text;
}

static const mu_xla_api api = {.struct_size = sizeof api, .error_create = create_error};

typedef struct test_call {
    mu_xla_buffer in[MOST], out[MOST];
    int64_t dims[MOST][4];
    int types[2 * MOST], attribute_types[MOST];
    void *ins[MOST], *outs[MOST], *values[MOST];
    mu_xla_span names[MOST], texts[MOST], *name_pointers[MOST];
    mu_xla_array table;
    mu_xla_frame frame;
} test_call;

static void start(test_call *call)
{
    memset(call, 0, sizeof *call);
    for (int i = 0; i < 2 * MOST; i++) {
        call->types[i] = MU_XLA_BUFFER;
    }
    call->frame = (mu_xla_frame){
        .struct_size = sizeof call->frame,
        .api = &api,
        .stage = MU_XLA_EXECUTE,
        .arguments = {.types = call->types, .items = call->ins},
        .results = {.types = call->types, .items = call->outs},
        .attributes = {.types = call->attribute_types,
                       .names = call->name_pointers,
                       .values = call->values},
    };
}

static mu_xla_buffer buffer_of(test_call *call, int index, int dtype, void *data, int rank,
                               const int64_t *dims)
{
    memcpy(call->dims[index], dims, (size_t)rank * sizeof *dims);
    return (mu_xla_buffer){.dtype = dtype, .data = data, .rank = rank, .dims = call->dims[index]};
}

/* Add an array and its result. */
static void add(test_call *call, int dtype, void *in, void *out, int rank, const int64_t *dims)
{
    int index = (int)call->frame.results.size;
    call->in[index] = buffer_of(call, index, dtype, in, rank, dims);
    call->out[index] = call->in[index];
    call->out[index].data = out;
    call->ins[index] = &call->in[index];
    call->outs[index] = &call->out[index];
    call->frame.arguments.size++;
    call->frame.results.size++;
}

static void add_tables(test_call *call, int dtype, void *data, int rank, const int64_t *dims)
{
    int index = (int)call->frame.arguments.size++;
    call->in[index] = buffer_of(call, index, dtype, data, rank, dims);
    call->ins[index] = &call->in[index];
}

static void set(test_call *call, const char *name, const char *text)
{
    int index = (int)call->frame.attributes.size++;
    call->names[index] = (mu_xla_span){name, strlen(name)};
    call->texts[index] = (mu_xla_span){text, strlen(text)};
    call->name_pointers[index] = &call->names[index];
    call->attribute_types[index] = MU_XLA_STRING;
    call->values[index] = &call->texts[index];
}

static void set_table(test_call *call, int dtype, void *data, size_t size)
{
    int index = (int)call->frame.attributes.size;
    set(call, "table", "");
    call->table = (mu_xla_array){dtype, size, data};
    call->attribute_types[index] = MU_XLA_ARRAY;
    call->values[index] = &call->table;
}

static void run(test_call *call)
{
    error_text[0] = '\0';
    if (muonium_xla_orthogonalize(&call->frame) != NULL) {
        fail_msg("%s", error_text);
    }
}

static void refuse(test_call *call, int code, const char *part)
{
    assert_non_null(muonium_xla_orthogonalize(&call->frame));
    assert_int_equal(error_code, code);
    if (strstr(error_text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error_text, part);
    }
}

/* ---- matrices ---- */

enum { ROWS = 6, COLS = 9, SIZE = ROWS * COLS };
static const int64_t shape[] = {ROWS, COLS};

static void reference(const float *in, size_t rows, size_t cols, double (*table)[3], float *out)
{
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.table = (const double(*)[3])table;
    options.table_rows = table != NULL;
    muonium_shape one = {1, rows, cols};
    muonium_view from = muonium_dense(MUONIUM_F32, one, (void *)(uintptr_t)in);
    muonium_view to = muonium_dense(MUONIUM_F32, one, out);
    assert_ok(muonium_orthogonalize(one, &options, &from, &to, NULL));
}

static void test_metadata(void **state)
{
    (void)state;
    mu_xla_metadata metadata = {.struct_size = sizeof metadata, .traits = 7, .state_type = 5};
    mu_xla_metadata_extension query = {.base = {.type = MU_XLA_METADATA}, .metadata = &metadata};
    mu_xla_extension other = {.type = 99, .next = &query.base};
    mu_xla_frame frame = {.extension = &other}; /* neither functions nor arguments */
    assert_null(muonium_xla_orthogonalize(&frame));
    assert_int_equal(metadata.version.major, MU_XLA_MAJOR);
    assert_int_equal(metadata.version.minor, MU_XLA_FIRST_MINOR); /* as XLA of 0.1 asks */
    assert_int_equal(metadata.traits, 0);
    assert_int_equal(metadata.state_type, 5);
    static const int minor[][2] = {{1, 1}, {MU_XLA_MINOR, MU_XLA_MINOR}, {99, MU_XLA_MINOR}};
    for (size_t i = 0; i < sizeof minor / sizeof *minor; i++) {
        mu_xla_api theirs = {.version = {.major = MU_XLA_MAJOR, .minor = minor[i][0]}};
        frame.api = &theirs;
        assert_null(muonium_xla_orthogonalize(&frame));
        assert_int_equal(metadata.version.minor, minor[i][1]);
    }
}

static void test_only_execution_does_something(void **state)
{
    (void)state;
    float in[SIZE] = {1}, out[SIZE] = {2};
    test_call call;
    start(&call);
    add(&call, MU_XLA_F32, in, out, 2, shape);
    for (int stage = 0; stage < MU_XLA_EXECUTE; stage++) {
        call.frame.stage = stage;
        run(&call);
        assert_true(out[0] == 2);
    }
    call.frame.stage = MU_XLA_EXECUTE;
    run(&call);
    assert_true(out[0] > 0.8F && out[0] < 1.2F);
}

/* Arrays of equal and of other shapes, small and large, batches among them, in place and not:
 * the bits are those of each matrix alone. */
static void test_bits_depend_on_no_grouping(void **state)
{
    (void)state;
    enum { LARGE = 520 }; /* too large to be copied together */
    static const int64_t shapes[][3] = {{1, 6, 9},         {1, 9, 6}, {4, 6, 9},        {1, 6, 9},
                                        {1, LARGE, LARGE}, {1, 6, 9}, {1, LARGE, LARGE}};
    enum { COUNT = sizeof shapes / sizeof *shapes };
    test_rng rng = test_rng_start("grouping");
    float *in[COUNT], *out[COUNT], *expected[COUNT];
    test_call call;
    start(&call);
    for (int i = 0; i < COUNT; i++) {
        size_t matrix = (size_t)(shapes[i][1] * shapes[i][2]), all = matrix * (size_t)shapes[i][0];
        in[i] = malloc(all * sizeof *in[i]);
        expected[i] = malloc(all * sizeof *in[i]);
        test_fill_normal_f32(&rng, in[i], all);
        out[i] = i % 2 ? in[i] : malloc(all * sizeof *in[i]);
        for (size_t b = 0; b < (size_t)shapes[i][0]; b++) {
            reference(in[i] + b * matrix, (size_t)shapes[i][1], (size_t)shapes[i][2], NULL,
                      expected[i] + b * matrix);
        }
        add(&call, MU_XLA_F32, in[i], out[i], 3, shapes[i]);
    }
    run(&call);
    for (int i = 0; i < COUNT; i++) {
        size_t all = (size_t)(shapes[i][0] * shapes[i][1] * shapes[i][2]);
        assert_memory_equal(out[i], expected[i], all * sizeof *in[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        free(in[i]);
        free(expected[i]);
        if (i % 2 == 0) {
            free(out[i]);
        }
    }
}

static void reference_of(const float *in, const char *const (*attributes)[2], size_t count,
                         float *out)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, NULL));
    for (size_t i = 0; i < count; i++) {
        assert_ok(muonium_option_set(&options, attributes[i][0], attributes[i][1]));
    }
    muonium_shape one = {1, ROWS, COLS};
    muonium_view from = muonium_dense(MUONIUM_F32, one, (void *)(uintptr_t)in);
    muonium_view to = muonium_dense(MUONIUM_F32, one, out);
    assert_ok(muonium_orthogonalize(one, &options.plan, &from, &to, NULL));
}

/* More settings than are kept, twice, in memory that is written anew for each call; among them
 * texts that are equal end to end. */
static void test_settings(void **state)
{
    (void)state;
    static const char *const others[][2][2] = {
        {{"form", "standard"}, {"coefficients", "original"}},
        {{"form", "standard"}, {"coefficients", "quintic"}},
        {{"steps", "1"}, {"eps", "2"}},
        {{"steps", "12"}, {"eps", "2"}},
        {{"steps", "1"}, {"eps", "22"}},
        {{"eps", "2"}, {"steps", "1"}},
        {{"steps", "2"}, {"steps", "1"}},
        {{"steps", "1"}, {"steps", "2"}},
    };
    enum { OTHERS = sizeof others / sizeof *others, NUMBERS = 20 };
    float in[SIZE], out[SIZE], expected[SIZE];
    test_rng rng = test_rng_start("settings");
    test_fill_normal_f32(&rng, in, SIZE);
    for (int i = 0; i < 2 * (OTHERS + NUMBERS); i++) {
        int number = i % (OTHERS + NUMBERS);
        char texts[2][2][20] = {{"steps"}, {"safety_factor", "1.25"}};
        if (number < OTHERS) {
            for (int j = 0; j < 4; j++) {
                snprintf(texts[j / 2][j % 2], sizeof texts[0][0], "%s",
                         others[number][j / 2][j % 2]);
            }
        } else {
            snprintf(texts[0][1], sizeof texts[0][1], "%d", number - OTHERS + 1);
        }
        const char *const given[2][2] = {{texts[0][0], texts[0][1]}, {texts[1][0], texts[1][1]}};
        test_call call;
        start(&call);
        add(&call, MU_XLA_F32, in, out, 2, shape);
        set(&call, given[0][0], given[0][1]);
        set(&call, given[1][0], given[1][1]);
        reference_of(in, given, 2, expected);
        run(&call);
        assert_memory_equal(out, expected, sizeof out);
        memset(texts, '?', sizeof texts); /* which nothing that is kept may point to */
        memset(out, 0, sizeof out);
    }
    for (int i = 0; i < 2; i++) { /* a mistake is one in every call */
        test_call call;
        start(&call);
        add(&call, MU_XLA_F32, in, out, 2, shape);
        set(&call, "steps", "3");
        set(&call, "stops", "3");
        refuse(&call, MU_XLA_INVALID_ARGUMENT, "stops");
    }
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        int theirs;
        muonium_dtype ours;
    } types[] = {{MU_XLA_F32, MUONIUM_F32},
                 {MU_XLA_F64, MUONIUM_F64},
                 {MU_XLA_BF16, MUONIUM_BF16},
                 {MU_XLA_F16, MUONIUM_F16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        /* 1.0 and 2.0 in each type, by way of a conversion of the library: a diagonal matrix. */
        float diagonal[4] = {1, 0, 0, 2};
        double in[4], out[4], expected[4];
        muonium_plan_options options;
        muonium_plan_options_init(&options);
        muonium_shape two = {1, 2, 2};
        muonium_view from = muonium_dense(MUONIUM_F32, two, diagonal);
        muonium_view as_type = muonium_dense(types[i].ours, two, in);
        muonium_view to = muonium_dense(types[i].ours, two, expected);
        assert_ok(muonium_orthogonalize(two, &options, &from, &as_type, NULL));
        assert_ok(muonium_orthogonalize(two, &options, &as_type, &to, NULL));
        test_call call;
        start(&call);
        add(&call, types[i].theirs, in, out, 2, (int64_t[]){2, 2});
        run(&call);
        assert_memory_equal(out, expected, 4 * muonium_dtype_size(types[i].ours));
    }
}

/* Tables as attribute and as argument, f32 and f64; one of all and one for each leading index. */
static void test_tables(void **state)
{
    (void)state;
    enum { TABLES = 3 };
    float in[TABLES * 2][SIZE], out[TABLES * 2][SIZE], expected[SIZE];
    float more[TABLES][SIZE], more_out[TABLES][SIZE];
    double tables[TABLES][1][3] = {{{2, -1.5, 0.5}}, {{3.4445, -4.775, 2.0315}}, {{1.5, -0.5, 0}}};
    float singles[TABLES][3];
    test_rng rng = test_rng_start("tables");
    test_fill_normal_f32(&rng, in[0], TABLES * 2 * SIZE);
    test_fill_normal_f32(&rng, more[0], TABLES * SIZE);
    for (int i = 0; i < TABLES * 3; i++) {
        singles[i / 3][i % 3] = (float)tables[i / 3][0][i % 3];
    }
    for (int kind = 0; kind < 4; kind++) { /* attribute; f64; f32 of one table; each its own */
        test_call call;
        start(&call);
        add(&call, MU_XLA_F32, in, out, 4, (int64_t[]){TABLES, 2, ROWS, COLS});
        add(&call, MU_XLA_F32, more, more_out, 3, (int64_t[]){TABLES, ROWS, COLS});
        if (kind == 0) {
            set_table(&call, MU_XLA_F64, tables[1], 3);
        } else if (kind == 1) {
            add_tables(&call, MU_XLA_F64, tables[1], 2, (int64_t[]){1, 3});
        } else if (kind == 2) {
            add_tables(&call, MU_XLA_F32, singles[1], 2, (int64_t[]){1, 3});
        } else {
            add_tables(&call, MU_XLA_F64, tables, 3, (int64_t[]){TABLES, 1, 3});
        }
        run(&call);
        double rounded[1][3] = {
            {(double)singles[1][0], (double)singles[1][1], (double)singles[1][2]}};
        for (int i = 0; i < TABLES * 3; i++) {
            int index = i < TABLES * 2 ? i / 2 : i - TABLES * 2;
            double(*table)[3] = kind == 2 ? rounded : tables[kind == 3 ? index : 1];
            bool second = i >= TABLES * 2;
            reference(second ? more[index] : in[i], ROWS, COLS, table, expected);
            assert_memory_equal(second ? more_out[index] : out[i], expected, sizeof expected);
        }
    }
}

static void test_skipped_matrices_become_zero(void **state)
{
    (void)state;
    static const float zero[SIZE];
    float in[3][SIZE], out[3][SIZE], expected[SIZE];
    test_rng rng = test_rng_start("skipped");
    test_fill_normal_f32(&rng, in[0], 3 * SIZE);
    in[1][7] = NAN;
    memset(out, 0x55, sizeof out);
    test_call call;
    start(&call);
    add(&call, MU_XLA_F32, in, out, 3, (int64_t[]){3, ROWS, COLS});
    refuse(&call, MU_XLA_FAILED_PRECONDITION, "element (1, 0, 7)");
    set(&call, "nonfinite", "skip");
    run(&call);
    for (int i = 0; i < 3; i += 2) {
        reference(in[i], ROWS, COLS, NULL, expected);
        assert_memory_equal(out[i], expected, sizeof expected);
    }
    assert_memory_equal(out[1], zero, sizeof zero);
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    float table[3] = {2, -1.5F, 0.5F};
    test_call call;
    start(&call);
    add(&call, MU_XLA_F32, NULL, NULL, 3, (int64_t[]){0, ROWS, COLS});
    add(&call, MU_XLA_F32, NULL, NULL, 2, (int64_t[]){4, 0});
    run(&call);
    start(&call);
    add(&call, MU_XLA_F32, NULL, NULL, 3, (int64_t[]){0, ROWS, COLS});
    add_tables(&call, MU_XLA_F32, table, 2, (int64_t[]){1, 3});
    run(&call);
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    (void)state;
    float in[SIZE] = {1}, out[SIZE];
    double table[3 * 65] = {2, -1.5, 0.5};
    test_call call;
    start(&call);
    refuse(&call, MU_XLA_INVALID_ARGUMENT, "one array or more");
    add(&call, MU_XLA_F32, in, out, 2, shape);
    add_tables(&call, MU_XLA_F64, table, 2, (int64_t[]){1, 3});
    add_tables(&call, MU_XLA_F64, table, 2, (int64_t[]){1, 3});
    refuse(&call, MU_XLA_INVALID_ARGUMENT, "as many results");

#define EXPECT(part, ...)                                                                          \
    do {                                                                                           \
        start(&call);                                                                              \
        add(&call, MU_XLA_F32, in, out, 2, shape);                                                 \
        __VA_ARGS__;                                                                               \
        refuse(&call, MU_XLA_INVALID_ARGUMENT, part);                                              \
    } while (0)
    EXPECT("argument 0 has fewer than two dimensions", call.in[0].rank = call.out[0].rank = 1);
    EXPECT("differ in type or shape", call.out[0].dtype = MU_XLA_F64);
    EXPECT("differ in type or shape", call.out[0].rank = 1);
    int64_t other[] = {COLS, ROWS};
    EXPECT("differ in type or shape", call.out[0].dims = other);
    EXPECT("another type than f32", call.in[0].dtype = call.out[0].dtype = 15);
    EXPECT("argument 0 or its result is no array", call.types[0] = 7);
    EXPECT("argument 0 is too large", call.dims[0][0] = call.dims[0][1] = INT64_MAX / 2);
    EXPECT("argument 0 is too large", call.dims[0][0] = -1);
    EXPECT("no option", set(&call, "step", "5"));
    EXPECT("steps", set(&call, "steps", "65"));
    EXPECT("form", set(&call, "form", "quick"));
    EXPECT("attribute steps is neither", set(&call, "steps", "5");
           call.attribute_types[0] = MU_XLA_ARRAY);
    EXPECT(
        "neither a short text",
        set(&call, "steps", "555555555555555555555555555555555555555555555555555555555555555555"));
    EXPECT("table of doubles", set_table(&call, MU_XLA_F32, table, 3));
    EXPECT("table of doubles", set_table(&call, MU_XLA_F64, table, 4));
    EXPECT("at most 64 iterations", set_table(&call, MU_XLA_F64, table, sizeof table / 8));
    EXPECT("form is direct", set(&call, "form", "direct"); set(&call, "steps", "7"));
    EXPECT("argument 1 is no table", add_tables(&call, MU_XLA_F64, table, 1, (int64_t[]){3}));
    EXPECT("argument 1 is no table", add_tables(&call, MU_XLA_F64, table, 2, (int64_t[]){1, 4}));
    EXPECT("argument 1 is no table", add_tables(&call, MU_XLA_F64, table, 2, (int64_t[]){65, 3}));
    EXPECT("argument 1 is no table", add_tables(&call, MU_XLA_F64, table, 2, (int64_t[]){0, 3}));
    EXPECT("argument 1 is no table", add_tables(&call, MU_XLA_BF16, table, 2, (int64_t[]){1, 3}));
    EXPECT("argument 1 is too large",
           add_tables(&call, MU_XLA_F64, table, 3, (int64_t[]){-1, 1, 3}));
    EXPECT("argument 0 lacks the leading dimensions",
           add_tables(&call, MU_XLA_F64, table, 3, (int64_t[]){2, 1, 3}));
    EXPECT("below 1e+07",
           add_tables(&call, MU_XLA_F64, (double[]){1e30, 0, 0}, 2, (int64_t[]){1, 3}));
#undef EXPECT
}

/* ---- memory ---- */

/* A call with two arrays that are copied together. Allocation `fail_at` fails. */
static bool succeeds(const float *in, float *out, const char *eps, long fail_at)
{
    test_call call;
    start(&call);
    add(&call, MU_XLA_F32, (void *)(uintptr_t)in, out, 2, (int64_t[]){ROWS, COLS});
    add(&call, MU_XLA_F32, (void *)(uintptr_t)in, out, 2, (int64_t[]){ROWS, COLS});
    set(&call, "nonfinite", "skip");
    set(&call, "eps", eps);
    test_fail_allocation(fail_at, false);
    bool succeeded = muonium_xla_orthogonalize(&call.frame) == NULL;
    test_memory.fail_at = 0;
    return succeeded;
}

static void test_memory_comes_from_the_hook(void **state)
{
    (void)state;
    float in[SIZE], out[SIZE];
    test_rng rng = test_rng_start("memory");
    test_fill_normal_f32(&rng, in, SIZE);
    long before = test_memory.alive;
    assert_true(succeeds(in, out, "1e-6", 0));
    long with_plan = test_memory.calls, plan = test_memory.alive - before;
    assert_true(plan > 0);
    assert_true(succeeds(in, out, "1e-6", 0)); /* by the plan that was kept */
    long without_plan = test_memory.calls;
    assert_true(without_plan < with_plan);

    long fail_at = 1, alive = before + plan;
    for (; !succeeds(in, out, "2e-6", fail_at); fail_at++) {
        assert_int_equal(error_code, MU_XLA_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(error_text, "out of memory"));
        /* Nothing is left behind but the plan, once that was made. */
        long more = test_memory.alive - alive;
        assert_true(more == 0 || more == plan);
    }
    assert_int_equal(test_memory.alive, alive + plan);
    assert_true(fail_at > without_plan);
    assert_true(succeeds(in, out, "1e-6", 0));
    assert_int_equal(test_memory.calls, without_plan);
}

/* ---- several threads of the program, more plans than are kept ---- */

enum { CALLERS = 4, SHAPES = 80 };

static void *call_often(void *context)
{
    const float *in = context;
    float out[SIZE], expected[SIZE];
    for (int64_t i = 0; i < SHAPES; i++) {
        int64_t rows = 1 + i % ROWS, cols = 1 + i / ROWS % COLS;
        test_call call;
        start(&call);
        add(&call, MU_XLA_F32, (void *)(uintptr_t)in, out, 2, (int64_t[]){rows, cols});
        if (i % 3 == 0) {
            set(&call, "steps", "5"); /* the default */
        }
        if (muonium_xla_orthogonalize(&call.frame) != NULL) {
            return "an error";
        }
        reference(in, (size_t)rows, (size_t)cols, NULL, expected);
        if (memcmp(out, expected, (size_t)(rows * cols) * sizeof *out) != 0) {
            return "other bits";
        }
    }
    return NULL;
}

static void test_callers_at_the_same_time(void **state)
{
    (void)state;
    float in[SIZE];
    test_rng rng = test_rng_start("callers");
    test_fill_normal_f32(&rng, in, SIZE);
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(muonium_set_threads(threads));
        pthread_t callers[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            assert_int_equal(pthread_create(&callers[i], NULL, call_often, in), 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            void *wrong;
            pthread_join(callers[i], &wrong);
            if (wrong != NULL) {
                fail_msg("%s", (const char *)wrong);
            }
        }
    }
}

/* ---- forks ---- */

static atomic_bool forked_enough;

static void *call_until_told(void *context)
{
    float out[SIZE];
    while (!atomic_load(&forked_enough)) {
        test_call call;
        start(&call);
        add(&call, MU_XLA_F32, context, out, 2, (int64_t[]){2, 2});
        if (muonium_xla_orthogonalize(&call.frame) != NULL) {
            return "an error";
        }
    }
    return NULL;
}

/* Children of a process whose other threads are in the middle of calls. */
static void test_children_of_fork(void **state)
{
    (void)state;
    enum { CHILDREN = 200 };
    float in[SIZE], out[SIZE];
    test_rng rng = test_rng_start("forks");
    test_fill_normal_f32(&rng, in, SIZE);
    assert_ok(muonium_set_threads(1));
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&callers[i], NULL, call_until_told, in), 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(60);
            _exit(succeeds(in, out, "1e-6", 0) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&forked_enough, true);
    for (int i = 0; i < CALLERS; i++) {
        void *wrong;
        pthread_join(callers[i], &wrong);
        if (wrong != NULL) {
            fail_msg("%s", (const char *)wrong);
        }
    }
}

int main(void)
{
    test_count_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_only_execution_does_something),
        cmocka_unit_test(test_bits_depend_on_no_grouping),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_skipped_matrices_become_zero),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_memory_comes_from_the_hook),
        cmocka_unit_test(test_callers_at_the_same_time),
        cmocka_unit_test(test_children_of_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
