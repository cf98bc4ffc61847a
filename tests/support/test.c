/*
 * test.c: the helpers that test.h describes.
 */
#include "test.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- random numbers ---- */

uint64_t test_seed(void)
{
    static bool known;
    static uint64_t seed;
    if (!known) {
        const char *text = getenv("MUONIUM_TEST_SEED");
        if (text != NULL && text[0] != '\0') {
            char *end;
            errno = 0;
            seed = strtoull(text, &end, 10);
            if (errno != 0 || *end != '\0') {
                fprintf(stderr, "MUONIUM_TEST_SEED=%s is not a number\n", text);
                exit(2);
            }
        } else {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            seed = ((uint64_t)now.tv_sec << 20) ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 40;
        }
        known = true;
        fprintf(stderr, "MUONIUM_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

/* SplitMix64: one addition and a bijective mix, so every state is a good one. */
uint64_t test_bits(test_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

test_rng test_rng_start(const char *label)
{
    test_rng rng = {.state = test_seed()};
    for (const char *c = label; *c != '\0'; c++) {
        rng.state = test_bits(&rng) ^ (unsigned char)*c;
    }
    return rng;
}

size_t test_below(test_rng *rng, size_t limit)
{
    return (size_t)(test_bits(rng) % limit); /* the bias is far below what a test could see */
}

double test_uniform(test_rng *rng, double low, double high)
{
    return low + (high - low) * ((double)(test_bits(rng) >> 11) * 0x1p-53);
}

double test_normal(test_rng *rng)
{
    double radius = sqrt(-2.0 * log(1.0 - test_uniform(rng, 0.0, 1.0)));
    return radius * cos(6.283185307179586 * test_uniform(rng, 0.0, 1.0));
}

void test_fill_normal(test_rng *rng, double *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = test_normal(rng);
    }
}

void test_fill_normal_f32(test_rng *rng, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)test_normal(rng);
    }
}

/* ---- guarded memory ---- */

/* The first accessible page of a mapping holds what is needed to unmap it; an
 * inaccessible one separates it from the caller's bytes:
 *
 *     | header page | no access | pages with the caller's bytes | no access |
 *
 * The caller's address alone does not tell how many pages precede it (a buffer
 * may span several), so the live mappings are kept in a list. */
typedef struct guarded {
    struct guarded *next;
    unsigned char *data;
    size_t mapped;
} guarded;

static guarded *live_mappings;

static void *guarded_alloc(size_t bytes, size_t gap, bool at_front)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (bytes + gap + page - 1) / page * page;
    size_t mapped = inner + 3 * page;
    unsigned char *base =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + page, page, PROT_NONE) != 0 ||
        mprotect(base + 2 * page + inner, page, PROT_NONE) != 0) {
        perror("guarded memory");
        abort();
    }
    unsigned char *first = base + 2 * page;
    unsigned char *data = at_front ? first + gap : first + inner - gap - bytes;
    memset(first, 0xa5, inner);
    guarded *mapping = (guarded *)(void *)base;
    *mapping = (guarded){.next = live_mappings, .data = data, .mapped = mapped};
    live_mappings = mapping;
    return data;
}

void *test_guarded_alloc(size_t bytes, size_t gap)
{
    return guarded_alloc(bytes, gap, false);
}

void *test_guarded_alloc_front(size_t bytes, size_t gap)
{
    return guarded_alloc(bytes, gap, true);
}

void test_guarded_free(void *memory)
{
    if (memory == NULL) {
        return;
    }
    for (guarded **link = &live_mappings; *link != NULL; link = &(*link)->next) {
        guarded *mapping = *link;
        if (mapping->data == memory) {
            *link = mapping->next;
            munmap(mapping, mapping->mapped);
            return;
        }
    }
    fprintf(stderr, "test_guarded_free: %p is not guarded memory\n", memory);
    abort();
}

/* ---- memory that is counted and can fail ---- */

struct test_memory test_memory;

static void *allocate_or_fail(void *context, size_t bytes, size_t alignment)
{
    long call = atomic_fetch_add(&test_memory.calls, 1) + 1, fail_at = test_memory.fail_at;
    void *memory = NULL;
    (void)context;
    test_memory.bytes += (long)bytes;
    if (call == fail_at || (fail_at > 0 && call > fail_at && test_memory.persistent) ||
        posix_memalign(&memory, alignment, bytes) != 0) {
        return NULL;
    }
    memset(memory, 0xa5, bytes); /* nobody may count on zeros */
    test_memory.alive++;
    return memory;
}

