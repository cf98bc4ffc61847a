/*
 * The GPT of the demo: its products against plain loops, its loss against a forward pass
 * in double precision written here, its gradients against finite differences of that, and
 * the same bits for every number of threads.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "gpt/model.h"

/* ---- products ---- */

static void check_product(test_rng *rng, gpt_machine *machine, size_t m, size_t n, size_t k)
{
    const bool a_transposed = test_below(rng, 2) == 1, b_transposed = test_below(rng, 2) == 1;
    const bool accumulate = test_below(rng, 2) == 1;
    const size_t c_row = n + test_below(rng, 5);
    float *a = test_guarded_alloc(m * k * sizeof *a, 0);
    float *b = test_guarded_alloc(k * n * sizeof *b, 0);
    float *c = test_guarded_alloc(m * c_row * sizeof *c, 0);
    float *before = malloc(m * c_row * sizeof *before);
    assert_non_null(before);
    test_fill_normal_f32(rng, a, m * k);
    test_fill_normal_f32(rng, b, k * n);
    test_fill_normal_f32(rng, c, m * c_row);
    memcpy(before, c, m * c_row * sizeof *c);
    gpt_product product = {.m = m,
                           .n = n,
                           .k = k,
                           .a = a_transposed ? gpt_transposed(a, m) : gpt_rows(a, k),
                           .b = b_transposed ? gpt_transposed(b, k) : gpt_rows(b, n),
                           .c = c,
                           .c_row = c_row,
                           .scale = 0.5f,
                           .accumulate = accumulate};
    gpt_multiply(machine, &product);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < c_row; j++) {
            if (j >= n) {
                assert_true(c[i * c_row + j] == before[i * c_row + j]);
                continue;
            }
            double sum = accumulate ? (double)before[i * c_row + j] : 0, size = fabs(sum);
            for (size_t l = 0; l < k; l++) {
                const double term = 0.5 * (double)(a_transposed ? a[l * m + i] : a[i * k + l]) *
                                    (double)(b_transposed ? b[j * k + l] : b[l * n + j]);
                sum += term;
                size += fabs(term);
            }
            const double tolerance = (double)(k + 2) * (double)FLT_EPSILON * size;
            assert_true(fabs((double)c[i * c_row + j] - sum) <= tolerance);
        }
    }
    free(before);
    test_guarded_free(a);
    test_guarded_free(b);
    test_guarded_free(c);
}

static void test_products(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("products");
    gpt_machine *machine;
    assert_ok(muonium_set_threads(3));
    assert_ok(gpt_machine_create(&machine));
    check_product(&rng, machine, 1, 1, 1);
    check_product(&rng, machine, 300, 290, 5); /* several blocks each way */
    check_product(&rng, machine, 5, 7, 600);   /* several blocks of k */
    for (int i = 0; i < 30; i++) {
        const size_t m = 1 + test_below(&rng, 70), n = 1 + test_below(&rng, 70);
        check_product(&rng, machine, m, n, 1 + test_below(&rng, 70));
    }
    gpt_machine_destroy(machine);
    assert_ok(muonium_set_threads(0));
}

/* ---- the model in double precision, as plainly as it can be written ---- */

typedef struct reference {
    gpt_shape shape;
    const gpt_model *model; /* names and places of the parameters */
    double *weights;
} reference;

static const double *find(const reference *r, const char *name)
{
    for (size_t i = 0; i < r->model->parameter_count; i++) {
        if (strcmp(r->model->parameters[i].name, name) == 0) {
            return r->weights + r->model->parameters[i].offset;
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static const double *find_in_layer(const reference *r, size_t layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "layer.%zu.%s", layer, name);
    return find(r, full);
}

static void normalize(size_t width, const double *x, const double *gain, double *y)
{
    double squares = 0;
    for (size_t i = 0; i < width; i++) {
        squares += x[i] * x[i];
    }
    const double rms = sqrt(squares / (double)width + 1e-6);
    for (size_t i = 0; i < width; i++) {
        y[i] = x[i] / rms * gain[i];
    }
}

/* y += w x */
static void add_product(size_t rows, size_t cols, const double *w, const double *x, double *y)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            y[i] += w[i * cols + j] * x[j];
        }
    }
}

static void rotate(size_t size, size_t position, double *head)
{
    for (size_t i = 0; i < size / 2; i++) {
        const double angle = (double)position * pow(10000, -2.0 * (double)i / (double)size);
        const double x = head[i], y = head[i + size / 2];
        head[i] = x * cos(angle) - y * sin(angle);
        head[i + size / 2] = x * sin(angle) + y * cos(angle);
    }
}

enum { MOST_WIDTH = 64, MOST_CONTEXT = 16 };

