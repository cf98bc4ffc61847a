/*
 * burst_template.h: multiply and add in registers alone: the peak of a kernel's instructions. Its
 * parameters are those of kernel_template.h. No include guard, on purpose.
 */
/* Enough independent sums to hide the latency of a multiply-add, few enough for the registers. */
static double NAME(burst)(size_t rounds)
{
    enum { CHAINS = 12 };
    V sum[CHAINS], factor = VEC(set1)((T)0.5), term = VEC(set1)((T)1e-3);
    MU_UNROLLED
    for (int i = 0; i < CHAINS; i++) {
        sum[i] = VEC(set1)((T)i);
    }
    for (size_t r = 0; r < rounds; r++) {
        MU_UNROLLED
        for (int i = 0; i < CHAINS; i++) {
#if PAIRS
            sum[i] = VEC(fma_pairs)(factor, term, sum[i]);
#else
            sum[i] = VEC(fma)(sum[i], factor, term);
#endif
        }
    }
    T kept[VL];
    for (int i = 1; i < CHAINS; i++) {
        sum[0] = VEC(add)(sum[0], sum[i]);
    }
    VEC(store)(kept, sum[0]);
    /* The sums tend to 2e-3, or grow: using them keeps the compiler from dropping the work. */
    return kept[0] >= 0 ? 2.0 * (1 + PAIRS) * CHAINS * VL * (double)rounds : 0;
}
