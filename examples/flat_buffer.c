/*
 * flat_buffer.c: Muonium in a trainer in the style of llm.c: GPT-2 in plain loops, one array for
 * all parameters, one for all gradients. The layers of each kind are stacked into one tensor
 * (layers, rows, columns); queries, keys and values are one matrix.
 *
 *     flat_buffer                            a tiny model, from random weights
 *     flat_buffer model.safetensors [STEPS]  the GPT-2 in this file, as Hugging Face stores it
 *
 * What adopts Muonium is make_optimizer and the two lines in main that are marked. The model learns
 * to repeat the token that came DISTANCE places before.
 */
#include <math.h>
#include <muonium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 8, DISTANCE = 3, CONTEXT = 12 };

/* Vocabulary, positions, width, layers, heads; length of a sequence. A file changes them. */
static int V = 8, P = CONTEXT, C = 16, L = 2, H = 1, T = CONTEXT;

/* ---- one array for all parameters, one for all gradients ---- */

enum {
    WTE,
    WPE,
    LN1W,
    LN1B,
    QKVW,
    QKVB,
    PROJW,
    PROJB,
    LN2W,
    LN2B,
    UPW,
    UPB,
    DOWNW,
    DOWNB,
    LNFW,
    LNFB,
    TENSORS
};
enum { NO_MATRIX = 0, VOCABULARY = -1, POSITIONS = -2 };

/* Rows and columns in multiples of C. Weights are (out, in); files of GPT-2 have (in, out). */
static const struct {
    const char *name, *in_file;
    bool stacked;
    int rows, cols;
} tensors[TENSORS] = {
    [WTE] = {"wte", "wte.weight", false, VOCABULARY, 1},
    [WPE] = {"wpe", "wpe.weight", false, POSITIONS, 1},
    [LN1W] = {"ln_1.weight", "ln_1.weight", true, 1, NO_MATRIX},
    [LN1B] = {"ln_1.bias", "ln_1.bias", true, 1, NO_MATRIX},
    [QKVW] = {"qkv.weight", "attn.c_attn.weight", true, 3, 1},
    [QKVB] = {"qkv.bias", "attn.c_attn.bias", true, 3, NO_MATRIX},
    [PROJW] = {"proj.weight", "attn.c_proj.weight", true, 1, 1},
    [PROJB] = {"proj.bias", "attn.c_proj.bias", true, 1, NO_MATRIX},
    [LN2W] = {"ln_2.weight", "ln_2.weight", true, 1, NO_MATRIX},
    [LN2B] = {"ln_2.bias", "ln_2.bias", true, 1, NO_MATRIX},
    [UPW] = {"up.weight", "mlp.c_fc.weight", true, 4, 1},
    [UPB] = {"up.bias", "mlp.c_fc.bias", true, 4, NO_MATRIX},
    [DOWNW] = {"down.weight", "mlp.c_proj.weight", true, 1, 4},
    [DOWNB] = {"down.bias", "mlp.c_proj.bias", true, 1, NO_MATRIX},
    [LNFW] = {"ln_f.weight", "ln_f.weight", false, 1, NO_MATRIX},
    [LNFB] = {"ln_f.bias", "ln_f.bias", false, 1, NO_MATRIX},
};

static float *params, *grads;
static ptrdiff_t offset[TENSORS + 1];

static void fail(const char *message, const char *what)
{
    fprintf(stderr, "flat_buffer: %s%s\n", message, what);
    exit(1);
}

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fail(muonium_last_error(), "");
    }
}

static size_t rows_of(int i)
{
    const int rows = tensors[i].rows;
    return (size_t)(rows == VOCABULARY ? V : rows == POSITIONS ? P : rows * C);
}

/* The number of elements of one layer. */
static size_t count_of(int i)
{
    return rows_of(i) * (size_t)(tensors[i].cols == NO_MATRIX ? 1 : tensors[i].cols * C);
}

/* The part of layer l of a stacked tensor, in params or in grads. */
static float *slice(float *base, int i, int l)
{
    return base + offset[i] + l * (ptrdiff_t)count_of(i);
}

static float *allocate(size_t count)
{
    float *memory = calloc(count, sizeof *memory);
    if (memory == NULL) {
        fail("out of memory", "");
    }
    return memory;
}

static void allocate_parameters(void)
{
    for (int i = 0; i < TENSORS; i++) {
        offset[i + 1] = offset[i] + (ptrdiff_t)count_of(i) * (tensors[i].stacked ? L : 1);
    }
    params = allocate((size_t)offset[TENSORS]);
    grads = allocate((size_t)offset[TENSORS]);
}

