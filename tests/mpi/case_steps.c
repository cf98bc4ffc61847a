/*
 * case_steps.c: steps on any number of ranks are those of one process, bit for bit, also where
 * matrices are shared or numbers are not finite, and move and keep no more bytes than they must.
 */
#include "cases.h"

#include <math.h>
#include <string.h>

/* ---- equality ---- */

/* Announce gradients in an order of this rank's own. */
static void step_in_parts(muonium_mpi *dist, const model *m, int step)
{
    size_t count = muonium_parameter_count(m->optimizer);
    CHECK_OK(muonium_mpi_begin(dist));
    for (size_t i = 0; i < count; i++) {
        size_t k = (i * 5 + (size_t)(rank + step)) % count;
        if (k != 3) { /* one is left to the finish */
            CHECK_OK(muonium_mpi_ready(dist, k));
        }
        CHECK_OK(muonium_mpi_progress(dist));
    }
    CHECK_OK(muonium_mpi_finish(dist));
}

/* Steps on all ranks, by a plain optimizer and by one rank alone are the same bits. */
static void check_equal(const char *label, model_kind kind, const muonium_mpi_options *options,
                        bool in_parts)
{
    enum { STEPS = 4 };
    model all, alone, plain;
    model_make(&all, kind, true);
    model_make(&alone, kind, true);
    model_make(&plain, kind, false);
    muonium_mpi_options of_one = *options;
    of_one.half_gradients = false; /* was rounded when combined */
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &all, options);
    muonium_mpi *single = create_on(MPI_COMM_SELF, &alone, &of_one);
    bool exact = !(options->max_norm > 0) && !options->half_updates;
    for (int step = 0; dist && single && step < STEPS; step++) {
        if (step == 2) { /* rates change in the description alone */
            CHECK_OK(muonium_set_lr(all.optimizer, NULL, 0.005));
            CHECK_OK(muonium_set_lr(alone.optimizer, NULL, 0.005));
            CHECK_OK(muonium_set_lr(plain.optimizer, NULL, 0.005));
        }
        model_gradients(&all, rank, step);
        model_combined(&alone, ranks, step, options->sum, options->half_gradients);
        model_combined(&plain, ranks, step, options->sum, options->half_gradients);
        if (in_parts) {
            step_in_parts(dist, &all, step);
        } else {
            CHECK_OK(muonium_mpi_step(dist));
        }
        CHECK_OK(muonium_mpi_step(single));
        CHECK_OK(muonium_step(plain.optimizer));
        check_same(&all, &alone, label, step);
        if (exact) {
            check_same(&all, &plain, label, step);
        }
        CHECK(muonium_mpi_grad_norm(dist) == muonium_mpi_grad_norm(single), "%s", label);
    }
    muonium_counters a, b;
    CHECK_OK(muonium_mpi_count(dist, &a));
    CHECK_OK(muonium_count(plain.optimizer, &b));
    CHECK(a.steps == b.steps && a.matrices == b.matrices && a.skipped == b.skipped &&
              a.zero == b.zero && a.rescued == b.rescued && a.state_bytes == b.state_bytes,
          "%s: counters", label);
    muonium_mpi_destroy(dist);
    muonium_mpi_destroy(single);
    model_free(&all);
    model_free(&alone);
    model_free(&plain);
}

void case_equal(void)
{
    muonium_mpi_options o;
    muonium_mpi_options_init(&o);
    check_equal("mean", MODEL_MIXED, &o, false);
    check_equal("normuon", MODEL_NORMUON, &o, true);
    check_equal("nanochat", MODEL_NANOCHAT, &o, true);
    check_equal("dion2", MODEL_DION2, &o, true);
    check_equal("adamuon", MODEL_ADAMUON, &o, true);
    check_equal("muonh", MODEL_MUONH, &o, true);
    check_equal("int8", MODEL_INT8, &o, true);
    check_equal("int8 dion2", MODEL_INT8_DION2, &o, true);
    o.sum = true;
    o.chunk_bytes = 4096;
    o.bucket_bytes = 10000;
    small_only = true;
    check_equal("sum, small chunks", MODEL_MIXED, &o, true);
    small_only = false;
    o.half_gradients = true;
    o.max_norm = 0.5;
    check_equal("bf16 gradients, clipped", MODEL_MIXED, &o, false);
    o.half_updates = true;
    o.max_norm = 0;
    check_equal("bf16 updates", MODEL_NORMUON, &o, false);
}

