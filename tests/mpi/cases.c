/*
 * cases.c: what must hold on any number of ranks. Run under mpirun; every rank checks, and
 * the program fails if any does. Cases are named on the command line; see test_mpi.py.
 */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, failures;

#include "checks.h"
#include "interposed.h"

static muonium_mpi *create_on(MPI_Comm comm, model *m, const muonium_mpi_options *options)
{
    muonium_mpi *dist = NULL;
    CHECK_OK(muonium_mpi_create(comm, m->optimizer, options, &dist));
    return dist;
}

static void check_same(const model *a, const model *b, const char *label, int step)
{
    int differs = model_differs(a, b);
    CHECK(differs < 0, "%s, step %d: parameter %d differs", label, step, differs);
}

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

static void case_equal(void)
{
    muonium_mpi_options o;
    muonium_mpi_options_init(&o);
    check_equal("mean", MODEL_MIXED, &o, false);
    check_equal("normuon", MODEL_NORMUON, &o, true);
    check_equal("nanochat", MODEL_NANOCHAT, &o, true);
    check_equal("dion2", MODEL_DION2, &o, true);
    check_equal("adamuon", MODEL_ADAMUON, &o, true);
    check_equal("muonh", MODEL_MUONH, &o, true);
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

static void case_split(void)
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
static void case_in_out(void)
{
    muonium_mpi_options o;
    muonium_mpi_options_init(&o);
    check_equal("in_out", MODEL_IN_OUT, &o, false);
}

/* A matrix that lives split: close to the whole one, and the same on any division at blocks. */
static void case_columns(void)
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

static void case_bytes(void)
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

static void case_nonfinite(void)
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

static void case_overflow(void)
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

/* ---- what differs between ranks ---- */

static void expect_mismatch(muonium_optimizer *o, const muonium_mpi_options *options,
                            const char *part)
{
    muonium_mpi *dist = NULL;
    muonium_status status = muonium_mpi_create(MPI_COMM_WORLD, o, options, &dist);
    if (ranks > 1) {
        check_refused(status, MUONIUM_INVALID, part);
    } else {
        CHECK_OK(status);
    }
    muonium_mpi_destroy(dist);
}

static void case_mismatch(void)
{
    static float memory[3][64 * 64];
    bool last = rank == ranks - 1;
    muonium_mpi_options mpi;
    muonium_mpi_options_init(&mpi);
    for (int what = 0; what < 6; what++) {
        muonium_options options;
        muonium_optimizer *o;
        CHECK_OK(muonium_options_init(&options, NULL));
        options.momentum = what == 1 && last ? 0.5 : 0.9;
        CHECK_OK(muonium_create_description(&options, &o));
        muonium_tensor a = {.name = what == 2 && last ? "b" : "a",
                            .ndim = 2,
                            .shape = {32, what == 3 && last ? 48 : 64},
                            .data = memory[0]};
        muonium_tensor c = {.name = "c", .ndim = 1, .shape = {64}, .data = memory[1]};
        CHECK_OK(muonium_add(o, &a, NULL));
        if (!(what == 4 && last)) {
            CHECK_OK(muonium_add(o, &c, NULL));
        }
        mpi.max_norm = what == 0 && last ? 2 : 1;
        const char *const parts[] = {"max_norm of muonium_mpi_options",
                                     "momentum of group 0",
                                     "parameter 0 is \"a\"",
                                     "shape 32 48",
                                     "parameters in",
                                     ""};
        if (what < 5) {
            expect_mismatch(o, &mpi, parts[what]);
        } else { /* what one rank alone does wrong, all are told */
            mpi.deadline = last ? -1 : 100;
            muonium_mpi *dist = NULL;
            check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, &mpi, &dist), MUONIUM_INVALID,
                          "deadline is -1");
        }
        muonium_destroy(o);
    }
}

/* ---- rates that one rank changes ---- */

