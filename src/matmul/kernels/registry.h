/*
 * registry.h: one line per kernel: KERNEL(name), which kernels.h declares and registry.c lists, and
 * so the dispatcher, the tests and the benchmark find. Within a type, ordered from the most general
 * to the most capable. No include guard, on purpose.
 */
KERNEL(portable_f32_4x8)
KERNEL(portable_f64_4x4)
#if defined(__x86_64__)
KERNEL(avx2_f32_6x16)
KERNEL(avx2_f64_6x8)
KERNEL(avx512_f32_8x32)
KERNEL(avx512_f64_8x16)
#endif
#if defined(MU_HAVE_AVX512_BF16)
KERNEL(avx512_bf16_8x32)
#endif
