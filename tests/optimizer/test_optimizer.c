/*
 * test_optimizer.c: what must not change a bit of a step: threads, batching, the division
 * into optimizers, scratch memory, the caller's floating-point environment and, where no
 * matrix is multiplied, the instruction set; and that with the identity in place of the
 * iteration the step is SGD with momentum, to the bit.
 */
#include "test.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>

#include "base/random.h"
#include "optimizer_model.h"
#include "orthogonalize/plan.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STEPS = 3 };

/* ---- the identity in place of the iteration ---- */

static bool identity; /* leave directions as they are instead of orthogonalising them */

void __wrap_mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                        const mu_survey *surveys, void *workspace,
                        muonium_certificate *certificates);
void __real_mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                        const mu_survey *surveys, void *workspace,
                        muonium_certificate *certificates);

/* Called instead of mu_plan_run: see cmake/MuoniumTests.cmake. */
void __wrap_mu_plan_run(const muonium_plan *plan, size_t count, const mu_oriented *matrices,
                        const mu_survey *surveys, void *workspace,
                        muonium_certificate *certificates)
{
    if (!identity) {
        __real_mu_plan_run(plan, count, matrices, surveys, workspace, certificates);
    }
}

/* SGD with momentum on one element, in the storage that the optimizer has. */
typedef struct sgd {
    float mu, gain, of_g, of_m, decay, lr;
    bool cautious;
} sgd;

static float sgd_step(const sgd *s, float w, float g, float *m)
{
    *m = s->mu * *m + s->gain * g;
    float d = s->of_g * g + s->of_m * *m;
    float decay = s->cautious && !((d > 0 && w > 0) || (d < 0 && w < 0)) ? 0 : s->decay;
    return w - (decay * w + s->lr * d);
}

static void check_against_sgd(const muonium_options *options, const sgd *s)
{
    model m = model_new(), expected = model_new();
    muonium_optimizer *optimizer = model_optimizer(&m, options);
    identity = true;
    float *momentum[MODEL_COUNT], *master[MODEL_COUNT];
    for (size_t p = 0; p < MODEL_COUNT; p++) {
        momentum[p] = calloc(model_elements(p), sizeof(float));
        master[p] = calloc(model_elements(p), sizeof(float));
        assert_true(momentum[p] && master[p]);
        for (size_t i = 0; i < model_elements(p); i++) {
            master[p][i] = get_element(m.data[p], model_specs[p].dtype, i);
        }
    }
    size_t matrices = 0;
    for (size_t step = 1; step <= STEPS; step++) {
        model_set_grads(&m, step);
        assert_ok(muonium_step(optimizer));
        for (size_t p = 0; p < MODEL_COUNT; p++) {
            muonium_dtype dtype = model_specs[p].dtype;
            if (!optimizer->parameters[p]->muon) {
                continue;
            }
            matrices += optimizer->parameters[p]->matrices.count;
            for (size_t i = 0; i < model_elements(p); i++) {
                float w = options->master ? master[p][i] : get_element(expected.data[p], dtype, i);
                float g = get_element(m.grads[p], dtype, i);
                master[p][i] = sgd_step(s, w, g, &momentum[p][i]);
                put_element(expected.data[p], dtype, i, master[p][i]);
            }
            assert_memory_equal(m.data[p], expected.data[p], model_bytes(p));
        }
    }
    identity = false;
    assert_int_equal(matrices, STEPS * (6 + 9 + 6 + 3 + 5 + 2));
    for (size_t p = 0; p < MODEL_COUNT; p++) {
        free(momentum[p]);
        free(master[p]);
    }
    muonium_destroy(optimizer);
    model_free(&m);
    model_free(&expected);
}