static void expect_disagreement(muonium_mpi *dist, model *m, const model *before, const char *part)
{
    model_gradients(m, rank, 0);
    muonium_status status = muonium_mpi_step(dist);
    if (ranks > 1) {
        check_refused(status, MUONIUM_INVALID, part);
        check_same(m, before, part, 0);
    }
}

static void case_rates(void)
{
    model m, before;
    bool last = rank == ranks - 1;
    model_make(&m, MODEL_MIXED, true);
    model_make(&before, MODEL_MIXED, true);
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    if (ranks > 1) {
        CHECK_OK(muonium_set_lr(m.optimizer, NULL, last ? 0.03 : 0.02));
        expect_disagreement(dist, &m, &before, "lr of group 0 is 0.02 on rank 0");
        CHECK_OK(muonium_set_lr(m.optimizer, NULL, 0.02));
        CHECK_OK(muonium_set_weight_decay(m.optimizer, NULL, last ? 0 : 0.1));
        expect_disagreement(dist, &m, &before, "weight_decay of group 0");
        CHECK_OK(muonium_set_weight_decay(m.optimizer, NULL, 0.1));
        CHECK_OK(muonium_set_momentum(m.optimizer, NULL, last ? 0.5 : 0.9));
        expect_disagreement(dist, &m, &before, "momentum of group 0");
        CHECK_OK(muonium_set_momentum(m.optimizer, NULL, 0.9));
    }
    model_gradients(&m, rank, 0);
    CHECK_OK(muonium_mpi_step(dist)); /* and goes on */
    CHECK(model_differs(&m, &before) >= 0, "nothing moved");
    muonium_mpi_destroy(dist);
    model_free(&m);
    model_free(&before);
}

/* ---- a description in use ---- */

static void case_held(void)
{
    static float memory[64];
    const muonium_tensor more = {.name = "more", .ndim = 1, .shape = {64}, .data = memory};
    model m;
    muonium_group *group;
    model_make(&m, MODEL_MIXED, true);
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    check_refused(muonium_add(m.optimizer, &more, NULL), MUONIUM_INVALID, "muonium_mpi_destroy");
    check_refused(muonium_add_group(m.optimizer, NULL, &group), MUONIUM_INVALID,
                  "muonium_mpi_destroy");
    muonium_destroy(m.optimizer); /* does nothing */
    model_gradients(&m, rank, 0);
    CHECK_OK(muonium_mpi_step(dist));
    muonium_mpi_destroy(dist);
    CHECK_OK(muonium_add(m.optimizer, &more, NULL));
    model_free(&m);
}

/* ---- creation that fails on one rank ---- */

/* Every allocation fails once, with all after it, on the last rank: all are told. */
static void fail_allocations(muonium_optimizer *o, const muonium_mpi_options *options)
{
    muonium_status status = MUONIUM_NO_MEMORY;
    for (long after = 0; status == MUONIUM_NO_MEMORY; after++) {
        muonium_mpi *dist = NULL;
        fail_after = rank == ranks - 1 ? after : -1;
        status = muonium_mpi_create(MPI_COMM_WORLD, o, options, &dist);
        fail_after = -1;
        CHECK(status == MUONIUM_NO_MEMORY || status == MUONIUM_OK, "after %ld: %s, %s", after,
              muonium_status_name(status), muonium_last_error());
        muonium_mpi_destroy(dist);
    }
}

/* Options of a program that was compiled with an older header: fields at the end of both structs
 * are missing, and the fields after the plan lie elsewhere. */