/* ---- the lines that adopt Muonium ---- */

/* Every tensor is a slice of the flat arrays. A stack (L, rows, cols) holds a matrix per layer,
 * which MUONIUM_LAYOUT_EXPERTS says; the rows of qkv are three matrices. A stack of norms or biases
 * (L, C) looks like a matrix, but its name tells; so does that of an embedding. */
static muonium_optimizer *make_optimizer(void)
{
    const size_t width = (size_t)C, thirds[] = {width, width, width};
    muonium_optimizer *optimizer;
    check(muonium_create(NULL, &optimizer));
    for (int i = 0; i < TENSORS; i++) {
        muonium_tensor tensor = {
            .name = tensors[i].name, .data = params + offset[i], .grad = grads + offset[i]};
        if (tensors[i].stacked) {
            tensor.shape[tensor.ndim++] = (size_t)L;
        }
        tensor.shape[tensor.ndim++] = rows_of(i);
        if (tensors[i].cols != NO_MATRIX) {
            tensor.shape[tensor.ndim++] = (size_t)(tensors[i].cols * C);
        }
        if (tensor.ndim == 3) {
            tensor.layout = MUONIUM_LAYOUT_EXPERTS;
        }
        if (i == QKVW) {
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
            printf("%-11s Muon   %zu matrices of %zu x %zu\n", report.name, report.matrices,
                   report.rows, report.cols);
        } else {
            printf("%-11s AdamW  %s\n", report.name, report.reason);
        }
    }
}

/* ---- weights: from a file, or random ---- */

static const muonium_entry *find(const muonium_reader *file, const char *name, int layer)
{
    char full[96];
    for (int prefix = 0; prefix < 2; prefix++) {
        const char *of_model = prefix == 0 ? "" : "transformer.";
        if (layer < 0) {
            snprintf(full, sizeof full, "%s%s", of_model, name);
        } else {
            snprintf(full, sizeof full, "%sh.%d.%s", of_model, layer, name);
        }
        const muonium_entry *entry = muonium_reader_find(file, full);
        if (entry != NULL) {
            return entry;
        }
    }
    return NULL;
}

static void read_sizes(const muonium_reader *file)
{
    const muonium_entry *wte = find(file, "wte.weight", -1), *wpe = find(file, "wpe.weight", -1);
    if (wte == NULL || wpe == NULL || wte->ndim != 2 || wpe->ndim != 2 || wte->shape[0] > 1 << 20 ||
        wte->shape[1] > 1 << 16 || wpe->shape[0] > 1 << 20) {
        fail("the file is no GPT-2: it needs matrices wte.weight and wpe.weight", "");
    }
    V = (int)wte->shape[0];
    C = (int)wte->shape[1];
    P = (int)wpe->shape[0];
    T = P < CONTEXT ? P : CONTEXT;
    H = C % 64 == 0 ? C / 64 : 1; /* heads of GPT-2 have 64 columns; the file does not say so */
    for (L = 0; find(file, "ln_1.weight", L) != NULL; L++) {
    }
}

static void read_tensor(const muonium_reader *file, int i, int layer, float *weights)
{
    const muonium_entry *entry = find(file, tensors[i].in_file, layer);
    const size_t count = count_of(i), rows = rows_of(i), cols = count / rows;
    const bool transposed = tensors[i].stacked && cols > 1;
    const size_t ndim = tensors[i].cols == NO_MATRIX ? 1 : 2;
    if (entry == NULL || entry->ndim != ndim || strcmp(entry->dtype, "F32") != 0 ||
        entry->shape[0] != (transposed ? cols : rows) ||
        entry->shape[ndim - 1] != (ndim == 1 || transposed ? rows : cols)) {
        fail("the file has no such tensor of F32 with the shape that wte.weight asks for: ",
             tensors[i].in_file);
    }
    float *data = allocate(count);
    check(muonium_reader_read(file, entry, 0, data, count * sizeof *data));
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            weights[r * cols + c] = data[transposed ? c * rows + r : r * cols + c];
        }
    }
    free(data);
}

static void read_model(const char *path)
{
    muonium_reader *file;
    check(muonium_reader_open(path, &file));
    read_sizes(file);
    allocate_parameters();
    for (int i = 0; i < TENSORS; i++) {
        for (int l = 0; l < (tensors[i].stacked ? L : 1); l++) {
            read_tensor(file, i, tensors[i].stacked ? l : -1, slice(params, i, l));
        }
    }
    muonium_reader_close(file);
}

