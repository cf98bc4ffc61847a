/*
 * layers.c: each function is a loop over tokens, or over heads, cut into pieces of a
 * fixed size that the pool's threads take one by one. Sums over tokens are made by one
 * thread for each result, in order: that keeps them independent of the threads.
 */
#include "layers.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

enum {
    TOKENS = 32,     /* of a piece of work */
    COLUMNS = 16,    /* the same for sums over tokens: a cache line */
    ELEMENTS = 8192, /* the same for element-wise work */
    PARTIAL = 16     /* sums that a reduction keeps side by side, for vector instructions */
};

static const float norm_eps = 1e-6f;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void run(const gpt_machine *machine, mu_task *task, const void *context, size_t total,
                size_t piece)
{
    /* The pool hands the context on as it got it; no task writes to it. */
    mu_pool_run(task, (void *)(uintptr_t)context, (total + piece - 1) / piece,
                gpt_machine_workers(machine));
}

static float total(const float partial[PARTIAL])
{
    float sum = 0;
    for (size_t j = 0; j < PARTIAL; j++) {
        sum += partial[j];
    }
    return sum;
}

/* The sums of a[i] b[i], and of a[i] b[i] c[i]. */
static float dot(const float *a, const float *b, size_t n)
{
    float partial[PARTIAL] = {0};
    size_t i = 0;
    for (; i + PARTIAL <= n; i += PARTIAL) {
        for (size_t j = 0; j < PARTIAL; j++) {
            partial[j] += a[i + j] * b[i + j];
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        partial[j] += a[i + j] * b[i + j];
    }
    return total(partial);
}

static float dot_of_three(const float *a, const float *b, const float *c, size_t n)
{
    float partial[PARTIAL] = {0};
    size_t i = 0;
    for (; i + PARTIAL <= n; i += PARTIAL) {
        for (size_t j = 0; j < PARTIAL; j++) {
            partial[j] += a[i + j] * b[i + j] * c[i + j];
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        partial[j] += a[i + j] * b[i + j] * c[i + j];
    }
    return total(partial);
}

/* ---- normalisation ---- */

typedef struct norm_work {
    const gpt_norm *norm;
    const float *dy;
    float *y, *dx, *d_gain;
} norm_work;

static void norm_forward_task(void *context, size_t index, unsigned worker)
{
    const norm_work *work = context;
    const gpt_norm *norm = work->norm;
    const size_t width = norm->width, end = least((index + 1) * TOKENS, norm->tokens);
    (void)worker;
    for (size_t t = index * TOKENS; t < end; t++) {
        const float *x = norm->x + t * width;
        float *y = work->y + t * width;
        const float inverse = 1 / sqrtf(dot(x, x, width) / (float)width + norm_eps);
        norm->inverse[t] = inverse;
        for (size_t i = 0; i < width; i++) {
            y[i] = x[i] * inverse * norm->gain[i];
        }
    }
}

void gpt_norm_forward(const gpt_machine *machine, const gpt_norm *norm, float *y)
{
    norm_work work = {.norm = norm, .y = y};
    run(machine, norm_forward_task, &work, norm->tokens, TOKENS);
}

/* With r = 1 / rms(x) and s = gain * dy: dx = r s - x r^3 (x . s) / width. */
static void norm_backward_task(void *context, size_t index, unsigned worker)
{
    const norm_work *work = context;
    const gpt_norm *norm = work->norm;
    const size_t width = norm->width, end = least((index + 1) * TOKENS, norm->tokens);
    (void)worker;
    for (size_t t = index * TOKENS; t < end; t++) {
        const float *x = norm->x + t * width, *dy = work->dy + t * width;
        float *dx = work->dx + t * width;
        const float r = norm->inverse[t];
        const float along = dot_of_three(x, norm->gain, dy, width) * r * r * r / (float)width;
        for (size_t i = 0; i < width; i++) {
            dx[i] += r * norm->gain[i] * dy[i] - along * x[i];
        }
    }
}

static void norm_gain_task(void *context, size_t index, unsigned worker)
{
    const norm_work *work = context;
    const gpt_norm *norm = work->norm;
    const size_t first = index * COLUMNS, count = least(COLUMNS, norm->width - first);
    float sum[COLUMNS] = {0};
    (void)worker;
    for (size_t t = 0; t < norm->tokens; t++) {
        const float *x = norm->x + t * norm->width + first;
        const float *dy = work->dy + t * norm->width + first;
        for (size_t i = 0; i < count; i++) {
            sum[i] += dy[i] * x[i] * norm->inverse[t];
        }
    }
    memcpy(work->d_gain + first, sum, count * sizeof *sum);
}

void gpt_norm_backward(const gpt_machine *machine, const gpt_norm *norm, const float *dy, float *dx,
                       float *d_gain)
{
    norm_work work = {.norm = norm, .dy = dy, .dx = dx, .d_gain = d_gain};
    run(machine, norm_backward_task, &work, norm->tokens, TOKENS);
    run(machine, norm_gain_task, &work, norm->width, COLUMNS);
}

/* ---- attention ---- */

typedef struct attention_work {
    const gpt_machine *machine;
    const gpt_attention *attention;
    float *rotated; /* qkv or its gradient */
    float direction;
    float *out;
    const float *d_out;
    float *d_qkv, *scratch;
} attention_work;

void gpt_rotations(size_t length, size_t head_size, float *cosines, float *sines)
{
    const double base = 10000;
    const size_t half = head_size / 2;
    for (size_t position = 0; position < length; position++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)position * pow(base, -(double)i / (double)half);
            cosines[position * half + i] = (float)cos(angle);
            sines[position * half + i] = (float)sin(angle);
        }
    }
}

