/*
 * test_safetensors.c: the reader and the writer of safetensors files: round
 * trips, arguments, and failures of sources, sinks and memory. Damaged and
 * hostile files are in test_safetensors_damage.c, faults of the file system in
 * test_atomic_file.c.
 */
#include "safetensors_sample.h"

/* ---- round trips ---- */

static void test_round_trip(void **state)
{
    static buffer first;
    static buffer other;
    muonium_reader *reader;
    (void)state;
    write_sample(&first, false, SAMPLE_BYTES);
    assert_ok(muonium_reader_open_memory(first.bytes, first.count, &reader));
    check_sample(reader);
    assert_int_equal(muonium_reader_metadata_count(reader), 2);
    assert_int_equal(muonium_reader_entry(reader, 0)->offset % 64, 0);
    muonium_reader_close(reader);
    for (size_t piece = 1; piece < SAMPLE_BYTES; piece++) {
        write_sample(&other, false, piece);
        assert_int_equal(other.count, first.count);
        assert_memory_equal(other.bytes, first.bytes, first.count);
    }
}

static void test_exact_bytes(void **state)
{
    static const char expected[] =
        "\x78\0\0\0\0\0\0\0{\"__metadata__\":{\"a\":\"b\"},"
        "\"w\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[0,2]},"
        "\"\\u0007\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[2,3]}}";
    static buffer out;
    muonium_writer *writer;
    (void)state;
    out.count = 0;
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_add_metadata(writer, "a", "b"));
    assert_ok(muonium_writer_add(writer, "w", "U8", 2, (uint64_t[]){2, 1}));
    assert_ok(muonium_writer_add(writer, "\a", "I8", 0, NULL));
    assert_ok(muonium_writer_begin_sink(writer, append, &out));
    assert_ok(muonium_writer_data(writer, "xyz", 3));
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    size_t header = (sizeof expected - 1 + 63) / 64 * 64;
    assert_int_equal(out.count, header + 3);
    unsigned char length = (unsigned char)(header - 8);
    assert_int_equal(out.bytes[0], length);
    assert_memory_equal(out.bytes + 1, expected + 1, sizeof expected - 2);
    for (size_t i = sizeof expected - 1; i < header; i++) {
        assert_int_equal(out.bytes[i], ' ');
    }
    assert_memory_equal(out.bytes + header, "xyz", 3);
}

/* Names of every length walk the header through all paddings. */
static void test_alignment(void **state)
{
    static buffer out;
    (void)state;
    for (size_t length = 0; length < 130; length++) {
        char name[131];
        muonium_writer *writer;
        muonium_reader *reader;
        memset(name, 'n', length);
        name[length] = '\0';
        out.count = 0;
        assert_ok(muonium_writer_create(&writer));
        assert_ok(muonium_writer_add(writer, name, "U8", 0, NULL));
        assert_ok(muonium_writer_begin_sink(writer, append, &out));
        assert_ok(muonium_writer_data(writer, "x", 1));
        assert_ok(muonium_writer_finish(writer));
        muonium_writer_destroy(writer);
        assert_ok(muonium_reader_open_memory(out.bytes, out.count, &reader));
        assert_int_equal(muonium_reader_entry(reader, 0)->offset % 64, 0);
        muonium_reader_close(reader);
    }
}

static void test_empty_file(void **state)
{
    static buffer out;
    muonium_writer *writer;
    muonium_reader *reader;
    (void)state;
    out.count = 0;
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_begin_sink(writer, append, &out));
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    assert_int_equal(out.count, 64);
    assert_ok(muonium_reader_open_memory(out.bytes, out.count, &reader));
    assert_int_equal(muonium_reader_count(reader), 0);
    assert_null(muonium_reader_find(reader, ""));
    assert_null(muonium_reader_metadata(reader, ""));
    muonium_reader_close(reader);
}

