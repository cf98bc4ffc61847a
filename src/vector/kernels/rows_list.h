/*
 * rows_list.h: one line per set of row operations, from the most general instruction set to the
 * most capable. No include guard, on purpose.
 */
ROWS(mu_rows_portable_f32)
ROWS(mu_rows_portable_f64)
#if defined(__x86_64__)
ROWS(mu_rows_avx2_f32)
ROWS(mu_rows_avx2_f64)
ROWS(mu_rows_avx512_f32)
ROWS(mu_rows_avx512_f64)
#endif