/* Elements i and i + half of every head turn together, by an angle of their own. The way
 * back turns gradients the other way. */
static void rotate_task(void *context, size_t index, unsigned worker)
{
    const attention_work *work = context;
    const gpt_attention *attention = work->attention;
    const size_t half = attention->width / attention->heads / 2;
    const size_t end = least((index + 1) * TOKENS, attention->sequences * attention->length);
    (void)worker;
    for (size_t t = index * TOKENS; t < end; t++) {
        const float *cosines = attention->cosines + t % attention->length * half;
        const float *sines = attention->sines + t % attention->length * half;
        for (size_t head = 0; head < 2 * attention->heads; head++) { /* of queries, then keys */
            float *low = work->rotated + t * 3 * attention->width + head * 2 * half;
            float *high = low + half;
            for (size_t i = 0; i < half; i++) {
                const float x = low[i], y = high[i], sine = work->direction * sines[i];
                low[i] = x * cosines[i] - y * sine;
                high[i] = x * sine + y * cosines[i];
            }
        }
    }
}

static void rotate(const gpt_machine *machine, const gpt_attention *attention, float *rotated,
                   float direction)
{
    attention_work work = {.attention = attention, .rotated = rotated, .direction = direction};
    run(machine, rotate_task, &work, attention->sequences * attention->length, TOKENS);
}

/* Softmax over the first `count` of `length` scores; the rest lie in the future. */
static void softmax_row(float *row, size_t count, size_t length)
{
    float largest = row[0], sum = 0;
    for (size_t j = 1; j < count; j++) {
        largest = row[j] > largest ? row[j] : largest;
    }
    for (size_t j = 0; j < count; j++) {
        row[j] = expf(row[j] - largest);
        sum += row[j];
    }
    for (size_t j = 0; j < count; j++) {
        row[j] /= sum;
    }
    memset(row + count, 0, (length - count) * sizeof *row);
}

/* One head of one sequence: where its parts lie. */
typedef struct one_head {
    size_t length, size;
    size_t token_row; /* distance of tokens in qkv */
    size_t offset;    /* of its first query in qkv; keys and values follow a width apart each */
    size_t out;       /* of its first element in the output */
    float *weights;
    float scale;
} one_head;

