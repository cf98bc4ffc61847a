/*
 * environment.c: environment variables and what they mean.
 */
#include "environment.h"

const environment_variable environment_variables[ENVIRONMENT_VARIABLES] = {
    {"MUONIUM_CPU", "instruction set to use: portable, avx2, avx_vnni, avx512, avx512_vnni, "
                    "avx512_bf16, amx; on 64-bit Arm portable, neon, neon_dotprod, neon_i8mm, "
                    "neon_bf16"},
    {"MUONIUM_NUM_THREADS", "number of threads; by default one per CPU"},
};