static void identity_makes_sgd_with_momentum(void **state)
{
    (void)state;
    muonium_options options = model_options();
    options.lr = 0.1;
    options.momentum = 0.9;
    options.scale = MUONIUM_SCALE_NONE;
    options.spatial_normalize = false;
    options.weight_decay = 0;
    options.momentum_form = MUONIUM_MOMENTUM_SUM;
    options.nesterov = false;
    sgd plain = {.mu = 0.9f, .gain = 1, .of_g = 0, .of_m = 1, .decay = 0, .lr = 0.1f};
    check_against_sgd(&options, &plain);

    options.nesterov = true;
    options.weight_decay = 0.25;
    sgd nesterov = plain;
    nesterov.of_g = 1;
    nesterov.of_m = 0.9f;
    nesterov.decay = (float)(0.1 * 0.25);
    check_against_sgd(&options, &nesterov);
    options.master = true;
    check_against_sgd(&options, &nesterov);

    options.master = false;
    options.momentum_form = MUONIUM_MOMENTUM_LERP;
    options.decay = MUONIUM_DECAY_INDEPENDENT;
    sgd lerp = nesterov;
    lerp.gain = lerp.of_g = (float)(1 - 0.9);
    lerp.decay = 0.25f;
    check_against_sgd(&options, &lerp);
    options.decay = MUONIUM_DECAY_CAUTIOUS;
    lerp.decay = nesterov.decay;
    lerp.cautious = true;
    check_against_sgd(&options, &lerp);
}

/* ---- bits that must not change ---- */

enum { FIRST_INT8 = 8, VARIANTS = 12 };

/* Options under which everything that a step can do takes part. */
static muonium_options busy_options(size_t variant)
{
    static const char *const family[] = {"nanochat", "dion2", "nordion2", "adamuon", "muonh"};
    muonium_options options = model_options();
    options.seed = 11;
    if (variant >= FIRST_INT8) {
        static const char *const recipes[] = {"muonium", "nanochat", "dion2", "nordion2"};
        assert_ok(muonium_options_init(&options, recipes[variant - FIRST_INT8]));
        options.lr = 0.01;
        options.seed = 12;
        options.state_dtype = options.adam_state_dtype = MUONIUM_INT8;
        options.state_stochastic = variant % 2 == 0;
        options.stochastic_rounding = true;
    } else if (variant >= 3) {
        assert_ok(muonium_options_init(&options, family[variant - 3]));
        options.stochastic_rounding = true;
        options.state_dtype = MUONIUM_BF16;
    } else if (variant == 1) {
        options.normuon = true;
        options.state_dtype = MUONIUM_BF16;
        options.stochastic_rounding = true;
        options.decay = MUONIUM_DECAY_CAUTIOUS;
        options.adam = MUONIUM_NADAMW;
    } else if (variant == 2) {
        options.master = true;
        options.stochastic_rounding = true;
        options.momentum_form = MUONIUM_MOMENTUM_EMA_CORRECTED;
        options.plan.precision = MUONIUM_BF16;
        options.plan.coefficients = "original";
        options.plan.eps_mode = MUONIUM_EPS_ADD;
    }
    return options;
}

static void step_all(const model *m, muonium_optimizer **optimizers, size_t count)
{
    for (size_t step = 1; step <= STEPS; step++) {
        model_set_grads(m, step);
        for (size_t i = 0; i < count; i++) {
            assert_ok(muonium_step(optimizers[i]));
        }
    }
    for (size_t i = 0; i < count; i++) {
        muonium_destroy(optimizers[i]);
    }
}

/* The parameters after the steps of one optimizer. */
static model stepped(const muonium_options *options)
{
    model m = model_new();
    muonium_optimizer *optimizer = model_optimizer(&m, options);
    step_all(&m, &optimizer, 1);
    return m;
}

static void threads_change_nothing(void **state)
{
    (void)state;
    for (size_t variant = 0; variant < VARIANTS; variant++) {
        muonium_options options = busy_options(variant);
        assert_ok(muonium_set_threads(1));
        model expected = stepped(&options);
        const int threads[] = {2, 3, 7, 16};
        for (size_t t = 0; t < 4; t++) {
            assert_ok(muonium_set_threads(threads[t]));
            model m = stepped(&options);
            model_assert_equal(&m, &expected, "threads");
            model_free(&m);
        }
        /* The number changes while an optimizer lives. */
        model m = model_new();
        muonium_optimizer *optimizer = model_optimizer(&m, &options);
        const int changing[STEPS] = {3, 16, 2};
        for (size_t step = 0; step < STEPS; step++) {
            assert_ok(muonium_set_threads(changing[step]));
            model_set_grads(&m, step + 1);
            assert_ok(muonium_step(optimizer));
        }
        model_assert_equal(&m, &expected, "changing threads");
        muonium_destroy(optimizer);
        model_free(&m);
        model_free(&expected);
    }
    assert_ok(muonium_set_threads(0));
}

