/*
 * json.c: the tokens of the JSON in a safetensors header.
 */
#include "checkpoint/json.h"

#include "checkpoint/text.h"

#include <string.h>

static bool fail_at(mu_json *json, size_t at, const char *problem)
{
    json->at = at;
    json->problem = problem;
    return false;
}

/* The next byte, or -1 at the end. */
static int peek(const mu_json *json)
{
    return json->at < json->size ? (unsigned char)json->text[json->at] : -1;
}

static void skip_white_space(mu_json *json)
{
    for (int c = peek(json); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(json)) {
        json->at++;
    }
}

bool mu_json_take(mu_json *json, char punctuation)
{
    skip_white_space(json);
    if (peek(json) != punctuation) {
        return false;
    }
    json->at++;
    return true;
}

bool mu_json_expect(mu_json *json, char punctuation)
{
    static const struct {
        char byte;
        const char *problem;
    } expected[] = {
        {'{', "expected '{'"},        {'}', "expected ',' or '}'"}, {'[', "expected '['"},
        {']', "expected ',' or ']'"}, {':', "expected ':'"},        {',', "expected ','"},
        {'"', "expected a string"},
    };
    if (mu_json_take(json, punctuation)) {
        return true;
    }
    size_t i = 0;
    while (expected[i].byte != punctuation) {
        i++;
    }
    return fail_at(json, json->at, expected[i].problem);
}

/* Four hexadecimal digits at `at`; -1 if there are none. */
static long hexadecimal(const mu_json *json, size_t at)
{
    if (json->size - at < 4) {
        return -1;
    }
    long value = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = json->text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static size_t encode_utf8(long code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* The code point of the "\u" escape whose digits are next, a pair of surrogates
 * included. */
static bool escaped_code_point(mu_json *json, long *code)
{
    size_t start = json->at;
    long high = hexadecimal(json, start);
    if (high < 0) {
        return fail_at(json, start, "expected four hexadecimal digits");
    }
    if (high == 0) {
        return fail_at(json, start, "a string contains U+0000");
    }
    json->at += 4;
    *code = high;
    if (high < 0xd800 || high > 0xdfff) {
        return true;
    }
    long low = -1;
    if (high < 0xdc00 && json->size - json->at >= 6 && json->text[json->at] == '\\' &&
        json->text[json->at + 1] == 'u') {
        low = hexadecimal(json, json->at + 2);
    }
    if (low < 0xdc00 || low > 0xdfff) {
        return fail_at(json, start, "a string contains a lone surrogate");
    }
    json->at += 6;
    *code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* The escape whose backslash was just passed, into at most four bytes. */
static bool escape(mu_json *json, char *out, size_t *count)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    int c = peek(json);
    if (c == 'u') {
        long code;
        json->at++;
        if (!escaped_code_point(json, &code)) {
            return false;
        }
        *count = encode_utf8(code, out);
        return true;
    }
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name == NULL) {
        return fail_at(json, json->at, "unknown escape in a string");
    }
    json->at++;
    out[0] = values[name - names];
    *count = 1;
    return true;
}

bool mu_json_string(mu_json *json, char **string)
{
    if (!mu_json_expect(json, '"')) {
        return false;
    }
    char *out = json->text + json->at;
    *string = out;
    for (;;) {
        int c = peek(json);
        if (c < 0) {
            return fail_at(json, json->at, "a string does not end");
        }
        if (c == '"') {
            json->at++;
            *out = '\0';
            return true;
        }
        if (c < 0x20) {
            return fail_at(json, json->at, "a string contains a control character");
        }
        size_t count;
        if (c == '\\') {
            json->at++;
            if (!escape(json, out, &count)) {
                return false;
            }
        } else {
            count = mu_utf8_length(json->text + json->at, json->size - json->at);
            if (count == 0) {
                return fail_at(json, json->at, "a string is not valid UTF-8");
            }
            if (out != json->text + json->at) {
                memmove(out, json->text + json->at, count);
            }
            json->at += count;
        }
        out += count;
    }
}

bool mu_json_integer(mu_json *json, uint64_t *value)
{
    skip_white_space(json);
    size_t start = json->at;
    int c = peek(json);
    if (c == '-') {
        return fail_at(json, start, "a negative number");
    }
    if (c < '0' || c > '9') {
        return fail_at(json, start, "expected a non-negative integer");
    }
    uint64_t total = 0;
    for (; c >= '0' && c <= '9'; c = peek(json)) {
        uint64_t digit = (uint64_t)(c - '0');
        if (total > ((uint64_t)INT64_MAX - digit) / 10) {
            return fail_at(json, start, "a number beyond 2^63 - 1");
        }
        total = total * 10 + digit;
        json->at++;
    }
    if (json->text[start] == '0' && json->at - start > 1) {
        return fail_at(json, start, "a number with leading zeros");
    }
    if (c == '.' || c == 'e' || c == 'E') {
        return fail_at(json, start, "a number with a fraction or an exponent");
    }
    *value = total;
    return true;
}

bool mu_json_end(mu_json *json)
{
    while (peek(json) == ' ') {
        json->at++;
    }
    if (json->at < json->size) {
        return fail_at(json, json->at, "something other than spaces follows the closing '}'");
    }
    return true;
}
