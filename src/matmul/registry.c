/*
 * registry.c: which kernels exist, and which one this process uses.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "matmul/blas.h"
#include "matmul/kernels/kernels.h"

static const struct entry {
    const mu_kernel *kernel;
    double (*burst)(size_t rounds);
} entries[] = {
#define KERNEL(name, ...) {&mu_kernel_##name, mu_burst_##name},
#include "matmul/kernels/kernels.def"
#undef KERNEL
};

enum { KERNEL_COUNT = sizeof entries / sizeof entries[0] };

/* The kernel for operands of exactly that type, or NULL. */
static const mu_kernel *best_for(muonium_dtype operands)
{
    for (size_t i = KERNEL_COUNT; i-- > 0;) {
        const mu_kernel *kernel = entries[i].kernel;
        if (kernel->operands == operands && mu_includes(mu_cpu_usable(), kernel->needs)) {
            return kernel;
        }
    }
    return NULL;
}

double mu_kernel_burst(const mu_kernel *kernel, size_t rounds)
{
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        if (entries[i].kernel == kernel) {
            return entries[i].burst(rounds);
        }
    }
    return 0;
}

/* ---- bf16: its own instructions, or those of f32 ---- */

/* With AVX512-BF16 some CPUs multiply bf16 at twice the rate of f32, others at half of it, and no
 * feature bit tells: both are measured when bf16 is first asked for. Results are the same either
 * way. A kernel with bits of its own is used wherever it can be: results must not depend on a
 * clock. */
static struct {
    const mu_kernel *kernel; /* what multiplies bf16 */
    char reason[MU_CPU_REASON_SIZE];
} half_choice;

static pthread_once_t half_choice_made = PTHREAD_ONCE_INIT;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Operations per second of both on this thread. A machine may be slowed down for a millisecond, or
 * interrupt a burst: so they take turns in bursts of some 10 us, and of those next to each other
 * the pair counts whose ratio is the median. */
static void measure_rates(const mu_kernel *const both[2], double rates[2])
{
    enum { PAIRS = 31, ROUNDS = 1 << 12 };
    double found[PAIRS][2];
    for (int i = 0; i < PAIRS; i++) {
        double pair[2];
        for (int k = 0; k < 2; k++) {
            double start = seconds_now(), flops = mu_kernel_burst(both[k], ROUNDS);
            pair[k] = flops / (seconds_now() - start + 1e-9); /* the clock may stand still */
        }
        int place = i; /* in order of ratios */
        for (; place > 0 && pair[0] * found[place - 1][1] < found[place - 1][0] * pair[1];
             place--) {
            memcpy(found[place], found[place - 1], sizeof pair);
        }
        memcpy(found[place], pair, sizeof pair);
    }
    memcpy(rates, found[PAIRS / 2], sizeof found[0]);
}

bool mu_prefer_native(double native, double f32)
{
    return native >= 1.2 * f32;
}

static void choose_half(void)
{
    const mu_kernel *native = best_for(MUONIUM_BF16), *f32 = best_for(MUONIUM_F32);
    char *reason = half_choice.reason;
    size_t size = sizeof half_choice.reason;
    half_choice.kernel = native && !mu_blas_selected() ? native : f32;
    if (mu_cpu_override()) {
        snprintf(reason, size, "%s", mu_cpu_reason());
    } else if (!native) {
        snprintf(reason, size, "this CPU and build have no bf16 products");
    } else if (native->own_bits) {
        snprintf(reason, size, "used wherever the CPU has it: its results differ in rounding");
    } else {
        double rates[2];
        mu_fenv environment = mu_fenv_enter(); /* muonium_cpu comes straight from the caller */
        measure_rates((const mu_kernel *const[2]){native, f32}, rates);
        mu_fenv_leave(environment);
        half_choice.kernel = mu_prefer_native(rates[0], rates[1]) ? native : f32;
        snprintf(reason, size, "measured on one thread: bf16 products %.0f GF/s, f32 %.0f",
                 rates[0] / 1e9, rates[1] / 1e9);
    }
}

/* ---- what callers ask ---- */

const mu_kernel *mu_kernel_at(size_t index)
{
    return index < KERNEL_COUNT ? entries[index].kernel : NULL;
}

muonium_status mu_kernel_choose(muonium_dtype type, const mu_kernel **kernel)
{
    muonium_status status = mu_cpu_choose();
    if (status != MUONIUM_OK) {
        return status;
    }
    if (type == MUONIUM_BF16) {
        pthread_once(&half_choice_made, choose_half);
        *kernel = half_choice.kernel;
        return MUONIUM_OK;
    }
    *kernel = best_for(type == MUONIUM_F16 ? MUONIUM_F32 : type);
    return *kernel ? MUONIUM_OK
                   : mu_fail(MUONIUM_INVALID, "no kernel computes in type %d", (int)type);
}

muonium_status muonium_cpu_sized(muonium_cpu_info *info, size_t size)
{
    if (!info) {
        return mu_fail(MUONIUM_INVALID, "info is NULL: pass a muonium_cpu_info to fill");
    }
    const mu_kernel *kernel = NULL, *half = NULL;
    muonium_status status = mu_kernel_choose(MUONIUM_F32, &kernel);
    if (status == MUONIUM_OK) {
        status = mu_kernel_choose(MUONIUM_BF16, &half);
    }
    if (status != MUONIUM_OK) {
        return status;
    }
    muonium_cpu_info found = {
        .isa = mu_blas_selected() ? "blas" : mu_cpu_isa(),
        .kernel = mu_blas_selected() ? "cblas_sgemm" : kernel->name,
        .reason = mu_cpu_reason(),
        .features = mu_cpu_detect()->features,
        .bf16_kernel = mu_blas_selected() ? "cblas_sgemm" : half->name,
        .bf16_reason = half_choice.reason,
    };
    mu_sized_write(info, size, &found, sizeof found);
    return MUONIUM_OK;
}