/* A matrix on the sphere has no weight decay; a vector beside it may. */
static void hyperball_refuses_weight_decay(void **state)
{
    (void)state;
    float w[16 * 8] = {1}, b[8] = {1};
    muonium_options options;
    muonium_optimizer *optimizer;
    assert_ok(muonium_options_init(&options, "muonh"));
    options.weight_decay = 0.1;
    assert_ok(muonium_create(&options, &optimizer));
    muonium_tensor matrix = {.name = "h.w", .ndim = 2, .shape = {16, 8}, .data = w};
    muonium_tensor vector = {.name = "h.b", .ndim = 1, .shape = {8}, .data = b};
    assert_status_message(muonium_add(optimizer, &matrix, NULL), MUONIUM_INVALID,
                          "weight_decay of h.w is 0.1 under hyperball");
    assert_ok(muonium_add(optimizer, &vector, NULL));
    muonium_destroy(optimizer);
}

/* A matrix so large that all threads share it, beside small ones of the same class. */
static void threads_change_nothing_of_a_large_matrix(void **state)
{
    (void)state;
    enum { ROWS = 34, COLS = 31000 };
    size_t bytes = (size_t)ROWS * COLS * sizeof(float);
    float *w = malloc(2 * bytes), *first = malloc(2 * bytes), *g = malloc(2 * bytes);
    assert_true(w && first && g);
    test_rng rng = test_rng_start("large");
    test_fill_normal_f32(&rng, g, 2 * (size_t)ROWS * COLS);
    const int threads[] = {1, 2, 7, 64, 128};
    for (size_t t = 0; t < MU_COUNT(threads); t++) {
        assert_ok(muonium_set_threads(threads[t]));
        memset(w, 0, 2 * bytes);
        muonium_options options = model_options();
        options.max_aspect = 1e9;
        options.plan.steps = 2;
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(&options, &optimizer));
        muonium_tensor wide = {.name = "wide", .ndim = 2, .shape = {ROWS, COLS}};
        muonium_tensor tall = {.name = "tall", .ndim = 2, .shape = {COLS, ROWS}};
        wide.data = w;
        wide.grad = g;
        tall.data = w + (size_t)ROWS * COLS;
        tall.grad = g + (size_t)ROWS * COLS;
        assert_ok(muonium_add(optimizer, &wide, NULL));
        assert_ok(muonium_add(optimizer, &tall, NULL));
        assert_ok(muonium_step(optimizer));
        assert_int_equal(optimizer->counters.matrices, 2);
        muonium_destroy(optimizer);
        if (t == 0) {
            memcpy(first, w, 2 * bytes);
        }
        assert_memory_equal(w, first, 2 * bytes);
    }
    free(w);
    free(first);
    free(g);
    assert_ok(muonium_set_threads(0));
}

/* Grouped in one optimizer, one optimizer for each parameter, and divided among three in
 * another order: batches differ, results do not. */
static void division_into_optimizers_changes_nothing(void **state)
{
    (void)state;
    for (size_t variant = 0; variant < VARIANTS; variant++) {
        muonium_options options = busy_options(variant);
        model expected = stepped(&options);
        const size_t counts[] = {MODEL_COUNT, 3, 2};
        for (size_t c = 0; c < 3; c++) {
            model m = model_new();
            muonium_optimizer *optimizers[MODEL_COUNT];
            for (size_t i = 0; i < counts[c]; i++) {
                assert_ok(muonium_create(&options, &optimizers[i]));
            }
            for (size_t i = MODEL_COUNT; i-- > 0;) {
                model_add(&m, i, optimizers[i % counts[c]]);
            }
            step_all(&m, optimizers, counts[c]);
            model_assert_equal(&m, &expected, "division");
            model_free(&m);
        }
        model_free(&expected);
    }
}

/* Groups of equal options are kept apart in batches, too. */
static void groups_change_nothing(void **state)
{
    (void)state;
    muonium_options options = busy_options(1);
    model expected = stepped(&options), m = model_new();
    muonium_optimizer *optimizer;
    muonium_group *group;
    assert_ok(muonium_create(&options, &optimizer));
    assert_ok(muonium_add_group(optimizer, &options, &group));
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        muonium_tensor tensor = model_tensor(&m, i);
        assert_ok(muonium_add(optimizer, &tensor, i % 2 ? group : NULL));
    }
    step_all(&m, &optimizer, 1);
    model_assert_equal(&m, &expected, "groups");
    model_free(&m);
    model_free(&expected);
}