static unsigned random_bits(void) /* the same in every run */
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void random_model(void)
{
    allocate_parameters();
    for (int i = 0; i < TENSORS; i++) {
        for (ptrdiff_t j = offset[i]; j < offset[i + 1]; j++) {
            const float uniform = (float)random_bits() / 8388608.0f - 1.0f; /* in [-1, 1) */
            const bool gain = i == LN1W || i == LN2W || i == LNFW;
            params[j] = gain ? 1 : tensors[i].cols == NO_MATRIX ? 0 : 0.2f * uniform;
        }
    }
}

/* ---- the model: forward and backward of each kind of layer, for T tokens ---- */

/* y += w x + b */
static void linear(int in, int out, const float *x, const float *w, const float *b, float *y)
{
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < out; i++) {
            float sum = b == NULL ? 0 : b[i];
            for (int j = 0; j < in; j++) {
                sum += w[(ptrdiff_t)i * in + j] * x[t * in + j];
            }
            y[(ptrdiff_t)t * out + i] += sum;
        }
    }
}

static void linear_back(int in, int out, const float *x, const float *w, const float *dy, float *dx,
                        float *dw, float *db)
{
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < out; i++) {
            const float d = dy[(ptrdiff_t)t * out + i];
            for (int j = 0; j < in; j++) {
                dx[t * in + j] += w[(ptrdiff_t)i * in + j] * d;
                dw[(ptrdiff_t)i * in + j] += x[t * in + j] * d;
            }
            if (db != NULL) {
                db[i] += d;
            }
        }
    }
}

static void moments(const float *x, float *mean, float *inverse)
{
    float sum = 0, squares = 0;
    for (int i = 0; i < C; i++) {
        sum += x[i];
    }
    *mean = sum / (float)C;
    for (int i = 0; i < C; i++) {
        squares += (x[i] - *mean) * (x[i] - *mean);
    }
    *inverse = 1 / sqrtf(squares / (float)C + 1e-5f);
}

static void norm(const float *x, const float *gain, const float *bias, float *y)
{
    for (int t = 0; t < T; t++) {
        float mean, inverse;
        moments(x + t * C, &mean, &inverse);
        for (int i = 0; i < C; i++) {
            y[t * C + i] = (x[t * C + i] - mean) * inverse * gain[i] + bias[i];
        }
    }
}

static void norm_back(const float *x, const float *gain, const float *dy, float *dx, float *dgain,
                      float *dbias)
{
    for (int t = 0; t < T; t++) {
        float mean, inverse, sum = 0, along = 0;
        moments(x + t * C, &mean, &inverse);
        for (int i = 0; i < C; i++) {
            const float normed = (x[t * C + i] - mean) * inverse, d = dy[t * C + i];
            dgain[i] += d * normed;
            dbias[i] += d;
            sum += d * gain[i];
            along += d * gain[i] * normed;
        }
        for (int i = 0; i < C; i++) {
            const float normed = (x[t * C + i] - mean) * inverse;
            dx[t * C + i] +=
                inverse * (dy[t * C + i] * gain[i] - (sum + normed * along) / (float)C);
        }
    }
}

/* `att` keeps the weights, H times T × T, for the way back. */
static void attention(const float *qkv, float *att, float *out)
{
    const int size = C / H;
    for (int h = 0; h < H; h++) {
        for (int t = 0; t < T; t++) {
            const float *q = qkv + t * 3 * C + h * size;
            float *row = att + (h * T + t) * T, sum = 0, most = -INFINITY;
            for (int s = 0; s <= t; s++) {
                const float *k = qkv + s * 3 * C + C + h * size;
                row[s] = 0;
                for (int i = 0; i < size; i++) {
                    row[s] += q[i] * k[i] / sqrtf((float)size);
                }
                most = fmaxf(most, row[s]);
            }
            for (int s = 0; s <= t; s++) {
                row[s] = expf(row[s] - most);
                sum += row[s];
            }
            for (int s = 0; s <= t; s++) {
                const float *v = qkv + s * 3 * C + 2 * C + h * size;
                row[s] /= sum;
                for (int i = 0; i < size; i++) {
                    out[t * C + h * size + i] += row[s] * v[i];
                }
            }
        }
    }
}

