/*
 * use.c: one call at a time. A call that changes an optimizer, or that runs a callback, marks it
 * as in use. A second such call, from the callback or from another thread, is refused.
 */
#include "optimizer/optimizer.h"

/* The mark may change in a const optimizer. */
static muonium_optimizer *mutable(const muonium_optimizer *optimizer)
{
    return (muonium_optimizer *)(uintptr_t)optimizer;
}

muonium_status mu_enter(const muonium_optimizer *optimizer, const char *call)
{
    const char *user = NULL, *callback = mu_callback_name();
    if (!optimizer) {
        return mu_fail(MUONIUM_INVALID, "optimizer is NULL");
    }
    if (atomic_compare_exchange_strong(&mutable(optimizer)->user, &user, call)) {
        return MUONIUM_OK;
    }
    if (callback) {
        return mu_fail(MUONIUM_INVALID,
                       "%s was called by the callback `%s` of %s, which is using the optimizer: "
                       "call it after %s has returned",
                       call, callback, user, user);
    }
    return mu_fail(MUONIUM_INVALID,
                   "%s: another thread is in %s on this optimizer: one optimizer is used by one "
                   "thread at a time",
                   call, user);
}

muonium_status mu_enter_alone(const muonium_optimizer *optimizer, const char *call)
{
    muonium_status status = mu_enter(optimizer, call);
    if (status == MUONIUM_OK && atomic_load(&optimizer->in_loss)) {
        status = mu_fail(MUONIUM_INVALID,
                         "%s was called during the callback `loss` of muonium_step_with, which "
                         "steps after it: call it after muonium_step_with has returned",
                         call);
        return mu_leave(optimizer, status);
    }
    return status;
}

muonium_status mu_leave(const muonium_optimizer *optimizer, muonium_status status)
{
    atomic_store_explicit(&mutable(optimizer)->user, NULL, memory_order_release);
    return status;
}

muonium_status mu_check_unheld(const muonium_optimizer *optimizer, const char *call)
{
    if (optimizer->holders > 0) {
        return mu_fail(
            MUONIUM_INVALID,
            "%s: a distributed optimizer uses the description: call muonium_mpi_destroy first",
            call);
    }
    return MUONIUM_OK;
}