/* The bound decides how many matrices are taken together. What one matrix needs must be
 * there in any case; beyond that the bound holds. */
static void scratch_changes_nothing_and_is_bounded(void **state)
{
    (void)state;
    muonium_options options = busy_options(1);
    model expected = stepped(&options);
    const size_t bounds[] = {1, 4096, 100000, SIZE_MAX};
    size_t least = 0;
    for (size_t b = 0; b < 8; b++) {
        assert_ok(muonium_set_threads(b < 4 ? 1 : 5));
        options.scratch_bytes = bounds[b % 4];
        model m = model_new();
        muonium_optimizer *optimizer = model_optimizer(&m, &options);
        for (size_t step = 1; step <= STEPS; step++) {
            model_set_grads(&m, step);
            assert_ok(muonium_step(optimizer));
        }
        muonium_counters counters;
        assert_ok(muonium_count(optimizer, &counters));
        least = b % 4 == 0 ? counters.scratch_bytes : least;
        assert_true(counters.scratch_bytes >= least);
        assert_true(counters.scratch_bytes - least <= bounds[b % 4]);
        model_assert_equal(&m, &expected, "scratch");
        muonium_destroy(optimizer);
        model_free(&m);
    }
    assert_ok(muonium_set_threads(0));
    model_free(&expected);
}

/* Very many very small matrices: what is kept for each counts too. */
static void scratch_of_many_small_matrices_is_bounded(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    float *w = calloc(2 * COUNT * 16, sizeof *w);
    assert_non_null(w);
    size_t least = 0;
    const size_t bounds[] = {1, 1 << 16};
    for (size_t b = 0; b < 2; b++) {
        muonium_options options = model_options();
        options.scratch_bytes = bounds[b];
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(&options, &optimizer));
        muonium_tensor tensor = {.ndim = 3,
                                 .shape = {COUNT, 4, 4},
                                 .layout = MUONIUM_LAYOUT_EXPERTS,
                                 .data = w,
                                 .grad = w + COUNT * 16};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
        assert_ok(muonium_step(optimizer));
        muonium_counters counters;
        assert_ok(muonium_count(optimizer, &counters));
        assert_int_equal(counters.zero, COUNT);
        least = b == 0 ? counters.scratch_bytes : least;
        assert_true(counters.scratch_bytes >= least);
        assert_true(counters.scratch_bytes - least <= bounds[b]);
        muonium_destroy(optimizer);
    }
    free(w);
}

/* Without a bound: three times the largest matrix, here for a layer of GPT-2, whose matrices
 * are zero, which takes no time; half of it for each of many threads. */
static void scratch_is_three_times_the_largest_matrix(void **state)
{
    (void)state;
    enum { WIDTH = 768, LARGEST = 4 * WIDTH * WIDTH };
    float *zeros = calloc(LARGEST, sizeof *zeros);
    assert_non_null(zeros);
    const size_t shapes[][3] = {{3 * WIDTH, WIDTH, 3},
                                {WIDTH, WIDTH, 0},
                                {4 * WIDTH, WIDTH, 0},
                                {WIDTH, 4 * WIDTH, 0},
                                {WIDTH, 4 * WIDTH, 0}};
    const int threads[] = {1, 2, 6, 32};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        assert_ok(muonium_set_threads(threads[t]));
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(NULL, &optimizer));
        float *weights[5];
        for (size_t i = 0; i < 5; i++) {
            weights[i] = calloc(shapes[i][0] * shapes[i][1], sizeof(float));
            muonium_tensor tensor = {.ndim = 2,
                                     .shape = {shapes[i][0], shapes[i][1]},
                                     .heads = shapes[i][2],
                                     .data = weights[i],
                                     .grad = zeros};
            assert_ok(muonium_add(optimizer, &tensor, NULL));
        }
        assert_ok(muonium_step(optimizer));
        muonium_counters counters;
        assert_ok(muonium_count(optimizer, &counters));
        assert_int_equal(counters.zero, 7);
        size_t halves = threads[t] < 6 ? 6 : (size_t)threads[t];
        assert_true(counters.scratch_bytes <= halves * LARGEST * sizeof(float) / 2);
        assert_true(counters.scratch_bytes >= LARGEST * sizeof(float));
        muonium_destroy(optimizer);
        for (size_t i = 0; i < 5; i++) {
            free(weights[i]);
        }
    }
    assert_ok(muonium_set_threads(0));
    free(zeros);
}

