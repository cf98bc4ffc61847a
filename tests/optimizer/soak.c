/*
 * soak.c: one process that trains for a long time: 200,000 steps of optimizers with random
 * recipes, options, shapes, types and threads, on gradients of every kind, with forks, saves
 * and loads on the way. Nothing may become non-finite, no memory may be lost and the process
 * may not grow.
 *
 *     soak [STEPS [SECONDS]]    how many steps, and in how much time they must be taken
 *
 * MUONIUM_TEST_SEED=N repeats a run.
 */
#include "test.h"

#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/half.h"

enum { MOST_PARAMETERS = 6, MOST_ELEMENTS = 2048, MOST_THREADS = 4 };

typedef struct counts {
    size_t steps, refused, optimizers, excluded, saves, forks, rescued, skipped;
} counts;

typedef struct tensor {
    muonium_tensor is;
    size_t elements;
    union {
        float f32[MOST_ELEMENTS];
        uint16_t half[MOST_ELEMENTS];
    } data, grad;
} tensor;

typedef struct life {
    muonium_optimizer *optimizer;
    muonium_options options;
    double lr; /* set since; negative: that of the options */
    size_t count;
    tensor tensors[MOST_PARAMETERS];
    char names[MOST_PARAMETERS][24];
} life;

static atomic_llong held; /* bytes that the library has from us and has not given back */

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)context;
    if (posix_memalign(&memory, alignment, bytes) != 0) {
        return NULL;
    }
    atomic_fetch_add(&held, (long long)malloc_usable_size(memory));
    return memory;
}

static void release(void *context, void *memory)
{
    (void)context;
    atomic_fetch_sub(&held, (long long)malloc_usable_size(memory));
    free(memory);
}

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "soak: " __VA_ARGS__);                                                 \
            fprintf(stderr, " (%s; MUONIUM_TEST_SEED=%llu; last error \"%s\")\n", #condition,      \
                    (unsigned long long)test_seed(), muonium_last_error());                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static size_t resident_bytes(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%llu %llu", &pages, &resident) != 2) {
        resident = 0;
    }
    if (file) {
        fclose(file);
    }
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- random optimizers ---- */

static bool one_in(test_rng *rng, size_t chances)
{
    return test_below(rng, chances) == 0;
}

static muonium_options any_options(test_rng *rng)
{
    muonium_options o;
    size_t recipes = 0;
    while (muonium_recipe_name((int)recipes)) {
        recipes++;
    }
    REQUIRE(muonium_options_init(&o, muonium_recipe_name((int)test_below(rng, recipes))) ==
                MUONIUM_OK,
            "no recipe");
    o.lr = pow(10, test_uniform(rng, -4, 0));
    o.weight_decay = one_in(rng, 2) ? 0 : test_uniform(rng, 0, 0.5);
    o.momentum = test_uniform(rng, 0, 0.99);
    o.nesterov = one_in(rng, 2);
    o.decay = (muonium_decay)test_below(rng, 4);
    o.scale = (muonium_scale)test_below(rng, 5);
    o.normuon = one_in(rng, 4);
    o.equilibrate ^= one_in(rng, 6);
    o.renormalize ^= one_in(rng, 6);
    o.adamuon ^= one_in(rng, 8);
    o.hyperball ^= one_in(rng, 8);
    o.state_dtype = (muonium_dtype[]){MUONIUM_F32, MUONIUM_BF16, MUONIUM_INT8}[test_below(rng, 3)];
    o.adam_state_dtype = one_in(rng, 3) ? MUONIUM_INT8 : MUONIUM_F32;
    o.state_stochastic = o.state_dtype == MUONIUM_INT8 && one_in(rng, 2);
    o.master = one_in(rng, 3);
    o.stochastic_rounding = one_in(rng, 3);
    o.plan.nonfinite = one_in(rng, 2) ? MUONIUM_NONFINITE_ERROR : MUONIUM_NONFINITE_SKIP;
    o.plan.precision = (muonium_dtype)test_below(rng, 6);
    if (one_in(rng, 4)) {
        o.plan.coefficients = "cans";
        o.plan.steps = 1 + (int)test_below(rng, 12);
    }
    if (o.lr > 0 && one_in(rng, 3)) {
        o.adam = (muonium_adam_kind)test_below(rng, 3);
    }
    return o;
}

