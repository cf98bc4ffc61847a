/*
 * test_sized.c: programs compiled against another version of the header, whose structs are
 * shorter or longer than the library's. Nothing beyond the caller's struct is read or
 * written: a page that traps follows it.
 */
#include "test.h"

#include <unistd.h>

#include "muonium_mpi_plan.h"

enum { LONGEST = 4096, ROWS = 6, COLS = 5, MATRICES = 3 };

/* What the calls work on: an optimizer after one step, its file, a plan. */
static struct scene {
    muonium_optimizer *optimizer;
    muonium_reader *reader;
    muonium_plan *plan;
    muonium_mpi_plan *mpi_plan;
    float data[MATRICES * ROWS * COLS], grad[MATRICES * ROWS * COLS];
} scene;

static const muonium_shape shape = {MATRICES, ROWS, COLS};

static muonium_tensor stacked(void)
{
    muonium_tensor tensor = {.name = "experts.w",
                             .ndim = 3,
                             .shape = {MATRICES, ROWS, COLS},
                             .layout = MUONIUM_LAYOUT_EXPERTS,
                             .data = scene.data,
                             .grad = scene.grad};
    return tensor;
}

static int set_up(void **state)
{
    (void)state;
    char path[] = "/tmp/muonium-sized-XXXXXX";
    test_rng rng = test_rng_start("sized");
    muonium_tensor tensor = stacked();
    test_fill_normal_f32(&rng, scene.data, MATRICES * ROWS * COLS);
    test_fill_normal_f32(&rng, scene.grad, MATRICES * ROWS * COLS);
    assert_ok(muonium_create(NULL, &scene.optimizer));
    assert_ok(muonium_add(scene.optimizer, &tensor, NULL));
    assert_ok(muonium_step(scene.optimizer));
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(muonium_save(scene.optimizer, path));
    assert_ok(muonium_reader_open(path, &scene.reader));
    unlink(path);
    assert_ok(muonium_plan_create(shape, NULL, &scene.plan));
    return muonium_mpi_plan_create(scene.optimizer, 2, NULL, &scene.mpi_plan) != MUONIUM_OK;
}

static int clean_up(void **state)
{
    (void)state;
    muonium_mpi_plan_destroy(scene.mpi_plan);
    muonium_plan_destroy(scene.plan);
    muonium_reader_close(scene.reader);
    muonium_destroy(scene.optimizer);
    return 0;
}

/* ---- structs that the library fills ---- */

static muonium_status fill_cpu(void *out, size_t size)
{
    return muonium_cpu_sized(out, size);
}

static muonium_status fill_plan(void *out, size_t size)
{
    return muonium_plan_describe_sized(scene.plan, out, size);
}

static muonium_status fill_report(void *out, size_t size)
{
    return muonium_report_sized(scene.optimizer, 0, out, size);
}

static muonium_status fill_counters(void *out, size_t size)
{
    return muonium_count_sized(scene.optimizer, out, size);
}

static muonium_status fill_state(void *out, size_t size)
{
    return muonium_state_of_sized(scene.optimizer, 0, out, size);
}

static muonium_status fill_fusion(void *out, size_t size)
{
    const muonium_tensor tensor = {.name = "attn.qkv", .ndim = 2, .shape = {96, 32}};
    return muonium_fused_sized(&tensor, sizeof tensor, out, size);
}

static muonium_status fill_load_report(void *out, size_t size)
{
    return muonium_load_reader_sized(scene.optimizer, scene.reader, NULL, out, size);
}

static muonium_status fill_checkpoint(void *out, size_t size)
{
    return muonium_verify_sized(scene.reader, out, size);
}

static muonium_status fill_mpi_plan(void *out, size_t size)
{
    return muonium_mpi_plan_describe_sized(scene.mpi_plan, out, size);
}

static muonium_status fill_mpi_share(void *out, size_t size)
{
    return muonium_mpi_plan_share_sized(scene.mpi_plan, 1, out, size);
}

static muonium_status fill_mpi_piece(void *out, size_t size)
{
    return muonium_mpi_plan_piece_sized(scene.mpi_plan, 0, out, size);
}

static const struct filled {
    const char *type;
    size_t known;
    muonium_status (*fill)(void *out, size_t size);
} structs[] = {
    {"cpu_info", sizeof(muonium_cpu_info), fill_cpu},
    {"plan_info", sizeof(muonium_plan_info), fill_plan},
    {"parameter_report", sizeof(muonium_parameter_report), fill_report},
    {"counters", sizeof(muonium_counters), fill_counters},
    {"state", sizeof(muonium_state), fill_state},
    {"fusion", sizeof(muonium_fusion), fill_fusion},
    {"load_report", sizeof(muonium_load_report), fill_load_report},
    {"checkpoint_info", sizeof(muonium_checkpoint_info), fill_checkpoint},
    {"mpi_plan_info", sizeof(muonium_mpi_plan_info), fill_mpi_plan},
    {"mpi_share", sizeof(muonium_mpi_share), fill_mpi_share},
    {"mpi_piece", sizeof(muonium_mpi_piece), fill_mpi_piece},
};

/* Memory that was filled: the number of bytes filled, what a struct of the library's size gets,
 * and zero beyond it. */
static void assert_filled(const char *memory, size_t size, const char *whole, size_t known)
{
    size_t filled = 0, both = size < known ? size : known;
    memcpy(&filled, memory, sizeof filled);
    assert_int_equal(filled, both);
    assert_memory_equal(memory + sizeof filled, whole + sizeof filled, both - sizeof filled);
    for (size_t i = both; i < size; i++) {
        assert_int_equal(memory[i], 0);
    }
}