/* ---- matrices cut by columns ---- */

/* A rank passes on each triangle at most twice, and little else. */
static void check_triangles(muonium_mpi *dist, model *m)
{
    muonium_mpi_share share = {0};
    CHECK_OK(muonium_mpi_plan_share(muonium_mpi_plan_of(dist), rank, &share));
    model_gradients(m, rank, 1);
    sent_bytes = 0;
    CHECK_OK(muonium_mpi_step(dist));
    uint64_t most = share.triangles * sizeof(float), sums = 2 * (2 * 40 + 2) * sizeof(double);
    CHECK(sent_bytes <= most + sums, "%llu of %llu", (unsigned long long)sent_bytes,
          (unsigned long long)most);
    CHECK(share.triangles == 0 || 2 * sent_bytes >= most, "%llu of %llu",
          (unsigned long long)sent_bytes, (unsigned long long)most);
}

void case_split(void)
{
    const struct {
        const char *label;
        model_kind kind;
    } kinds[] = {{"wide", MODEL_WIDE}, {"tall", MODEL_TALL}};
    for (size_t i = 0; i < 6; i++) {
        model_precision = i < 2 ? MUONIUM_F32 : i < 4 ? MUONIUM_FIXED23 : MUONIUM_FIXED15;
        muonium_mpi_options o;
        muonium_mpi_options_init(&o);
        check_equal(kinds[i % 2].label, kinds[i % 2].kind, &o, false);
        o.max_norm = 0.25;
        check_equal(kinds[i % 2].label, kinds[i % 2].kind, &o, true);
        if (ranks > 1) {
            model m;
            muonium_mpi_plan_info info = {0};
            model_make(&m, kinds[i % 2].kind, true);
            muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, &o);
            CHECK_OK(muonium_mpi_plan_describe(muonium_mpi_plan_of(dist), &info));
            CHECK(info.split == 1, "%zu", info.split);
            check_triangles(dist, &m);
            muonium_mpi_destroy(dist);
            model_free(&m);
        }
    }
    model_precision = MUONIUM_F32;
}

/* Matrices that memory holds transposed are not cut, however large. */
void case_in_out(void)
{
    muonium_mpi_options o;
    muonium_mpi_options_init(&o);
    check_equal("in_out", MODEL_IN_OUT, &o, false);
}

