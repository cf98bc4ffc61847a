/*
 * unroll.h: loops over registers.
 */
#ifndef MU_UNROLL_H
#define MU_UNROLL_H

/* The loop that follows has a constant number of turns, at most 16, and is to become as many
 * copies of its body: an array that it goes through may then be registers. */
#if defined(__clang__)
#define MU_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define MU_UNROLLED _Pragma("GCC unroll 16")
#endif

#endif
