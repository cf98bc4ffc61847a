/*
 * test.h: what the C tests share. It includes cmocka and what cmocka needs, so
 * a test includes this first, then the header it tests, and ends with
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(...), ...};
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 */
#ifndef MUONIUM_TEST_H
#define MUONIUM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "muonium.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED
#endif
#endif

/* ---- random numbers ---- */

/* The seed of this run: MUONIUM_TEST_SEED, else a new one each time. Printed to
 * standard error when first asked for, so that a failure can be repeated. */
uint64_t test_seed(void);

/* A stream of numbers. Streams with different labels are independent, so that a
 * test draws the same numbers whether or not others ran before it. */
typedef struct test_rng {
    uint64_t state;
} test_rng;

test_rng test_rng_start(const char *label); /* depends on test_seed() and the label */
uint64_t test_bits(test_rng *rng);
size_t test_below(test_rng *rng, size_t limit);              /* in [0, limit), limit >= 1 */
double test_uniform(test_rng *rng, double low, double high); /* in [low, high) */
double test_normal(test_rng *rng);                           /* mean 0, deviation 1 */
void test_fill_normal(test_rng *rng, double *out, size_t count);
void test_fill_normal_f32(test_rng *rng, float *out, size_t count);

/* ---- memory that traps what reads or writes beyond it ---- */

/* `bytes` of memory filled with 0xa5 (a large-exponent pattern in no useful
 * number) between two inaccessible pages. Its end lies `gap` bytes before the
 * page that follows: with 0, the first byte past the end traps; other values
 * give other alignments. Aborts the program if the system has no memory. */
void *test_guarded_alloc(size_t bytes, size_t gap);

/* The same with the beginning against the page before, `gap` bytes after it. */
void *test_guarded_alloc_front(size_t bytes, size_t gap);

void test_guarded_free(void *memory); /* NULL is allowed */

/* ---- memory that is counted and can fail ---- */

extern struct test_memory {
    atomic_long calls;      /* since test_fail_allocation; those that fail included */
    atomic_long bytes;      /* that these asked for */
    atomic_long alive;      /* blocks that are not released */
    atomic_long fail_at;    /* the call that fails, from 1; 0: none */
    atomic_bool persistent; /* and all after it */
} test_memory;

/* Let the library take its memory from an allocator that counts here. */
void test_count_memory(void);

/* Count calls from 0 again, and let one fail. */
void test_fail_allocation(long call, bool persistent);

/* ---- errors ---- */

/* `status` is `expected` and, unless it is MUONIUM_OK, muonium_last_error()
 * contains `part`. `status` is evaluated first and once. */
#define assert_status_message(status, expected, part)                                              \
    test_check_status((status), (expected), (part), #status, __FILE__, __LINE__)
#define assert_ok(status) test_check_status((status), MUONIUM_OK, NULL, #status, __FILE__, __LINE__)

void test_check_status(muonium_status status, muonium_status expected, const char *part,
                       const char *expression, const char *file, int line);

/* ---- child processes ---- */

/* What became of a child. */
typedef struct test_child {
    bool timed_out; /* killed at the deadline */
    int signal;     /* that ended it, or 0 */
    int exit_code;  /* if it exited by itself, else -1 */
} test_child;

/* Run function(context) in a forked child with the environment variable `name`
 * set to `value` (unset if `value` is NULL; none touched if `name` is NULL) and
 * kill it after `seconds`. The child exits with what the function returns. It
 * inherits what the parent has already decided; where that matters, as for
 * MUONIUM_CPU, use test_run_again. The child must not use cmocka's assertions. */
test_child test_fork(int (*function)(void *context), void *context, const char *name,
                     const char *value, double seconds);

/* Start this program anew, without arguments, with the variable set as above.
 * The program tells that it is the second by test_is_again(). */
test_child test_run_again(const char *name, const char *value, double seconds);
bool test_is_again(void);

/* The child ended by itself with exit code 0. */
#define assert_child_ok(child) test_check_child((child), #child, __FILE__, __LINE__)

void test_check_child(test_child child, const char *expression, const char *file, int line);

#endif
