/*
 * fuzz_options_text.c: a libFuzzer target for options as text in a checkpoint. The input is
 * two texts; what is found in the first lies in it, a momentum that is read is valid, and
 * comparing tells nothing of equal texts and nothing twice. What is escaped has no
 * separators and comes back.
 */
#include "checkpoint/state.h"

#include <stdio.h>

#include "fuzz.h"

/* What a comparison may tell. */
typedef struct comparison {
    const char *saved, *current;
    size_t count;
} comparison;

static void told(void *context, const char *key, const char *saved, size_t saved_length,
                 const char *current, size_t current_length)
{
    comparison *c = context;
    size_t length = 0;
    c->count++;
    demand(strlen(key) < 64 && strpbrk(key, " =") == NULL);
    /* A key that the saved text lacks has the value that versions without it meant. */
    demand(saved_length == 0 || mu_find_value(c->saved, key, &length) == NULL ||
           (saved >= c->saved && saved + saved_length <= c->saved + strlen(c->saved)));
    demand(current_length == 0 ||
           (current >= c->current && current + current_length <= c->current + strlen(c->current)));
    demand(mu_find_value(c->saved, key, &length) != NULL ||
           mu_find_value(c->current, key, &length) != NULL);
}

static size_t differences(const char *saved, const char *current)
{
    comparison c = {saved, current, 0};
    mu_compare_options(saved, current, told, &c);
    return c.count;
}

static void check_momentum(const char *text)
{
    muonium_momentum_form form;
    double momentum;
    muonium_status status = mu_read_momentum(text, "label", &form, &momentum);
    if (status == MUONIUM_OK) {
        demand(form <= MUONIUM_MOMENTUM_EMA_CORRECTED && momentum >= 0 && momentum < 1);
    } else {
        demand(status == MUONIUM_FORMAT && strstr(muonium_last_error(), "label") != NULL);
    }
}

static unsigned digit(char c)
{
    const char *digits = "0123456789abcdef", *found = strchr(digits, c);
    demand(c != '\0' && found != NULL);
    return (unsigned)(found - digits);
}

static void check_escapes(const char *string)
{
    mu_text text = {0};
    demand(mu_add_escaped(&text, string) && mu_text_reserve(&text, 1));
    mu_text_add(&text, "", 1);
    const char *at = text.bytes;
    demand(strpbrk(at, " ,\t\n") == NULL);
    for (; *string != '\0'; string++) {
        unsigned char back = (unsigned char)*at++;
        if (back == '%') {
            back = (unsigned char)(digit(at[0]) << 4 | digit(at[1]));
            at += 2;
        }
        demand(back == (unsigned char)*string);
    }
    demand(*at == '\0');
    mu_text_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    char *first = take_string(&in, '\n'), *second = take_string(&in, '\n');
    size_t length = 0;
    const char *found = mu_find_value(first, "lr", &length);
    demand(found == NULL || (found >= first + 3 && found + length <= first + strlen(first)));
    check_momentum(first);
    check_escapes(first);
    differences(first, second);
    differences(second, first);

    /* Our own text: whatever the numbers, it differs from nothing but what has changed. */
    muonium_options options, other;
    mu_text one = {0}, two = {0};
    demand(muonium_options_init(&options, NULL) == MUONIUM_OK);
    take(&in, &options.lr, sizeof options.lr);
    take(&in, &options.momentum, sizeof options.momentum);
    take(&in, &options.seed, sizeof options.seed);
    other = options;
    options.plan.coefficients = first;
    demand(mu_add_options(&one, &options) && mu_add_options(&two, &other));
    demand(mu_text_reserve(&one, 1) && mu_text_reserve(&two, 1));
    mu_text_add(&one, "", 1);
    mu_text_add(&two, "", 1);
    demand(differences(one.bytes, one.bytes) == 0);
    size_t count = differences(one.bytes, two.bytes);
    demand(first[0] == '\0' ? count <= 2 : count == 1 || count == 2);
    mu_text_release(&one);
    mu_text_release(&two);
    free(first);
    free(second);
    return 0;
}
