/*
 * registry.h: one line per kernel: KERNEL(isa, type, name). Included with KERNEL
 * defined by the dispatcher, the tests, the benchmark and whoever lists kernels.
 * Within a type, ordered from the most general to the most capable.
 */
KERNEL(MU_ISA_PORTABLE, MUONIUM_F32, mu_kernel_portable_f32_4x8)
KERNEL(MU_ISA_PORTABLE, MUONIUM_F64, mu_kernel_portable_f64_4x4)
#if defined(__x86_64__)
KERNEL(MU_ISA_AVX2, MUONIUM_F32, mu_kernel_avx2_f32_6x16)
KERNEL(MU_ISA_AVX2, MUONIUM_F64, mu_kernel_avx2_f64_6x8)
KERNEL(MU_ISA_AVX512, MUONIUM_F32, mu_kernel_avx512_f32_8x32)
KERNEL(MU_ISA_AVX512, MUONIUM_F64, mu_kernel_avx512_f64_8x16)
KERNEL(MU_ISA_AVX512_BF16, MUONIUM_BF16, mu_kernel_avx512_bf16_8x32)
#endif
