/*
 * settings.c: the options that attributes stand for, kept from call to call, since a program passes
 * the same attributes in every call and reading them by name takes longer than a small matrix.
 */
#include "xla/xla.h"

#include <pthread.h>
#include <string.h>

enum { KEPT_SETTINGS = 16, MOST_TEXT = 480 };

/* Names and texts one after the other, each with its length before it. Texts that are equal name
 * equal options. */
typedef struct settings_text {
    uint64_t hash;
    size_t length;
    char bytes[MOST_TEXT];
} settings_text;

static struct {
    pthread_mutex_t mutex;
    unsigned next; /* to be replaced */
    struct {
        settings_text text; /* length 0: nothing is kept here */
        muonium_options options;
    } kept[KEPT_SETTINGS];
} known = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A child of fork gets the mutex from the thread that forked, unlocked. */
static void lock_settings(void)
{
    pthread_mutex_lock(&known.mutex);
}

static void unlock_settings(void)
{
    pthread_mutex_unlock(&known.mutex);
}

__attribute__((constructor)) static void prepare_settings_for_fork(void)
{
    pthread_atfork(lock_settings, unlock_settings, unlock_settings);
}

static bool append_span(settings_text *text, const mu_xla_span *span)
{
    if (span->length > UINT8_MAX || span->length + 1 > MOST_TEXT - text->length) {
        return false;
    }
    text->bytes[text->length++] = (char)span->length;
    memcpy(text->bytes + text->length, span->text, span->length);
    text->length += span->length;
    return true;
}

/* The text of all attributes that are strings; false if there are none or too many. */
static bool text_of(const mu_xla_attributes *attributes, settings_text *text)
{
    text->length = 0;
    for (int64_t i = 0; i < attributes->size; i++) {
        if (attributes->types[i] == MU_XLA_STRING && (!append_span(text, attributes->names[i]) ||
                                                      !append_span(text, attributes->values[i]))) {
            return false;
        }
    }
    text->hash = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < text->length; i++) {
        text->hash = (text->hash ^ (unsigned char)text->bytes[i]) * 0x100000001b3;
    }
    return text->length > 0;
}

static muonium_options *find_settings(const settings_text *text)
{
    for (int i = 0; i < KEPT_SETTINGS; i++) {
        const settings_text *other = &known.kept[i].text;
        if (other->hash == text->hash && other->length == text->length &&
            memcmp(other->bytes, text->bytes, text->length) == 0) {
            return &known.kept[i].options;
        }
    }
    return NULL;
}

bool mu_xla_settings_find(const mu_xla_attributes *attributes, muonium_options *options)
{
    settings_text text;
    if (!text_of(attributes, &text)) {
        return false;
    }
    lock_settings();
    const muonium_options *found = find_settings(&text);
    if (found != NULL) {
        *options = *found;
    }
    unlock_settings();
    return found != NULL;
}

void mu_xla_settings_keep(const mu_xla_attributes *attributes, const muonium_options *options)
{
    settings_text text;
    if (!text_of(attributes, &text)) {
        return;
    }
    lock_settings();
    if (find_settings(&text) == NULL) {
        unsigned place = known.next++ % KEPT_SETTINGS;
        known.kept[place].text = text;
        known.kept[place].options = *options;
    }
    unlock_settings();
}