static void any_tensor(test_rng *rng, life *l)
{
    static const size_t shapes[][4] = {{2, 8, 8, 0},   {2, 12, 33, 0}, {2, 40, 20, 0},
                                       {2, 5, 128, 0}, {3, 3, 10, 12}, {1, 700, 0, 0},
                                       {0, 0, 0, 0},   {2, 4, 4, 0}};
    size_t number = l->count++;
    tensor *t = &l->tensors[number];
    const size_t *shape = shapes[test_below(rng, sizeof shapes / sizeof shapes[0])];
    muonium_dtype dtype = (muonium_dtype[]){MUONIUM_F32, MUONIUM_BF16,
                                            MUONIUM_F16}[one_in(rng, 2) ? 0 : test_below(rng, 3)];
    snprintf(l->names[number], sizeof l->names[number], "w%zu", number);
    t->is = (muonium_tensor){.name = l->names[number],
                             .dtype = dtype,
                             .ndim = shape[0],
                             .data = &t->data,
                             .grad = &t->grad};
    t->elements = 1;
    for (size_t d = 0; d < shape[0]; d++) {
        t->is.shape[d] = shape[d + 1];
        t->elements *= shape[d + 1];
    }
    t->is.layout = shape[0] == 3 ? MUONIUM_LAYOUT_EXPERTS : MUONIUM_LAYOUT_AUTO;
    bool even = shape[0] == 2 && shape[1] % 2 == 0 && shape[2] % 2 == 0; /* rows may be either */
    t->is.heads = even && one_in(rng, 4) ? 2 : 0;
}

static void put(tensor *t, bool grad, size_t i, float value)
{
    if (t->is.dtype == MUONIUM_F32) {
        (grad ? t->grad.f32 : t->data.f32)[i] = value;
    } else {
        (grad ? t->grad.half : t->data.half)[i] = mu_half_from_f32(t->is.dtype, value);
    }
}

static float weight(const tensor *t, size_t i)
{
    return t->is.dtype == MUONIUM_F32 ? t->data.f32[i]
                                      : mu_f32_from_half(t->is.dtype, t->data.half[i]);
}

/* False, with the message that says why, if these options exclude each other or a tensor. */
static bool try_to_begin(test_rng *rng, life *l)
{
    l->options = any_options(rng);
    l->lr = -1;
    l->count = 0;
    l->optimizer = NULL;
    muonium_status status = muonium_create(&l->options, &l->optimizer);
    size_t wanted = 1 + test_below(rng, MOST_PARAMETERS);
    while (status == MUONIUM_OK && l->count < wanted) {
        any_tensor(rng, l);
        tensor *t = &l->tensors[l->count - 1];
        for (size_t i = 0; i < t->elements; i++) {
            put(t, false, i, (float)test_normal(rng));
        }
        status = muonium_add(l->optimizer, &t->is, NULL);
    }
    if (status != MUONIUM_OK) {
        muonium_destroy(l->optimizer);
    }
    REQUIRE(status == MUONIUM_OK || (status == MUONIUM_INVALID && *muonium_last_error()),
            "options were refused with status %d", (int)status);
    return status == MUONIUM_OK;
}

static void begin(test_rng *rng, life *l, counts *c)
{
    while (!try_to_begin(rng, l)) {
        c->excluded++;
        REQUIRE(c->excluded <= 2 * c->optimizers + 100, "too many options exclude each other");
    }
}

/* ---- gradients ---- */

/* Noise, rank 1, zero, one element, tiny, huge; rarely NaN or infinity. True: all finite. */
static bool any_gradient(test_rng *rng, tensor *t)
{
    size_t kind = test_below(rng, 7), cols = t->is.ndim > 0 ? t->is.shape[t->is.ndim - 1] : 1;
    double scale = kind == 4 ? 1e-30 : kind == 5 && t->is.dtype != MUONIUM_F16 ? 1e37 : 1;
    for (size_t i = 0; i < t->elements; i++) {
        double value = kind == 1   ? (double)(i / cols % 5) - 1
                       : kind == 2 ? 0
                       : kind == 3 ? (double)(i == t->elements / 2)
                                   : test_normal(rng);
        put(t, true, i, (float)(scale * value));
    }
    if (one_in(rng, 60)) {
        put(t, true, test_below(rng, t->elements), one_in(rng, 2) ? NAN : -INFINITY);
        return false;
    }
    return true;
}

/* What may be refused: gradients that are not finite, and momentum that huge ones overflow. */
static void step(test_rng *rng, life *l, counts *c)
{
    for (size_t k = 0; k < l->count; k++) {
        any_gradient(rng, &l->tensors[k]);
        bool missing = one_in(rng, 20);
        REQUIRE(muonium_set_grad(l->optimizer, k, missing ? NULL : &l->tensors[k].grad) ==
                    MUONIUM_OK,
                "a gradient was refused");
    }
    muonium_status status = muonium_step(l->optimizer);
    REQUIRE(status == MUONIUM_OK || (status == MUONIUM_NON_FINITE &&
                                     l->options.plan.nonfinite == MUONIUM_NONFINITE_ERROR),
            "a step failed");
    c->steps++;
    c->refused += status != MUONIUM_OK;
    for (size_t k = 0; k < l->count; k++) {
        for (size_t i = 0; i < l->tensors[k].elements; i++) {
            REQUIRE(isfinite(weight(&l->tensors[k], i)), "weight %zu of %s is %g after step %zu", i,
                    l->names[k], (double)weight(&l->tensors[k], i), c->steps);
        }
    }
}

/* ---- events ---- */

/* A child goes on with its copy and ends: the parent must not notice. */
static void fork_and_step(test_rng *rng, life *l, counts *c)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0, "cannot fork");
    if (child == 0) {
        alarm(60);
        for (int i = 0; i < 3; i++) {
            step(rng, l, c);
        }
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "a child failed");
    c->forks++;
}

