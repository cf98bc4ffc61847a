/*
 * burst_template.h: multiply and add alone: the peak of a kernel's instructions. Operands change
 * from round to round, because constant ones take less power and so allow a higher clock than
 * products can have. Its parameters are those of kernel_template.h. No include guard, on purpose.
 */
/* Enough independent sums to hide the latency of a multiply-add, few enough for the registers. */
#if !defined(CHAINS)
#define CHAINS 12
#endif

static double NAME(burst)(size_t rounds)
{
    enum { NUMBERS = 64 };
    T numbers[NUMBERS + 4 * VL];
    uint32_t state = 1;
    for (size_t i = 0; i < NUMBERS + 4 * VL; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (T)(int32_t)state * (T)0x1p-31;
#if PAIRS
        uint32_t pair = mu_bits_of_f32(numbers[i]) & 0xffff0000u;
        numbers[i] = mu_f32_of_bits(pair | pair >> 16);
#endif
    }
    V sum[CHAINS];
    MU_UNROLLED
    for (int i = 0; i < CHAINS; i++) {
        sum[i] = VEC(set1)((T)i);
    }
    for (size_t r = 0; r < rounds; r++) {
        const T *at = numbers + r % NUMBERS;
        V factors[2] = {VEC(load)(at), VEC(load)(at + VL)};
        V terms[2] = {VEC(load)(at + 2 * VL), VEC(load)(at + 3 * VL)};
        MU_UNROLLED
        for (int i = 0; i < CHAINS; i++) {
#if PAIRS
            sum[i] = VEC(fma_pairs)(factors[i % 2], terms[i / 2 % 2], sum[i]);
#else
            sum[i] = VEC(fma)(factors[i % 2], terms[i / 2 % 2], sum[i]);
#endif
        }
    }
    T kept[VL];
    for (int i = 1; i < CHAINS; i++) {
        sum[0] = VEC(add)(sum[0], sum[i]);
    }
    VEC(store)(kept, sum[0]);
    /* The sums are numbers: asking keeps the compiler from dropping the work. */
    return kept[0] == kept[0] ? 2.0 * (1 + PAIRS) * CHAINS * VL * (double)rounds : 0;
}
