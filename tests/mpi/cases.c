/*
 * cases.c: the cases of cases.h by name. Run under mpirun; every rank checks, and the program
 * fails if any does. Cases are named on the command line; see test_mpi.py.
 */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

int rank, ranks, failures;

/* ---- checks ---- */

void check_refused(muonium_status status, muonium_status expected, const char *part)
{
    CHECK(status == expected, "%s, \"%s\"", muonium_status_name(status), muonium_last_error());
    CHECK(status == MUONIUM_OK || strstr(muonium_last_error(), part), "\"%s\" lacks \"%s\"",
          muonium_last_error(), part);
}

void check_same(const model *a, const model *b, const char *label, int step)
{
    int differs = model_differs(a, b);
    CHECK(differs < 0, "%s, step %d: parameter %d differs", label, step, differs);
}

muonium_mpi *create_on(MPI_Comm comm, model *m, const muonium_mpi_options *options)
{
    muonium_mpi *dist = NULL;
    CHECK_OK(muonium_mpi_create(comm, m->optimizer, options, &dist));
    return dist;
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
} saved[] = {
    {"-wide", MODEL_WIDE}, {"-tall", MODEL_TALL}, {"-int8", MODEL_INT8}, {"", MODEL_NORMUON}};

static void run(const char *name, const char *path)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(name, cases[i].name) == 0) {
            cases[i].run();
            return;
        }
    }
    if (strcmp(name, "convert") == 0) {
        case_convert(path);
        return;
    }
    if (strcmp(name, "unsound") == 0) {
        case_unsound(path);
        return;
    }
    bool saves = strncmp(name, "save", 4) == 0;
    const char *rest = name + (saves ? 4 : 6);
    for (size_t i = 0;
         (saves || strncmp(name, "resume", 6) == 0) && i < sizeof saved / sizeof saved[0]; i++) {
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
    CHECK_OK(muonium_set_allocator(&counting_allocator));
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
