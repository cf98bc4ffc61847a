/*
 * judge.c: see faults.h. The counts lie in memory that the process of a kind shares with
 * the one that started it, and so outlive a crash, as does the place where it happened.
 */
#include "faults.h"

#include <stdarg.h>
#include <sys/mman.h>

enum {
    COMPLAINTS = 5, /* printed per kind; the rest are only counted */
    ALWAYS = 8      /* the first faults of a kind, injected however few are wanted */
};

typedef struct tally {
    fault_count count;
    uint64_t next;    /* number of the next fault */
    uint64_t current; /* and of the last that was injected */
    uint64_t printed;
    bool blamed; /* the last one */
    char where[256];
} tally;

static tally *shared;
static fault_choice chosen;
static const char *kind_name;

static uint64_t mixed(uint64_t number)
{
    test_rng rng = {.state = test_seed() ^ number};
    return test_bits(&rng);
}

bool fault_next(void)
{
    uint64_t number = shared->next++;
    bool wanted = number < ALWAYS || chosen.every < 2 || mixed(number) % chosen.every == 0;
    if (chosen.only >= 0) {
        wanted = number == (uint64_t)chosen.only;
    } else if (chosen.limit > 0 && shared->count.injected >= chosen.limit) {
        wanted = false;
    }
    if (wanted) {
        shared->count.injected++;
        shared->current = number;
        shared->blamed = false;
    }
    return wanted;
}

void fault_where(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(shared->where, sizeof shared->where, format, arguments);
    va_end(arguments);
}

static void blame(const char *what)
{
    if (!shared->blamed) {
        shared->count.mishandled++;
        shared->blamed = true;
    }
    if (!chosen.sabotage && shared->printed++ < COMPLAINTS) {
        printf("MISHANDLED %s %llu: %s: %s\n    repeat: MUONIUM_TEST_SEED=%llu tests/faults "
               "--kind %s --index %llu\n",
               kind_name, (unsigned long long)shared->current, shared->where, what,
               (unsigned long long)test_seed(), kind_name, (unsigned long long)shared->current);
        fflush(stdout);
    }
}

bool fault_expect(bool handled, const char *format, ...)
{
    if (!handled) {
        char what[1024];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(what, sizeof what, format, arguments);
        va_end(arguments);
        blame(what);
    }
    return handled;
}

bool fault_expect_status(muonium_status status, muonium_status expected)
{
    return fault_expect(status == expected, "gave %s, not %s; message \"%s\"",
                        muonium_status_name(status), muonium_status_name(expected),
                        muonium_last_error());
}

bool fault_sabotage(unsigned way, unsigned ways)
{
    return chosen.sabotage && shared->current % ways == way;
}

void fault_skip(const char *reason)
{
    snprintf(shared->count.skipped, sizeof shared->count.skipped, "%s", reason);
}

bool fault_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}

static int run_in_child(void *context)
{
    void (*const *run)(void) = context;
    (*run)();
    return 0;
}

fault_count fault_run(const char *kind, void (*run)(void), double seconds,
                      const fault_choice *choice)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("memory for the counts");
        exit(2);
    }
    kind_name = kind;
    chosen = *choice;
    files_make_directory();
    test_child child = test_fork(run_in_child, &run, NULL, NULL, seconds);
    if (child.timed_out) {
        blame("hangs: it was ended at its deadline");
    } else if (child.signal != 0) {
        char what[64];
        snprintf(what, sizeof what, "ended by signal %d (%s)", child.signal,
                 strsignal(child.signal));
        blame(what);
    } else if (child.exit_code != 0) {
        char what[64];
        snprintf(what, sizeof what, "ended with exit status %d", child.exit_code);
        blame(what);
    }
    files_remove_directory();
    fault_count count = shared->count;
    munmap(shared, sizeof *shared);
    shared = NULL;
    return count;
}