static one_head head_at(const gpt_attention *attention, size_t index)
{
    const size_t sequence = index / attention->heads, head = index % attention->heads;
    const size_t size = attention->width / attention->heads;
    const size_t token = sequence * attention->length;
    return (one_head){
        .length = attention->length,
        .size = size,
        .token_row = 3 * attention->width,
        .offset = token * 3 * attention->width + head * size,
        .out = token * attention->width + head * size,
        .weights = attention->weights + index * attention->length * attention->length,
        .scale = 1 / sqrtf((float)size),
    };
}

static void attend_task(void *context, size_t index, unsigned worker)
{
    const attention_work *work = context;
    const gpt_attention *attention = work->attention;
    const one_head h = head_at(attention, index);
    const float *queries = attention->qkv + h.offset, *keys = queries + attention->width;
    const float *values = keys + attention->width;
    gpt_multiply_alone(work->machine, worker,
                       &(gpt_product){.m = h.length,
                                      .n = h.length,
                                      .k = h.size,
                                      .a = gpt_rows(queries, h.token_row),
                                      .b = gpt_transposed(keys, h.token_row),
                                      .c = h.weights,
                                      .c_row = h.length,
                                      .scale = h.scale});
    for (size_t i = 0; i < h.length; i++) {
        softmax_row(h.weights + i * h.length, i + 1, h.length);
    }
    gpt_multiply_alone(work->machine, worker,
                       &(gpt_product){.m = h.length,
                                      .n = h.size,
                                      .k = h.length,
                                      .a = gpt_rows(h.weights, h.length),
                                      .b = gpt_rows(values, h.token_row),
                                      .c = work->out + h.out,
                                      .c_row = attention->width,
                                      .scale = 1});
}

void gpt_attention_forward(const gpt_machine *machine, const gpt_attention *attention, float *out)
{
    attention_work work = {.machine = machine, .attention = attention, .out = out};
    rotate(machine, attention, attention->qkv, 1);
    run(machine, attend_task, &work, attention->sequences * attention->heads, 1);
}

static void attend_backward_task(void *context, size_t index, unsigned worker)
{
    const attention_work *work = context;
    const gpt_machine *machine = work->machine;
    const gpt_attention *attention = work->attention;
    const size_t width = attention->width;
    const one_head h = head_at(attention, index);
    const float *queries = attention->qkv + h.offset, *keys = queries + width;
    const float *values = keys + width, *d_out = work->d_out + h.out;
    float *d_queries = work->d_qkv + h.offset, *d_keys = d_queries + width;
    float *d_values = d_keys + width;
    float *d_scores = work->scratch + worker * h.length * h.length;

    gpt_product to_values = {.m = h.length,
                             .n = h.size,
                             .k = h.length,
                             .a = gpt_transposed(h.weights, h.length),
                             .b = gpt_rows(d_out, width),
                             .c = d_values,
                             .c_row = h.token_row,
                             .scale = 1};
    gpt_multiply_alone(machine, worker, &to_values);
    gpt_product to_weights = {.m = h.length,
                              .n = h.length,
                              .k = h.size,
                              .a = gpt_rows(d_out, width),
                              .b = gpt_transposed(values, h.token_row),
                              .c = d_scores,
                              .c_row = h.length,
                              .scale = 1};
    gpt_multiply_alone(machine, worker, &to_weights);

    /* Through the softmax: ds = p (dp - p . dp). Weights of the future are 0, and so are
     * their gradients. */
    for (size_t i = 0; i < h.length; i++) {
        const float *weights = h.weights + i * h.length;
        float *row = d_scores + i * h.length;
        const float mean = dot(weights, row, i + 1);
        for (size_t j = 0; j < h.length; j++) {
            row[j] = weights[j] * (row[j] - mean);
        }
    }
    gpt_product to_queries = {.m = h.length,
                              .n = h.size,
                              .k = h.length,
                              .a = gpt_rows(d_scores, h.length),
                              .b = gpt_rows(keys, h.token_row),
                              .c = d_queries,
                              .c_row = h.token_row,
                              .scale = h.scale};
    gpt_multiply_alone(machine, worker, &to_queries);
    gpt_product to_keys = to_queries;
    to_keys.a = gpt_transposed(d_scores, h.length);
    to_keys.b = gpt_rows(queries, h.token_row);
    to_keys.c = d_keys;
    gpt_multiply_alone(machine, worker, &to_keys);
}

