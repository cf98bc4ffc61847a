/*
 * checks.h: checks that count failures and go on, so that all ranks make the same calls. The
 * program that includes this defines rank, ranks and failures.
 */
#ifndef MU_TEST_MPI_CHECKS_H
#define MU_TEST_MPI_CHECKS_H

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

static void check_refused(muonium_status status, muonium_status expected, const char *part)
{
    CHECK(status == expected, "%s, \"%s\"", muonium_status_name(status), muonium_last_error());
    CHECK(status == MUONIUM_OK || strstr(muonium_last_error(), part), "\"%s\" lacks \"%s\"",
          muonium_last_error(), part);
}

#endif