/* ---- several callers ---- */

typedef struct caller {
    model m;
    muonium_optimizer *optimizer;
    muonium_status status;
} caller;

static void *step_in_thread(void *context)
{
    caller *c = context;
    for (size_t step = 1; step <= STEPS && c->status == MUONIUM_OK; step++) {
        model_set_grads(&c->m, step);
        c->status = muonium_step(c->optimizer);
    }
    return NULL;
}

static void optimizers_in_several_threads(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    muonium_options options = busy_options(1);
    model expected = stepped(&options);
    caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].m = model_new();
        callers[i].optimizer = model_optimizer(&callers[i].m, &options);
        callers[i].status = MUONIUM_OK;
    }
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, step_in_thread, &callers[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_ok(callers[i].status);
        model_assert_equal(&callers[i].m, &expected, "callers");
        muonium_destroy(callers[i].optimizer);
        model_free(&callers[i].m);
    }
    model_free(&expected);
}

/* ---- the caller's floating-point environment ---- */

static void environment_changes_nothing(void **state)
{
    (void)state;
    muonium_options options = busy_options(1);
    model expected = stepped(&options), m = model_new();
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        model_fill(m.data[i], i, "data", 0);
    }
    muonium_optimizer *optimizer = model_optimizer(&m, &options);
    for (size_t step = 1; step <= STEPS; step++) {
        model_set_grads(&m, step);
        fesetround(FE_UPWARD);
#if defined(__x86_64__)
        unsigned control = _mm_getcsr();
        _mm_setcsr(control | 0x8040); /* denormals are zero, in and out */
#endif
        muonium_status status = muonium_step(optimizer);
        int rounding = fegetround();
#if defined(__x86_64__)
        bool kept = (_mm_getcsr() & 0x8040) == 0x8040;
        _mm_setcsr(control);
        assert_true(kept);
#endif
        fesetround(FE_TONEAREST);
        assert_int_equal(rounding, FE_UPWARD);
        assert_ok(status);
    }
    model_assert_equal(&m, &expected, "environment");
    muonium_destroy(optimizer);
    model_free(&m);
    model_free(&expected);
}

/* ---- instruction sets ---- */

static uint64_t digest_of_elementwise_steps(void)
{
    uint64_t digest = 0xcbf29ce484222325u;
    for (size_t variant = 0; variant < VARIANTS; variant++) {
        muonium_options options = busy_options(variant);
        options.normuon = false; /* it sums rows, in an order of its own on each set */
        model m = model_new();
        muonium_optimizer *optimizer = model_optimizer(&m, &options);
        identity = true;
        for (size_t step = 1; step <= STEPS; step++) {
            model_set_grads(&m, step);
            if (muonium_step(optimizer) != MUONIUM_OK) {
                return 0;
            }
        }
        identity = false;
        for (size_t i = 0; i < MODEL_COUNT; i++) {
            for (size_t b = 0; b < model_bytes(i); b++) {
                digest = (digest ^ ((unsigned char *)m.data[i])[b]) * 0x100000001b3u;
            }
        }
        muonium_destroy(optimizer);
        model_free(&m);
    }
    return digest;
}

static const char digest_variable[] = "MUONIUM_TEST_DIGEST";

static void instruction_sets_agree_on_elements(void **state)
{
    (void)state;
    char digest[32];
    snprintf(digest, sizeof digest, "%llu", (unsigned long long)digest_of_elementwise_steps());
    assert_string_not_equal(digest, "0");
    assert_int_equal(setenv(digest_variable, digest, 1), 0);
    const mu_instruction_set *set;
    for (size_t i = 0; (set = mu_instruction_set_at(i)) != NULL; i++) {
        if (mu_includes(mu_cpu_detect()->has, set->needs)) {
            assert_child_ok(test_run_again("MUONIUM_CPU", set->name, 60));
        }
    }
}

static int compare_digest(void)
{
    const char *expected = getenv(digest_variable);
    char digest[32];
    snprintf(digest, sizeof digest, "%llu", (unsigned long long)digest_of_elementwise_steps());
    return expected && strcmp(digest, expected) == 0 ? 0 : 1;
}

