/*
 * environment.c: compute under the default floating-point environment, whatever
 * the host program has set, and give its own back afterwards.
 *
 * Hosts do set it: -ffast-math start-up code turns denormals off for the whole
 * process, and interval libraries leave a directed rounding mode behind. On
 * x86-64 the vector unit (MXCSR) does all f32 and f64 arithmetic; the x87
 * control word matters too, because long double uses it and C libraries take
 * the rounding of printf and strtod from it. It is written only if it differs
 * from the default, as writing it is slow and almost never needed.
 *
 * Exception flags raised between enter and leave are dropped: on x86-64 those
 * of MXCSR return to what they were; those of the x87 unit are cleared if its
 * control word had to be changed, since otherwise one of them could trap when
 * the host's unmasked exceptions come back.
 */
#include "base/base.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum {
    DEFAULT_MXCSR = 0x1f80, /* all exceptions masked, to nearest, no FTZ, no DAZ */
    DEFAULT_X87 = 0x037f    /* all exceptions masked, to nearest, 64-bit significand */
};

static void set_x87_control(unsigned short word)
{
    __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(word));
}

mu_fenv mu_fenv_enter(void)
{
    unsigned short x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    mu_fenv environment = {(_mm_getcsr() & 0xffffu) | ((unsigned)x87 << 16)};
    _mm_setcsr(DEFAULT_MXCSR);
    if (x87 != DEFAULT_X87) {
        set_x87_control(DEFAULT_X87);
    }
    return environment;
}

void mu_fenv_leave(mu_fenv environment)
{
    unsigned short x87 = (unsigned short)(environment.saved >> 16);
    if (x87 != DEFAULT_X87) {
        set_x87_control(x87);
    }
    _mm_setcsr(environment.saved & 0xffffu);
}

#else

mu_fenv mu_fenv_enter(void)
{
    mu_fenv environment;
    fegetenv(&environment.saved);
    fesetenv(FE_DFL_ENV);
    return environment;
}

void mu_fenv_leave(mu_fenv environment)
{
    fesetenv(&environment.saved);
}

#endif
