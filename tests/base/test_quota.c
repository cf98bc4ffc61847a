/*
 * test_quota.c: CPU quotas of control groups and the order of CPUs, read below a directory that
 * the test makes.
 */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/quota.h"
#include "base/topology.h"

static char root[] = "/tmp/test_quota_XXXXXX";

/* Write a file below the root, with the directories that it needs. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void forget_all(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s/proc' '%s/sys'", root, root);
    assert_int_equal(system(command), 0);
}

typedef struct quota_case {
    const char *groups; /* /proc/self/cgroup */
    const char *files[3][2];
    unsigned cpus;
} quota_case;

static const quota_case cases[] = {
    /* No control groups at all, and none with a limit. */
    {NULL, {{0}}, 0},
    {"0::/\n", {{0}}, 0},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "max 100000\n"}}, 0},
    /* Version 2: in a container, whose group is its root; rounded up; without a period. */
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "200000 100000\n"}}, 2},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "150000 100000\n"}}, 2},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "50000 100000\n"}}, 1},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "300000\n"}}, 3},
    /* The group itself, a group around it, and the lesser of both. */
    {"0::/a/b\n", {{"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}}, 4},
    {"0::/a/b\n", {{"/sys/fs/cgroup/a/cpu.max", "500000 100000\n"}}, 5},
    {"0::/a/b\n",
     {{"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"/sys/fs/cgroup/a/cpu.max", "6000 1000\n"}},
     6},
    {"0::/a/b\n",
     {{"/sys/fs/cgroup/a/b/cpu.max", "7000 1000\n"}, {"/sys/fs/cgroup/a/cpu.max", "3000 1000\n"}},
     3},
    {"0::/other\n", {{"/sys/fs/cgroup/a/cpu.max", "1000 1000\n"}}, 0},
    /* Version 2 beside version 1. */
    {"3:memory:/a\n0::/a\n", {{"/sys/fs/cgroup/unified/a/cpu.max", "2000 1000\n"}}, 2},
    /* Version 1: two files; the group as the host names it. */
    {"4:cpu,cpuacct:/docker/1\n2:cpuset:/\n",
     {{"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     2},
    {"4:cpu:/a\n",
     {{"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "350000\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}},
     4},
    {"4:cpu:/a\n",
     {{"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}},
     0},
    /* Another controller is none of ours, and nonsense no limit. */
    {"4:cpuset:/a\n",
     {{"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}},
     0},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "many 100000\n"}}, 0},
    {"0::/\n", {{"/sys/fs/cgroup/cpu.max", "100000 0\n"}}, 0},
    {"nonsense\n\n0\n", {{"/sys/fs/cgroup/cpu.max", "1000 1000\n"}}, 0},
};

static void quotas_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        forget_all();
        if (cases[i].groups) {
            put("/proc/self/cgroup", cases[i].groups);
        }
        for (size_t f = 0; f < 3 && cases[i].files[f][0]; f++) {
            put(cases[i].files[f][0], cases[i].files[f][1]);
        }
        unsigned found = mu_quota_cpus(root);
        if (found != cases[i].cpus) {
            fail_msg("case %zu: %u CPUs instead of %u", i, found, cases[i].cpus);
        }
    }
}

/* Two packages of two cores of two threads, numbered as Linux often does: siblings 4 apart. */
static void neighbours_are_adjacent(void **state)
{
    (void)state;
    forget_all();
    unsigned cpus[8];
    for (unsigned cpu = 0; cpu < 8; cpu++) {
        char path[128], text[32];
        cpus[cpu] = 7 - cpu;
        const struct {
            const char *name;
            unsigned number;
        } files[] = {{"topology/physical_package_id", cpu % 2},
                     {"topology/core_id", cpu % 4 / 2},
                     {"cache/index3/shared_cpu_list", cpu % 2},
                     {"topology/thread_siblings_list", cpu % 4}};
        for (size_t f = 0; f < 4; f++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/%s", cpu, files[f].name);
            snprintf(text, sizeof text, f == 3 ? "%u,7\n" : "%u\n", files[f].number);
            put(path, text);
        }
    }
    mu_topology_order(root, cpus, 8);
    const unsigned expected[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(cpus[i], expected[i]);
    }
    forget_all();
    unsigned unknown[3] = {5, 1, 3};
    mu_topology_order(root, unknown, 3);
    assert_int_equal(unknown[0], 1);
    assert_int_equal(unknown[1], 3);
    assert_int_equal(unknown[2], 5);
}

static void shares_are_in_range(void **state)
{
    (void)state;
    for (int prepared = 0; prepared < 2; prepared++) {
        for (unsigned shares = 1; shares < 20; shares++) {
            for (unsigned worker = 0; worker < 16; worker++) {
                assert_true(mu_topology_share(worker, 16, shares) < shares);
            }
        }
        mu_topology_prepare();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas_are_read),
        cmocka_unit_test(neighbours_are_adjacent),
        cmocka_unit_test(shares_are_in_range),
    };
    if (!mkdtemp(root)) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_all();
    rmdir(root);
    return failed;
}
