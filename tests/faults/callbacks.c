/*
 * callbacks.c: every callback of every call that has some fails, or calls the library again
 * with the same optimizer. A failure ends the call with nothing changed; a call that would
 * change the optimizer is refused by name, and the call under way goes on as if nothing had
 * been.
 */
#include "faults.h"

#include "callbacks.h"

static char path[128];

/* What the outer call alone starts from and leads to. */
typedef struct course {
    bytes before, after;
    long calls; /* of callbacks */
} course;

static course follow(const outer_call *outer)
{
    scene s;
    course c;
    scene_begin(&s, path);
    c.before = scene_view(&s);
    assert_ok(outer->run(&s));
    c.after = scene_view(&s);
    c.calls = s.calls;
    scene_end(&s);
    return c;
}

/* Whether the callback that failed could tell: others return nothing to tell it by. */
static bool can_fail(const char *callback)
{
    return strcmp(callback, "read") == 0 || strcmp(callback, "write") == 0;
}

static void judge(const scene *s, const outer_call *outer, muonium_status status, bytes *view,
                  const course *c)
{
    bool fails = s->inner == NULL && can_fail(s->where);
    bool allowed = s->inner != NULL && s->inner->kind == CHANGES && strcmp(s->where, "loss") == 0;
    bool refused = s->inner != NULL && s->inner->kind != READS && !allowed;
    if (fault_sabotage(0, 2) || (allowed && fault_sabotage(1, 2))) {
        status = MUONIUM_NOT_CONVERGED;
    } else if (fault_sabotage(1, 2)) {
        view->data[view->count - 1] ^= 1;
    }
    fault_expect_status(status, fails ? MUONIUM_IO : MUONIUM_OK);
    fault_expect(allowed || bytes_equal(view, fails ? &c->before : &c->after),
                 "something has changed");
    fault_expect(!refused ||
                     (s->status == MUONIUM_INVALID && strstr(s->message, s->inner->name) != NULL &&
                      strstr(s->message, s->where) != NULL &&
                      strstr(s->message, outer->name) != NULL),
                 "%s, \"%s\"", muonium_status_name(s->status), s->message);
}

static void inject(const outer_call *outer, long number, const inner_call *inner, const course *c)
{
    fault_where("callback %ld of %s: %s", number, outer->name, inner ? inner->name : "fails");
    if (!fault_next()) {
        return;
    }
    scene s;
    scene_begin(&s, path);
    s.countdown = number;
    s.inner = inner;
    muonium_status status = outer->run(&s);
    bytes view = scene_view(&s);
    judge(&s, outer, status, &view, c);
    bytes_free(&view);
    scene_end(&s);
}

void faults_of_callbacks(void)
{
    files_without_sync();
    snprintf(path, sizeof path, "%s/state", files_directory());
    for (size_t i = 0; i < OUTER_CALLS; i++) {
        course c = follow(&outer_calls[i]);
        for (long number = 0; number < c.calls; number++) {
            inject(&outer_calls[i], number, NULL, &c);
            for (size_t k = 0; k < INNER_CALLS; k++) {
                inject(&outer_calls[i], number, &inner_calls[k], &c);
            }
        }
        bytes_free(&c.before);
        bytes_free(&c.after);
    }
}