static void test_many_tensors(void **state)
{
    enum { TENSORS = 700 };
    static buffer out;
    muonium_writer *writer;
    muonium_reader *reader;
    char name[32];
    (void)state;
    out.count = 0;
    assert_ok(muonium_writer_create(&writer));
    for (unsigned i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "t%u", i * 7919u % TENSORS);
        assert_ok(muonium_writer_add(writer, name, "U8", 1, (uint64_t[]){1}));
    }
    assert_ok(muonium_writer_begin_sink(writer, append, &out));
    for (unsigned i = 0; i < TENSORS; i++) {
        unsigned char byte = (unsigned char)(i * 7919u % TENSORS % 251u);
        assert_ok(muonium_writer_data(writer, &byte, 1));
    }
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    assert_ok(muonium_reader_open_memory(out.bytes, out.count, &reader));
    for (unsigned i = 0; i < TENSORS; i++) {
        unsigned char byte;
        snprintf(name, sizeof name, "t%u", i);
        const muonium_entry *entry = muonium_reader_find(reader, name);
        assert_non_null(entry);
        assert_ok(muonium_reader_read(reader, entry, 0, &byte, 1));
        assert_int_equal(byte, i % 251u);
    }
    muonium_reader_close(reader);
}

/* ---- arguments ---- */