static void attention_back(const float *qkv, const float *att, const float *dout, float *dqkv)
{
    const int size = C / H;
    for (int h = 0; h < H; h++) {
        for (int t = 0; t < T; t++) {
            const float *row = att + (h * T + t) * T, *d = dout + t * C + h * size;
            float datt[CONTEXT] = {0}, mean = 0;
            for (int s = 0; s <= t; s++) {
                const ptrdiff_t v = (ptrdiff_t)(s * 3 * C + 2 * C + h * size);
                for (int i = 0; i < size; i++) {
                    datt[s] += d[i] * qkv[v + i];
                    dqkv[v + i] += row[s] * d[i];
                }
                mean += row[s] * datt[s];
            }
            for (int s = 0; s <= t; s++) {
                const float dscore = row[s] * (datt[s] - mean) / sqrtf((float)size);
                const ptrdiff_t q = (ptrdiff_t)(t * 3 * C + h * size),
                                k = (ptrdiff_t)(s * 3 * C + C + h * size);
                for (int i = 0; i < size; i++) {
                    dqkv[q + i] += dscore * qkv[k + i];
                    dqkv[k + i] += dscore * qkv[q + i];
                }
            }
        }
    }
}

/* GELU by tanh, as GPT-2 has it, and its derivative. */
static float gelu(float x, float *derivative)
{
    const float inner = 0.7978845608f * (x + 0.044715f * x * x * x), tanh = tanhf(inner);
    *derivative = 0.5f * (1 + tanh) +
                  0.5f * x * (1 - tanh * tanh) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
    return 0.5f * x * (1 + tanh);
}

/* ---- loss and gradients of one sequence ---- */

/* What a sequence leaves at one layer for the way back; x is what enters it. */
typedef struct activations {
    float *x, *normed, *qkv, *att, *attended, *middle, *mlp_normed, *up, *hidden, *end;
} activations;

static activations *layers; /* L, and one more whose x leaves the last */
static float *last, *logits, *scratch, *scratch_end, *logits_end;

static void allocate_activations(void)
{
    const size_t n = (size_t)(T * C);
    layers = malloc(((size_t)L + 1) * sizeof *layers);
    if (layers == NULL) {
        fail("out of memory", "");
    }
    for (int l = 0; l <= L; l++) {
        activations *a = &layers[l];
        a->x = allocate(16 * n + (size_t)(H * T * T));
        a->normed = a->x + n;
        a->qkv = a->normed + n;
        a->attended = a->qkv + 3 * n;
        a->middle = a->attended + n;
        a->mlp_normed = a->middle + n;
        a->up = a->mlp_normed + n;
        a->hidden = a->up + 4 * n;
        a->att = a->hidden + 4 * n;
        a->end = a->att + H * T * T;
    }
    last = allocate(n);
    logits = allocate((size_t)T * (size_t)V);
    logits_end = logits + (size_t)T * (size_t)V;
    scratch = allocate(11 * n);
    scratch_end = scratch + 11 * n;
}

static void zero(float *begin, const float *end)
{
    memset(begin, 0, (size_t)(end - begin) * sizeof *begin);
}

static void forward(const int *tokens)
{
    const size_t bytes = (size_t)(T * C) * sizeof(float);
    for (int l = 0; l <= L; l++) {
        zero(layers[l].x, layers[l].end);
    }
    zero(logits, logits_end);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            layers[0].x[t * C + i] = params[offset[WTE] + (ptrdiff_t)tokens[t] * C + i] +
                                     params[offset[WPE] + t * C + i];
        }
    }
    for (int l = 0; l < L; l++) {
        activations *a = &layers[l];
        float *next = layers[l + 1].x, slope;
        norm(a->x, slice(params, LN1W, l), slice(params, LN1B, l), a->normed);
        linear(C, 3 * C, a->normed, slice(params, QKVW, l), slice(params, QKVB, l), a->qkv);
        attention(a->qkv, a->att, a->attended);
        memcpy(a->middle, a->x, bytes);
        linear(C, C, a->attended, slice(params, PROJW, l), slice(params, PROJB, l), a->middle);
        norm(a->middle, slice(params, LN2W, l), slice(params, LN2B, l), a->mlp_normed);
        linear(C, 4 * C, a->mlp_normed, slice(params, UPW, l), slice(params, UPB, l), a->up);
        for (int i = 0; i < T * 4 * C; i++) {
            a->hidden[i] = gelu(a->up[i], &slope);
        }
        memcpy(next, a->middle, bytes);
        linear(4 * C, C, a->hidden, slice(params, DOWNW, l), slice(params, DOWNB, l), next);
    }
    norm(layers[L].x, params + offset[LNFW], params + offset[LNFB], last);
    linear(C, V, last, params + offset[WTE], NULL, logits);
}

