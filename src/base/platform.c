/*
 * platform.c: see platform.h.
 */
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

int mu_platform_sync(int file)
{
#if defined(F_FULLFSYNC)
    /* fsync of macOS leaves data in the cache of the disk. Not every file system has the other. */
    if (fcntl(file, F_FULLFSYNC) == 0) {
        return 0;
    }
    if (errno == EIO || errno == EINTR) {
        return -1;
    }
#endif
    return fsync(file);
}

int mu_platform_lend_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 ? 0 : errno;
#else
    return ENOSYS;
#endif
}

#if defined(__linux__)

bool mu_platform_has(const mu_platform_feature *feature)
{
    unsigned long vector = getauxval(feature->vector == 1 ? AT_HWCAP : AT_HWCAP2);
    return (vector >> feature->bit & 1u) != 0;
}

/* The first line of a file of a cache: "Data", "2", "512K". */
static bool read_line(int index, const char *name, char line[32])
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(line, 32, file) != NULL;
    fclose(file);
    return read;
}

void mu_platform_caches(size_t *l1_bytes, size_t *l2_bytes)
{
    char type[32], level[32], size[32];
    for (int index = 0; read_line(index, "type", type); index++) {
        if (type[0] == 'I' || !read_line(index, "level", level) ||
            !read_line(index, "size", size)) { /* I: instructions */
            continue;
        }
        char *unit;
        size_t bytes = strtoul(size, &unit, 10);
        bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
        if (bytes > 0 && (level[0] == '1' || level[0] == '2')) {
            *(level[0] == '1' ? l1_bytes : l2_bytes) = bytes;
        }
    }
}

#elif defined(__APPLE__)

/* The value of a key; 0 where the system does not know it. */
static size_t value_of(const char *key)
{
    uint64_t value = 0; /* the system writes 4 or 8 bytes, the lowest first */
    size_t bytes = sizeof value;
    return sysctlbyname(key, &value, &bytes, NULL, 0) == 0 ? (size_t)value : 0;
}

bool mu_platform_has(const mu_platform_feature *feature)
{
    return value_of(feature->key) != 0;
}

/* Those of the fast cores, of which several share an L2. */
void mu_platform_caches(size_t *l1_bytes, size_t *l2_bytes)
{
    size_t l1 = value_of("hw.perflevel0.l1dcachesize"), l2 = value_of("hw.perflevel0.l2cachesize");
    size_t sharing = value_of("hw.perflevel0.cpusperl2");
    *l1_bytes = l1 > 0 ? l1 : *l1_bytes;
    *l2_bytes = l2 > 0 && sharing > 0 ? l2 / sharing : *l2_bytes;
}

#else

bool mu_platform_has(const mu_platform_feature *feature)
{
    (void)feature;
    return false;
}

void mu_platform_caches(size_t *l1_bytes, size_t *l2_bytes)
{
    (void)l1_bytes;
    (void)l2_bytes;
}

#endif
