/*
 * checkpoint.c: how fast a state is saved and loaded, beside plain system calls that move
 * the same bytes to and from the same directory in turns with them.
 *
 * The plain write is open, write, fsync, close; the plain read is read into memory that is
 * there already. Both move pieces of a size at which more would not help. Loading is
 * measured with the file in the page cache, where its own work shows, and with the cache
 * told to forget it, as after a restart.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "json.h"

enum { ROWS = 1024, COLS = 4096, ROUNDS = 5, PIECE = 1 << 20 };
static const double matrix_bytes = (double)ROWS * COLS * sizeof(float);

typedef struct state {
    muonium_optimizer *optimizer;
    float *data; /* of all parameters */
    void *copy;  /* as large as the state, for plain reads */
    size_t matrices;
    char path[4096], plain_path[4096];
    char error[512];
} state;

/* ---- the two ways ---- */

static bool failed(state *s, const char *action)
{
    snprintf(s->error, sizeof s->error, "%s: %.300s: %s", action, s->plain_path, strerror(errno));
    return false;
}

static bool library_failed(state *s)
{
    snprintf(s->error, sizeof s->error, "%.500s", muonium_last_error());
    return false;
}

static void *momentum_of(const state *s, size_t index)
{
    muonium_state found = {0};
    muonium_state_of(s->optimizer, index, &found);
    return found.momentum;
}

/* One piece, whole. */
static bool move_piece(int file, char *memory, bool writing)
{
    for (size_t done = 0; done < PIECE;) {
        ssize_t moved = writing ? write(file, memory + done, PIECE - done)
                                : read(file, memory + done, PIECE - done);
        if (moved <= 0) {
            return false;
        }
        done += (size_t)moved;
    }
    return true;
}

static bool plain_write(state *s)
{
    int file = open(s->plain_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool good = file >= 0;
    for (size_t i = 0; good && i < s->matrices; i++) {
        for (size_t at = 0; good && at < (size_t)matrix_bytes; at += PIECE) {
            good = move_piece(file, (char *)momentum_of(s, i) + at, true);
        }
    }
    good = good && fsync(file) == 0;
    good = file >= 0 && close(file) == 0 && good;
    return good || failed(s, "write");
}

static bool plain_read(state *s)
{
    int file = open(s->plain_path, O_RDONLY);
    bool good = file >= 0;
    for (size_t at = 0; good && at < s->matrices * (size_t)matrix_bytes; at += PIECE) {
        good = move_piece(file, (char *)s->copy + at, false);
    }
    good = file >= 0 && close(file) == 0 && good;
    return good || failed(s, "read");
}

static bool save(state *s)
{
    return muonium_save(s->optimizer, s->path) == MUONIUM_OK || library_failed(s);
}

static bool load(state *s)
{
    return muonium_load(s->optimizer, s->path) == MUONIUM_OK || library_failed(s);
}

/* ---- measuring ---- */

/* Drop a file from the page cache. macOS has no call for that: there it stays. */
static void forget(const char *path)
{
    int file = open(path, O_RDONLY);
    if (file >= 0) {
#if defined(POSIX_FADV_DONTNEED)
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
#endif
        close(file);
    }
}

/* Seconds that one run takes, as the least so far. */
static bool run(state *s, bool (*way)(state *s), double *best)
{
    double start = seconds_now();
    if (!way(s)) {
        return false;
    }
    double seconds = seconds_now() - start;
    *best = *best > 0 && *best < seconds ? *best : seconds;
    return true;
}

static bool measure(state *s, checkpoint_figures *f)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (!run(s, plain_write, &f->write) || !run(s, save, &f->save) ||
            !run(s, plain_read, &f->read) || !run(s, load, &f->load)) {
            return false;
        }
        forget(s->plain_path);
        if (!run(s, plain_read, &f->cold_read)) {
            return false;
        }
        forget(s->path);
        if (!run(s, load, &f->cold_load)) {
            return false;
        }
    }
    return true;
}

/* Bytes of memory at the most so far. */
static double peak_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

/* ---- the state ---- */