static void attend(const gpt_shape *shape, double qkv[][3 * MOST_WIDTH], size_t position,
                   double *out)
{
    const size_t size = shape->width / shape->heads;
    for (size_t h = 0; h < shape->heads; h++) {
        double weights[MOST_CONTEXT], sum = 0;
        for (size_t t = 0; t <= position; t++) {
            double score = 0;
            for (size_t i = 0; i < size; i++) {
                score += qkv[position][h * size + i] * qkv[t][shape->width + h * size + i];
            }
            weights[t] = exp(score / sqrt((double)size));
            sum += weights[t];
        }
        for (size_t i = 0; i < size; i++) {
            out[h * size + i] = 0;
            for (size_t t = 0; t <= position; t++) {
                out[h * size + i] += weights[t] / sum * qkv[t][2 * shape->width + h * size + i];
            }
        }
    }
}

static void apply_layer(const reference *r, size_t layer, double x[][MOST_WIDTH])
{
    const gpt_shape *shape = &r->shape;
    const size_t width = shape->width;
    double normed[MOST_WIDTH], qkv[MOST_CONTEXT][3 * MOST_WIDTH] = {{0}};
    for (size_t t = 0; t < shape->context; t++) {
        normalize(width, x[t], find_in_layer(r, layer, "attention_norm"), normed);
        add_product(3 * width, width, find_in_layer(r, layer, "qkv"), normed, qkv[t]);
        for (size_t h = 0; h < 2 * shape->heads; h++) {
            rotate(width / shape->heads, t, qkv[t] + h * (width / shape->heads));
        }
    }
    for (size_t t = 0; t < shape->context; t++) {
        double attended[MOST_WIDTH], hidden[4 * MOST_WIDTH] = {0};
        attend(shape, qkv, t, attended);
        add_product(width, width, find_in_layer(r, layer, "attention_out"), attended, x[t]);
        normalize(width, x[t], find_in_layer(r, layer, "mlp_norm"), normed);
        add_product(4 * width, width, find_in_layer(r, layer, "mlp_up"), normed, hidden);
        for (size_t i = 0; i < 4 * width; i++) {
            hidden[i] = hidden[i] > 0 ? hidden[i] * hidden[i] : 0;
        }
        add_product(width, 4 * width, find_in_layer(r, layer, "mlp_down"), hidden, x[t]);
    }
}

static double reference_loss(const reference *r, size_t sequences, const unsigned char *tokens,
                             const unsigned char *targets)
{
    const gpt_shape *shape = &r->shape;
    double loss = 0;
    for (size_t s = 0; s < sequences; s++) {
        double x[MOST_CONTEXT][MOST_WIDTH];
        for (size_t t = 0; t < shape->context; t++) {
            memcpy(x[t], find(r, "embedding") + tokens[s * shape->context + t] * shape->width,
                   shape->width * sizeof(double));
        }
        for (size_t layer = 0; layer < shape->layers; layer++) {
            apply_layer(r, layer, x);
        }
        for (size_t t = 0; t < shape->context; t++) {
            double normed[MOST_WIDTH], logits[256] = {0}, sum = 0;
            normalize(shape->width, x[t], find(r, "final_norm"), normed);
            add_product(shape->vocabulary, shape->width, find(r, "head"), normed, logits);
            for (size_t i = 0; i < shape->vocabulary; i++) {
                sum += exp(logits[i]);
            }
            loss += log(sum) - logits[targets[s * shape->context + t]];
        }
    }
    return loss / (double)(sequences * shape->context);
}

/* ---- loss and gradients ---- */

static const gpt_shape small = {
    .layers = 2, .width = 12, .heads = 2, .context = 5, .vocabulary = 7};
enum { SEQUENCES = 3 };

typedef struct trial {
    gpt_model *model;
    gpt_pass *pass;
    unsigned char tokens[SEQUENCES * MOST_CONTEXT], targets[SEQUENCES * MOST_CONTEXT];
} trial;

/* A model with weights large enough that every part of it matters. */
static void start_trial(trial *t, const char *label)
{
    test_rng rng = test_rng_start(label);
    assert_ok(gpt_model_create(small, test_bits(&rng), &t->model));
    assert_ok(gpt_pass_create(small, SEQUENCES, &t->pass));
    for (size_t i = 0; i < t->model->weight_count; i++) {
        t->model->weights[i] += 0.2f * (float)test_normal(&rng);
    }
    for (size_t i = 0; i < SEQUENCES * small.context; i++) {
        t->tokens[i] = (unsigned char)test_below(&rng, small.vocabulary);
        t->targets[i] = (unsigned char)test_below(&rng, small.vocabulary);
    }
}

static void end_trial(trial *t)
{
    gpt_model_destroy(t->model);
    gpt_pass_destroy(t->pass);
}

static reference reference_of(const gpt_model *model)
{
    reference r = {model->shape, model, malloc(model->weight_count * sizeof(double))};
    assert_non_null(r.weights);
    for (size_t i = 0; i < model->weight_count; i++) {
        r.weights[i] = (double)model->weights[i];
    }
    return r;
}

