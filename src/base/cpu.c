/*
 * cpu.c: what the processor and the operating system offer.
 *
 * On x86 an instruction set counts only if CPUID has its bits *and* XCR0 shows that the
 * operating system saves its registers: CPUID alone is true in virtual machines
 * and old kernels where the first such instruction kills the process. On Arm the operating
 * system names the features itself. Nothing here looks at vendors or models, so a processor made
 * tomorrow is served too.
 */
#include "base/base.h"
#include "base/platform.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USUAL_L1_BYTES = 32 * 1024, USUAL_L2_BYTES = 512 * 1024 };

static mu_cpu detected = {.features = "", .refused = ""};
static pthread_once_t detected_once = PTHREAD_ONCE_INIT;

void mu_cpu_explain_refusal(int error, char *text, size_t size)
{
    const char *why = error == EPERM    ? "a filter of system calls forbids the request (EPERM)"
                      : error == EINVAL ? "the kernel does not know the request (EINVAL)"
                      : error == ENOSYS ? "the system has no such request (ENOSYS)"
                      : error == ENOSPC ? "an alternate signal stack is too small (ENOSPC)"
                                        : NULL;
    if (error == 0) {
        snprintf(text, size, "%s", "");
    } else if (why) {
        snprintf(text, size, "amx refused: %s", why);
    } else {
        snprintf(text, size, "amx refused: the request fails with error %d", error);
    }
}

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };

/* A leaf of CPUID; zeros where the processor does not have the leaf. */
static void cpuid(unsigned leaf, unsigned subleaf, unsigned r[REGISTERS])
{
    if (!__get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) {
        memset(r, 0, REGISTERS * sizeof *r);
    }
}

/* Which register sets the operating system saves, 0 if it does not say. */
static unsigned saved_registers(void)
{
    unsigned r[REGISTERS];
    cpuid(1, 0, r);
    if (!(r[ECX] & (1u << 27))) { /* OSXSAVE: without it, XGETBV is not allowed */
        return 0;
    }
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

/* Bits of XCR0. */
enum { XMM_YMM = 0x06, XMM_YMM_ZMM_MASKS = 0xe6, TILES = 0x60000 };

static const struct feature {
    const char *name;
    unsigned leaf, subleaf;
    unsigned reg, bit;
    unsigned saved; /* what XCR0 must contain; 0 for features older than XCR0 */
    mu_features feature;
} features[] = {
    {"sse4.2", 1, 0, ECX, 20, 0, MU_CPU_SSE42},
    {"avx", 1, 0, ECX, 28, XMM_YMM, MU_CPU_AVX},
    {"f16c", 1, 0, ECX, 29, XMM_YMM, MU_CPU_F16C},
    {"fma", 1, 0, ECX, 12, XMM_YMM, MU_CPU_FMA},
    {"avx2", 7, 0, EBX, 5, XMM_YMM, MU_CPU_AVX2},
    {"avx512f", 7, 0, EBX, 16, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512F},
    {"avx512dq", 7, 0, EBX, 17, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512DQ},
    {"avx512bw", 7, 0, EBX, 30, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512BW},
    {"avx512vl", 7, 0, EBX, 31, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512VL},
    {"avx512_bf16", 7, 1, EAX, 5, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512_BF16},
    {"avx512_fp16", 7, 0, EDX, 23, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512_FP16},
    {"avx_vnni", 7, 1, EAX, 4, XMM_YMM, MU_CPU_AVX_VNNI},
    {"avx512_vnni", 7, 0, ECX, 11, XMM_YMM_ZMM_MASKS, MU_CPU_AVX512_VNNI},
    {"amx_tile", 7, 0, EDX, 24, TILES, MU_CPU_AMX_TILE},
    {"amx_int8", 7, 0, EDX, 25, TILES, MU_CPU_AMX_INT8},
    {"amx_bf16", 7, 0, EDX, 22, TILES, MU_CPU_AMX_BF16},
};
enum { FEATURES = sizeof features / sizeof features[0] };

static void detect_features(mu_cpu *cpu)
{
    static char names[FEATURES * 16], refused[96];
    unsigned saved = saved_registers();
    int error = mu_includes(saved, TILES) ? mu_platform_lend_tiles() : 0;
    saved = error ? saved & ~(unsigned)TILES : saved;
    mu_cpu_explain_refusal(error, refused, sizeof refused);
    size_t length = 0;
    for (size_t i = 0; i < FEATURES; i++) {
        const struct feature *feature = &features[i];
        unsigned r[REGISTERS];
        cpuid(feature->leaf, feature->subleaf, r);
        if (((r[feature->reg] >> feature->bit) & 1u) != 0 && mu_includes(saved, feature->saved)) {
            cpu->has |= feature->feature;
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length > 0 ? " " : "", feature->name);
        }
    }
    cpu->features = names;
    cpu->refused = refused;
}

