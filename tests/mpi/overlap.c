/*
 * overlap.c: how much of the gradients' travel a backward pass hides. The backward pass is a
 * stand-in that sleeps, as a processor busy elsewhere would look to MPI, and announces one
 * parameter after the other:
 *
 *     overlap BACKWARD_MS [PARAMETERS [POLL_MS]]
 *
 * Every POLL_MS, if given, it calls muonium_mpi_progress. Measured is what the finish takes
 * without overlap, with all gradients arrived long before, and with overlap; the least of
 * some rounds each. The parameters are vectors: AdamW takes next to no time for them, so that
 * what is measured is travel.
 */
#include "muonium_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LENGTH = 1 << 18, ROUNDS = 7, MOST = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "%s\n", muonium_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Be busy for so long, letting messages move now and then. */
static void work(muonium_mpi *dist, double seconds, double poll)
{
    double end = now() + seconds;
    for (double left = seconds; left > 0; left = end - now()) {
        double nap = poll > 0 && poll < left ? poll : left;
        struct timespec pause = {(time_t)nap, (long)(1e9 * (nap - (double)(time_t)nap))};
        nanosleep(&pause, NULL);
        if (poll > 0) {
            check(muonium_mpi_progress(dist));
        }
    }
}

/* The least time of the finish; backward of `seconds`, announcing if `announce`, and then
 * `after` seconds more. */
static double finish_time(muonium_mpi *dist, size_t count, double seconds, bool announce,
                          double poll, double after)
{
    double least = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        check(muonium_mpi_begin(dist));
        for (size_t k = count; k-- > 0;) {
            work(dist, seconds / (double)count, announce ? poll : 0);
            if (announce) {
                check(muonium_mpi_ready(dist, k));
            }
        }
        work(dist, after, 1e-3);
        double begin = now();
        check(muonium_mpi_finish(dist));
        double time = now() - begin;
        MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        least = time < least ? time : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    double backward = argc > 1 ? atof(argv[1]) * 1e-3 : 0.2;
    size_t count = argc > 2 ? (size_t)atol(argv[2]) : 16;
    double poll = argc > 3 ? atof(argv[3]) * 1e-3 : 0;
    muonium_optimizer *description;
    muonium_mpi_options options;
    muonium_mpi *dist;
    float *memory[2 * MOST];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    count = count < MOST ? count : MOST;
    check(muonium_create_description(NULL, &description));
    for (size_t i = 0; i < 2 * count; i++) {
        memory[i] = calloc(LENGTH, sizeof(float));
        for (size_t k = 0; memory[i] && k < LENGTH; k++) {
            memory[i][k] = (float)((k * 2654435761u + i) % 1000) * 1e-3f;
        }
    }
    for (size_t i = 0; i < count; i++) {
        muonium_tensor tensor = {
            .ndim = 1, .shape = {LENGTH}, .data = memory[i], .grad = memory[count + i]};
        check(muonium_add(description, &tensor, NULL));
    }
    muonium_mpi_options_init(&options);
    options.bucket_bytes = 1 << 21;
    check(muonium_mpi_create(MPI_COMM_WORLD, description, &options, &dist));
    finish_time(dist, count, 0, false, 0, 0); /* connections are made, pages touched */
    double plain = finish_time(dist, count, backward, false, 0, 0);
    double idle = finish_time(dist, count, 0, true, 0, 4 * plain);
    double overlapped = finish_time(dist, count, backward, true, poll, 0);
    if (rank == 0) {
        double travel = plain - idle, bytes = (double)count * LENGTH * sizeof(float);
        printf("%d ranks, %zu parameters, %.1f MB of gradients, backward %.0f ms\n"
               "finish without overlap %.1f ms, with %.1f ms, all arrived before %.1f ms\n"
               "gradients travel %.1f ms, of which the backward pass hides %.0f %%\n",
               ranks, count, bytes * 1e-6, backward * 1e3, plain * 1e3, overlapped * 1e3,
               idle * 1e3, travel * 1e3, 100 * (plain - overlapped) / travel);
    }
    muonium_mpi_destroy(dist);
    muonium_destroy(description);
    MPI_Finalize();
    return 0;
}