static void test_loss(void **state)
{
    (void)state;
    trial t;
    start_trial(&t, "loss");
    reference r = reference_of(t.model);
    const double expected = reference_loss(&r, SEQUENCES, t.tokens, t.targets);
    const double found = gpt_loss(t.pass, t.model, SEQUENCES, t.tokens, t.targets);
    /* A chain of a few hundred roundings, each at most half an epsilon of its own size. */
    assert_true(fabs(found - expected) < 200 * (double)FLT_EPSILON * expected);
    free(r.weights);
    end_trial(&t);
}

static void test_gradients(void **state)
{
    (void)state;
    trial t;
    start_trial(&t, "gradients");
    reference r = reference_of(t.model);
    gpt_loss(t.pass, t.model, SEQUENCES, t.tokens, t.targets);
    gpt_backward(t.pass, t.model);
    for (size_t p = 0; p < t.model->parameter_count; p++) {
        const gpt_parameter *parameter = &t.model->parameters[p];
        const size_t count = parameter->rows * parameter->cols;
        double largest = 0, worst = 0;
        for (size_t i = parameter->offset; i < parameter->offset + count; i++) {
            const double h = 1e-5, kept = r.weights[i];
            r.weights[i] = kept + h;
            const double above = reference_loss(&r, SEQUENCES, t.tokens, t.targets);
            r.weights[i] = kept - h;
            const double below = reference_loss(&r, SEQUENCES, t.tokens, t.targets);
            r.weights[i] = kept;
            const double slope = (above - below) / (2 * h);
            largest = fmax(largest, fabs(slope));
            worst = fmax(worst, fabs((double)t.model->gradients[i] - slope));
        }
        /* Differences are good to about 1e-10; the rest is rounding in single precision,
         * relative to the largest gradient, since sums cancel. */
        if (!(worst <= 500 * (double)FLT_EPSILON * largest + 1e-8) || !(largest > 0)) {
            fail_msg("%s: gradient off by %g of %g", parameter->name, worst, largest);
        }
    }
    free(r.weights);
    end_trial(&t);
}

/* ---- the same bits ---- */

static void test_threads_change_nothing(void **state)
{
    (void)state;
    const gpt_shape shape = {.layers = 2, .width = 64, .heads = 2, .context = 48, .vocabulary = 31};
    const size_t sequences = 5;
    test_rng rng = test_rng_start("threads");
    const uint64_t seed = test_bits(&rng);
    unsigned char tokens[5 * 48], targets[5 * 48];
    for (size_t i = 0; i < sizeof tokens; i++) {
        tokens[i] = (unsigned char)test_below(&rng, shape.vocabulary);
        targets[i] = (unsigned char)test_below(&rng, shape.vocabulary);
    }
    gpt_model *first = NULL;
    double first_loss = 0;
    for (int threads = 1; threads <= 5; threads++) {
        gpt_model *model;
        gpt_pass *pass;
        assert_ok(muonium_set_threads(threads));
        assert_ok(gpt_model_create(shape, seed, &model));
        assert_ok(gpt_pass_create(shape, sequences, &pass));
        const double loss = gpt_loss(pass, model, sequences, tokens, targets);
        gpt_backward(pass, model);
        gpt_pass_destroy(pass);
        if (first == NULL) {
            first = model;
            first_loss = loss;
            continue;
        }
        assert_true(loss == first_loss);
        assert_memory_equal(model->gradients, first->gradients,
                            model->weight_count * sizeof(float));
        gpt_model_destroy(model);
    }
    gpt_model_destroy(first);
    assert_ok(muonium_set_threads(0));
}

static void test_models_depend_on_their_seed(void **state)
{
    (void)state;
    gpt_model *one, *same, *other;
    assert_ok(gpt_model_create(small, 1, &one));
    assert_ok(gpt_model_create(small, 1, &same));
    assert_ok(gpt_model_create(small, 2, &other));
    assert_true((double)one->weight_count == gpt_weight_count(small));
    assert_memory_equal(one->weights, same->weights, one->weight_count * sizeof(float));
    assert_memory_not_equal(one->weights, other->weights, one->weight_count * sizeof(float));
    gpt_model_destroy(one);
    gpt_model_destroy(same);
    gpt_model_destroy(other);
}

/* ---- generation ---- */

/* What comes next depends on the tokens before alone, so a shorter text gives the logits
 * that a longer one has at that place. */
static void test_next_is_causal(void **state)
{
    (void)state;
    trial t;
    start_trial(&t, "next");
    float logits[16];
    for (size_t length = 1; length <= small.context; length++) {
        memcpy(logits, gpt_next(t.pass, t.model, t.tokens, length),
               small.vocabulary * sizeof(float));
        const float *whole = gpt_next(t.pass, t.model, t.tokens, small.context) -
                             (small.context - length) * small.vocabulary;
        for (size_t i = 0; i < small.vocabulary; i++) {
            assert_true(fabsf(logits[i] - whole[i]) <= 200 * FLT_EPSILON * (1 + fabsf(whole[i])));
        }
    }
    end_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_models_depend_on_their_seed),
        cmocka_unit_test(test_next_is_causal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