static void release_counted(void *context, void *memory)
{
    (void)context;
    test_memory.alive--;
    free(memory);
}

void test_count_memory(void)
{
    static const muonium_allocator allocator = {allocate_or_fail, release_counted, NULL};
    test_fail_allocation(0, false);
    assert_ok(muonium_set_allocator(&allocator));
}

void test_fail_allocation(long call, bool persistent)
{
    test_memory.calls = test_memory.bytes = 0;
    test_memory.persistent = persistent;
    test_memory.fail_at = call;
}

/* ---- errors ---- */

void test_check_status(muonium_status status, muonium_status expected, const char *part,
                       const char *expression, const char *file, int line)
{
    const char *message = status == MUONIUM_OK ? "" : muonium_last_error();
    if (status != expected) {
        print_error("%s\n  gave %s, expected %s; message: \"%s\"\n", expression,
                    muonium_status_name(status), muonium_status_name(expected), message);
        _fail(file, line);
    }
    if (expected != MUONIUM_OK && part != NULL && strstr(message, part) == NULL) {
        print_error("%s\n  failed as expected, but its message \"%s\" lacks \"%s\"\n", expression,
                    message, part);
        _fail(file, line);
    }
}

/* ---- child processes ---- */

static const char again_variable[] = "MUONIUM_TEST_AGAIN";

bool test_is_again(void)
{
    return getenv(again_variable) != NULL;
}

static void set_variable(const char *name, const char *value)
{
    if (name == NULL) {
        return;
    }
    if ((value != NULL ? setenv(name, value, 1) : unsetenv(name)) != 0) {
        perror(name);
        _exit(127);
    }
}

static test_child wait_for(pid_t pid, double seconds)
{
    test_child child = {.exit_code = -1};
    const struct timespec pause = {.tv_nsec = 2000000};
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        int status;
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid) {
            child.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            child.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            return child;
        }
        if (done < 0 && errno != EINTR) {
            perror("waitpid");
            abort();
        }
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double elapsed =
            (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
        if (elapsed > seconds && !child.timed_out) {
            child.timed_out = true;
            kill(pid, SIGKILL);
        }
        nanosleep(&pause, NULL);
    }
}

test_child test_fork(int (*function)(void *context), void *context, const char *name,
                     const char *value, double seconds)
{
    fflush(NULL); /* else the child would print the parent's pending output again */
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        abort();
    }
    if (pid == 0) {
        set_variable(name, value);
        int code = function(context);
        fflush(NULL);
        _exit(code);
    }
    return wait_for(pid, seconds);
}

/* Under an emulator the system cannot start this program: MUONIUM_EMULATOR is the command that can,
 * words separated by blanks. */
static void execute_self(void)
{
    enum { WORDS = 32 };
    char *emulator = getenv("MUONIUM_EMULATOR"), *words[WORDS + 2], *next = NULL;
    size_t count = 0;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (emulator == NULL || emulator[0] == '\0' || length < 0) {
        execl("/proc/self/exe", program_invocation_name, (char *)NULL);
        return;
    }
    self[length] = '\0';
    emulator = strdup(emulator);
    for (char *word = strtok_r(emulator, " ", &next); word != NULL && count < WORDS;
         word = strtok_r(NULL, " ", &next)) {
        words[count++] = word;
    }
    words[count] = self;
    words[count + 1] = NULL;
    execvp(words[0], words);
}

static int start_again(void *unused)
{
    (void)unused;
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)test_seed());
    set_variable("MUONIUM_TEST_SEED", seed);
    set_variable(again_variable, "1");
    execute_self();
    perror("/proc/self/exe");
    return 127;
}

test_child test_run_again(const char *name, const char *value, double seconds)
{
    return test_fork(start_again, NULL, name, value, seconds);
}

void test_check_child(test_child child, const char *expression, const char *file, int line)
{
    if (child.timed_out) {
        print_error("%s\n  was killed at its deadline\n", expression);
    } else if (child.signal != 0) {
        print_error("%s\n  was ended by signal %d\n", expression, child.signal);
    } else if (child.exit_code != 0) {
        print_error("%s\n  exited with %d\n", expression, child.exit_code);
    } else {
        return;
    }
    _fail(file, line);
}
