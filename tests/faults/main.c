/*
 * main.c: runs the kinds of faults, prints a line for each and the verdict
 *
 *     faults: N injected, 0 mishandled
 *
 * with exit status 1 if a fault was mishandled or a kind injected none. With --self-check
 * every kind is broken on purpose, to show that each would be noticed.
 */
#include "faults.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

typedef struct kind {
    const char *name;
    void (*run)(void);
} kind;

static const kind kinds[] = {
    {"allocations", faults_of_allocations},
    {"system-calls", faults_of_system_calls},
    {"callbacks", faults_of_callbacks},
    {"kills", faults_of_kills},
    {"truncation", faults_of_truncation},
    {"bit-flips", faults_of_bit_flips},
    {"larger-damage", faults_of_larger_damage},
    {"hostile-files", faults_of_hostile_files},
    {"forks", faults_of_forks},
    {"threads", faults_of_threads},
    {"many-optimizers", faults_of_many_optimizers},
    {"float-modes", faults_of_float_modes},
    {"locales", faults_of_locales},
    {"affinity", faults_of_affinity},
    {"address-space", faults_of_address_space},
    {"file-limits", faults_of_file_limits},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The harness itself must survive these and tell of them; in the self-check alone. */
static void crash(void)
{
    if (fault_next()) {
        raise(SIGKILL); /* a sanitizer would print a report for any other */
    }
}

static void hang(void)
{
    if (fault_next()) {
        sleep(60);
    }
}

static void give_up(void)
{
    if (fault_next()) {
        _exit(3);
    }
}

static const kind self_checks[] = {{"crash", crash}, {"hang", hang}, {"exit", give_up}};

enum { DEADLINE = 250, SELF_CHECKS = sizeof self_checks / sizeof self_checks[0] };

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Run one kind and print its line; adds to *total. Whether it did what it should. */
static bool report(const kind *k, double deadline, const fault_choice *choice, fault_count *total)
{
    double begin = seconds_now();
    fault_count count = fault_run(k->name, k->run, deadline, choice);
    printf("%-16s %8llu injected, %llu %s %6.1f s%s%s\n", k->name,
           (unsigned long long)count.injected, (unsigned long long)count.mishandled,
           choice->sabotage ? "noticed   " : "mishandled", seconds_now() - begin,
           count.skipped[0] != '\0' ? "  skipped: " : "", count.skipped);
    fflush(stdout);
    total->injected += count.injected;
    total->mishandled += count.mishandled;
    if (count.skipped[0] != '\0' && count.mishandled == 0) {
        return true;
    }
    return count.injected > 0 && count.mishandled == (choice->sabotage ? count.injected : 0);
}

static int usage(const char *complaint, const char *value)
{
    fprintf(stderr,
            "%s%s\nusage: faults [--kind NAME [--index N]] [--every N] [--self-check]\n"
            "  --kind NAME   this kind of fault alone:",
            complaint, value);
    for (size_t i = 0; i < KINDS; i++) {
        fprintf(stderr, " %s", kinds[i].name);
    }
    fprintf(stderr, "\n  --index N     the fault of this number alone\n"
                    "  --every N     about one of N faults\n"
                    "  --self-check  break what is judged, which must be noticed\n");
    return 2;
}

static bool parse_number(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return text[0] != '\0' && *end == '\0' && *value >= 0;
}

int main(int count, char **argument)
{
    fault_choice choice = {.only = -1, .every = 1};
    const char *wanted = NULL;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? argument[i + 1] : "";
        int64_t number = 0;
        if (strcmp(argument[i], "--self-check") == 0) {
            choice.sabotage = true;
            choice.limit = 24;
        } else if (strcmp(argument[i], "--kind") == 0) {
            wanted = value;
            i++;
        } else if (strcmp(argument[i], "--index") == 0 && parse_number(value, &choice.only)) {
            i++;
        } else if (strcmp(argument[i], "--every") == 0 && parse_number(value, &number)) {
            choice.every = (uint64_t)number;
            i++;
        } else {
            return usage("not understood: ", argument[i]);
        }
    }
    if (choice.only >= 0 && wanted == NULL) {
        return usage("--index needs --kind", "");
    }
    test_seed();
    fault_count total = {0};
    bool as_expected = true, found = false;
    for (size_t i = 0; i < KINDS; i++) {
        if (wanted == NULL || strcmp(wanted, kinds[i].name) == 0) {
            found = true;
            as_expected = report(&kinds[i], DEADLINE, &choice, &total) && as_expected;
        }
    }
    if (!found) {
        return usage("unknown kind: ", wanted);
    }
    for (size_t i = 0; choice.sabotage && wanted == NULL && i < SELF_CHECKS; i++) {
        as_expected = report(&self_checks[i], 1, &choice, &total) && as_expected;
    }
    if (choice.sabotage) {
        printf("self-check: %llu broken on purpose, %llu noticed\n",
               (unsigned long long)total.injected, (unsigned long long)total.mishandled);
    } else {
        printf("faults: %llu injected, %llu mishandled\n", (unsigned long long)total.injected,
               (unsigned long long)total.mishandled);
    }
    return as_expected ? 0 : 1;
}
