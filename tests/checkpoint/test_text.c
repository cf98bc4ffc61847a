/*
 * test_text.c: what headers and messages are made of: arrays that grow, UTF-8, and names
 * made fit for a terminal.
 */
#include "test.h"

#include "checkpoint/text.h"

static void test_growth(void **state)
{
    mu_text text = {0};
    size_t capacity = 3;
    (void)state;
    assert_true(mu_text_reserve(&text, 0)); /* room for nothing is room */
    assert_non_null(text.bytes);
    for (size_t i = 0; i < 1000; i++) {
        assert_true(mu_text_reserve(&text, 20));
        mu_text_add_integer(&text, i);
        mu_text_add(&text, "", 0);
        mu_text_add_string(&text, " ");
    }
    assert_memory_equal(text.bytes, "0 1 2 3 4 5 6 7 8 9 10 11 ", 26);
    assert_int_equal(text.count, 10 * 2 + 90 * 3 + 900 * 4);
    assert_false(mu_text_reserve(&text, SIZE_MAX)); /* and the text stays */
    assert_memory_equal(text.bytes + text.count - 4, "999 ", 4);
    mu_text_release(&text);
    assert_null(mu_grow(NULL, &capacity, SIZE_MAX / 4, 16));
    assert_int_equal(capacity, 3);
}

static void test_utf8(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0}, /* overlong */
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xdf", 0}, /* cut short */
        {"\xc3(", 0},
        {"\xe0\x9f\xbf", 0}, /* overlong */
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0}, /* a surrogate */
        {"\xee\x80\x80", 3},
        {"\xe2\x82(", 0},
        {"\xf0\x8f\xbf\xbf", 0}, /* overlong */
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t available = strlen(cases[i].bytes);
        assert_int_equal(mu_utf8_length(cases[i].bytes, available), cases[i].length);
        assert_int_equal(mu_utf8_valid(cases[i].bytes), cases[i].length > 0);
    }
    assert_true(mu_utf8_valid("") && mu_utf8_valid("na\xc3\xafve \xf0\x9f\x98\x80"));
}

static void test_quotes(void **state)
{
    char name[301];
    (void)state;
    assert_string_equal(mu_quote("w").text, "\"w\"");
    assert_string_equal(mu_quote("caf\xc3\xa9").text, "\"caf\xc3\xa9\"");
    assert_string_equal(mu_quote("\x1b[2J\n\x7f").text, "\"?[2J??\"");
    assert_string_equal(mu_quote("\xc2\x9b\xc2\xa0\xff").text, "\"?\xc2\xa0?\""); /* CSI, space */
    memset(name, 'x', 300);
    name[300] = '\0';
    mu_quoted cut = mu_quote(name);
    assert_memory_equal(cut.text + strlen(cut.text) - 5, "x\"...", 5);
    /* What needs several bytes is never cut within them. */
    for (size_t i = 0; i < 300; i += 3) {
        memcpy(name + i, "\xe2\x82\xac", 3);
    }
    for (size_t shift = 0; shift < 3; shift++) {
        char *from = name + 3 - shift;
        memset(name, 'x', 3);
        assert_true(mu_utf8_valid(mu_quote(from).text));
    }
}

/* What may not be shown: C0, DEL, C1, bidirectional controls, separators, no UTF-8. */
static const char *const hidden[] = {
    "\x01",         "\x1b",         "\n",           "\r",           "\t",           "\x7f",
    "\xc2\x80",     "\xc2\x9b",     "\xc2\x9f",     "\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f",
    "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa", "\xe2\x80\xab", "\xe2\x80\xac", "\xe2\x80\xad",
    "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa7", "\xe2\x81\xa8", "\xe2\x81\xa9", "\xff",
};

/* The neighbours of those, and what else may be shown. */
static const char shown[] =
    " ~\xc2\xa0\xd8\x9b\xe2\x80\x8d\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf\xe2\x81"
    "\xa5\xe2\x81\xaa\xef\xbf\xbd\xf0\x9f\x98\x80";

static void test_cleaning(void **state)
{
    char text[64];
    (void)state;
    strcpy(text, shown);
    mu_clean(text);
    assert_string_equal(text, shown);
    strcpy(text, "");
    mu_clean(text);
    assert_string_equal(text, "");
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        snprintf(text, sizeof text, "a%sb%s", hidden[i], hidden[i]);
        mu_clean(text);
        assert_string_equal(text, "a?b?");
        snprintf(text, sizeof text, "\"a?b\"");
        char name[16];
        snprintf(name, sizeof name, "a%sb", hidden[i]);
        assert_string_equal(mu_quote(name).text, text);
    }
}

static void keep_line(void *context, const char *line)
{
    snprintf(context, 256, "%s", line);
}

/* Messages and lines of the log, wherever a name gets into them. */
static void test_messages(void **state)
{
    static const char file[] = "/nowhere/\x1b[2J\xe2\x80\xae\n";
    char line[256] = "";
    float data[4] = {0};
    muonium_options options;
    muonium_optimizer *optimizer;
    muonium_reader *reader;
    (void)state;
    assert_ok(muonium_options_init(&options, NULL));
    options.log = keep_line;
    options.log_context = line;
    options.patterns = (const char *const[]){"w\x1b*"};
    options.pattern_count = 1;
    assert_ok(muonium_create(&options, &optimizer));
    muonium_tensor tensor = {.name = "w\x1b\xc2\x9b\n", .ndim = 2, .shape = {2, 2}, .data = data};
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    assert_status_message(muonium_add(optimizer, &tensor, NULL), MUONIUM_INVALID,
                          "the name w??? is taken");
    assert_status_message(muonium_find(optimizer, "\xe2\x81\xa6v", &(size_t){0}), MUONIUM_INVALID,
                          "no parameter is named ?v (");
    assert_status_message(muonium_reader_open(file, &reader), MUONIUM_IO, "/nowhere/?[2J??");
    tensor.name = "bad\xc3(";
    assert_status_message(muonium_add(optimizer, &tensor, NULL), MUONIUM_INVALID,
                          "the name bad?( is not valid UTF-8");
    assert_ok(muonium_set_grad(optimizer, 0, (float[4]){1, 2, 3, 4}));
    assert_ok(muonium_step(optimizer));
    assert_non_null(strstr(line, "name_pattern:w?*"));
    muonium_destroy(optimizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),   cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_quotes),   cmocka_unit_test(test_cleaning),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