typedef struct file {
    char *bytes;
    size_t count, room;
} file;

static bool append(void *context, const void *data, size_t bytes)
{
    file *f = context;
    if (f->count + bytes > f->room) {
        f->room = 2 * (f->count + bytes);
        f->bytes = realloc(f->bytes, f->room);
    }
    if (!f->bytes) {
        return false;
    }
    memcpy(f->bytes + f->count, data, bytes);
    f->count += bytes;
    return true;
}

/* Save, and go on with a new optimizer that has loaded it; saving that gives the same bytes. */
static void save_and_load(life *l, counts *c)
{
    file saved = {0}, again = {0};
    muonium_reader *reader;
    muonium_optimizer *other;
    REQUIRE(muonium_save_to(l->optimizer, append, &saved) == MUONIUM_OK, "saving failed");
    REQUIRE(muonium_create(&l->options, &other) == MUONIUM_OK, "options were refused");
    for (size_t k = 0; k < l->count; k++) {
        REQUIRE(muonium_add(other, &l->tensors[k].is, NULL) == MUONIUM_OK, "a tensor was refused");
    }
    REQUIRE(l->lr < 0 || muonium_set_lr(other, NULL, l->lr) == MUONIUM_OK, "lr was refused");
    REQUIRE(muonium_reader_open_memory(saved.bytes, saved.count, &reader) == MUONIUM_OK &&
                muonium_load_reader(other, reader, NULL, NULL) == MUONIUM_OK,
            "what was saved cannot be loaded");
    muonium_reader_close(reader);
    REQUIRE(muonium_save_to(other, append, &again) == MUONIUM_OK && again.count == saved.count &&
                memcmp(again.bytes, saved.bytes, saved.count) == 0,
            "what was loaded is saved as something else");
    muonium_destroy(l->optimizer);
    l->optimizer = other;
    free(saved.bytes);
    free(again.bytes);
    c->saves++;
}

static void live(test_rng *rng, counts *c)
{
    static life l;
    begin(rng, &l, c);
    for (size_t left = 20 + test_below(rng, 380); left > 0; left--) {
        step(rng, &l, c);
        if (one_in(rng, 100)) {
            REQUIRE(muonium_set_threads((int)test_below(rng, MOST_THREADS + 1)) == MUONIUM_OK,
                    "threads were refused");
        }
        if (one_in(rng, 400)) {
            fork_and_step(rng, &l, c);
        }
        if (one_in(rng, 60)) {
            save_and_load(&l, c);
        }
        if (one_in(rng, 50)) {
            l.lr = pow(10, test_uniform(rng, -4, 0));
            REQUIRE(muonium_set_lr(l.optimizer, NULL, l.lr) == MUONIUM_OK, "lr was refused");
        }
    }
    muonium_counters counters;
    REQUIRE(muonium_count(l.optimizer, &counters) == MUONIUM_OK, "no counters");
    c->rescued += counters.rescued;
    c->skipped += counters.skipped;
    c->optimizers++;
    muonium_destroy(l.optimizer);
}

int main(int argc, char **argv)
{
    size_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, warm = 0, most = 0;
    double limit = argc > 2 ? strtod(argv[2], NULL) : 600, began = seconds_now();
    test_rng rng = test_rng_start("soak");
    counts c = {0};
    long long base = -1;
    muonium_allocator counting = {allocate, release, NULL};
    if (muonium_set_allocator(&counting) != MUONIUM_OK) {
        return 2;
    }
    while (c.steps < steps) {
        live(&rng, &c);
        REQUIRE(muonium_set_threads(MOST_THREADS) == MUONIUM_OK, "threads were refused");
        base = base < 0 ? atomic_load(&held) : base;
        REQUIRE(atomic_load(&held) == base, "%lld bytes are held without an optimizer, first %lld",
                (long long)atomic_load(&held), base);
        if (c.steps >= steps / 4) { /* everything that is kept for later is there by now */
            malloc_trim(0);
            size_t now = resident_bytes();
            warm = warm ? warm : now;
            most = now > most ? now : most;
        }
        REQUIRE(seconds_now() - began < limit, "%zu steps took more than %g s", c.steps, limit);
    }
    printf("soak: %zu steps of %zu optimizers, %zu excluded, %zu refused, %zu parameters skipped, "
           "%zu matrices "
           "rescued, %zu saves, %zu forks; %.1f MB resident, at most %.1f; %.0f s\n",
           c.steps, c.optimizers, c.excluded, c.refused, c.skipped, c.rescued, c.saves, c.forks,
           (double)warm / 1e6, (double)most / 1e6, seconds_now() - began);
#ifndef TEST_SANITIZED /* which keeps freed memory for a while */
    REQUIRE(most < warm + ((size_t)1 << 20), "the process has grown");
#endif
    REQUIRE(c.refused > 0 && c.rescued > 0 && c.saves > 0 && c.forks > 0 && c.skipped > 0,
            "something was never tried");
    return 0;
}
