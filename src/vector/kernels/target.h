/*
 * target.h: compile what follows for an instruction set, whatever the compiler's flags are. A
 * kernel file defines TARGET_AVX2, TARGET_AVX512 or TARGET_AVX512_BF16, includes this before any
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

#if !defined(MU_EMULATE_AVX512) /* tests compile kernels for instructions that are emulated */
#include <immintrin.h>

#if defined(__clang__)
#if defined(TARGET_AVX2)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(TARGET_AVX512)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl"))),                   \
    apply_to = function)
#else
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16"))),        \
    apply_to = function)
#endif
#else
#pragma GCC push_options
#if defined(TARGET_AVX2)
#pragma GCC target("avx2,fma,f16c")
#elif defined(TARGET_AVX512)
#pragma GCC target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#else
#pragma GCC target(                                                                                \
    "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")
#endif
#endif

#endif