static void structs_of_any_size_are_filled(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof structs / sizeof structs[0]; k++) {
        const struct filled *s = &structs[k];
        char whole[LONGEST];
        assert_true(s->known + 64 <= sizeof whole);
        assert_ok(s->fill(whole, s->known));
        for (size_t size = sizeof(size_t); size <= s->known + 64; size += sizeof(size_t)) {
            char *memory = test_guarded_alloc(size, 0);
            assert_ok(s->fill(memory, size));
            assert_filled(memory, size, whole, s->known);
            test_guarded_free(memory);
        }
    }
}

/* ---- arrays of structs ---- */

static muonium_status of_plan(void *out, size_t size)
{
    float result[MATRICES * ROWS * COLS];
    muonium_view from = muonium_dense(MUONIUM_F32, shape, scene.grad);
    muonium_view to = muonium_dense(MUONIUM_F32, shape, result);
    return muonium_plan_execute_sized(scene.plan, &from, &to, NULL, out, size);
}

static muonium_status of_shape(void *out, size_t size)
{
    float result[MATRICES * ROWS * COLS];
    muonium_view from = muonium_dense(MUONIUM_F32, shape, scene.grad);
    muonium_view to = muonium_dense(MUONIUM_F32, shape, result);
    return muonium_orthogonalize_sized(shape, NULL, &from, &to, out, size);
}

static muonium_status of_optimizer(void *out, size_t size)
{
    size_t count = 0;
    muonium_status status =
        muonium_certificates_sized(scene.optimizer, 0, out, size, MATRICES, &count);
    assert_int_equal(count, MATRICES);
    return status;
}

static void certificates_follow_each_other_by_the_callers_size(void **state)
{
    (void)state;
    assert_ok(muonium_step(scene.optimizer)); /* what was loaded has none */
    muonium_status (*const calls[])(void *, size_t) = {of_plan, of_shape, of_optimizer};
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
        muonium_certificate whole[MATRICES];
        assert_ok(calls[k](whole, sizeof whole[0]));
        assert_true(whole[0].divisor > 0 && whole[0].divisor != whole[1].divisor);
        for (size_t size = sizeof(size_t); size <= sizeof whole[0] + 64; size += sizeof(size_t)) {
            char *memory = test_guarded_alloc(MATRICES * size, 0);
            assert_ok(calls[k](memory, size));
            for (size_t i = 0; i < MATRICES; i++) {
                assert_filled(memory + i * size, size, (const char *)&whole[i], sizeof whole[i]);
            }
            test_guarded_free(memory);
        }
    }
}

/* ---- structs that the library reads ---- */

static muonium_status add(const void *given, size_t size)
{
    muonium_optimizer *optimizer;
    assert_ok(muonium_create(NULL, &optimizer));
    muonium_status status = muonium_add_sized(optimizer, given, size, NULL);
    muonium_destroy(optimizer);
    return status;
}

static muonium_status fuse(const void *given, size_t size)
{
    muonium_fusion fusion;
    return muonium_fused_sized(given, size, &fusion, sizeof fusion);
}

static muonium_status set_state(const void *given, size_t size)
{
    return muonium_set_state_sized(scene.optimizer, 0, given, size);
}

static muonium_status qk_clip(const void *given, size_t size)
{
    muonium_optimizer *optimizer;
    muonium_tensor tensor = {.name = "qk", .ndim = 2, .shape = {ROWS, COLS}, .data = scene.data};
    assert_ok(muonium_create(NULL, &optimizer));
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    muonium_status status = muonium_qk_clip_sized(optimizer, given, size, NULL);
    muonium_destroy(optimizer);
    return status;
}

/* The bytes before `least` are needed; the others may be missing, which means 0. */
static void try_sizes(const char *type, muonium_status (*read)(const void *, size_t),
                      const void *given, size_t known, size_t least)
{
    for (size_t size = least; size <= known + 32; size += sizeof(size_t)) {
        char *memory = test_guarded_alloc(size, 0), message[128];
        memset(memory, 0, size);
        memcpy(memory, given, size < known ? size : known);
        assert_ok(read(memory, size));
        if (size > known) { /* a field that this library does not know */
            memory[size - 1] = 1;
            snprintf(message, sizeof message,
                     "%s has a field that version " MUONIUM_VERSION_STRING " does not know", type);
            assert_status_message(read(memory, size), MUONIUM_INVALID, message);
        }
        test_guarded_free(memory);
    }
}

static void structs_of_any_size_are_read(void **state)
{
    (void)state;
    const float logits[] = {1, 2};
    muonium_state own;
    assert_ok(muonium_state_of(scene.optimizer, 0, &own));
    own.rows = 0;
    muonium_tensor tensor = stacked();
    muonium_qk qk = {.key_row = 4,
                     .heads = 2,
                     .key_heads = 1,
                     .head_dim = 2,
                     .max_logits = logits,
                     .threshold = 100};
    try_sizes("tensor", add, &tensor, sizeof tensor, offsetof(muonium_tensor, out_axes));
    try_sizes("tensor", fuse, &tensor, sizeof tensor, offsetof(muonium_tensor, data));
    try_sizes("state", set_state, &own, sizeof own, offsetof(muonium_state, exp_avg));
    try_sizes("heads", qk_clip, &qk, sizeof qk, sizeof qk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_of_any_size_are_filled),
        cmocka_unit_test(certificates_follow_each_other_by_the_callers_size),
        cmocka_unit_test(structs_of_any_size_are_read),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
