/*
 * test_safetensors_damage.c: files that must be refused, by the fixtures that
 * tools/make_hostile_safetensors.py makes, and every kind of damage to a small
 * file: it is refused, or what is accepted is a whole file.
 */
#include "safetensors_sample.h"

#include <dirent.h>

#include "checkpoint/crc32c.h"

/* ---- fixtures ---- */

/* A fixture; programs run outside ctest find it from the root of the tree. */
static void data_path(char path[1024], const char *directory, const char *file)
{
    const char *root = getenv("MUONIUM_SOURCE_DIR");
    snprintf(path, 1024, "%s/tests/data/%s/%s", root == NULL ? "." : root, directory, file);
}

/* Every file of a directory, with `visit`; returns how many. */
static size_t visit_files(const char *directory, void (*visit)(const char *path, const char *name))
{
    char path[1024];
    size_t count = 0;
    data_path(path, directory, "");
    DIR *listing = opendir(path);
    if (listing == NULL) {
        fail_msg("cannot list %s", path);
    }
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (strstr(item->d_name, ".safetensors") != NULL) {
            data_path(path, directory, item->d_name);
            visit(path, item->d_name);
            count++;
        }
    }
    closedir(listing);
    return count;
}

static size_t expected_count;

static void expect_refusal(const char *path, const char *name)
{
    char expected[1024];
    char line[2048];
    muonium_reader *reader = NULL;
    data_path(expected, "hostile", "expected.txt");
    FILE *list = fopen(expected, "r");
    assert_non_null(list);
    const char *message = NULL;
    size_t lines = 0;
    char found[2048];
    while (fgets(line, sizeof line, list) != NULL) {
        lines++;
        line[strcspn(line, "\n")] = '\0';
        size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && line[length] == '\t') {
            memcpy(found, line + length + 1, strlen(line + length + 1) + 1);
            message = found;
        }
    }
    fclose(list);
    expected_count = lines;
    if (message == NULL) {
        fail_msg("%s is not in expected.txt", name);
    }
    muonium_status status = muonium_reader_open(path, &reader);
    if (status != MUONIUM_FORMAT) {
        fail_msg("%s: status %d", name, (int)status);
    }
    assert_null(reader);
    if (strstr(muonium_last_error(), message) == NULL) {
        fail_msg("%s: message lacks \"%s\": %s", name, message, muonium_last_error());
    }
    assert_non_null(strstr(muonium_last_error(), name)); /* the message names the file, too */
}

static void expect_success(const char *path, const char *name)
{
    muonium_reader *reader;
    if (muonium_reader_open(path, &reader) != MUONIUM_OK) {
        fail_msg("%s: %s", name, muonium_last_error());
    }
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        unsigned char data[4096];
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        assert_true(entry->bytes <= sizeof data);
        assert_ok(muonium_reader_read(reader, entry, 0, data, (size_t)entry->bytes));
        assert_ptr_equal(muonium_reader_find(reader, entry->name), entry);
    }
    muonium_reader_close(reader);
}

static void test_hostile_files(void **state)
{
    (void)state;
    size_t count = visit_files("hostile", expect_refusal);
    assert_int_equal(count, expected_count);
    assert_true(count > 80);
}

static void test_good_files(void **state)
{
    (void)state;
    assert_true(visit_files("good", expect_success) >= 10);
}

