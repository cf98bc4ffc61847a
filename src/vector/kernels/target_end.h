/*
 * target_end.h: the end of what target.h begins. No include guard, on purpose.
 */
#if !defined(MU_EMULATE)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
