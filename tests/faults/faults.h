/*
 * faults.h: the fault harness. It injects faults of many kinds into the library, counts
 * them and judges each: a crash, a hang, a leak, a damaged file, a wrong status or a byte
 * changed where none may change is a mishandled fault.
 *
 *     main.c          the kinds, the counts and the verdict
 *     judge.c         which faults of a kind are injected, and complaints about them
 *     subject.c       the optimizer under fault: its life, and all that can be seen of it
 *     allocations.c   and so on: one file per kind, or for a few related ones
 *
 * Every kind runs in a process of its own, so that it may change limits, locale or
 * allocator, and a crash is one mishandled fault and not the end of the harness. Within a
 * kind the faults are numbered; kind, number and seed repeat one.
 */
#ifndef MUONIUM_FAULTS_H
#define MUONIUM_FAULTS_H

#include "subject.h"

/* ---- the kinds, one function each ---- */

void faults_of_allocations(void);
void faults_of_system_calls(void);
void faults_of_callbacks(void);
void faults_of_kills(void);
void faults_of_truncation(void);
void faults_of_bit_flips(void);
void faults_of_larger_damage(void);
void faults_of_hostile_files(void);
void faults_of_forks(void);
void faults_of_threads(void);
void faults_of_many_optimizers(void);
void faults_of_float_modes(void);
void faults_of_locales(void);
void faults_of_affinity(void);
void faults_of_address_space(void);
void faults_of_file_limits(void);

/* ---- judge.c ---- */

/* What a run is to inject; set once, before any kind. */
typedef struct fault_choice {
    int64_t only;   /* the fault of this number alone; -1: all */
    uint64_t every; /* about one of so many */
    uint64_t limit; /* so many per kind at most; 0: no limit */
    bool sabotage;  /* see fault_sabotage */
} fault_choice;

typedef struct fault_count {
    uint64_t injected, mishandled;
    char skipped[128]; /* why nothing was injected; "" if it was */
} fault_count;

/* Run a kind in a process of its own and tell what it counted. A process that does not
 * end by itself within `seconds`, or ends otherwise than it should, is a mishandled fault. */
fault_count fault_run(const char *kind, void (*run)(void), double seconds,
                      const fault_choice *choice);

/* The next fault of this kind begins: whether it is to be injected; it is counted if so.
 * Called for every fault that there is, in the same order in every run. */
bool fault_next(void);

/* Where in the kind this is, for messages; holds until it is set anew. */
void fault_where(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Unless `handled`, the fault that began last was mishandled, and how: counted once per
 * fault. Returns `handled`. */
bool fault_expect(bool handled, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a call that must have given `expected`. */
bool fault_expect_status(muonium_status status, muonium_status expected);

/* Whether this is the self-check: every kind then breaks, after the library did its work,
 * what it judges, and each fault must be found mishandled. Which of `ways` to break it. */
bool fault_sabotage(unsigned way, unsigned ways);

/* This kind cannot run here, and why: not a failure, but told. */
void fault_skip(const char *reason);

/* Whether the build is instrumented in a way that some faults do not get on with. */
bool fault_sanitized(void);

#endif
