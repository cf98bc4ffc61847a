/*
 * train.c: a trainer written with ggml, first with ggml's own AdamW, then with Muonium.
 *
 *     train TEXT [STEPS [LR_ADAMW LR_MUONIUM]]
 *
 * The model predicts the next byte from the CONTEXT bytes before it: three matrices with ReLU in
 * between. ggml computes losses and gradients. What adopts Muonium is add_parameters and the two
 * lines in train_with_muonium that are marked.
 */
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-opt.h>
#include <ggml.h>
#include <math.h>
#include <muonium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 8, WIDTH = 256, BATCH = 256, REPORT = 50 };

/* Steps between two steps of ggml's own optimizer. ggml 0.25 aborts when a context is made with
 * GGML_OPT_BUILD_TYPE_GRAD. With a period that is never reached, ggml_opt_alloc builds this type
 * for every batch. ggml divides the loss by the period, so Muonium multiplies gradients by it: a
 * power of two, so that both are exact. */
enum { PERIOD = 1 << 20 };

static const float weight_decay = 0.01f;

static void fail(const char *what)
{
    fprintf(stderr, "train: %s\n", what);
    exit(1);
}

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fail(muonium_last_error());
    }
}

/* ---- the text: windows of bytes, numbered by first appearance ---- */

static struct {
    unsigned char *tokens;
    size_t count;
    int vocabulary;
} text;

static void read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    text.count = (size_t)ftell(file);
    rewind(file);
    text.tokens = malloc(text.count + 1);
    if (!text.tokens || fread(text.tokens, 1, text.count, file) != text.count) {
        fail("cannot read the text");
    }
    fclose(file);
    if (text.count <= CONTEXT) {
        fail("the text is too short");
    }
    int number[256];
    memset(number, -1, sizeof number);
    for (size_t i = 0; i < text.count; i++) {
        int *known = &number[text.tokens[i]];
        *known = *known < 0 ? text.vocabulary++ : *known;
        text.tokens[i] = (unsigned char)*known;
    }
}

static unsigned random_bits(unsigned *state) /* the same in every run */
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* One-hot windows and successors. */
static void draw_batch(unsigned *seed, float *inputs, float *labels)
{
    size_t v = (size_t)text.vocabulary;
    memset(inputs, 0, BATCH * CONTEXT * v * sizeof *inputs);
    memset(labels, 0, BATCH * v * sizeof *labels);
    for (size_t b = 0; b < BATCH; b++) {
        const unsigned char *window =
            text.tokens + ((size_t)random_bits(seed) << 7) % (text.count - CONTEXT);
        for (size_t i = 0; i < CONTEXT; i++) {
            inputs[(b * CONTEXT + i) * v + window[i]] = 1;
        }
        labels[b * v + window[CONTEXT]] = 1;
    }
}

/* ---- the model ---- */

enum { INPUT, HIDDEN, HEAD, PARAMETERS };

typedef struct model {
    ggml_backend_t backend;
    ggml_backend_sched_t sched;
    struct ggml_context *fixed, *computed; /* parameters and inputs; everything else */
    ggml_backend_buffer_t memory;
    struct ggml_tensor *parameters[PARAMETERS], *inputs, *outputs;
} model;

static struct ggml_context *make_context(size_t tensors)
{
    struct ggml_init_params how = {
        .mem_size = tensors * ggml_tensor_overhead() + 3 * ggml_graph_overhead(), .no_alloc = true};
    return ggml_init(how);
}

static struct ggml_tensor *add_matrix(model *m, int which, const char *name, int64_t out,
                                      int64_t in)
{
    struct ggml_tensor *w = ggml_new_tensor_2d(m->fixed, GGML_TYPE_F32, in, out);
    ggml_set_name(w, name);
    ggml_set_param(w);
    return m->parameters[which] = w;
}

static model make_model(void)
{
    model m = {.backend = ggml_backend_cpu_init(), .fixed = make_context(16), .computed = NULL};
    m.computed = make_context(4096);
    if (!m.backend || !m.fixed || !m.computed) {
        fail("ggml could not be initialised");
    }
    ggml_backend_cpu_set_n_threads(m.backend, 2);
    m.sched = ggml_backend_sched_new(&m.backend, NULL, 1, GGML_DEFAULT_GRAPH_SIZE, false, true);
    int64_t v = text.vocabulary;
    struct ggml_tensor *in = add_matrix(&m, INPUT, "input.weight", WIDTH, CONTEXT * v);
    struct ggml_tensor *hidden = add_matrix(&m, HIDDEN, "hidden.weight", WIDTH, WIDTH);
    struct ggml_tensor *head = add_matrix(&m, HEAD, "head.weight", v, WIDTH);
    m.inputs = ggml_new_tensor_2d(m.fixed, GGML_TYPE_F32, CONTEXT * v, BATCH);
    ggml_set_input(m.inputs);
    m.memory = ggml_backend_alloc_ctx_tensors(m.fixed, m.backend);
    if (!m.memory) {
        fail("out of memory");
    }
    struct ggml_tensor *x = ggml_relu(m.computed, ggml_mul_mat(m.computed, in, m.inputs));
    x = ggml_relu(m.computed, ggml_mul_mat(m.computed, hidden, x));
    m.outputs = ggml_mul_mat(m.computed, head, x);
    unsigned seed = 1;
    for (int p = 0; p < PARAMETERS; p++) {
        struct ggml_tensor *w = m.parameters[p];
        float *data = w->data;
        float limit = sqrtf(3.0f / (float)(p == INPUT ? CONTEXT : w->ne[0]));
        for (int64_t i = 0; i < ggml_nelements(w); i++) {
            data[i] = limit * ((float)random_bits(&seed) / 8388608.0f - 1.0f);
        }
    }
    return m;
}

