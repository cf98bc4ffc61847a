/*
 * quota.c: see quota.h.
 */
#include "base/quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The first two words of a file; false if it has none. A second that is missing is empty. */
static bool read_words(const char *path, char first[32], char second[32])
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return false;
    }
    second[0] = '\0';
    int words = fscanf(file, "%31s %31s", first, second);
    fclose(file);
    return words >= 1;
}

/* Whole CPUs for a quota and its period in microseconds; 0: no limit ("max", or -1). */
static unsigned cpus_of(const char *quota, const char *period)
{
    char *quota_end, *period_end;
    long long q = strtoll(quota, &quota_end, 10), p = strtoll(period, &period_end, 10);
    if (quota_end == quota || *quota_end || period_end == period || *period_end || q <= 0 ||
        p <= 0) {
        return 0;
    }
    long long cpus = q / p + (q % p != 0);
    return cpus > 0 && cpus <= INT_MAX ? (unsigned)cpus : 0;
}

/* The limit of one group, whose directory is given. */
static unsigned limit_of(const char *directory, bool v2)
{
    char path[PATH_BYTES + 32], quota[32], period[32], unused[32];
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", directory);
        return read_words(path, quota, period) ? cpus_of(quota, *period ? period : "100000") : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
    if (!read_words(path, quota, unused)) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
    return read_words(path, period, unused) ? cpus_of(quota, period) : 0;
}

static unsigned lesser(unsigned a, unsigned b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The least limit of a group and the groups around it, up to the directory of the hierarchy.
 * Inside a container the path of the group may be that of the host: then the directory itself is
 * what the container sees of its group. */
static unsigned limit_along(const char *hierarchy, const char *group, bool v2)
{
    char directory[PATH_BYTES];
    unsigned limit = limit_of(hierarchy, v2);
    int length = snprintf(directory, sizeof directory, "%s%s", hierarchy, group);
    if (length < 0 || (size_t)length >= sizeof directory) {
        return limit;
    }
    for (char *end = directory + length; (size_t)(end - directory) > strlen(hierarchy);) {
        *end = '\0';
        limit = lesser(limit, limit_of(directory, v2));
        end = strrchr(directory, '/');
    }
    return limit;
}

/* Whether a comma-separated list of controllers has "cpu". */
static bool has_cpu(const char *list)
{
    for (const char *at = list; (at = strstr(at, "cpu")); at += 3) {
        bool starts = at == list || at[-1] == ',';
        if (starts && (at[3] == '\0' || at[3] == ',')) {
            return true;
        }
    }
    return false;
}

/* The limit by one line of /proc/self/cgroup, "number:controllers:group". */
static unsigned limit_by_line(const char *root, char *line)
{
    static const char *const unified[] = {"", "/unified"};
    static const char *const divided[] = {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"};
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *group;
    if (!controllers || !(group = strchr(++controllers, ':'))) {
        return 0;
    }
    *group++ = '\0';
    bool v2 = *controllers == '\0';
    if (!v2 && !has_cpu(controllers)) {
        return 0;
    }
    const char *const *places = v2 ? unified : divided;
    size_t count = v2 ? sizeof unified / sizeof *unified : sizeof divided / sizeof *divided;
    unsigned limit = 0;
    for (size_t i = 0; i < count; i++) {
        char hierarchy[PATH_BYTES];
        int length = snprintf(hierarchy, sizeof hierarchy, "%s/sys/fs/cgroup%s", root, places[i]);
        if (length > 0 && (size_t)length < sizeof hierarchy) {
            limit = lesser(limit, limit_along(hierarchy, group, v2));
        }
    }
    return limit;
}

unsigned mu_quota_cpus(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    unsigned limit = 0;
    while (file && fgets(line, sizeof line, file)) {
        limit = lesser(limit, limit_by_line(root, line));
    }
    if (file) {
        fclose(file);
    }
    return limit;
}
