/*
 * flat_buffer.c: Muonium in a trainer of the kind that C programmers write: one big array
 * for all parameters, one for all gradients, the layers of each kind stacked into one
 * tensor (layers, rows, cols), queries, keys and values fused into one matrix.
 *
 * What adopts Muonium is make_optimizer and the two lines in main that are marked. The
 * rest is a small transformer in plain loops that learns to repeat the token that came
 * DISTANCE places before.
 */
#include <math.h>
#include <muonium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 8, T = 12, V = 8, C = 16, L = 2, DISTANCE = 3, STEPS = 150 };

/* ---- one array for all parameters, one for all gradients ---- */

enum { WTE, WPE, LN_1, QKV, PROJ, LN_2, UP, DOWN, LM_HEAD, TENSORS };

static const struct {
    const char *name;
    size_t ndim, shape[3];
} tensors[TENSORS] = {
    [WTE] = {"wte", 2, {V, C}},         [WPE] = {"wpe", 2, {T, C}},
    [LN_1] = {"ln_1", 2, {L, C}},       [QKV] = {"qkv", 3, {L, 3 * C, C}},
    [PROJ] = {"proj", 3, {L, C, C}},    [LN_2] = {"ln_2", 2, {L, C}},
    [UP] = {"up", 3, {L, 4 * C, C}},    [DOWN] = {"down", 3, {L, C, 4 * C}},
    [LM_HEAD] = {"lm_head", 2, {V, C}},
};

static float *params, *grads;
static size_t offset[TENSORS + 1];

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "%s\n", muonium_last_error());
        exit(1);
    }
}

/* ---- the lines that adopt Muonium ---- */

/* Every tensor is a slice of the flat arrays. A stack (L, rows, cols) holds a matrix per
 * layer, which MUONIUM_LAYOUT_EXPERTS says; the rows of qkv are three matrices. The stack
 * of norms (L, C) looks like a matrix, but its name tells; so do embeddings and head. */
static muonium_optimizer *make_optimizer(void)
{
    static const size_t thirds[] = {C, C, C};
    muonium_optimizer *optimizer;
    check(muonium_create(NULL, &optimizer));
    for (int i = 0; i < TENSORS; i++) {
        muonium_tensor tensor = {.name = tensors[i].name,
                                 .dtype = MUONIUM_F32,
                                 .ndim = tensors[i].ndim,
                                 .data = params + offset[i],
                                 .grad = grads + offset[i]};
        memcpy(tensor.shape, tensors[i].shape, sizeof tensors[i].shape);
        if (tensor.ndim == 3) {
            tensor.layout = MUONIUM_LAYOUT_EXPERTS;
        }
        if (i == QKV) {
            tensor.row_splits = thirds;
            tensor.row_split_count = 3;
        }
        check(muonium_add(optimizer, &tensor, NULL));
    }
    return optimizer;
}

static void print_routes(const muonium_optimizer *optimizer)
{
    for (size_t i = 0; i < muonium_parameter_count(optimizer); i++) {
        muonium_parameter_report report;
        check(muonium_report(optimizer, i, &report));
        if (report.muon) {
            printf("%-8s Muon   %zu matrices of %zu x %zu\n", report.name, report.matrices,
                   report.rows, report.cols);
        } else {
            printf("%-8s AdamW  %s\n", report.name, report.reason);
        }
    }
}

/* ---- the model: forward and backward of each kind of layer, for n tokens ---- */

static void matmul(int n, int in, int out, const float *x, const float *w, float *y)
{
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < out; i++) {
            for (int j = 0; j < in; j++) {
                y[t * out + i] += w[i * in + j] * x[t * in + j];
            }
        }
    }
}

static void matmul_back(int n, int in, int out, const float *x, const float *w, const float *dy,
                        float *dx, float *dw)
{
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < out; i++) {
            for (int j = 0; j < in; j++) {
                dx[t * in + j] += w[i * in + j] * dy[t * out + i];
                dw[i * in + j] += x[t * in + j] * dy[t * out + i];
            }
        }
    }
}

static float inverse_rms(const float *x)
{
    float sum = 0;
    for (int i = 0; i < C; i++) {
        sum += x[i] * x[i];
    }
    return 1 / sqrtf(sum / C + 1e-6f);
}

static void norm(int n, const float *x, const float *gain, float *y)
{
    for (int t = 0; t < n; t++) {
        const float r = inverse_rms(x + t * C);
        for (int i = 0; i < C; i++) {
            y[t * C + i] = gain[i] * x[t * C + i] * r;
        }
    }
}

