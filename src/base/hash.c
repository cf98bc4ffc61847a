/*
 * hash.c: numbers for texts, to find and compare them by.
 */
#include "base/base.h"

uint64_t mu_hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return hash;
}
