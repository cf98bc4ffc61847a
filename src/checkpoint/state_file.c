/*
 * state_file.c: reads and checks the metadata of a saved state, and verifies whole files. The
 * checksum of the header is verified first, so that later errors are not due to damage.
 */
#include "checkpoint/crc32c.h"
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Larger counts are refused, so that later steps cannot overflow them. */
#define LARGEST_COUNT (UINT64_MAX / 4)

static bool parse_count(const char *text, size_t length, uint64_t *value)
{
    uint64_t result = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || result > LARGEST_COUNT / 10) {
            return false;
        }
        result = 10 * result + (uint64_t)(text[i] - '0');
    }
    *value = result;
    return length > 0;
}

static muonium_status bad_metadata(const muonium_reader *reader, const char *key, const char *value)
{
    mu_quoted quoted_key = mu_quote(key), quoted_value = mu_quote(value ? value : "");
    return mu_fail(MUONIUM_FORMAT,
                   "%s: __metadata__ key %s %s%s: it is damaged or was made by hand",
                   mu_reader_label(reader), quoted_key.text,
                   value ? "has the value " : "is missing", value ? quoted_value.text : "");
}

/* The number that is the whole value of a key. */
static muonium_status read_count(const muonium_reader *reader, const char *key, uint64_t *value)
{
    const char *text = muonium_reader_metadata(reader, key);
    if (text == NULL || !parse_count(text, strlen(text), value)) {
        return bad_metadata(reader, key, text);
    }
    return MUONIUM_OK;
}

bool muonium_is_checkpoint(const muonium_reader *reader)
{
    return muonium_reader_metadata(reader, MU_KEY_FORMAT) != NULL;
}

muonium_status mu_check_state_file(const muonium_reader *reader)
{
    uint64_t format;
    if (!muonium_is_checkpoint(reader)) {
        return mu_fail(
            MUONIUM_FORMAT,
            "%s: not the state of a Muonium optimizer: __metadata__ has no key \"%s\" (is it "
            "a model, or of another program?)",
            mu_reader_label(reader), MU_KEY_FORMAT);
    }
    muonium_status status = mu_reader_check_seal(reader, MU_KEY_SEAL);
    if (status == MUONIUM_OK) {
        status = read_count(reader, MU_KEY_FORMAT, &format);
    }
    if (status == MUONIUM_OK && (format < 1 || format > MU_STATE_FORMAT)) {
        const char *version = muonium_reader_metadata(reader, MU_KEY_VERSION);
        mu_quoted quoted = mu_quote(version ? version : "unknown");
        status = mu_fail(
            MUONIUM_FORMAT,
            "%s: state format %" PRIu64 ", but this library, version %s, knows formats "
            "up to %d: use version %s or newer, which saved it",
            mu_reader_label(reader), format, muonium_version(), MU_STATE_FORMAT, quoted.text);
    }
    return status;
}

/* The number `name` within a value "name=number ...". */
static bool field_count(const char *text, const char *name, uint64_t *value)
{
    size_t length = 0;
    const char *digits = mu_find_value(text, name, &length);
    return digits != NULL && parse_count(digits, length, value);
}

muonium_status mu_read_counters(const muonium_reader *reader, muonium_counters *counters)
{
    const char *text = muonium_reader_metadata(reader, MU_KEY_COUNTERS);
    muonium_status status = read_count(reader, MU_KEY_STEP, &counters->steps);
    if (status == MUONIUM_OK &&
        (text == NULL || !field_count(text, "matrices", &counters->matrices) ||
         !field_count(text, "skipped", &counters->skipped) ||
         !field_count(text, "rescued", &counters->rescued) ||
         !field_count(text, "zero", &counters->zero))) {
        status = bad_metadata(reader, MU_KEY_COUNTERS, text);
    }
    mu_state_refusal refusal = {mu_reader_label(reader), "nothing was loaded", MUONIUM_FORMAT,
                                false};
    return status == MUONIUM_OK ? mu_check_count(counters->steps, NULL, &refusal) : status;
}

/* Whether the field `name` of a value is `value`. */
static bool field_is(const char *text, const char *name, const char *value)
{
    size_t length = 0;
    const char *found = mu_find_value(text, name, &length);
    return found != NULL && length == strlen(value) && memcmp(found, value, length) == 0;
}

static bool parse_record(const muonium_reader *reader, const char *text, mu_record *record)
{
    uint64_t group;
    char key[sizeof MU_KEY_GROUP + 20];
    record->muon = field_is(text, "route", "muon");
    record->master_later = field_is(text, "master", "later");
    if (!(record->muon || field_is(text, "route", "adam")) ||
        !(record->master_later || field_is(text, "master", "yes") ||
          field_is(text, "master", "no")) ||
        !field_count(text, "steps", &record->steps) || !field_count(text, "group", &group)) {
        return false;
    }
    snprintf(key, sizeof key, MU_KEY_GROUP "%" PRIu64, group);
    record->group = muonium_reader_metadata(reader, key);
    return record->group != NULL;
}