/* ---- stochastic rounding ---- */

/* Steps of a tenth of the spacing of bf16: to nearest none is ever taken; at random the
 * mean arrives where exact steps do. */
static void stochastic_rounding_is_right_on_average(void **state)
{
    (void)state;
    enum { COUNT = 65536, TAKEN = 20 };
    uint16_t *w = malloc(COUNT * sizeof *w);
    float *g = malloc(COUNT * sizeof *g);
    assert_true(w && g);
    for (int random = 0; random < 2; random++) {
        for (size_t i = 0; i < COUNT; i++) {
            w[i] = mu_bf16_from_f32(1.0f);
            g[i] = -1;
        }
        muonium_options options = model_options();
        options.stochastic_rounding = random;
        options.seed = test_seed();
        options.weight_decay = 0;
        options.lr = 0x1p-7 / 10; /* AdamW's step under a constant gradient */
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(&options, &optimizer));
        muonium_tensor tensor = {.dtype = MUONIUM_BF16,
                                 .ndim = 1,
                                 .shape = {COUNT},
                                 .data = w,
                                 .grad = g,
                                 .f32_grad = true};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
        for (int step = 0; step < TAKEN; step++) {
            assert_ok(muonium_step(optimizer));
        }
        double sum = 0;
        for (size_t i = 0; i < COUNT; i++) {
            sum += (double)mu_f32_from_bf16(w[i]) - 1;
        }
        double mean = sum / COUNT, exact = TAKEN * options.lr;
        /* Each of 20 roundings has a variance of at most 0.09 spacings squared: five
         * standard deviations of the mean. */
        double allowed = 5 * 0x1p-7 * sqrt(TAKEN * 0.09 / COUNT);
        assert_true(random ? fabs(mean - exact) < allowed : mean == 0);
        muonium_destroy(optimizer);
    }
    free(w);
    free(g);
}

/* Another seed, name or step gives other bits; the same give the same. */
static void stochastic_rounding_follows_seed_and_name(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static const struct {
        uint64_t seed;
        const char *name;
    } cases[] = {{1, "a"}, {2, "a"}, {1, "b"}, {1, "a"}};
    static uint16_t w[4][COUNT];
    static float g[COUNT];
    test_rng rng = test_rng_start("stochastic");
    test_fill_normal_f32(&rng, g, COUNT);
    for (size_t c = 0; c < 4; c++) {
        memset(w[c], 0x3f, sizeof w[c]);
        muonium_options options = model_options();
        options.stochastic_rounding = true;
        options.seed = cases[c].seed;
        options.lr = 1e-3;
        muonium_optimizer *optimizer;
        assert_ok(muonium_create(&options, &optimizer));
        muonium_tensor tensor = {.name = cases[c].name,
                                 .dtype = MUONIUM_BF16,
                                 .ndim = 1,
                                 .shape = {COUNT},
                                 .data = w[c],
                                 .grad = g,
                                 .f32_grad = true};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
        assert_ok(muonium_step(optimizer));
        muonium_destroy(optimizer);
    }
    assert_memory_equal(w[0], w[3], sizeof w[0]);
    assert_memory_not_equal(w[0], w[1], sizeof w[0]);
    assert_memory_not_equal(w[0], w[2], sizeof w[0]);
}

int main(void)
{
    if (test_is_again()) {
        return compare_digest();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_makes_sgd_with_momentum),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(hyperball_refuses_weight_decay),
        cmocka_unit_test(threads_change_nothing_of_a_large_matrix),
        cmocka_unit_test(division_into_optimizers_changes_nothing),
        cmocka_unit_test(groups_change_nothing),
        cmocka_unit_test(scratch_changes_nothing_and_is_bounded),
        cmocka_unit_test(scratch_of_many_small_matrices_is_bounded),
        cmocka_unit_test(scratch_is_three_times_the_largest_matrix),
        cmocka_unit_test(optimizers_in_several_threads),
        cmocka_unit_test(environment_changes_nothing),
        cmocka_unit_test(instruction_sets_agree_on_elements),
        cmocka_unit_test(stochastic_rounding_is_right_on_average),
        cmocka_unit_test(stochastic_rounding_follows_seed_and_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
