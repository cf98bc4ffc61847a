/*
 * quota.h: the CPU quota of the control group in which this process is, as containers set it.
 */
#ifndef MU_QUOTA_H
#define MU_QUOTA_H

/* The CPUs that the quota allows, rounded up: the least of the process's group and of all groups
 * around it, by cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us). 0: there is no limit. `root` is ""
 * but in tests, where /proc and /sys are below it. */
unsigned mu_quota_cpus(const char *root);

#endif