muonium_status mu_read_record(const muonium_reader *reader, const char *name, mu_text *scratch,
                              bool *found, mu_record *record)
{
    const char *key = mu_join(scratch, MU_KEY_PARAMETER, name, "");
    if (key == NULL) {
        return mu_state_no_memory();
    }
    const char *text = muonium_reader_metadata(reader, key);
    *found = text != NULL;
    if (text == NULL) {
        return MUONIUM_OK;
    }
    if (!parse_record(reader, text, record)) {
        return bad_metadata(reader, key, text);
    }
    mu_state_refusal refusal = {mu_reader_label(reader), "nothing was loaded", MUONIUM_FORMAT,
                                false};
    return mu_check_count(record->steps, name, &refusal);
}

muonium_status mu_read_checksum(const muonium_reader *reader, const muonium_entry *entry,
                                mu_text *scratch, uint32_t *crc)
{
    const char *key = mu_join(scratch, MU_KEY_CRC, entry->name, "");
    if (key == NULL) {
        return mu_state_no_memory();
    }
    const char *text = muonium_reader_metadata(reader, key);
    if (text == NULL || strlen(text) != 8 || text[strspn(text, "0123456789abcdef")] != '\0') {
        return bad_metadata(reader, key, text);
    }
    *crc = 0;
    for (const char *digit = text; *digit != '\0'; digit++) {
        unsigned value = (unsigned)(*digit <= '9' ? *digit - '0' : *digit - 'a' + 10);
        *crc = *crc << 4 | value;
    }
    return MUONIUM_OK;
}

muonium_status mu_checksum_mismatch(const muonium_reader *reader, const muonium_entry *entry,
                                    uint32_t expected, uint32_t found)
{
    mu_quoted name = mu_quote(entry->name);
    return mu_fail(MUONIUM_FORMAT,
                   "%s: tensor %s: its data has checksum %08" PRIx32 " but should have %08" PRIx32
                   ": the file is damaged",
                   mu_reader_label(reader), name.text, found, expected);
}

/* ---- verification ---- */

static muonium_status verify_tensor(const muonium_reader *reader, const muonium_entry *entry,
                                    mu_text *scratch, void *buffer)
{
    uint32_t expected, found = 0;
    muonium_status status = mu_read_checksum(reader, entry, scratch, &expected);
    for (uint64_t done = 0; status == MUONIUM_OK && done < entry->bytes;) {
        uint64_t left = entry->bytes - done;
        size_t piece = left < MU_STATE_PIECE ? (size_t)left : MU_STATE_PIECE;
        status = muonium_reader_read(reader, entry, done, buffer, piece);
        if (status == MUONIUM_OK) {
            found = mu_crc32c(found, buffer, piece);
            done += piece;
        }
    }
    if (status == MUONIUM_OK && found != expected) {
        status = mu_checksum_mismatch(reader, entry, expected, found);
    }
    return status;
}

static muonium_status verify_tensors(const muonium_reader *reader, muonium_checkpoint_info *info)
{
    mu_text scratch = {0};
    muonium_status status = MUONIUM_OK;
    void *buffer = mu_alloc(MU_STATE_PIECE);
    if (buffer == NULL) {
        return mu_state_no_memory();
    }
    info->tensors = muonium_reader_count(reader);
    for (size_t i = 0; status == MUONIUM_OK && i < info->tensors; i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        status = verify_tensor(reader, entry, &scratch, buffer);
        info->bytes += entry->bytes;
    }
    mu_text_release(&scratch);
    mu_free(buffer);
    return status;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static muonium_status read_records(const muonium_reader *reader, muonium_checkpoint_info *info)
{
    const char *key, *value;
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        info->groups += has_prefix(key, MU_KEY_GROUP);
        if (has_prefix(key, MU_KEY_PARAMETER)) {
            mu_record record = {0};
            if (!parse_record(reader, value, &record)) {
                return bad_metadata(reader, key, value);
            }
            info->muon += record.muon;
            info->adam += !record.muon;
        }
    }
    return MUONIUM_OK;
}

muonium_status muonium_verify_sized(const muonium_reader *reader, muonium_checkpoint_info *info,
                                    size_t size)
{
    muonium_checkpoint_info found = {.format = MU_STATE_FORMAT};
    muonium_counters counters;
    if (reader == NULL) {
        return mu_fail(MUONIUM_INVALID, "reader is NULL");
    }
    muonium_status status = mu_check_state_file(reader);
    if (status == MUONIUM_OK) {
        status = mu_read_counters(reader, &counters);
    }
    if (status == MUONIUM_OK) {
        found.steps = counters.steps;
        found.version = muonium_reader_metadata(reader, MU_KEY_VERSION);
        status = found.version ? read_records(reader, &found)
                               : bad_metadata(reader, MU_KEY_VERSION, NULL);
    }
    if (status == MUONIUM_OK) {
        status = verify_tensors(reader, &found);
    }
    if (status == MUONIUM_OK && info != NULL) {
        mu_sized_write(info, size, &found, sizeof found);
    }
    return status;
}
