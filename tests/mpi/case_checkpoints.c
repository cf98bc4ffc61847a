/*
 * case_checkpoints.c: what ranks save together is the file of one process, and any number of ranks
 * goes on from it.
 */
#include "cases.h"

#include <string.h>

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

void case_save(const char *path, model_kind kind)
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
void case_unsound(const char *path)
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
void case_resume(const char *path, int saved_by, model_kind kind)
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

/* State of f32 and of int8 become each other, in parts as in one process. */
void case_convert(const char *path)
{
    const model_kind kinds[2] = {MODEL_INT8, MODEL_BLOCKS};
    for (int from = 0; from < 2; from++) {
        model source, m, plain;
        model_make(&source, kinds[from], false);
        model_make(&m, kinds[1 - from], true);
        model_make(&plain, kinds[1 - from], false);
        plain_steps(&source, 0, SAVED_STEPS, 1);
        if (rank == 0) {
            CHECK_OK(muonium_save(source.optimizer, path));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        muonium_mpi *dist = create_on(MPI_COMM_WORLD, &m, NULL);
        CHECK_OK(muonium_mpi_load(dist, path));
        CHECK_OK(muonium_load(plain.optimizer, path));
        char again[512];
        snprintf(again, sizeof again, "%s.again", path);
        CHECK_OK(muonium_mpi_save(dist, again));
        check_file(again, &plain);
        muonium_mpi_destroy(dist);
        model_free(&source);
        model_free(&m);
        model_free(&plain);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
