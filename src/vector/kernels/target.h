/*
 * target.h: compile what follows for an instruction set, whatever the compiler's flags are. A
 * kernel file defines TARGET_name for one of the sets below, includes this before any
 * other header of the library, and ends with target_end.h. The dispatcher calls its functions only
 * where the CPU has the instructions. No include guard, on purpose.
 *
 * Headers of the system come first: their functions are then compiled as everywhere else.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(MU_EMULATE) /* tests compile kernels for instructions that are emulated */
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

/* clang-format off */
#if defined(__clang__)
#if defined(TARGET_AVX2)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), \
    apply_to = function)
#elif defined(TARGET_AVX_VNNI)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), \
    apply_to = function)
#elif defined(TARGET_AVX512)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl"))), \
    apply_to = function)
#elif defined(TARGET_AVX512_VNNI)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni"))), \
    apply_to = function)
#elif defined(TARGET_AVX512_BF16)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16"))), \
    apply_to = function)
#elif defined(TARGET_AMX)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16," \
                          "amx-tile,amx-int8,amx-bf16"))), \
    apply_to = function)
#elif defined(TARGET_NEON_DOTPROD)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#elif defined(TARGET_NEON_I8MM)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#elif defined(TARGET_NEON_BF16)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#endif
#else
#pragma GCC push_options
#if defined(TARGET_AVX2)
#pragma GCC target("avx2,fma,f16c")
#elif defined(TARGET_AVX_VNNI)
#pragma GCC target("avx2,fma,f16c,avxvnni")
#elif defined(TARGET_AVX512)
#pragma GCC target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#elif defined(TARGET_AVX512_VNNI)
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,prefer-vector-width=512")
#elif defined(TARGET_AVX512_BF16)
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")
#elif defined(TARGET_AMX)
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,amx-tile,amx-int8,amx-bf16," \
    "prefer-vector-width=512")
#elif defined(TARGET_NEON_DOTPROD)
#pragma GCC target("arch=armv8.2-a+dotprod")
#elif defined(TARGET_NEON_I8MM)
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#elif defined(TARGET_NEON_BF16)
#pragma GCC target("arch=armv8.2-a+bf16")
#endif
#endif
/* clang-format on */

#endif