static void test_order_is_that_of_the_data(void **state)
{
    char path[1024];
    muonium_reader *reader;
    (void)state;
    data_path(path, "good", "order-reversed.safetensors");
    assert_ok(muonium_reader_open(path, &reader));
    assert_string_equal(muonium_reader_entry(reader, 0)->name, "second");
    assert_string_equal(muonium_reader_entry(reader, 1)->name, "first");
    muonium_reader_close(reader);
    data_path(path, "good", "names-escaped.safetensors");
    assert_ok(muonium_reader_open(path, &reader));
    assert_string_equal(muonium_reader_entry(reader, 0)->name, "\"\\/\b\f\n\r\t");
    assert_string_equal(muonium_reader_entry(reader, 1)->name,
                        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_non_null(muonium_reader_find(reader, "\xc3\xa9"));
    muonium_reader_close(reader);
}

/* A hostile name is shown harmless and cut, and the reason still follows. */
static void test_long_names_in_messages(void **state)
{
    static buffer file;
    muonium_reader *reader;
    (void)state;
    char *text = (char *)file.bytes + 8;
    size_t length = 0;
    text[length++] = '{';
    text[length++] = '"';
    for (int i = 0; i < 5000; i++) {
        memcpy(text + length, "\xe2\x82\xac", 3);
        length += 3;
    }
    memcpy(text + length, "\":{}}", 5);
    length += 5;
    for (size_t i = 0; i < 8; i++) {
        file.bytes[i] = (unsigned char)(length >> (8 * i) & 0xff);
    }
    assert_status_message(muonium_reader_open_memory(file.bytes, 8 + length, &reader),
                          MUONIUM_FORMAT, "\xe2\x82\xac\"...: its dtype is missing");
}

/* ---- damage ---- */

/* Whatever was accepted must be a whole file: an independent look at it. */
static void check_invariants(const muonium_reader *reader, size_t size)
{
    uint64_t end = 0;
    size_t count = muonium_reader_count(reader);
    for (size_t i = 0; i < count; i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        uint64_t bits = entry->bits;
        for (size_t d = 0; d < entry->ndim; d++) {
            bits *= entry->shape[d];
        }
        assert_int_equal(bits, 8 * entry->bytes);
        assert_true(i == 0 || entry->offset == end);
        end = entry->offset + entry->bytes;
        assert_ptr_equal(muonium_reader_find(reader, entry->name), entry);
    }
    assert_true(count == 0 || end == size);
}

/* Copies go to memory of exactly their size, so that a sanitizer sees a read
 * beyond the end. */
static muonium_status open_copy(const unsigned char *bytes, size_t count, muonium_reader **reader,
                                unsigned char **copy)
{
    *copy = malloc(count > 0 ? count : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, count);
    return muonium_reader_open_memory(*copy, count, reader);
}

static void test_truncation(void **state)
{
    static buffer file;
    (void)state;
    write_sample(&file, true, 7);
    for (size_t count = 0; count < file.count; count++) {
        muonium_reader *reader;
        unsigned char *copy;
        assert_int_equal(open_copy(file.bytes, count, &reader, &copy), MUONIUM_FORMAT);
        free(copy);
    }
}

/* Without a seal a flipped bit may pass as another name or another value, but
 * the layout stays. With a seal, every flip in the header is detected; a data
 * flip changes the data alone, which checksums per tensor are for. */
static void test_bit_flips(void **state)
{
    static buffer file;
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        write_sample(&file, sealed == 1, 7);
        size_t data_start = file.count - SAMPLE_BYTES;
        size_t accepted = 0;
        for (size_t bit = 0; bit < 8 * file.count; bit++) {
            muonium_reader *reader;
            unsigned char *copy;
            file.bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
            muonium_status status = open_copy(file.bytes, file.count, &reader, &copy);
            file.bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
            if (status == MUONIUM_OK) {
                accepted++;
                check_invariants(reader, file.count);
                assert_int_equal(muonium_reader_count(reader), SAMPLES);
                for (size_t i = 0; i < SAMPLES; i++) {
                    const muonium_entry *entry = muonium_reader_entry(reader, i);
                    assert_int_equal(entry->bytes, sample[i].bytes);
                }
                if (sealed == 1) {
                    assert_int_equal(mu_reader_check_seal(reader, SEAL),
                                     bit / 8 < data_start ? MUONIUM_FORMAT : MUONIUM_OK);
                }
                muonium_reader_close(reader);
            } else {
                assert_int_equal(status, MUONIUM_FORMAT);
                assert_true(bit / 8 < data_start);
            }
            free(copy);
        }
        assert_true(accepted >= 8 * SAMPLE_BYTES);
    }
}

static void test_seal(void **state)
{
    static buffer file;
    muonium_reader *reader;
    (void)state;
    write_sample(&file, true, 7);
    assert_ok(muonium_reader_open_memory(file.bytes, file.count, &reader));
    check_sample(reader);
    assert_ok(mu_reader_check_seal(reader, SEAL));
    assert_status_message(mu_reader_check_seal(reader, "another"), MUONIUM_FORMAT, "missing");
    assert_int_equal(mu_reader_check_seal(reader, "format"), MUONIUM_FORMAT);

    /* The definition, once more: zeros for digits, then the checksum of it all. */
    char digits[9];
    snprintf(digits, sizeof digits, "%s", muonium_reader_metadata(reader, SEAL));
    muonium_reader_close(reader);
    size_t front = file.count - SAMPLE_BYTES;
    size_t at = 0;
    while (memcmp(file.bytes + at, digits, 8) != 0) {
        at++;
    }
    memset(file.bytes + at, '0', 8);
    assert_int_equal(strtoul(digits, NULL, 16), mu_crc32c(0, file.bytes, front));
}

static void test_random_mutations(void **state)
{
    static buffer file;
    static unsigned char mutant[4096];
    static const char spice[] = "{}[]\",:\\u0019eE.- \xff\xed\xa0";
    (void)state;
    test_rng rng = test_rng_start("mutations");
    write_sample(&file, true, 7);
    assert_true(file.count < sizeof mutant - 64);
    for (int round = 0; round < 20000; round++) {
        size_t count = file.count;
        memcpy(mutant, file.bytes, count);
        for (size_t edits = 1 + test_below(&rng, 4); edits > 0; edits--) {
            size_t at = test_below(&rng, count);
            size_t length = 1 + test_below(&rng, 16);
            switch (test_below(&rng, 4)) {
            case 0:
                mutant[at] = (unsigned char)test_below(&rng, 256);
                break;
            case 1:
                mutant[at] = (unsigned char)spice[test_below(&rng, sizeof spice - 1)];
                break;
            case 2:
                if (at + length < count) {
                    memmove(mutant + at, mutant + at + length, count - at - length);
                    count -= length;
                }
                break;
            default:
                if (at + length < count && count + length < sizeof mutant) {
                    memmove(mutant + at + length, mutant + at, count - at);
                    count += length;
                }
                break;
            }
        }
        /* Half of the time the length is put right, so that deeper checks are reached. */
        if (test_below(&rng, 2) == 0 && count > 8 + SAMPLE_BYTES) {
            uint64_t length = count - 8 - SAMPLE_BYTES;
            for (size_t i = 0; i < 8; i++) {
                mutant[i] = (unsigned char)(length >> (8 * i) & 0xff);
            }
        }
        muonium_reader *reader;
        unsigned char *copy;
        muonium_status status = open_copy(mutant, count, &reader, &copy);
        if (status == MUONIUM_OK) {
            check_invariants(reader, count);
            muonium_reader_close(reader);
        } else {
            assert_int_equal(status, MUONIUM_FORMAT);
        }
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_order_is_that_of_the_data),
        cmocka_unit_test(test_long_names_in_messages),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_random_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