static bool create(state *s)
{
    size_t elements = s->matrices * ROWS * COLS;
    s->data = malloc(elements * sizeof *s->data);
    s->copy = malloc(elements * sizeof *s->data);
    if (!s->data || !s->copy) {
        snprintf(s->error, sizeof s->error, "no memory for %zu matrices", s->matrices);
        return false;
    }
    memset(s->data, 0, elements * sizeof *s->data);
    memset(s->copy, 1, elements * sizeof *s->data);
    if (muonium_create(NULL, &s->optimizer) != MUONIUM_OK) {
        return library_failed(s);
    }
    for (size_t i = 0; i < s->matrices; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%zu.w", i);
        muonium_tensor tensor = {
            .name = name, .ndim = 2, .shape = {ROWS, COLS}, .data = s->data + i * ROWS * COLS};
        if (muonium_add(s->optimizer, &tensor, NULL) != MUONIUM_OK) {
            return library_failed(s);
        }
        float *momentum = momentum_of(s, i);
        for (size_t k = 0; k < (size_t)ROWS * COLS; k++) {
            momentum[k] = (float)((k * 2654435761u >> 8) % 2048) / 2048 - 0.5f;
        }
    }
    return true;
}

bool bench_checkpoint(const char *directory, int megabytes, checkpoint_figures *f, char error[512])
{
    static state s;
    s.matrices = (size_t)(1e6 * megabytes / matrix_bytes + 0.5);
    s.matrices += s.matrices == 0;
    snprintf(s.path, sizeof s.path, "%.4000s/muonium-bench-%ld.safetensors", directory,
             (long)getpid());
    snprintf(s.plain_path, sizeof s.plain_path, "%.4000s/muonium-bench-%ld.plain", directory,
             (long)getpid());
    *f = (checkpoint_figures){.bytes = (double)s.matrices * matrix_bytes};
    bool done = create(&s);
    if (done) {
        /* First of all, while nothing has yet taken more memory than the state. */
        double before = peak_memory();
        done = save(&s);
        f->extra = peak_memory() - before;
    }
    done = done && measure(&s, f);
    unlink(s.path);
    unlink(s.plain_path);
    muonium_destroy(s.optimizer);
    free(s.data);
    free(s.copy);
    snprintf(error, 512, "%s", s.error);
    return done;
}

/* ---- printing ---- */

static void print_pair(const checkpoint_figures *f, const char *name, double seconds,
                       const char *plain, double plain_seconds)
{
    printf("%-12s %9.3f s %8.2f GB/s   %-22s %9.3f s %8.2f GB/s   %5.1f %%\n", name, seconds,
           f->bytes / seconds / 1e9, plain, plain_seconds, f->bytes / plain_seconds / 1e9,
           100 * plain_seconds / seconds);
}

void bench_checkpoint_print(const checkpoint_figures *f)
{
    printf("a state of %.0f MB, %d threads, best of %d\n\n", f->bytes / 1e6, muonium_threads(),
           ROUNDS);
    print_pair(f, "save", f->save, "write and fsync", f->write);
    print_pair(f, "load", f->load, "read, cached", f->read);
    print_pair(f, "load", f->cold_load, "read, not cached", f->cold_read);
    printf("\nSaving takes %.1f MB of memory beyond the state.\n", f->extra / 1e6);
}

static void json_pair(json *writer, const char *key, const checkpoint_figures *f, double seconds,
                      double plain_seconds)
{
    json_object(writer, key);
    json_number(writer, "gbps", f->bytes / seconds / 1e9);
    json_number(writer, "plain_gbps", f->bytes / plain_seconds / 1e9);
    json_number(writer, "percent_of_plain", 100 * plain_seconds / seconds);
    json_object_end(writer);
}

void bench_checkpoint_json(const checkpoint_figures *f)
{
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_string(&writer, "version", muonium_version());
    json_number(&writer, "state_bytes", f->bytes);
    json_integer(&writer, "threads", muonium_threads());
    json_pair(&writer, "save", f, f->save, f->write);
    json_pair(&writer, "load", f, f->load, f->read);
    json_pair(&writer, "load_not_cached", f, f->cold_load, f->cold_read);
    json_number(&writer, "extra_bytes_while_saving", f->extra);
    json_object_end(&writer);
}