static void norm_back(int n, const float *x, const float *gain, const float *dy, float *dx,
                      float *dgain)
{
    for (int t = 0; t < n; t++) {
        const float r = inverse_rms(x + t * C);
        float along = 0;
        for (int i = 0; i < C; i++) {
            along += gain[i] * dy[t * C + i] * x[t * C + i];
            dgain[i] += dy[t * C + i] * x[t * C + i] * r;
        }
        for (int i = 0; i < C; i++) {
            dx[t * C + i] += r * gain[i] * dy[t * C + i] - along * r * r * r / C * x[t * C + i];
        }
    }
}

/* One head, as wide as the model. `att` keeps the weights for the way back. */
static void attention(const float *qkv, float att[T][T], float *out)
{
    for (int t = 0; t < T; t++) {
        float sum = 0;
        for (int s = 0; s <= t; s++) {
            float score = 0;
            for (int i = 0; i < C; i++) {
                score += qkv[t * 3 * C + i] * qkv[s * 3 * C + C + i];
            }
            att[t][s] = expf(score / sqrtf(C));
            sum += att[t][s];
        }
        for (int s = 0; s <= t; s++) {
            att[t][s] /= sum;
            for (int i = 0; i < C; i++) {
                out[t * C + i] += att[t][s] * qkv[s * 3 * C + 2 * C + i];
            }
        }
    }
}

static void attention_back(const float *qkv, float att[T][T], const float *dout, float *dqkv)
{
    for (int t = 0; t < T; t++) {
        float datt[T] = {0}, mean = 0;
        for (int s = 0; s <= t; s++) {
            for (int i = 0; i < C; i++) {
                datt[s] += dout[t * C + i] * qkv[s * 3 * C + 2 * C + i];
                dqkv[s * 3 * C + 2 * C + i] += att[t][s] * dout[t * C + i];
            }
            mean += att[t][s] * datt[s];
        }
        for (int s = 0; s <= t; s++) {
            const float dscore = att[t][s] * (datt[s] - mean) / sqrtf(C);
            for (int i = 0; i < C; i++) {
                dqkv[t * 3 * C + i] += dscore * qkv[s * 3 * C + C + i];
                dqkv[s * 3 * C + C + i] += dscore * qkv[t * 3 * C + i];
            }
        }
    }
}

/* ---- loss and gradients of one sequence ---- */

typedef struct activations {
    float x[L + 1][T * C], normed[L][T * C], qkv[L][T * 3 * C], att[L][T][T], attended[L][T * C];
    float middle[L][T * C], mlp_normed[L][T * C], up[L][T * 4 * C], hidden[L][T * 4 * C];
    float logits[T * V];
} activations;

/* A slice of a stacked tensor: the part of layer l. */
static float *slice(float *base, int tensor, int l)
{
    const size_t per_layer = (offset[tensor + 1] - offset[tensor]) / L;
    return base + offset[tensor] + (size_t)l * per_layer;
}

static void forward(const int *tokens, activations *a)
{
    memset(a, 0, sizeof *a);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            a->x[0][t * C + i] = params[offset[WTE] + (size_t)(tokens[t] * C + i)] +
                                 params[offset[WPE] + (size_t)(t * C + i)];
        }
    }
    for (int l = 0; l < L; l++) {
        norm(T, a->x[l], slice(params, LN_1, l), a->normed[l]);
        matmul(T, C, 3 * C, a->normed[l], slice(params, QKV, l), a->qkv[l]);
        attention(a->qkv[l], a->att[l], a->attended[l]);
        memcpy(a->middle[l], a->x[l], sizeof a->x[l]);
        matmul(T, C, C, a->attended[l], slice(params, PROJ, l), a->middle[l]);
        norm(T, a->middle[l], slice(params, LN_2, l), a->mlp_normed[l]);
        matmul(T, C, 4 * C, a->mlp_normed[l], slice(params, UP, l), a->up[l]);
        for (int i = 0; i < T * 4 * C; i++) {
            a->hidden[l][i] = a->up[l][i] > 0 ? a->up[l][i] : 0;
        }
        memcpy(a->x[l + 1], a->middle[l], sizeof a->middle[l]);
        matmul(T, 4 * C, C, a->hidden[l], slice(params, DOWN, l), a->x[l + 1]);
    }
    matmul(T, C, V, a->x[L], params + offset[LM_HEAD], a->logits);
}

