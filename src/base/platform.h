/*
 * platform.h: what Linux and macOS do differently. Elsewhere the general answer is given: no
 * features, unknown caches.
 */
#ifndef MU_PLATFORM_H
#define MU_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>

/* Write a file or directory to the disk as fsync does, and wait until a loss of power would not
 * lose it. 0, or -1 and errno. */
int mu_platform_sync(int file);

/* Ask for the tile registers of AMX: 0, or an error as in errno. They are an x86 matter; ENOSYS on
 * other CPUs. Linux lends them to a process when it asks, because they make every signal frame 8 KB
 * larger. Threads and children inherit them. */
int mu_platform_lend_tiles(void);

/* Where the system tells of a feature of a 64-bit Arm CPU that programs may use. */
typedef struct mu_platform_feature {
    int vector, bit; /* Linux: 1 for AT_HWCAP, 2 for AT_HWCAP2, and the bit */
    const char *key; /* macOS: the name for sysctlbyname */
} mu_platform_feature;

bool mu_platform_has(const mu_platform_feature *feature);

/* The data caches of a core as the system describes them; a size that it does not tell stays. */
void mu_platform_caches(size_t *l1_bytes, size_t *l2_bytes);

#endif