/* Cross-entropy; the logits become their gradients. */
static double loss_and_logit_gradients(const int *targets)
{
    double loss = 0;
    for (int t = 0; t < T; t++) {
        float *row = logits + (ptrdiff_t)t * V, sum = 0, most = -INFINITY;
        for (int i = 0; i < V; i++) {
            most = fmaxf(most, row[i]);
        }
        for (int i = 0; i < V; i++) {
            row[i] = expf(row[i] - most);
            sum += row[i];
        }
        loss -= log((double)(row[targets[t]] / sum)) / (B * T);
        for (int i = 0; i < V; i++) {
            row[i] = (row[i] / sum - (i == targets[t] ? 1.0f : 0.0f)) / (float)(B * T);
        }
    }
    return loss;
}

static void backward(const int *tokens)
{
    const int n = T * C;
    float *dx = scratch, *dnormed = dx + n, *dqkv = dnormed + n, *dattended = dqkv + 3 * n,
          *dhidden = dattended + n;
    zero(scratch, scratch_end);
    linear_back(C, V, last, params + offset[WTE], logits, dnormed, grads + offset[WTE], NULL);
    norm_back(layers[L].x, params + offset[LNFW], dnormed, dx, grads + offset[LNFW],
              grads + offset[LNFB]);
    for (int l = L - 1; l >= 0; l--) {
        const activations *a = &layers[l];
        zero(dnormed, scratch_end);
        linear_back(4 * C, C, a->hidden, slice(params, DOWNW, l), dx, dhidden,
                    slice(grads, DOWNW, l), slice(grads, DOWNB, l));
        for (int i = 0; i < 4 * n; i++) {
            float slope;
            gelu(a->up[i], &slope);
            dhidden[i] *= slope;
        }
        linear_back(C, 4 * C, a->mlp_normed, slice(params, UPW, l), dhidden, dnormed,
                    slice(grads, UPW, l), slice(grads, UPB, l));
        norm_back(a->middle, slice(params, LN2W, l), dnormed, dx, slice(grads, LN2W, l),
                  slice(grads, LN2B, l));
        linear_back(C, C, a->attended, slice(params, PROJW, l), dx, dattended,
                    slice(grads, PROJW, l), slice(grads, PROJB, l));
        attention_back(a->qkv, a->att, dattended, dqkv);
        zero(dnormed, dqkv);
        linear_back(C, 3 * C, a->normed, slice(params, QKVW, l), dqkv, dnormed,
                    slice(grads, QKVW, l), slice(grads, QKVB, l));
        norm_back(a->x, slice(params, LN1W, l), dnormed, dx, slice(grads, LN1W, l),
                  slice(grads, LN1B, l));
    }
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            grads[offset[WTE] + (ptrdiff_t)tokens[t] * C + i] += dx[t * C + i];
            grads[offset[WPE] + t * C + i] += dx[t * C + i];
        }
    }
}

/* ---- the trainer ---- */

static double train_batch(void)
{
    double loss = 0;
    for (int b = 0; b < B; b++) {
        int tokens[CONTEXT], targets[CONTEXT];
        for (int t = 0; t < T; t++) {
            tokens[t] = (int)(random_bits() % (unsigned)V);
            targets[t] = t >= DISTANCE ? tokens[t - DISTANCE] : 0;
        }
        forward(tokens);
        loss += loss_and_logit_gradients(targets);
        backward(tokens);
    }
    return loss;
}

int main(int count, char **arguments)
{
    const int steps = count > 2 ? atoi(arguments[2]) : 150;
    if (steps < 1 || count > 3) {
        fail("usage: flat_buffer [MODEL.safetensors [STEPS]]", "");
    }
    if (count > 1) {
        read_model(arguments[1]);
    } else {
        random_model();
    }
    allocate_activations();
    muonium_optimizer *optimizer = make_optimizer(); /* <- */
    if (count > 1) {
        check(muonium_set_lr(optimizer, NULL, 1e-3)); /* the weights are trained already */
    }
    print_routes(optimizer);
    for (int step = 0; step <= steps; step++) {
        zero(grads, grads + offset[TENSORS]);
        const double loss = train_batch();
        check(muonium_step(optimizer)); /* <- */
        if (3 * step % steps == 0) {
            printf("step %3d  loss %.4f\n", step, loss);
            fflush(stdout);
        }
    }
    muonium_destroy(optimizer);
    return 0;
}
