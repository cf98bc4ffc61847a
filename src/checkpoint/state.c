/*
 * state.c: texts that saving and loading share.
 */
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *mu_join(mu_text *text, const char *first, const char *second, const char *third)
{
    text->count = 0;
    if (!mu_text_reserve(text, strlen(first) + strlen(second) + strlen(third) + 1)) {
        return NULL;
    }
    mu_text_add_string(text, first);
    mu_text_add_string(text, second);
    mu_text_add_string(text, third);
    mu_text_add(text, "", 1);
    return text->bytes;
}

mu_shape_text mu_format_shape(size_t ndim, const uint64_t *shape)
{
    static const char cut[] = ", ...";
    mu_shape_text result = {"["};
    size_t used = 1;
    for (size_t d = 0; d < ndim; d++) {
        if (used + 24 + sizeof cut > sizeof result.text) {
            memcpy(result.text + used, cut, sizeof cut);
            used += sizeof cut - 1;
            break;
        }
        used += (size_t)snprintf(result.text + used, 24, "%s%" PRIu64, d > 0 ? ", " : "", shape[d]);
    }
    memcpy(result.text + used, "]", 2);
    return result;
}

muonium_status mu_state_no_memory(void)
{
    return mu_fail(MUONIUM_NO_MEMORY, "no memory for the description of an optimizer's state");
}

void mu_tell_progress(muonium_progress *progress, void *context, uint64_t done, uint64_t total)
{
    if (progress) {
        const char *outer = mu_callback_begin("progress");
        progress(context, done, total);
        mu_callback_end(outer);
    }
}
