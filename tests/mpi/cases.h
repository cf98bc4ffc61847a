/*
 * cases.h: what must hold on any number of ranks, and the checks that say so. Every rank checks; a
 * check that fails is counted and the rank goes on, so that all ranks make the same calls.
 */
#ifndef MUONIUM_TEST_MPI_CASES_H
#define MUONIUM_TEST_MPI_CASES_H

#include "model.h"

#include <stdio.h>

/* ---- cases.c ---- */

extern int rank, ranks, failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d of %d, %s:%d: %s: ", rank, ranks, __FILE__, __LINE__,         \
                    #condition);                                                                   \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

#define CHECK_OK(call) CHECK((call) == MUONIUM_OK, "%s", muonium_last_error())

void check_refused(muonium_status status, muonium_status expected, const char *part);
void check_same(const model *a, const model *b, const char *label, int step);
muonium_mpi *create_on(MPI_Comm comm, model *m, const muonium_mpi_options *options);

/* ---- interposed.c ---- */

extern uint64_t gradient_bytes, update_bytes, sent_bytes; /* that this rank sent */
extern bool small_only;  /* no call may be given more than a small chunk */
extern long fail_after;  /* so many allocations; -1: never */
extern size_t allocated; /* bytes, in all */
extern const muonium_allocator counting_allocator;

/* ---- case_steps.c ---- */

void case_equal(void);
void case_split(void);
void case_in_out(void);
void case_columns(void);
void case_bytes(void);
void case_nonfinite(void);
void case_overflow(void);
void case_bucket(void);

/* ---- case_refusals.c ---- */

void case_mismatch(void);
void case_rates(void);
void case_held(void);
void case_creation(void);
void case_misuse(void);

/* ---- case_checkpoints.c ---- */

void case_save(const char *path, model_kind kind);
void case_unsound(const char *path);
void case_convert(const char *path);
void case_resume(const char *path, int saved_by, model_kind kind);

#endif
