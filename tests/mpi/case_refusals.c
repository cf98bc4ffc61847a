/*
 * case_refusals.c: what one rank does wrong, all are told: options, models and rates that differ,
 * memory that one rank lacks, calls at the wrong time. Nothing has changed afterwards.
 */
#include "cases.h"

#include <string.h>

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

void case_mismatch(void)
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

void case_rates(void)
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

void case_held(void)
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

void case_creation(void)
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

void case_misuse(void)
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
