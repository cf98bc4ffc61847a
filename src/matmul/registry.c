/*
 * registry.c: which kernels exist, and which one this process uses.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "matmul/blas.h"
#include "matmul/kernels/kernels.h"

static const mu_kernel *const kernels[] = {
#define KERNEL(name) &name,
#include "matmul/kernels/registry.h"
#undef KERNEL
};

enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

static const char *const isa_names[] = {"portable", "avx2", "avx512", "avx512_bf16"};

/* The decision, made once. `problem` is the message of a MUONIUM_CPU that cannot
 * be obeyed; then nothing is in use. */
static struct {
    mu_isa isa;
    bool overridden;
    char reason[96];
    char problem[256];
} choice;

static pthread_once_t choice_made = PTHREAD_ONCE_INIT;

static void choose(void)
{
    mu_isa best = mu_cpu_detect()->best;
    const char *wanted = mu_cpu_override();
    choice.isa = best;
    if (!wanted) {
        snprintf(choice.reason, sizeof choice.reason, "the best that this CPU has");
        return;
    }
    snprintf(choice.reason, sizeof choice.reason, "MUONIUM_CPU=%.64s", wanted);
    if (mu_blas_selected()) {
        choice.overridden = true;
        return;
    }
    for (size_t i = 0; i < sizeof isa_names / sizeof isa_names[0]; i++) {
        if (strcmp(wanted, isa_names[i]) == 0) {
            choice.isa = (mu_isa)i;
            choice.overridden = true;
        }
    }
    if (!choice.overridden) {
        snprintf(choice.problem, sizeof choice.problem,
                 "MUONIUM_CPU is \"%.64s\": use portable, avx2, avx512, avx512_bf16%s, or unset it",
                 wanted, strcmp(wanted, "blas") == 0 ? " (this build has no blas)" : "");
    } else if (choice.isa > best) {
        snprintf(choice.problem, sizeof choice.problem,
                 "MUONIUM_CPU is \"%s\", but this CPU and build offer only %s: choose that or "
                 "less, or unset it",
                 wanted, isa_names[best]);
    }
}

/* The kernel for operands of exactly that type, or NULL. */
static const mu_kernel *best_for(muonium_dtype operands)
{
    for (size_t i = KERNEL_COUNT; i-- > 0;) {
        if (kernels[i]->operands == operands && kernels[i]->isa <= choice.isa) {
            return kernels[i];
        }
    }
    return NULL;
}

/* ---- bf16: its own instructions, or those of f32 ---- */

/* Some CPUs multiply bf16 at twice the rate of f32, others at half of it, and no feature bit
 * tells: both are measured when bf16 is first asked for. Results are the same either way. */
static struct {
    const mu_kernel *kernel; /* what multiplies bf16 */
    char reason[96];
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
            double start = seconds_now(), flops = both[k]->burst(ROUNDS);
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
    if (choice.overridden) {
        snprintf(reason, size, "%s", choice.reason);
    } else if (!native) {
        snprintf(reason, size, "this CPU and build have no bf16 products");
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
    return index < KERNEL_COUNT ? kernels[index] : NULL;
}

muonium_status mu_kernel_choose(muonium_dtype type, const mu_kernel **kernel)
{
    pthread_once(&choice_made, choose);
    if (choice.problem[0]) {
        return mu_fail(MUONIUM_INVALID, "%s", choice.problem);
    }
    muonium_status status = mu_pool_check(); /* here, as whoever computes comes by */
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
        .isa = mu_blas_selected() ? "blas" : isa_names[choice.isa],
        .kernel = mu_blas_selected() ? "cblas_sgemm" : kernel->name,
        .reason = choice.reason,
        .features = mu_cpu_detect()->features,
        .bf16_kernel = mu_blas_selected() ? "cblas_sgemm" : half->name,
        .bf16_reason = half_choice.reason,
    };
    mu_sized_write(info, size, &found, sizeof found);
    return MUONIUM_OK;
}
