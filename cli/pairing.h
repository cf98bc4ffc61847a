/*
 * pairing.h: parameters and the optimizer's state that were written together.
 *
 * A step replaces two files, and no system replaces two at once. So the parameters carry the
 * checksum of the state that belongs to them, both are complete on the disk before either is
 * replaced, and the parameters go first: whoever then finds parameters with another state
 * knows that a step was interrupted, and finds the state that is missing beside the old one.
 */
#ifndef CLI_PAIRING_H
#define CLI_PAIRING_H

#include <muonium.h>

#include "message.h"

/* The key of the parameters' metadata under which that checksum is. */
#define PAIRING_KEY "muonium.state_crc32c"

/* The checksum of a state that is saved now, over its header, which holds those of all data. */
typedef struct pairing_seal {
    char digits[9];
} pairing_seal;

bool pairing_seal_of(const muonium_optimizer *optimizer, pairing_seal *seal);

/* Whether the file at a path are parameters that belong to the state of this checksum. */
bool pairing_has_seal(const char *params_path, const pairing_seal *seal);

/* Whether the parameters do not belong to another state than this, which is NULL if there is
 * none. Parameters that no step has written belong to any. */
bool pairing_is_right(const muonium_reader *params, const muonium_reader *state);

/* Put the state that the parameters belong to in place if an interrupted step has left it
 * beside `state_path`; false if there is none. */
bool pairing_complete(const muonium_reader *params, const char *state_path);

#endif