/* A matrix that lives split: close to the whole one, and the same on any division at blocks. */
void case_columns(void)
{
    enum { ROWS = 24, COLS = 3000 };
    static float whole[ROWS * COLS], expected[ROWS * COLS];
    muonium_shape shape = {1, ROWS, COLS};
    muonium_certificate of_whole, of_share = {.outcome = MUONIUM_SKIPPED};
    for (size_t i = 0; i < ROWS * COLS; i++) {
        whole[i] = (float)((i * 2654435761u >> 7) % 2001) * 1e-3f - 1;
    }
    muonium_view in = muonium_dense(MUONIUM_F32, shape, whole);
    muonium_view out = muonium_dense(MUONIUM_F32, shape, expected);
    CHECK_OK(muonium_orthogonalize(shape, NULL, &in, &out, &of_whole));
    size_t from = (size_t)rank * COLS / (size_t)ranks,
           to = (size_t)(rank + 1) * COLS / (size_t)ranks;
    muonium_mpi_columns *c = NULL;
    CHECK_OK(muonium_mpi_columns_create(MPI_COMM_WORLD, ROWS, to - from, NULL, 0, &c));
    in.data = out.data = whole + from; /* in place */
    CHECK_OK(muonium_mpi_columns_execute(c, &in, &out, &of_share));
    double worst = 0;
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t col = from; col < to; col++) {
            double d = fabs((double)whole[row * COLS + col] - (double)expected[row * COLS + col]);
            worst = d > worst ? d : worst;
        }
    }
    CHECK(worst <= 64 * 0x1p-24, "off by %g", worst); /* elements are about COLS^-1/2 */
    CHECK(fabs(of_share.bound - of_whole.bound) <= 1e-3 * (1 + of_whole.bound), "%g and %g",
          of_share.bound, of_whole.bound);
    whole[from] = rank == ranks - 1 ? NAN : whole[from];
    check_refused(muonium_mpi_columns_execute(c, &in, &out, NULL), MUONIUM_NON_FINITE,
                  "on some rank");
    muonium_mpi_columns_destroy(c);
    check_refused(muonium_mpi_columns_create(MPI_COMM_WORLD, 5000, to - from, NULL, 0, &c),
                  MUONIUM_INVALID, "longer side");
}

/* ---- bytes ---- */

void case_bytes(void)
{
    const struct {
        bool half_gradients, half_updates;
    } ways[] = {{false, false}, {true, true}};
    for (size_t i = 0; i < 2; i++) {
        muonium_mpi_options o;
        model m;
        muonium_mpi_options_init(&o);
        o.half_gradients = ways[i].half_gradients;
        o.half_updates = ways[i].half_updates;
        model_make(&m, MODEL_MIXED, true);
        muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, &o);
        model_gradients(&m, rank, 0);
        gradient_bytes = update_bytes = 0;
        CHECK_OK(muonium_mpi_step(dist));
        uint64_t sums[2] = {gradient_bytes, update_bytes};
        MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        double n = 0, returned = 0;
        for (size_t k = 0; k < MODEL_PARAMETERS; k++) {
            n += (double)m.elements[k];
            returned += (double)m.elements[k] * (o.half_updates || k > 10 ? 2 : 4);
        }
        double gradients = n * (ranks - 1) * (o.half_gradients ? 2 : 4);
        CHECK(fabs((double)sums[0] - gradients) <= 0.02 * gradients, "%g of %g", (double)sums[0],
              gradients);
        CHECK(fabs((double)sums[1] - returned * (ranks - 1)) <= 0.02 * returned * (ranks - 1),
              "%g of %g", (double)sums[1], returned * (ranks - 1));
        muonium_mpi_destroy(dist);
        model_free(&m);
    }
}

/* ---- values that are not finite ---- */

void case_nonfinite(void)
{
    model m, before;
    model_make(&m, MODEL_MIXED, true);
    model_make(&before, MODEL_MIXED, true);
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    model_gradients(&m, rank, 1);
    if (rank == ranks - 1) {
        size_t index;
        CHECK_OK(muonium_find(m.optimizer, "w.0", &index));
        ((float *)m.grads[index])[3 * 64 + 5] = NAN;
        CHECK_OK(muonium_set_grad(m.optimizer, index, m.grads[index]));
    }
    check_refused(muonium_mpi_step(dist), MUONIUM_NON_FINITE, "grad of w.0");
    CHECK(strstr(muonium_last_error(), "(3, 5)"), "%s", muonium_last_error());
    check_same(&m, &before, "after an error", 0);
    model_gradients(&m, rank, 1);
    CHECK_OK(muonium_mpi_step(dist)); /* and goes on */
    CHECK(model_differs(&m, &before) >= 0, "nothing moved");
    muonium_mpi_destroy(dist);
    model_free(&m);
    model_free(&before);
}

/* Momentum that overflows in the third step, by the gradients of one rank: all fail or skip it
 * alike, as one process does. */