/* The data caches from one of the two leaves that list caches in the same form. */
static void detect_caches(unsigned leaf, mu_cpu *cpu)
{
    enum { NO_CACHE = 0, INSTRUCTION_CACHE = 2, MORE_THAN_EXIST = 16 };
    for (unsigned index = 0; index < MORE_THAN_EXIST; index++) {
        unsigned r[REGISTERS];
        cpuid(leaf, index, r);
        unsigned type = r[EAX] & 31u, level = (r[EAX] >> 5) & 7u;
        if (type == NO_CACHE) {
            break;
        }
        if (type == INSTRUCTION_CACHE) {
            continue;
        }
        size_t ways = (size_t)(r[EBX] >> 22) + 1;
        size_t partitions = ((r[EBX] >> 12) & 1023u) + 1;
        size_t line = (r[EBX] & 4095u) + 1;
        size_t bytes = ways * partitions * line * ((size_t)r[ECX] + 1);
        if (level == 1 && cpu->l1_bytes == 0) {
            cpu->l1_bytes = bytes;
        } else if (level == 2 && cpu->l2_bytes == 0) {
            cpu->l2_bytes = bytes;
        }
    }
}

static void detect_by_architecture(mu_cpu *cpu)
{
    detect_features(cpu);
    detect_caches(4, cpu);
    detect_caches(0x8000001du, cpu);
}

#elif defined(__aarch64__)

static const struct feature {
    const char *name;
    mu_platform_feature told; /* where the system tells of it */
    mu_features feature;
} features[] = {
    {"neon", {1, 1, "hw.optional.AdvSIMD"}, MU_CPU_NEON},
    {"crc32", {1, 7, "hw.optional.armv8_crc32"}, MU_CPU_CRC32},
    {"dotprod", {1, 20, "hw.optional.arm.FEAT_DotProd"}, MU_CPU_DOTPROD},
    {"i8mm", {2, 13, "hw.optional.arm.FEAT_I8MM"}, MU_CPU_I8MM},
    {"bf16", {2, 14, "hw.optional.arm.FEAT_BF16"}, MU_CPU_BF16},
};
enum { FEATURES = sizeof features / sizeof features[0] };

static void detect_by_architecture(mu_cpu *cpu)
{
    static char names[FEATURES * 16];
    size_t length = 0;
    for (size_t i = 0; i < FEATURES; i++) {
        if (features[i].feature == MU_CPU_NEON || mu_platform_has(&features[i].told)) {
            cpu->has |= features[i].feature;
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length > 0 ? " " : "", features[i].name);
        }
    }
    cpu->features = names;
    mu_platform_caches(&cpu->l1_bytes, &cpu->l2_bytes);
}

#else

static void detect_by_architecture(mu_cpu *cpu)
{
    (void)cpu;
}

#endif

/* `bytes` if known, else what the C library says, else `usual`. */
static size_t cache_size(size_t bytes, int sysconf_name, size_t usual)
{
    if (bytes > 0) {
        return bytes;
    }
    long said = sysconf_name >= 0 ? sysconf(sysconf_name) : 0;
    return said > 0 ? (size_t)said : usual;
}

static void detect(void)
{
    detect_by_architecture(&detected);
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    const int l1_name = _SC_LEVEL1_DCACHE_SIZE, l2_name = _SC_LEVEL2_CACHE_SIZE;
#else
    const int l1_name = -1, l2_name = -1;
#endif
    detected.l1_bytes = cache_size(detected.l1_bytes, l1_name, USUAL_L1_BYTES);
    detected.l2_bytes = cache_size(detected.l2_bytes, l2_name, USUAL_L2_BYTES);
}

