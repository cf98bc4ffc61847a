/*
 * memory.c: where the library gets its memory, and the hook that replaces it.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks of two or more huge pages get huge pages where the system has them. A product reads rows
 * of three matrices at a time, which are on more small pages than a TLB holds. */
enum { HUGE_PAGE = 2 << 20, HUGE_PAGES_FROM = 2 * HUGE_PAGE };

static void *allocate_from_c_library(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    void *memory;
    bool huge = bytes >= HUGE_PAGES_FROM;
    if (posix_memalign(&memory, huge ? HUGE_PAGE : alignment, bytes) != 0) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (huge) {
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
#endif
    return memory;
}

static void release_to_c_library(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static const muonium_allocator c_library = {allocate_from_c_library, release_to_c_library, NULL};

/* Unguarded: the allocator may be replaced only while the library holds no
 * memory, hence while no call is under way that could read this. */
static muonium_allocator in_force = {allocate_from_c_library, release_to_c_library, NULL};

muonium_status muonium_set_allocator(const muonium_allocator *allocator)
{
    if (allocator == NULL) {
        in_force = c_library;
        return MUONIUM_OK;
    }
    if (allocator->allocate == NULL || allocator->release == NULL) {
        return mu_fail(MUONIUM_INVALID,
                       "allocator: `%s` is NULL: set both functions, or pass NULL for the C "
                       "library's allocator",
                       allocator->allocate == NULL ? "allocate" : "release");
    }
    in_force = *allocator;
    return MUONIUM_OK;
}

void *mu_alloc(size_t bytes)
{
    /* Allocators may return NULL for no bytes, which would look like a failure. */
    const char *outer = mu_callback_begin("allocate");
    void *memory = in_force.allocate(in_force.context, bytes > 0 ? bytes : 1, MU_ALIGNMENT);
    mu_callback_end(outer);
    return memory;
}

typedef struct zeroing {
    char *memory;
    size_t bytes;
} zeroing;

static void zero_page(void *context, size_t index, unsigned worker)
{
    const zeroing *z = context;
    size_t first = index * HUGE_PAGE, left = z->bytes - first;
    (void)worker;
    memset(z->memory + first, 0, left < HUGE_PAGE ? left : HUGE_PAGE);
}

/* Much memory is zeroed by all threads: a page belongs to the NUMA node of who touches it first. */
void *mu_alloc_zeroed(size_t bytes)
{
    zeroing z = {mu_alloc(bytes), bytes};
    if (z.memory != NULL) {
        size_t pages = bytes / HUGE_PAGE + (bytes % HUGE_PAGE != 0);
        mu_pool_run(zero_page, &z, pages, bytes >= HUGE_PAGES_FROM ? mu_pool_workers() : 1);
    }
    return z.memory;
}

void mu_populate(void *memory, size_t bytes)
{
#if defined(MADV_POPULATE_WRITE)
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory / page * page;
    madvise((void *)first, (uintptr_t)memory + bytes - first, MADV_POPULATE_WRITE);
#else
    (void)memory;
    (void)bytes;
#endif
}

void mu_free(void *memory)
{
    if (memory != NULL) {
        const char *outer = mu_callback_begin("release");
        in_force.release(in_force.context, memory);
        mu_callback_end(outer);
    }
}
