/*
 * pairing.c: see pairing.h.
 */
#include "pairing.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEAL_KEY "muonium.header_crc32c" /* of a state, in every version of its format */

/* A sink that takes the header, which comes first and in one piece, and no more. */
static bool take_seal(void *context, const void *data, size_t bytes)
{
    static const char before[] = "\"" SEAL_KEY "\":\"";
    pairing_seal *seal = context;
    const char *found = memmem(data, bytes, before, sizeof before - 1);
    const char *end = (const char *)data + bytes;
    if (found != NULL && end - found >= (ptrdiff_t)(sizeof before + 8)) {
        memcpy(seal->digits, found + sizeof before - 1, 8);
        seal->digits[8] = '\0';
    }
    return false;
}

bool pairing_seal_of(const muonium_optimizer *optimizer, pairing_seal *seal)
{
    *seal = (pairing_seal){""};
    return muonium_save_to(optimizer, take_seal, seal) != MUONIUM_OK && seal->digits[0] != '\0';
}

bool pairing_has_seal(const char *params_path, const pairing_seal *seal)
{
    muonium_reader *reader = NULL;
    if (muonium_reader_open(params_path, &reader) != MUONIUM_OK) {
        return false;
    }
    const char *found = muonium_reader_metadata(reader, PAIRING_KEY);
    bool same = found != NULL && strcmp(found, seal->digits) == 0;
    muonium_reader_close(reader);
    return same;
}

static bool has_seal(const muonium_reader *state, const char *wanted)
{
    const char *seal = muonium_reader_metadata(state, SEAL_KEY);
    return seal != NULL && strcmp(seal, wanted) == 0;
}

bool pairing_is_right(const muonium_reader *params, const muonium_reader *state)
{
    const char *wanted = muonium_reader_metadata(params, PAIRING_KEY);
    return wanted == NULL || has_seal(state, wanted);
}

/* Whether a file is the state with this seal, whole, and ours: in a directory that others
 * write to, one of theirs or a link could have the name. */
static bool is_state(const char *path, const char *wanted)
{
    muonium_reader *reader;
    struct stat status;
    if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        return false;
    }
    if (muonium_reader_open(path, &reader) != MUONIUM_OK) {
        return false;
    }
    bool found = has_seal(reader, wanted) && muonium_verify(reader, NULL) == MUONIUM_OK;
    muonium_reader_close(reader);
    return found;
}

bool pairing_complete(const muonium_reader *params, const char *state_path)
{
    /* What the library names the file before it has its name; see muonium_writer_begin. */
    enum { NAME_KEPT = 200 };
    const char *wanted = muonium_reader_metadata(params, PAIRING_KEY);
    char resolved[PATH_MAX], directory[PATH_MAX], prefix[NAME_KEPT + sizeof ".tmp-"];
    const char *path = realpath(state_path, resolved) != NULL ? resolved : state_path;
    const char *slash = strrchr(path, '/');
    snprintf(prefix, sizeof prefix, "%.*s.tmp-", NAME_KEPT, slash != NULL ? slash + 1 : path);
    snprintf(directory, sizeof directory, "%.*s", slash != NULL ? (int)(slash - path + 1) : 2,
             slash != NULL ? path : "./");
    DIR *listing = wanted != NULL ? opendir(directory) : NULL;
    bool done = false;
    for (struct dirent *item; listing != NULL && !done && (item = readdir(listing)) != NULL;) {
        char candidate[PATH_MAX + NAME_MAX + 1];
        snprintf(candidate, sizeof candidate, "%s%s", directory, item->d_name);
        done = strncmp(item->d_name, prefix, strlen(prefix)) == 0 && is_state(candidate, wanted) &&
               rename(candidate, path) == 0;
    }
    if (listing != NULL) {
        closedir(listing);
    }
    return done;
}