static void test_writer_refusals(void **state)
{
    static buffer out;
    muonium_writer *writer;
    (void)state;
    out.count = 0;
    assert_int_equal(muonium_writer_create(NULL), MUONIUM_INVALID);
    assert_ok(muonium_writer_create(&writer));
    assert_int_equal(muonium_writer_add(NULL, "w", "F32", 0, NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add(writer, NULL, "F32", 0, NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add(writer, "w", NULL, 0, NULL), MUONIUM_INVALID);
    assert_status_message(muonium_writer_add(writer, "w", "F32", 1, NULL), MUONIUM_INVALID,
                          "\"w\"");
    assert_status_message(muonium_writer_add(writer, "w", "F31", 0, NULL), MUONIUM_INVALID,
                          "\"F31\"");
    assert_status_message(muonium_writer_add(writer, "bad \xff", "F32", 0, NULL), MUONIUM_INVALID,
                          "\"bad ?\" is not UTF-8");
    assert_int_equal(muonium_writer_add(writer, "__metadata__", "F32", 0, NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add(writer, "w", "F4", 1, (uint64_t[]){3}), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add(writer, "w", "F32", 2, (uint64_t[]){1u << 31, 1ull << 40}),
                     MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add(writer, "w", "U8", 1, (uint64_t[]){UINT64_MAX}),
                     MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add_metadata(writer, "k", "\xed\xa0\x80"), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add_metadata(writer, NULL, ""), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_add_metadata(writer, "k", NULL), MUONIUM_INVALID);
    assert_status_message(muonium_writer_add_metadata(NULL, "k", ""), MUONIUM_INVALID,
                          "writer is NULL");
    assert_status_message(mu_writer_seal(NULL, "k"), MUONIUM_INVALID, "writer is NULL");
    assert_status_message(mu_writer_seal(writer, NULL), MUONIUM_INVALID, "key is NULL");
    assert_status_message(muonium_writer_add(writer, "w", "F32", SIZE_MAX, (uint64_t[]){1}),
                          MUONIUM_INVALID, "shape is longer than a header may be");
    assert_status_message(muonium_writer_prepare(writer), MUONIUM_INVALID, "has not begun");
    assert_status_message(muonium_writer_finish(NULL), MUONIUM_INVALID, "writer is NULL");
    assert_status_message(muonium_writer_data(writer, "", 0), MUONIUM_INVALID, "has not begun");
    assert_int_equal(muonium_writer_finish(writer), MUONIUM_INVALID);

    assert_ok(muonium_writer_add(writer, "w", "U8", 1, (uint64_t[]){2}));
    assert_ok(muonium_writer_add(writer, "v", "U8", 1, (uint64_t[]){2}));
    assert_int_equal(muonium_writer_begin_sink(writer, NULL, NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_begin(writer, NULL), MUONIUM_INVALID);
    assert_ok(muonium_writer_begin_sink(writer, append, &out));
    assert_int_equal(muonium_writer_add(writer, "x", "U8", 0, NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_begin_sink(writer, append, &out), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_begin(writer, "x"), MUONIUM_INVALID);
    assert_int_equal(muonium_writer_data(writer, NULL, 1), MUONIUM_INVALID);
    assert_ok(muonium_writer_data(writer, NULL, 0));
    assert_int_equal(muonium_writer_data(writer, "12345", 5), MUONIUM_INVALID);
    assert_ok(muonium_writer_data(writer, "12", 2));
    assert_status_message(muonium_writer_finish(writer), MUONIUM_INVALID,
                          "2 bytes are missing, from tensor \"v\" on");
    assert_ok(muonium_writer_data(writer, "34", 2));
    assert_ok(muonium_writer_finish(writer));
    assert_int_equal(muonium_writer_finish(writer), MUONIUM_INVALID);
    muonium_writer_destroy(writer);
    muonium_writer_destroy(NULL);
}

/* A header that would be longer than the format allows; control characters take six bytes
 * each. */
static void test_header_beyond_the_limit(void **state)
{
    enum { LIMIT = 100000000 };
    static buffer out;
    muonium_writer *writer;
    char *text = malloc(LIMIT + 2);
    (void)state;
    out.count = 0;
    assert_non_null(text);
    memset(text, 1, LIMIT + 1);
    text[LIMIT + 1] = '\0';
    assert_ok(muonium_writer_create(&writer));
    assert_status_message(muonium_writer_add_metadata(writer, "k", text), MUONIUM_INVALID,
                          "value has 100000001 bytes, more than a header may have");
    text[LIMIT / 6] = '\0';
    assert_ok(muonium_writer_add_metadata(writer, "k", text));
    assert_status_message(muonium_writer_begin_sink(writer, append, &out), MUONIUM_INVALID,
                          "but the format allows 100000000: use fewer tensors");
    assert_int_equal(out.count, 0);
    muonium_writer_destroy(writer);
    free(text);
}

/* A seal without other metadata, and a writer that is forgotten while it writes to a sink. */
static void test_seal_alone(void **state)
{
    static buffer out;
    muonium_writer *writer;
    muonium_reader *reader;
    (void)state;
    out.count = 0;
    assert_ok(muonium_writer_create(&writer));
    assert_ok(mu_writer_seal(writer, SEAL));
    assert_ok(muonium_writer_begin_sink(writer, append, &out));
    assert_ok(muonium_writer_prepare(writer));
    muonium_writer_destroy(writer);
    assert_ok(muonium_reader_open_memory(out.bytes, out.count, &reader));
    assert_ok(mu_reader_check_seal(reader, SEAL));
    muonium_reader_close(reader);
}

static void test_writer_refuses_duplicates(void **state)
{
    static buffer out;
    muonium_writer *writer;
    (void)state;
    out.count = 0;
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_add(writer, "w", "U8", 0, NULL));
    assert_ok(muonium_writer_add(writer, "v", "U8", 0, NULL));
    assert_ok(muonium_writer_add(writer, "w", "U8", 0, NULL));
    assert_status_message(muonium_writer_begin_sink(writer, append, &out), MUONIUM_INVALID,
                          "tensor \"w\": occurs twice");
    assert_int_equal(out.count, 0);
    muonium_writer_destroy(writer);
}

static void test_failing_sink(void **state)
{
    static buffer out;
    muonium_writer *writer;
    (void)state;
    for (size_t limit = 1; limit <= 64; limit += 63) {
        out.count = 0;
        out.limit = limit;
        assert_ok(muonium_writer_create(&writer));
        assert_ok(muonium_writer_add_metadata(writer, "k", "v"));
        muonium_status status = muonium_writer_begin_sink(writer, append, &out);
        assert_int_equal(status, limit == 64 ? MUONIUM_OK : MUONIUM_IO);
        assert_int_equal(muonium_writer_finish(writer), limit == 64 ? MUONIUM_OK : MUONIUM_INVALID);
        muonium_writer_destroy(writer);
    }
    out.limit = 0;
}

static bool read_nothing(void *context, uint64_t offset, void *to, size_t bytes)
{
    (void)context;
    (void)offset;
    (void)to;
    return bytes == 0;
}

static void test_reader_arguments(void **state)
{
    static buffer file;
    muonium_reader *reader;
    unsigned char byte;
    (void)state;
    write_sample(&file, false, 7);
    assert_int_equal(muonium_reader_open(NULL, &reader), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_open("x", NULL), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_open_memory(NULL, 1, &reader), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_open_memory(NULL, 0, &reader), MUONIUM_FORMAT);
    assert_int_equal(muonium_reader_open_source(NULL, &reader), MUONIUM_INVALID);
    assert_status_message(muonium_reader_open_memory(file.bytes, file.count, NULL), MUONIUM_INVALID,
                          "reader is NULL");
    assert_status_message(muonium_reader_open_source(&(muonium_source){.size = 8}, &reader),
                          MUONIUM_INVALID, "source->read is NULL");
    assert_status_message(muonium_reader_open_source(&(muonium_source){.read = read_nothing}, NULL),
                          MUONIUM_INVALID, "reader is NULL");
    assert_status_message(muonium_reader_open("/nonexistent/file", &reader), MUONIUM_IO,
                          "\"/nonexistent/file\"");
    assert_status_message(muonium_reader_open("/", &reader), MUONIUM_IO, "is a directory");
    assert_status_message(muonium_reader_open("/dev/null", &reader), MUONIUM_IO,
                          "a regular file is needed");

    assert_ok(muonium_reader_open_memory(file.bytes, file.count, &reader));
    const muonium_entry *entry = muonium_reader_entry(reader, 0);
    assert_ok(muonium_reader_read(reader, entry, 23, &byte, 1));
    assert_int_equal(byte, sample_byte(23));
    assert_ok(muonium_reader_read(reader, entry, 24, &byte, 0));
    assert_status_message(muonium_reader_read(reader, entry, 24, &byte, 1), MUONIUM_INVALID,
                          "tensor \"h.0.weight\"");
    assert_int_equal(muonium_reader_read(reader, entry, UINT64_MAX, &byte, 1), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_read(reader, entry, 1, &byte, SIZE_MAX), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_read(reader, NULL, 0, &byte, 1), MUONIUM_INVALID);
    assert_int_equal(muonium_reader_read(reader, entry, 0, NULL, 1), MUONIUM_INVALID);
    muonium_entry foreign = *entry;
    foreign.offset = file.count;
    assert_int_equal(muonium_reader_read(reader, &foreign, 0, &byte, 1), MUONIUM_INVALID);
    foreign.offset = file.count + 1;
    assert_status_message(muonium_reader_read(reader, &foreign, 0, &byte, 1), MUONIUM_INVALID,
                          "the entry is of another reader");
    assert_ok(muonium_reader_read(reader, entry, 0, NULL, 0));
    assert_status_message(muonium_reader_read(NULL, entry, 0, &byte, 1), MUONIUM_INVALID,
                          "reader is NULL");
    assert_null(muonium_reader_find(reader, NULL));
    assert_null(muonium_reader_metadata(reader, NULL));
    assert_string_equal(muonium_reader_metadata_key(reader, 0, NULL), "format");
    muonium_reader_close(reader);

    reader = NULL;
    assert_int_equal(muonium_reader_count(reader), 0);
    assert_null(muonium_reader_entry(reader, 0));
    assert_null(muonium_reader_find(reader, "w"));
    assert_null(muonium_reader_metadata(reader, "w"));
    assert_int_equal(muonium_reader_metadata_count(reader), 0);
    muonium_reader_close(reader);
}

/* A source that fails from its n-th call on. */
typedef struct fragile {
    const buffer *file;
    int calls_left;
} fragile;

static bool read_fragile(void *context, uint64_t offset, void *to, size_t bytes)
{
    fragile *source = context;
    assert_true(offset + bytes <= source->file->count);
    memcpy(to, source->file->bytes + offset, bytes);
    return source->calls_left-- > 0;
}

static void test_failing_source(void **state)
{
    static buffer file;
    (void)state;
    write_sample(&file, false, 7);
    for (int calls = 0; calls < 3; calls++) {
        fragile context = {&file, calls};
        muonium_source source = {read_fragile, &context, file.count};
        muonium_reader *reader = NULL;
        muonium_status status = muonium_reader_open_source(&source, &reader);
        assert_int_equal(status, calls < 2 ? MUONIUM_IO : MUONIUM_OK);
        if (status == MUONIUM_OK) {
            unsigned char data[24];
            const muonium_entry *entry = muonium_reader_entry(reader, 0);
            assert_int_equal(muonium_reader_read(reader, entry, 0, data, 24), MUONIUM_IO);
            context.calls_left = 100;
            check_sample(reader);
        }
        muonium_reader_close(reader);
    }
}

static void test_dtype_names(void **state)
{
    muonium_dtype dtype = MUONIUM_F32;
    (void)state;
    for (int i = MUONIUM_F32; i <= MUONIUM_F16; i++) {
        const char *name = muonium_dtype_name((muonium_dtype)i);
        assert_true(muonium_dtype_named(name, &dtype));
        assert_int_equal(dtype, i);
        assert_int_equal(mu_dtype_bits(name), 8 * muonium_dtype_size(dtype));
    }
    assert_null(muonium_dtype_name((muonium_dtype)4));
    assert_false(muonium_dtype_named("I32", &dtype));
    assert_false(muonium_dtype_named(NULL, &dtype));
    assert_int_equal(dtype, MUONIUM_F16);
}

/* Sizes at which the number of bytes just fits, or does not. */
static void test_largest_tensors(void **state)
{
    uint64_t bytes = 0;
    (void)state;
    assert_true(mu_tensor_bytes(8, 1, (uint64_t[]){UINT64_MAX}, &bytes));
    assert_true(bytes == UINT64_MAX);
    assert_true(mu_tensor_bytes(4, 1, (uint64_t[]){UINT64_MAX - 1}, &bytes));
    assert_true(bytes == (UINT64_MAX - 1) / 2);
    assert_false(mu_tensor_bytes(16, 1, (uint64_t[]){UINT64_MAX / 2 + 1}, &bytes));
    assert_true(mu_tensor_bytes(16, 1, (uint64_t[]){UINT64_MAX / 2}, &bytes));
    assert_true(bytes == UINT64_MAX - 1);
    assert_false(mu_tensor_bytes(4, 1, (uint64_t[]){3}, &bytes));
}

/* ---- memory ---- */

static muonium_status write_and_read(buffer *file)
{
    muonium_writer *writer = NULL;
    muonium_reader *reader = NULL;
    unsigned char data[SAMPLE_BYTES] = {0};
    file->count = 0;
    muonium_status status = muonium_writer_create(&writer);
    for (size_t i = 0; status == MUONIUM_OK && i < SAMPLES; i++) {
        status = muonium_writer_add(writer, sample[i].name, sample[i].dtype, sample[i].ndim,
                                    sample[i].shape);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_add_metadata(writer, "key", "value");
    }
    if (status == MUONIUM_OK) {
        status = mu_writer_seal(writer, SEAL);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_begin_sink(writer, append, file);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_data(writer, data, SAMPLE_BYTES);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_finish(writer);
    }
    muonium_writer_destroy(writer);
    if (status == MUONIUM_OK) {
        status = muonium_reader_open_memory(file->bytes, file->count, &reader);
    }
    muonium_reader_close(reader);
    return status;
}

static void test_every_allocation_fails_in_turn(void **state)
{
    static buffer file;
    (void)state;
    test_count_memory();
    assert_ok(write_and_read(&file));
    long calls = test_memory.calls;
    assert_int_equal(test_memory.alive, 0);
    assert_true(calls > 10);
    for (long i = 1; i <= calls; i++) {
        test_fail_allocation(i, false);
        assert_int_equal(write_and_read(&file), MUONIUM_NO_MEMORY);
        assert_int_equal(test_memory.alive, 0);
    }
    muonium_set_allocator(NULL);
}

/* A header that lies about sizes costs no memory. */
static void test_memory_is_bounded(void **state)
{
    static const char lie[] = "\xff\xe0\xf5\x05\0\0\0\0{\"w\":{\"dtype\":\"F64\",";
    muonium_reader *reader;
    (void)state;
    test_count_memory();
    assert_int_equal(muonium_reader_open_memory(lie, sizeof lie - 1, &reader), MUONIUM_FORMAT);
    assert_true(test_memory.bytes < 4096);
    muonium_set_allocator(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_empty_file),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_writer_refusals),
        cmocka_unit_test(test_header_beyond_the_limit),
        cmocka_unit_test(test_seal_alone),
        cmocka_unit_test(test_writer_refuses_duplicates),
        cmocka_unit_test(test_failing_sink),
        cmocka_unit_test(test_reader_arguments),
        cmocka_unit_test(test_failing_source),
        cmocka_unit_test(test_dtype_names),
        cmocka_unit_test(test_largest_tensors),
        cmocka_unit_test(test_every_allocation_fails_in_turn),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
