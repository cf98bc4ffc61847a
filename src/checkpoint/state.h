/*
 * state.h: the optimizer's state as a safetensors file.
 *
 *     state.c         texts that saving and loading share
 *     options_text.c  options as text, for the metadata and for comparison
 *     state_file.c    the metadata of such a file, read and checked; muonium_verify
 *     save.c          writing
 *     incoming.c      state on its way into an optimizer: converted, checked, handed over
 *     incoming_read.c reading it, on all threads
 *     load.c          by name; positional.c by position
 *
 * Metadata, in this order:
 *
 *     muonium.format            version of all this
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

/* first + second + third as a string in `text`, whose former content goes; NULL if there
 * is no memory. */
const char *mu_join(mu_text *text, const char *first, const char *second, const char *third);

/* A shape as "[3, 4]", for messages. */
typedef struct mu_shape_text {
    char text[128];
} mu_shape_text;

mu_shape_text mu_format_shape(size_t ndim, const uint64_t *shape);

MU_SHARED muonium_status mu_state_no_memory(void);

/* ---- save.c, load.c: the state of a description, which lies elsewhere ---- */

/* Gives the arrays of parameters by number: first the checksums of all that are saved, in
 * order, then their bytes, in order and MU_STATE_PIECE at a time. */
typedef struct mu_state_source {
    void *context;
    muonium_status (*checksum)(void *context, size_t parameter, const mu_state_array *array,
                               uint32_t *crc);
    muonium_status (*fetch)(void *context, size_t parameter, const mu_state_array *array,
                            size_t first, void *to, size_t bytes);
} mu_state_source;

/* Fail for the first of these values that no load would take, of which there is one: it
 * is not saved either. */
MU_SHARED muonium_status mu_save_fault(const mu_state_values *values);

MU_SHARED muonium_status mu_save_from(const muonium_optimizer *description,
                                      const mu_state_source *source, const char *path);

typedef struct mu_incoming mu_incoming;

/* Fit a file to a description, as muonium_load_reader does, and give what was found, which
 * has neither values nor room for them, to `take`, which puts them where they belong. If it
 * succeeds, the description takes over steps and counters. */
MU_SHARED muonium_status mu_load_into(muonium_optimizer *description, const muonium_reader *reader,
                                      muonium_status (*take)(void *context, mu_incoming *incoming),
                                      void *context);

/* ---- options_text.c ---- */

/* Append all options as "recipe=timm lr=0.02 ...": no value contains a space, numbers
 * come back equal, and no locale changes anything. False if there is no memory. */
MU_SHARED bool mu_add_options(mu_text *text, const muonium_options *options);

/* Append a string with bytes that are no printable ASCII, or that separate, as %xx. */
bool mu_add_escaped(mu_text *text, const char *string);

/* The momentum convention in such a text: MUONIUM_FORMAT, naming `label`, if it has none
 * that is valid. */
muonium_status mu_read_momentum(const char *text, const char *label, muonium_momentum_form *form,
                                double *momentum);

/* Of "key=value key=value", the value of a key and its length; NULL if there is none. */
const char *mu_find_value(const char *text, const char *key, size_t *length);

/* Call `report` for every key whose values differ, "" standing for none. */
typedef void mu_report_difference(void *context, const char *key, const char *saved,
                                  size_t saved_length, const char *current, size_t current_length);
MU_SHARED void mu_compare_options(const char *saved, const char *current,
                                  mu_report_difference *report, void *context);

/* ---- state_file.c ---- */

/* What the metadata tells of a parameter. */
typedef struct mu_record {
    bool muon;
    uint64_t steps;
    bool master_later; /* its master copy is still to be taken from the parameter */
    const char *group; /* the options of its group, as text */
} mu_record;

/* MUONIUM_FORMAT unless this is a state of a format that we know, with its header whole. */
muonium_status mu_check_state_file(const muonium_reader *reader);

/* The record of a parameter; *found tells whether there is one. */
muonium_status mu_read_record(const muonium_reader *reader, const char *name, mu_text *scratch,
                              bool *found, mu_record *record);

/* Steps of the optimizer, and its other counters. */
muonium_status mu_read_counters(const muonium_reader *reader, muonium_counters *counters);

/* The checksum that a tensor should have. */
muonium_status mu_read_checksum(const muonium_reader *reader, const muonium_entry *entry,
                                mu_text *scratch, uint32_t *crc);

MU_SHARED muonium_status mu_checksum_mismatch(const muonium_reader *reader,
                                              const muonium_entry *entry, uint32_t expected,
                                              uint32_t found);

#endif
