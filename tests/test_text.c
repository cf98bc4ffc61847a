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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
