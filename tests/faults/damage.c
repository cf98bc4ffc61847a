/*
 * damage.c: a checkpoint that was cut short, of which a bit has flipped, or a larger part
 * has changed. Checksums cover every byte, padding included, so each is refused as
 * malformed, and the optimizer is as it was.
 */
#include "faults.h"

static const char *const names[] = {"muonium", "torch", "everything"};

enum { NAMES = sizeof names / sizeof names[0] };

/* An optimizer, and a file that it would load. */
typedef struct victim {
    subject s;
    bytes file;
    bytes before; /* what is seen of it */
} victim;

/* Few parameters, of both routes and all types, make a small file. */
static void victim_begin(victim *v, const char *name)
{
    static const size_t parameters[] = {0, 3, 4, 6, 7};
    assert_ok(muonium_set_threads(1)); /* others would cost more than they read */
    subject_begin(&v->s, subject_configuration(name), "state");
    v->s.options.log = NULL;
    assert_ok(muonium_create(&v->s.options, &v->s.m.optimizer));
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        muonium_tensor tensor = model_tensor(&v->s.m, parameters[i]);
        assert_ok(muonium_add(v->s.m.optimizer, &tensor, NULL));
    }
    assert_ok(model_steps(&v->s.m, 0, 2));
    v->file = model_state(&v->s.m);
    assert_ok(model_steps(&v->s.m, 2, 3)); /* so that a load would be seen */
    v->before = subject_view(&v->s);
}

static void victim_end(victim *v)
{
    bytes_free(&v->file);
    bytes_free(&v->before);
    subject_end(&v->s);
}

/* Load `count` bytes, which are damaged, from memory of just that size. */
static void expect_refusal(victim *v, const unsigned char *data, size_t count)
{
    bool sound = fault_sabotage(0, 2);
    size_t size = sound ? v->file.count : count;
    bytes copy = {malloc(size > 0 ? size : 1), size};
    assert_non_null(copy.data);
    memcpy(copy.data, sound ? v->file.data : data, size);
    muonium_status status = model_load(&v->s.m, &copy);
    if (fault_sabotage(1, 2)) {
        v->s.m.data[0][0] += 1;
    }
    fault_expect_status(status, MUONIUM_FORMAT);
    bytes after = subject_view(&v->s);
    if (!fault_expect(bytes_equal(&v->before, &after), "something has changed")) {
        bytes_free(&v->before); /* from now on this is how it was */
        v->before = after;
    } else {
        bytes_free(&after);
    }
    free(copy.data);
}

void faults_of_truncation(void)
{
    static victim v;
    for (size_t i = 0; i < NAMES; i++) {
        victim_begin(&v, names[i]);
        for (size_t count = 0; count < v.file.count; count++) {
            fault_where("%s, cut to %zu of %zu bytes", names[i], count, v.file.count);
            if (fault_next()) {
                expect_refusal(&v, v.file.data, count);
            }
        }
        victim_end(&v);
    }
}

void faults_of_bit_flips(void)
{
    static victim v;
    for (size_t i = 0; i < NAMES; i++) {
        victim_begin(&v, names[i]);
        bytes damaged = {0};
        assert_true(bytes_append(&damaged, v.file.data, v.file.count));
        for (size_t bit = 0; bit < 8 * v.file.count; bit++) {
            unsigned char mask = (unsigned char)(1u << bit % 8);
            fault_where("%s, bit %zu of byte %zu of %zu", names[i], bit % 8, bit / 8, v.file.count);
            if (fault_next()) {
                damaged.data[bit / 8] ^= mask;
                expect_refusal(&v, damaged.data, damaged.count);
                damaged.data[bit / 8] ^= mask;
            }
        }
        bytes_free(&damaged);
        victim_end(&v);
    }
}

/* ---- larger damage ---- */

typedef struct change {
    const char *name;
    /* Change `file` at byte `at`; false if that changes nothing. */
    bool (*make)(bytes *file, size_t at, test_rng *rng);
} change;

static bool zero_sector(bytes *file, size_t at, test_rng *rng)
{
    size_t end = at + 512 < file->count ? at + 512 : file->count;
    bool changed = false;
    (void)rng;
    for (size_t i = at; i < end; i++) {
        changed = changed || file->data[i] != 0;
        file->data[i] = 0;
    }
    return changed;
}

static bool burst(bytes *file, size_t at, test_rng *rng)
{
    uint64_t noise = test_bits(rng) | 1;
    for (size_t i = 0; i < 4 && at + i < file->count; i++) {
        file->data[at + i] ^= (unsigned char)(noise >> 8 * i);
    }
    return true;
}

static bool swap_bytes(bytes *file, size_t at, test_rng *rng)
{
    unsigned char *pair = file->data + at, first = pair[0];
    (void)rng;
    if (at + 1 >= file->count || pair[0] == pair[1]) {
        return false;
    }
    pair[0] = pair[1];
    pair[1] = first;
    return true;
}

static bool insert_byte(bytes *file, size_t at, test_rng *rng)
{
    unsigned char byte = (unsigned char)test_bits(rng);
    assert_true(bytes_append(file, &byte, 1));
    memmove(file->data + at + 1, file->data + at, file->count - 1 - at);
    file->data[at] = byte;
    return true;
}

static bool remove_byte(bytes *file, size_t at, test_rng *rng)
{
    (void)rng;
    memmove(file->data + at, file->data + at + 1, file->count - at - 1);
    file->count--;
    return true;
}

static bool append_bytes(bytes *file, size_t at, test_rng *rng)
{
    for (size_t i = 0; i <= at % 700; i++) {
        unsigned char byte = (unsigned char)(at % 2 == 0 ? 0 : test_bits(rng));
        assert_true(bytes_append(file, &byte, 1));
    }
    return true;
}

static const change changes[] = {
    {"512 bytes zero", zero_sector}, {"4 bytes noise", burst},
    {"2 bytes swapped", swap_bytes}, {"a byte inserted", insert_byte},
    {"a byte removed", remove_byte}, {"bytes after the end", append_bytes},
};

void faults_of_larger_damage(void)
{
    static victim v;
    for (size_t i = 0; i < NAMES; i++) {
        victim_begin(&v, names[i]);
        for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
            for (size_t at = 0; at < v.file.count; at++) {
                char label[64];
                snprintf(label, sizeof label, "%s %s %zu", names[i], changes[k].name, at);
                test_rng rng = test_rng_start(label); /* of this fault alone, to repeat it */
                bytes damaged = {0};
                assert_true(bytes_append(&damaged, v.file.data, v.file.count));
                fault_where("%s, %s, at byte %zu of %zu", names[i], changes[k].name, at,
                            v.file.count);
                if (changes[k].make(&damaged, at, &rng) && fault_next()) {
                    expect_refusal(&v, damaged.data, damaged.count);
                }
                bytes_free(&damaged);
            }
        }
        victim_end(&v);
    }
}