void gpt_attention_backward(const gpt_machine *machine, const gpt_attention *attention,
                            const float *d_out, float *d_qkv, float *scratch)
{
    attention_work work = {.machine = machine,
                           .attention = attention,
                           .d_out = d_out,
                           .d_qkv = d_qkv,
                           .scratch = scratch};
    run(machine, attend_backward_task, &work, attention->sequences * attention->heads, 1);
    rotate(machine, attention, d_qkv, -1);
}

/* ---- activation ---- */

/* max(0, x) is written as (x + |x|) / 2, the same number, which compilers vectorise. */

typedef struct relu_work {
    size_t count;
    const float *x;
    float *y;
} relu_work;

static void relu_squared_task(void *context, size_t index, unsigned worker)
{
    const relu_work *work = context;
    const size_t first = index * ELEMENTS, count = least(ELEMENTS, work->count - first);
    const float *restrict x = work->x + first;
    float *restrict y = work->y + first;
    (void)worker;
    for (size_t i = 0; i < count; i++) {
        const float positive = 0.5f * (x[i] + fabsf(x[i]));
        y[i] = positive * positive;
    }
}

void gpt_relu_squared(const gpt_machine *machine, size_t count, const float *x, float *y)
{
    relu_work work = {count, x, y};
    run(machine, relu_squared_task, &work, count, ELEMENTS);
}

static void relu_squared_backward_task(void *context, size_t index, unsigned worker)
{
    const relu_work *work = context;
    const size_t first = index * ELEMENTS, count = least(ELEMENTS, work->count - first);
    const float *restrict x = work->x + first;
    float *restrict y = work->y + first;
    (void)worker;
    for (size_t i = 0; i < count; i++) {
        y[i] *= x[i] + fabsf(x[i]);
    }
}

void gpt_relu_squared_backward(const gpt_machine *machine, size_t count, const float *x,
                               float *dy_to_dx)
{
    relu_work work = {count, x, dy_to_dx};
    run(machine, relu_squared_backward_task, &work, count, ELEMENTS);
}

/* ---- loss ---- */

typedef struct loss_work {
    size_t tokens, vocabulary;
    float *logits;
    const unsigned char *targets;
    float *losses;
} loss_work;

static void cross_entropy_task(void *context, size_t index, unsigned worker)
{
    const loss_work *work = context;
    const size_t end = least((index + 1) * TOKENS, work->tokens);
    (void)worker;
    for (size_t t = index * TOKENS; t < end; t++) {
        float *row = work->logits + t * work->vocabulary;
        const size_t target = work->targets[t];
        const float score = row[target];
        float largest = row[0], sum = 0;
        for (size_t j = 1; j < work->vocabulary; j++) {
            largest = row[j] > largest ? row[j] : largest;
        }
        for (size_t j = 0; j < work->vocabulary; j++) {
            row[j] = expf(row[j] - largest);
            sum += row[j];
        }
        work->losses[t] = logf(sum) - (score - largest);
        const float scale = 1 / (sum * (float)work->tokens);
        for (size_t j = 0; j < work->vocabulary; j++) {
            row[j] *= scale;
        }
        row[target] -= 1 / (float)work->tokens;
    }
}

double gpt_cross_entropy(const gpt_machine *machine, size_t tokens, size_t vocabulary,
                         float *logits, const unsigned char *targets, float *losses)
{
    loss_work work = {tokens, vocabulary, logits, targets, losses};
    run(machine, cross_entropy_task, &work, tokens, TOKENS);
    double sum = 0;
    for (size_t t = 0; t < tokens; t++) {
        sum += (double)losses[t];
    }
    return sum / (double)tokens;
}
