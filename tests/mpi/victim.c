/*
 * victim.c: one rank sends itself a signal in a given phase; the others must return
 * MUONIUM_PEER, name it, and not take much longer than the deadline. They print a line each
 * and leave by _exit, as survivors of a broken job do.
 *
 *     victim PHASE SIGNAL RANK PATH     PATH is where a checkpoint goes
 *
 * In the phase "late" it comes to the creation when the others have given up, and must be
 * told so; in "absent" it has no communicator. It then prints a line that begins with "late".
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

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    if (in_phase("connect")) {
        fall();
    }
    return PMPI_Comm_idup(comm, copy, request);
}

int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
    if (in_phase("compare")) {
        fall();
    }
    return PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Iallreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    enum { LAST_OF_CREATION = 5 };
    static int calls;
    calls++;
    if (in_phase("create") || in_phase("load") || in_phase("stepping") ||
        (in_phase("prepare") && calls == LAST_OF_CREATION)) {
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

static void pause_for(double seconds)
{
    struct timespec pause = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&pause, NULL);
}

static bool in_creation(void)
{
    return in_phase("connect") || in_phase("create") || in_phase("compare") || in_phase("prepare");
}

/* All that a program does, until something fails. */
static muonium_status live(model *m, const char *path, double *begin)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    if (rank == victim && in_phase("late")) {
        pause_for(1.3 * deadline);
    }
    if (rank == victim && in_phase("absent")) {
        comm = MPI_COMM_NULL;
    }
    muonium_mpi_options o;
    muonium_mpi *dist = NULL;
    muonium_mpi_options_init(&o);
    o.deadline = deadline;
    o.bucket_bytes = 1 << 16;
    armed = in_creation();
    *begin = now();
    muonium_status status = muonium_mpi_create(comm, m->optimizer, &o, &dist);
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
    if (rank == victim) { /* late or absent, and told */
        snprintf(name, sizeof name, in_phase("late") ? "another rank gave up" : "MPI_COMM_NULL");
    }
    bool good = status == (in_phase("absent") && rank == victim ? MUONIUM_INVALID : MUONIUM_PEER) &&
                strstr(muonium_last_error(), name) && took < 3 * deadline;
    printf("%s %d after %.1f of %.1f s: %s, %s\n",
           !good            ? "LOST"
           : rank == victim ? "late"
                            : "survivor",
           rank, took, deadline, muonium_status_name(status), muonium_last_error());
    fflush(stdout);
    if (in_phase("late") || in_phase("absent")) {
        pause_for(2 * deadline); /* one that goes may take the others along */
    }
    _exit(good ? 0 : 1);
}
