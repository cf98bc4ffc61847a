/*
 * float_modes.c: the program that calls the library has set its own rounding, flushes
 * denormals, traps exceptions or lowers the precision of the x87 unit. Results are those
 * of the usual mode, bit for bit, and after every call the mode is as it was.
 */
#include "faults.h"

#include <fenv.h>

#if defined(__x86_64__) && defined(__GLIBC__)
#define HAS_CONTROL_WORDS 1
#else
#define HAS_CONTROL_WORDS 0
#endif

typedef struct mode {
    const char *name;
    int rounding;
    bool flush; /* denormals, of results and of operands */
    bool trap;  /* every exception */
    bool short_x87;
} mode;

static const mode modes[] = {
    {"upward", FE_UPWARD, false, false, false},
    {"downward", FE_DOWNWARD, false, false, false},
    {"toward zero", FE_TOWARDZERO, false, false, false},
    {"FTZ and DAZ", FE_TONEAREST, true, false, false},
    {"FTZ and DAZ, toward zero", FE_TOWARDZERO, true, false, false},
    {"x87 in single precision", FE_TONEAREST, false, false, true},
    {"traps", FE_TONEAREST, false, true, false},
    {"everything at once", FE_UPWARD, true, true, true},
};

/* The part of the environment that programs set. */
typedef struct control {
    int rounding;
    unsigned mxcsr, x87;
} control;

static control current_control(void)
{
    control c = {.rounding = fegetround()};
#if HAS_CONTROL_WORDS
    fenv_t environment;
    fegetenv(&environment);
    /* fegetenv masks the traps of the x87 unit; SSE has the same in its own register. */
    c.mxcsr = environment.__mxcsr;
    c.x87 = environment.__control_word;
    fesetenv(&environment);
#endif
    return c;
}

static void enter(const mode *m)
{
    fesetround(m->rounding);
#if HAS_CONTROL_WORDS
    fenv_t environment;
    fegetenv(&environment);
    environment.__mxcsr &= ~0x3fu; /* no exception pending */
    environment.__status_word = 0;
    if (m->flush) {
        environment.__mxcsr |= 0x8040u;
    }
    if (m->trap) {
        environment.__mxcsr &= ~0x1f80u;
        environment.__control_word &= (unsigned short)~0x3fu;
    }
    if (m->short_x87) {
        environment.__control_word &= (unsigned short)~0x300u;
    }
    fesetenv(&environment);
#endif
}

static bool same_control(control a, control b)
{
    return a.rounding == b.rounding && a.mxcsr == b.mxcsr && a.x87 == b.x87;
}

static void live_in_mode(const mode *m, const configuration *c, double grad_scale,
                         const bytes *expected)
{
    static subject s;
    bool injected = false;
    subject_begin(&s, c, "state");
    s.grad_scale = grad_scale;
    for (size_t i = 0; i < life_length; i++) {
        if (life[i].prepare != NULL) {
            life[i].prepare(&s); /* the harness' own arithmetic is done as usual */
        }
        fault_where("%s, %s, gradients times %g, %s", m->name, c->name, grad_scale, life[i].name);
        bool inject = fault_next();
        injected = injected || inject;
        if (inject) {
            enter(m);
        }
        control before = current_control();
        muonium_status status = life[i].run(&s);
        if (inject && fault_sabotage(0, 2)) {
            fesetround(m->rounding == FE_UPWARD ? FE_DOWNWARD : FE_UPWARD);
        }
        control after = current_control();
        fesetenv(FE_DFL_ENV);
        if (!inject) {
            assert_ok(status);
            continue;
        }
        fault_expect_status(fault_sabotage(1, 2) ? MUONIUM_IO : status, MUONIUM_OK);
        fault_expect(same_control(before, after),
                     "the mode was rounding %x, mxcsr %x, x87 %x and is %x, %x, %x",
                     (unsigned)before.rounding, before.mxcsr, before.x87, (unsigned)after.rounding,
                     after.mxcsr, after.x87);
        if (status != MUONIUM_OK) {
            break;
        }
    }
    if (injected) {
        bytes view = subject_view(&s);
        fault_expect(bytes_equal(&view, expected), "the results are not those of the usual mode");
        bytes_free(&view);
    }
    subject_end(&s);
}

void faults_of_float_modes(void)
{
    static const double scales[] = {1, 1e-40}; /* usual, and denormal gradients */
    files_without_sync();
    for (size_t k = 0; k < CONFIGURATIONS; k++) {
        for (size_t j = 0; j < 2; j++) {
            static subject s;
            subject_begin(&s, &configurations[k], "state");
            s.grad_scale = scales[j];
            assert_ok(subject_live(&s, 0, life_length));
            bytes expected = subject_view(&s);
            subject_end(&s);
            for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
                live_in_mode(&modes[i], &configurations[k], scales[j], &expected);
            }
            bytes_free(&expected);
        }
    }
}
