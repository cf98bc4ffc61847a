/*
 * waiting.c: waits with a deadline. A wait polls. Past its deadline, or when another rank raises
 * an alarm, a roll call takes place: every rank sends a message to all others, and names those
 * that it does not hear from within a short time. So all survivors fail together and know why.
 */
#include "mpi/distributed.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ALARM_TAG = 77 }; /* on our own communicator */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Spin briefly, then sleep: other ranks may need this processor. */
static void rest(double waited)
{
    if (waited < 2e-4) {
        sched_yield();
    } else {
        struct timespec pause = {0, waited < 0.1 ? 20000 : 200000};
        nanosleep(&pause, NULL);
    }
}

muonium_status mu_usable(const muonium_mpi *d)
{
    if (d->broken) {
        return mu_fail(MUONIUM_PEER, "%s", d->why);
    }
    return d->user ? mu_fail(MUONIUM_INVALID,
                             "the object was used by a callback of %s: use it after that has "
                             "returned",
                             d->user)
                   : MUONIUM_OK;
}

/* ---- the roll call ---- */

/* The communicator of the roll call: the caller's while the object is being created, then our
 * own. */
typedef struct channel {
    MPI_Comm comm;
    int tag;
} channel;

enum { CHANNELS = 2 };

static int channels_of(const muonium_mpi *d, channel channels[CHANNELS])
{
    int count = 0;
    if (d->caller != MPI_COMM_NULL) {
        channels[count++] = (channel){d->caller, d->caller_tag};
    }
    if (d->comm != MPI_COMM_NULL) {
        channels[count++] = (channel){d->comm, ALARM_TAG};
    }
    return count;
}

static bool is_word_there(const channel *on, MPI_Status *from)
{
    int there = 0;
    return MPI_Iprobe(MPI_ANY_SOURCE, on->tag, on->comm, &there, from) == MPI_SUCCESS && there;
}

static void hear(const channel *on, bool *heard)
{
    int word;
    MPI_Status from;
    while (is_word_there(on, &from) &&
           MPI_Recv(&word, 1, MPI_INT, from.MPI_SOURCE, on->tag, on->comm, &from) == MPI_SUCCESS) {
        heard[from.MPI_SOURCE] = true;
    }
}

static void call_out(const muonium_mpi *d, const channel *on)
{
    static const int word = 1;
    for (int r = 0; r < d->ranks; r++) {
        MPI_Request request;
        if (r != d->rank) {
            MPI_Isend(&word, 1, MPI_INT, r, on->tag, on->comm, &request);
        }
    }
}

/* The ranks not heard, as "rank 3" or "ranks 3, 5 and 2 more". */
static void list_missing(const muonium_mpi *d, const bool *heard, char *text, size_t room)
{
    size_t used = 0, missing = 0, told = 0;
    text[0] = '\0';
    for (int r = 0; r < d->ranks; r++) {
        missing += !heard[r];
    }
    for (int r = 0; r < d->ranks && used + 24 < room; r++) {
        if (!heard[r] && told < 8) {
            used += (size_t)snprintf(text + used, room - used, "%s%d",
                                     told > 0      ? ", "
                                     : missing > 1 ? "ranks "
                                                   : "rank ",
                                     r);
            told++;
        }
    }
    if (missing > told) {
        snprintf(text + used, room - used, " and %zu more", missing - told);
    }
}

/* Find out which ranks are missing, and mark the object as broken. The messages are neither waited
 * for nor freed: dead ranks do not receive them, and freeing a failed request is an error. */
static muonium_status call_roll(muonium_mpi *d, const char *what, const char *cause)
{
    double grace = d->options.deadline / 4 < 2 ? d->options.deadline / 4 : 2, begin = now();
    bool *heard = mu_alloc_zeroed((size_t)d->ranks * sizeof *heard);
    char missing[160] = "";
    channel channels[CHANNELS];
    int count = channels_of(d, channels);
    d->broken = true;
    for (int i = 0; i < count; i++) {
        call_out(d, &channels[i]);
    }
    if (heard) {
        heard[d->rank] = true;
        while (now() - begin < grace) {
            for (int i = 0; i < count; i++) {
                hear(&channels[i], heard);
            }
            rest(now() - begin);
        }
        list_missing(d, heard, missing, sizeof missing);
        mu_free(heard);
    }
    snprintf(d->why, sizeof d->why,
             "rank %d of %d gave up while %s: %s; %s%s: go back to the last checkpoint", d->rank,
             d->ranks, what, cause, missing[0] ? missing : "all ranks",
             missing[0] ? " did not answer (killed, stopped or late)" : " answered");
    return mu_usable(d);
}

