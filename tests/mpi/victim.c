/*
 * victim.c: one rank sends itself a signal in a given phase; the others must return
 * MUONIUM_PEER, name it, and not take much longer than the deadline. They print a line each
 * and leave by _exit, as survivors of a broken job do.
 *
 *     victim PHASE SIGNAL RANK PATH     PATH is where a checkpoint goes
 */
#include "model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double deadline = 1.5;
static const char *phase;
static int rank, ranks, victim, signal_number;
static bool armed; /* the next call that belongs to the phase is the last */

static void fall(void)
{
    if (armed && rank == victim) {
        printf("victim %ld\n", (long)getpid());
        fflush(stdout);
        raise(signal_number);
    }
}

static bool in_phase(const char *name)
{
    return strcmp(phase, name) == 0;
}

int MPI_Iallreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    if (in_phase("create") || in_phase("load") || in_phase("stepping")) {
        fall();
    }
    return PMPI_Iallreduce(send, receive, count, type, op, comm, request);
}

int MPI_Ialltoallv(const void *send, const int *send_counts, const int *send_at,
                   MPI_Datatype send_type, void *receive, const int *receive_counts,
                   const int *receive_at, MPI_Datatype receive_type, MPI_Comm comm,
                   MPI_Request *request)
{
    static int calls;
    if (in_phase("gradients") && armed && calls++ == 3) {
        fall();
    }
    return PMPI_Ialltoallv(send, send_counts, send_at, send_type, receive, receive_counts,
                           receive_at, receive_type, comm, request);
}

int MPI_Iallgatherv(const void *send, int send_count, MPI_Datatype send_type, void *receive,
                    const int *receive_counts, const int *receive_at, MPI_Datatype receive_type,
                    MPI_Comm comm, MPI_Request *request)
{
    if (in_phase(send == MPI_IN_PLACE ? "verdict" : "updates")) {
        fall();
    }
    return PMPI_Iallgatherv(send, send_count, send_type, receive, receive_counts, receive_at,
                            receive_type, comm, request);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (in_phase("save") || in_phase("columns")) {
        fall();
    }
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All that a program does, until something fails. */
static muonium_status live(model *m, const char *path, double *begin)
{
    muonium_mpi_options o;
    muonium_mpi *dist = NULL;
    muonium_mpi_options_init(&o);
    o.deadline = deadline;
    o.bucket_bytes = 1 << 16;
    armed = in_phase("create");
    *begin = now();
    muonium_status status = muonium_mpi_create(MPI_COMM_WORLD, m->optimizer, &o, &dist);
    for (int step = 0; status == MUONIUM_OK && step < 3; step++) {
        model_gradients(m, rank, step);
        armed = step == 1 && !in_phase("save") && !in_phase("load");
        *begin = now();
        status = muonium_mpi_step(dist);
    }
    if (status == MUONIUM_OK) {
        armed = in_phase("save");
        *begin = now();
        status = muonium_mpi_save(dist, path);
    }
    if (status == MUONIUM_OK) {
        armed = in_phase("load");
        *begin = now();
        status = muonium_mpi_load(dist, path);
    }
    if (status == MUONIUM_PEER && dist) { /* from then on it fails at once */
        double again = now();
        status = muonium_mpi_step(dist);
        status = now() - again < deadline / 2 ? status : MUONIUM_INVALID;
        muonium_mpi_destroy(dist);
    }
    return status;
}

int main(int argc, char **argv)
{
    model m;
    double begin;
    char name[32];
    if (argc != 5) {
        return 2;
    }
    phase = argv[1];
    signal_number = strcmp(argv[2], "STOP") == 0 ? SIGSTOP : SIGKILL;
    victim = atoi(argv[3]);
    signal(SIGUSR1, SIG_IGN); /* by which MPICH's launcher tells of a death */
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    model_make(&m, in_phase("columns") ? MODEL_WIDE : MODEL_MIXED, true);
    muonium_status status = live(&m, argv[4], &begin);
    double took = now() - begin;
    snprintf(name, sizeof name, "rank %d did not", victim);
    bool good = status == MUONIUM_PEER && strstr(muonium_last_error(), name);
    printf("%s %d after %.1f of %.1f s: %s, %s\n", good ? "survivor" : "LOST", rank, took, deadline,
           muonium_status_name(status), muonium_last_error());
    fflush(stdout);
    _exit(good ? 0 : 1);
}
