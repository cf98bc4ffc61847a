/*
 * state.h: the optimizer's state as a safetensors file.
 *
 *     state.c         texts that saving and loading share
 *     options_text.c  options as text, for the metadata and for comparison
 *     state_file.c    reads and checks the metadata of a state file; muonium_verify
 *     save.c          writes
 *     incoming.c      converts and checks state that is being loaded, then hands it over
 *     incoming_read.c reads it, on all threads
 *     load.c          loads by name; positional.c by position
 *
 * Metadata, in this order:
 *
 *     muonium.format            version of this format
 *     muonium.version           of the library that wrote it
 *     muonium.step              steps that the optimizer took
 *     muonium.counters          matrices=N skipped=N rescued=N zero=N
 *     muonium.group.K           recipe=... lr=... and so on: all options
 *     muonium.parameter.NAME    route=muon|adam steps=N group=K master=no|yes|later reason=...
 *     muonium.crc32c.TENSOR     8 lower-case hexadecimal digits
 *     muonium.header_crc32c     the seal, see safetensors.h; in every version of the format
 */
#ifndef MU_STATE_H
#define MU_STATE_H

#include "checkpoint/safetensors.h"
#include "checkpoint/text.h"
#include "optimizer/optimizer.h"

#define MU_STATE_FORMAT 1

#define MU_KEY_FORMAT "muonium.format"
#define MU_KEY_VERSION "muonium.version"
#define MU_KEY_STEP "muonium.step"
#define MU_KEY_COUNTERS "muonium.counters"
#define MU_KEY_GROUP "muonium.group."
#define MU_KEY_PARAMETER "muonium.parameter."
#define MU_KEY_CRC "muonium.crc32c."
#define MU_KEY_SEAL "muonium.header_crc32c"

enum { MU_STATE_PIECE = 1 << 20 }; /* bytes read or written at a time */

/* ---- state.c ---- */

/* Replace the content of `text` by first + second + third; NULL if there is no memory. */
const char *mu_join(mu_text *text, const char *first, const char *second, const char *third);

/* A shape as "[3, 4]", for messages. */
typedef struct mu_shape_text {
    char text[128];
} mu_shape_text;

mu_shape_text mu_format_shape(size_t ndim, const uint64_t *shape);

muonium_status mu_state_no_memory(void);

/* Call `progress` unless it is NULL. */
void mu_tell_progress(muonium_progress *progress, void *context, uint64_t done, uint64_t total);

/* ---- save.c, load.c: state that a description has on other ranks ---- */

/* Provides the arrays of a description. First `checksum` is called for every saved array, in the
 * order of the file; then `fetch` for their bytes, in order and MU_STATE_PIECE at a time. */
typedef struct mu_state_source {
    void *context;
    muonium_status (*checksum)(void *context, size_t parameter, const mu_state_array *array,
                               uint32_t *crc);
    muonium_status (*fetch)(void *context, size_t parameter, const mu_state_array *array,
                            size_t first, void *to, size_t bytes);
} mu_state_source;

/* Fail, naming the first value that a load would refuse. There must be one. */
muonium_status mu_save_fault(const mu_state_values *values);

muonium_status mu_save_from(const muonium_optimizer *description, const mu_state_source *source,
                            const char *path);

typedef struct mu_incoming mu_incoming;

/* Match a file with a description, as muonium_load_reader does, and pass the list of arrays to
 * `take`, which reads their values. If it succeeds, the description gets the steps and counters
 * of the file. */
muonium_status mu_load_into(muonium_optimizer *description, const muonium_reader *reader,
                            muonium_status (*take)(void *context, mu_incoming *incoming),
                            void *context);

/* ---- options_text.c ---- */

/* Append all options as "recipe=timm lr=0.02 ...". No value contains a space, numbers are exact,
 * and the locale does not matter. False if there is no memory. */
bool mu_add_options(mu_text *text, const muonium_options *options);

/* Append a string. Separators and bytes that are not printable ASCII become %xx. */
bool mu_add_escaped(mu_text *text, const char *string);

/* Read the momentum convention from such a text. Fails with MUONIUM_FORMAT, naming `label`, if
 * it is missing or invalid. */
muonium_status mu_read_momentum(const char *text, const char *label, muonium_momentum_form *form,
                                double *momentum);

/* The value of a key in "key=value key=value", and its length; NULL if there is none. */
const char *mu_find_value(const char *text, const char *key, size_t *length);

/* Calls `report` for every key whose values differ. A missing value is "". */
typedef void mu_report_difference(void *context, const char *key, const char *saved,
                                  size_t saved_length, const char *current, size_t current_length);
void mu_compare_options(const char *saved, const char *current, mu_report_difference *report,
                        void *context);

/* ---- state_file.c ---- */

/* The metadata of a parameter. */
typedef struct mu_record {
    bool muon;
    uint64_t steps;
    bool master_later; /* its first step will copy the parameter to the master copy */
    const char *group; /* the options of its group, as text */
} mu_record;

/* Fail with MUONIUM_FORMAT unless this is a state file of a known version with an intact header. */
muonium_status mu_check_state_file(const muonium_reader *reader);

/* The record of a parameter; *found tells whether there is one. */
muonium_status mu_read_record(const muonium_reader *reader, const char *name, mu_text *scratch,
                              bool *found, mu_record *record);

/* The counters of the optimizer. */
muonium_status mu_read_counters(const muonium_reader *reader, muonium_counters *counters);

/* The checksum of a tensor according to the metadata. */
muonium_status mu_read_checksum(const muonium_reader *reader, const muonium_entry *entry,
                                mu_text *scratch, uint32_t *crc);

muonium_status mu_checksum_mismatch(const muonium_reader *reader, const muonium_entry *entry,
                                    uint32_t expected, uint32_t found);

#endif