enum { SIDE = 32 };

typedef struct pair {
    muonium_optimizer *optimizer;
    float data[2][SIDE * SIDE], grads[2][SIDE * SIDE];
} pair;

/* Only rank 0 has gradients that are not zero, so that their sum is what one process has. */
static void pair_make(pair *p, muonium_nonfinite policy, bool description)
{
    bool zero = description && rank != 0;
    muonium_options options;
    memset(p, 0, sizeof *p);
    CHECK_OK(muonium_options_init(&options, NULL));
    options.momentum_form = MUONIUM_MOMENTUM_SUM;
    options.momentum = 0.9;
    options.plan.nonfinite = policy;
    CHECK_OK(description ? muonium_create_description(&options, &p->optimizer)
                         : muonium_create(&options, &p->optimizer));
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < SIDE * SIDE; i++) {
            float value = k == 1 && i == 57 ? 1e38f : (float)((i * 7 + k) % 13) - 6;
            p->grads[k][i] = zero ? 0 : value;
        }
        muonium_tensor tensor = {.name = k ? "large" : "small",
                                 .ndim = 2,
                                 .shape = {SIDE, SIDE},
                                 .data = p->data[k],
                                 .grad = p->grads[k]};
        CHECK_OK(muonium_add(p->optimizer, &tensor, NULL));
    }
}

void case_overflow(void)
{
    static pair all, alone;
    muonium_mpi_options options;
    muonium_mpi_options_init(&options);
    options.sum = true;
    for (int policy = MUONIUM_NONFINITE_ERROR; policy <= MUONIUM_NONFINITE_SKIP; policy++) {
        pair_make(&all, (muonium_nonfinite)policy, true);
        pair_make(&alone, (muonium_nonfinite)policy, false);
        muonium_mpi *dist = NULL;
        CHECK_OK(muonium_mpi_create(MPI_COMM_WORLD, all.optimizer, &options, &dist));
        for (int step = 1; step <= 4; step++) {
            if (step == 3 && policy == MUONIUM_NONFINITE_ERROR) {
                check_refused(muonium_mpi_step(dist), MUONIUM_NON_FINITE, "momentum of large");
                CHECK(strstr(muonium_last_error(), "(1, 25)"), "%s", muonium_last_error());
                CHECK(muonium_step(alone.optimizer) == MUONIUM_NON_FINITE, "alone it went on");
            } else {
                CHECK_OK(muonium_mpi_step(dist));
                CHECK_OK(muonium_step(alone.optimizer));
            }
            alone.grads[1][57] = step < 3 ? 1e38f : -1e38f;
            all.grads[1][57] = rank == 0 ? alone.grads[1][57] : 0;
            CHECK(memcmp(all.data, alone.data, sizeof all.data) == 0, "step %d differs", step);
        }
        muonium_mpi_destroy(dist);
        muonium_destroy(all.optimizer);
        muonium_destroy(alone.optimizer);
    }
}

/* ---- memory ---- */

/* However large a bucket may be, a small model needs little memory. */
void case_bucket(void)
{
    model m;
    size_t elements = 0;
    muonium_mpi_options o;
    muonium_mpi_options_init(&o);
    o.bucket_bytes = SIZE_MAX;
    model_make(&m, MODEL_MIXED, true);
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) {
        elements += m.elements[i];
    }
    allocated = 0;
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, &o);
    /* Four buckets, to send and to receive, of the model at most. State, sums and tables of
     * all or less: four more. Scratch: 4 MB. */
    size_t bound = (8 + 4) * elements * sizeof(float) + ((size_t)4 << 20);
    CHECK(allocated <= bound, "%zu bytes for %zu elements", allocated, elements);
    model_gradients(&m, rank, 0);
    CHECK_OK(muonium_mpi_step(dist));
    muonium_mpi_destroy(dist);
    model_free(&m);
}