/* Cross-entropy; the logits become their gradients. */
static double loss_and_logit_gradients(const int *targets, activations *a)
{
    double loss = 0;
    for (int t = 0; t < T; t++) {
        float *row = a->logits + t * V, sum = 0;
        for (int i = 0; i < V; i++) {
            row[i] = expf(row[i]);
            sum += row[i];
        }
        loss -= log((double)(row[targets[t]] / sum)) / (B * T);
        for (int i = 0; i < V; i++) {
            row[i] = (row[i] / sum - (i == targets[t] ? 1.0f : 0.0f)) / (B * T);
        }
    }
    return loss;
}

static void backward(const int *tokens, activations *a)
{
    float dx[T * C] = {0};
    matmul_back(T, C, V, a->x[L], params + offset[LM_HEAD], a->logits, dx, grads + offset[LM_HEAD]);
    for (int l = L - 1; l >= 0; l--) {
        float dhidden[T * 4 * C] = {0}, dnormed[T * C] = {0}, dattended[T * C] = {0};
        float dqkv[T * 3 * C] = {0};
        matmul_back(T, 4 * C, C, a->hidden[l], slice(params, DOWN, l), dx, dhidden,
                    slice(grads, DOWN, l));
        for (int i = 0; i < T * 4 * C; i++) {
            dhidden[i] = a->up[l][i] > 0 ? dhidden[i] : 0;
        }
        matmul_back(T, C, 4 * C, a->mlp_normed[l], slice(params, UP, l), dhidden, dnormed,
                    slice(grads, UP, l));
        norm_back(T, a->middle[l], slice(params, LN_2, l), dnormed, dx, slice(grads, LN_2, l));
        matmul_back(T, C, C, a->attended[l], slice(params, PROJ, l), dx, dattended,
                    slice(grads, PROJ, l));
        attention_back(a->qkv[l], a->att[l], dattended, dqkv);
        memset(dnormed, 0, sizeof dnormed);
        matmul_back(T, C, 3 * C, a->normed[l], slice(params, QKV, l), dqkv, dnormed,
                    slice(grads, QKV, l));
        norm_back(T, a->x[l], slice(params, LN_1, l), dnormed, dx, slice(grads, LN_1, l));
    }
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            grads[offset[WTE] + (size_t)(tokens[t] * C + i)] += dx[t * C + i];
            grads[offset[WPE] + (size_t)(t * C + i)] += dx[t * C + i];
        }
    }
}

/* ---- the trainer ---- */

static unsigned random_bits(void) /* the same in every run */
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void allocate(void)
{
    for (int i = 0; i < TENSORS; i++) {
        size_t count = 1;
        for (size_t d = 0; d < tensors[i].ndim; d++) {
            count *= tensors[i].shape[d];
        }
        offset[i + 1] = offset[i] + count;
    }
    params = malloc(offset[TENSORS] * sizeof *params);
    grads = malloc(offset[TENSORS] * sizeof *grads);
    if (params == NULL || grads == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int i = 0; i < TENSORS; i++) {
        for (size_t j = offset[i]; j < offset[i + 1]; j++) {
            const float uniform = (float)random_bits() / 8388608.0f - 1.0f; /* in [-1, 1) */
            params[j] = i == LN_1 || i == LN_2 ? 1 : 0.2f * uniform;
        }
    }
}

static double train_batch(void)
{
    static activations a;
    double loss = 0;
    for (int b = 0; b < B; b++) {
        int tokens[T], targets[T];
        for (int t = 0; t < T; t++) {
            tokens[t] = (int)(random_bits() % V);
            targets[t] = t >= DISTANCE ? tokens[t - DISTANCE] : 0;
        }
        forward(tokens, &a);
        loss += loss_and_logit_gradients(targets, &a);
        backward(tokens, &a);
    }
    return loss;
}

int main(void)
{
    allocate();
    muonium_optimizer *optimizer = make_optimizer(); /* <- */
    print_routes(optimizer);
    for (int step = 0; step <= STEPS; step++) {
        memset(grads, 0, offset[TENSORS] * sizeof *grads);
        const double loss = train_batch();
        check(muonium_step(optimizer)); /* <- */
        if (step % 50 == 0) {
            printf("step %3d  loss %.4f\n", step, loss);
        }
    }
    muonium_destroy(optimizer);
    free(params);
    free(grads);
    return 0;
}
