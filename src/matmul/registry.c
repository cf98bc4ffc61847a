/*
 * registry.c: which kernels exist, and which one this process uses.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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
    bool half = type == MUONIUM_BF16 || type == MUONIUM_F16;
    if (half && mu_blas_selected()) {
        type = MUONIUM_F32; /* it multiplies nothing else */
    }
    for (size_t i = KERNEL_COUNT; i-- > 0;) {
        if (kernels[i]->operands == type && kernels[i]->isa <= choice.isa) {
            *kernel = kernels[i];
            return MUONIUM_OK;
        }
    }
    return half ? mu_kernel_choose(MUONIUM_F32, kernel)
                : mu_fail(MUONIUM_INVALID, "no kernel computes in type %d", (int)type);
}

muonium_status muonium_cpu(muonium_cpu_info *info)
{
    if (!info) {
        return mu_fail(MUONIUM_INVALID, "info is NULL: pass a muonium_cpu_info to fill");
    }
    const mu_kernel *kernel = NULL;
    muonium_status status = mu_kernel_choose(MUONIUM_F32, &kernel);
    if (status != MUONIUM_OK) {
        return status;
    }
    info->isa = mu_blas_selected() ? "blas" : isa_names[choice.isa];
    info->kernel = mu_blas_selected() ? "cblas_sgemm" : kernel->name;
    info->reason = choice.reason;
    info->features = mu_cpu_detect()->features;
    return MUONIUM_OK;
}