static void older_program(muonium_optimizer *o)
{
    struct older_options {
        size_t struct_size;
        struct {
            size_t struct_size;
            double flops;
        } plan;
        bool sum, half_gradients, half_updates;
        double max_norm, deadline;
    } older, before;
    muonium_mpi_options *given = (muonium_mpi_options *)(void *)&older;
    muonium_mpi *dist = NULL;
    CHECK_OK(muonium_mpi_options_init_sized(given, sizeof older, sizeof older.plan));
    CHECK(older.struct_size == sizeof older && older.plan.struct_size == sizeof older.plan &&
              older.plan.flops == 2e11 && !older.sum && older.max_norm == 0 &&
              older.deadline == 300,
          "defaults of an older program");
    older.plan.flops = 1e12;
    older.deadline = 20;
    CHECK_OK(muonium_mpi_create(MPI_COMM_WORLD, o, given, &dist));
    muonium_mpi_destroy(dist);
    older.deadline = -2;
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, given, &dist), MUONIUM_INVALID,
                  "deadline is -2");
    older.deadline = 20;
    older.plan.flops = -3;
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, given, &dist), MUONIUM_INVALID,
                  "flops is -3");
    before = older;
    check_refused(muonium_mpi_options_init_sized(given, 3, sizeof older.plan), MUONIUM_INVALID,
                  "struct_size of muonium_mpi_options is 3");
    check_refused(muonium_mpi_options_init_sized(given, sizeof older, 4096), MUONIUM_INVALID,
                  "struct_size of muonium_mpi_options.plan is 4096");
    check_refused(muonium_mpi_options_init_sized(NULL, sizeof older, sizeof older.plan),
                  MUONIUM_INVALID, "options is NULL");
    CHECK(memcmp(&before, &older, sizeof older) == 0, "a refused call wrote");
}

static void case_creation(void)
{
    static float memory[2][64 * 32];
    const muonium_tensor tensors[] = {
        {.name = "w", .ndim = 2, .shape = {64, 32}, .data = memory[0], .grad = memory[1]},
    };
    bool last = rank == ranks - 1;
    muonium_mpi *dist = NULL;
    muonium_mpi_columns *columns = NULL;
    muonium_optimizer *o;
    muonium_mpi_options options;
    muonium_mpi_options_init(&options);
    options.deadline = 20; /* which only a fault waits for */
    CHECK_OK(muonium_create_description(NULL, &o));
    CHECK_OK(muonium_add(o, &tensors[0], NULL));
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, &options, last ? NULL : &dist),
                  MUONIUM_INVALID, "distributed is NULL");
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, last ? NULL : o, &options, &dist),
                  MUONIUM_INVALID, "description is NULL");
    options.struct_size = last ? 3 : sizeof options;
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, &options, &dist), MUONIUM_INVALID,
                  "struct_size");
    options.struct_size = sizeof options;
    options.plan.struct_size = last ? 3 : sizeof options.plan;
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, o, &options, &dist), MUONIUM_INVALID,
                  "struct_size of muonium_mpi_options.plan");
    options.plan.struct_size = sizeof options.plan;
    older_program(o);
    check_refused(
        muonium_mpi_columns_create(MPI_COMM_WORLD, 4, 8, NULL, 20, last ? NULL : &columns),
        MUONIUM_INVALID, "columns is NULL");
    fail_allocations(o, &options);
    MPI_Errhandler handler; /* the caller's communicator is as it was */
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL, "the error handler has changed");
    muonium_destroy(o);
}

/* However large a bucket may be, a small model needs little memory. */
static void case_bucket(void)
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

/* ---- checkpoints ---- */

enum { SAVED_STEPS = 3, MORE_STEPS = 2 };

/* The file that a plain process writes after the same steps; rank 0 compares. */
static void check_file(const char *path, const model *plain)
{
    char expected_path[512];
    snprintf(expected_path, sizeof expected_path, "%s.plain", path);
    if (rank != 0) {
        return;
    }
    CHECK_OK(muonium_save(plain->optimizer, expected_path));
    FILE *a = fopen(path, "rb"), *b = fopen(expected_path, "rb");
    CHECK(a && b, "cannot open %s", path);
    int x = 0, y = 0;
    long at = 0;
    while (a && b && x == y && x != EOF) {
        x = fgetc(a);
        y = fgetc(b);
        at++;
    }
    CHECK(x == y, "%s: byte %ld differs from that of one process", path, at);
    if (a) {
        fclose(a);
    }
    if (b) {
        fclose(b);
    }
}