static void destroy_model(model *m)
{
    ggml_backend_sched_free(m->sched);
    ggml_free(m->computed);
    ggml_free(m->fixed);
    ggml_backend_buffer_free(m->memory);
    ggml_backend_free(m->backend);
}

/* ---- the lines that adopt Muonium ---- */

/* ggml lists the adjacent dimension first, Muonium last. */
static void add_parameters(muonium_optimizer *optimizer, ggml_opt_context_t gradients,
                           const model *m)
{
    for (int p = 0; p < PARAMETERS; p++) {
        struct ggml_tensor *w = m->parameters[p], *g = ggml_opt_grad_acc(gradients, w);
        muonium_tensor tensor = {.name = w->name,
                                 .dtype = MUONIUM_F32,
                                 .ndim = 2,
                                 .shape = {(size_t)w->ne[1], (size_t)w->ne[0]},
                                 .data = w->data,
                                 .grad = g->data};
        check(muonium_add(optimizer, &tensor, NULL));
    }
}

/* ---- training ---- */

static float lr_now; /* falls linearly to zero */

static struct ggml_opt_optimizer_params adamw_now(void *unused)
{
    struct ggml_opt_optimizer_params now = ggml_opt_get_default_optimizer_params(unused);
    now.adamw.alpha = lr_now;
    now.adamw.beta2 = 0.95f;
    now.adamw.wd = weight_decay;
    now.sgd.alpha = lr_now;
    return now;
}

static ggml_opt_context_t make_context_of_optimizer(model *m, bool gradients_only)
{
    struct ggml_opt_params how =
        ggml_opt_default_params(m->sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
    how.ctx_compute = m->computed;
    how.inputs = m->inputs;
    how.outputs = m->outputs;
    how.get_opt_pars = adamw_now;
    if (gradients_only) {
        how.opt_period = PERIOD;
        how.optimizer = GGML_OPT_OPTIMIZER_TYPE_SGD; /* needs no memory */
    }
    return ggml_opt_init(how);
}

/* The batch of a step: its loss. Gradients add up in the accumulators. */
static double run_batch(ggml_opt_context_t gradients, unsigned *seed)
{
    ggml_opt_result_t result = ggml_opt_result_init();
    double loss;
    ggml_opt_alloc(gradients, true);
    draw_batch(seed, ggml_opt_inputs(gradients)->data, ggml_opt_labels(gradients)->data);
    ggml_opt_eval(gradients, result);
    ggml_opt_result_loss(result, &loss, NULL);
    ggml_opt_result_free(result);
    return loss;
}

/* Print the mean loss of the last REPORT steps. */
static void report(const char *name, int step, double loss, double *sum)
{
    *sum += loss;
    if (step % REPORT == 0) {
        printf("%-8s step %4d  loss %.4f\n", name, step, *sum / REPORT);
        *sum = 0;
    }
}

static void train_with_ggml(int steps, double lr)
{
    model m = make_model();
    ggml_opt_context_t gradients = make_context_of_optimizer(&m, false);
    unsigned seed = 2;
    double sum = 0;
    for (int step = 1; step <= steps; step++) {
        lr_now = (float)(lr * (steps - step + 1) / steps);
        report("ggml", step, run_batch(gradients, &seed), &sum);
    }
    ggml_opt_free(gradients);
    destroy_model(&m);
}

static void train_with_muonium(int steps, double lr)
{
    model m = make_model();
    ggml_opt_context_t gradients = make_context_of_optimizer(&m, true);
    muonium_optimizer *optimizer;
    muonium_options options;
    muonium_options_init(&options, NULL);
    options.lr = (float)lr;
    options.weight_decay = weight_decay;
    check(muonium_create(&options, &optimizer));
    check(muonium_set_grad_scale(optimizer, PERIOD));
    unsigned seed = 2;
    double sum = 0;
    for (int step = 1; step <= steps; step++) {
        double loss = run_batch(gradients, &seed);
        if (step == 1) {
            add_parameters(optimizer, gradients, &m); /* <- */
        }
        check(muonium_set_lr(optimizer, NULL, lr * (steps - step + 1) / steps));
        check(muonium_step(optimizer)); /* <- */
        ggml_opt_reset(gradients, false);
        report("muonium", step, loss, &sum);
    }
    muonium_destroy(optimizer);
    ggml_opt_free(gradients);
    destroy_model(&m);
}

int main(int argc, char **argv)
{
    int steps = argc > 2 ? atoi(argv[2]) : 300;
    double lr_adamw = argc > 3 ? atof(argv[3]) : 0.003,
           lr_muonium = argc > 4 ? atof(argv[4]) : 0.02;
    if (argc < 2 || argc > 5 || steps < REPORT || steps >= PERIOD || !(lr_adamw > 0) ||
        !(lr_muonium > 0)) {
        fprintf(stderr, "usage: train TEXT [STEPS [LR_ADAMW LR_MUONIUM]], STEPS from %d\n", REPORT);
        return 2;
    }
    read_text(argv[1]);
    train_with_ggml(steps, lr_adamw);
    train_with_muonium(steps, lr_muonium);
    free(text.tokens);
    return 0;
}
