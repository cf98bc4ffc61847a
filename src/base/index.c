/*
 * index.c: a hash table of numbers, with open addressing and linear probing. Who uses it
 * keeps the things that are numbered, and compares them where hashes are equal.
 */
#include "base/base.h"

/* At most half of the slots are taken, so that every search soon meets a free one. */
static size_t slots_for(size_t count)
{
    size_t size = 16;
    while (size / 2 < count) {
        size *= 2;
    }
    return size;
}

/* FNV-1a leaves its mixing to the high bits. */
static mu_index_slot *slot_at(const mu_index *index, uint64_t hash, size_t probe)
{
    return &index->slots[((size_t)(hash ^ hash >> 32) + probe) & (index->size - 1)];
}

bool mu_index_reserve(mu_index *index, size_t count)
{
    size_t bytes;
    if (count <= index->size / 2) {
        return true;
    }
    if (count > SIZE_MAX / 4 || !mu_mul(slots_for(count), sizeof(mu_index_slot), &bytes)) {
        return false;
    }
    mu_index larger = {.slots = mu_alloc_zeroed(bytes), .size = slots_for(count)};
    if (!larger.slots) {
        return false;
    }
    for (size_t i = 0; i < index->size; i++) {
        if (index->slots[i].next_number > 0) {
            mu_index_add(&larger, index->slots[i].hash, index->slots[i].next_number - 1);
        }
    }
    mu_free(index->slots);
    *index = larger;
    return true;
}

void mu_index_add(mu_index *index, uint64_t hash, size_t number)
{
    size_t probe = 0;
    while (slot_at(index, hash, probe)->next_number > 0) {
        probe++;
    }
    *slot_at(index, hash, probe) = (mu_index_slot){hash, number + 1};
}

size_t mu_index_next(const mu_index *index, uint64_t hash, size_t *probe)
{
    while (index->size > 0) {
        const mu_index_slot *slot = slot_at(index, hash, (*probe)++);
        if (slot->next_number == 0) {
            break;
        }
        if (slot->hash == hash) {
            return slot->next_number - 1;
        }
    }
    return SIZE_MAX;
}

void mu_index_release(mu_index *index)
{
    mu_free(index->slots);
    *index = (mu_index){0};
}