/* Steps in which as many ranks as `of` took part, whatever there are now. */
static void plain_steps(model *plain, int from, int to, int of)
{
    for (int step = from; step < to; step++) {
        model_combined(plain, of, step, false, false);
        CHECK_OK(muonium_step(plain->optimizer));
    }
}

static void case_save(const char *path, model_kind kind)
{
    model m, plain;
    model_make(&m, kind, true);
    model_make(&plain, kind, false);
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    for (int step = 0; step < SAVED_STEPS; step++) {
        model_gradients(&m, rank, step);
        CHECK_OK(muonium_mpi_step(dist));
    }
    plain_steps(&plain, 0, SAVED_STEPS, ranks);
    CHECK_OK(muonium_mpi_save(dist, path));
    check_file(path, &plain);
    /* A directory that does not exist: all are told, and can go on. */
    check_refused(muonium_mpi_save(dist, "/nonexistent/directory/file"), MUONIUM_IO, "nonexistent");
    CHECK_OK(muonium_mpi_save(dist, path));
    muonium_mpi_destroy(dist);
    model_free(&m);
    model_free(&plain);
}

/* Weights that are not finite get into their master copy, which one rank has: no load would
 * take that, so nobody saves it, and all are told. */
static void case_unsound(const char *path)
{
    static const uint16_t nan = 0x7fc0;
    model m;
    model_make(&m, MODEL_NORMUON, true);
    size_t number;
    CHECK_OK(muonium_find(m.optimizer, "h.w", &number));
    memcpy((char *)m.data[number] + 10 * sizeof nan, &nan, sizeof nan);
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    for (int step = 0; step < SAVED_STEPS; step++) {
        model_gradients(&m, rank, step);
        CHECK_OK(muonium_mpi_step(dist));
    }
    remove(path);
    check_refused(muonium_mpi_save(dist, path), MUONIUM_NON_FINITE,
                  "saving: master of \"h.w\" is nan at element 10: nothing was saved");
    FILE *file = fopen(path, "r");
    CHECK(file == NULL, "%s was written", path);
    if (file) {
        fclose(file);
    }
    muonium_mpi_destroy(dist);
    model_free(&m);
}

/* Go on, with any number of ranks, from what `saved_by` ranks saved. */
static void case_resume(const char *path, int saved_by, model_kind kind)
{
    model m, plain;
    model_make(&m, kind, true);
    model_make(&plain, kind, false);
    plain_steps(&plain, 0, SAVED_STEPS, saved_by);
    for (size_t i = 0; i < MODEL_PARAMETERS; i++) { /* parameters are the caller's to keep */
        if (m.bytes[i] > 0) {
            memcpy(m.data[i], plain.data[i], m.bytes[i]);
        }
    }
    muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
    check_refused(muonium_mpi_load(dist, "/nonexistent/file"), MUONIUM_IO, "nonexistent");
    CHECK_OK(muonium_mpi_load(dist, path));
    for (int step = SAVED_STEPS; step < SAVED_STEPS + MORE_STEPS; step++) {
        model_gradients(&m, rank, step);
        CHECK_OK(muonium_mpi_step(dist));
    }
    plain_steps(&plain, SAVED_STEPS, SAVED_STEPS + MORE_STEPS, ranks);
    check_same(&m, &plain, "resumed", 0);
    char again[512];
    snprintf(again, sizeof again, "%s.again", path);
    CHECK_OK(muonium_mpi_save(dist, again));
    check_file(again, &plain);
    muonium_mpi_destroy(dist);
    model_free(&m);
    model_free(&plain);
}

/* ---- misuse and report ---- */

static void count_line(void *context, const char *line)
{
    (void)line;
    ++*(size_t *)context;
}

/* A callback can do nothing with the object that it was called for. */
static void use_within(void *context, const char *line)
{
    muonium_mpi *dist = *(muonium_mpi **)context;
    (void)line;
    check_refused(muonium_mpi_step(dist), MUONIUM_INVALID, "a callback of muonium_mpi_report");
    muonium_mpi_destroy(dist);
}