muonium_status mu_mpi_ok(muonium_mpi *d, int code, const char *what)
{
    if (code == MPI_SUCCESS) {
        return MUONIUM_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "unknown error", cause[256];
    int length = 0;
    MPI_Error_string(code, text, &length);
    text[strcspn(text, "\n")] = '\0';
    snprintf(cause, sizeof cause, "MPI says \"%.200s\"", text);
    return call_roll(d, what, cause);
}

/* ---- waiting ---- */

muonium_status mu_test(muonium_mpi *d, MPI_Request *request, const char *what, bool *done)
{
    int complete = 0;
    muonium_status status = mu_mpi_ok(d, MPI_Test(request, &complete, MPI_STATUS_IGNORE), what);
    *done = status == MUONIUM_OK && complete != 0;
    return status;
}

muonium_status mu_wait(muonium_mpi *d, MPI_Request *request, const char *what)
{
    double begin = now(), looked = begin;
    for (;;) {
        bool done;
        muonium_status status = mu_test(d, request, what, &done);
        if (status != MUONIUM_OK || done) {
            return status;
        }
        double time = now();
        if (time - begin > d->options.deadline) {
            char cause[64];
            snprintf(cause, sizeof cause, "nothing came for %.3g s", d->options.deadline);
            return call_roll(d, what, cause);
        }
        if (time - looked > 0.01) {
            channel channels[CHANNELS];
            int count = channels_of(d, channels);
            for (int i = 0; i < count; i++) {
                MPI_Status from;
                if (is_word_there(&channels[i], &from)) {
                    return call_roll(d, what, "another rank gave up");
                }
            }
            looked = time;
        }
        rest(time - begin);
    }
}

/* ---- agreement ---- */

muonium_status mu_broadcast(muonium_mpi *d, void *data, size_t bytes, int root, const char *what)
{
    char *memory = data;
    muonium_status status = MUONIUM_OK;
    for (size_t done = 0; status == MUONIUM_OK && done < bytes;) {
        size_t left = bytes - done;
        size_t piece = left < d->options.chunk_bytes ? left : d->options.chunk_bytes;
        MPI_Request request;
        status = mu_mpi_ok(
            d, MPI_Ibcast(memory + done, (int)piece, MPI_BYTE, root, d->comm, &request), what);
        if (status == MUONIUM_OK) {
            status = mu_wait(d, &request, what);
        }
        done += piece;
    }
    return status;
}

muonium_status mu_smallest(muonium_mpi *d, int64_t value, int64_t *least, const char *what)
{
    MPI_Request request;
    d->given = value;
    muonium_status status = mu_mpi_ok(
        d, MPI_Iallreduce(&d->given, &d->least, 1, MPI_INT64_T, MPI_MIN, d->comm, &request), what);
    if (status == MUONIUM_OK) {
        status = mu_wait(d, &request, what);
    }
    *least = d->least;
    return status;
}

void mu_release(const muonium_mpi *d, void *memory)
{
    if (!d->broken) {
        mu_free(memory);
    }
}

muonium_status mu_agree(muonium_mpi *d, muonium_status status, const char *what)
{
    mu_message *first = &d->agreed;
    int64_t least;
    *first = (mu_message){(int32_t)status, ""};
    if (status != MUONIUM_OK) {
        snprintf(first->text, sizeof first->text, "%.500s", muonium_last_error());
    }
    muonium_status reached =
        mu_smallest(d, status == MUONIUM_OK ? d->ranks : d->rank, &least, what);
    if (reached != MUONIUM_OK || least == d->ranks) {
        return reached;
    }
    reached = mu_broadcast(d, first, sizeof *first, (int)least, what);
    if (reached != MUONIUM_OK) {
        return reached;
    }
    if (least == d->rank) {
        return mu_fail(status, "%s", first->text);
    }
    return mu_fail((muonium_status)first->status, "rank %d: %s", (int)least, first->text);
}
