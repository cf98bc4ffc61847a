/*
 * test_direct_gradients.c: the direct form on gradients of the demo's GPT during a short training.
 * They are far from Gaussian: a few directions dominate, and some of the others are zero.
 */
#include "test.h"

#include <math.h>

#include "direct_value.h"
#include "gpt/model.h"
#include "spectra.h"

enum { SEQUENCES = 4, CONTEXT = 32, STEPS = 24, LOOK_EVERY = 8 };

static const char text[] =
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be "
    "on his first entering a neighbourhood, this truth is so well fixed in the minds of the "
    "surrounding families, that he is considered as the rightful property of some one or other of "
    "their daughters.";

static void draw_batch(test_rng *rng, unsigned char *tokens, unsigned char *targets)
{
    for (size_t s = 0; s < SEQUENCES; s++) {
        size_t from = test_below(rng, sizeof text - 1 - CONTEXT - 1);
        for (size_t i = 0; i < CONTEXT; i++) {
            tokens[s * CONTEXT + i] = (unsigned char)text[from + i] & 127;
            targets[s * CONTEXT + i] = (unsigned char)text[from + i + 1] & 127;
        }
    }
}

/* Against the exact function of the singular values, in f64; and f32 against that. */
static void check_gradient(const gpt_parameter *p, const float *gradient, const mu_direct_set *set)
{
    size_t count = p->rows * p->cols, m = p->rows < p->cols ? p->rows : p->cols;
    double *x = calloc(4 * count, sizeof *x);
    assert_non_null(x);
    double *wide = x + count, *narrow = wide + count, *expected = narrow + count;
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)gradient[i];
    }
    muonium_plan_options options;
    muonium_plan_options_init(&options);
    options.form = MUONIUM_FORM_DIRECT;
    options.direct_set = set->name;
    muonium_certificate certificate;
    spectra_run(&options, MUONIUM_F32, p->rows, p->cols, x, narrow, &certificate);
    options.precision = MUONIUM_F64;
    spectra_run(&options, MUONIUM_F64, p->rows, p->cols, x, wide, NULL);
    decomposition d = decompose(x, p->rows, p->cols);
    double norm = schatten_norm(&d, 2);
    for (size_t l = 0; l < d.count; l++) {
        d.sigma[l] = direct_value(set, d.sigma[l] / norm);
        assert_true(d.sigma[l] <= 1 + set->deviation + 1e-9);
    }
    decomposition_map(&d, 1, NULL, 0, expected);
    decomposition_free(&d);
    double f64 = relative_error(wide, expected, count), f32 = relative_error(narrow, wide, count);
    /* As on the worst spectrum of docs/direct.md, and more where matrices are smaller. */
    double limit = 2 * 3.6e-3 * sqrt(256 / (double)m);
    if (!(f64 <= 1e-9) || !(f32 <= limit)) {
        print_error("%s, %s: f64 off by %.3g, f32 by %.3g of %.3g\n", p->name, set->name, f64, f32,
                    limit);
        fail();
    }
    double distance = distance_from_orthogonal(narrow, p->rows, p->cols);
    assert_true(certificate.deviation <= distance + 1e-3);
    assert_true(certificate.bound >= distance - 1e-3);
    free(x);
}

static void gradients_of_a_gpt(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("gradients");
    gpt_shape shape = {.layers = 2, .width = 64, .heads = 4, .context = CONTEXT, .vocabulary = 128};
    gpt_model *model;
    gpt_pass *pass;
    muonium_optimizer *optimizer;
    assert_ok(gpt_model_create(shape, test_bits(&rng), &model));
    assert_ok(gpt_pass_create(shape, SEQUENCES, &pass));
    assert_ok(muonium_create(NULL, &optimizer));
    for (size_t i = 0; i < model->parameter_count; i++) {
        const gpt_parameter *p = &model->parameters[i];
        muonium_tensor tensor = {.name = p->name,
                                 .dtype = MUONIUM_F32,
                                 .ndim = p->ndim,
                                 .shape = {p->rows, p->cols},
                                 .data = model->weights + p->offset,
                                 .grad = model->gradients + p->offset};
        assert_ok(muonium_add(optimizer, &tensor, NULL));
    }
    double first = 0, last = 0;
    for (int t = 0; t < STEPS; t++) {
        unsigned char tokens[SEQUENCES * CONTEXT], targets[SEQUENCES * CONTEXT];
        draw_batch(&rng, tokens, targets);
        last = gpt_loss(pass, model, SEQUENCES, tokens, targets);
        first = t == 0 ? last : first;
        gpt_backward(pass, model);
        for (size_t i = 0; t % LOOK_EVERY == 0 && i < model->parameter_count; i++) {
            const gpt_parameter *p = &model->parameters[i];
            const mu_direct_set *set;
            for (size_t s = 0; p->ndim == 2 && (set = mu_direct_set_at(s)) != NULL; s++) {
                check_gradient(p, model->gradients + p->offset, set);
            }
        }
        assert_ok(muonium_step(optimizer));
    }
    assert_true(last < 0.8 * first); /* it was a training */
    muonium_destroy(optimizer);
    gpt_pass_destroy(pass);
    gpt_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_of_a_gpt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