static void case_misuse(void)
{
    model m;
    muonium_mpi *dist = NULL;
    size_t lines = 0;
    muonium_optimizer *real;
    muonium_mpi_plan_info info = {0};
    model_make(&m, MODEL_MIXED, true);
    CHECK_OK(muonium_create(NULL, &real));
    check_refused(muonium_mpi_create(MPI_COMM_WORLD, real, NULL, &dist), MUONIUM_INVALID,
                  "muonium_create_description");
    check_refused(muonium_mpi_step(NULL), MUONIUM_INVALID, "distributed is NULL");
    dist = create_on(MPI_COMM_WORLD, &m, NULL);
    check_refused(muonium_mpi_ready(dist, 0), MUONIUM_INVALID, "muonium_mpi_begin");
    check_refused(muonium_mpi_finish(dist), MUONIUM_INVALID, "muonium_mpi_begin");
    model_gradients(&m, rank, 0);
    CHECK_OK(muonium_mpi_begin(dist));
    check_refused(muonium_mpi_begin(dist), MUONIUM_INVALID, "in progress");
    check_refused(muonium_mpi_ready(dist, 1000), MUONIUM_INVALID, "parameter is 1000");
    CHECK_OK(muonium_mpi_ready(dist, 2));
    check_refused(muonium_mpi_ready(dist, 2), MUONIUM_INVALID, "announced before");
    CHECK_OK(muonium_mpi_finish(dist));
    CHECK_OK(muonium_mpi_report(dist, count_line, &lines));
    CHECK_OK(muonium_mpi_report(dist, use_within, &dist));
    CHECK_OK(muonium_mpi_plan_describe(muonium_mpi_plan_of(dist), &info));
    CHECK(lines == 1 + (size_t)ranks + info.pieces, "%zu lines", lines);
    muonium_mpi_destroy(dist);
    muonium_mpi_destroy(NULL);
    muonium_destroy(real);
    model_free(&m);
}

/* ---- the cases by name ---- */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"equal", case_equal},       {"in_out", case_in_out},     {"split", case_split},
    {"columns", case_columns},   {"bytes", case_bytes},       {"nonfinite", case_nonfinite},
    {"overflow", case_overflow}, {"mismatch", case_mismatch}, {"misuse", case_misuse},
    {"rates", case_rates},       {"held", case_held},         {"creation", case_creation},
    {"bucket", case_bucket},
};

/* Those with a file: the suffix of their name, and the model. */
static const struct {
    const char *suffix;
    model_kind kind;
} saved[] = {{"-wide", MODEL_WIDE}, {"-tall", MODEL_TALL}, {"", MODEL_NORMUON}};

static void run(const char *name, const char *path)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(name, cases[i].name) == 0) {
            cases[i].run();
            return;
        }
    }
    if (strcmp(name, "unsound") == 0) {
        case_unsound(path);
        return;
    }
    bool saves = strncmp(name, "save", 4) == 0;
    const char *rest = name + (saves ? 4 : 6);
    for (size_t i = 0; (saves || strncmp(name, "resume", 6) == 0) && i < 3; i++) {
        size_t length = strlen(saved[i].suffix);
        if (strncmp(rest, saved[i].suffix, length) == 0) {
            if (saves) {
                case_save(path, saved[i].kind);
            } else {
                case_resume(path, atoi(rest + length), saved[i].kind);
            }
            return;
        }
    }
    CHECK(false, "no case is named %s", name);
}

/* cases PATH CASE...: PATH is where checkpoints go. */
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK_OK(muonium_set_allocator(&(muonium_allocator){allocate, release, NULL}));
    for (int i = 2; i < argc; i++) {
        run(argv[i], argv[1]);
    }
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks, %d cases: %s\n", ranks, argc - 2, failures == 0 ? "passed" : "FAILED");
    }
    MPI_Finalize();
    return failures == 0 ? 0 : 1;
}