const mu_cpu *mu_cpu_detect(void)
{
    pthread_once(&detected_once, detect);
    return &detected;
}

/* A copy, because the program may change its environment later. Longer values
 * are cut; none of them is a valid one. */
static char override_value[64];
static pthread_once_t override_once = PTHREAD_ONCE_INIT;

static void read_override(void)
{
    const char *value = getenv("MUONIUM_CPU");
    if (value != NULL) {
        strncpy(override_value, value, sizeof override_value - 1);
    }
}

const char *mu_cpu_override(void)
{
    pthread_once(&override_once, read_override);
    return override_value[0] != '\0' ? override_value : NULL;
}

/* ---- the choice ---- */

static const mu_instruction_set sets[] = {
#define INSTRUCTION_SET(name, features) {#name, MU_NEEDS_##name},
#include "base/instruction_sets.def"
#undef INSTRUCTION_SET
};

enum { SETS = sizeof sets / sizeof sets[0] };

const mu_instruction_set *mu_instruction_set_at(size_t index)
{
    return index < SETS ? &sets[index] : NULL;
}

/* Made once. `problem` is the message of a MUONIUM_CPU that cannot be obeyed; then nothing is in
 * use. */
static struct {
    mu_features usable;
    const char *isa;
    char reason[MU_CPU_REASON_SIZE];
    char problem[640];
} choice;

static pthread_once_t choice_made = PTHREAD_ONCE_INIT;

/* The names that MUONIUM_CPU may have here. */
static const char *offered(void)
{
    static char names[SETS * 24];
    size_t length = 0;
    for (size_t i = 0; i < SETS; i++) {
        if (mu_includes(mu_cpu_detect()->has, sets[i].needs)) {
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length > 0 ? ", " : "", sets[i].name);
        }
    }
    return names;
}

static void choose(void)
{
#if defined(MUONIUM_WITH_BLAS)
    const bool has_blas = true;
#else
    const bool has_blas = false;
#endif
    const mu_cpu *cpu = mu_cpu_detect();
    const char *wanted = mu_cpu_override();
    const mu_instruction_set *named = NULL;
    choice.usable = cpu->has;
    for (size_t i = 0; i < SETS; i++) {
        named = wanted && strcmp(wanted, sets[i].name) == 0 ? &sets[i] : named;
        choice.isa = mu_includes(cpu->has, sets[i].needs) ? sets[i].name : choice.isa;
    }
    if (!wanted) {
        snprintf(choice.reason, sizeof choice.reason, "the best that this CPU has%s%s",
                 cpu->refused[0] ? "; " : "", cpu->refused);
        return;
    }
    bool blas = strcmp(wanted, "blas") == 0;
    snprintf(choice.reason, sizeof choice.reason, "MUONIUM_CPU=%.64s", wanted);
    if (named) {
        choice.usable = named->needs;
        choice.isa = named->name;
    }
    if (!mu_includes(cpu->has, choice.usable)) {
        snprintf(choice.problem, sizeof choice.problem,
                 "MUONIUM_CPU is \"%s\", which this CPU does not have%s%s%s: use %s, or unset it",
                 wanted, cpu->refused[0] ? " (" : "", cpu->refused, cpu->refused[0] ? ")" : "",
                 offered());
    } else if (!named && !(blas && has_blas)) {
        snprintf(choice.problem, sizeof choice.problem,
                 "MUONIUM_CPU is \"%.64s\"; this build and CPU have %s: use one of these, or unset "
                 "it%s",
                 wanted, offered(), blas ? " (this build has no blas)" : "");
    }
}

muonium_status mu_cpu_choose(void)
{
    pthread_once(&choice_made, choose);
    if (choice.problem[0]) {
        return mu_fail(MUONIUM_INVALID, "%s", choice.problem);
    }
    return mu_pool_check(); /* here, because every caller that computes asks */
}

mu_features mu_cpu_usable(void)
{
    return choice.usable;
}

const char *mu_cpu_isa(void)
{
    return choice.isa;
}

const char *mu_cpu_reason(void)
{
    return choice.reason;
}
